//! Says of each event of the logs what the schemas need to know.

use impersonation_core::time::UnixTime;
use serde_json::{Map, Value};

use crate::logs::line::{Kind, Outcome, REFUSED_CALL, Record, Source};
use crate::logs::when;

/// The event of a call that the guard would have refused, if it were not in `mode: report`.
const REPORTED: &str = "impersonated_request.reported";

/// The roles of the people whom an event names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Roles {
    /// `actor_id` acts with the rights of `user_id`.
    ActsAs,
    /// `requested_by` acts, and `user_id` is the subject.
    Administers,
}

/// The class of an event in OCSF.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Base,
    Finding,
    Authentication,
    EntityManagement,
    ApiActivity,
}

/// One row of the table of events.
#[derive(Debug)]
pub(super) struct Row {
    /// The event's name; of a call, its outcome.
    pub(super) name: &'static str,
    /// `event.category` and `event.type` of ECS.
    pub(super) categories: &'static [&'static str],
    pub(super) types: &'static [&'static str],
    /// The class and the activity of OCSF. The activity of a call is that of its method.
    pub(super) class: Class,
    pub(super) activity: u8,
    pub(super) roles: Roles,
}

impl Row {
    /// `event.dataset` of ECS.
    pub(super) fn dataset(&self) -> &'static str {
        match self.class {
            Class::ApiActivity => "impersonation.access",
            _ => "impersonation.audit",
        }
    }
}

const fn row(
    name: &'static str,
    [categories, types]: [&'static [&'static str]; 2],
    (class, activity): (Class, u8),
    roles: Roles,
) -> Row {
    Row { name, categories, types, class, activity, roles }
}

const CREATION: [&[&str]; 2] = [&["iam"], &["creation"]];
const DELETION: [&[&str]; 2] = [&["iam"], &["deletion"]];
const CHANGE: [&[&str]; 2] = [&["iam"], &["change"]];
const INFO: [&[&str]; 2] = [&["iam"], &["info"]];
const BEGIN: [&[&str]; 2] = [&["authentication", "session"], &["start"]];
const END: [&[&str]; 2] = [&["session"], &["end"]];
const TOLD: [&[&str]; 2] = [&["session"], &["info"]];
const PASSED: [&[&str]; 2] = [&["api", "web"], &["access"]];
const DENIED: [&[&str]; 2] = [&["api", "web"], &["access", "denied"]];
const LOGGED: [&[&str]; 2] = [&["api"], &["info"]];
const INTRUSION: [&[&str]; 2] = [&["intrusion_detection"], &["info"]];
const CONFIGURATION: [&[&str]; 2] = [&["configuration"], &["change"]];

const CREATE: (Class, u8) = (Class::EntityManagement, 1);
const READ: (Class, u8) = (Class::EntityManagement, 2);
const UPDATE: (Class, u8) = (Class::EntityManagement, 3);
const DELETE: (Class, u8) = (Class::EntityManagement, 4);
const ACTIVATE: (Class, u8) = (Class::EntityManagement, 10);
const DEACTIVATE: (Class, u8) = (Class::EntityManagement, 11);
const LOGOFF: (Class, u8) = (Class::Authentication, 2);
const SWITCH: (Class, u8) = (Class::Authentication, 7);
const CALL: (Class, u8) = (Class::ApiActivity, 0);
const DETECTED: (Class, u8) = (Class::Finding, 1);
const OTHER: (Class, u8) = (Class::Base, 0);

use Roles::{ActsAs, Administers};

/// The events. docs/evidence.md shows what they become.
#[rustfmt::skip]
pub(super) const EVENTS: [Row; 32] = [
    row("subject_token.created",              CREATION,      CREATE,     Administers),
    row("subject_token.refused",              CREATION,      CREATE,     Administers),
    row("subject_token.cancelled",            DELETION,      DELETE,     Administers),
    row("subject_token.cancellation_refused", DELETION,      DELETE,     Administers),
    row("subject_token.shown",                INFO,          READ,       Administers),
    row("subject_token.show_refused",         INFO,          READ,       Administers),
    row("token_exchange.succeeded",           BEGIN,         SWITCH,     ActsAs),
    row("token_exchange.refused",             BEGIN,         SWITCH,     ActsAs),
    row("approval.requested",                 CHANGE,        CREATE,     Administers),
    row("approval.given",                     CHANGE,        ACTIVATE,   Administers),
    row("approval.refused",                   CHANGE,        ACTIVATE,   Administers),
    row("approval.not_given",                 CHANGE,        ACTIVATE,   Administers),
    row("approval.denied",                    CHANGE,        DEACTIVATE, Administers),
    row("approval.not_denied",                CHANGE,        DEACTIVATE, Administers),
    row("approvals.listed",                   INFO,          READ,       Administers),
    row("approvals.list_refused",             INFO,          READ,       Administers),
    row("break_glass.used",                   CREATION,      CREATE,     Administers),
    row("impersonations.listed",              INFO,          READ,       Administers),
    row("impersonations.list_refused",        INFO,          READ,       Administers),
    row("impersonations.ended",               END,           LOGOFF,     Administers),
    row("impersonation.revoked",              END,           LOGOFF,     Administers),
    row("impersonation.revocation_refused",   END,           LOGOFF,     Administers),
    row("impersonation.revocation_ignored",   END,           LOGOFF,     Administers),
    row("token.introspected",                 INFO,          READ,       Administers),
    row("token.introspection_refused",        INFO,          READ,       Administers),
    row("security_event.received",            TOLD,          OTHER,      Administers),
    row("security_event.refused",             TOLD,          OTHER,      Administers),
    row("configuration.loaded",               CONFIGURATION, UPDATE,     Administers),
    row("impersonated_request.allowed",       PASSED,        CALL,       ActsAs),
    row(REFUSED_CALL,                         DENIED,        CALL,       ActsAs),
    row(REPORTED,                             LOGGED,        CALL,       ActsAs),
    // An event of a later version.
    row("",                                   [&[], &[]],    OTHER,      Administers),
];

/// The alarms.
#[rustfmt::skip]
pub(super) const ALARMS: [Row; 2] = [
    row("subject_token.replayed", INTRUSION, DETECTED, Administers),
    row("break_glass.used",       CREATION,  DETECTED, Administers),
];

/// One event, with all that its line says.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) row: &'static Row,
    pub(super) name: String,
    pub(super) time: UnixTime,
    pub(super) is_alarm: bool,
    /// The request was refused, or had no effect.
    pub(super) has_failed: bool,
    /// The id of the impersonation, its user, and the party that acts.
    pub(super) id: Option<String>,
    pub(super) user: Option<String>,
    pub(super) acts: Option<String>,
    /// The members of the line that have no place yet.
    pub(super) rest: Map<String, Value>,
}

impl Event {
    /// Makes the event of a record. `time` is the record's, or that of the line before.
    pub(super) fn new(record: &Record<'_>, object: &str, time: UnixTime) -> Option<Self> {
        let mut rest: Map<String, Value> = serde_json::from_str(object).ok()?;
        let of_line = rest.get("time").and_then(Value::as_str);
        if of_line.and_then(|text| when::with_offset(text.as_bytes())) == record.time {
            rest.shift_remove("time");
        }
        let is_alarm = record.kind == Kind::Alarm;
        let name = match (record.kind, record.outcome()) {
            (Kind::Alarm, _) => take(&mut rest, "alarm")?,
            (Kind::Event, _) => take(&mut rest, "event")?,
            (Kind::Call, Outcome::Reported) => REPORTED.to_owned(),
            (Kind::Call, Outcome::Refused | Outcome::CutOff) => REFUSED_CALL.to_owned(),
            (Kind::Call, _) => "impersonated_request.allowed".to_owned(),
        };
        if record.kind == Kind::Call && record.source == Source::AuditLine {
            rest.shift_remove("event");
        }
        let rows: &[Row] = if is_alarm { &ALARMS } else { &EVENTS };
        let row = rows.iter().find(|row| row.name == name).or(EVENTS.last())?;
        let mut event = Self {
            row,
            time,
            is_alarm,
            has_failed: name.ends_with("refused") || name.contains(".not_"),
            id: None,
            user: None,
            acts: None,
            name,
            rest,
        };
        event.take_names(record);
        Some(event)
    }

    /// Moves the names out of the members. A call has them in its token.
    fn take_names(&mut self, record: &Record<'_>) {
        let mut of_token = |member: &str| {
            let Some(Value::Object(token)) = self.rest.get_mut("token") else { return None };
            take(token, member)
        };
        let is_access = record.source == Source::AccessLog;
        if is_access {
            (self.id, self.user, self.acts) = (of_token("txn"), of_token("sub"), of_token("act"));
        } else {
            self.id = take(&mut self.rest, "subject_token_id");
            self.user = take(&mut self.rest, "user_id");
            let acts = match self.row.roles {
                ActsAs => "actor_id",
                Administers => "requested_by",
            };
            self.acts = take(&mut self.rest, acts);
        }
    }

    /// Returns everybody whom the event names, each once.
    pub(super) fn people(&self) -> Vec<String> {
        let approved_by = self.rest.get("approved_by").and_then(Value::as_array);
        let approved_by = approved_by.into_iter().flatten().filter_map(Value::as_str);
        let named = [self.acts.as_deref(), self.user.as_deref(), self.known("actor_id")];
        let mut people: Vec<String> = Vec::new();
        for one in named.into_iter().flatten().chain(approved_by) {
            if !people.iter().any(|known| known == one) {
                people.push(one.to_owned());
            }
        }
        people
    }

    /// Takes a member that is a text, of the line or of its `impersonation`.
    pub(super) fn text(&mut self, member: &str) -> Option<String> {
        take(&mut self.rest, member).or_else(|| match self.rest.get_mut("impersonation")? {
            Value::Object(impersonation) => take(impersonation, member),
            _ => None,
        })
    }

    /// Returns a member that is a text, and leaves it where it is.
    pub(super) fn known(&self, member: &str) -> Option<&str> {
        self.rest.get(member)?.as_str().filter(|text| !text.is_empty())
    }

    /// Takes a member that is a number. Envoy writes some numbers as texts.
    pub(super) fn number(&mut self, member: &str) -> Option<u64> {
        let number = match self.rest.get(member)? {
            Value::Number(number) => number.as_u64()?,
            Value::String(text) => text.parse().ok().filter(|n: &u64| n.to_string() == *text)?,
            _ => return None,
        };
        self.rest.shift_remove(member);
        Some(number)
    }
}

/// Takes a member that is a text. Another value stays.
fn take(members: &mut Map<String, Value>, member: &str) -> Option<String> {
    match members.get(member)? {
        Value::String(text) if !text.is_empty() => {}
        _ => return None,
    }
    match members.shift_remove(member)? {
        Value::String(text) => Some(text),
        _ => None,
    }
}
