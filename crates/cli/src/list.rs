//! `list`: shows who impersonates whom at this moment.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use impersonation_core::one_line;
use impersonation_core::time::UnixTime;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use terminal_size::{Width, terminal_size};

use super::display::{Keep, escaped};
use super::http::encoded;
use super::service::{Access, NotDone, Service};
use super::table::{Column, fitted, table};
use super::{Failure, Verdict};

/// The scope that the access token needs.
const SCOPE: &str = "impersonations:read";

/// The most impersonations in one answer.
const PAGE: usize = 1000;

/// The position of the context's column: after the names, before the time.
const CONTEXT_COLUMN: usize = 6;

/// The place of the column that marks browser sessions: right behind the resource.
const SESSION_COLUMN: usize = 5;

/// Shows who impersonates whom at this moment, at one service.
///
///     export IMPERSONATION_URL=https://auth.example.com
///     impersonation-filter list --token-file operator.token
///     impersonation-filter list --token-file operator.token --actor agent-1
///     impersonation-filter list --token-file operator.token --resource https://api.example.com/orders
///     impersonation-filter list --token-file operator.token --json | jq -r '.impersonations[].userId'
///
/// The access token needs the scope impersonations:read. The exit status is 0 if the service gave
/// the list, even an empty one, 1 if it did not, and 2 if no request was sent.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Arguments {
    #[command(flatten)]
    access: Access,
    /// Only impersonations of this user.
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    user: Option<String>,
    /// Only impersonations by this actor.
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    actor: Option<String>,
    /// Only impersonations that this client exchanged.
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    client: Option<String>,
    /// Only impersonations that this backend minted.
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    caller: Option<String>,
    /// Only impersonations for this resource.
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    resource: Option<String>,
    /// Prints one JSON object with all known facts.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Deserialize)]
struct Page {
    impersonations: Vec<Map<String, Value>>,
    cursor: Option<String>,
    complete: bool,
}

#[derive(Debug, Serialize)]
struct List {
    impersonations: Vec<Map<String, Value>>,
    complete: bool,
    #[serde(skip)]
    at: UnixTime,
}

pub(super) fn run(arguments: &Arguments) -> Result<Verdict, Failure> {
    let service = arguments.access.open()?;
    let list = match read(&service, arguments) {
        Ok(list) => list,
        Err(NotDone { message, .. }) => {
            eprintln!("impersonation-filter: {message}");
            return Ok(Verdict::Problems);
        }
    };
    let mut stdout = io::stdout().lock();
    if arguments.json {
        writeln!(stdout, "{}", one_line(&list))?;
    } else {
        let columns = terminal_size().filter(|_| io::stdout().is_terminal());
        let columns = columns.map(|(Width(columns), _)| usize::from(columns));
        write!(stdout, "{}", for_people(&list, columns))?;
    }
    Ok(Verdict::Fine)
}

/// Reads all pages.
fn read(service: &Service, arguments: &Arguments) -> Result<List, NotDone> {
    let mut path = format!("{}?limit={PAGE}", service.list());
    let Arguments { user, actor, client, caller, resource, .. } = arguments;
    for (name, value) in [
        ("userId", user),
        ("actorId", actor),
        ("clientId", client),
        ("caller", caller),
        ("resource", resource),
    ] {
        if let Some(value) = value {
            path = format!("{path}&{name}={}", encoded(value));
        }
    }
    let mut list = List { impersonations: Vec::new(), complete: true, at: UnixTime::default() };
    service.read_pages(&path, SCOPE, |page: Page, at| {
        list.impersonations.extend(page.impersonations);
        list.complete &= page.complete;
        list.at = at;
        page.cursor
    })?;
    Ok(list)
}

fn for_people(list: &List, columns: Option<usize>) -> String {
    let mut text = String::new();
    let mut rows: Vec<_> = list.impersonations.iter().collect();
    // Sort by name: the operator looks for a person.
    rows.sort_by_key(|row| (member(row, "actorId"), member(row, "userId")));
    if rows.is_empty() {
        text.push_str("No impersonation is live.\n");
    } else {
        let left = |row: &&Map<String, Value>| left(&member(row, "expiresAt"), list.at);
        let named = |name: &str| rows.iter().map(|row| member(row, name)).collect();
        let mut all = vec![
            Column::new("ACTOR", Some(Keep::Beginning), named("actorId")),
            Column::new("USER", Some(Keep::Beginning), named("userId")),
            Column::new("CLIENT", Some(Keep::Beginning), named("clientId")),
            Column::new("CALLER", Some(Keep::Beginning), named("caller")),
            // Resources differ at their ends.
            Column::new("RESOURCE", Some(Keep::End), named("resource")),
            Column::new("SCOPE", Some(Keep::Beginning), named("scope")),
            Column::new("TIME", None, rows.iter().map(left).collect()),
            Column::new("ID", None, named("id")),
        ];
        // Most services list no context.
        if rows.iter().any(|row| row.contains_key("context")) {
            let cells = rows.iter().map(|row| context(row)).collect();
            all.insert(CONTEXT_COLUMN, Column::new("CONTEXT", Some(Keep::Beginning), cells));
        }
        let is_session = |row: &&Map<String, Value>| row.contains_key("browserSession");
        if rows.iter().any(is_session) {
            let word = |row| if is_session(row) { "browser" } else { "-" }.to_owned();
            let cells = rows.iter().map(word).collect();
            all.insert(SESSION_COLUMN, Column::new("SESSION", None, cells));
        }
        text.push_str(&table(&fitted(all, columns, &["SCOPE", "CALLER"])));
        text.push_str(&match rows.len() {
            1 => "1 impersonation is live.\n".to_owned(),
            count => format!("{count} impersonations are live.\n"),
        });
    }
    if !list.complete {
        text.push_str(
            "The list is not complete: some are live that it had no room for (impersonations.capacity).\n",
        );
    }
    text
}

pub(super) fn member(row: &Map<String, Value>, name: &str) -> String {
    row.get(name).and_then(Value::as_str).map_or_else(|| "-".to_owned(), escaped)
}

/// The listed members of the mint's context: `ticketId=T-1001 reason=...`.
pub(super) fn context(row: &Map<String, Value>) -> String {
    let Some(Value::Object(members)) = row.get("context") else { return "-".to_owned() };
    let shown = members.iter().map(|(name, value)| match value {
        Value::String(text) => escaped(&format!("{name}={text}")),
        other => escaped(&format!("{name}={other}")),
    });
    shown.collect::<Vec<_>>().join(" ")
}

/// Formats the time that is left, by the clock of the service.
pub(super) fn left(expires: &str, now: UnixTime) -> String {
    match UnixTime::from_rfc3339(expires) {
        Some(end) => format!("{} left", rounded(end.since(now))),
        None => "?".to_owned(),
    }
}

/// Formats a duration in whole units, rounded down, with at most two units.
fn rounded(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds} s"),
        (0, minutes) => format!("{minutes} min"),
        (hours, 0) => format!("{hours} h"),
        (hours, minutes) => format!("{hours} h {minutes} min"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::display::width;

    #[test]
    fn a_table_fits_the_terminal_and_every_id_can_be_copied() {
        let row = |actor: &str| {
            let row = serde_json::json!({
                "id": "0123456789abcdef0123456789ab", "actorId": actor, "userId": "user-42",
                "clientId": "support-portal", "caller": "integrator-backend",
                "resource": "https://api.example.com/orders", "scope": "orders:read orders:write",
                "expiresAt": "1970-01-01T00:03:59.000Z",
            });
            serde_json::from_value(row).unwrap()
        };
        let long = "a-long-name-".repeat(20);
        let impersonations = vec![row("agent-1"), row(&long), row("\u{7530}\u{4e2d}")];
        let list = List { impersonations, complete: false, at: UnixTime::default() };
        for columns in [80, 100, 132, 200] {
            let text = for_people(&list, Some(columns));
            let table: Vec<_> = text.lines().take(4).collect();
            for line in &table {
                assert!(width(line) <= columns, "{columns}: {line}");
            }
            for line in table.iter().skip(1) {
                assert!(
                    line.ends_with("3 min left  0123456789abcdef0123456789ab"),
                    "{columns}: {line}"
                );
                assert!(line.contains("orders"), "{columns}: {line}");
            }
            assert!(text.contains("user-42") && text.contains("agent-1"), "{columns}: {text}");
        }
        // Without a terminal nothing is cut. A terminal that is too narrow wraps the lines.
        assert!(for_people(&list, None).contains(&long));
        assert!(for_people(&list, Some(10)).contains("0123456789abcdef0123456789ab"));
    }

    #[test]
    fn browser_sessions_are_marked_where_there_are_any() {
        let row = |id: &str, more: serde_json::Value| {
            let mut row = serde_json::json!({"id": id, "expiresAt": "1970-01-01T00:03:59.000Z"});
            row.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            serde_json::from_value(row).unwrap()
        };
        let shown = |impersonations| {
            let list = List { impersonations, complete: true, at: UnixTime::default() };
            for_people(&list, None)
        };
        let (session, other) = (serde_json::json!({"browserSession": true}), serde_json::json!({}));
        let text = shown(vec![row("one", session), row("two", other.clone())]);
        assert!(
            text.lines().any(|line| line.contains("browser") && line.ends_with("one")),
            "{text}"
        );
        assert!(
            !text.lines().any(|line| line.contains("browser") && line.ends_with("two")),
            "{text}"
        );
        assert!(!shown(vec![row("two", other)]).contains("SESSION"));
    }

    #[test]
    fn the_time_left_is_shown_in_whole_units() {
        #[rustfmt::skip]
        let cases = [
            (0, "0 s"), (59, "59 s"), (60, "1 min"), (239, "3 min"), (3599, "59 min"), (3600, "1 h"),
            (3659, "1 h"), (7500, "2 h 5 min"), (86_400, "24 h"),
        ];
        for (seconds, text) in cases {
            assert_eq!(rounded(Duration::from_secs(seconds)), text);
        }
    }
}
