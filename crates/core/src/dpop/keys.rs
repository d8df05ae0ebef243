//! The keys of proofs. The filter verifies signatures with every kind of key, the guard with the
//! few that its module has room for.

use std::rc::Rc;

use serde_json::Value;

use super::proof::ProofError;
use crate::jose::{
    Algorithm, HOST_KEY_ALGORITHMS, HostKey, NativeCrypto, TestedCrypto, VerifyingKey,
};

/// Verifies the signatures of proofs by the keys that they name.
pub trait ProofKeys {
    /// The algorithms that a proof may be signed with.
    fn algorithms(&self) -> &'static [Algorithm];

    /// Refuses a proof whose key is not a public key for `algorithm`, or did not make `signature`.
    fn verify(
        &self,
        jwk: &Value,
        algorithm: Algorithm,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), ProofError>;
}

/// Keys of every kind. The host verifies where it can.
pub struct AllKeys {
    algorithms: &'static [Algorithm],
    crypto: Option<Rc<TestedCrypto>>,
}

impl AllKeys {
    /// Accepts these algorithms.
    pub const fn new(algorithms: &'static [Algorithm], crypto: Option<Rc<TestedCrypto>>) -> Self {
        Self { algorithms, crypto }
    }
}

impl ProofKeys for AllKeys {
    fn algorithms(&self) -> &'static [Algorithm] {
        self.algorithms
    }

    fn verify(
        &self,
        jwk: &Value,
        algorithm: Algorithm,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), ProofError> {
        let key = VerifyingKey::from_jwk(jwk).map_err(|_| ProofError::Key)?;
        if !key.accepts(algorithm) || key.is_costly() {
            return Err(ProofError::Key);
        }
        let is_good = key.verify(self.crypto.as_deref(), algorithm, message, signature);
        if is_good { Ok(()) } else { Err(ProofError::Signature) }
    }
}

/// Keys of the curves that the host verifies.
pub struct KeysOfHost(pub(crate) Box<dyn NativeCrypto>);

impl ProofKeys for KeysOfHost {
    fn algorithms(&self) -> &'static [Algorithm] {
        HOST_KEY_ALGORITHMS
    }

    fn verify(
        &self,
        jwk: &Value,
        algorithm: Algorithm,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), ProofError> {
        let key = HostKey::from_jwk(jwk).filter(|key| key.accepts(algorithm));
        let is_good = key.ok_or(ProofError::Key)?.verify(&*self.0, message, signature);
        if is_good { Ok(()) } else { Err(ProofError::Signature) }
    }
}
