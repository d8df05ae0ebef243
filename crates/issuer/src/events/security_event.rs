//! Security event tokens (RFC 8417): the profile by which a transmitter of the Shared Signals
//! Framework says what happened to a session, a credential, a device or an account.
//!
//! The profile is that of CAEP's interoperability profile: `typ` is `secevent+jwt`, and there is
//! exactly one event. `sub` and `exp` decide nothing. Transmitters must not send them, and a
//! receiver that refused them would lose events.

use serde_json::{Map, Value};

use super::subject::Subject;
use super::{EventError, Meaning, ReceivedEvent, Senders, when};
use crate::host::UnixTime;
use crate::statement::{StatementError, Untrusted};
use crate::step::Context;

const TYPES: [&str; 2] = ["secevent+jwt", "application/secevent+jwt"];

const CAEP: &str = "https://schemas.openid.net/secevent/caep/event-type/";
const RISC: &str = "https://schemas.openid.net/secevent/risc/event-type/";
const SSF: &str = "https://schemas.openid.net/secevent/ssf/event-type/";

/// The types of event that can end impersonations: those that a receiver asks its transmitter for.
/// The transmitter sends the events of the stream itself without being asked.
pub const EVENT_TYPES: [&str; 8] = [
    "https://schemas.openid.net/secevent/caep/event-type/session-revoked",
    "https://schemas.openid.net/secevent/caep/event-type/credential-change",
    "https://schemas.openid.net/secevent/caep/event-type/device-compliance-change",
    "https://schemas.openid.net/secevent/caep/event-type/assurance-level-change",
    "https://schemas.openid.net/secevent/risc/event-type/account-disabled",
    "https://schemas.openid.net/secevent/risc/event-type/account-purged",
    "https://schemas.openid.net/secevent/risc/event-type/account-credential-change-required",
    "https://schemas.openid.net/secevent/risc/event-type/credential-compromise",
];

/// The impersonations that end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// Those in which the subject acts. If the subject is a session, or a person in a session, only
    /// those of that session.
    OfActor,
    /// Those in which the subject acts, in any session, and those of the subject.
    OfAccount,
}

impl Senders {
    /// Verifies a security event token.
    pub(crate) async fn security_event(
        &self,
        context: &Context,
        token: &str,
        authorization: Option<&[u8]>,
    ) -> Result<ReceivedEvent, EventError> {
        let now = context.host().now();
        let statement = Untrusted::parse(token)?;
        if statement.r#type().is_none() {
            return Err(StatementError::Type("none".to_owned()).into());
        }
        statement.check_type(&TYPES)?;
        self.check_authorization(&statement, authorization)?;
        let (sender, verified) = self.verify(context, &statement, now).await?;
        sender.check_audience(&verified)?;
        let malformed = EventError::Malformed;
        let issued_at = verified.issued_at.ok_or(malformed("no iat"))?;
        let jti = verified.text("jti")?.filter(|jti| !jti.is_empty());
        let jti = jti.ok_or(malformed("no jti"))?.to_owned();
        let events = verified.claim("events").and_then(Value::as_object);
        let mut events = events.ok_or(malformed("no events"))?.iter();
        let (Some((kind, Value::Object(event))), None) = (events.next(), events.next()) else {
            return Err(malformed("events must have exactly one member, an object"));
        };
        let toe = time(verified.claim("toe"), "toe is not a number")?;
        let at = time(event.get("event_timestamp"), "event_timestamp is not a number")?
            .or(toe)
            .unwrap_or(issued_at);
        // Transmitters of before SSF 1.0 name the subject in the event.
        let subject = verified.claim("sub_id").or_else(|| event.get("subject"));
        let meaning = match consequence(kind, event)? {
            Consequence::Meaning(meaning) => meaning,
            Consequence::Ends(ends) => {
                let subject = subject.ok_or(malformed("no sub_id"))?;
                match Subject::read(&sender, subject) {
                    None => Meaning::SubjectNotUnderstood,
                    Some(subject) => Meaning::Ends(match ends {
                        Ends::OfActor => vec![subject.as_actor()],
                        Ends::OfAccount => subject.as_account(),
                    }),
                }
            }
        };
        let issuer = sender.configured.issuer.clone();
        Ok(ReceivedEvent {
            issuer,
            jti,
            kind: kind.clone(),
            at: when(at, issued_at, now),
            person: None,
            meaning,
        })
    }
}

/// The consequence of an event, before its subject is read.
enum Consequence {
    Ends(Ends),
    Meaning(Meaning),
}

fn consequence(kind: &str, event: &Map<String, Value>) -> Result<Consequence, EventError> {
    let ends_if = |ends: bool| match ends {
        true => Consequence::Ends(Ends::OfActor),
        false => Consequence::Meaning(Meaning::Nothing),
    };
    if let Some(name) = kind.strip_prefix(CAEP) {
        return Ok(ends_if(match name {
            "session-revoked" => true,
            "credential-change" => matches!(required(event, "change_type")?, "revoke" | "delete"),
            "device-compliance-change" => required(event, "current_status")? == "not-compliant",
            // Without a direction the assurance may have become lower.
            "assurance-level-change" => optional(event, "change_direction")? != Some("increase"),
            _ => false,
        }));
    }
    if let Some(name) = kind.strip_prefix(RISC) {
        return Ok(match name {
            "account-disabled"
            | "account-purged"
            | "account-credential-change-required"
            | "credential-compromise" => Consequence::Ends(Ends::OfAccount),
            _ => ends_if(false),
        });
    }
    Ok(Consequence::Meaning(match kind.strip_prefix(SSF) {
        Some("verification") => {
            Meaning::Verification { state: optional(event, "state")?.map(str::to_owned) }
        }
        Some("stream-updated") => {
            Meaning::StreamUpdated { status: required(event, "status")?.to_owned() }
        }
        _ => Meaning::Nothing,
    }))
}

fn required<'e>(event: &'e Map<String, Value>, name: &str) -> Result<&'e str, EventError> {
    optional(event, name)?.ok_or(EventError::Malformed("the event lacks a member that it needs"))
}

fn optional<'e>(event: &'e Map<String, Value>, name: &str) -> Result<Option<&'e str>, EventError> {
    match event.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(EventError::Malformed("a member of the event has the wrong type")),
    }
}

fn time(value: Option<&Value>, wrong: &'static str) -> Result<Option<UnixTime>, EventError> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Number(date)) => Ok(date.as_f64().map(UnixTime::from_numeric_date)),
        Some(_) => Err(EventError::Malformed(wrong)),
    }
}

#[cfg(test)]
mod tests;
