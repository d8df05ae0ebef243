//! The parts of a report: impersonations with their steps, requests that belong to none, and
//! totals. The JSON of a report consists of these.

use std::collections::BTreeMap;
use std::io;

use impersonation_core::time::UnixTime;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::sorter::FILE;
use crate::logs::line::Outcome;

/// One impersonation, or one request that belongs to none: then `id` is absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Entry {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) user_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) actor_id: Option<String>,
    /// The session of the actor at the identity gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) session: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) caller: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) client_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) resource: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) scope: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) context: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bounds: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ended: Option<End>,
    pub(super) calls: u64,
    pub(super) refused_calls: u64,
    pub(super) steps: Vec<Step>,
}

/// The end of an impersonation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct End {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) at: Option<String>,
    pub(super) cause: Cause,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) by: Option<String>,
    /// The names that the revocation was for, if it was not for this impersonation alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) of: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Cause {
    /// An operator or the client ended it.
    Revoked,
    /// An event ended it: the actor has logged out, for example.
    Event,
    /// The backend that minted took it back.
    Cancelled,
    /// A person who had to approve it denied it, so it never began.
    Denied,
    /// Its subject token was presented again.
    Replayed,
    /// The guard refused a request because it had ended. The logs do not say who ended it.
    #[default]
    Unknown,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum What {
    Mint,
    Approval,
    Exchange,
    Call,
    Introspection,
    Alarm,
    End,
    #[default]
    Other,
}

/// One request, or one alarm.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Step {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) time: Option<String>,
    pub(super) what: What,
    pub(super) outcome: Outcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) event: Option<String>,
    /// The party that sent the request: the caller, the client or the operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) method: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) status: Option<String>,
    /// The guard's decision, as the access log has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) guard: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) note: Option<String>,
    /// Says how often the request's line is in the logs, if it is more than once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) repetition: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) request_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) client_address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) jti: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) flags: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) duration_ms: Option<String>,
}

impl Entry {
    /// Returns what the user may know: when somebody acted in the user's name, what for, each call,
    /// and the end. Everything is left out that is not named here, so no new member of a step gets
    /// to users by itself.
    pub(super) fn for_the_user(self) -> Self {
        let shown = |step: &Step| match step.what {
            What::Mint | What::Exchange => step.outcome == Outcome::Done,
            What::Call | What::End => true,
            What::Approval | What::Introspection | What::Alarm | What::Other => false,
        };
        let steps = self.steps.into_iter().filter(shown).map(|step| Step {
            time: step.time,
            what: step.what,
            outcome: match step.outcome {
                // The user's concern is whether the request reached the API.
                Outcome::Reported | Outcome::Unguarded => Outcome::Done,
                outcome => outcome,
            },
            method: step.method.filter(|_| step.what == What::Call),
            path: step.path.filter(|_| step.what == What::Call),
            status: step.status.filter(|_| step.what == What::Call),
            repetition: step.repetition,
            ..Step::default()
        });
        Self {
            id: self.id,
            user_id: self.user_id,
            resource: self.resource,
            scope: self.scope,
            ended: self.ended.map(|end| End { at: end.at, cause: end.cause, by: None, of: None }),
            calls: self.calls,
            refused_calls: self.refused_calls,
            steps: steps.collect(),
            ..Self::default()
        }
    }
}

/// An entry in the form in which it is sorted, and in which a report in JSON has it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kept<'a> {
    pub(super) is_impersonation: bool,
    /// The entry as JSON, on one line.
    pub(super) json: &'a [u8],
}

impl Kept<'_> {
    /// Reads the entry, for the other forms of a report.
    pub(super) fn entry(&self) -> io::Result<Entry> {
        let broken = |error| io::Error::other(format!("{FILE}: {error}"));
        serde_json::from_slice(self.json).map_err(broken)
    }
}

/// Counts that can be compared with the filter's and the guard's metrics.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Totals {
    pub(super) impersonations: u64,
    pub(super) ended: u64,
    pub(super) mints: u64,
    pub(super) exchanges: u64,
    pub(super) calls: u64,
    /// Calls that the guard refused, and calls whose stream it ended.
    pub(super) refused_calls: u64,
    pub(super) reported_calls: u64,
    pub(super) unguarded_calls: u64,
    pub(super) replays: u64,
    /// The number of audit events of each name, except those of calls.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) events: BTreeMap<String, u64>,
}

impl Totals {
    pub(super) fn add(&mut self, entry: &Entry) {
        let one_more = |count: &mut u64| *count = count.saturating_add(1);
        if entry.id.is_some() {
            one_more(&mut self.impersonations);
        }
        if entry.ended.is_some() {
            one_more(&mut self.ended);
        }
        for step in &entry.steps {
            match step.what {
                What::Call => {
                    one_more(&mut self.calls);
                    match step.outcome {
                        Outcome::Refused | Outcome::CutOff => one_more(&mut self.refused_calls),
                        Outcome::Reported => one_more(&mut self.reported_calls),
                        Outcome::Unguarded => one_more(&mut self.unguarded_calls),
                        Outcome::Done => {}
                    }
                    continue;
                }
                What::Alarm => one_more(&mut self.replays),
                What::Mint if step.outcome == Outcome::Done => one_more(&mut self.mints),
                What::Exchange if step.outcome == Outcome::Done => one_more(&mut self.exchanges),
                _ => {}
            }
            if let Some(event) = &step.event {
                one_more(self.events.entry(event.clone()).or_default());
            }
        }
    }

    /// Leaves out what is not for users.
    pub(super) fn for_the_user(self) -> Self {
        Self {
            impersonations: self.impersonations,
            ended: self.ended,
            mints: self.mints,
            exchanges: self.exchanges,
            calls: self.calls,
            refused_calls: self.refused_calls,
            ..Self::default()
        }
    }
}

/// The lines that were read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Lines {
    pub(super) read: u64,
    /// Lines about impersonations.
    pub(super) ours: u64,
    pub(super) others: u64,
    /// Lines that are cut off or mixed with others. Some of them may have been ours.
    pub(super) broken: u64,
    /// Copies of lines about impersonations, which do not count.
    pub(super) repeated: u64,
    /// Lines that are equal to another one and count, because each may be a request of its own.
    pub(super) alike: u64,
    /// Lines about impersonations without a time.
    pub(super) without_time: u64,
    /// Lines of the access log among ours. Without an access log the report has no allowed calls.
    pub(super) of_access_log: u64,
}

pub(super) fn written(time: Option<UnixTime>) -> Option<String> {
    time.map(|time| time.rfc3339().to_string())
}
