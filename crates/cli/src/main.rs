//! The native companion of the filter, for operators: before Envoy starts, and in an emergency.
//!
//! Each subcommand is a file with its `Arguments` and a `run` that returns the exit status.
//!
//! The exit status is part of the interface, for CI and start scripts. 0: all is well. 1: the
//! checked files have problems, or a service refused a request. 2: nothing was checked or
//! requested.

mod approvals;
mod authorize;
mod check;
mod checkpoint;
mod claims;
mod display;
mod duration;
mod events;
mod export;
mod hash_secret;
mod http;
mod keygen;
mod list;
mod logs;
mod probe;
mod proxy;
mod report;
mod revoke;
mod schema;
mod service;
mod speaks_tls;
mod table;
mod verify;

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// With musl's own allocator a report takes twice as long: the allocator asks the kernel for memory
/// about thirteen times for each impersonation.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

/// The version. scripts/release adds the commit.
const VERSION: &str = match option_env!("IMPERSONATION_FILTER_VERSION") {
    Some(version) => version,
    None => env!("CARGO_PKG_VERSION"),
};

/// Prepares and checks configurations of the impersonation filter, shows and ends impersonations,
/// and reports on them.
#[derive(Debug, Parser)]
#[command(name = "impersonation-filter", version = VERSION, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Check(check::Arguments),
    Claims(claims::Arguments),
    Authorize(authorize::Arguments),
    Keygen(keygen::Arguments),
    HashSecret(hash_secret::Arguments),
    Schema(schema::Arguments),
    Probe(Box<probe::Arguments>),
    List(list::Arguments),
    Approvals(Box<approvals::Arguments>),
    Revoke(revoke::Arguments),
    Report(Box<report::Arguments>),
    Export(export::Arguments),
    Verify(verify::Arguments),
    Events(events::Arguments),
}

/// The outcome of a subcommand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Fine,
    Problems,
}

/// The reason why a subcommand could not do its work.
#[derive(Debug)]
struct Failure(String);

impl Failure {
    fn new(what: impl fmt::Display, error: impl fmt::Display) -> Self {
        Self(format!("{what}: {error}"))
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self(error.to_string())
    }
}

/// More than any file that a person writes. It stops the reader of a device.
const LONGEST_FILE: u64 = 16 << 20;

/// Reads a text that a person has written; `-` is standard input.
fn text_in(file: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    open(file)
        .and_then(|file| file.take(LONGEST_FILE).read_to_string(&mut text))
        .map_err(|error| Failure::new(file.display(), error))?;
    Ok(text)
}

/// Opens a file for reading; `-` is standard input.
fn open(file: &Path) -> io::Result<Box<dyn Read>> {
    if file == Path::new("-") {
        return Ok(Box::new(io::stdin().lock()));
    }
    Ok(Box::new(File::open(file)?))
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Check(arguments) => check::run(&arguments),
        Command::Claims(arguments) => claims::run(&arguments),
        Command::Authorize(arguments) => authorize::run(&arguments),
        Command::Keygen(arguments) => keygen::run(&arguments),
        Command::HashSecret(arguments) => hash_secret::run(&arguments),
        Command::Schema(arguments) => schema::run(&arguments),
        Command::Probe(arguments) => probe::run(&arguments),
        Command::List(arguments) => list::run(&arguments),
        Command::Approvals(arguments) => approvals::run(&arguments),
        Command::Revoke(arguments) => revoke::run(&arguments),
        Command::Report(arguments) => report::run(&arguments),
        Command::Export(arguments) => export::run(&arguments),
        Command::Verify(arguments) => verify::run(&arguments),
        Command::Events(arguments) => events::run(&arguments),
    };
    match outcome {
        Ok(Verdict::Fine) => ExitCode::SUCCESS,
        Ok(Verdict::Problems) => ExitCode::from(1),
        Err(Failure(message)) => {
            eprintln!("impersonation-filter: {message}");
            ExitCode::from(2)
        }
    }
}
