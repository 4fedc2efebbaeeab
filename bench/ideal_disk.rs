//! What the programs that do nothing have of a disk: a file whose blocks are there already.
use std::alloc::{alloc_zeroed, Layout};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};

const DIRECT: i32 = 0o40000; // O_DIRECT of Linux on x86-64
const BLOCK: usize = 4096;
pub const BUFFER: usize = 1 << 20;
const FILE: u64 = 64 << 20;

/// A file whose blocks are there already; what is written to it goes round.
pub struct Disk { file: File, buffer: &'static mut [u8], at: u64 }

impl Disk {
    pub fn new(path: &str) -> Disk {
        let file = OpenOptions::new().write(true).create(true).custom_flags(DIRECT).open(path).unwrap();
        let layout = Layout::from_size_align(BUFFER, BLOCK).unwrap();
        let buffer = unsafe { std::slice::from_raw_parts_mut(alloc_zeroed(layout), BUFFER) };
        for at in (0..FILE).step_by(BUFFER) { file.write_all_at(buffer, at).unwrap(); }
        file.sync_all().unwrap();
        Disk { file, buffer, at: 0 }
    }
    /// Writes and syncs.
    pub fn keep(&mut self, data: &[u8]) {
        for part in data.chunks(BUFFER) {
            self.buffer[..part.len()].copy_from_slice(part);
            let size = part.len().div_ceil(BLOCK) * BLOCK;
            if self.at + size as u64 > FILE { self.at = 0 }
            self.file.write_all_at(&self.buffer[..size], self.at).unwrap();
            self.at += size as u64;
        }
        self.file.sync_data().unwrap();
    }
}
