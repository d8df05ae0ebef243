//! The cryptography of a host: aws-lc, which the filter does not use, under a layer that can lie.

use std::cell::Cell;
use std::rc::Rc;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    self, EcdsaKeyPair, RsaKeyPair, UnparsedPublicKey, VerificationAlgorithm,
};

use crate::jose::{NativeCrypto, SigningKey, TestedCrypto};

/// The message that the filter tests a host with. A host that has seen it once can recognize it.
const SELF_TEST: &[u8] = b"impersonation-filter self-test";

/// aws-lc as the signature functions of a host.
pub(crate) struct AwsLc {
    pub(crate) manner: Manner,
    /// The number of signatures that it was asked to verify.
    pub(crate) verified: Rc<Cell<u32>>,
    /// The number of messages that it was asked to sign.
    pub(crate) signed: Rc<Cell<u32>>,
}

/// The way in which a host signs and verifies.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    Honest,
    Absent,
    AlwaysYes,
    AlwaysNo,
    /// Accepts the message of the self-test by any key, and no other message.
    IgnoresTheKey,
    /// Takes every message for that of the self-test.
    IgnoresTheMessage,
    /// Flips one bit of each signature.
    SignsBadly,
    /// Signs with another key.
    SignsWithAnotherKey,
    /// Answers r‖s where DER is expected.
    SignsInAnotherForm,
}

impl AwsLc {
    pub(crate) fn new(manner: Manner) -> Self {
        Self { manner, verified: Rc::default(), signed: Rc::default() }
    }

    /// This cryptography after its self-test, as a host offers it.
    pub(crate) fn tested(self, key: &SigningKey) -> TestedCrypto {
        TestedCrypto::new(Box::new(self), key)
    }
}

impl NativeCrypto for AwsLc {
    fn sign(&self, hash: &'static str, private_key: &[u8], message: &[u8]) -> Option<Vec<u8>> {
        self.signed.set(self.signed.get().saturating_add(1));
        let random = SystemRandom::new();
        let (asn1, fixed) = match hash {
            "sha256" => (
                &signature::ECDSA_P256_SHA256_ASN1_SIGNING,
                &signature::ECDSA_P256_SHA256_FIXED_SIGNING,
            ),
            _ => (
                &signature::ECDSA_P384_SHA384_ASN1_SIGNING,
                &signature::ECDSA_P384_SHA384_FIXED_SIGNING,
            ),
        };
        let form = if self.manner == Manner::SignsInAnotherForm { fixed } else { asn1 };
        let signature = match (self.manner, EcdsaKeyPair::from_pkcs8(form, private_key)) {
            (Manner::Absent, _) => None,
            (Manner::SignsWithAnotherKey, Ok(_)) => {
                let another = EcdsaKeyPair::generate(asn1).ok()?;
                Some(another.sign(&random, message).ok()?.as_ref().to_vec())
            }
            (_, Ok(key)) => Some(key.sign(&random, message).ok()?.as_ref().to_vec()),
            (_, Err(_)) => {
                let key = RsaKeyPair::from_pkcs8(private_key).ok()?;
                let mut signature = vec![0; key.public_modulus_len()];
                key.sign(&signature::RSA_PKCS1_SHA256, &random, message, &mut signature).ok()?;
                Some(signature)
            }
        };
        signature.map(|mut signature| {
            if let (Manner::SignsBadly, Some(last)) = (self.manner, signature.last_mut()) {
                *last ^= 1;
            }
            signature
        })
    }

    fn verify(
        &self,
        hash: &'static str,
        public_key: &[u8],
        signature: &[u8],
        message: &[u8],
    ) -> Option<bool> {
        self.verified.set(self.verified.get().saturating_add(1));
        let message = if self.manner == Manner::IgnoresTheMessage { SELF_TEST } else { message };
        let good = || {
            let of_kind = |rsa: &'static dyn VerificationAlgorithm,
                           ec: &'static dyn VerificationAlgorithm| {
                let by_rsa = UnparsedPublicKey::new(rsa, public_key).verify(message, signature);
                let by_ec = || UnparsedPublicKey::new(ec, public_key).verify(message, signature);
                by_rsa.is_ok() || by_ec().is_ok()
            };
            match hash {
                "sha256" => of_kind(
                    &signature::RSA_PKCS1_2048_8192_SHA256,
                    &signature::ECDSA_P256_SHA256_ASN1,
                ),
                "sha384" => of_kind(
                    &signature::RSA_PKCS1_2048_8192_SHA384,
                    &signature::ECDSA_P384_SHA384_ASN1,
                ),
                _ => UnparsedPublicKey::new(&signature::RSA_PKCS1_2048_8192_SHA512, public_key)
                    .verify(message, signature)
                    .is_ok(),
            }
        };
        match self.manner {
            Manner::Absent => None,
            Manner::AlwaysYes => Some(true),
            Manner::AlwaysNo => Some(false),
            Manner::IgnoresTheKey => Some(message == SELF_TEST),
            _ => Some(good()),
        }
    }
}
