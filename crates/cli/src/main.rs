//! The native companion of the filter: what an operator needs before Envoy is started, and at night.
//!
//! One file for each subcommand, each with its `Arguments` and a `run` that returns what the process
//! ends with.
//!
//! The exit status is part of the interface, for CI and start scripts: 0 all is well, 1 something is
//! wrong with what was checked, or a service did not do what it was asked for, 2 nothing was checked or asked.

mod authorize;
mod check;
mod claims;
mod display;
mod hash_secret;
mod keygen;
mod list;
mod proxy;
mod revoke;
mod schema;
mod service;
mod speaks_tls;

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Prepares and checks configurations of the impersonation filter, and shows and ends impersonations.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true)]
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
    List(list::Arguments),
    Revoke(revoke::Arguments),
}

/// What a subcommand found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Fine,
    Problems,
}

/// Why a subcommand could not do its work.
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

/// A file to read from; `-` is standard input.
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
        Command::List(arguments) => list::run(&arguments),
        Command::Revoke(arguments) => revoke::run(&arguments),
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
