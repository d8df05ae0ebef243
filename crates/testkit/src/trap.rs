//! A module that crashes where it is told to: what a bug in it would do, as a VM sees it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::scratch;

/// Reads a WebAssembly module, as far as its functions are concerned.
struct Reader<'m> {
    bytes: &'m [u8],
    at: usize,
}

impl<'m> Reader<'m> {
    fn number(&mut self) -> usize {
        let mut number = 0;
        for shift in (0..).step_by(7) {
            let byte = self.bytes[self.at];
            self.at += 1;
            number |= usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
        number
    }

    fn take(&mut self, count: usize) -> &'m [u8] {
        self.at += count;
        &self.bytes[self.at - count..self.at]
    }

    fn name(&mut self) -> &'m [u8] {
        let len = self.number();
        self.take(len)
    }

    /// Goes to the content of the section with this number, whose first part is how many things are in it.
    fn section(&mut self, wanted: usize) -> usize {
        self.at = 8;
        loop {
            let (id, len) = (self.number(), self.number());
            if id == wanted {
                return self.number();
            }
            self.at += len;
        }
    }
}

/// The module as it is, but that this callback of it ends in a trap.
pub fn with_trap(module: &Path, callback: &str) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let bytes = fs::read(module).unwrap();
    let mut reader = Reader { bytes: &bytes, at: 0 };
    let imported = reader.section(2);
    for _ in 0..imported {
        reader.name();
        reader.name();
        assert_eq!(reader.number(), 0, "this module imports functions and nothing else");
        reader.number();
    }
    let exported = reader.section(7);
    let found = (0..exported).find_map(|_| {
        let (name, _, index) = (reader.name(), reader.number(), reader.number());
        (name == callback.as_bytes()).then_some(index)
    });
    let index = found.unwrap_or_else(|| panic!("no {callback} in {module:?}")) - imported;
    reader.section(10);
    for _ in 0..index {
        reader.name();
    }
    let len = reader.number();
    let at = reader.at;
    // No locals, `unreachable`, and nothing more that is done.
    let mut crashing = bytes;
    let body = &mut crashing[at..at + len];
    body.fill(0x01);
    body[..2].copy_from_slice(&[0x00, 0x00]);
    body[len - 1] = 0x0b;
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let made = scratch().join(format!("crashing-{}-{count}.wasm", std::process::id()));
    fs::write(&made, crashing).unwrap();
    made
}
