//! Signatures by the host's cryptography, where the host has it. It is four to thirty times as fast
//! as the crates in the sandbox.
//!
//! No specification says what a host function does, so the filter uses an algorithm of the host
//! only after a self-test: the host must verify signatures of the crates, sign what the crates
//! verify, and refuse another key's signature. The crates do the algorithms that fail the test. The
//! protocol code does not notice the difference.

mod self_test;
#[cfg(test)]
mod tests;
mod vectors;

use std::fmt;

use p256::ecdsa::signature::SignatureEncoding as _;

use super::Algorithm;

/// The host's signature functions. ECDSA signatures are DER (RFC 3279 §2.2.3), RSA signatures PKCS
/// #1 v1.5.
pub trait NativeCrypto {
    /// Signs with a PKCS #8 key; `None` if the host cannot sign.
    fn sign(&self, hash: &'static str, private_key: &[u8], message: &[u8]) -> Option<Vec<u8>>;

    /// Verifies with a `SubjectPublicKeyInfo`; `None` if the host cannot verify.
    fn verify(
        &self,
        hash: &'static str,
        public_key: &[u8],
        signature: &[u8],
        message: &[u8],
    ) -> Option<bool>;
}

/// The host's signature functions, and the algorithms that passed the self-test.
pub struct TestedCrypto {
    crypto: Box<dyn NativeCrypto>,
    verifies: Vec<Algorithm>,
    signs: Option<Algorithm>,
}

/// The host's name for the hash of an algorithm; `None` for Ed25519 and PSS, which the host does
/// not have.
const fn hash(algorithm: Algorithm) -> Option<&'static str> {
    match algorithm {
        Algorithm::Es256 | Algorithm::Rs256 => Some("sha256"),
        Algorithm::Es384 | Algorithm::Rs384 => Some("sha384"),
        Algorithm::Rs512 => Some("sha512"),
        Algorithm::EdDsa | Algorithm::Ed25519 | Algorithm::Ps256 => None,
    }
}

/// Converts a signature from the host's form to that of a JWS. For ECDSA that is r‖s (RFC 7518
/// §3.4), each padded with zeros to the length of the curve's order.
fn jws_from_host(algorithm: Algorithm, signature: Vec<u8>) -> Option<Vec<u8>> {
    match algorithm {
        Algorithm::Es256 => Some(p256::ecdsa::Signature::from_der(&signature).ok()?.to_vec()),
        Algorithm::Es384 => Some(p384::ecdsa::Signature::from_der(&signature).ok()?.to_vec()),
        _ => Some(signature),
    }
}

/// Converts a signature from the form of a JWS to the host's form. For ECDSA that is DER, where a
/// number has no leading zeros but one that keeps it from being negative. Returns `None` if the
/// signature has the wrong length, or numbers that are out of range.
fn host_from_jws(algorithm: Algorithm, signature: &[u8]) -> Option<Vec<u8>> {
    match algorithm {
        Algorithm::Es256 => {
            let signature = p256::ecdsa::Signature::from_slice(signature).ok()?;
            Some(signature.to_der().as_bytes().to_vec())
        }
        Algorithm::Es384 => {
            let signature = p384::ecdsa::Signature::from_slice(signature).ok()?;
            Some(signature.to_der().as_bytes().to_vec())
        }
        _ => Some(signature.to_vec()),
    }
}

impl TestedCrypto {
    /// Returns true if the host signs with `algorithm`.
    pub fn signs(&self, algorithm: Algorithm) -> bool {
        self.signs == Some(algorithm)
    }

    /// Signs in the form of a JWS; `None` if the crates must sign.
    pub(super) fn sign(
        &self,
        algorithm: Algorithm,
        private_key: &[u8],
        message: &[u8],
    ) -> Option<Vec<u8>> {
        if self.signs(algorithm) {
            self.sign_untested(algorithm, private_key, message)
        } else {
            None
        }
    }

    /// Verifies a signature in the form of a JWS; `None` if the crates must verify.
    pub(super) fn verify(
        &self,
        algorithm: Algorithm,
        public_key: &[u8],
        signature: &[u8],
        message: &[u8],
    ) -> Option<bool> {
        let tested = self.verifies.contains(&algorithm);
        if tested { self.verify_untested(algorithm, public_key, signature, message) } else { None }
    }

    fn sign_untested(
        &self,
        algorithm: Algorithm,
        private_key: &[u8],
        message: &[u8],
    ) -> Option<Vec<u8>> {
        let signature = self.crypto.sign(hash(algorithm)?, private_key, message)?;
        jws_from_host(algorithm, signature)
    }

    fn verify_untested(
        &self,
        algorithm: Algorithm,
        public_key: &[u8],
        signature: &[u8],
        message: &[u8],
    ) -> Option<bool> {
        // A signature that cannot be converted is not a valid signature.
        let Some(signature) = host_from_jws(algorithm, signature) else { return Some(false) };
        self.crypto.verify(hash(algorithm)?, public_key, &signature, message)
    }
}

impl fmt::Display for TestedCrypto {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verifies: Vec<_> = self.verifies.iter().map(|algorithm| algorithm.name()).collect();
        let signs = self.signs.map_or("nothing", Algorithm::name);
        write!(formatter, "the host signs {signs} and verifies {}", verifies.join(", "))
    }
}
