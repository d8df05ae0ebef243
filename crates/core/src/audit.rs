//! Who acted as whom, and who looked and put an end to it: one event for each request that is ours.
//!
//! Impersonation without accountability is a breach, so an event is filled in as the facts become known
//! and written down whatever way the request ends. It never holds a token, a secret or a key.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;

use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_json::ser::Formatter;

use crate::metrics;
use crate::policy::Bounds;
use crate::store::{Exchange, Mint};

/// What a request wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// A subject token.
    Mint,
    /// An access token for one.
    Exchange,
    /// To take a subject token back.
    Cancel,
    /// To see what is live.
    List,
    /// To end impersonations.
    Revoke,
    /// To know whether one is live.
    Introspect,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventName {
    /// A subject token was minted.
    SubjectTokenCreated,
    /// A request for one was refused.
    SubjectTokenRefused,
    /// A subject token was exchanged.
    TokenExchangeSucceeded,
    /// An exchange was refused.
    TokenExchangeRefused,
    /// A subject token was taken back by who minted it, and what it was exchanged for has ended.
    SubjectTokenCancelled,
    /// That was refused.
    SubjectTokenCancellationRefused,
    /// Somebody looked at who impersonates whom.
    ImpersonationsListed,
    /// That was refused.
    ImpersonationsListRefused,
    /// One or more impersonations have ended.
    ImpersonationRevoked,
    /// A client revoked a token that is not known, or not its own: nothing has ended.
    ImpersonationRevocationIgnored,
    /// Nothing has ended, as that was refused.
    ImpersonationRevocationRefused,
    /// Somebody asked whether a token is good.
    TokenIntrospected,
    /// That was refused.
    TokenIntrospectionRefused,
}

impl EventName {
    /// Its name in the log.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SubjectTokenCreated => "subject_token.created",
            Self::SubjectTokenRefused => "subject_token.refused",
            Self::TokenExchangeSucceeded => "token_exchange.succeeded",
            Self::TokenExchangeRefused => "token_exchange.refused",
            Self::SubjectTokenCancelled => "subject_token.cancelled",
            Self::SubjectTokenCancellationRefused => "subject_token.cancellation_refused",
            Self::ImpersonationsListed => "impersonations.listed",
            Self::ImpersonationsListRefused => "impersonations.list_refused",
            Self::ImpersonationRevoked => "impersonation.revoked",
            Self::ImpersonationRevocationIgnored => "impersonation.revocation_ignored",
            Self::ImpersonationRevocationRefused => "impersonation.revocation_refused",
            Self::TokenIntrospected => "token.introspected",
            Self::TokenIntrospectionRefused => "token.introspection_refused",
        }
    }
}

impl Serialize for EventName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// The facts, as far as they became known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Facts {
    /// Envoy's id of the request.
    pub request_id: String,
    /// Names the subject token, the same on mint and exchange; no secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject_token_id: Option<String>,
    /// The impersonated user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    /// The acting user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor_id: Option<String>,
    /// The client of the exchange.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// Who minted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    /// Who lists, ends, or asks: the subject of their access token, or else its client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested_by: Option<String>,
    /// That a revocation is for every impersonation there is.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
    /// How many live impersonations a revocation has ended, as far as they could be counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<u64>,
    /// The resource asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// The scope granted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// The id of the access token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jti: Option<String>,
    /// What the subject token is good for at most, if that is less than everything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bounds: Option<Bounds>,
    /// That the caller had left before the outcome was known.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub caller_gone: bool,
    /// The free-form context, if the operator wants it here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<Value>,
}

/// One line of the audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Event {
    /// What happened.
    pub event: EventName,
    /// To whom and by whom.
    #[serde(flatten)]
    pub facts: Facts,
    /// The `error` code of a refusal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<&'static str>,
    /// Which check refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
}

/// What is written down about one request, as it becomes known: whatever way the request ends, it is there.
#[derive(Debug, Clone)]
pub struct Trail {
    operation: Operation,
    facts: Rc<RefCell<Facts>>,
    /// That there was nothing to be done.
    ignored: Rc<Cell<bool>>,
    /// That the request has done its work, whatever comes of the answer.
    done: Rc<Cell<bool>>,
}

impl Trail {
    /// The trail of a request that Envoy names `request_id`.
    pub fn new(operation: Operation, request_id: String) -> Self {
        let facts = Facts { request_id, ..Facts::default() };
        Self {
            operation,
            facts: Rc::new(RefCell::new(facts)),
            ignored: Rc::default(),
            done: Rc::default(),
        }
    }

    /// Notes a fact as soon as it is known.
    pub fn note(&self, fact: impl FnOnce(&mut Facts)) {
        fact(&mut self.facts.borrow_mut());
    }

    /// Notes that there was nothing to be done.
    pub fn ignore(&self) {
        self.ignored.set(true);
    }

    /// Notes that the request has done its work. From here on the audit says so, even if the caller
    /// leaves before the answer is complete.
    pub fn is_done(&self) {
        self.done.set(true);
    }

    /// Envoy's id of the request.
    pub fn request_id(&self) -> String {
        self.facts.borrow().request_id.clone()
    }

    /// The event of a request that was granted.
    pub fn granted(&self) -> Event {
        let event = match self.operation {
            Operation::Mint => EventName::SubjectTokenCreated,
            Operation::Exchange => EventName::TokenExchangeSucceeded,
            Operation::Cancel => EventName::SubjectTokenCancelled,
            Operation::List => EventName::ImpersonationsListed,
            Operation::Revoke if self.ignored.get() => EventName::ImpersonationRevocationIgnored,
            Operation::Revoke => EventName::ImpersonationRevoked,
            Operation::Introspect => EventName::TokenIntrospected,
        };
        Event { event, facts: self.facts.take(), error: None, reason: None }
    }

    /// The event of a request that was not.
    pub fn refused(&self, error: &'static str, reason: &'static str) -> Event {
        let event = match self.operation {
            Operation::Mint => EventName::SubjectTokenRefused,
            Operation::Exchange => EventName::TokenExchangeRefused,
            Operation::Cancel => EventName::SubjectTokenCancellationRefused,
            Operation::List => EventName::ImpersonationsListRefused,
            Operation::Revoke => EventName::ImpersonationRevocationRefused,
            Operation::Introspect => EventName::TokenIntrospectionRefused,
        };
        Event { event, facts: self.facts.take(), error: Some(error), reason: Some(reason) }
    }

    /// The event of a request whose caller left before it was answered.
    pub fn abandoned(&self) -> Event {
        if self.done.get() {
            self.note(|facts| facts.caller_gone = true);
            return self.granted();
        }
        self.refused("abandoned", "caller_gone")
    }

    /// The alarm about a spent token that this request presents.
    pub fn replay(&self, mint: Mint, first_exchange: Exchange) -> Replay {
        let facts = self.facts.borrow();
        Replay {
            alarm: "subject_token.replayed",
            subject_token_id: facts.subject_token_id.clone(),
            mint,
            first_exchange,
            second_client_id: facts.client_id.clone(),
            second_request_id: facts.request_id.clone(),
            revoked: false,
        }
    }
}

/// The alarm about a spent subject token that was presented again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Replay {
    /// `subject_token.replayed`.
    pub alarm: &'static str,
    /// The token.
    pub subject_token_id: Option<String>,
    /// Who asked for it, and when.
    pub mint: Mint,
    /// Who exchanged it.
    pub first_exchange: Exchange,
    /// The client that presents it again.
    pub second_client_id: Option<String>,
    /// Envoy's id of that request.
    pub second_request_id: String,
    /// Whether what it was exchanged for has ended.
    pub revoked: bool,
}

impl Replay {
    /// The line.
    pub fn to_json(&self) -> String {
        one_line(self)
    }
}

impl Event {
    /// The counter that it moves.
    pub fn counter(&self) -> Cow<'static, str> {
        match self.event {
            EventName::SubjectTokenCreated => metrics::CREATED.into(),
            EventName::TokenExchangeSucceeded => metrics::EXCHANGED.into(),
            EventName::SubjectTokenRefused => self.refusals("subject_tokens"),
            EventName::TokenExchangeRefused => self.refusals("token"),
            EventName::SubjectTokenCancelled => metrics::CANCELLED.into(),
            EventName::SubjectTokenCancellationRefused => self.refusals("subject_token"),
            EventName::ImpersonationsListed => metrics::LISTED.into(),
            EventName::ImpersonationsListRefused => self.refusals("impersonations"),
            EventName::ImpersonationRevoked => metrics::REVOKED.into(),
            EventName::ImpersonationRevocationIgnored => metrics::REVOCATIONS_IGNORED.into(),
            EventName::ImpersonationRevocationRefused => self.refusals("revocation"),
            EventName::TokenIntrospected => metrics::INTROSPECTED.into(),
            EventName::TokenIntrospectionRefused => self.refusals("introspection"),
        }
    }

    /// Whether it is that of an exchange that was granted.
    pub fn is_exchange(&self) -> bool {
        self.event == EventName::TokenExchangeSucceeded
    }

    fn refusals(&self, endpoint: &'static str) -> Cow<'static, str> {
        let (error, reason) = (self.error.unwrap_or_default(), self.reason.unwrap_or_default());
        metrics::refused(endpoint, error, reason)
    }

    /// What an access log can print of it, by name.
    pub fn members(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let facts = &self.facts;
        let optional = [
            ("subject_token_id", facts.subject_token_id.as_deref()),
            ("user_id", facts.user_id.as_deref()),
            ("actor_id", facts.actor_id.as_deref()),
            ("client_id", facts.client_id.as_deref()),
            ("caller", facts.caller.as_deref()),
            ("requested_by", facts.requested_by.as_deref()),
            ("resource", facts.resource.as_deref()),
            ("scope", facts.scope.as_deref()),
            ("jti", facts.jti.as_deref()),
            ("error", self.error),
            ("reason", self.reason),
        ];
        let given =
            optional.into_iter().filter_map(|(name, value)| value.map(|value| (name, value)));
        std::iter::once(("event", self.event.name())).chain(given)
    }

    /// The line. Caller-supplied text is escaped, so that it can neither end the line nor add a member.
    pub fn to_json(&self) -> String {
        one_line(self)
    }
}

/// JSON that is one line to every reader and looks like what it is. JSON itself escapes only the ASCII
/// controls: to some programs a few characters more end a line, and others turn its order around.
pub fn one_line(value: &impl Serialize) -> String {
    let mut line = Vec::with_capacity(512);
    match value.serialize(&mut serde_json::Serializer::with_formatter(&mut line, OneLine)) {
        Ok(()) => String::from_utf8(line).unwrap_or_default(),
        Err(_) => String::new(),
    }
}

struct OneLine;

impl Formatter for OneLine {
    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        // Nearly all text is ASCII, and of that the serialiser has escaped all controls but one.
        let plain = fragment.is_ascii() && !fragment.as_bytes().contains(&0x7f);
        if plain || !fragment.contains(moves_text) {
            return writer.write_all(fragment.as_bytes());
        }
        for character in fragment.chars() {
            if moves_text(character) {
                // All of them are in the basic plane: four digits.
                write!(writer, "\\u{:04x}", u32::from(character))?;
            } else {
                write!(writer, "{character}")?;
            }
        }
        Ok(())
    }
}

/// Line and paragraph separators, controls, and the marks that change the direction of text.
pub const fn moves_text(character: char) -> bool {
    matches!(
        character,
        '\u{7f}'..='\u{9f}'
            | '\u{61c}'
            | '\u{200e}' | '\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
            | '\u{feff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An operator's revocation is in the audit log even if they do not wait until what it ended
    /// has been counted.
    #[test]
    fn what_was_done_is_written_down_as_done_although_the_caller_left_before_the_answer() {
        let trail = Trail::new(Operation::Revoke, String::new());
        assert_eq!(trail.abandoned().event, EventName::ImpersonationRevocationRefused);
        trail.is_done();
        let event = trail.abandoned();
        assert_eq!((event.event, event.error), (EventName::ImpersonationRevoked, None));
        assert!(event.facts.caller_gone);
    }

    #[test]
    fn no_text_ends_the_line_or_adds_a_member() {
        let odd =
            "a\"},{\\\u{0}\r\n\u{b}\u{7f}\u{85}\u{200f}\u{2028}\u{2029}\u{202e}\u{2066}\u{feff}é😀";
        let trail = Trail::new(Operation::Mint, String::new());
        trail.note(|facts| {
            facts.user_id = Some(odd.into());
            facts.context = Some(serde_json::json!({odd: [odd]}));
        });
        let line = trail.granted().to_json();
        assert!(!line.contains(|c: char| c.is_control() || moves_text(c)), "{line:?}");
        assert!(line.contains("é😀"), "what is plain text stays readable: {line}");

        let event: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(event["user_id"], odd);
        assert_eq!(event["context"], serde_json::json!({odd: [odd]}));
        assert_eq!(event.as_object().unwrap().len(), 4, "event, request_id and these two: {line}");
    }
}
