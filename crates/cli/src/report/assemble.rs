//! Puts the records of one impersonation together.
//!
//! A request can be in two logs: in the access log, and as an audit line. Both lines name the
//! request's id, but where Envoy trusts a caller, the caller chooses the id and may send it twice.
//! So lines are paired, one of each log, and never merged by their id alone: two requests with one
//! id stay two.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use impersonation_core::time::UnixTime;

use super::entry::{Cause, End, Entry, Step, What, written};
use crate::logs::line::{Facts, Kind, Outcome, Record, Source, shared};

/// The longest time between an exchange and the expiry of its token, and between a mint and the
/// exchange: the longest lifetime that can be configured.
const LONGEST_LIFETIME: Duration = Duration::from_hours(24);

/// A revocation that names actors, users, clients, callers or resources, or everybody; or an event
/// about an actor, a session or a user.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ByNames {
    request_id: String,
    pub(super) time: Option<UnixTime>,
    user_id: Option<String>,
    actor_id: Option<String>,
    client_id: Option<String>,
    caller: Option<String>,
    resource: Option<String>,
    session: Option<String>,
    is_event: bool,
    pub(super) event_type: Option<String>,
    pub(super) by: Option<String>,
}

impl ByNames {
    pub(super) fn of(record: &Record<'_>) -> Self {
        let facts = &record.facts;
        Self {
            request_id: record.request_id().to_owned(),
            time: record.time,
            user_id: facts.user_id.owned(),
            actor_id: facts.actor_id.owned(),
            client_id: facts.client_id.owned(),
            caller: facts.caller.owned(),
            resource: facts.resource.owned(),
            session: facts.session.owned(),
            is_event: record.is_ending_event(),
            event_type: facts.event_type.owned(),
            by: facts.requested_by.owned().or_else(|| facts.sender.owned()),
        }
    }

    /// Returns what is the same in both logs.
    pub(super) fn identity(&self) -> Self {
        let request_id = shared(&self.request_id).into_owned();
        Self { request_id, time: None, event_type: None, by: None, ..self.clone() }
    }

    /// Returns true if the impersonation began before the revocation, had not expired for certain,
    /// and is one of those that the revocation names.
    fn ended(&self, entry: &Entry, began: Option<UnixTime>) -> bool {
        let (Some(time), Some(began)) = (self.time, began) else { return false };
        began <= time && time <= began.after(LONGEST_LIFETIME) && self.is_about(entry)
    }

    /// Returns true if the impersonation has all names of the revocation. An event is about the
    /// impersonations of an actor, in one session if it names one, and about those of a user.
    fn is_about(&self, entry: &Entry) -> bool {
        let matches = |named: &Option<String>, own: &Option<String>| {
            named.is_none() || named.as_deref() == own.as_deref()
        };
        let of_user = matches(&self.user_id, &entry.user_id);
        let of_actor =
            matches(&self.actor_id, &entry.actor_id) && matches(&self.session, &entry.session);
        if self.is_event {
            return (self.user_id.is_some() && of_user)
                || ((self.actor_id.is_some() || self.session.is_some()) && of_actor);
        }
        of_user
            && of_actor
            && matches(&self.client_id, &entry.client_id)
            && matches(&self.caller, &entry.caller)
            && matches(&self.resource, &entry.resource)
    }

    /// Says whose impersonations it ended: `actor agent-1, user user-42`.
    pub(super) fn names(&self) -> String {
        let named = [
            ("actor", &self.actor_id),
            ("session", &self.session),
            ("user", &self.user_id),
            ("client", &self.client_id),
            ("caller", &self.caller),
            ("resource", &self.resource),
        ];
        let named =
            named.iter().filter_map(|(kind, name)| Some(format!("{kind} {}", (**name).as_ref()?)));
        let names = named.collect::<Vec<_>>().join(", ");
        if names.is_empty() { "everybody".to_owned() } else { names }
    }
}

/// Makes the entry of the records of one group. `id` is absent for a request without impersonation.
pub(super) fn entry(
    id: Option<String>,
    records: Vec<Record<'_>>,
    revocations: &[ByNames],
) -> (Entry, Vec<Option<UnixTime>>) {
    let mut entry = Entry { id, ..Entry::default() };
    name(&mut entry, &records);
    let merged = merge(records);
    let began = began(&merged);
    let mut steps: Vec<_> = merged.iter().map(|record| (record.time, step(record))).collect();
    if entry.id.is_some() {
        for revocation in revocations.iter().filter(|revocation| revocation.ended(&entry, began)) {
            steps.push((revocation.time, end_by_names(revocation)));
        }
    }
    steps.sort_by_key(|(time, _)| *time);
    entry.ended = entry.id.as_ref().and_then(|_| end(&merged, &steps));
    let times = steps.iter().map(|(time, _)| *time).collect();
    entry.steps = steps.into_iter().map(|(_, step)| step).collect();
    let calls = || entry.steps.iter().filter(|step| step.what == What::Call);
    let refused =
        calls().filter(|step| matches!(step.outcome, Outcome::Refused | Outcome::CutOff)).count();
    let calls = calls().count();
    entry.calls = u64::try_from(calls).unwrap_or(u64::MAX);
    entry.refused_calls = u64::try_from(refused).unwrap_or(u64::MAX);
    (entry, times)
}

/// Fills in who acted as whom. The exchange knows best, then the other requests.
fn name(entry: &mut Entry, records: &[Record<'_>]) {
    let is_exchange =
        |record: &&Record<'_>| record.facts.event.get() == Some("token_exchange.succeeded");
    let best = records.iter().filter(is_exchange);
    for record in best.chain(records) {
        let facts = &record.facts;
        let fill = |into: &mut Option<String>, value: Option<&str>| {
            if into.is_none() {
                *into = value.map(str::to_owned);
            }
        };
        fill(&mut entry.user_id, record.user());
        fill(&mut entry.actor_id, record.actor());
        fill(&mut entry.session, record.session());
        fill(&mut entry.caller, facts.caller.get());
        // The refused exchange of another client does not name the client of this impersonation.
        if !facts.is_refused() {
            fill(&mut entry.client_id, facts.client_id.get());
            fill(&mut entry.scope, facts.scope.get());
        }
        fill(&mut entry.resource, facts.resource.get());
        entry.context = entry.context.take().or_else(|| facts.context.clone());
        entry.bounds = entry.bounds.take().or_else(|| facts.bounds.clone());
    }
    // A request that belongs to no impersonation was perhaps refused, and its names are all there
    // is.
    if entry.id.is_none() {
        for record in records {
            let names = [
                (&mut entry.client_id, &record.facts.client_id),
                (&mut entry.scope, &record.facts.scope),
            ];
            for (into, fact) in names {
                *into = into.take().or_else(|| fact.owned());
            }
        }
    }
}

/// Returns the time of the exchange, or else of the mint.
fn began(records: &[Record<'_>]) -> Option<UnixTime> {
    let of = |event: &str| {
        let record = records.iter().find(|record| record.facts.event.get() == Some(event));
        record.and_then(|record| record.time)
    };
    let minted = ["subject_token.created", "approval.requested", "break_glass.used"];
    of("token_exchange.succeeded").or_else(|| minted.into_iter().find_map(of))
}

/// Pairs the lines of both logs. Each request is left once. Takes no more time for requests that
/// all have the same id.
fn merge(records: Vec<Record<'_>>) -> Vec<Record<'_>> {
    let (mut merged, lines): (Vec<_>, Vec<_>) =
        records.into_iter().partition(|record| record.source == Source::AccessLog);
    if lines.is_empty() {
        return merged;
    }
    // The lines of the access log that have no partner yet, and the calls that the guard let pass.
    let mut free: HashMap<Pair, VecDeque<usize>> = HashMap::new();
    let mut passed: HashMap<(String, String), Vec<usize>> = HashMap::new();
    for (index, record) in merged.iter().enumerate() {
        free.entry(pair(record)).or_default().push_back(index);
        if has_passed(record) {
            passed.entry(method(record)).or_default().push(index);
        }
    }
    // The number of the guard's further lines that have found their calls already.
    let mut further: HashMap<((String, String), String), usize> = HashMap::new();
    for line in lines {
        let mut partner = free.get_mut(&pair(&line)).and_then(VecDeque::pop_front);
        // The guard writes further lines about one request under `mode: report`, and when it ends
        // an open stream: at most one for each reason. Two lines with one reason are about two
        // requests.
        if partner.is_none() && is_further(&line) {
            let reason = line.facts.reason.get().unwrap_or_default().to_owned();
            let told = further.entry((method(&line), reason)).or_default();
            partner = passed.get(&method(&line)).and_then(|calls| calls.get(*told)).copied();
            *told = told.saturating_add(1);
        }
        match partner.and_then(|index| merged.get_mut(index)) {
            Some(record) => add(record, line),
            None => {
                if has_passed(&line) {
                    passed.entry(method(&line)).or_default().push(merged.len());
                }
                merged.push(line);
            }
        }
    }
    merged
}

/// The parts that the two lines of one request have in common.
type Pair = (String, bool, String, String);

fn pair(record: &Record<'_>) -> Pair {
    let owned = |text: Option<&str>| text.unwrap_or_default().to_owned();
    let facts = &record.facts;
    let is_call = record.kind == Kind::Call;
    (
        record.shared_request_id().into_owned(),
        is_call,
        owned(facts.event.get()),
        owned(facts.reason.get()),
    )
}

fn method(record: &Record<'_>) -> (String, String) {
    let method = record.access.method.get().or_else(|| record.facts.method.get());
    (record.shared_request_id().into_owned(), method.unwrap_or_default().to_owned())
}

/// Returns true for a line of the guard that may be about a request that has a line already.
fn is_further(line: &Record<'_>) -> bool {
    let reason = line.facts.reason.get().unwrap_or_default();
    let of_guard = line.kind == Kind::Call;
    of_guard && (reason.ends_with("while_open") || line.facts.enforced == Some(false))
}

/// Returns true for a call that reached the API.
fn has_passed(record: &Record<'_>) -> bool {
    let facts = &record.facts;
    let guard = record.access.guard.get().unwrap_or_default();
    let reported = facts.enforced == Some(false) || guard.starts_with("reported");
    let later = facts.reason.get().unwrap_or_default().ends_with("while_open");
    record.kind == Kind::Call && (!facts.is_refused() || reported || later)
}

/// Adds what only the audit line has.
fn add<'a>(record: &mut Record<'a>, line: Record<'a>) {
    let (facts, more) = (&mut *record.facts, *line.facts);
    let texts = [
        (&mut facts.event, more.event),
        (&mut facts.user_id, more.user_id),
        (&mut facts.actor_id, more.actor_id),
        (&mut facts.client_id, more.client_id),
        (&mut facts.caller, more.caller),
        (&mut facts.requested_by, more.requested_by),
        (&mut facts.sender, more.sender),
        (&mut facts.event_type, more.event_type),
        (&mut facts.session, more.session),
        (&mut facts.resource, more.resource),
        (&mut facts.scope, more.scope),
        (&mut facts.jti, more.jti),
        (&mut facts.error, more.error),
        (&mut facts.reason, more.reason),
        (&mut facts.method, more.method),
        (&mut facts.path, more.path),
        (&mut facts.rule, more.rule),
        (&mut facts.decision_reason, more.decision_reason),
    ];
    texts.into_iter().for_each(|(text, other)| text.or(other));
    facts.enforced = match (facts.enforced, more.enforced) {
        (Some(one), Some(other)) => Some(one || other),
        (one, other) => one.or(other),
    };
    facts.all |= more.all;
    facts.caller_gone |= more.caller_gone;
    facts.approvals_needed = facts.approvals_needed.or(more.approvals_needed);
    facts.consent_needed |= more.consent_needed;
    facts.ended = facts.ended.or(more.ended);
    facts.context = facts.context.take().or(more.context);
    facts.bounds = facts.bounds.take().or(more.bounds);
    record.time = record.time.or(line.time);
    record.repetition = record.repetition.take().or(line.repetition);
}

fn step(record: &Record<'_>) -> Step {
    let (facts, access) = (&record.facts, &record.access);
    let event = facts.event.get().unwrap_or_default();
    let what = match (record.kind, event.split_once('.').unwrap_or_default()) {
        (Kind::Call, _) => What::Call,
        (Kind::Alarm, _) => What::Alarm,
        (_, ("subject_token", "created" | "refused"))
        | (_, ("approval", "requested") | ("break_glass", "used")) => What::Mint,
        (
            _,
            ("subject_token", "cancelled")
            | ("impersonation", "revoked")
            | ("impersonations", "ended"),
        ) => What::End,
        (_, ("token_exchange", _)) => What::Exchange,
        (_, ("token", _)) => What::Introspection,
        (_, ("approval" | "break_glass", _)) => What::Approval,
        _ => What::Other,
    };
    let by = match what {
        What::Mint => facts.caller.get(),
        What::Alarm => facts.second_client_id.get(),
        // The person and the client are named by the impersonation.
        What::Call => None,
        _ => facts
            .requested_by
            .get()
            .or_else(|| facts.sender.get())
            .or_else(|| facts.client_id.get())
            .or_else(|| facts.caller.get()),
    };
    let event = if what == What::Alarm { facts.alarm.owned() } else { facts.event.owned() };
    Step {
        time: written(record.time),
        what,
        outcome: record.outcome(),
        event: event.filter(|_| what != What::Call),
        by: by.map(str::to_owned),
        method: access.method.get().or_else(|| facts.method.get()).map(str::to_owned),
        path: access.path.get().or_else(|| facts.path.get()).map(str::to_owned),
        status: access.status.owned(),
        guard: access.guard.owned().or_else(|| guards(facts, what)),
        error: facts.error.owned(),
        reason: facts.reason.owned().or_else(|| facts.event_type.owned()),
        note: note(record, what),
        repetition: record.repetition.clone(),
        request_id: Some(record.request_id().to_owned()).filter(|id| !id.is_empty()),
        client_address: access.client_address.owned(),
        jti: access.token.jti.get().or_else(|| facts.jti.get()).map(str::to_owned),
        flags: access.flags.owned(),
        duration_ms: access.duration_ms.owned(),
    }
}

/// Says what the access log would say of the guard's decision.
fn guards(facts: &Facts<'_>, what: What) -> Option<String> {
    let by = facts.rule.get().or_else(|| facts.reason.get())?;
    let outcome = if facts.enforced == Some(false) { "reported" } else { "refused" };
    (what == What::Call).then(|| format!("{outcome}: {by}"))
}

fn note(record: &Record<'_>, what: What) -> Option<String> {
    let facts = &record.facts;
    let mut notes = Vec::new();
    if what == What::Alarm {
        notes.push(match facts.revoked {
            true => {
                "the subject token was presented again, and the impersonation was ended".to_owned()
            }
            false => "the subject token was presented again".to_owned(),
        });
    }
    if record.ends_by_names() {
        let names = ByNames::of(record).names();
        let ended = facts.ended.map(|ended| format!(", {ended} live")).unwrap_or_default();
        notes.push(format!("all impersonations of {names}{ended}"));
    }
    if let Some(people) = waits_for(facts) {
        notes.push(format!("waits for {people}"));
    }
    if let Some(reason) = facts.decision_reason.get() {
        notes.push(format!("reason given: {reason}"));
    }
    if facts.caller_gone {
        notes.push("the caller had hung up".to_owned());
    }
    Some(notes.join("; ")).filter(|notes| !notes.is_empty())
}

/// Says who must decide before the token of this mint can be exchanged.
fn waits_for(facts: &Facts<'_>) -> Option<String> {
    let approvals =
        facts.approvals_needed.filter(|number| *number > 0).map(|number| match number {
            1 => "1 approval".to_owned(),
            number => format!("{number} approvals"),
        });
    let consent = facts.consent_needed.then(|| "the user's consent".to_owned());
    let people: Vec<_> = approvals.into_iter().chain(consent).collect();
    (!people.is_empty()).then(|| people.join(" and "))
}

fn end_by_names(revocation: &ByNames) -> Step {
    Step {
        time: written(revocation.time),
        what: What::End,
        by: revocation.by.clone(),
        reason: revocation
            .is_event
            .then(|| revocation.event_type.clone().unwrap_or_else(|| "event".to_owned())),
        note: Some(format!("all impersonations of {}", revocation.names())),
        request_id: Some(revocation.request_id.clone()).filter(|id| !id.is_empty()),
        ..Step::default()
    }
}

/// Returns the first end. A refusal of the guard shows an end that is not in the logs.
fn end(records: &[Record<'_>], steps: &[(Option<UnixTime>, Step)]) -> Option<End> {
    let of_step = |step: &Step| {
        let cause = match (step.what, step.event.as_deref()) {
            (What::Approval, Some("approval.denied")) => Cause::Denied,
            (What::End, Some("subject_token.cancelled")) => Cause::Cancelled,
            (What::End, _) if step.reason.is_some() => Cause::Event,
            (What::End, _) => Cause::Revoked,
            _ => return None,
        };
        // A revocation by names is in many entries, and only the report puts it there.
        let of = step.note.clone().filter(|_| step.event.is_none());
        Some(End { at: step.time.clone(), cause, by: step.by.clone(), of })
    };
    let replay = |record: &Record<'_>| {
        let by = record.facts.second_client_id.owned();
        let end = End { at: written(record.time), cause: Cause::Replayed, by, of: None };
        (record.kind == Kind::Alarm && record.facts.revoked).then_some(end)
    };
    let found = steps.iter().filter_map(|(_, step)| of_step(step));
    let found = found.chain(records.iter().filter_map(replay));
    // All times have the same form, so their text sorts as they do. No time is later than any.
    let first = found.min_by_key(|end| (end.at.is_none(), end.at.clone()));
    first.or_else(|| {
        let refused = steps.iter().find(|(_, step)| {
            let reason = step.reason.as_deref().unwrap_or_default();
            step.what == What::Call && matches!(reason, "ended" | "ended_while_open")
        });
        refused.map(|(_, step)| End { at: step.time.clone(), ..End::default() })
    })
}
