//! A statement whose signature was verified, and the time in which it holds.

use std::time::Duration;

use serde_json::{Map, Value};

use super::StatementError;
use crate::host::UnixTime;
use crate::jose;

/// A signed statement whose signature was verified with a key of its issuer.
#[derive(Debug)]
pub struct Verified<'s> {
    expires_at: Option<UnixTime>,
    not_before: UnixTime,
    /// `iat`, by the issuer's clock.
    pub issued_at: Option<UnixTime>,
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

    /// Returns true if the statement has this claim, with any value, even `null`.
    pub fn has(&self, name: &str) -> bool {
        self.claims.contains_key(name)
    }

    /// A claim with any value, even `null`.
    pub fn given(&self, name: &str) -> Option<&'s Value> {
        self.claims.get(name)
    }

    /// A claim of any type. As in every claim that is read, `null` counts as absent.
    pub fn claim(&self, name: &str) -> Option<&'s Value> {
        self.claims.get(name).filter(|claim| !claim.is_null())
    }

    /// A claim that is a string.
    pub fn text(&self, name: &str) -> Result<Option<&'s str>, StatementError> {
        let claim = self.claim(name);
        claim.map(|claim| claim.as_str().ok_or(StatementError::Claims)).transpose()
    }

    /// A claim that is a string or a list of strings, such as `aud` (RFC 7519 §4.1.3). An absent
    /// claim is an empty list.
    pub fn texts(&self, name: &str) -> Result<Vec<&'s str>, StatementError> {
        let items = match self.claim(name) {
            None => &[],
            Some(Value::Array(items)) => items.as_slice(),
            Some(one) => std::slice::from_ref(one),
        };
        items.iter().map(|item| item.as_str().ok_or(StatementError::Claims)).collect()
    }

    /// Refuses a statement that has no `exp`, has expired, or is not valid yet, by an issuer's
    /// clock that may be wrong by `leeway`. Returns the time at which the statement expires, leeway
    /// included.
    pub fn check_times(&self, now: UnixTime, leeway: Duration) -> Result<UnixTime, StatementError> {
        let expires_at = self.expires_at.ok_or(StatementError::NoExpiry)?.after(leeway);
        if now >= expires_at {
            return Err(StatementError::Expired);
        }
        if now.after(leeway) < self.not_before {
            return Err(StatementError::NotYetValid);
        }
        Ok(expires_at)
    }

    /// Does as [`check_times`](Self::check_times), but accepts a statement without `exp` that is at
    /// most `age` old. Refuses one whose `iat` lies in the future, as its age would begin later.
    pub fn check_times_or_age(
        &self,
        now: UnixTime,
        leeway: Duration,
        age: Duration,
    ) -> Result<(), StatementError> {
        let (None, Some(issued_at)) = (self.expires_at, self.issued_at) else {
            return self.check_times(now, leeway).map(drop);
        };
        if now > issued_at.after(age) {
            return Err(StatementError::Expired);
        }
        if now.after(leeway) < self.not_before.max(issued_at) {
            return Err(StatementError::NotYetValid);
        }
        Ok(())
    }
}
