//! The outcome of each check, as a table or as JSON.

use std::fmt;
use std::time::Duration;

use impersonation_core::one_line;
use serde_json::{Value, json};

use crate::display::escaped;

/// The outcome of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Holds,
    /// The check failed. The text says what was seen.
    Fails(String),
    /// The check was not made. The text says why.
    NotTried(String),
}

#[derive(Debug)]
struct Row {
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
    pub(super) fn add(&mut self, at: &str, check: impl Into<String>, outcome: Outcome) {
        let row = Row { at: at.to_owned(), check: check.into(), outcome, took: None };
        self.rows.push(row);
    }

    /// Adds the outcome of a check that measured a time.
    pub(super) fn add_timed(&mut self, at: &str, check: &str, outcome: Outcome, took: Duration) {
        let row = Row { at: at.to_owned(), check: check.to_owned(), outcome, took: Some(took) };
        self.rows.push(row);
    }

    /// Returns whether no check failed, and at least one was made.
    pub(super) fn holds(&self) -> bool {
        self.count(|outcome| *outcome == Outcome::Holds) > 0
            && self.count(|outcome| matches!(outcome, Outcome::Fails(_))) == 0
    }

    fn count(&self, is: impl Fn(&Outcome) -> bool) -> usize {
        self.rows.iter().filter(|row| is(&row.outcome)).count()
    }

    /// Returns the report as one JSON object.
    pub(super) fn to_json(&self) -> String {
        let row = |row: &Row| {
            let (holds, detail) = match &row.outcome {
                Outcome::Holds => (Value::Bool(true), Value::Null),
                Outcome::Fails(detail) => (Value::Bool(false), detail.clone().into()),
                Outcome::NotTried(detail) => (Value::Null, detail.clone().into()),
            };
            let took = row.took.map(|took| u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
            json!({
                "at": row.at,
                "check": row.check,
                "holds": holds,
                "detail": detail,
                "milliseconds": took,
            })
        };
        let rows: Vec<_> = self.rows.iter().map(row).collect();
        one_line(&json!({"holds": self.holds(), "checks": rows}))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widest = |text: fn(&Row) -> &str| {
            self.rows.iter().map(|row| text(row).chars().count()).max().unwrap_or_default()
        };
        let (at, check) = (widest(|row| &row.at), widest(|row| &row.check));
        for row in &self.rows {
            let (word, detail) = match &row.outcome {
                Outcome::Holds => ("holds", None),
                Outcome::Fails(detail) => ("FAILS", Some(detail)),
                Outcome::NotTried(detail) => ("-", Some(detail)),
            };
            let took = row.took.map_or(String::new(), |took| format!("{} ms", took.as_millis()));
            let line = format!("{word:<5}  {:<at$}  {:<check$}  {took}", row.at, row.check);
            writeln!(formatter, "{}", line.trim_end())?;
            if let Some(detail) = detail {
                writeln!(formatter, "       {}", escaped(detail))?;
            }
        }
        let failed = self.count(|outcome| matches!(outcome, Outcome::Fails(_)));
        let skipped = self.count(|outcome| matches!(outcome, Outcome::NotTried(_)));
        let held = self.count(|outcome| *outcome == Outcome::Holds);
        write!(formatter, "{held} checks hold, {failed} fail")?;
        if skipped > 0 {
            write!(formatter, ", {skipped} not tried")?;
        }
        writeln!(formatter)
    }
}
