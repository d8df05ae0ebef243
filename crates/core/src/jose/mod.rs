//! Keys and signatures: JWK (RFC 7517), JWS (RFC 7515) with the algorithms of RFC 7518 and RFC 8037.
//!
//! Parsing and the types that tell an untrusted token from a verified one are `jwt-compact`'s. Here is
//! what it leaves to its users: which key may be used with which algorithm, key sets in which one bad
//! key does not spoil the rest, and signing without encoding the same header again for each token.

mod factorable;
mod jwt;
mod key_set;
mod native;
mod signing;
mod verifying;

use std::fmt;

pub use jwt::{Claims, JwtError, UntrustedJwt};
pub use key_set::KeySet;
pub use native::{NativeCrypto, TestedCrypto};
pub(crate) use signing::ACCESS_TOKEN_TYPE;
pub use signing::{PublishedKey, SignError, SigningKey, SigningKeyError, private_from_pem};
pub use verifying::{VerifyingKey, VerifyingKeyError};

/// A signature algorithm (RFC 7518 §3.1, RFC 8037 §3.1, RFC 9864 §2.2). There is no `none` and no HMAC to confuse a
/// public key with (RFC 8725 §2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// Ed25519, under the name that it had first: any Edwards curve, by the key.
    EdDsa,
    /// Ed25519, under the name of its own that it was given later. The same signatures as [`Self::EdDsa`] here.
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

    /// Its name in a JOSE header.
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

    /// Whether both names stand for the same signatures.
    fn is_same_as(self, other: Self) -> bool {
        let [this, other] = [self, other].map(|algorithm| match algorithm {
            Self::Ed25519 => Self::EdDsa,
            other => other,
        });
        this == other
    }

    /// The algorithm of that name; `None` for one that we neither make nor accept.
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
