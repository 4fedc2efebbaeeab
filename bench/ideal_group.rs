//! ideal_group: what three servers would be that do nothing but keep what they promise: the bound of
//! a group's publishes on this machine.
//!
//! The leader sends what it reads to two followers, each a process of its own. All three write it to
//! blocks of their file that were written before, and sync it. Publishes are acknowledged once two
//! of three have them. Nothing is checked, framed for a store, or kept for anybody to read, and no
//! thread waits for another but for what it needs. So the load generator, the loopback interface,
//! the system calls and the disk are all that is measured.
//!
//! Build: rustc -O --edition 2021 -o ideal_group ideal_group.rs
//! Usage: ideal_group -p PORT --directory PATH, on Linux and x86-64 (O_DIRECT is another bit elsewhere)
use std::collections::VecDeque;
use std::env;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

#[path = "ideal_disk.rs"]
mod ideal_disk;
use ideal_disk::{Disk, BUFFER};

/// What a follower says: how many bytes of the leader's it has, synced.
fn follow(port: &str, path: &str) {
    let mut socket = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    socket.set_nodelay(true).unwrap();
    let mut disk = Disk::new(path);
    let (mut chunk, mut synced) = (vec![0; BUFFER], 0u64);
    socket.write_all(&synced.to_le_bytes()).unwrap();
    while let Ok(n) = socket.read(&mut chunk) {
        if n == 0 { break }
        disk.keep(&chunk[..n]);
        synced += n as u64;
        if socket.write_all(&synced.to_le_bytes()).is_err() { break }
    }
}

/// How far each server is, in bytes of what clients have published, and who waits for that.
#[derive(Default)]
struct Progress { synced: [u64; 3], waiting: VecDeque<(u64, Vec<u8>, TcpStream)> }

impl Progress {
    fn has(&mut self, server: usize, bytes: u64) {
        self.synced[server] = bytes;
        let mut sorted = self.synced;
        sorted.sort();
        while self.waiting.front().is_some_and(|x| x.0 <= sorted[1]) {
            let (_, answer, mut socket) = self.waiting.pop_front().unwrap();
            let _ = socket.write_all(&answer);
        }
    }
}

/// The leader: what is to be written here, and its followers.
struct Group {
    sending: Mutex<(Vec<TcpStream>, u64)>, // and how many bytes were sent
    unwritten: Mutex<Vec<u8>>,
    is_more: Condvar,
    progress: Mutex<Progress>,
}

impl Group {
    fn publish(&self, data: &[u8], answer: Vec<u8>, socket: &TcpStream) {
        let mut sending = self.sending.lock().unwrap();
        sending.1 += data.len() as u64;
        let end = sending.1;
        self.progress.lock().unwrap().waiting.push_back((end, answer, socket.try_clone().unwrap()));
        for follower in &mut sending.0 { follower.write_all(data).unwrap(); }
        self.unwritten.lock().unwrap().extend_from_slice(data);
        self.is_more.notify_one();
    }
    fn write_here(&self, path: &str) {
        let mut disk = Disk::new(path);
        let mut synced = 0;
        loop {
            let mut unwritten = self.unwritten.lock().unwrap();
            while unwritten.is_empty() { unwritten = self.is_more.wait(unwritten).unwrap(); }
            let data = std::mem::take(&mut *unwritten);
            drop(unwritten);
            disk.keep(&data);
            synced += data.len() as u64;
            self.progress.lock().unwrap().has(0, synced);
        }
    }
    fn hear(&self, follower: usize, mut socket: TcpStream) {
        let mut synced = [0; 8];
        while socket.read_exact(&mut synced).is_ok() {
            self.progress.lock().unwrap().has(follower, u64::from_le_bytes(synced));
        }
    }
}

fn message(out: &mut Vec<u8>, reply: &[u8], body: &str) {
    out.extend_from_slice(b"MSG ");
    out.extend_from_slice(reply);
    write!(out, " 1 {}\r\n{body}\r\n", body.len()).unwrap();
}

/// Handles the whole frames in `data`: how many bytes they have, and what is answered at once. A
/// publish to a stream is answered in `later`, once a majority has it.
fn frames(data: &[u8], seq: &mut usize, now: &mut Vec<u8>, later: &mut Vec<u8>) -> usize {
    let mut at = 0;
    while let Some(nl) = data[at..].iter().position(|&x| x == b'\n') {
        let line = &data[at..at + nl.saturating_sub(1)];
        let mut next = at + nl + 1;
        let mut words = line.split(|&x| x == b' ').filter(|w| !w.is_empty());
        match words.next().unwrap_or(b"") {
            b"PUB" => {
                let words: Vec<&[u8]> = words.collect();
                let n: usize = std::str::from_utf8(words[words.len() - 1]).unwrap().parse().unwrap();
                if data.len() < next + n + 2 { break }
                next += n + 2;
                if words[0].starts_with(b"$JS.API.") {
                    message(now, words[1], "{}");
                } else {
                    *seq += 1;
                    message(later, words[1], &format!("{{\"stream\":\"BENCH\", \"seq\":{seq}}}"));
                }
            }
            b"PING" => now.extend_from_slice(b"PONG\r\n"),
            _ => {}
        }
        at = next;
    }
    at
}

fn serve(mut socket: TcpStream, group: Arc<Group>) {
    socket.set_nodelay(true).unwrap();
    socket.write_all(b"INFO {\"server_id\":\"I\",\"version\":\"2.12.0\",\"headers\":true,\"max_payload\":8388608}\r\n").unwrap();
    let (mut data, mut chunk, mut seq) = (Vec::new(), vec![0; 1 << 18], 0);
    while let Ok(n) = socket.read(&mut chunk) {
        if n == 0 { break }
        data.extend_from_slice(&chunk[..n]);
        let (mut now, mut later) = (Vec::new(), Vec::new());
        let used = frames(&data, &mut seq, &mut now, &mut later);
        if !now.is_empty() { socket.write_all(&now).unwrap(); }
        if !later.is_empty() { group.publish(&data[..used], later, &socket); }
        data.drain(..used);
    }
}

/// A follower's process, which ends with the leader.
struct Follower(Child);
impl Drop for Follower { fn drop(&mut self) { let _ = self.0.kill(); } }

fn main() {
    let words: Vec<String> = env::args().collect();
    let option = |name: &str| words.iter().position(|w| w == name).map(|at| words[at + 1].clone());
    let directory = option("--directory").expect("--directory PATH");
    if let Some(port) = option("--follow") { return follow(&port, &directory) }
    let port: u16 = option("-p").expect("-p PORT").parse().expect("a port");
    let here = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = here.local_addr().unwrap().port().to_string();
    let _followers: Vec<Follower> = (1..3).map(|n| {
        let path = format!("{directory}/n{n}");
        Follower(Command::new(&words[0]).args(["--follow", &to, "--directory", &path]).spawn().unwrap())
    }).collect();
    let sockets: Vec<TcpStream> = (1..3).map(|_| here.accept().unwrap().0).collect();
    let group = Arc::new(Group {
        sending: Mutex::new((sockets.iter().map(|x| x.try_clone().unwrap()).collect(), 0)),
        unwritten: Mutex::default(), is_more: Condvar::new(), progress: Mutex::default(),
    });
    for (n, socket) in sockets.into_iter().enumerate() {
        socket.set_nodelay(true).unwrap();
        let mut ready = [0; 8];
        (&socket).read_exact(&mut ready).unwrap();
        let group = group.clone();
        thread::spawn(move || group.hear(n + 1, socket));
    }
    let (writing, path) = (group.clone(), format!("{directory}/n0"));
    thread::spawn(move || writing.write_here(&path));
    for socket in TcpListener::bind(("127.0.0.1", port)).expect("bind").incoming() {
        let (socket, group) = (socket.unwrap(), group.clone());
        thread::spawn(move || serve(socket, group));
    }
}
