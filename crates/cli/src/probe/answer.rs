//! A response, as far as the checks read it.

use std::time::{Duration, Instant};

use serde_json::Value;
use ureq::Body;
use ureq::http::Response;

use crate::http::retry_after;

/// More of a response than any check reads.
const LONGEST: u64 = 1 << 20;

/// The header that Envoy adds to the responses of the servers behind it.
const FROM_UPSTREAM: &str = "x-envoy-upstream-service-time";

/// The part of a body that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// All of it, for the filter's JSON and for an echo.
    Whole,
    /// A short one, so that the connection can be used again. The response of an API may be a
    /// stream without an end.
    IfShort,
}

/// A response.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// Envoy got the response from a server behind it.
    pub(super) from_upstream: bool,
    /// `WWW-Authenticate` (RFC 6750 §3).
    challenge: String,
    /// `Retry-After` in seconds.
    pub(super) retry_after: Option<Duration>,
    pub(super) location: Option<String>,
    /// `Set-Cookie`, without which a browser session does not begin.
    pub(super) cookie: Option<String>,
    /// `Cache-Control`.
    pub(super) caching: Option<String>,
    /// The nonce for the next proof (RFC 9449 §8).
    pub(super) nonce: Option<String>,
    pub(super) body: Vec<u8>,
    /// The time from the request to the end of what was read.
    pub(super) took: Duration,
}

impl Answer {
    pub(super) fn read(mut response: Response<Body>, reading: Reading, asked: Instant) -> Self {
        let header = |name: &str| {
            let value = response.headers().get(name)?;
            Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        let challenge = header("www-authenticate").unwrap_or_default();
        let retry_after = retry_after(response.headers());
        let nonce = header("dpop-nonce");
        let (location, from_upstream) = (header("location"), header(FROM_UPSTREAM).is_some());
        let (cookie, caching) = (header("set-cookie"), header("cache-control"));
        let status = response.status().as_u16();
        let is_short = response.body().content_length().is_some_and(|it| it <= LONGEST);
        let body = match is_short || reading == Reading::Whole {
            true => response.body_mut().with_config().limit(LONGEST).read_to_vec(),
            false => Ok(Vec::new()),
        };
        Self {
            status,
            from_upstream,
            challenge,
            retry_after,
            location,
            cookie,
            caching,
            nonce,
            body: body.unwrap_or_default(),
            took: asked.elapsed(),
        }
    }

    /// A string member of the JSON body.
    pub(super) fn member(&self, name: &str) -> Option<String> {
        let body: Value = serde_json::from_slice(&self.body).ok()?;
        body.get(name)?.as_str().map(str::to_owned)
    }

    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Returns true if `jwt_authn` or the guard refused the request. Both name the scheme, and
    /// neither is a server behind Envoy.
    pub(super) fn is_refusal(&self) -> bool {
        let scheme = self.challenge.split_ascii_whitespace().next().unwrap_or_default();
        let named = ["bearer", "dpop"].iter().any(|known| scheme.eq_ignore_ascii_case(known));
        matches!(self.status, 401 | 403) && named && !self.from_upstream
    }

    /// Returns true if the guard refused the request by a rule or by its default.
    pub(super) fn is_refused_by_the_guard(&self) -> bool {
        self.status == 403 && self.is_refusal() && self.challenge.contains("insufficient_scope")
    }

    /// The status and the error code, for a message. It repeats nothing else of the response, which
    /// may hold a token.
    pub(super) fn in_short(&self) -> String {
        let code = self.member("error").filter(|code| {
            code.len() <= 40 && code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
        });
        match code {
            Some(code) => format!("{} {code}", self.status),
            None => self.status.to_string(),
        }
    }
}
