//! The members of a JWK that make up a key (RFC 7518 §6, RFC 8037 §2), decoded but not yet checked.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use rsa::BigUint;
use serde_json::{Map, Value};

/// The private part of a key; `None` if the JWK has only the public part.
type Private<T> = Option<T>;

/// A public key, with its private part if there is one.
pub(super) enum Jwk<'j> {
    /// `OKP`: a point on an Edwards curve.
    Edwards { curve: &'j str, x: Vec<u8>, secret: Private<Vec<u8>> },
    /// `EC`: a point on an elliptic curve.
    Elliptic { curve: &'j str, x: Vec<u8>, y: Vec<u8>, secret: Private<Vec<u8>> },
    /// `RSA`: a modulus with its exponent.
    Rsa { modulus: Vec<u8>, exponent: Vec<u8>, secret: Private<RsaSecret> },
}

/// The private part of an RSA key. The numbers that only make signing faster are computed anew.
pub(super) struct RsaSecret {
    pub(super) exponent: BigUint,
    pub(super) primes: Vec<BigUint>,
}

/// A JWK lacks a member, or has one that is malformed.
#[derive(Debug)]
pub(super) struct Malformed;

impl<'j> Jwk<'j> {
    /// Reads a JWK. Other members than those of its `kty` do not matter.
    pub(super) fn read(jwk: &'j Value) -> Result<Self, Malformed> {
        let curve = || text(jwk, "crv")?.ok_or(Malformed);
        match text(jwk, "kty")? {
            Some("OKP") => Ok(Self::Edwards {
                curve: curve()?,
                x: number(jwk, "x")?,
                secret: optional_number(jwk, "d")?,
            }),
            Some("EC") => Ok(Self::Elliptic {
                curve: curve()?,
                x: number(jwk, "x")?,
                y: number(jwk, "y")?,
                secret: optional_number(jwk, "d")?,
            }),
            Some("RSA") => Ok(Self::Rsa {
                modulus: number(jwk, "n")?,
                exponent: number(jwk, "e")?,
                secret: RsaSecret::read(jwk).ok(),
            }),
            _ => Err(Malformed),
        }
    }

    /// The members of the public part, as RFC 7638 §3.2 requires them for a thumbprint.
    pub(super) const fn public_members(&self) -> &'static [&'static str] {
        match self {
            Self::Edwards { .. } => &["kty", "crv", "x"],
            Self::Elliptic { .. } => &["kty", "crv", "x", "y"],
            Self::Rsa { .. } => &["kty", "n", "e"],
        }
    }
}

impl RsaSecret {
    fn read(jwk: &Value) -> Result<Self, Malformed> {
        let integer = |of, name| number(of, name).map(|bytes| BigUint::from_bytes_be(&bytes));
        let exponent = integer(jwk, "d")?;
        let mut primes = vec![integer(jwk, "p")?, integer(jwk, "q")?];
        for unused in ["dp", "dq", "qi"] {
            optional_number(jwk, unused)?;
        }
        let others = jwk.get("oth").map(|others| others.as_array().ok_or(Malformed)).transpose()?;
        for other in others.into_iter().flatten() {
            primes.push(integer(other, "r")?);
            for unused in ["d", "t"] {
                optional_number(other, unused)?;
            }
        }
        Ok(Self { exponent, primes })
    }
}

/// Reads a member that is a string; `None` if it is absent or `null`.
pub(super) fn text<'j>(jwk: &'j Value, name: &str) -> Result<Option<&'j str>, Malformed> {
    match jwk.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => value.as_str().map(Some).ok_or(Malformed),
    }
}

fn optional_number(jwk: &Value, name: &str) -> Result<Option<Vec<u8>>, Malformed> {
    let decode = |text| BASE64_URL_SAFE_NO_PAD.decode(text).map_err(|_| Malformed);
    text(jwk, name)?.map(decode).transpose()
}

fn number(jwk: &Value, name: &str) -> Result<Vec<u8>, Malformed> {
    optional_number(jwk, name)?.ok_or(Malformed)
}

/// Writes a JWK of a `kty`: its curve, if it has one, and its numbers.
pub(super) fn write(kty: &str, curve: Option<&str>, numbers: &[(&str, &[u8])]) -> Value {
    let mut jwk = Map::new();
    jwk.insert("kty".to_owned(), kty.into());
    if let Some(curve) = curve {
        jwk.insert("crv".to_owned(), curve.into());
    }
    for (name, number) in numbers {
        jwk.insert((*name).to_owned(), BASE64_URL_SAFE_NO_PAD.encode(number).into());
    }
    Value::Object(jwk)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_number_is_base64url_in_its_one_canonical_form() {
        let jwk = json!({"none": null, "good": "AQAB", "padded": "AQA=", "spare_bits": "AB", "not_text": 1});
        for absent in ["none", "missing"] {
            assert!(number(&jwk, absent).is_err());
            assert_eq!(optional_number(&jwk, absent).unwrap(), None, "{absent}");
        }
        assert_eq!(number(&jwk, "good").unwrap(), [1, 0, 1]);
        for malformed in ["padded", "spare_bits", "not_text"] {
            assert!(optional_number(&jwk, malformed).is_err(), "{malformed}");
        }
    }

    #[test]
    fn an_rsa_key_has_all_of_its_private_part_or_none() {
        let whole =
            json!({"kty": "RSA", "n": "AQAB", "e": "AQAB", "d": "Aw", "p": "BQ", "q": "Bw"});
        #[rustfmt::skip]
        let cases = [
            ("d",   json!("Aw"),                     Some(2)),
            ("dp",  json!(null),                     Some(2)),
            ("oth", json!([]),                       Some(2)),
            ("oth", json!([{"r": "CQ", "t": "Aw"}]), Some(3)),
            ("d",   json!(null),                     None),
            ("q",   json!("="),                      None),
            ("dp",  json!("="),                      None),
            ("oth", json!(null),                     None),
            ("oth", json!([{"d": "CQ"}]),            None),
            ("oth", json!([{"r": "CQ", "t": 1}]),    None),
        ];
        for (name, value, primes) in cases {
            let mut jwk = whole.clone();
            jwk[name] = value;
            let Ok(Jwk::Rsa { secret, .. }) = Jwk::read(&jwk) else { panic!("{jwk}") };
            assert_eq!(secret.map(|secret| secret.primes.len()), primes, "{jwk}");
        }
    }
}
