//! A JWT (RFC 7519) whose word nobody has vouched for yet.
//!
//! `jwt-compact` parses it and checks that it names the algorithm that its signature is checked with. Nothing of that
//! crate is seen outside.

use jwt_compact::{AlgorithmExt as _, UntrustedToken, ValidationError};
use serde::de::DeserializeOwned;

use super::verifying::Jws;
use super::{Algorithm, TestedCrypto, VerifyingKey};

/// A token in three parts of canonical base64url: no padding, no bits to spare.
pub struct UntrustedJwt<'t>(UntrustedToken<'t>);

/// What a signature vouches for.
#[derive(Debug)]
pub struct Claims<T> {
    /// `exp`, in seconds since the epoch.
    pub expiration: Option<i64>,
    /// `nbf`, the same.
    pub not_before: Option<i64>,
    /// All others.
    pub custom: T,
}

/// Why a token is not what its header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum JwtError {
    /// Not signed by this key.
    #[error("bad signature")]
    Signature,
    /// Its claims have other types. They are read first: nothing is said of the signature.
    #[error("malformed claims")]
    Claims,
}

impl<'t> UntrustedJwt<'t> {
    /// Takes a token apart; `None` if it is no JWT.
    pub fn parse(token: &'t str) -> Option<Self> {
        UntrustedToken::new(token).ok().map(Self)
    }

    /// The name of its algorithm.
    pub fn algorithm(&self) -> &str {
        self.0.algorithm()
    }

    /// `kid`: the name of the key.
    pub fn key_id(&self) -> Option<&str> {
        self.0.header().key_id.as_deref()
    }

    /// Whether there is anything in its third part.
    pub fn has_signature(&self) -> bool {
        !self.0.signature_bytes().is_empty()
    }

    /// Its claims, if `key` signed it with `algorithm`. The host's cryptography is asked first.
    pub fn verify<T: DeserializeOwned>(
        &self,
        crypto: Option<&TestedCrypto>,
        algorithm: Algorithm,
        key: &VerifyingKey,
    ) -> Result<Claims<T>, JwtError> {
        match (Jws { algorithm, crypto }).validator::<T>(key).validate(&self.0) {
            Ok(token) => {
                let (_, claims) = token.into_parts();
                Ok(Claims {
                    expiration: claims.expiration.map(|time| time.timestamp()),
                    not_before: claims.not_before.map(|time| time.timestamp()),
                    custom: claims.custom,
                })
            }
            Err(ValidationError::MalformedClaims(_)) => Err(JwtError::Claims),
            Err(_) => Err(JwtError::Signature),
        }
    }
}
