//! The evidence for auditors: counts of all entries of a report, in the order of their questions.
//!
//! Memory grows with the number of different names, and not with the logs.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use impersonation_core::one_line;
use serde::Serialize;
use serde_json::Value;

use super::controls::{CONTROLS, QUESTIONS, Question};
use super::entry::{Entry, Lines, Totals, What};
use crate::display::escaped;
use crate::logs::line::Outcome;

/// One person, or one backend, that acted.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Acted {
    users: BTreeSet<String>,
    impersonations: u64,
    calls: u64,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Evidence {
    from: Option<String>,
    until: Option<String>,
    /// The configurations that took effect.
    configurations: Vec<Value>,
    callers: BTreeMap<String, u64>,
    actors: BTreeMap<String, Acted>,
    approvals: BTreeMap<String, u64>,
    denials: BTreeMap<String, u64>,
    break_glass: u64,
    began_without_approval: u64,
    refusals: BTreeMap<String, u64>,
    ends: BTreeMap<String, u64>,
    /// Impersonations without their mint, or without a person who acts.
    without_mint: u64,
    without_actor: u64,
}

fn count(counts: &mut BTreeMap<String, u64>, name: &str) {
    let count = counts.entry(name.to_owned()).or_default();
    *count = count.saturating_add(1);
}

fn one_more(count: &mut u64, matters: bool) {
    *count = count.saturating_add(u64::from(matters));
}

impl Evidence {
    pub(super) fn new(configurations: Vec<Value>) -> Self {
        Self { configurations, ..Self::default() }
    }

    pub(super) fn add(&mut self, entry: &Entry) {
        let did = |event: &str| entry.steps.iter().any(|step| step.event.as_deref() == Some(event));
        let began = did("token_exchange.succeeded") || entry.calls > 0;
        if entry.id.is_some() && began {
            let name = entry.actor_id.as_deref().unwrap_or("nobody named");
            let acted = self.actors.entry(name.to_owned()).or_default();
            acted.users.extend(entry.user_id.clone());
            acted.impersonations = acted.impersonations.saturating_add(1);
            acted.calls = acted.calls.saturating_add(entry.calls);
            one_more(&mut self.without_actor, entry.actor_id.is_none());
            one_more(&mut self.began_without_approval, !did("approval.given"));
        }
        let minted = entry.steps.iter().any(|step| step.what == What::Mint);
        one_more(&mut self.without_mint, entry.id.is_some() && !minted);
        if let Some(end) = &entry.ended {
            let cause = serde_json::to_value(end.cause).unwrap_or_default();
            count(&mut self.ends, cause.as_str().unwrap_or_default());
        }
        for step in &entry.steps {
            let is_first = |from: &String| step.time.as_ref().is_some_and(|time| time < from);
            if step.time.is_some() && self.from.as_ref().is_none_or(is_first) {
                self.from.clone_from(&step.time);
            }
            self.until = self.until.take().max(step.time.clone());
            let by = step.by.as_deref().unwrap_or("nobody named");
            match step.event.as_deref() {
                Some("approval.given") => count(&mut self.approvals, by),
                Some("approval.denied") => count(&mut self.denials, by),
                Some("break_glass.used") => one_more(&mut self.break_glass, true),
                _ => {}
            }
            if step.what == What::Mint && step.outcome == Outcome::Done {
                count(&mut self.callers, by);
            }
            let refused = match (step.what, step.outcome) {
                (What::Call, Outcome::Refused | Outcome::CutOff) => Some("a call"),
                (What::Alarm, _) => step.event.as_deref(),
                (_, Outcome::Refused) => step.event.as_deref(),
                _ => None,
            };
            if let Some(what) = refused {
                let reason = step.reason.as_deref().map(|reason| format!(": {reason}"));
                count(&mut self.refusals, &format!("{what}{}", reason.unwrap_or_default()));
            }
        }
    }

    /// Writes the evidence as one JSON object.
    pub(super) fn json(
        &self,
        out: &mut dyn Write,
        totals: &Totals,
        lines: &Lines,
    ) -> io::Result<()> {
        let (totals, lines, evidence) = (one_line(totals), one_line(lines), one_line(self));
        writeln!(out, "{{\"evidence\":{evidence},\"totals\":{totals},\"lines\":{lines}}}")
    }

    pub(super) fn text(
        &self,
        out: &mut dyn Write,
        totals: &Totals,
        lines: &Lines,
    ) -> io::Result<()> {
        let time = |time: &Option<String>| escaped(time.as_deref().unwrap_or("-"));
        writeln!(out, "Evidence from {} to {}", time(&self.from), time(&self.until))?;
        for (number, question) in (1_u8..).zip(QUESTIONS) {
            writeln!(out, "\n{number}. {}", question.title())?;
            let of = CONTROLS.iter().filter(|control| control.questions.contains(&question));
            let numbers = of.map(|control| format!("{} {}", control.standard, control.number));
            writeln!(out, "   {}", numbers.collect::<Vec<_>>().join(", "))?;
            writeln!(out, "   proved by: {}", question.events().join(", "))?;
            match question {
                Question::Could => {
                    for configuration in &self.configurations {
                        writeln!(out, "   configuration {}", escaped(&one_line(configuration)))?;
                    }
                    counted(out, "minted by", &self.callers)?;
                }
                Question::Did => {
                    for (name, acted) in &self.actors {
                        let Acted { users, impersonations, calls } = acted;
                        let (name, users) = (escaped(name), users.len());
                        let line = format!("{impersonations} impersonations, {calls} calls");
                        writeln!(out, "   {name}: {users} users, {line}")?;
                    }
                    sum(out, "mints", totals.mints)?;
                    sum(out, "impersonations began", totals.exchanges)?;
                    sum(out, "calls", totals.calls)?;
                }
                Question::Approved => {
                    counted(out, "approved by", &self.approvals)?;
                    counted(out, "denied by", &self.denials)?;
                    sum(out, "mints with break glass", self.break_glass)?;
                    sum(
                        out,
                        "impersonations began without an approval",
                        self.began_without_approval,
                    )?;
                }
                Question::Refused => counted(out, "refused", &self.refusals)?,
                Question::Ended => {
                    counted(out, "ended:", &self.ends)?;
                    let left = totals.impersonations.saturating_sub(totals.ended);
                    sum(out, "impersonations without an end in these logs: they expired", left)?;
                }
                Question::Whole => self.gaps(out, totals, lines)?,
            }
        }
        Ok(())
    }

    fn gaps(&self, out: &mut dyn Write, totals: &Totals, lines: &Lines) -> io::Result<()> {
        let gaps = [
            (
                u64::from(self.configurations.is_empty()),
                "no configuration.loaded: read the log since Envoy's start",
            ),
            (u64::from(lines.of_access_log == 0), "no access log: allowed calls are missing"),
            (lines.broken, "broken lines"),
            (lines.without_time, "lines without a time"),
            (totals.unguarded_calls, "calls past the guard"),
            (totals.reported_calls, "calls that the guard only reported"),
            (self.without_mint, "impersonations without their mint in these logs"),
            (self.without_actor, "impersonations that name nobody who acts"),
        ];
        let found = gaps.iter().filter(|(count, _)| *count > 0);
        for (count, gap) in found.clone() {
            sum(out, gap, *count)?;
        }
        if found.count() == 0 {
            writeln!(
                out,
                "   none in the lines that were read. `verify` shows lines that are missing."
            )?;
        }
        Ok(())
    }
}

fn sum(out: &mut dyn Write, name: &str, count: u64) -> io::Result<()> {
    writeln!(out, "   {count:>9}  {name}")
}

fn counted(out: &mut dyn Write, what: &str, counts: &BTreeMap<String, u64>) -> io::Result<()> {
    for (name, count) in counts {
        sum(out, &format!("{what} {}", escaped(name)), *count)?;
    }
    Ok(())
}
