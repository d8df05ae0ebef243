//! A host with cryptography of its own: aws-lc, which the filter itself does not use. A test can
//! make the host misbehave.

use std::cell::Cell;
use std::rc::Rc;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    self, EcdsaKeyPair, RsaKeyPair, UnparsedPublicKey, VerificationAlgorithm,
};

use crate::host::{Expected, Host, HostFailure, SharedData, Swap, UnixTime, Version};
use crate::jose::{NativeCrypto, SigningKey, TestedCrypto};

/// A host that has a clock and randomness, and no shared data.
#[derive(Default)]
pub(crate) struct TestHost {
    pub(crate) now: Cell<UnixTime>,
    pub(crate) random_fails: Cell<bool>,
    pub(crate) native: Option<TestedCrypto>,
}

impl SharedData for TestHost {
    fn get(&self, _key: &str) -> Result<Option<(Vec<u8>, Version)>, HostFailure> {
        Err(HostFailure("shared data"))
    }

    fn compare_and_set(
        &self,
        _key: &str,
        _value: &[u8],
        _expected: Expected,
    ) -> Result<Swap, HostFailure> {
        Err(HostFailure("shared data"))
    }
}

impl Host for TestHost {
    fn now(&self) -> UnixTime {
        self.now.get()
    }

    fn random(&self, buffer: &mut [u8]) -> Result<(), HostFailure> {
        if self.random_fails.get() {
            return Err(HostFailure("randomness"));
        }
        getrandom::fill(buffer).map_err(|_| HostFailure("randomness"))
    }
}

/// The message of the self-test, which a malicious host could recognize.
const SELF_TEST: &[u8] = b"impersonation-filter self-test";

/// aws-lc as the signature functions of a host.
pub(crate) struct AwsLc {
    pub(crate) manner: Manner,
    /// The number of calls to verify.
    pub(crate) verified: Rc<Cell<u32>>,
    /// The number of calls to sign.
    pub(crate) signed: Rc<Cell<u32>>,
}

/// How a host behaves.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    Honest,
    Absent,
    AlwaysYes,
    AlwaysNo,
    /// Accepts any signature of the self-test's message.
    IgnoresTheKey,
    /// Verifies every signature against the self-test's message.
    IgnoresTheMessage,
    /// Signs, and flips one bit of the signature.
    SignsBadly,
    /// Signs with another key.
    SignsWithAnotherKey,
    /// Returns r‖s where DER is expected.
    SignsInAnotherForm,
}

impl AwsLc {
    pub(crate) fn new(manner: Manner) -> Self {
        Self { manner, verified: Rc::default(), signed: Rc::default() }
    }

    /// Runs the self-test.
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
