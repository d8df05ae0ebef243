//! Tests of the companion binary as an operator uses it: real files, standard output, exit status.
//! Each subcommand has its file; this one runs the binary.
#![cfg(test)]

mod approvals;
mod check;
mod check_binding;
mod check_guard;
mod check_paths;
mod check_sessions;
mod check_versions;
mod check_ways;
mod claims;
mod controls;
mod events;
mod export;
mod hash_secret;
mod keygen;
mod list;
mod operator;
mod report;
mod revoke;
mod schema;
mod verify;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Returns a path that no other test uses.
pub fn fresh(name: &str) -> PathBuf {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let directory =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("cli-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    directory.join(name)
}

pub fn file(name: &str, content: &str) -> PathBuf {
    let path = fresh(name);
    std::fs::write(&path, content).unwrap();
    path
}

pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_impersonation-filter"));
    command.args(arguments).env_clear();
    command
}

pub fn with_input(arguments: &[&str], input: &[u8]) -> Output {
    let mut child = command(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

pub fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}
