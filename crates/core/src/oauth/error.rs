//! Error answers (RFC 6749 §5.2, RFC 6750 §3).

use serde::Serialize;

use crate::step::Response;
use crate::store::{Exchange, Mint};

/// What a refused caller gets. The text for the operator's log is the `Display` of the error itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorResponse {
    /// The HTTP status.
    pub status: u16,
    /// The `error` code.
    pub error: &'static str,
    /// What to change. ASCII without quotes or backslashes (RFC 6749 §5.2), without secrets.
    pub description: String,
    /// The value of `WWW-Authenticate`.
    pub challenge: Option<String>,
    /// The value of `Allow` (RFC 9110 §10.2.1).
    pub allow: Option<&'static str>,
}

/// When a caller may try again, in seconds: table full and callouts that failed both pass quickly.
const RETRY_AFTER: &str = "1";

impl ErrorResponse {
    /// An error with a description that is fit to be sent.
    pub fn new(status: u16, error: &'static str, description: impl Into<String>) -> Self {
        Self { status, error, description: description.into(), challenge: None, allow: None }
    }

    /// Adds a challenge.
    #[must_use]
    pub fn challenged(self, challenge: impl Into<String>) -> Self {
        Self { challenge: Some(challenge.into()), ..self }
    }

    /// The answer on the wire.
    pub fn into_response(self) -> Response {
        #[derive(Serialize)]
        struct Body<'a> {
            error: &'a str,
            error_description: &'a str,
        }
        let body = Body { error: self.error, error_description: &self.description };
        let mut headers = vec![
            ("content-type", "application/json".to_owned()),
            ("cache-control", "no-store".to_owned()),
            ("pragma", "no-cache".to_owned()),
        ];
        headers.extend(self.challenge.map(|challenge| ("www-authenticate", challenge)));
        headers.extend(self.allow.map(|allow| ("allow", allow.to_owned())));
        if self.status == 503 {
            headers.push(("retry-after", RETRY_AFTER.to_owned()));
        }
        Response {
            status: self.status,
            headers,
            // Three strings always serialise.
            body: serde_json::to_vec(&body).unwrap_or_default(),
        }
    }
}

/// An error that ends a request: one reader is the caller, the other the operator, who reads `Display`.
pub trait Refusal: std::fmt::Display {
    /// What the caller gets.
    fn response(&self) -> ErrorResponse;

    /// Which check refused, as a name of low cardinality for metrics and `%RESPONSE_CODE_DETAILS%`.
    fn reason(&self) -> &'static str;

    /// The mint and the exchange of a spent subject token that was presented again.
    fn replayed(&self) -> Option<(&Mint, &Exchange)> {
        None
    }
}

impl<R: Refusal + 'static> From<R> for Box<dyn Refusal> {
    fn from(refusal: R) -> Self {
        Box::new(refusal)
    }
}

/// Makes text fit for `error_description` (RFC 6749 §5.2: `%x20-21 / %x23-5B / %x5D-7E`), at most
/// `max_len` characters of it.
pub fn safe_description(text: &str, max_len: usize) -> String {
    let safe = |char| match char {
        '"' | '`' => '\'',
        '\\' => '/',
        ' '..='~' => char,
        _ => '?',
    };
    text.chars().map(safe).take(max_len).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_ascii_without_quotes_or_backslashes() {
        assert_eq!(safe_description("say \"no\\never\"\n\u{e9}", 99), "say 'no/never'??");
        assert_eq!(safe_description("too long", 3), "too");
    }

    #[test]
    fn only_503_asks_to_come_back() {
        let retry = |status| {
            let response = ErrorResponse::new(status, "server_error", "x").into_response();
            response.headers.iter().any(|(name, _)| *name == "retry-after")
        };
        assert!(retry(503));
        assert!(!retry(400));
    }
}
