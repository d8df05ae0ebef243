//! The inputs that reached new code: one file for each target, one escaped input a line, so that a
//! person can read and compare them, and a hundred inputs are one file of a commit.

use std::fs;
use std::path::PathBuf;

/// The file of a target.
pub fn path(target: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus").join(format!("{target}.txt"))
}

/// The inputs of a target.
pub fn read(target: &str) -> Vec<Vec<u8>> {
    let path = path(target);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    text.lines().map(unescape).collect()
}

/// Writes the inputs of a target, the shortest first.
pub fn write(target: &str, mut inputs: Vec<Vec<u8>>) {
    inputs.sort_by_key(|input| (input.len(), input.clone()));
    inputs.dedup();
    let lines: String = inputs.iter().map(|input| format!("{}\n", input.escape_ascii())).collect();
    fs::write(path(target), lines).unwrap();
}

/// Takes back what [`slice::escape_ascii`] does.
fn unescape(line: &str) -> Vec<u8> {
    let mut bytes = line.bytes();
    let mut input = Vec::new();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            input.push(byte);
            continue;
        }
        input.push(match bytes.next() {
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(b'x') => {
                let digits = [bytes.next().unwrap(), bytes.next().unwrap()];
                u8::from_str_radix(str::from_utf8(&digits).unwrap(), 16).unwrap()
            }
            Some(other) => other,
            None => panic!("a backslash at the end: {line}"),
        });
    }
    input
}
