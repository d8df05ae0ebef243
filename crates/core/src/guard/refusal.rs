//! Why the guard refuses a request: the answer for the caller, and the reason for metrics and
//! audit.

use std::fmt::Write as _;

use super::ApiRequest;
use super::claims::NoClaims;
use super::rules::{Decider, Denied};
use crate::revocations::Unknown;

/// The reason why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The request has no usable claims.
    NoClaims(NoClaims),
    /// The guard does not know what was revoked.
    Unknown(Unknown),
    /// The impersonation has ended.
    Ended,
    /// The impersonation ended while the stream was open.
    EndedWhileOpen,
    /// While the stream was open, the guard lost track of what was revoked.
    StaleWhileOpen,
    /// A rule or the default denies the request.
    Denied(Denied, Decider),
}

/// The protection space in `WWW-Authenticate` challenges.
const REALM: &str = "impersonation";

/// The value of `Retry-After`, in seconds.
const RETRY_AFTER: &[u8] = b"1";

impl Refusal {
    /// All values of [`reason`](Self::reason).
    pub(super) const REASONS: [&str; 13] = [
        "claims_missing",
        "other_issuer",
        "claims_malformed",
        "revocations_unknown",
        "revocations_stale",
        "ended",
        "ended_while_open",
        "stale_while_open",
        "rule",
        "default",
        "path_not_normal",
        "method_override",
        "actor_max_age",
    ];

    /// Returns the check that refused, for metrics and audit.
    pub(super) const fn reason(&self) -> &'static str {
        match self {
            Self::NoClaims(NoClaims::Missing) => "claims_missing",
            Self::NoClaims(NoClaims::OtherIssuer) => "other_issuer",
            Self::NoClaims(NoClaims::Malformed) => "claims_malformed",
            Self::Unknown(Unknown::Stale) => "revocations_stale",
            Self::Unknown(_) => "revocations_unknown",
            Self::Ended => "ended",
            Self::EndedWhileOpen => "ended_while_open",
            Self::StaleWhileOpen => "stale_while_open",
            Self::Denied(Denied::ByRule, Decider::Rule(_)) => "rule",
            Self::Denied(Denied::ByRule, Decider::Default) => "default",
            Self::Denied(Denied::PathNotNormal, _) => "path_not_normal",
            Self::Denied(Denied::MethodOverride, _) => "method_override",
            Self::Denied(Denied::SignInTooOld(_), _) => "actor_max_age",
        }
    }

    /// Returns true if the refusal ends a stream that was allowed when it began.
    pub(super) const fn is_of_an_open_stream(&self) -> bool {
        matches!(self, Self::EndedWhileOpen | Self::StaleWhileOpen)
    }

    /// Returns the error code (RFC 6750 §3.1; RFC 6749 §4.1.2.1 if the caller may try again).
    pub(super) const fn error(&self) -> &'static str {
        match self {
            Self::NoClaims(_) | Self::Ended | Self::EndedWhileOpen => "invalid_token",
            Self::Unknown(_) | Self::StaleWhileOpen => "temporarily_unavailable",
            Self::Denied(Denied::SignInTooOld(_), _) => "insufficient_user_authentication",
            Self::Denied(..) => "insufficient_scope",
        }
    }

    /// Returns the rule that decided, if one did.
    pub(super) const fn decider(&self) -> Option<Decider> {
        match self {
            Self::Denied(_, decider) => Some(*decider),
            _ => None,
        }
    }

    const fn status(&self) -> u16 {
        match self {
            Self::NoClaims(_)
            | Self::Ended
            | Self::EndedWhileOpen
            | Self::Denied(Denied::SignInTooOld(_), _) => 401,
            Self::Unknown(_) | Self::StaleWhileOpen => 503,
            Self::Denied(..) => 403,
        }
    }

    /// Returns the description for the caller: ASCII without quotes or backslashes (RFC 6750 §3).
    /// It reveals nothing about the rules.
    const fn told(&self) -> &'static str {
        match self {
            Self::NoClaims(_) => "the access token is invalid",
            Self::Unknown(_) | Self::StaleWhileOpen => "try again in a moment",
            Self::Ended | Self::EndedWhileOpen => "the impersonation has ended",
            Self::Denied(Denied::SignInTooOld(_), _) => "the acting user must sign in again",
            Self::Denied(..) => "this is not allowed while impersonating a user",
        }
    }

    /// Answers the request.
    pub(super) fn respond(&self, request: &dyn ApiRequest) {
        let (error, told) = (self.error(), self.told());
        let mut challenge =
            format!("Bearer realm=\"{REALM}\", error=\"{error}\", error_description=\"{told}\"");
        if let Self::Denied(Denied::SignInTooOld(max_age), _) = self {
            // RFC 9470 §3: in whole seconds.
            let _ = write!(challenge, ", max_age=\"{}\"", max_age.as_secs());
        }
        let body = format!("{{\"error\":\"{error}\",\"error_description\":\"{told}\"}}");
        let mut headers: Vec<(&str, &[u8])> =
            vec![("content-type", b"application/json"), ("cache-control", b"no-store")];
        headers.push(match self {
            Self::Unknown(_) | Self::StaleWhileOpen => ("retry-after", RETRY_AFTER),
            _ => ("www-authenticate", challenge.as_bytes()),
        });
        let details = format!("impersonation_{}", self.reason());
        request.respond(self.status(), &headers, body.as_bytes(), &details);
    }
}
