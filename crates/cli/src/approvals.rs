//! `approvals`: shows what waits for a decision, and decides.

use std::io::{self, IsTerminal as _, Write as _};

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use impersonation_core::one_line;
use impersonation_core::time::UnixTime;
use impersonation_issuer::issuer::Paths;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use terminal_size::{Width, terminal_size};

use super::display::{Keep, escaped};
use super::http::{Ask, encoded};
use super::list::{context, left, member};
use super::service::{Access, Done, NotDone, Service, endpoint_path};
use super::table::{Column, fitted, table};
use super::{Failure, Verdict};

/// The scope that the access token needs.
const SCOPE: &str = "impersonations:approve";

/// The most rows in one answer.
const PAGE: usize = 200;

/// Shows which impersonations wait for an approval, and approves or denies them.
///
///     export IMPERSONATION_URL=https://auth.example.com
///     impersonation-filter approvals list --token-file dana.token
///     impersonation-filter approvals approve 189c32a9a047191c111ff233d06b --token-file dana.token
///     impersonation-filter approvals deny 189c32a9a047191c111ff233d06b --reason "no such ticket" --token-file dana.token
///
/// The access token needs the scope impersonations:approve. A user whose consent is asked needs no
/// scope: their token shows and decides what concerns them. Nobody approves for themselves.
///
/// The exit status is 0 if the service did it, 1 if it did not, and 2 if no request was sent.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Shows what waits for a decision.
    List {
        #[command(flatten)]
        place: Place,
        /// Prints one JSON object with all known facts.
        #[arg(long)]
        json: bool,
    },
    /// Approves an impersonation, or consents to it.
    Approve(Decision),
    /// Denies an impersonation. One denial ends the subject token.
    Deny(Decision),
}

#[derive(Debug, Args)]
struct Decision {
    #[command(flatten)]
    place: Place,
    /// The id in the list.
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    id: String,
    /// The reason, for the audit log and the notifications.
    #[arg(long)]
    reason: Option<String>,
}

#[derive(Debug, Args)]
struct Place {
    #[command(flatten)]
    access: Access,
    /// The path of the list, if it is not the default one: `approvals` of `paths` in the filter's
    /// configuration. It follows the base address.
    #[arg(long, env = "APPROVALS_PATH", value_name = "PATH", value_parser = endpoint_path,
          default_value = Paths::DEFAULT_APPROVALS)]
    approvals_path: String,
}

#[derive(Debug, Deserialize)]
struct Page {
    approvals: Vec<Map<String, Value>>,
    cursor: Option<String>,
    complete: bool,
}

#[derive(Debug, Serialize)]
struct List {
    approvals: Vec<Map<String, Value>>,
    complete: bool,
    #[serde(skip)]
    at: UnixTime,
}

pub(super) fn run(arguments: &Arguments) -> Result<Verdict, Failure> {
    let outcome = match &arguments.command {
        Command::List { place, json } => list(place, *json)?,
        Command::Approve(decision) => decide(decision, "approve")?,
        Command::Deny(decision) => decide(decision, "deny")?,
    };
    match outcome {
        Ok(text) => {
            write!(io::stdout().lock(), "{text}")?;
            Ok(Verdict::Fine)
        }
        Err(NotDone { message, perhaps }) => {
            eprintln!("impersonation-filter: {message}");
            if perhaps {
                eprintln!(
                    "impersonation-filter: it is not known whether this was done: repeat the command, which does no harm"
                );
            }
            Ok(Verdict::Problems)
        }
    }
}

fn list(place: &Place, as_json: bool) -> Result<Result<String, NotDone>, Failure> {
    let service = place.access.open()?;
    Ok(read(&service, &place.approvals_path).map(|list| {
        if as_json {
            return format!("{}\n", one_line(&list));
        }
        let columns = terminal_size().filter(|_| io::stdout().is_terminal());
        for_people(&list, columns.map(|(Width(columns), _)| usize::from(columns)))
    }))
}

/// Reads all pages.
fn read(service: &Service, path: &str) -> Result<List, NotDone> {
    let mut list = List { approvals: Vec::new(), complete: true, at: UnixTime::default() };
    service.read_pages(&format!("{path}?limit={PAGE}"), SCOPE, |page: Page, at| {
        list.approvals.extend(page.approvals);
        list.complete &= page.complete;
        list.at = at;
        page.cursor
    })?;
    Ok(list)
}

fn for_people(list: &List, columns: Option<usize>) -> String {
    let mut rows: Vec<_> = list.approvals.iter().collect();
    // What waits longest comes first.
    rows.sort_by_key(|row| member(row, "requestedAt"));
    let mut text = String::new();
    if !rows.is_empty() {
        let named = |name: &str| rows.iter().map(|row| member(row, name)).collect();
        let all = vec![
            Column::new("USER", Some(Keep::Beginning), named("userId")),
            Column::new("ACTOR", Some(Keep::Beginning), named("actorId")),
            Column::new("CALLER", Some(Keep::Beginning), named("caller")),
            Column::new(
                "CONTEXT",
                Some(Keep::Beginning),
                rows.iter().map(|row| context(row)).collect(),
            ),
            Column::new(
                "APPROVED BY",
                Some(Keep::Beginning),
                rows.iter().map(|row| approved_by(row)).collect(),
            ),
            Column::new("NEEDED", None, rows.iter().map(|row| needed(row)).collect()),
            Column::new(
                "TIME",
                None,
                rows.iter().map(|row| left(&member(row, "expiresAt"), list.at)).collect(),
            ),
            Column::new("ID", None, named("id")),
        ];
        text.push_str(&table(&fitted(all, columns, &["CALLER", "APPROVED BY"])));
    }
    text.push_str(&match rows.len() {
        0 => "Nothing waits for a decision.\n".to_owned(),
        1 => "1 impersonation waits for a decision.\n".to_owned(),
        count => format!("{count} impersonations wait for a decision.\n"),
    });
    if !list.complete {
        text.push_str("The list is not complete: something that waits could not be read.\n");
    }
    text
}

/// The people who have approved.
fn approved_by(row: &Map<String, Value>) -> String {
    let approvals = row.get("approvals").and_then(Value::as_array).into_iter().flatten();
    let names: Vec<_> =
        approvals.filter_map(|approval| approval.get("by")?.as_str()).map(escaped).collect();
    if names.is_empty() { "-".to_owned() } else { names.join(", ") }
}

/// The decisions that are missing.
fn needed(row: &Map<String, Value>) -> String {
    let approvals = row.get("needed").and_then(Value::as_u64).unwrap_or(0);
    let consent = row.get("consent").and_then(Value::as_str) == Some("needed");
    match (approvals, consent) {
        (0, false) => "-".to_owned(),
        (0, true) => "consent".to_owned(),
        (count, false) => count.to_string(),
        (count, true) => format!("{count} and consent"),
    }
}

fn decide(decision: &Decision, word: &str) -> Result<Result<String, NotDone>, Failure> {
    let Decision { place, id, reason } = decision;
    let service = place.access.open()?;
    let body = match reason {
        Some(reason) => json!({"decision": word, "reason": reason}),
        None => json!({"decision": word}),
    };
    let path = format!("{}/{}", place.approvals_path, encoded(id));
    let done = service.ask(Ask::Post(&body), &path, SCOPE);
    Ok(done.and_then(|done: Done| done.read()).map(|row: Map<String, Value>| {
        let state = member(&row, "state");
        let missing = match needed(&row).as_str() {
            "-" => String::new(),
            missing => format!(", still needed: {missing}"),
        };
        format!("The impersonation {} is {state}{missing}.\n", escaped(id))
    }))
}
