//! Signatures by the host's cryptography, where the host has it. It is four to thirty times as fast
//! as the crates in the sandbox.
//!
//! No specification says what a host function does, so the filter uses an algorithm of the host
//! only after a self-test: the host must verify signatures of the crates, sign what the crates
//! verify, and refuse another key's signature. The crates do the algorithms that fail the test. The
//! protocol code does not notice the difference.

#[cfg(test)]
mod tests;
mod vectors;

use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use p256::ecdsa::signature::{SignatureEncoding as _, Signer as _};

use super::verifying::VerifyingKey;
use super::{Algorithm, SigningKey};

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
    /// Tests the host's functions. Signing is tested with `signing_key`, the only key that the
    /// filter signs with.
    pub fn new(crypto: Box<dyn NativeCrypto>, signing_key: &SigningKey) -> Self {
        let mut tested = Self { crypto, verifies: Vec::new(), signs: None };
        for algorithm in Algorithm::ALL {
            if tested.passes_verification(algorithm).is_some() {
                tested.verifies.push(algorithm);
            }
        }
        let algorithm = signing_key.algorithm();
        if tested.passes_signing(signing_key).is_some() {
            tested.signs = Some(algorithm);
        }
        tested
    }

    /// Returns true if the host signs with `algorithm`.
    pub(crate) fn signs(&self, algorithm: Algorithm) -> bool {
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

    /// Tests that the host accepts a signature that the crates or OpenSSL made, and refuses it for
    /// another message and for another key.
    fn passes_verification(&self, algorithm: Algorithm) -> Option<()> {
        let (public_key, other_key, signature) = match algorithm {
            Algorithm::Es256 => {
                let [key, other] = [[7; 32], [8; 32]]
                    .map(|secret| p256::ecdsa::SigningKey::from_slice(&secret).ok());
                let (key, other) = (key?, other?);
                let signature: p256::ecdsa::Signature = key.try_sign(vectors::MESSAGE).ok()?;
                (
                    VerifyingKey::p256_der(key.verifying_key())?,
                    VerifyingKey::p256_der(other.verifying_key())?,
                    signature.to_vec(),
                )
            }
            Algorithm::Es384 => {
                let [key, other] = [[7; 48], [8; 48]]
                    .map(|secret| p384::ecdsa::SigningKey::from_slice(&secret).ok());
                let (key, other) = (key?, other?);
                let signature: p384::ecdsa::Signature = key.try_sign(vectors::MESSAGE).ok()?;
                (
                    VerifyingKey::p384_der(key.verifying_key())?,
                    VerifyingKey::p384_der(other.verifying_key())?,
                    signature.to_vec(),
                )
            }
            Algorithm::Rs256 | Algorithm::Rs384 | Algorithm::Rs512 => {
                let signature = match algorithm {
                    Algorithm::Rs256 => vectors::RS256,
                    Algorithm::Rs384 => vectors::RS384,
                    _ => vectors::RS512,
                };
                let key = BASE64_STANDARD.decode(vectors::RSA_KEY).ok()?;
                // Changes the modulus, whose last byte stands before the exponent (five bytes of
                // DER).
                let mut other = key.clone();
                let place = other.len().checked_sub(6)?;
                let last = other.get_mut(place)?;
                *last ^= 0x02;
                (key, other, BASE64_STANDARD.decode(signature).ok()?)
            }
            Algorithm::EdDsa | Algorithm::Ed25519 | Algorithm::Ps256 => return None,
        };
        let verify =
            |key: &[u8], message: &[u8]| self.verify_untested(algorithm, key, &signature, message);
        let right = verify(&public_key, vectors::MESSAGE) == Some(true);
        let wrong_message = verify(&public_key, b"another message") == Some(false);
        let wrong_key = verify(&other_key, vectors::MESSAGE) != Some(true);
        (right && wrong_message && wrong_key).then_some(())
    }

    /// Tests that the crates verify the host's signature with the configured key.
    fn passes_signing(&self, key: &SigningKey) -> Option<()> {
        let signature = self.sign_untested(key.algorithm(), key.native()?, vectors::MESSAGE)?;
        let public = key.verifying_key()?;
        let right = public.verify(None, key.algorithm(), vectors::MESSAGE, &signature);
        let wrong = public.verify(None, key.algorithm(), b"another message", &signature);
        (right && !wrong).then_some(())
    }
}

impl fmt::Display for TestedCrypto {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verifies: Vec<_> = self.verifies.iter().map(|algorithm| algorithm.name()).collect();
        let signs = self.signs.map_or("nothing", Algorithm::name);
        write!(formatter, "the host signs {signs} and verifies {}", verifies.join(", "))
    }
}
