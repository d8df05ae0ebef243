//! The parts of the manual that are written from the code: `make docs` writes them, and the tests
//! compare them.

use std::{env, fs};

use crate::repository;

/// Compares a file of the repository with its generated text, which `make` makes of today's. If
/// `UPDATE_DOCS` is set, as `make docs` does, writes the file instead.
pub fn hold(file: &str, make: impl FnOnce(&str) -> String) {
    let path = repository().join(file);
    let text = fs::read_to_string(&path).unwrap();
    let made = make(&text);
    if env::var_os("UPDATE_DOCS").is_some() {
        fs::write(path, made).unwrap();
    } else {
        let line = text.lines().zip(made.lines()).position(|(is, must_be)| is != must_be);
        assert!(text == made, "{file} is not up to date at line {line:?}: run `make docs`");
    }
}

/// Replaces what stands between two marks of a page.
pub fn between(page: &str, begin: &str, text: &str, end: &str) -> String {
    let (before, rest) = page.split_once(begin).unwrap();
    let (_, after) = rest.split_once(end).unwrap();
    [before, begin, text, end, after].concat()
}

/// Wraps an item of a list at 100 columns, and ends its last line.
pub fn wrapped(item: &str) -> String {
    let mut lines = vec![String::new()];
    for word in item.split(' ') {
        let line = lines.last_mut().unwrap();
        match [line, " ", word].concat().chars().count() {
            _ if line.is_empty() => line.push_str(word),
            ..=100 => line.extend([" ", word]),
            _ => lines.push(format!("  {word}")),
        }
    }
    lines.join("\n") + "\n"
}
