//! Keys and signatures: JWK (RFC 7517), JWS (RFC 7515) with the algorithms of RFC 7518 and RFC
//! 8037.
//!
//! The crate `jwt-compact` parses tokens, and has different types for untrusted and verified
//! tokens. This module adds what the crate leaves to its users: which key may be used with which
//! algorithm, key sets in which one bad key does not spoil the rest, and signing without encoding
//! the same header for each token.

mod factorable;
mod host_key;
mod jwk;
mod jwt;
mod key_set;
mod native;
mod signing;
mod thumbprint;
mod verifying;

use std::fmt;

pub(crate) use host_key::{HOST_KEY_ALGORITHMS, HostKey, host_verifies};
pub use jwt::UntrustedJwt;
pub(crate) use jwt::{JwtError, Times};
pub use key_set::KeySet;
pub use native::{NativeCrypto, TestedCrypto};
pub use signing::{
    AccessTokenType, PublishedKey, SignError, SigningKey, SigningKeyError, private_from_pem,
};
pub(crate) use thumbprint::thumbprint;
pub use verifying::{VerifyingKey, VerifyingKeyError};

/// A signature algorithm (RFC 7518 §3.1, RFC 8037 §3.1, RFC 9864 §2.2). `none` and HMAC are not
/// accepted: an attacker could use a public key as the secret of an HMAC (RFC 8725 §2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// Ed25519 by its first name, which stands for any Edwards curve. The key says which.
    EdDsa,
    /// Ed25519 by its own, later name. Its signatures are those of [`Self::EdDsa`].
    Ed25519,
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// ECDSA on P-384 with SHA-384.
    Es384,
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    Rs256,
    /// RSASSA-PKCS1-v1_5 with SHA-384.
    Rs384,
    /// RSASSA-PKCS1-v1_5 with SHA-512.
    Rs512,
    /// RSASSA-PSS with SHA-256.
    Ps256,
}

impl Algorithm {
    const ALL: [Self; 8] = [
        Self::EdDsa,
        Self::Ed25519,
        Self::Es256,
        Self::Es384,
        Self::Rs256,
        Self::Rs384,
        Self::Rs512,
        Self::Ps256,
    ];

    /// The algorithm's name in a JOSE header.
    pub const fn name(self) -> &'static str {
        match self {
            Self::EdDsa => "EdDSA",
            Self::Ed25519 => "Ed25519",
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::Rs256 => "RS256",
            Self::Rs384 => "RS384",
            Self::Rs512 => "RS512",
            Self::Ps256 => "PS256",
        }
    }

    /// Returns true if both names stand for the same signatures.
    fn is_same_as(self, other: Self) -> bool {
        let [this, other] = [self, other].map(|algorithm| match algorithm {
            Self::Ed25519 => Self::EdDsa,
            other => other,
        });
        this == other
    }

    /// The algorithm with this name; `None` if the filter does not accept it.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

#[cfg(test)]
pub(crate) mod tests;
