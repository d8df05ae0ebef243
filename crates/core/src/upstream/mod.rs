//! The services behind Envoy that the filter asks, and their answers.
//!
//! An answer has a status that the asking code expects and, if a body is needed, a JSON body whose
//! content type is JSON. Anything else, such as a timeout or an error page, is a failure of the
//! upstream and never a verdict about a token.

mod key_set;
mod user_lookup;

use std::rc::Rc;

pub use key_set::{KeySource, RemoteKeySet};

use crate::config::HttpUri;
use crate::host::Host;
use crate::metrics;
use crate::step::{Call, CallFailure, Context, HttpCall, Reply};

/// A service that the filter asks. Its name is part of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upstream {
    /// The key set of an issuer.
    Jwks,
    /// The documents of the identity gateway.
    Documents,
    /// A token introspection endpoint.
    Introspection,
    /// A userinfo endpoint.
    Userinfo,
    /// The service that knows whether a user exists.
    UserLookup,
    /// The policy decision point.
    DecisionPoint,
    /// A hook that is told what happens to impersonations.
    Notification,
}

/// An upstream that gave no usable answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {fault}", .upstream.name())]
pub struct UpstreamFailure {
    /// The upstream.
    pub(crate) upstream: Upstream,
    /// The fault of the answer, or the reason why there was none.
    pub(crate) fault: Fault,
}

/// A fault of an upstream's answer, or the reason why there was none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The upstream did not reply.
    #[error(transparent)]
    Call(#[from] CallFailure),
    /// The status has no meaning for this question.
    #[error("status {0}")]
    Status(u16),
    /// The content type is not JSON.
    #[error("the reply is not JSON by its content type")]
    ContentType,
    /// The body lacks what it must have.
    #[error("the reply is malformed")]
    Malformed,
    /// Another worker is asking, and has no answer yet.
    #[error("it has not answered yet")]
    Pending,
}

impl Upstream {
    /// All upstreams.
    pub const ALL: [Self; 7] = [
        Self::Jwks,
        Self::Documents,
        Self::Introspection,
        Self::Userinfo,
        Self::UserLookup,
        Self::DecisionPoint,
        Self::Notification,
    ];

    /// The upstream's name in logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Jwks => "jwks",
            Self::Documents => "documents",
            Self::Introspection => "introspection",
            Self::Userinfo => "userinfo",
            Self::UserLookup => "user_lookup",
            Self::DecisionPoint => "decision_point",
            Self::Notification => "notification",
        }
    }

    /// Creates a failure of this upstream. It is counted and logged here, so that no caller can
    /// forget it.
    pub fn failed(self, host: &dyn Host, fault: Fault) -> UpstreamFailure {
        host.count(metrics::callout_failed(self.name()));
        let failure = UpstreamFailure { upstream: self, fault };
        host.warn(&format!("callout failed: {failure}"));
        failure
    }
}

impl HttpUri {
    /// Creates a request to this address.
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

/// Asks an upstream on behalf of a request.
pub async fn ask(
    context: &Context,
    upstream: Upstream,
    call: HttpCall,
) -> Result<UpstreamAnswer, UpstreamFailure> {
    match context.call(Call::Http(call)).await {
        Reply::Http { status, json, body } => Ok(UpstreamAnswer { upstream, status, json, body }),
        Reply::Grpc(_) => Err(upstream.failed(context.host(), Fault::Malformed)),
        Reply::Failed(failure) => Err(upstream.failed(context.host(), failure.into())),
    }
}

/// The answer of an upstream.
pub struct UpstreamAnswer {
    upstream: Upstream,
    /// The HTTP status.
    pub status: u16,
    json: bool,
    body: Vec<u8>,
}

impl UpstreamAnswer {
    /// Parses the body of a 200 as a JSON object.
    pub fn json<T: serde::de::DeserializeOwned>(
        &self,
        host: &dyn Host,
    ) -> Result<T, UpstreamFailure> {
        if self.status != 200 {
            return Err(self.unexpected(host));
        }
        if !self.json {
            return Err(self.upstream.failed(host, Fault::ContentType));
        }
        // `serde` would also accept a list of the members in order.
        if self.body.trim_ascii_start().first() != Some(&b'{') {
            return Err(self.upstream.failed(host, Fault::Malformed));
        }
        // JSON is UTF-8 (RFC 8259 §8.1), and `serde` does not check the text that it skips.
        let text = std::str::from_utf8(&self.body).ok();
        let value = text.and_then(|text| serde_json::from_str(text).ok());
        value.ok_or_else(|| self.upstream.failed(host, Fault::Malformed))
    }

    /// Returns true if the answer is a success with JSON or without a body. Such an answer says
    /// that the thing exists. A page says neither yes nor no: it may be a login page.
    pub fn says_yes(&self) -> bool {
        matches!(self.status, 200..=299) && (self.json || self.body.is_empty())
    }

    /// Creates the failure for an answer that lacks what it must have.
    pub fn malformed(&self, host: &dyn Host) -> UpstreamFailure {
        self.upstream.failed(host, Fault::Malformed)
    }

    /// Creates the failure for an answer whose status has no meaning for this question.
    pub fn unexpected(&self, host: &dyn Host) -> UpstreamFailure {
        let fault = match self.status {
            200..=299 => Fault::ContentType,
            status => Fault::Status(status),
        };
        self.upstream.failed(host, fault)
    }
}
