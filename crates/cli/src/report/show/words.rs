//! The words of a report for people. All names pass through `escaped`.

use serde_json::Value;

use super::super::entry::{Cause, Entry, Lines, Step, Totals, What};
use super::Readers;
use crate::display::escaped;
use crate::logs::line::Outcome;

/// Says who acted as whom, and what for.
pub(super) fn about(entry: &Entry, readers: Readers) -> Vec<String> {
    let name = |name: &Option<String>| name.as_deref().map(escaped);
    let user = name(&entry.user_id).unwrap_or_else(|| "an unknown user".to_owned());
    let mut lines = Vec::new();
    if readers == Readers::User {
        lines.push(format!("Somebody could act as {user}."));
    } else {
        lines.push(match (name(&entry.actor_id), was_used(entry)) {
            (Some(actor), _) => format!("{actor} as {user}"),
            (None, Use::Seen) => format!("An unknown actor as {user}"),
            (None, Use::NotSeen) => {
                format!("A subject token for {user}, without an exchange in these logs")
            }
        });
        let caller = name(&entry.caller).map(|caller| format!("minted by {caller}"));
        let client = name(&entry.client_id).map(|client| format!("exchanged by {client}"));
        let parties: Vec<_> = caller.into_iter().chain(client).collect();
        if !parties.is_empty() {
            lines.push(parties.join(", "));
        }
    }
    let resource = name(&entry.resource).map(|resource| format!("for {resource}"));
    let scope = name(&entry.scope).map(|scope| format!("scope {scope}"));
    let grant: Vec<_> = resource.into_iter().chain(scope).collect();
    if !grant.is_empty() {
        lines.push(grant.join(", "));
    }
    for (name, value) in [("context", &entry.context), ("bounds", &entry.bounds)] {
        if let Some(Value::Object(members)) = value {
            let members = members.iter().map(|(name, value)| match value {
                Value::String(text) => escaped(&format!("{name}={text}")),
                other => escaped(&format!("{name}={other}")),
            });
            lines.push(format!("{name} {}", members.collect::<Vec<_>>().join(" ")));
        }
    }
    lines.push(end(entry, readers));
    lines
}

/// The logs show that somebody acted as the user, or they do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Seen,
    NotSeen,
}

fn was_used(entry: &Entry) -> Use {
    let is_use = |step: &Step| match step.what {
        What::Exchange => step.outcome == Outcome::Done,
        what => what == What::Call,
    };
    if entry.steps.iter().any(is_use) { Use::Seen } else { Use::NotSeen }
}

fn end(entry: &Entry, readers: Readers) -> String {
    let Some(end) = &entry.ended else {
        return match (readers, was_used(entry)) {
            (Readers::Auditors, _) => "No end is in these logs: the token expires by itself.",
            (Readers::User, Use::Seen) => "The permission expires by itself.",
            (Readers::User, Use::NotSeen) => "The permission was not used.",
        }
        .to_owned();
    };
    let cause = match (end.cause, readers) {
        (Cause::Revoked | Cause::Event | Cause::Unknown, Readers::User) => "Ended early",
        (Cause::Cancelled, Readers::User) => "Taken back",
        (Cause::Denied, Readers::User) => "Refused before it began",
        (Cause::Replayed, Readers::User) => "Ended early, because it was asked for twice",
        (Cause::Revoked, _) => "Ended",
        (Cause::Event, _) => "Ended because of an event that was sent",
        (Cause::Cancelled, _) => "Taken back",
        (Cause::Denied, _) => "Denied",
        (Cause::Replayed, _) => "Ended because its subject token was presented again",
        (Cause::Unknown, _) => {
            "Had ended when the guard refused a call; the logs do not say who ended it"
        }
    };
    let mut text = cause.to_owned();
    if let Some(by) = &end.by {
        text.push_str(&format!(" by {}", escaped(by)));
    }
    if let Some(of) = &end.of {
        text.push_str(&format!(" ({})", escaped(of)));
    }
    if let Some(at) = &end.at {
        text.push_str(&format!(", {}", escaped(at)));
    }
    text.push('.');
    text
}

pub(super) const fn what(what: What, readers: Readers) -> &'static str {
    match (what, readers) {
        (What::Mint, Readers::User) => "prepared",
        (What::Mint, _) => "mint",
        (What::Exchange, Readers::User) => "began",
        (What::Exchange, _) => "exchange",
        (What::Call, Readers::User) => "request",
        (What::Call, _) => "call",
        (What::Approval, _) => "approval",
        (What::Introspection, _) => "introspection",
        (What::Alarm, _) => "alarm",
        (What::End, Readers::User) => "ended",
        (What::End, _) => "end",
        (What::Other, _) => "other",
    }
}

pub(super) const fn outcome(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Done => "",
        Outcome::Refused => "refused",
        Outcome::Reported => "reported",
        Outcome::CutOff => "cut off",
        Outcome::Unguarded => "not guarded",
    }
}

/// Returns the request itself, and then what is to be said of it.
pub(super) fn request(step: &Step, readers: Readers) -> (String, String) {
    let request = [&step.method, &step.path].into_iter().flatten();
    let request = request.map(|text| escaped(text)).collect::<Vec<_>>().join(" ");
    let said = |text: &Option<String>, before: &str| {
        text.as_deref().map(|text| format!("{before}{}", escaped(text)))
    };
    if readers == Readers::User {
        let facts = [Some(outcome(step.outcome).to_owned()), said(&step.repetition, "")];
        let facts = facts.into_iter().flatten().filter(|fact| !fact.is_empty());
        return (request, facts.collect::<Vec<_>>().join(", "));
    }
    let outcome = match step.outcome {
        Outcome::Done => None,
        other => Some(outcome(other).to_owned()),
    };
    // The guard says the outcome itself, unless it ended the stream later.
    let outcome = match (step.outcome, &step.guard) {
        (Outcome::CutOff, _) | (_, None) => outcome,
        _ => None,
    };
    let guard = step.guard.as_deref().unwrap_or_default();
    let reason = step.reason.as_deref().unwrap_or_default();
    let says_why = guard.ends_with(reason) || (reason == "rule" && guard.contains("rules["));
    // The word for the request says the rest.
    let tells = |event: &&String| match step.what {
        What::Approval | What::Other => true,
        What::Mint => !event.starts_with("subject_token."),
        _ => false,
    };
    let event = step.event.as_ref().filter(tells).map(|event| escaped(event));
    let facts = [
        event,
        outcome,
        said(&step.guard, ""),
        said(&step.by, "by "),
        said(&step.note, ""),
        said(&step.repetition, ""),
        said(&step.reason.clone().filter(|_| !says_why), "reason "),
        said(&step.client_address, "from "),
    ];
    (request, facts.into_iter().flatten().collect::<Vec<_>>().join(", "))
}

/// Says who sent a request that belongs to no impersonation, and about whom.
pub(super) fn parties(entry: &Entry) -> String {
    let named = [
        ("user", &entry.user_id),
        ("actor", &entry.actor_id),
        ("client", &entry.client_id),
        ("caller", &entry.caller),
    ];
    let named = named
        .iter()
        .filter_map(|(kind, name)| Some(format!("{kind} {}", escaped((**name).as_deref()?))));
    named.collect::<Vec<_>>().join(", ")
}

pub(super) fn totals(totals: &Totals, readers: Readers) -> Vec<(String, u64)> {
    let mut all = vec![
        ("impersonations", totals.impersonations),
        ("ended before they expired", totals.ended),
        ("mints", totals.mints),
        ("exchanges", totals.exchanges),
        ("calls", totals.calls),
        ("refused calls", totals.refused_calls),
    ];
    if readers == Readers::Auditors {
        all.extend([
            ("calls that the guard only reported", totals.reported_calls),
            ("calls past the guard", totals.unguarded_calls),
            ("replays", totals.replays),
        ]);
    } else {
        all.retain(|(name, _)| !matches!(*name, "mints" | "exchanges"));
    }
    let mut all: Vec<_> = all.into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
    all.extend(totals.events.iter().map(|(event, count)| (escaped(event), *count)));
    all
}

/// Says that the report is empty, and if it could not be otherwise.
pub(super) const fn nothing(lines: &Lines) -> &'static str {
    match lines.ours {
        0 => "No line of these logs is about impersonations.",
        _ => "No impersonation was found.",
    }
}

pub(super) fn lines(lines: &Lines) -> Vec<String> {
    let Lines { read, ours, others, broken, repeated, alike, without_time, of_access_log } = lines;
    let mut said = vec![format!(
        "{read} lines were read: {ours} about impersonations, {others} about other things, {broken} broken."
    )];
    if *broken > 0 {
        said.push("Broken lines are cut off, mixed with others or in an unknown form. Some may be missing above.".to_owned());
    }
    if *repeated > 0 {
        said.push(format!("{repeated} lines are copies of others, and do not count."));
    }
    if *alike > 0 {
        said.push(format!(
            "{alike} lines are equal to others, and count: each may be a request of its own."
        ));
    }
    if *without_time > 0 {
        said.push(format!("{without_time} lines have no time of their own."));
    }
    if *ours > 0 && *of_access_log == 0 {
        said.push(
            "No line is of the access log, so calls that the guard allowed are missing.".to_owned(),
        );
    }
    said
}
