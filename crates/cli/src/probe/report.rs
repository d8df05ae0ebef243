//! The outcome of each check, as a table or as JSON.

use std::fmt;
use std::time::Duration;

use impersonation_core::one_line;
use serde_json::{Value, json};

use crate::display::{escaped, width};

/// The outcome of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Holds,
    /// The check failed. The text says what was seen.
    Fails(String),
    /// The check was not made. The text says why.
    NotTried(String),
}

/// The rule that a check belongs to: one line of the table for each address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Group {
    Parties,
    Once,
    Reads,
    Writes,
    Tokens,
    Bound,
    Paths,
    Methods,
    Headers,
    Sessions,
    Expired,
    Ended,
    Streams,
    Clean,
}

impl Group {
    /// The rule, for the table.
    fn rule(self) -> &'static str {
        match self {
            Self::Parties => "only the right parties mint, exchange and end",
            Self::Once => "a subject token is exchanged once",
            Self::Reads => "an impersonation reads",
            Self::Writes => "an impersonation does not write",
            Self::Tokens => "no other token passes, from no other place",
            Self::Bound => "a bound token is worth nothing without its key",
            Self::Paths => "no spelling of a path passes",
            Self::Methods => "no other method and no upgrade passes",
            Self::Headers => "nobody forges the guard's headers",
            Self::Sessions => "a browser session does what its own pages ask for, and nothing else",
            Self::Expired => "an expired token is refused",
            Self::Ended => "an ended impersonation is refused",
            Self::Streams => "an open stream ends with its impersonation",
            Self::Clean => "nothing of the probe stays",
        }
    }

    /// The operator's next step if a check fails.
    fn remedy(self) -> &'static str {
        match self {
            Self::Parties => {
                "look at the filter's `subject_tokens.authentication`, `clients` and `impersonations.authentication`"
            }
            Self::Once => "each filter needs one `vm_id`, or the same `store.etcd`",
            Self::Reads => {
                "name a path that may be read, with a resource and a scope for it; jwt_authn needs the filter's issuer, audience and key set, the guard the filter's issuer"
            }
            Self::Writes => {
                "the guard must stand before this address, in `mode: enforce`, with a rule or a default that refuses it"
            }
            Self::Tokens => {
                "jwt_authn must require a token before this address: one provider with `issuer` and `audiences`, `from_headers` with Authorization alone, no `allow_missing`"
            }
            Self::Bound => {
                "the guard needs its `public_origin` and the kept Authorization header, and the resource `token_binding`; give --public-origin if the address here is another one"
            }
            Self::Paths => {
                "set normalize_path, merge_slashes and path_with_escaped_slashes_action, and let no other route lead to the API"
            }
            Self::Methods => {
                "the guard must see the request, and no rule may allow it without naming methods"
            }
            Self::Headers => {
                "header_mutation before the guard must remove the guard's headers in each spelling, and nothing else may set them"
            }
            Self::Sessions => {
                "compare the listener of the sessions with the shipped envoy.yaml: `impersonation-filter check` proves it"
            }
            Self::Expired => {
                "the guard must stand before this address; jwt_authn alone lets an expired token pass for a minute. The clocks of both hosts must be right"
            }
            Self::Ended => {
                "the guard must have the filter's `issuer`, `base_path`, `vm_id` and `store`"
            }
            Self::Streams => {
                "the guard must see the stream, and delayed_close_timeout must be below a second"
            }
            Self::Clean => {
                "end it with `impersonation-filter revoke`; the caller's token must be valid until the end of the probe"
            }
        }
    }
}

#[derive(Debug)]
struct Row {
    group: Group,
    at: String,
    check: String,
    outcome: Outcome,
    took: Option<Duration>,
}

/// Every check that was made, in order.
#[derive(Debug, Default)]
pub(super) struct Report {
    rows: Vec<Row>,
}

impl Report {
    /// Adds the outcome of a check at an address.
    pub(super) fn add(
        &mut self,
        group: Group,
        at: &str,
        check: impl Into<String>,
        outcome: Outcome,
    ) {
        let (at, check) = (at.to_owned(), check.into());
        self.rows.push(Row { group, at, check, outcome, took: None });
    }

    /// Adds the outcome of a check that measured a time.
    pub(super) fn add_timed(
        &mut self,
        group: Group,
        at: &str,
        check: impl Into<String>,
        outcome: Outcome,
        took: Duration,
    ) {
        let (at, check) = (at.to_owned(), check.into());
        self.rows.push(Row { group, at, check, outcome, took: Some(took) });
    }

    /// Adds the checks of another report behind those of this one.
    pub(super) fn append(&mut self, other: Self) {
        self.rows.extend(other.rows);
    }

    /// Returns true if no check failed and at least one held. If `strict`, each was tried.
    pub(super) fn holds(&self, strict: bool) -> bool {
        let Counts { held, failed, skipped } = Counts::of(&self.rows);
        held > 0 && failed == 0 && !(strict && skipped > 0)
    }

    /// Returns what may stay in the deployment, for a probe that prints no report.
    pub(super) fn left_behind(&self) -> Vec<String> {
        let rows = self.rows.iter().filter(|row| row.group == Group::Clean);
        rows.filter_map(|row| match &row.outcome {
            Outcome::Fails(told) => Some(format!("{}: {}", row.at, escaped(told))),
            _ => None,
        })
        .collect()
    }

    /// Returns the report as one JSON object. `holds` is the verdict on the whole probe.
    pub(super) fn to_json(&self, holds: bool) -> String {
        let row = |row: &Row| {
            let (holds, detail) = match &row.outcome {
                Outcome::Holds => (Value::Bool(true), Value::Null),
                Outcome::Fails(detail) => (Value::Bool(false), detail.clone().into()),
                Outcome::NotTried(detail) => (Value::Null, detail.clone().into()),
            };
            json!({
                "at": row.at,
                "rule": row.group.rule(),
                "check": row.check,
                "holds": holds,
                "detail": detail,
                "milliseconds": row.took.map(milliseconds),
            })
        };
        let rows: Vec<_> = self.rows.iter().map(row).collect();
        one_line(&json!({"holds": holds, "checks": rows}))
    }

    /// The rules that were checked at each address, in the order of their first check.
    fn lines(&self) -> Vec<(&str, Group)> {
        let mut lines: Vec<(&str, Group)> = Vec::new();
        for row in &self.rows {
            if !lines.contains(&(&row.at, row.group)) {
                lines.push((&row.at, row.group));
            }
        }
        lines
    }
}

/// The number of checks with each outcome.
struct Counts {
    held: usize,
    failed: usize,
    skipped: usize,
}

impl Counts {
    fn of<'r>(rows: impl IntoIterator<Item = &'r Row>) -> Self {
        let mut counts = Self { held: 0, failed: 0, skipped: 0 };
        for row in rows {
            let count = match row.outcome {
                Outcome::Holds => &mut counts.held,
                Outcome::Fails(_) => &mut counts.failed,
                Outcome::NotTried(_) => &mut counts.skipped,
            };
            *count = count.saturating_add(1);
        }
        counts
    }
}

fn milliseconds(took: Duration) -> u64 {
    u64::try_from(took.as_millis()).unwrap_or(u64::MAX)
}

impl fmt::Display for Report {
    /// Writes the table, then one line for each finding as `check` writes them.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = self.lines();
        let widest = lines.iter().map(|(at, _)| width(at)).max().unwrap_or_default();
        let rules = lines.iter().map(|(_, group)| width(group.rule())).max().unwrap_or_default();
        for (at, group) in lines {
            let rows = || self.rows.iter().filter(|row| row.at == at && row.group == group);
            let Counts { held, failed, skipped } = Counts::of(rows());
            let word = match (failed, held) {
                (1.., _) => "FAILS",
                (0, 1..) => "holds",
                (0, 0) => "-",
            };
            let slowest = rows().filter_map(|row| row.took).max();
            let slowest = slowest.map_or(String::new(), |it| format!("{} ms", milliseconds(it)));
            let made = held.saturating_add(failed).saturating_add(skipped);
            writeln!(
                formatter,
                "{word:<5}  {at:<widest$}  {:<rules$}  {held:>3} of {made:<3}  {slowest:>8}",
                group.rule()
            )?;
        }
        for row in &self.rows {
            let Row { at, check, .. } = row;
            match &row.outcome {
                Outcome::Holds => {}
                Outcome::Fails(told) => {
                    let (told, remedy) = (escaped(told), row.group.remedy());
                    writeln!(formatter, "{at}: {check}: {told}: {remedy}")?;
                }
                Outcome::NotTried(why) => {
                    writeln!(formatter, "{at}: warning: {check}: not tried: {}", escaped(why))?;
                }
            }
        }
        let Counts { held, failed, skipped } = Counts::of(&self.rows);
        writeln!(formatter, "{held} checks hold, {failed} fail, {skipped} were not tried")
    }
}
