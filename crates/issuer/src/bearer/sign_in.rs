//! When and how the holder of an access token signed in, as its issuer says.

use serde_json::Value;

use crate::host::UnixTime;
use crate::statement::{NameError, Names};

/// The sign-in behind an access token. Each fact is absent if the token's issuer does not say it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct SignIn {
    /// `sid` with its issuer's prefix: the session at the identity gateway (OpenID Connect
    /// Back-Channel Logout §2.1).
    pub(crate) session: Option<String>,
    /// `iat`: the time at which the token was issued, by its issuer's clock.
    pub(crate) issued_at: Option<UnixTime>,
    /// The time at which the issuer vouched for the token, by the filter's clock. Known if an
    /// endpoint of the issuer was asked.
    pub(crate) vouched_at: Option<UnixTime>,
    /// `acr`: the authentication context class (RFC 9470 §6).
    pub(crate) acr: Option<String>,
    /// `auth_time`: the time at which the holder was authenticated, by the issuer's clock.
    pub(crate) auth_time: Option<UnixTime>,
}

impl SignIn {
    /// The time at which the token was issued, by its issuer's clock. A token that does not say it
    /// counts as issued long ago; `None` if its issuer was asked about it, and vouched for it.
    pub(crate) fn known_since(&self) -> Option<UnixTime> {
        match (self.issued_at, self.vouched_at) {
            (None, Some(_)) => None,
            (issued_at, _) => Some(issued_at.unwrap_or_default()),
        }
    }
}

/// The claims of a sign-in, as their issuer wrote them. `iat` is not among them, because a parser
/// of JWTs keeps it to itself. An `acr` or `auth_time` of another type counts as absent: only actor
/// tokens need them.
#[derive(Debug, Default)]
pub(super) struct SignInClaims<'c> {
    pub(super) sid: Option<String>,
    pub(super) acr: Option<&'c Value>,
    pub(super) auth_time: Option<&'c Value>,
}

impl SignInClaims<'_> {
    /// Reads the sign-in of a token whose issuer has this prefix.
    pub(super) fn read(
        &self,
        names: &Names,
        prefix: &str,
        issued_at: Option<UnixTime>,
    ) -> Result<SignIn, NameError> {
        let session = self.sid.as_deref().filter(|sid| !sid.is_empty());
        Ok(SignIn {
            session: session.map(|sid| names.qualify(prefix, sid)).transpose()?,
            issued_at,
            vouched_at: None,
            acr: self.acr.and_then(Value::as_str).map(str::to_owned),
            auth_time: self.auth_time.and_then(Value::as_f64).map(UnixTime::from_numeric_date),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_sign_in_is_read_with_the_prefix_of_its_issuer() {
        let issued_at = Some(UnixTime::from_secs(100));
        let at = |session: Option<&str>, acr: Option<&str>, auth_time: Option<u64>| SignIn {
            session: session.map(str::to_owned),
            issued_at,
            vouched_at: None,
            acr: acr.map(str::to_owned),
            auth_time: auth_time.map(UnixTime::from_millis),
        };
        #[rustfmt::skip]
        let cases = [
            (json!({"sid": "s", "acr": "phr", "auth_time": 90}), at(Some("p:s"), Some("phr"), Some(90_000))),
            (json!({"auth_time": 90.5}),                         at(None, None, Some(90_500))),
            (json!({"auth_time": -1}),                           at(None, None, Some(0))),
            (json!({"auth_time": "90", "acr": 2}),               at(None, None, None)),
            (json!({"sid": null, "acr": null}),                  at(None, None, None)),
            (json!({"sid": ""}),                                 at(None, None, None)),
            (json!({}),                                          at(None, None, None)),
        ];
        for (claims, expected) in cases {
            let sid = claims.get("sid").and_then(Value::as_str).map(str::to_owned);
            let read =
                SignInClaims { sid, acr: claims.get("acr"), auth_time: claims.get("auth_time") };
            assert_eq!(read.read(&Names::default(), "p:", issued_at), Ok(expected), "{claims}");
        }
        let malformed = SignInClaims { sid: Some("a\nb".into()), ..SignInClaims::default() };
        let refused = malformed.read(&Names::default(), "", None);
        assert_eq!(refused, Err(NameError::Malformed));
    }
}
