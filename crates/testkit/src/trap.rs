//! A copy of the module that crashes at a chosen place or time, as a bug in the module would make
//! it crash.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::http::Request;
use crate::scratch;

/// A request with more header fields than this springs the trap of [`with_trap_for_many_headers`].
const MANY: u8 = 60;

/// The module, with a trap at the beginning of this callback.
pub fn with_trap(module: &Path, callback: &str) -> PathBuf {
    copy(module, callback, &[0x00])
}

/// The module, with a trap that springs on a request with many header fields.
pub fn with_trap_for_many_headers(module: &Path) -> PathBuf {
    // local.get 1 (how many), i32.const, i32.gt_u, if, unreachable, end; the constant is a signed
    // LEB128 of one byte.
    copy(module, "proxy_on_request_headers", &[0x20, 1, 0x41, MANY, 0x4b, 0x04, 0x40, 0x00, 0x0b])
}

/// The request with so many header fields that it springs the trap.
pub fn springing_it(request: Request) -> Request {
    (0..=MANY).fold(request, |request, n| request.header(&format!("x-trap-{n}"), "now"))
}

fn copy(module: &Path, callback: &str, trap: &[u8]) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let bytes = fs::read(module).unwrap();
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let made = scratch().join(format!("crashing-{count}.wasm"));
    fs::write(&made, trapped(&bytes, callback, trap)).unwrap();
    made
}

/// The sections of the binary format that matter here.
const IMPORTS: usize = 2;
const EXPORTS: usize = 7;
const CODE: usize = 10;

/// Puts the trap before everything else that a callback does.
fn trapped(bytes: &[u8], callback: &str, trap: &[u8]) -> Vec<u8> {
    let mut imports = Reader::at_section(bytes, IMPORTS).0;
    let imported = imports.number();
    for _ in 0..imported {
        imports.name();
        imports.name();
        assert_eq!(imports.number(), 0, "this module imports functions and nothing else");
        imports.number();
    }
    let mut exports = Reader::at_section(bytes, EXPORTS).0;
    let found = (0..exports.number()).find_map(|_| {
        let (name, _, index) = (exports.name(), exports.number(), exports.number());
        (name == callback.as_bytes()).then_some(index)
    });
    let wanted = found.unwrap_or_else(|| panic!("no {callback}")) - imported;

    let (mut code, section) = Reader::at_section(bytes, CODE);
    let count = code.number();
    let mut bodies = number(count);
    for index in 0..count {
        let body = code.name();
        let body = if index == wanted { trapped_body(body, trap) } else { body.to_vec() };
        bodies.extend(number(body.len()));
        bodies.extend(body);
    }
    let mut made = bytes[..section].to_vec();
    made.extend(number(CODE));
    made.extend(number(bodies.len()));
    made.extend(bodies);
    made.extend(&bytes[code.at..]);
    made
}

/// A function's body with the trap behind its locals.
fn trapped_body(body: &[u8], trap: &[u8]) -> Vec<u8> {
    let mut reader = Reader { bytes: body, at: 0 };
    for _ in 0..reader.number() {
        reader.number();
        reader.number();
    }
    [&body[..reader.at], trap, &body[reader.at..]].concat()
}

/// Reads a WebAssembly module.
struct Reader<'m> {
    bytes: &'m [u8],
    at: usize,
}

impl<'m> Reader<'m> {
    /// Returns a reader at the content of the section with this number, and the place of the
    /// section.
    fn at_section(bytes: &'m [u8], wanted: usize) -> (Self, usize) {
        let mut reader = Self { bytes, at: 8 };
        loop {
            let begins = reader.at;
            let (id, len) = (reader.number(), reader.number());
            if id == wanted {
                return (reader, begins);
            }
            reader.at += len;
        }
    }

    /// An unsigned LEB128.
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

    /// Bytes with their number before them.
    fn name(&mut self) -> &'m [u8] {
        let len = self.number();
        self.at += len;
        &self.bytes[self.at - len..self.at]
    }
}

fn number(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let byte = u8::try_from(number & 0x7f).unwrap();
        number >>= 7;
        if number == 0 {
            bytes.push(byte);
            return bytes;
        }
        bytes.push(byte | 0x80);
    }
}
