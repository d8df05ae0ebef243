//! The key that an access token is bound to (`cnf`, RFC 7800), and the keys that a request has
//! proved to possess.
//!
//! A token that is bound to a key is worth nothing without that key. [`Possession::meets`] is the
//! only comparison of the two. A `cnf` with a member that is not understood is never met: it may
//! demand more than the filter can check.

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::secret::Digest;

/// The member of `cnf` with the thumbprint of a key that signs proofs (RFC 9449 §6.1).
const KEY: &str = "jkt";

/// The member of `cnf` with the digest of a client certificate (RFC 8705 §3.1).
const CERTIFICATE: &str = "x5t#S256";

/// The keys that an access token is bound to; none for a bearer token. A token that is bound to two
/// keys needs both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Confirmation {
    /// The thumbprint of the key that must sign a proof for each request.
    pub key: Option<Digest>,
    /// The digest of the certificate that the client must connect with.
    pub certificate: Option<Digest>,
}

/// The keys that a request has proved to possess.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Possession {
    /// The thumbprint of the key that signed a proof for this request.
    pub key: Option<Digest>,
    /// The digest of the certificate that the client has connected with.
    pub certificate: Option<Digest>,
}

impl Confirmation {
    /// Reads the claim `cnf`; `None` if it demands something that is not understood.
    pub fn read(cnf: &Value) -> Option<Self> {
        let members = cnf.as_object().filter(|members| !members.is_empty())?;
        let mut confirmation = Self::default();
        for (name, value) in members {
            confirmation.add(name, value.as_str()?)?;
        }
        Some(confirmation)
    }

    /// Adds a member of `cnf`; `None` if it is not understood.
    pub(crate) fn add(&mut self, name: &str, value: &str) -> Option<()> {
        let place = match name {
            KEY => &mut self.key,
            CERTIFICATE => &mut self.certificate,
            _ => return None,
        };
        *place = Some(Digest::from_base64url(value)?);
        Some(())
    }

    /// Returns true if the token is bound to a key.
    pub const fn is_bound(&self) -> bool {
        self.key.is_some() || self.certificate.is_some()
    }
}

impl Possession {
    /// Returns true if the request has proved all keys that a token is bound to.
    pub fn meets(&self, bound_to: &Confirmation) -> bool {
        let meets = |bound: &Option<Digest>, proved: &Option<Digest>| {
            bound.is_none_or(|bound| proved.is_some_and(|proved| proved.matches(&bound)))
        };
        meets(&bound_to.key, &self.key) && meets(&bound_to.certificate, &self.certificate)
    }
}

impl Serialize for Confirmation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = serializer.serialize_map(None)?;
        for (name, digest) in [(KEY, &self.key), (CERTIFICATE, &self.certificate)] {
            if let Some(digest) = digest {
                members.serialize_entry(name, &digest.to_base64url())?;
            }
        }
        members.end()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ONE: Digest = Digest::from_bytes([1; 32]);
    const OTHER: Digest = Digest::from_bytes([2; 32]);

    #[test]
    fn a_confirmation_is_read_only_if_every_member_is_understood() {
        let (one, other) = (ONE.to_base64url(), OTHER.to_base64url());
        let bound = |key, certificate| Some(Confirmation { key, certificate });
        #[rustfmt::skip]
        let cases = [
            ("a key",            json!({"jkt": one}),                        bound(Some(ONE), None)),
            ("a certificate",    json!({"x5t#S256": one}),                   bound(None, Some(ONE))),
            ("both",             json!({"jkt": one, "x5t#S256": other}),     bound(Some(ONE), Some(OTHER))),
            ("nothing",          json!({}),                                  None),
            ("null",             json!(null),                                None),
            ("a string",         json!("jkt"),                               None),
            ("a whole key",      json!({"jwk": {"kty": "EC"}}),              None),
            ("another method",   json!({"jkt": one, "kid": "1"}),            None),
            ("a null key",       json!({"jkt": null}),                       None),
            ("an empty key",     json!({"jkt": ""}),                         None),
            ("hexadecimal",      json!({"jkt": ONE.to_hex()}),               None),
            ("padding",          json!({"jkt": format!("{one}=")}),          None),
            ("a short digest",   json!({"jkt": one.split_at(1).1}),                  None),
        ];
        for (case, cnf, expected) in cases {
            assert_eq!(Confirmation::read(&cnf), expected, "{case}");
            if let Some(confirmation) = expected {
                assert_eq!(serde_json::to_value(confirmation).unwrap(), cnf, "{case}");
            }
        }
    }

    #[test]
    fn a_token_needs_each_key_that_it_is_bound_to() {
        let (one, other) = (Some(ONE), Some(OTHER));
        #[rustfmt::skip]
        let cases = [
            ("a bearer token",                (None, None),  (None, None),  true),
            ("a bearer token with keys",      (None, None),  (one, other),  true),
            ("the key",                       (one, None),   (one, None),   true),
            ("the key and a certificate",     (one, None),   (one, other),  true),
            ("both",                          (one, other),  (one, other),  true),
            ("no key",                        (one, None),   (None, None),  false),
            ("another key",                   (one, None),   (other, None), false),
            ("a certificate for the key",     (one, None),   (None, one),   false),
            ("a key for the certificate",     (None, one),   (one, None),   false),
            ("another certificate",           (None, one),   (None, other), false),
            ("one of two",                    (one, other),  (one, None),   false),
            ("the other of two",              (one, other),  (None, other), false),
        ];
        for (case, (key, certificate), (has_key, has_certificate), met) in cases {
            let possession = Possession { key: has_key, certificate: has_certificate };
            assert_eq!(possession.meets(&Confirmation { key, certificate }), met, "{case}");
        }
    }
}
