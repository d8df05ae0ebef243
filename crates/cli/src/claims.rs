//! `claims`: runs a `getCustomJwtClaims` script for a trial exchange.
//!
//! The script runs in the filter's code with the filter's limits, so the result is the same as in
//! Envoy.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use impersonation_core::oauth::TOKEN_EXCHANGE;
use impersonation_issuer::claims::{Input, Limits, Script};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{Failure, Verdict, text_in};

/// Runs a getCustomJwtClaims script, and prints the claims that it returns.
///
/// The input is the function's argument as JSON. Members that are left out are empty:
///
///     {
///       "token": {"sub": "user_123", "client_id": "support-portal"},
///       "context": {"grant": {"subjectTokenContext": {"ticketId": "TICKET-123"}}},
///       "environmentVariables": {"REGION": "eu"}
///     }
///
/// The script's log lines go to standard error.
///
/// Exit status: 0 the script returns claims, 1 it fails or denies access, 2 it was not run.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Arguments {
    #[command(flatten)]
    tried: Tried,
}

/// A script and the input to try it with.
#[derive(Debug, Args)]
pub(super) struct Tried {
    /// The script; - for standard input.
    #[arg(value_name = "SCRIPT")]
    pub(super) script: PathBuf,
    /// The function's argument as JSON; - for standard input.
    #[arg(long, value_name = "FILE")]
    pub(super) input: PathBuf,
    /// The script's timeout in the configuration, in milliseconds.
    #[arg(long, default_value_t = 10, value_parser = milliseconds)]
    timeout: u64,
    /// The script's memory_limit_bytes in the configuration.
    #[arg(long, default_value_t = Limits::default().memory_bytes, value_parser = memory)]
    memory_limit_bytes: usize,
}

impl Tried {
    /// Reads the script and the function's input.
    pub(super) fn read<T: DeserializeOwned>(&self) -> Result<(String, T), Failure> {
        if !cfg!(feature = "custom-claims") {
            return Err(Failure(
                "this build runs no scripts (the cargo feature custom-claims)".to_owned(),
            ));
        }
        if self.script == Path::new("-") && self.input == Path::new("-") {
            return Err(Failure("only one of script and input can be standard input".to_owned()));
        }
        let source = text_in(&self.script)?;
        // Parse an object first: serde would also accept a list, with the members in order.
        let call = serde_json::from_str(&text_in(&self.input)?)
            .and_then(|call: Map<String, Value>| T::deserialize(Value::Object(call)))
            .map_err(|error| Failure::new(self.input.display(), error))?;
        Ok((source, call))
    }

    /// Returns the bounds of a call.
    pub(super) fn limits(&self) -> Limits {
        Limits {
            timeout: Duration::from_millis(self.timeout),
            memory_bytes: self.memory_limit_bytes,
            ..Limits::default()
        }
    }
}

/// The function's input. Unknown members are refused, because the filter gives them to no script.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Call {
    token: Map<String, Value>,
    context: Context,
    environment_variables: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Context {
    grant: Grant,
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Grant {
    r#type: String,
    subject_token_context: Map<String, Value>,
}

impl Default for Grant {
    fn default() -> Self {
        Self { r#type: TOKEN_EXCHANGE.to_owned(), subject_token_context: Map::new() }
    }
}

fn milliseconds(text: &str) -> Result<u64, String> {
    let milliseconds = text.parse().map_err(|_| "expected a number of milliseconds")?;
    match Limits::TIMEOUTS.contains(&Duration::from_millis(milliseconds)) {
        true => Ok(milliseconds),
        false => Err(format!("expected a duration in {:?}", Limits::TIMEOUTS)),
    }
}

fn memory(text: &str) -> Result<usize, String> {
    let bytes = text.parse().map_err(|_| "expected a number of bytes")?;
    match Limits::MEMORY_BYTES.contains(&bytes) {
        true => usize::try_from(bytes).map_err(|error| error.to_string()),
        false => Err(format!("expected a number in {:?}", Limits::MEMORY_BYTES)),
    }
}

pub(super) fn run(arguments: &Arguments) -> Result<Verdict, Failure> {
    let (source, call): (_, Call) = arguments.tried.read()?;
    let limits = arguments.tried.limits();

    let name = arguments.tried.script.display();
    let script = match Script::compile(&source, &limits, &call.environment_variables) {
        Ok(script) => script,
        Err(error) => {
            eprintln!("{name}: {error}");
            return Ok(Verdict::Problems);
        }
    };
    let input = Input {
        token: &Value::Object(call.token).to_string(),
        grant_type: &call.context.grant.r#type,
        subject_token_context: &Value::Object(call.context.grant.subject_token_context).to_string(),
    };
    match script.run(&input, &mut |line| eprintln!("{line}")) {
        Ok(claims) => {
            writeln!(io::stdout().lock(), "{:#}", Value::Object(claims))?;
            Ok(Verdict::Fine)
        }
        Err(error) => {
            eprintln!("{name}: {error}");
            Ok(Verdict::Problems)
        }
    }
}
