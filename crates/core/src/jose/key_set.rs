//! A JWK set (RFC 7517 §5) with which signatures are verified.

use serde::Deserialize;

use super::{Algorithm, PublishedKey, VerifyingKey, VerifyingKeyError};

/// The public keys of an issuer.
#[derive(Debug, Clone, Default)]
pub struct KeySet {
    keys: Vec<VerifyingKey>,
    /// The keys that are meant for verifying signatures but cannot be used, by their position in
    /// the set.
    pub(crate) broken: Vec<(usize, VerifyingKeyError)>,
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
            match VerifyingKey::from_jwk(jwk) {
                Ok(key) => set.keys.push(key),
                Err(VerifyingKeyError::NotForUs) => {}
                Err(error) => set.broken.push((position, error)),
            }
        }
        Some(set)
    }

    /// Creates the key set of our published keys.
    pub(crate) fn of(published: &[PublishedKey]) -> Self {
        let jwks = published.iter().filter_map(|key| serde_json::to_value(key).ok());
        let keys = jwks.filter_map(|jwk| VerifyingKey::from_jwk(&jwk).ok());
        Self { keys: keys.collect(), broken: Vec::new() }
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
