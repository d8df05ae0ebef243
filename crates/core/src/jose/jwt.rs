//! A JWT (RFC 7519) whose signature has not been verified.
//!
//! The crate `jwt-compact` parses the JWT, and checks that its header names the algorithm with
//! which the signature is verified. No type of that crate is visible outside.

use jwt_compact::{AlgorithmExt as _, UntrustedToken, ValidationError};
use serde::de::IgnoredAny;

use super::verifying::Jws;
use super::{Algorithm, TestedCrypto, VerifyingKey};

/// A JWT in three parts of canonical base64url, without padding and spare bits. Its signature has
/// not been verified.
pub struct UntrustedJwt<'t>(UntrustedToken<'t>);

/// The times in a JWT whose signature was verified.
#[derive(Debug)]
pub(crate) struct Times {
    /// `exp`, in seconds since the epoch.
    pub(crate) expiration: Option<i64>,
    /// `nbf`, in seconds since the epoch.
    pub(crate) not_before: Option<i64>,
    /// `iat`, in seconds since the epoch.
    pub(crate) issued_at: Option<i64>,
}

/// Why a JWT could not be verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum JwtError {
    /// The key did not make the signature.
    #[error("bad signature")]
    Signature,
    /// A claim has the wrong type. Claims are read first, so the signature was not verified.
    #[error("malformed claims")]
    Claims,
}

impl<'t> UntrustedJwt<'t> {
    /// Splits a token into its parts; `None` if it is not a JWT.
    pub fn parse(token: &'t str) -> Option<Self> {
        UntrustedToken::new(token).ok().map(Self)
    }

    /// `alg`: the name of the algorithm.
    pub fn algorithm(&self) -> &str {
        self.0.algorithm()
    }

    /// `kid`: the name of the key.
    pub fn key_id(&self) -> Option<&str> {
        self.0.header().key_id.as_deref()
    }

    /// Returns true if the third part is not empty.
    pub fn has_signature(&self) -> bool {
        !self.0.signature_bytes().is_empty()
    }

    /// Verifies that `key` signed the JWT with `algorithm`, and returns its times. The host's
    /// cryptography is used where it can be.
    pub(crate) fn verify(
        &self,
        crypto: Option<&TestedCrypto>,
        algorithm: Algorithm,
        key: &VerifyingKey,
    ) -> Result<Times, JwtError> {
        match (Jws { algorithm, crypto }).validator::<IgnoredAny>(key).validate(&self.0) {
            Ok(token) => {
                let (_, claims) = token.into_parts();
                Ok(Times {
                    expiration: claims.expiration.map(|time| time.timestamp()),
                    not_before: claims.not_before.map(|time| time.timestamp()),
                    issued_at: claims.issued_at.map(|time| time.timestamp()),
                })
            }
            Err(ValidationError::MalformedClaims(_)) => Err(JwtError::Claims),
            Err(_) => Err(JwtError::Signature),
        }
    }
}
