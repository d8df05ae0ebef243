//! A JWK set (RFC 7517 §5) to verify tokens with.

use serde::Deserialize;

use super::{Algorithm, PublishedKey, VerifyingKey, VerifyingKeyError};

/// The keys of an issuer.
#[derive(Debug, Clone, Default)]
pub struct KeySet {
    keys: Vec<VerifyingKey>,
    /// Members of the set that could not be used although they are meant for us, by position.
    pub broken: Vec<(usize, VerifyingKeyError)>,
}

impl KeySet {
    /// Reads a set. Keys for other purposes are passed over (RFC 7517 §5), broken ones are listed: one
    /// bad key never spoils the rest. `None` if it is no key set at all.
    pub fn parse(json: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct Document {
            keys: Vec<serde_json::Value>,
        }
        // `serde` does not look into text that it skips, and JSON is UTF-8 (RFC 8259 §8.1).
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

    /// The keys that we publish.
    pub fn of(published: &[PublishedKey]) -> Self {
        let jwks = published.iter().filter_map(|key| serde_json::to_value(key).ok());
        let keys = jwks.filter_map(|jwk| VerifyingKey::from_jwk(&jwk).ok());
        Self { keys: keys.collect(), broken: Vec::new() }
    }

    /// Whether no key can be used.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The keys that a token with this header can be signed by. A key that has a `kid` must be named by
    /// it, if the token names one.
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
