//! `hash-secret`: prints the hash of a client's secret for the configuration.
//!
//! The secret is read from standard input. An argument would be visible to every user of the
//! machine, and stay in the shell's history.

use std::io::{self, IsTerminal as _, Read as _, Write as _};

use clap::Args;
use impersonation_core::secret::Digest;

use super::{Failure, Verdict};

/// Prints the SHA-256 of a client secret, for client_secret_sha256.
///
/// Reads the secret from standard input, without the line break at its end:
///
///     impersonation-filter hash-secret < secret.txt
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Arguments {}

pub(super) fn run(_arguments: &Arguments) -> Result<Verdict, Failure> {
    let mut stdin = io::stdin().lock();
    let mut input = String::new();
    if stdin.is_terminal() {
        eprintln!("Type the secret, then Enter and Ctrl-D:");
    }
    // The secret must be text: clients send it form-urlencoded, so other bytes could never match.
    stdin.read_to_string(&mut input).map_err(|error| Failure::new("the secret", error))?;
    let secret = input.strip_suffix('\n').unwrap_or(&input);
    let secret = secret.strip_suffix('\r').unwrap_or(secret);
    if secret.is_empty() {
        return Err(Failure("the secret is empty: give it on standard input".to_owned()));
    }
    if secret.contains(['\n', '\r']) {
        return Err(Failure("the secret has more than one line".to_owned()));
    }
    writeln!(io::stdout().lock(), "{}", Digest::of(secret.as_bytes()).to_hex())?;
    Ok(Verdict::Fine)
}
