//! `revoke`: ends impersonations. It is made for emergencies: an imprecise command ends nothing,
//! and an unknown outcome is not reported as a failure.

use std::io::{self, IsTerminal as _, Write as _};

use clap::builder::NonEmptyStringValueParser;
use clap::{ArgGroup, Args};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::display::escaped;
use super::http::{Ask, encoded};
use super::service::{Access, NotDone, Service};
use super::{Failure, Verdict};

/// The scope that the access token needs.
const SCOPE: &str = "impersonations:revoke";

/// Ends impersonations: one, those that match everything that is named, or all.
///
///     export IMPERSONATION_URL=https://auth.example.com
///     impersonation-filter revoke --token-file operator.token --actor agent-1
///     impersonation-filter revoke --token-file operator.token --user user-42 --client support-portal
///     impersonation-filter revoke --token-file operator.token --id f69c769c7328d1eaca86918b4690
///     impersonation-filter revoke --token-file operator.token --all
///
/// If the guard stands before an API, it refuses the next request with such an access token.
/// Outstanding subject tokens for these impersonations cannot be exchanged. Impersonations that
/// begin afterwards are not affected.
///
/// The command prints how many live impersonations have ended. If no live impersonation matches, it
/// asks on standard error if the name is right. The exit status is 0 all the same: no impersonation
/// of that name is live, and outstanding subject tokens have ended.
///
/// The access token needs the scope impersonations:revoke. The exit status is 0 if the service did
/// it, 1 if not or if no live impersonation has the id, and 2 if no request was sent.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment, group = ArgGroup::new("what").required(true).multiple(true))]
pub(super) struct Arguments {
    #[command(flatten)]
    access: Access,
    /// The impersonation with this id: the claim `txn`, `subject_token_id` in the audit log.
    #[arg(long, group = "what", value_parser = NonEmptyStringValueParser::new(),
          conflicts_with_all = ["user", "actor", "client", "caller", "resource", "all"])]
    id: Option<String>,
    /// All impersonations of this user, by any actor.
    #[arg(long, group = "what", value_parser = NonEmptyStringValueParser::new())]
    user: Option<String>,
    /// All impersonations by this actor.
    #[arg(long, group = "what", value_parser = NonEmptyStringValueParser::new())]
    actor: Option<String>,
    /// All impersonations that this client exchanged.
    #[arg(long, group = "what", value_parser = NonEmptyStringValueParser::new())]
    client: Option<String>,
    /// All impersonations that this backend minted.
    #[arg(long, group = "what", value_parser = NonEmptyStringValueParser::new())]
    caller: Option<String>,
    /// All impersonations for this resource.
    #[arg(long, group = "what", value_parser = NonEmptyStringValueParser::new())]
    resource: Option<String>,
    /// All impersonations. Asks for confirmation.
    #[arg(long, group = "what", conflicts_with_all = ["user", "actor", "client", "caller", "resource"])]
    all: bool,
    /// Do not ask for confirmation of --all.
    #[arg(long, requires = "all", conflicts_with_all = ["id", "user", "actor", "client", "caller", "resource"])]
    yes: bool,
}

impl Arguments {
    /// Returns what is named: the member of the request, the word for people, and the value.
    fn named(&self) -> impl Iterator<Item = (&'static str, &'static str, &str)> {
        let all = [
            ("userId", "user", &self.user),
            ("actorId", "actor", &self.actor),
            ("clientId", "client", &self.client),
            ("caller", "caller", &self.caller),
            ("resource", "resource", &self.resource),
        ];
        all.into_iter().filter_map(|(member, word, value)| Some((member, word, value.as_deref()?)))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Revoked {
    revoked_before: String,
    ended: u64,
    /// Absent if it is true.
    #[serde(default = "so")]
    complete: bool,
}

const fn so() -> bool {
    true
}

pub(super) fn run(arguments: &Arguments) -> Result<Verdict, Failure> {
    let service = arguments.access.open()?;
    if arguments.all && !arguments.yes && !confirmed(&arguments.access)? {
        eprintln!("impersonation-filter: nothing has ended");
        return Ok(Verdict::Problems);
    }
    match revoke(&service, arguments) {
        Ok(told) => {
            writeln!(io::stdout().lock(), "{told}")?;
            Ok(Verdict::Fine)
        }
        Err(NotDone { message, perhaps }) => {
            eprintln!("impersonation-filter: {message}");
            eprintln!(
                "impersonation-filter: {}",
                match perhaps {
                    true =>
                        "it is not known whether anything has ended: repeat the command, which does no harm",
                    false => "nothing has ended",
                }
            );
            Ok(Verdict::Problems)
        }
    }
}

/// Ends the named impersonations, and returns a sentence about it.
fn revoke(service: &Service, arguments: &Arguments) -> Result<String, NotDone> {
    if let Some(id) = &arguments.id {
        service.ask(Ask::Delete, &format!("{}/{}", service.list(), encoded(id)), SCOPE)?;
        return Ok(format!("The impersonation {} has ended.", escaped(id)));
    }
    let named: Map<_, _> =
        arguments.named().map(|(member, _, value)| (member.to_owned(), value.into())).collect();
    let body = if named.is_empty() { json!({"all": true}) } else { Value::Object(named) };
    let done = service.ask(Ask::Post(&body), &format!("{}/revocations", service.list()), SCOPE)?;
    let Revoked { revoked_before, ended, complete } = done.read()?;
    let words: Vec<_> =
        arguments.named().map(|(_, word, value)| format!("{word} {}", escaped(value))).collect();
    let whose = if words.is_empty() { String::new() } else { format!(" of {}", words.join(", ")) };
    if ended == 0 && complete {
        eprintln!(
            "impersonation-filter: no live impersonation matches: `impersonation-filter list` shows how names are spelt"
        );
    }
    let counted = match (ended, complete) {
        (0, true) => format!("No live impersonation{whose} was found."),
        (0, false) => format!("How many live impersonations{whose} have ended is not known."),
        (1, true) => format!("1 live impersonation{whose} has ended."),
        (ended, true) => format!("{ended} live impersonations{whose} have ended."),
        (ended, false) => format!("At least {ended} live impersonations{whose} have ended."),
    };
    Ok(format!(
        "{counted} What was issued until {} is refused from now on, outstanding subject tokens included. New ones may \
         begin.",
        escaped(&revoked_before),
    ))
}

fn confirmed(access: &Access) -> Result<bool, Failure> {
    let mut stdin = io::stdin().lock();
    if access.takes_standard_input() || !stdin.is_terminal() {
        let told = "--all ends every impersonation: add --yes if there is no terminal to ask at";
        return Err(Failure(told.to_owned()));
    }
    eprint!("This ends every impersonation at {}, of every actor. Go on? [y/N] ", access.address());
    let mut answer = String::new();
    io::BufRead::read_line(&mut stdin, &mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
