//! Who acted as whom: one event for each mint, exchange and refusal.
//!
//! Impersonation without accountability is a breach, so an event is filled in as the facts become known
//! and written down whatever way the request ends. It never holds a token, a secret or a key.

use serde::Serialize;

/// What a request wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// A subject token.
    Mint,
    /// An access token for one.
    Exchange,
}

/// What happened, in the names of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum EventName {
    /// A subject token was minted.
    #[serde(rename = "subject_token.created")]
    SubjectTokenCreated,
    /// A request for one was refused.
    #[serde(rename = "subject_token.refused")]
    SubjectTokenRefused,
    /// A subject token was exchanged.
    #[serde(rename = "token_exchange.succeeded")]
    TokenExchangeSucceeded,
    /// An exchange was refused.
    #[serde(rename = "token_exchange.refused")]
    TokenExchangeRefused,
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
    /// The resource asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// The scope granted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// The id of the access token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jti: Option<String>,
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

impl Operation {
    /// The event of a request that was granted.
    pub fn succeeded(self, facts: Facts) -> Event {
        let event = match self {
            Self::Mint => EventName::SubjectTokenCreated,
            Self::Exchange => EventName::TokenExchangeSucceeded,
        };
        Event { event, facts, error: None, reason: None }
    }

    /// The event of a request that was not.
    pub fn refused(self, facts: Facts, error: &'static str, reason: &'static str) -> Event {
        let event = match self {
            Self::Mint => EventName::SubjectTokenRefused,
            Self::Exchange => EventName::TokenExchangeRefused,
        };
        Event { event, facts, error: Some(error), reason: Some(reason) }
    }
}

impl Event {
    /// The line. Caller-supplied text is escaped by JSON, so that it can neither end the line nor add a
    /// member.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}
