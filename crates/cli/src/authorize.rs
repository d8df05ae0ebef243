//! `authorize`: what a script says about a mint, before a gateway asks it.
//!
//! The same code as in the filter, with the same limits: what is denied here is denied there.

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
/// The input is what the function is called with, as JSON; whatever is left out is empty:
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
/// {} is printed where the script allows the mint as it is. Whether clients and resources are configured is the
/// filter's to know. What the script logs goes to standard error.
///
/// Exit status: 0 it allows, 1 it denies or fails, 2 it was not run.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Arguments {
    #[command(flatten)]
    tried: Tried,
}

/// The function's input. What the filter does not give a script is refused here.
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
