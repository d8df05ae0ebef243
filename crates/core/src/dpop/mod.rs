//! Proofs of possession in the header `DPoP` (RFC 9449): a client signs the method and the address
//! of each request with a key that never leaves it. A token that is bound to the key is worth
//! nothing to a thief.
//!
//! [`Proofs::check`] makes all checks of RFC 9449 §4.3 but one, and keeps no memory;
//! [`Proofs::read`] leaves out the signature, too. A [`proof::CheckedProof`] becomes a key that a
//! request has proved only by [`proof::CheckedProof::first_use`], which remembers the `jti`.
//! Callers take that step last, for a request that has shown a token that is good: otherwise
//! strangers could fill the memory.
//!
//! The filter and the guard both use this. The address is compared with a configured origin, never
//! with the host that a request names.

mod keys;
mod nonce;
mod proof;
mod target;

pub use keys::{AllKeys, KeysOfHost};
pub use nonce::Nonces;
pub use proof::{ProofError, UnverifiedProof};
pub use target::RequestOrigin;

use self::keys::ProofKeys;
use crate::jose::Algorithm;
use crate::state::shared_data::SeenOnce;

/// The algorithms of proofs at the filter. PKCS #1 v1.5 is left out: no client needs it for a new
/// protocol.
pub const ALGORITHMS: &[Algorithm] =
    &[Algorithm::Es256, Algorithm::Es384, Algorithm::EdDsa, Algorithm::Ed25519, Algorithm::Ps256];

/// The number of buckets of the memory of `jti`s: room for 524 288 proofs in 12 MiB.
const BUCKETS: u32 = 8192;

/// How proofs are checked at one service.
pub struct Proofs {
    origin: RequestOrigin,
    keys: Box<dyn ProofKeys>,
    nonces: Option<Nonces>,
    seen: SeenOnce,
}

/// A request for which a proof is presented.
#[derive(Debug, Clone, Copy)]
pub struct Presented<'r> {
    /// The values of the header fields named `DPoP`.
    pub fields: &'r [Vec<u8>],
    /// The method.
    pub method: &'r [u8],
    /// The path, without the query.
    pub path: &'r [u8],
    /// The access token that the request presents in its `Authorization` header.
    pub token: Option<&'r str>,
}

impl Proofs {
    /// Checks proofs for addresses of `origin`. `kind` keeps the memories of several users of one
    /// service apart.
    pub fn new(
        origin: RequestOrigin,
        keys: impl ProofKeys + 'static,
        nonces: Option<Nonces>,
        (tenant, kind): (&str, &'static str),
    ) -> Self {
        let seen = SeenOnce::with_buckets(tenant, kind, BUCKETS);
        Self { origin, keys: Box::new(keys), nonces, seen }
    }

    /// The algorithms that a proof may be signed with.
    pub fn algorithms(&self) -> &'static [Algorithm] {
        self.keys.algorithms()
    }

    /// The value of `algs` in a challenge (RFC 9449 §7.1).
    pub fn algorithm_names(&self) -> String {
        let names: Vec<_> = self.algorithms().iter().map(|algorithm| algorithm.name()).collect();
        names.join(" ")
    }
}

#[cfg(test)]
mod tests;
