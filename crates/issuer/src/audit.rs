//! The audit log: one event for each request that is the filter's. It says who acted as whom, who
//! looked at impersonations, and who ended them.
//!
//! Impersonation must not happen without accountability. So the facts of an event are collected as
//! they become known, and the event is written however the request ends. An event never holds a
//! token, a secret or a key.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

use serde::Serialize;
use serde_json::Value;

use crate::metrics;
use crate::one_line::one_line;
use crate::policy::Bounds;
use crate::state::store::{Exchange, Mint};

/// The operation that a request wants, for the audit log and the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Mints a subject token.
    Mint,
    /// Exchanges a subject token for an access token.
    Exchange,
    /// Takes back a subject token.
    Cancel,
    /// Lists impersonations.
    List,
    /// Ends impersonations.
    Revoke,
    /// Lists what waits for a decision.
    ListApprovals,
    /// Approves or denies an impersonation.
    Decide,
    /// Asks what became of a subject token.
    Show,
    /// Asks if a token is active.
    Introspect,
    /// Looks at a browser session.
    ShowSession,
    /// Tells of an event: a logout, or what happened to an account or a device.
    Event,
}

/// The names of an operation in the audit log and in the metrics.
struct Names {
    /// The event of a granted request, and the counter of such requests.
    granted: (&'static str, &'static str),
    /// The event of a refused request.
    refused: &'static str,
    /// The label `endpoint` of the counter of refusals.
    endpoint: &'static str,
}

/// The event, and the counter, of a revocation that ended nothing: the client does not know the
/// token, or the token is not the client's.
const REVOCATION_IGNORED: (&str, &str) =
    ("impersonation.revocation_ignored", metrics::REVOCATIONS_IGNORED);

/// The event, and the counter, of a mint that waits for a decision.
const APPROVAL_REQUESTED: (&str, &str) = ("approval.requested", metrics::CREATED);

/// The event, and the counter, of a mint without the approvals that it needed.
const BREAK_GLASS_USED: (&str, &str) = ("break_glass.used", metrics::CREATED);

/// The event, and the counter, of a denial.
const DENIED: (&str, &str) = ("approval.denied", metrics::DENIED);

/// The event, and the counter, of a security event or a logout that ended impersonations.
const ENDED_BY_EVENT: (&str, &str) = ("impersonations.ended", metrics::ENDED_BY_EVENT);

impl Operation {
    const fn names(self) -> Names {
        match self {
            Self::Mint => Names {
                granted: ("subject_token.created", metrics::CREATED),
                refused: "subject_token.refused",
                endpoint: "subject_tokens",
            },
            Self::Exchange => Names {
                granted: ("token_exchange.succeeded", metrics::EXCHANGED),
                refused: "token_exchange.refused",
                endpoint: "token",
            },
            Self::Cancel => Names {
                granted: ("subject_token.cancelled", metrics::CANCELLED),
                refused: "subject_token.cancellation_refused",
                endpoint: "subject_token",
            },
            Self::List => Names {
                granted: ("impersonations.listed", metrics::LISTED),
                refused: "impersonations.list_refused",
                endpoint: "impersonations",
            },
            Self::Revoke => Names {
                granted: ("impersonation.revoked", metrics::REVOKED),
                refused: "impersonation.revocation_refused",
                endpoint: "revocation",
            },
            Self::ListApprovals => Names {
                granted: ("approvals.listed", metrics::APPROVALS_LISTED),
                refused: "approvals.list_refused",
                endpoint: "approvals",
            },
            Self::Decide => Names {
                granted: ("approval.given", metrics::APPROVED),
                refused: "approval.refused",
                endpoint: "approval",
            },
            Self::Show => Names {
                granted: ("subject_token.shown", metrics::TOKENS_READ),
                refused: "subject_token.show_refused",
                endpoint: "subject_token",
            },
            Self::Introspect => Names {
                granted: ("token.introspected", metrics::INTROSPECTED),
                refused: "token.introspection_refused",
                endpoint: "introspection",
            },
            Self::ShowSession => Names {
                granted: ("browser_session.shown", metrics::SESSIONS_SHOWN),
                refused: "browser_session.show_refused",
                endpoint: "browser_session",
            },
            Self::Event => Names {
                granted: ("security_event.received", metrics::EVENTS_RECEIVED),
                refused: "security_event.refused",
                endpoint: "events",
            },
        }
    }
}

/// The facts about a request that became known before it ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Facts {
    /// Envoy's id of the request.
    pub(crate) request_id: String,
    /// The id of the subject token, which is the same on mint and exchange. It is no secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) subject_token_id: Option<String>,
    /// The impersonated user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) user_id: Option<String>,
    /// The acting user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) actor_id: Option<String>,
    /// The client of the exchange.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) client_id: Option<String>,
    /// The caller that minted the subject token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) caller: Option<String>,
    /// The operator who lists or ends impersonations, or the person who decides about one: the
    /// subject of their access token, or else its client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) requested_by: Option<String>,
    /// A revocation ends every impersonation.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) all: bool,
    /// The number of live impersonations that a revocation has ended, as far as they could be
    /// counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ended: Option<u64>,
    /// The requested resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) resource: Option<String>,
    /// The granted scope.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) scope: Option<String>,
    /// The id of the access token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) jti: Option<String>,
    /// The bounds of the subject token, if it has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bounds: Option<Bounds>,
    /// The caller left before the outcome was known.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) caller_gone: bool,
    /// The number of people who must approve.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) approvals_needed: Option<u8>,
    /// The user must consent.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) consent_needed: bool,
    /// The people who approved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) approved_by: Option<Vec<String>>,
    /// The reason of a decision, in the words of the person who decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) decision_reason: Option<String>,
    /// The id of a decision that hooks are told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) decision_id: Option<String>,
    /// The session that an event names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) session: Option<String>,
    /// The sender of an event: `iss`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sender: Option<String>,
    /// The id of an event: `jti`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) event_id: Option<String>,
    /// The kind of an event, as its sender names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) event_type: Option<String>,
    /// The outcome of an event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) outcome: Option<&'static str>,
    /// The context of the mint, if the operator wants it in the audit log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) context: Option<Value>,
}

/// One line of the audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct AuditEvent {
    event: &'static str,
    #[serde(skip)]
    operation: Operation,
    /// The counter of a granted request; `None` for a refused one.
    #[serde(skip)]
    counter: Option<&'static str>,
    /// The facts.
    #[serde(flatten)]
    pub(crate) facts: Facts,
    /// The `error` code of a refusal.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'static str>,
    /// The check that refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<&'static str>,
}

/// Collects the facts about one request as they become known, so that an event can be written
/// however the request ends.
#[derive(Debug, Clone)]
pub(crate) struct Trail {
    operation: Operation,
    facts: Rc<RefCell<Facts>>,
    /// The event and the counter of a granted request, if they are not those of the operation.
    instead: Rc<Cell<Option<(&'static str, &'static str)>>>,
    /// The event of a refused request, if it is not that of the operation.
    not_done: Rc<Cell<Option<&'static str>>>,
    /// The request has done its work, even if its answer fails.
    done: Rc<Cell<bool>>,
}

impl Trail {
    /// Makes the trail of the request that Envoy names `request_id`.
    pub(crate) fn new(operation: Operation, request_id: String) -> Self {
        let facts = Facts { request_id, ..Facts::default() };
        Self {
            operation,
            facts: Rc::new(RefCell::new(facts)),
            instead: Rc::default(),
            not_done: Rc::default(),
            done: Rc::default(),
        }
    }

    /// Notes a fact as soon as it is known.
    pub(crate) fn note(&self, fact: impl FnOnce(&mut Facts)) {
        fact(&mut self.facts.borrow_mut());
    }

    /// Notes that a revocation had nothing to end.
    pub(crate) fn ignore(&self) {
        self.instead.set(Some(REVOCATION_IGNORED));
    }

    /// Notes that the minted token waits for a decision.
    pub(crate) fn waits_for_approval(&self) {
        self.instead.set(Some(APPROVAL_REQUESTED));
    }

    /// Notes that the token was minted without the approvals that it needed.
    pub(crate) fn uses_break_glass(&self) {
        self.instead.set(Some(BREAK_GLASS_USED));
    }

    /// Notes that the decision is a denial.
    pub(crate) fn is_denial(&self) {
        self.instead.set(Some(DENIED));
    }

    /// Notes the event that says that a decision did not take effect: hooks are told of it before.
    /// `None` if the decision has taken effect, or perhaps has.
    pub(crate) fn is_taken_back_as(&self, event: Option<&'static str>) {
        self.not_done.set(event);
    }

    /// Notes that an event has ended impersonations.
    pub(crate) fn has_ended_by_itself(&self) {
        self.instead.set(Some(ENDED_BY_EVENT));
    }

    /// Notes that the request has done its work. From here on the event says so, even if the caller
    /// leaves before the answer is complete.
    pub(crate) fn is_done(&self) {
        self.done.set(true);
    }

    /// Returns Envoy's id of the request.
    pub(crate) fn request_id(&self) -> String {
        self.facts.borrow().request_id.clone()
    }

    /// Makes the event of a granted request.
    pub(crate) fn granted(&self) -> AuditEvent {
        let granted = self.operation.names().granted;
        let (event, counter) = self.instead.get().unwrap_or(granted);
        self.event(event, Some(counter))
    }

    /// Makes the event of a refused request.
    pub(crate) fn refused(&self, error: &'static str, reason: &'static str) -> AuditEvent {
        let refused = self.operation.names().refused;
        let event = self.event(self.not_done.get().unwrap_or(refused), None);
        AuditEvent { error: Some(error), reason: Some(reason), ..event }
    }

    /// Makes the event of a request whose caller left before the answer.
    pub(crate) fn abandoned(&self) -> AuditEvent {
        if self.done.get() {
            self.note(|facts| facts.caller_gone = true);
            return self.granted();
        }
        self.refused("abandoned", "caller_gone")
    }

    fn event(&self, event: &'static str, counter: Option<&'static str>) -> AuditEvent {
        let (operation, facts) = (self.operation, self.facts.take());
        AuditEvent { event, operation, counter, facts, error: None, reason: None }
    }

    /// Makes the alarm about a token that was minted without the approvals that it needed, as one
    /// line of JSON.
    pub(crate) fn break_glass(&self, subject_token_id: String) -> String {
        let facts = self.facts.borrow();
        one_line(&BreakGlass {
            alarm: BREAK_GLASS_USED.0,
            subject_token_id,
            user_id: facts.user_id.as_deref(),
            caller: facts.caller.as_deref(),
            request_id: &facts.request_id,
        })
    }

    /// Makes the alarm about the spent token that this request presents.
    pub(crate) fn replay(&self, mint: Mint, first_exchange: Exchange) -> Replay {
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

/// The alarm about a subject token that was minted without the approvals that it needed.
#[derive(Serialize)]
struct BreakGlass<'f> {
    /// `break_glass.used`.
    alarm: &'static str,
    subject_token_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_id: Option<&'f str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    caller: Option<&'f str>,
    request_id: &'f str,
}

/// The alarm about a spent subject token that was presented again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Replay {
    /// `subject_token.replayed`.
    alarm: &'static str,
    subject_token_id: Option<String>,
    /// The mint of the subject token.
    mint: Mint,
    /// The exchange that spent the subject token.
    first_exchange: Exchange,
    /// The client that presents the token again.
    second_client_id: Option<String>,
    /// Envoy's id of the request that presents the token again.
    second_request_id: String,
    /// The impersonation of the first exchange has ended because of this alarm.
    pub(crate) revoked: bool,
}

impl Replay {
    /// Writes the alarm as one line of JSON.
    pub(crate) fn to_json(&self) -> String {
        one_line(self)
    }
}

impl AuditEvent {
    /// Returns the counter that the event moves.
    pub(crate) fn counter(&self) -> Cow<'static, str> {
        self.counter.map_or_else(
            || {
                let endpoint = self.operation.names().endpoint;
                let (error, reason) = (self.error.unwrap_or_default(), self.reason);
                metrics::refused(endpoint, error, reason.unwrap_or_default())
            },
            Cow::Borrowed,
        )
    }

    /// Returns true if the event belongs into the log. The banner of a browser session looks at it
    /// every few seconds.
    pub(crate) fn is_written(&self) -> bool {
        self.operation != Operation::ShowSession
    }

    /// Returns true if an exchange was granted.
    pub(crate) fn is_granted_exchange(&self) -> bool {
        self.operation == Operation::Exchange && self.error.is_none()
    }

    /// Returns the members that an access log can print, with their names.
    pub(crate) fn members(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let facts = &self.facts;
        // A sender may sign any text, and an access log may print it as it is.
        let is_plain = |text: &&str| !text.contains(char::is_control);
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
            ("session", facts.session.as_deref()),
            ("sender", facts.sender.as_deref()),
            ("event_id", facts.event_id.as_deref().filter(is_plain)),
            ("event_type", facts.event_type.as_deref().filter(is_plain)),
            ("outcome", facts.outcome),
            ("error", self.error),
            ("reason", self.reason),
        ];
        let given =
            optional.into_iter().filter_map(|(name, value)| value.map(|value| (name, value)));
        std::iter::once(("event", self.event)).chain(given)
    }

    /// Writes the event as one line of JSON. Text of a caller can neither end the line nor add a
    /// member.
    pub(crate) fn to_json(&self) -> String {
        one_line(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::one_line::moves_text;

    /// The audit log has an operator's revocation even if the operator does not wait for the count
    /// of ended impersonations.
    #[test]
    fn the_event_says_that_the_work_was_done_although_the_caller_left_before_the_answer() {
        let trail = Trail::new(Operation::Revoke, String::new());
        assert_eq!(trail.abandoned().event, "impersonation.revocation_refused");
        trail.is_done();
        let event = trail.abandoned();
        assert_eq!((event.event, event.error), ("impersonation.revoked", None));
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
        assert!(line.contains("é😀"), "plain text stays readable: {line}");

        let event: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(event["user_id"], odd);
        assert_eq!(event["context"], serde_json::json!({odd: [odd]}));
        assert_eq!(
            event.as_object().unwrap().len(),
            4,
            "only event, request_id and these two: {line}"
        );
    }
}
