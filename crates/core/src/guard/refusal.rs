//! Why the guard refuses a request: the answer for the caller, and the reason for metrics and
//! audit.

use std::fmt::Write as _;

use super::claims::NoClaims;
use super::possession::NotHeld;
use super::rules::{Decider, Denied};
use super::session::NotOfSession;
use crate::dpop::ProofError;
use crate::http_stream::HttpRequest;
use crate::jose::HOST_KEY_ALGORITHMS;
use crate::state::revocations::Unknown;

/// The reason why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GuardRefusal {
    /// The request has no usable claims.
    NoClaims(NoClaims),
    /// The guard does not know what was revoked.
    Unknown(Unknown),
    /// The access token has expired.
    Expired,
    /// The access token expired while the stream was open.
    ExpiredWhileOpen,
    /// The impersonation has ended.
    Ended,
    /// The impersonation ended while the stream was open.
    EndedWhileOpen,
    /// While the stream was open, the guard lost track of what was revoked.
    StaleWhileOpen,
    /// The request does not have the keys that the access token is bound to.
    NotHeld(NotHeld),
    /// The request does not belong to the browser session of its host.
    NotOfSession(NotOfSession),
    /// A rule or the default denies the request.
    Denied(Denied, Decider),
}

/// The protection space in `WWW-Authenticate` challenges.
const REALM: &str = "impersonation";

/// The value of `Retry-After`, in seconds.
const RETRY_AFTER: &[u8] = b"1";

impl GuardRefusal {
    /// All values of [`reason`](Self::reason).
    pub(super) const REASONS: [&str; 26] = [
        "claims_missing",
        "other_issuer",
        "claims_malformed",
        "binding_unknown",
        "token_scheme",
        "proof_missing",
        "proof_invalid",
        "proof_nonce",
        "proof_another_key",
        "proof_replayed",
        "proof_not_remembered",
        "certificate",
        "another_session",
        "another_origin",
        "revocations_unknown",
        "revocations_stale",
        "expired",
        "expired_while_open",
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
            Self::NotHeld(NotHeld::Unknown) => "binding_unknown",
            Self::NotHeld(NotHeld::Scheme { .. }) => "token_scheme",
            Self::NotHeld(NotHeld::Proof(error)) => error.reason(),
            Self::NotHeld(NotHeld::Certificate) => "certificate",
            Self::NotOfSession(NotOfSession::AnotherToken) => "another_session",
            Self::NotOfSession(NotOfSession::AnotherOrigin) => "another_origin",
            Self::Unknown(Unknown::Stale) => "revocations_stale",
            Self::Unknown(_) => "revocations_unknown",
            Self::Expired => "expired",
            Self::ExpiredWhileOpen => "expired_while_open",
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
        matches!(self, Self::ExpiredWhileOpen | Self::EndedWhileOpen | Self::StaleWhileOpen)
    }

    /// Returns the error code (RFC 6750 §3.1; RFC 6749 §4.1.2.1 if the caller may try again).
    pub(super) const fn error(&self) -> &'static str {
        match self {
            Self::NotHeld(NotHeld::Proof(ProofError::NotRemembered(_)))
            | Self::Unknown(_)
            | Self::StaleWhileOpen => "temporarily_unavailable",
            Self::NotHeld(NotHeld::Proof(ProofError::AnotherKey)) => "invalid_token",
            // RFC 9449 §9.
            Self::NotHeld(NotHeld::Proof(ProofError::Nonce)) => "use_dpop_nonce",
            Self::NotHeld(NotHeld::Proof(_)) => "invalid_dpop_proof",
            Self::NoClaims(_)
            | Self::NotHeld(_)
            | Self::NotOfSession(NotOfSession::AnotherToken)
            | Self::Expired
            | Self::ExpiredWhileOpen
            | Self::Ended
            | Self::EndedWhileOpen => "invalid_token",
            Self::NotOfSession(NotOfSession::AnotherOrigin) => "access_denied",
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
            Self::NotHeld(NotHeld::Proof(ProofError::NotRemembered(_)))
            | Self::Unknown(_)
            | Self::StaleWhileOpen => 503,
            Self::NoClaims(_)
            | Self::NotHeld(_)
            | Self::NotOfSession(NotOfSession::AnotherToken)
            | Self::Expired
            | Self::ExpiredWhileOpen
            | Self::Ended
            | Self::EndedWhileOpen
            | Self::Denied(Denied::SignInTooOld(_), _) => 401,
            Self::NotOfSession(NotOfSession::AnotherOrigin) | Self::Denied(..) => 403,
        }
    }

    /// Returns the description for the caller: ASCII without quotes or backslashes (RFC 6750 §3).
    /// It reveals nothing about the rules.
    const fn told(&self) -> &'static str {
        match self {
            Self::NoClaims(_) => "the access token is invalid",
            Self::NotHeld(NotHeld::Proof(ProofError::NotRemembered(_)))
            | Self::Unknown(_)
            | Self::StaleWhileOpen => "try again in a moment",
            Self::NotHeld(NotHeld::Proof(ProofError::Missing)) => {
                "a proof in the header DPoP is required"
            }
            Self::NotHeld(NotHeld::Proof(ProofError::AnotherKey)) => {
                "the access token is bound to another key"
            }
            Self::NotHeld(NotHeld::Proof(ProofError::Nonce)) => {
                "put the nonce of the header DPoP-Nonce into the proof"
            }
            Self::NotHeld(NotHeld::Proof(_)) => "the proof is invalid or was used before",
            Self::NotHeld(NotHeld::Certificate) => {
                "the access token is bound to another client certificate"
            }
            Self::NotHeld(_) => {
                "the access token was presented without the key that it is bound to"
            }
            Self::NotOfSession(NotOfSession::AnotherToken) => {
                "the access token is not that of the session of this host"
            }
            Self::NotOfSession(NotOfSession::AnotherOrigin) => {
                "only pages of this host may send this request"
            }
            Self::Expired | Self::ExpiredWhileOpen => "the access token has expired",
            Self::Ended | Self::EndedWhileOpen => "the impersonation has ended",
            Self::Denied(Denied::SignInTooOld(_), _) => "the acting user must sign in again",
            Self::Denied(..) => "this is not allowed while impersonating a user",
        }
    }

    /// Returns true if the client should send a proof of possession.
    pub(super) const fn asks_for_proof(&self) -> bool {
        matches!(self, Self::NotHeld(NotHeld::Proof(_) | NotHeld::Scheme { needs_proof: true }))
    }

    /// Answers the request. `nonce` is for the client's next proof.
    pub(super) fn respond(&self, request: &dyn HttpRequest, nonce: Option<String>) {
        let (error, told) = (self.error(), self.told());
        let scheme = if self.asks_for_proof() { "DPoP" } else { "Bearer" };
        let mut challenge =
            format!("{scheme} realm=\"{REALM}\", error=\"{error}\", error_description=\"{told}\"");
        if self.asks_for_proof() {
            // RFC 9449 §7.1.
            let names: Vec<_> =
                HOST_KEY_ALGORITHMS.iter().map(|algorithm| algorithm.name()).collect();
            let _ = write!(challenge, ", algs=\"{}\"", names.join(" "));
        }
        if let Self::Denied(Denied::SignInTooOld(max_age), _) = self {
            // RFC 9470 §3: in whole seconds.
            let _ = write!(challenge, ", max_age=\"{}\"", max_age.as_secs());
        }
        let body = format!("{{\"error\":\"{error}\",\"error_description\":\"{told}\"}}");
        let mut headers: Vec<(&str, &[u8])> =
            vec![("content-type", b"application/json"), ("cache-control", b"no-store")];
        match self {
            _ if self.status() == 503 => headers.push(("retry-after", RETRY_AFTER)),
            // No other token would help.
            Self::NotOfSession(NotOfSession::AnotherOrigin) => {}
            _ => headers.push(("www-authenticate", challenge.as_bytes())),
        }
        headers.extend(nonce.as_deref().map(|nonce| ("dpop-nonce", nonce.as_bytes())));
        let details = format!("impersonation_{}", self.reason());
        request.respond(self.status(), &headers, body.as_bytes(), &details);
    }
}
