//! `authorize`: runs an `authorizeSubjectToken` script for a trial mint.
//!
//! The script runs in the filter's code with the filter's limits, so the result is the same as in
//! Envoy.

use std::collections::BTreeMap;
use std::io::{self, Write as _};

use clap::Args;
use impersonation_core::claims::{Authorizer, AuthorizerInput};
use impersonation_core::policy::Bounds;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::claims::Tried;
use super::{Failure, Verdict};

/// Runs an authorizeSubjectToken script, and prints the bounds that it returns.
///
/// The input is the function's argument as JSON. Members that are left out are empty:
///
///     {
///       "caller": {"clientId": "integrator-backend", "scope": "impersonate"},
///       "userId": "user-42",
///       "user": {"roles": ["customer"]},
///       "context": {"ticketId": "TICKET-123"},
///       "bounds": {"actorId": "agent-1"},
///       "environmentVariables": {"REGION": "eu"}
///     }
///
/// The output {} means that the script allows the mint unchanged. Only the filter knows if clients
/// and resources are configured. The script's log lines go to standard error.
///
/// Exit status: 0 the script allows, 1 it denies or fails, 2 it was not run.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Arguments {
    #[command(flatten)]
    tried: Tried,
}

/// The function's input. Unknown members are refused, because the filter gives them to no script.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Call {
    caller: Caller,
    user_id: String,
    user: Value,
    context: Map<String, Value>,
    bounds: Map<String, Value>,
    environment_variables: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Caller {
    client_id: Option<String>,
    subject: Option<String>,
    scope: String,
}

pub(super) fn run(arguments: &Arguments) -> Result<Verdict, Failure> {
    let tried = &arguments.tried;
    let (source, call): (_, Call) = tried.read()?;
    let bounds = Bounds::read(&call.bounds)
        .map_err(|error| Failure::new(tried.input.display(), format!("bounds: {error}")))?;

    let name = tried.script.display();
    let authorizer =
        match Authorizer::compile(&source, &tried.limits(), &call.environment_variables) {
            Ok(authorizer) => authorizer,
            Err(error) => {
                eprintln!("{name}: {error}");
                return Ok(Verdict::Problems);
            }
        };
    let input = AuthorizerInput {
        client_id: call.caller.client_id.as_deref(),
        subject: call.caller.subject.as_deref(),
        scope: &call.caller.scope,
        user_id: &call.user_id,
        user: &call.user,
        context: &Value::Object(call.context).to_string(),
        bounds: &bounds,
    };
    let outcome = authorizer.run(&input, &mut |line| eprintln!("{line}"));
    match outcome.and_then(|narrower| Ok(bounds.narrowed_by(narrower.clone()).map(|_| narrower)?)) {
        Ok(narrower) => {
            let shown = serde_json::to_string_pretty(&narrower).unwrap_or_default();
            writeln!(io::stdout().lock(), "{shown}")?;
            Ok(Verdict::Fine)
        }
        Err(error) => {
            eprintln!("{name}: {error}");
            Ok(Verdict::Problems)
        }
    }
}
