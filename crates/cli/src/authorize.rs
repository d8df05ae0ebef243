//! `authorize`: runs an `authorizeSubjectToken` script for a trial mint.
//!
//! The script runs in the filter's code with the filter's limits, so the result is the same as in
//! Envoy.

use std::collections::BTreeMap;
use std::io::{self, Write as _};

use clap::Args;
use impersonation_core::policy::Bounds;
use impersonation_issuer::claims::{Authorizer, AuthorizerInput};
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
///       "breakGlass": false,
///       "environmentVariables": {"REGION": "eu"}
///     }
///
/// The output {} means that the script allows the mint unchanged. Only the filter knows if clients
/// and resources are configured. The script's log lines go to standard error, and so does a line
/// that says what would happen: the mint is allowed, waits for people, or is denied. The operator's
/// own `approvals` can ask for more people.
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
    break_glass: bool,
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
        breaks_glass: call.break_glass,
    };
    let outcome = authorizer.run(&input, &mut |line| eprintln!("{line}"));
    let narrowed =
        outcome.and_then(|narrower| Ok((bounds.narrowed_by(narrower.clone())?, narrower)));
    match narrowed {
        Ok((all, narrower)) => {
            let shown = serde_json::to_string_pretty(&narrower).unwrap_or_default();
            writeln!(io::stdout().lock(), "{shown}")?;
            // A mint that breaks the glass waits for nobody.
            let all = if call.break_glass { Bounds::default() } else { all };
            eprintln!("decision: {}", decision(&all));
            Ok(Verdict::Fine)
        }
        Err(error) => {
            eprintln!("{name}: {error}");
            eprintln!("decision: the mint is refused");
            Ok(Verdict::Problems)
        }
    }
}

/// Says what becomes of a mint with these bounds.
fn decision(bounds: &Bounds) -> String {
    let people = match bounds.asks_for() {
        (0, false) => return "the mint is allowed".to_owned(),
        (0, true) => "the user's consent".to_owned(),
        (1, false) => "1 approval".to_owned(),
        (1, true) => "1 approval and the user's consent".to_owned(),
        (count, false) => format!("{count} approvals"),
        (count, true) => format!("{count} approvals and the user's consent"),
    };
    format!("the mint is allowed, and the token waits for {people}")
}
