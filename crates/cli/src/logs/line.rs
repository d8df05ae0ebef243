//! Reads one line of a log: a line of Envoy's access log, an audit line in Envoy's own log, or an
//! audit line alone.
//!
//! Callers choose paths and header fields, and Envoy logs them. So a line counts only if all of it
//! has one of these forms: an object alone, or an object after the beginning that Envoy gives the
//! log lines of Wasm plugins. Text in another place of a line, such as a debug line with header
//! fields, cannot imitate an event.

use std::borrow::Cow;
use std::fmt;
use std::io;

use impersonation_core::time::UnixTime;
use jiff::tz::Offset;
use memchr::{memchr, memmem};
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, de};
use serde_json::Value;
use serde_json::error::Category;

use super::when;

/// The event of a request that the guard refused.
pub(crate) const REFUSED_CALL: &str = "impersonated_request.refused";

/// The alarm about a spent subject token that was presented again.
pub(crate) const REPLAYED: &str = "subject_token.replayed";

/// The alarm about a mint without the approvals that it needed.
const BREAK_GLASS: &str = "break_glass.used";

/// The event of a configuration that took effect.
pub(crate) const LOADED: &str = "configuration.loaded";

/// The events that happen once for each token.
const ONCE: [&str; 4] =
    ["subject_token.created", "approval.requested", "break_glass.used", "token_exchange.succeeded"];

/// The beginnings of the names of audit events. The report shows events that it does not know, if
/// they have such a name.
pub(crate) const FAMILIES: [&str; 11] = [
    "subject_token.",
    "token_exchange.",
    "impersonation.",
    "impersonations.",
    "impersonated_request.",
    "token.introspect",
    "approval.",
    "approvals.",
    "break_glass.",
    "security_event.",
    "configuration.",
];

/// The most bytes of a request's id that the audit log has.
const MAX_REQUEST_ID: usize = 256;

/// A text in a log. Absent, `null`, `-` and values that are no text are all the empty text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Text<'a>(Cow<'a, str>);

impl Text<'_> {
    pub(crate) fn get(&self) -> Option<&str> {
        (!matches!(&*self.0, "" | "-")).then_some(&*self.0)
    }

    pub(crate) fn owned(&self) -> Option<String> {
        self.get().map(str::to_owned)
    }

    /// Takes the other text if this one is empty.
    pub(crate) fn or(&mut self, other: Self) {
        if self.get().is_none() {
            *self = other;
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextVisitor).map(Text)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Cow<'de, str>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Cow::Owned(number.to_string()))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Self::Value, E> {
        Ok(Cow::Owned(number.to_string()))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Self::Value, E> {
        Ok(Cow::Owned(number.to_string()))
    }

    fn visit_bool<E: de::Error>(self, _: bool) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(""))
    }

    fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(""))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Cow::Borrowed(""))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Cow::Borrowed(""))
    }
}

/// The members of an audit line. The access log has some of them, in `impersonation`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Facts<'a> {
    #[serde(borrow)]
    pub(crate) event: Text<'a>,
    #[serde(borrow)]
    pub(crate) request_id: Text<'a>,
    #[serde(borrow)]
    pub(crate) subject_token_id: Text<'a>,
    #[serde(borrow)]
    pub(crate) user_id: Text<'a>,
    #[serde(borrow)]
    pub(crate) actor_id: Text<'a>,
    #[serde(borrow)]
    pub(crate) client_id: Text<'a>,
    #[serde(borrow)]
    pub(crate) caller: Text<'a>,
    #[serde(borrow)]
    pub(crate) requested_by: Text<'a>,
    /// The sender of an event, its type, and the session that it is about.
    #[serde(borrow)]
    pub(crate) sender: Text<'a>,
    #[serde(borrow)]
    pub(crate) event_type: Text<'a>,
    #[serde(borrow)]
    pub(crate) session: Text<'a>,
    #[serde(borrow)]
    pub(crate) resource: Text<'a>,
    #[serde(borrow)]
    pub(crate) scope: Text<'a>,
    #[serde(borrow)]
    pub(crate) jti: Text<'a>,
    #[serde(borrow)]
    pub(crate) error: Text<'a>,
    #[serde(borrow)]
    pub(crate) reason: Text<'a>,
    #[serde(borrow)]
    pub(crate) method: Text<'a>,
    #[serde(borrow)]
    pub(crate) path: Text<'a>,
    #[serde(borrow)]
    pub(crate) rule: Text<'a>,
    pub(crate) enforced: Option<bool>,
    pub(crate) all: bool,
    pub(crate) ended: Option<u64>,
    pub(crate) caller_gone: bool,
    /// For a mint that waits: how many people must approve, and true if the user must consent.
    pub(crate) approvals_needed: Option<u64>,
    pub(crate) consent_needed: bool,
    /// The reason that a person gave for a decision.
    #[serde(borrow)]
    pub(crate) decision_reason: Text<'a>,
    pub(crate) context: Option<Value>,
    pub(crate) bounds: Option<Value>,
    #[serde(borrow)]
    pub(crate) alarm: Text<'a>,
    #[serde(borrow)]
    pub(crate) second_client_id: Text<'a>,
    #[serde(borrow)]
    pub(crate) second_request_id: Text<'a>,
    pub(crate) revoked: bool,
    /// A program that collects logs may have added the time.
    #[serde(borrow)]
    time: Text<'a>,
}

impl Facts<'_> {
    pub(crate) fn is_refused(&self) -> bool {
        self.event.get().is_some_and(|event| event.ends_with("refused"))
    }
}

/// The members of `token` in a line of the access log.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Token<'a> {
    #[serde(borrow)]
    pub(crate) txn: Text<'a>,
    #[serde(borrow)]
    pub(crate) sub: Text<'a>,
    #[serde(borrow)]
    pub(crate) act: Text<'a>,
    /// The session of the actor.
    #[serde(borrow)]
    pub(crate) sid: Text<'a>,
    #[serde(borrow)]
    pub(crate) jti: Text<'a>,
}

/// The members of a line of the access log.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Access<'a> {
    #[serde(borrow)]
    time: Text<'a>,
    /// Envoy's own id of the line.
    #[serde(borrow)]
    pub(crate) line_id: Text<'a>,
    #[serde(borrow)]
    pub(crate) request_id: Text<'a>,
    #[serde(borrow)]
    pub(crate) client_address: Text<'a>,
    #[serde(borrow)]
    pub(crate) method: Text<'a>,
    #[serde(borrow)]
    pub(crate) path: Text<'a>,
    #[serde(borrow)]
    pub(crate) status: Text<'a>,
    #[serde(borrow)]
    pub(crate) flags: Text<'a>,
    #[serde(borrow)]
    pub(crate) duration_ms: Text<'a>,
    #[serde(borrow)]
    pub(crate) guard: Text<'a>,
    /// Boxed, because few lines have it and it is large.
    #[serde(borrow)]
    impersonation: Option<Box<Facts<'a>>>,
    #[serde(borrow)]
    pub(crate) token: Token<'a>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    AccessLog,
    AuditLine,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A request to an API with the token of an impersonation.
    Call,
    /// A request that the filter answered.
    Event,
    /// An alarm about a request.
    Alarm,
}

/// The outcome of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    #[default]
    Done,
    Refused,
    /// The guard would have refused the call, and let it pass (`mode: report`).
    Reported,
    /// The call reached the API, and then the guard ended its stream.
    CutOff,
    /// The call did not pass through the guard.
    Unguarded,
}

/// One line of a log that is about impersonations.
#[derive(Debug, Clone)]
pub(crate) struct Record<'a> {
    pub(crate) source: Source,
    pub(crate) kind: Kind,
    pub(crate) time: Option<UnixTime>,
    pub(crate) facts: Box<Facts<'a>>,
    pub(crate) access: Access<'a>,
    /// Says how often the line is in the logs, if it is more than once.
    pub(crate) repetition: Option<String>,
}

impl Record<'_> {
    /// Returns the id of the impersonation.
    pub(crate) fn txn(&self) -> Option<&str> {
        let of_token = || self.access.token.txn.get();
        match self.kind {
            Kind::Call => of_token().or_else(|| self.facts.subject_token_id.get()),
            Kind::Event | Kind::Alarm => self.facts.subject_token_id.get(),
        }
    }

    /// Returns Envoy's id of the request, as long as the audit log has it.
    pub(crate) fn request_id(&self) -> &str {
        let id = match (self.kind, self.source) {
            (Kind::Alarm, _) => &self.facts.second_request_id,
            (_, Source::AccessLog) => &self.access.request_id,
            (_, Source::AuditLine) => &self.facts.request_id,
        };
        let id = id.get().unwrap_or_default();
        id.get(..id.floor_char_boundary(MAX_REQUEST_ID)).unwrap_or_default()
    }

    /// Returns true if no other request can leave the same line: Envoy has given it an id, or the
    /// event happens once for each token.
    pub(crate) fn is_unique(&self) -> bool {
        match self.source {
            Source::AccessLog => self.access.line_id.get().is_some(),
            Source::AuditLine => self.facts.event.get().is_some_and(|event| ONCE.contains(&event)),
        }
    }

    /// Returns what both logs have of the request's id.
    pub(crate) fn shared_request_id(&self) -> Cow<'_, str> {
        shared(self.request_id())
    }

    pub(crate) fn outcome(&self) -> Outcome {
        let facts = &self.facts;
        if self.kind != Kind::Call {
            return if facts.is_refused() { Outcome::Refused } else { Outcome::Done };
        }
        let guard = self.access.guard.get().unwrap_or_default();
        let reported = facts.enforced == Some(false) || guard.starts_with("reported");
        match (facts.is_refused(), facts.reason.get()) {
            (true, _) if reported && facts.enforced != Some(true) => Outcome::Reported,
            (true, Some(reason)) if reason.ends_with("while_open") => Outcome::CutOff,
            (true, _) => Outcome::Refused,
            (false, _) if guard.is_empty() => Outcome::Unguarded,
            (false, _) => Outcome::Done,
        }
    }

    pub(crate) fn user(&self) -> Option<&str> {
        self.facts.user_id.get().or_else(|| self.access.token.sub.get())
    }

    pub(crate) fn actor(&self) -> Option<&str> {
        self.facts.actor_id.get().or_else(|| self.access.token.act.get())
    }

    /// Returns the session in which the actor began the impersonation.
    pub(crate) fn session(&self) -> Option<&str> {
        self.facts.session.get().or_else(|| self.access.token.sid.get())
    }

    /// Returns true if the request ended impersonations by names, and not one impersonation.
    pub(crate) fn ends_by_names(&self) -> bool {
        let revoked = self.facts.event.get() == Some("impersonation.revoked");
        (revoked || self.is_ending_event()) && self.txn().is_none()
    }

    /// Returns true if the request told of a logout or another event that ended impersonations.
    pub(crate) fn is_ending_event(&self) -> bool {
        self.facts.event.get() == Some("impersonations.ended")
    }
}

/// Returns what both logs have of a request's id: each run of characters that are not ASCII becomes
/// one. If a caller's id is not UTF-8, the access log has a character for each byte, and the audit
/// line has replacement characters.
pub(crate) fn shared(id: &str) -> Cow<'_, str> {
    if id.is_ascii() {
        return Cow::Borrowed(id);
    }
    let mut shared = String::with_capacity(id.len());
    for character in id.chars() {
        let replaced = if character.is_ascii() { character } else { char::REPLACEMENT_CHARACTER };
        if character.is_ascii() || !shared.ends_with(replaced) {
            shared.push(replaced);
        }
    }
    Cow::Owned(shared)
}

/// The verdict about one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoRecord {
    /// The line is about something else.
    NotOurs,
    /// The line is cut off, mixed with another line, or not in a form that is known.
    Broken,
}

/// A line, without what a container's log or Envoy's log writes before the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stripped<'a> {
    pub(crate) object: &'a str,
    /// The time in the beginning.
    pub(crate) time: Option<UnixTime>,
}

/// Calls `take` with each record of a line, which may have any bytes, and with its object. Two
/// programs that write into one file may have lost the end of a line.
pub(crate) fn records(
    line: &[u8],
    offset: Offset,
    mut take: impl FnMut(&Record<'_>, &str) -> io::Result<()>,
) -> io::Result<Result<(), NoRecord>> {
    // A caller's path may have any bytes, and the call still counts.
    let line = String::from_utf8_lossy(line);
    let (mut left, mut outcome) = (&*line, Err(NoRecord::NotOurs));
    loop {
        let stripped = match strip(left, offset) {
            Ok(stripped) => stripped,
            Err(none) if left.len() == line.len() => return Ok(Err(none)),
            Err(_) => return Ok(Err(NoRecord::Broken)),
        };
        let (record, rest) = read(stripped, None);
        match record {
            Ok(record) => {
                let length = stripped.object.len().saturating_sub(rest.len());
                take(&record, stripped.object.get(..length).unwrap_or_default())?;
                outcome = Ok(());
            }
            Err(NoRecord::Broken) => return Ok(Err(NoRecord::Broken)),
            Err(NoRecord::NotOurs) => {}
        }
        if rest.is_empty() {
            return Ok(outcome);
        }
        left = rest;
    }
}

/// Removes the beginning of a line. `offset` is that of Envoy's clock from UTC.
fn strip(line: &str, offset: Offset) -> Result<Stripped<'_>, NoRecord> {
    let line = line.trim_ascii();
    let start = line.find('{').ok_or(NoRecord::NotOurs)?;
    let (before, object) = line.split_at_checked(start).ok_or(NoRecord::NotOurs)?;
    let (time, before) = transport(before.trim_ascii().as_bytes());
    if before.is_empty() {
        return Ok(Stripped { object, time });
    }
    let envoys = envoy(before, offset).ok_or(NoRecord::NotOurs)?;
    Ok(Stripped { object, time: envoys.or(time) })
}

/// Removes what a container runtime writes before each line: `2026-11-22T03:28:00.1Z stdout F`, or
/// Docker Compose: `envoy-1 |`.
fn transport(before: &[u8]) -> (Option<UnixTime>, &[u8]) {
    if let Some(bar) = memchr(b'|', before) {
        let (name, rest) = before.split_at_checked(bar).unwrap_or_default();
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_. ".contains(byte);
        let rest = rest.get(1..).unwrap_or_default();
        return if name.iter().all(plain) { (None, rest.trim_ascii()) } else { (None, before) };
    }
    for stream in [&b" stdout F"[..], b" stderr F"] {
        if let Some(at) = memmem::find(before, stream)
            && let Some((time, rest)) = before.split_at_checked(at)
            && let Some(time) = when::with_offset(time)
        {
            return (Some(time), rest.get(stream.len()..).unwrap_or_default().trim_ascii());
        }
    }
    (None, before)
}

/// Reads the beginning of Envoy's log lines for Wasm plugins:
/// `[2026-11-22 21:39:24.223][2622][info][wasm] [source] wasm log name: `. Returns the time.
fn envoy(before: &[u8], offset: Offset) -> Option<Option<UnixTime>> {
    let mut rest = before;
    let mut fields = [&b""[..]; 4];
    for field in &mut fields {
        rest = rest.strip_prefix(b"[")?;
        let (inside, after) = rest.split_at_checked(memchr(b']', rest)?)?;
        (*field, rest) = (inside, after.get(1..)?);
    }
    let [time, _, _, component] = fields;
    let is_plugins = component == b"wasm" && memmem::find(rest, b"wasm log ").is_some();
    is_plugins.then(|| when::perhaps_without_offset(time, offset))
}

/// Reads the first object. Returns the rest of the bytes, too: two programs that write into one
/// file may have lost the end of a line.
pub(crate) fn read<'a>(
    stripped: Stripped<'a>,
    source: Option<Source>,
) -> (Result<Record<'a>, NoRecord>, &'a str) {
    let Stripped { object, time } = stripped;
    let is_audit = match source {
        Some(source) => source == Source::AuditLine,
        None => object.starts_with(r#"{"event""#) || object.starts_with(r#"{"alarm""#),
    };
    if !is_audit {
        let (access, rest) = first::<Access<'_>>(object);
        let record = match access {
            Ok(access) => of_access(access, time),
            // For example an object whose `token` is a text.
            Err(NoRecord::NotOurs) => None,
            Err(NoRecord::Broken) => return (Err(NoRecord::Broken), rest),
        };
        if let Some(record) = record {
            return (Ok(record), rest);
        }
    }
    let (facts, rest) = first::<Box<Facts<'_>>>(object);
    let record = facts.and_then(|facts| of_audit(facts, time).ok_or(NoRecord::NotOurs));
    (record, rest)
}

fn first<'a, T: Deserialize<'a>>(text: &'a str) -> (Result<T, NoRecord>, &'a str) {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<T>();
    let value = values.next();
    let rest = text.get(values.byte_offset()..).unwrap_or_default().trim_ascii();
    match value {
        Some(Ok(value)) => (Ok(value), rest),
        Some(Err(error)) if error.classify() == Category::Data => (Err(NoRecord::NotOurs), ""),
        Some(Err(_)) | None => (Err(NoRecord::Broken), ""),
    }
}

fn of_access(mut access: Access<'_>, time: Option<UnixTime>) -> Option<Record<'_>> {
    let facts = access.impersonation.take().unwrap_or_default();
    let has_txn = access.token.txn.get().is_some();
    let kind = match facts.event.get() {
        Some(REFUSED_CALL) => Kind::Call,
        // The filter answered. If the guard let the request pass first, it is a call, and the
        // filter's event is in the audit lines.
        Some(event) if is_known(event) && !(has_txn && access.guard.get().is_some()) => Kind::Event,
        _ if has_txn => Kind::Call,
        _ => return None,
    };
    let time = access.time.get().and_then(|text| when::with_offset(text.as_bytes())).or(time);
    Some(Record { source: Source::AccessLog, kind, time, facts, access, repetition: None })
}

fn of_audit(facts: Box<Facts<'_>>, time: Option<UnixTime>) -> Option<Record<'_>> {
    let kind = match (facts.event.get(), facts.alarm.get()) {
        (None, Some(REPLAYED | BREAK_GLASS)) => Kind::Alarm,
        (Some(REFUSED_CALL), _) => Kind::Call,
        (Some(event), _) if is_known(event) => Kind::Event,
        _ => return None,
    };
    let time =
        time.or_else(|| facts.time.get().and_then(|text| when::with_offset(text.as_bytes())));
    let access = Access::default();
    Some(Record { source: Source::AuditLine, kind, time, facts, access, repetition: None })
}

fn is_known(event: &str) -> bool {
    FAMILIES.iter().any(|family| event.starts_with(family))
}
