//! The self-test of the host's cryptography. It is a file of its own because it needs keys, and
//! keys need the host's cryptography.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use p256::ecdsa::signature::{SignatureEncoding as _, Signer as _};

use super::{NativeCrypto, TestedCrypto, vectors};
use crate::jose::{Algorithm, SigningKey, VerifyingKey};

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
