//! ideal: what a server would be that does nothing: the upper bound of a load on this machine.
//!
//! It reads frames and answers as the protocol wants it, with answers made up on the spot: every
//! publish is acknowledged, every pull is served, and nothing is checked, stored or counted. So the
//! load generator, the loopback interface and the system calls are all that is measured.
//!
//! Build: rustc -O --edition 2021 -o ideal ideal.rs
//! Usage: ideal [--spin] [--sync] -p PORT -sd PATH (other options of a server are ignored)
//! With `--spin` a thread looks for input for a moment before it sleeps, which saves waking it.
//! With `--sync` what was read is written and synced before it is answered, at PATH.
use std::collections::HashMap;
use std::env;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::thread;
use std::time::{Duration, Instant};

#[path = "ideal_disk.rs"]
mod ideal_disk;
use ideal_disk::Disk;

/// Who listens on a subject: its last token may be `*`.
#[derive(Clone)]
struct Listener { socket: Arc<Mutex<TcpStream>>, sid: Vec<u8> }
#[derive(Default)]
struct Interest { by_subject: RwLock<HashMap<Vec<u8>, Vec<Listener>>>, changes: AtomicUsize }

impl Interest {
    fn add(&self, subject: &[u8], listener: Listener) {
        self.by_subject.write().unwrap().entry(subject.into()).or_default().push(listener);
        self.changes.fetch_add(1, Ordering::SeqCst);
    }
    fn of(&self, subject: &[u8]) -> Vec<Listener> {
        let known = self.by_subject.read().unwrap();
        if let Some(found) = known.get(subject) { return found.clone() }
        let Some(dot) = subject.iter().rposition(|&x| x == b'.') else { return Vec::new() };
        let mut any = subject[..=dot].to_vec();
        any.push(b'*');
        known.get(&any).cloned().unwrap_or_default()
    }
}

struct Connection {
    interest: Arc<Interest>,
    socket: Arc<Mutex<TcpStream>>,
    out: Vec<u8>,                    // for this client
    others: Vec<(Listener, Vec<u8>)>, // for those who listen on `subject`
    subject: Vec<u8>,
    changes: usize,
    seq: usize,
    disk: Option<Arc<Mutex<Disk>>>,
    is_stored: bool,                 // whether something is answered as if it were
}

fn number(text: &[u8]) -> usize {
    text.iter().filter(|x| x.is_ascii_digit()).fold(0, |a, &x| a * 10 + (x - b'0') as usize)
}
/// The number behind `"batch":` in a request.
fn batch_of(body: &[u8]) -> usize {
    let key = b"\"batch\":";
    let Some(at) = body.windows(key.len()).position(|w| w == key) else { return 1 };
    let rest = &body[at + key.len()..];
    number(&rest[..rest.iter().position(|x| !x.is_ascii_digit()).unwrap_or(rest.len())])
}

impl Connection {
    fn message(&mut self, subject: &[u8], reply: &str, body: &[u8]) {
        self.out.extend_from_slice(b"MSG ");
        self.out.extend_from_slice(subject);
        write!(self.out, " 1 {reply}{}\r\n", body.len()).unwrap();
        self.out.extend_from_slice(body);
        self.out.extend_from_slice(b"\r\n");
    }
    fn publish(&mut self, subject: &[u8], reply: &[u8], body: &[u8]) {
        if subject.starts_with(b"$JS.ACK.") { return }
        if subject.starts_with(b"$JS.API.CONSUMER.MSG.NEXT.") {
            for _ in 0..batch_of(body) {
                self.seq += 1;
                let n = self.seq;
                let ack = format!("$JS.ACK.BENCH.c.1.{n}.{n}.1700000000000000000.0 ");
                self.message(b"bench.x", &ack, &[b'x'; 128]);
            }
        } else if subject.starts_with(b"$JS.API.DIRECT.GET.") {
            for _ in 0..batch_of(body) {
                self.seq += 1;
                let block = format!("NATS/1.0\r\nNats-Stream: BENCH\r\nNats-Subject: bench.x\r\nNats-Sequence: {}\r\nNats-Time-Stamp: 2026-01-01T00:00:00.000000000Z\r\nNats-Num-Pending: 1\r\n\r\n", self.seq);
                self.out.extend_from_slice(b"HMSG ");
                self.out.extend_from_slice(reply);
                write!(self.out, " 1 {} {}\r\n{block}", block.len(), block.len() + 128).unwrap();
                self.out.extend_from_slice(&[b'x'; 128]);
                self.out.extend_from_slice(b"\r\n");
            }
            let end = "NATS/1.0 204 EOB\r\n\r\n";
            self.out.extend_from_slice(b"HMSG ");
            self.out.extend_from_slice(reply);
            write!(self.out, " 1 {0} {0}\r\n{end}\r\n", end.len()).unwrap();
        } else if subject.starts_with(b"$JS.API.") {
            self.message(reply, "", b"{}");
        } else {
            self.forward(subject, reply, body);
            if self.others.is_empty() && !reply.is_empty() {
                self.seq += 1;
                let ack = format!("{{\"stream\":\"BENCH\", \"seq\":{}}}", self.seq);
                self.message(reply, "", ack.as_bytes());
                self.is_stored = true;
            }
        }
    }
    fn forward(&mut self, subject: &[u8], reply: &[u8], body: &[u8]) {
        let changes = self.interest.changes.load(Ordering::SeqCst);
        if changes != self.changes || subject != &self.subject[..] {
            self.pass_on();
            self.changes = changes;
            self.subject = subject.into();
            self.others = self.interest.of(subject).into_iter().map(|x| (x, Vec::new())).collect();
        }
        for (listener, out) in &mut self.others {
            out.extend_from_slice(b"MSG ");
            out.extend_from_slice(subject);
            out.push(b' ');
            out.extend_from_slice(&listener.sid);
            out.push(b' ');
            if !reply.is_empty() { out.extend_from_slice(reply); out.push(b' '); }
            write!(out, "{}\r\n", body.len()).unwrap();
            out.extend_from_slice(body);
            out.extend_from_slice(b"\r\n");
        }
    }
    fn pass_on(&mut self) {
        for (listener, out) in &mut self.others {
            if !out.is_empty() { let _ = listener.socket.lock().unwrap().write_all(out); out.clear(); }
        }
    }
    fn flush(&mut self) {
        self.pass_on();
        if !self.out.is_empty() { let _ = self.socket.lock().unwrap().write_all(&self.out); self.out.clear(); }
    }
    /// Handles the whole frames in `data`; how many bytes that were.
    fn frames(&mut self, data: &[u8]) -> usize {
        let mut at = 0;
        while let Some(nl) = data[at..].iter().position(|&x| x == b'\n') {
            let line = &data[at..at + nl.saturating_sub(1)];
            let mut next = at + nl + 1;
            let words: Vec<&[u8]> = line.split(|&x| x == b' ').filter(|w| !w.is_empty()).collect();
            match words.first().copied().unwrap_or(b"") {
                b"PUB" | b"HPUB" => {
                    let has_block = words[0] == b"HPUB";
                    let n = number(words[words.len() - 1]);
                    if data.len() < next + n + 2 { break }
                    let block = if has_block { number(words[words.len() - 2]) } else { 0 };
                    let has_reply = words.len() == if has_block { 5 } else { 4 };
                    let reply = if has_reply { words[2] } else { b"" };
                    self.publish(words[1], reply, &data[next + block..next + n]);
                    next += n + 2;
                }
                b"SUB" => {
                    let listener = Listener { socket: self.socket.clone(), sid: words[words.len() - 1].into() };
                    self.interest.add(words[1], listener);
                }
                b"PING" => self.out.extend_from_slice(b"PONG\r\n"),
                _ => {}
            }
            at = next;
        }
        at
    }
}

extern "C" { fn recv(fd: i32, to: *mut u8, size: usize, flags: i32) -> isize; }
const DONT_WAIT: i32 = 0x40; // MSG_DONTWAIT of Linux
const SPIN: Duration = Duration::from_micros(200);

/// Reads what is there; waits for it awake for a while if `spin`, then asleep.
fn read(socket: &mut TcpStream, chunk: &mut [u8], spin: bool) -> std::io::Result<usize> {
    let begin = Instant::now();
    while spin && begin.elapsed() < SPIN {
        let n = unsafe { recv(socket.as_raw_fd(), chunk.as_mut_ptr(), chunk.len(), DONT_WAIT) };
        if n >= 0 { return Ok(n as usize) }
        let error = std::io::Error::last_os_error();
        if error.kind() != ErrorKind::WouldBlock { return Err(error) }
    }
    socket.read(chunk)
}

fn serve(mut socket: TcpStream, interest: Arc<Interest>, disk: Option<Arc<Mutex<Disk>>>, spin: bool) {
    socket.set_nodelay(true).unwrap();
    let writer = Arc::new(Mutex::new(socket.try_clone().unwrap()));
    let mut it = Connection { interest, socket: writer, out: Vec::new(), others: Vec::new(), subject: Vec::new(), changes: usize::MAX, seq: 0, disk, is_stored: false };
    it.out.extend_from_slice(b"INFO {\"server_id\":\"I\",\"version\":\"2.12.0\",\"headers\":true,\"max_payload\":8388608}\r\n");
    it.flush();
    let (mut data, mut chunk) = (Vec::new(), vec![0; 1 << 18]);
    while let Ok(n) = read(&mut socket, &mut chunk, spin) {
        if n == 0 { break }
        data.extend_from_slice(&chunk[..n]);
        let used = it.frames(&data);
        if std::mem::take(&mut it.is_stored) {
            if let Some(disk) = &it.disk { disk.lock().unwrap().keep(&data[..used]) }
        }
        data.drain(..used);
        it.flush();
    }
}

fn main() {
    let words: Vec<String> = env::args().collect();
    let has = |word: &str| words.iter().any(|w| w == word);
    let behind = |word: &str| &words[words.iter().position(|w| w == word).expect(word) + 1];
    let spin = has("--spin");
    let port: u16 = behind("-p").parse().expect("a port");
    let disk = has("--sync").then(|| {
        std::fs::create_dir_all(behind("-sd")).unwrap();
        Arc::new(Mutex::new(Disk::new(&format!("{}/blocks", behind("-sd")))))
    });
    let interest = Arc::new(Interest::default());
    for socket in TcpListener::bind(("127.0.0.1", port)).expect("bind").incoming() {
        let (socket, interest, disk) = (socket.unwrap(), interest.clone(), disk.clone());
        thread::spawn(move || serve(socket, interest, disk, spin));
    }
}
