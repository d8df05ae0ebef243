//! The services behind Envoy that the filter asks: by which call, and what counts as an answer.
//!
//! An answer is a status that the caller of this module expects and, where there must be one, a JSON
//! body that says it is JSON. Everything else (refused, timed out, cut off, an error page) is a failure
//! of the upstream, never a verdict about a token.

mod key_set;
mod user_lookup;

use std::rc::Rc;

pub use key_set::{KeySource, RemoteKeySet};

use crate::config::HttpUri;
use crate::host::Host;
use crate::metrics;
use crate::step::{Call, CallFailure, Context, HttpCall, Reply};

/// Which upstream was asked; names the metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upstream {
    /// A key set.
    Jwks,
    /// Token introspection.
    Introspection,
    /// Userinfo.
    Userinfo,
    /// Whether a user exists.
    UserLookup,
}

/// An upstream gave no usable answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {fault}", .upstream.name())]
pub struct UpstreamFailure {
    /// Which.
    pub upstream: Upstream,
    /// Why.
    pub fault: Fault,
}

/// What was wrong with an answer, or why there was none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// No reply.
    #[error(transparent)]
    Call(#[from] CallFailure),
    /// Not a status that means anything here.
    #[error("status {0}")]
    Status(u16),
    /// The body does not say that it is JSON.
    #[error("the reply is not JSON by its content type")]
    ContentType,
    /// The body is not what it should be.
    #[error("the reply is malformed")]
    Malformed,
    /// It is being asked right now, and has not answered yet.
    #[error("it has not answered yet")]
    Pending,
}

impl Upstream {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Jwks, Self::Introspection, Self::Userinfo, Self::UserLookup];

    /// Its name in logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Jwks => "jwks",
            Self::Introspection => "introspection",
            Self::Userinfo => "userinfo",
            Self::UserLookup => "user_lookup",
        }
    }

    /// A failure of this upstream, counted and logged here so that no caller can forget to.
    pub fn failed(self, host: &dyn Host, fault: Fault) -> UpstreamFailure {
        host.count(metrics::callout_failed(self.name()));
        let failure = UpstreamFailure { upstream: self, fault };
        host.warn(&format!("callout failed: {failure}"));
        failure
    }
}

impl HttpUri {
    /// A request to this address.
    pub fn call(
        &self,
        method: &'static str,
        headers: Vec<(&'static str, String)>,
        body: Vec<u8>,
    ) -> HttpCall {
        HttpCall {
            cluster: Rc::clone(&self.cluster),
            method,
            scheme: Rc::clone(&self.scheme),
            authority: Rc::clone(&self.authority),
            path: self.path.clone(),
            headers,
            body,
            timeout: self.timeout,
        }
    }
}

/// Asks an upstream in the course of a request; the answer is a status and a body.
pub(crate) async fn ask(
    context: &Context,
    upstream: Upstream,
    call: HttpCall,
) -> Result<Answer, UpstreamFailure> {
    match context.call(Call::Http(call)).await {
        Reply::Http { status, json, body } => Ok(Answer { upstream, status, json, body }),
        Reply::Grpc(_) => Err(upstream.failed(context.host(), Fault::Malformed)),
        Reply::Failed(failure) => Err(upstream.failed(context.host(), failure.into())),
    }
}

/// What an upstream said.
pub(crate) struct Answer {
    upstream: Upstream,
    /// Its status.
    pub(crate) status: u16,
    json: bool,
    body: Vec<u8>,
}

impl Answer {
    /// The body of a 200, as JSON.
    pub(crate) fn json<T: serde::de::DeserializeOwned>(
        &self,
        host: &dyn Host,
    ) -> Result<T, UpstreamFailure> {
        if self.status != 200 {
            return Err(self.unexpected(host));
        }
        if !self.json {
            return Err(self.upstream.failed(host, Fault::ContentType));
        }
        // `serde` would take a list for the members in order.
        if self.body.trim_ascii_start().first() != Some(&b'{') {
            return Err(self.upstream.failed(host, Fault::Malformed));
        }
        // Nor does it look into text that it skips, and JSON is UTF-8 (RFC 8259 §8.1).
        let text = std::str::from_utf8(&self.body).ok();
        let value = text.and_then(|text| serde_json::from_str(text).ok());
        value.ok_or_else(|| self.upstream.failed(host, Fault::Malformed))
    }

    /// Whether it says that what was asked about is there: a success, with JSON or without a body. A page, which may
    /// be that of a login or say that there is nothing, is neither yes nor no.
    pub(crate) fn says_yes(&self) -> bool {
        matches!(self.status, 200..=299) && (self.json || self.body.is_empty())
    }

    /// The failure of an answer that lacks what it must have.
    pub(crate) fn malformed(&self, host: &dyn Host) -> UpstreamFailure {
        self.upstream.failed(host, Fault::Malformed)
    }

    /// The failure of an answer that means nothing here.
    pub(crate) fn unexpected(&self, host: &dyn Host) -> UpstreamFailure {
        let fault = match self.status {
            200..=299 => Fault::ContentType,
            status => Fault::Status(status),
        };
        self.upstream.failed(host, fault)
    }
}
