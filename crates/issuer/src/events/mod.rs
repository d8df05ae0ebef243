//! Events that other parties sign: the end of a session, of an account, of a device's compliance.
//!
//! An event arrives as one of two kinds of signed statement: a logout token (OpenID Connect
//! Back-Channel Logout 1.0) or a security event token (RFC 8417) by push (RFC 8935). Each kind has
//! its profile here. A profile only reads: it says which impersonations an event ends, and until
//! which time.
//!
//! The time of an event is its own, by its sender's clock. What is issued later, after a new login,
//! is good. An event time that lies in the future counts as now, by the clock of its sender: that
//! clock may be ahead, and the statement's `iat` shows it. By the filter's clock alone, an actor
//! token of the session that has ended would look younger than the end of its session.

mod logout_token;
mod security_event;
mod senders;
mod subject;

pub use security_event::EVENT_TYPES;
pub(crate) use senders::Senders;

use std::time::Duration;

use crate::host::UnixTime;
use crate::state::revocations::{CLOCKS_APART, Revocation};
use crate::statement::StatementError;

/// An event whose signature was verified.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ReceivedEvent {
    /// The sender: `iss`.
    pub(crate) issuer: String,
    /// `jti`, which is unique among the events of its sender.
    pub(crate) jti: String,
    /// The kind of event, as its sender names it.
    pub(crate) kind: String,
    /// The time of the event by its sender's clock. See [`when`].
    pub(crate) at: UnixTime,
    /// The person whose session the event is about, with the issuer's prefix; `None` if the sender
    /// does not say it beside the session.
    pub(crate) person: Option<String>,
    /// The consequence of the event.
    pub(crate) meaning: Meaning,
}

/// The consequence of an event.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// Everything that one of these names, and that was issued until the event, ends.
    Ends(Vec<Revocation>),
    /// The sender tests the stream (SSF 1.0 §8.1.4).
    Verification {
        /// The text by which the receiver asked for the test.
        state: Option<String>,
    },
    /// The sender has changed the status of the stream (SSF 1.0 §8.1.5).
    StreamUpdated {
        /// `enabled`, `paused`, `disabled`, or another word of the sender.
        status: String,
    },
    /// The event ends nothing.
    Nothing,
    /// The event is about somebody whom the filter cannot name.
    SubjectNotUnderstood,
}

/// How far the sender's clock may differ from the filter's.
const CLOCK_SKEW: Duration = CLOCKS_APART;

/// The time of an event that says of itself that it happened `at`, in a statement of `issued_at`.
/// An event in the future counts as now; now is `issued_at` if the sender's clock is ahead.
fn when(at: UnixTime, issued_at: UnixTime, now: UnixTime) -> UnixTime {
    let is_possible = issued_at <= now.after(CLOCK_SKEW);
    at.min(if is_possible { issued_at.max(now) } else { now })
}

/// Why an event is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EventError {
    /// The text is not a statement that can be believed.
    #[error(transparent)]
    Statement(#[from] StatementError),
    /// The `Authorization` header is not one of those that the sender may send.
    #[error("the Authorization header is not one of the sender's")]
    Authentication,
    /// `aud` names none of the configured audiences.
    #[error("none of the audiences is ours")]
    Audience,
    /// The statement is not an event of this kind.
    #[error("{0}")]
    Malformed(&'static str),
}

impl EventError {
    /// The check that failed, as a name for metrics.
    pub(crate) const fn reason(&self) -> &'static str {
        match self {
            Self::Statement(error) => error.reason(),
            Self::Authentication => "authorization",
            Self::Audience => "audience",
            Self::Malformed(_) => "malformed",
        }
    }

    /// The error code of RFC 8935 §2.4.
    pub(crate) const fn code(&self) -> &'static str {
        match self {
            Self::Statement(StatementError::Issuer(_)) => "invalid_issuer",
            Self::Statement(
                StatementError::NoKey | StatementError::Signature | StatementError::Algorithm(_),
            ) => "invalid_key",
            Self::Authentication => "authentication_failed",
            Self::Audience => "invalid_audience",
            Self::Statement(_) | Self::Malformed(_) => "invalid_request",
        }
    }
}

#[cfg(test)]
mod tests;
