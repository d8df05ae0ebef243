//! Strict parsing of a compact JWS (RFC 7515 §3.1) into a statement whose signature has not been
//! verified.
//!
//! A token that another parser could read as a JWT is read as a JWT here, or refused. If a badly
//! written JWT counted as opaque, its bearer could choose how it is verified: signatures cover
//! neither padding nor the spare bits of the last character, and services that know opaque tokens
//! often ignore both.

use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::{Map, Value};

use super::compact::{is_too_long, object};
use super::{StatementError, Verified};
use crate::jose::{Algorithm, JwtError, KeySet, TestedCrypto, UntrustedJwt};

/// A signed statement whose signature has not been verified, so an attacker may have written it.
pub struct Untrusted<'t> {
    jwt: UntrustedJwt<'t>,
    header: Map<String, Value>,
    claims: Map<String, Value>,
}

impl<'t> Untrusted<'t> {
    /// Parses a token that is a JWT in canonical form.
    pub fn parse(token: &'t str) -> Result<Self, StatementError> {
        if is_too_long(token) {
            return Err(StatementError::TooLong);
        }
        // Accepts three parts in canonical base64url only: no padding, no spare bits.
        let jwt = UntrustedJwt::parse(token).ok_or(StatementError::NotAJwt)?;
        let mut parts = token.split('.').map(object);
        let header = parts.next().flatten().ok_or(StatementError::NotAJwt)?;
        let claims = parts.next().flatten().ok_or(StatementError::Claims)?;
        // Any value is refused, even `null`. RFC 7797 §7: a JWT never has `b64`.
        if header.contains_key("crit") || header.contains_key("b64") {
            return Err(StatementError::Critical);
        }
        Ok(Self { jwt, header, claims })
    }

    /// `typ`, as it is written.
    pub fn r#type(&self) -> Option<&Value> {
        self.header.get("typ")
    }

    /// Refuses a `typ` that is not in `accepted`; a statement without `typ` passes. Media types
    /// ignore letter case (RFC 7515 §4.1.9).
    pub fn check_type(&self, accepted: &[&str]) -> Result<(), StatementError> {
        let is_accepted =
            |name: &str| accepted.iter().any(|accepted| accepted.eq_ignore_ascii_case(name));
        match self.r#type() {
            None => Ok(()),
            Some(Value::String(name)) if is_accepted(name) => Ok(()),
            Some(Value::String(name)) => Err(StatementError::Type(name.clone())),
            Some(other) => Err(StatementError::Type(other.to_string())),
        }
    }

    /// `iss`; empty where it is absent.
    pub fn issuer(&self) -> Result<&str, StatementError> {
        match self.claims.get("iss") {
            None | Some(Value::Null) => Ok(""),
            Some(Value::String(issuer)) => Ok(issuer),
            Some(_) => Err(StatementError::Claims),
        }
    }

    /// The unverified claims.
    pub const fn claims(&self) -> &Map<String, Value> {
        &self.claims
    }

    /// Takes the unverified claims.
    pub fn into_claims(self) -> Map<String, Value> {
        self.claims
    }

    /// Returns true if the third part of the token is not empty.
    pub fn has_signature(&self) -> bool {
        self.jwt.has_signature()
    }

    /// Returns true if the header names a key of `keys` by its `kid`, with an `alg` that the key
    /// accepts. No signature is verified.
    pub fn names_key_of(&self, keys: &KeySet) -> bool {
        let named = self.jwt.key_id().is_some().then(|| self.algorithm().ok()).flatten();
        named.is_some_and(|named| keys.candidates(named, self.jwt.key_id()).next().is_some())
    }

    /// Verifies that a key of `keys` signed the statement. The claims are not checked.
    pub fn is_signed_by(&self, crypto: Option<&TestedCrypto>, keys: &KeySet) -> bool {
        self.verify(crypto, keys).is_ok()
    }

    /// Verifies the signature with the keys that `kid` and `alg` allow.
    pub(crate) fn verify(
        &self,
        crypto: Option<&TestedCrypto>,
        keys: &KeySet,
    ) -> Result<Verified<'_>, StatementError> {
        let algorithm = self.algorithm()?;
        let mut failure = StatementError::NoKey;
        for key in keys.candidates(algorithm, self.jwt.key_id()) {
            match self.jwt.verify(crypto, algorithm, key) {
                Ok(times) => return Ok(Verified::new(&times, &self.claims)),
                Err(JwtError::Claims) => return Err(StatementError::Claims),
                Err(JwtError::Signature) => failure = StatementError::Signature,
            }
        }
        Err(failure)
    }

    /// The algorithm that the header names.
    pub fn algorithm(&self) -> Result<Algorithm, StatementError> {
        let name = self.jwt.algorithm();
        Algorithm::from_name(name).ok_or_else(|| StatementError::Algorithm(name.to_owned()))
    }
}

/// Returns true if every parser would read the token as a JWT: it has three parts with dots between
/// them. Any other token is opaque, including an encrypted JWT (five parts, RFC 7516), which only
/// its issuer can read.
///
/// A token that is too long is an error. A signed JWT with a part too few or too many is one,
/// because a careless parser accepts it.
pub fn is_jwt(token: &str) -> Result<bool, StatementError> {
    if is_too_long(token) {
        return Err(StatementError::TooLong);
    }
    // Decodes everything that any parser decodes.
    const FORGIVING: GeneralPurpose = GeneralPurpose::new(
        &URL_SAFE,
        GeneralPurposeConfig::new()
            .with_decode_allow_trailing_bits(true)
            .with_decode_padding_mode(DecodePaddingMode::Indifferent),
    );
    let (first, others) = match token.split_once('.') {
        None => return Ok(false),
        Some((first, rest)) => (first, rest.split('.').count()),
    };
    if others == 2 {
        return Ok(true);
    }
    let header = first.trim_end_matches('=').replace('+', "-").replace('/', "_");
    let header = FORGIVING.decode(header).unwrap_or_default();
    let header: Map<String, Value> = serde_json::from_slice(&header).unwrap_or_default();
    let encrypted = others == 4 && header.contains_key("enc");
    if header.contains_key("alg") && !encrypted { Err(StatementError::NotAJwt) } else { Ok(false) }
}
