//! Signed statements: JSON Web Tokens (RFC 7519) that other parties sign and that the filter
//! believes.
//!
//! An access token is one kind of signed statement. Each kind has a profile, which names the
//! accepted `typ`, the required claims and what they must say. A profile lives where its statements
//! are used. This module has what every profile needs: strict parsing, issuers with their keys,
//! names that no two issuers share, and time.
//!
//! [`Untrusted`] and [`Verified`] are two types, and only a good signature leads from the first to
//! the second. RFC 8725 says how: the key decides the algorithm, the configuration decides the
//! issuer, and the statement's own word decides nothing.

mod compact;
mod issuers;
mod names;
mod untrusted;
mod verified;

pub(crate) use compact::Compact;
pub use issuers::Issuers;
pub use names::{NameError, Names};
pub use untrusted::{Untrusted, is_jwt};
pub use verified::Verified;

use crate::upstream::UpstreamFailure;

/// Why a signed statement is not believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StatementError {
    /// The text is longer than any token that an issuer writes. It was not read.
    #[error("more than 16 KiB")]
    TooLong,
    /// The text is not a JWT in its one canonical form.
    #[error("not a JWT")]
    NotAJwt,
    /// The header has `crit` or `b64`, which the filter does not implement (RFC 7515 §4.1.11, RFC
    /// 7797).
    #[error("critical header parameters")]
    Critical,
    /// `typ` names another kind of statement, such as an ID token or a logout token.
    #[error("another kind of statement: {0:?}")]
    Type(String),
    /// The configuration has no entry for `iss`.
    #[error("issuer {0:?} is not trusted")]
    Issuer(String),
    /// `alg` is `none`, an HMAC, or another algorithm that the filter does not accept.
    #[error("algorithm {0:?} is not accepted")]
    Algorithm(String),
    /// The issuer has no key for this `kid` and `alg`.
    #[error("no key of the issuer fits")]
    NoKey,
    /// None of the keys that fit made the signature.
    #[error("bad signature")]
    Signature,
    /// A claim has the wrong type, or occurs twice.
    #[error("malformed claims")]
    Claims,
    /// There is no `exp`, so the statement would hold for ever.
    #[error("no exp")]
    NoExpiry,
    /// `exp` has passed.
    #[error("expired")]
    Expired,
    /// `nbf` lies ahead.
    #[error("not valid yet")]
    NotYetValid,
    /// The issuer's keys could not be fetched.
    #[error(transparent)]
    Upstream(#[from] UpstreamFailure),
}

impl StatementError {
    /// The check that failed, as a name for metrics.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::TooLong => "malformed",
            Self::NotAJwt => "not_a_jwt",
            Self::Critical => "critical_header",
            Self::Type(_) => "type",
            Self::Issuer(_) => "issuer",
            Self::Algorithm(_) => "algorithm",
            Self::NoKey => "no_key",
            Self::Signature => "signature",
            Self::Claims => "claims",
            Self::NoExpiry => "no_expiry",
            Self::Expired => "expired",
            Self::NotYetValid => "not_yet_valid",
            Self::Upstream(_) => "callout_failed",
        }
    }
}

#[cfg(test)]
mod tests;
