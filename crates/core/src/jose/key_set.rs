//! A JWK set (RFC 7517 §5) with which signatures are verified.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;

use super::{Algorithm, PublishedKey, VerifyingKey, VerifyingKeyError};
use crate::secret::Digest;

/// The public keys of an issuer.
#[derive(Debug, Clone, Default)]
pub struct KeySet {
    keys: Vec<VerifyingKey>,
    /// The keys that are meant for verifying signatures but cannot be used, by their position in
    /// the set.
    pub(crate) broken: Vec<(usize, VerifyingKeyError)>,
    /// The digests of the certificates of the keys.
    certificates: Vec<Digest>,
}

impl KeySet {
    /// Reads a key set. Keys for other purposes are skipped (RFC 7517 §5), and broken keys are
    /// listed: one bad key never spoils the rest. Returns `None` if the JSON is not a key set.
    pub fn parse(json: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct Document {
            keys: Vec<serde_json::Value>,
        }
        // JSON is UTF-8 (RFC 8259 §8.1), and `serde` does not check the text that it skips.
        let document: Document = serde_json::from_str(std::str::from_utf8(json).ok()?).ok()?;
        let mut set = Self::default();
        for (position, jwk) in document.keys.iter().enumerate() {
            set.certificates.extend(certificate(jwk));
            match VerifyingKey::from_jwk(jwk) {
                Ok(key) => set.keys.push(key),
                Err(VerifyingKeyError::NotForUs) => {}
                Err(error) => set.broken.push((position, error)),
            }
        }
        Some(set)
    }

    /// Creates the key set of our published keys.
    pub fn of(published: &[PublishedKey]) -> Self {
        let jwks = published.iter().filter_map(|key| serde_json::to_value(key).ok());
        let keys = jwks.filter_map(|jwk| VerifyingKey::from_jwk(&jwk).ok());
        Self { keys: keys.collect(), ..Self::default() }
    }

    /// The digests of the certificates of the keys, those for other purposes included.
    pub fn certificates(&self) -> &[Digest] {
        &self.certificates
    }

    /// The algorithms of the keys that are limited to one.
    pub(crate) fn only_algorithms(&self) -> impl Iterator<Item = Algorithm> {
        self.keys.iter().filter_map(VerifyingKey::only_algorithm)
    }

    /// Returns true if the set has no usable key.
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The keys that may have signed a token with this header. If both the token and the key have a
    /// `kid`, the two must agree.
    pub fn candidates<'k>(
        &'k self,
        algorithm: Algorithm,
        kid: Option<&'k str>,
    ) -> impl Iterator<Item = &'k VerifyingKey> {
        self.keys.iter().filter(move |key| {
            let named = match (kid, &key.kid) {
                (Some(wanted), Some(kid)) => wanted == kid,
                _ => true,
            };
            named && key.accepts(algorithm)
        })
    }
}

/// Returns the digest of the certificate of a key: of the first in `x5c` (RFC 7517 §4.7), or
/// `x5t#S256` (§4.9).
fn certificate(jwk: &serde_json::Value) -> Option<Digest> {
    let der = jwk.get("x5c").and_then(|chain| BASE64_STANDARD.decode(chain.get(0)?.as_str()?).ok());
    der.map(|der| Digest::of(&der))
        .or_else(|| Digest::from_base64url(jwk.get("x5t#S256")?.as_str()?))
}
