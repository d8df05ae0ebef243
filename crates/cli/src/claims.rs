//! `claims`: what a script adds to an access token, before a gateway runs it.
//!
//! The same code as in the filter, with the same limits: what fails here fails there.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use impersonation_core::claims::{Input, Limits, Script};
use impersonation_core::oauth::TOKEN_EXCHANGE;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{Failure, Verdict};

/// Runs a getCustomJwtClaims script, and prints the claims that it returns.
///
/// The input is what the function is called with, as JSON; whatever is left out is empty:
///
///     {
///       "token": {"sub": "user_123", "client_id": "support-portal"},
///       "context": {"grant": {"subjectTokenContext": {"ticketId": "TICKET-123"}}},
///       "environmentVariables": {"REGION": "eu"}
///     }
///
/// What the script logs goes to standard error.
///
/// Exit status: 0 claims, 1 the script fails or denies access, 2 it was not run.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Arguments {
    #[command(flatten)]
    tried: Tried,
}

/// A script and what to try it with.
#[derive(Debug, Args)]
pub(super) struct Tried {
    /// The script; - for standard input.
    #[arg(value_name = "SCRIPT")]
    pub(super) script: PathBuf,
    /// What the function is called with; - for standard input.
    #[arg(long, value_name = "FILE")]
    pub(super) input: PathBuf,
    /// Its timeout in the configuration, in milliseconds.
    #[arg(long, default_value_t = 10, value_parser = milliseconds)]
    timeout: u64,
    /// Its memory_limit_bytes in the configuration.
    #[arg(long, default_value_t = Limits::default().memory_bytes, value_parser = memory)]
    memory_limit_bytes: usize,
}

impl Tried {
    /// The script and the function's input.
    pub(super) fn read<T: DeserializeOwned>(&self) -> Result<(String, T), Failure> {
        if !cfg!(feature = "custom-claims") {
            return Err(Failure(
                "this build runs no scripts (the cargo feature custom-claims)".to_owned(),
            ));
        }
        if self.script == Path::new("-") && self.input == Path::new("-") {
            return Err(Failure("only one of script and input can be standard input".to_owned()));
        }
        let source = read(&self.script)?;
        // An object: from a list, serde would take the members in their order here.
        let call = serde_json::from_str(&read(&self.input)?)
            .and_then(|call: Map<String, Value>| T::deserialize(Value::Object(call)))
            .map_err(|error| Failure::new(self.input.display(), error))?;
        Ok((source, call))
    }

    /// What a call may use up.
    pub(super) fn limits(&self) -> Limits {
        Limits {
            timeout: Duration::from_millis(self.timeout),
            memory_bytes: self.memory_limit_bytes,
            ..Limits::default()
        }
    }
}

/// The function's input. What the filter does not give a script is refused here, so that nobody tries
/// a script with it.
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

fn read(path: &Path) -> Result<String, Failure> {
    super::open(path)
        .and_then(io::read_to_string)
        .map_err(|error| Failure::new(path.display(), error))
}
