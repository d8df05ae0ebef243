//! A statement whose signature was verified, and the time in which it holds.

use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, IgnoredAny};
use serde_json::{Map, Value};

use super::StatementError;
use crate::host::UnixTime;
use crate::jose;

/// A signed statement whose signature was verified with a key of its issuer.
#[derive(Debug)]
pub(crate) struct Verified<'s> {
    expires_at: Option<UnixTime>,
    not_before: UnixTime,
    /// `iat`, by the issuer's clock.
    pub(crate) issued_at: Option<UnixTime>,
    /// The claims, which the issuer vouches for.
    claims: &'s Map<String, Value>,
}

impl<'s> Verified<'s> {
    /// Takes the claims that a signature was verified for.
    pub(super) fn new(times: &jose::Times, claims: &'s Map<String, Value>) -> Self {
        Self {
            expires_at: times.expiration.map(UnixTime::from_secs),
            not_before: UnixTime::from_secs(times.not_before.unwrap_or(0)),
            issued_at: times.issued_at.map(UnixTime::from_secs),
            claims,
        }
    }

    /// The claims that a profile reads.
    pub(crate) fn claims<T: Deserialize<'s>>(&self) -> Result<T, StatementError> {
        T::deserialize(self.claims).map_err(|_| StatementError::Claims)
    }

    /// Refuses a statement that has no `exp`, has expired, or is not valid yet, by an issuer's
    /// clock that may be wrong by `leeway`. Returns the time at which the statement expires, leeway
    /// included.
    pub(crate) fn check_times(
        &self,
        now: UnixTime,
        leeway: Duration,
    ) -> Result<UnixTime, StatementError> {
        let expires_at = self.expires_at.ok_or(StatementError::NoExpiry)?.after(leeway);
        if now >= expires_at {
            return Err(StatementError::Expired);
        }
        if now.after(leeway) < self.not_before {
            return Err(StatementError::NotYetValid);
        }
        Ok(expires_at)
    }
}

/// A claim that is a string or a list of strings, such as `aud` (RFC 7519 §4.1.3).
#[derive(Debug)]
pub(crate) enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl OneOrMany {
    /// The strings.
    pub(crate) fn as_slice(&self) -> &[String] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => many,
        }
    }
}

impl<'de> Deserialize<'de> for OneOrMany {
    fn deserialize<D: Deserializer<'de>>(claim: D) -> Result<Self, D::Error> {
        let wrong = || D::Error::custom("neither a string nor a list of strings");
        let text = |item| match item {
            Value::String(text) => Ok(text),
            _ => Err(wrong()),
        };
        match Value::deserialize(claim)? {
            Value::Array(items) => {
                items.into_iter().map(text).collect::<Result<_, _>>().map(Self::Many)
            }
            one => text(one).map(Self::One),
        }
    }
}

/// Deserializes a claim of which only the presence counts. Any value is true, even `null`.
pub(crate) fn is_present<'de, D: Deserializer<'de>>(claim: D) -> Result<bool, D::Error> {
    IgnoredAny::deserialize(claim).map(|_| true)
}
