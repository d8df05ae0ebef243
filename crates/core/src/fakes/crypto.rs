//! Cryptography of a host, which counts how often it is asked.

use std::cell::Cell;
use std::rc::Rc;

use crate::jose::NativeCrypto;

/// A host that verifies ES256 by a library of the test. It signs nothing.
pub struct CountingCrypto {
    /// The number of signatures that it was asked to verify.
    pub verified: Rc<Cell<u32>>,
    /// Verifies by a public key a signature (in DER) of a message.
    pub verify: fn(&[u8], &[u8], &[u8]) -> bool,
}

impl NativeCrypto for CountingCrypto {
    fn sign(&self, _hash: &'static str, _private_key: &[u8], _message: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn verify(
        &self,
        hash: &'static str,
        public_key: &[u8],
        signature: &[u8],
        message: &[u8],
    ) -> Option<bool> {
        self.verified.set(self.verified.get() + 1);
        (hash == "sha256").then(|| (self.verify)(public_key, signature, message))
    }
}
