//! The checks of a proof (RFC 9449 §4.3), in the order of the RFC where that order costs nothing.
//!
//! The signature comes last: it costs more than everything else together, and whoever sends a proof
//! chooses its key. A caller that can still refuse a request for a reason of its own does so in
//! between.
//!
//! The proof names its own key, so a good signature says only that whoever made the proof has the
//! key. Everything else follows from what the key is compared with: a token that is bound to it.

use serde_json::{Map, Value};

use super::{Presented, Proofs, nonce};
use crate::confirmation::Possession;
use crate::host::{Host, UnixTime};
use crate::jose::{Algorithm, thumbprint};
use crate::secret::Digest;
use crate::state::shared_data::NotRemembered;
use crate::statement::Compact;

/// The longest proof that is read, in bytes. A proof by an RSA key of 4096 bits has about 2700.
const MAX_LEN: usize = 4096;

/// How long ago `iat` may be, in seconds.
const FRESH_FOR: u64 = 60;

/// How far `iat` may lie in the future, in seconds: as far as the FAPI 2.0 Security Profile
/// (§5.3.2.1) requires. A proof that is made ahead of its time is one that somebody keeps for
/// later.
const AHEAD: u64 = 10;

/// The only `typ` of a proof.
const TYPE: &str = "dpop+jwt";

/// The members of a JWK that are secret (RFC 7518 §6.2.2, §6.3.2, §6.4.1).
const PRIVATE: [&str; 8] = ["d", "p", "q", "dp", "dq", "qi", "oth", "k"];

/// Why a proof is refused. The check of RFC 9449 §4.3 is in brackets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    /// There is no proof.
    #[error("no proof")]
    Missing,
    /// There are several header fields (1).
    #[error("several proofs")]
    Repeated,
    /// The proof is not a JWT (2), or is too long.
    #[error("not a JWT")]
    NotAJwt,
    /// A claim is missing or has the wrong type (3).
    #[error("a claim is missing or malformed: {0}")]
    Claims(&'static str),
    /// `typ` is another one (4).
    #[error("typ is not dpop+jwt")]
    Type,
    /// The algorithm is not accepted (5).
    #[error("the algorithm is not accepted")]
    Algorithm,
    /// The key is missing, malformed, weak, or not for the algorithm (6).
    #[error("jwk is not a key for the algorithm")]
    Key,
    /// The key did not make the signature (6).
    #[error("bad signature")]
    Signature,
    /// `jwk` has a private or symmetric key (7).
    #[error("jwk has a private key")]
    PrivateKey,
    /// The proof is for another method (8).
    #[error("htm is another method")]
    Method,
    /// The proof is for another address (9).
    #[error("htu is another address")]
    Target,
    /// The nonce is missing, or not one of the filter's of late (10).
    #[error("no nonce of ours")]
    Nonce,
    /// The proof was made too long ago, or in the future (11).
    #[error("iat is not now")]
    Time,
    /// The proof is for another access token (12).
    #[error("ath is not the hash of the access token")]
    Token,
    /// The access token is bound to another key (12).
    #[error("the access token is bound to another key")]
    AnotherKey,
    /// The proof was used before (RFC 9449 §11.1).
    #[error("the proof was used before")]
    Replayed,
    /// The proof could not be remembered, so nobody knows if it is new.
    #[error(transparent)]
    NotRemembered(#[from] NotRemembered),
}

impl ProofError {
    /// The check that failed, as a name for metrics.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Missing => "proof_missing",
            Self::Nonce => "proof_nonce",
            Self::AnotherKey => "proof_another_key",
            Self::Replayed => "proof_replayed",
            Self::NotRemembered(_) => "proof_not_remembered",
            _ => "proof_invalid",
        }
    }
}

/// A proof that passed every check but those of its signature and its `jti`. Anybody may have
/// written it.
#[must_use]
pub struct UnverifiedProof<'p> {
    proof: Compact<'p>,
    algorithm: Algorithm,
    checked: CheckedProof,
}

/// A proof that passed every check but that of its `jti`.
#[derive(Debug)]
#[must_use]
pub struct CheckedProof {
    key: Digest,
    /// The key and the `jti`. Two clients may choose the same `jti`.
    id: Vec<u8>,
    /// When the proof can no longer be presented.
    until: UnixTime,
}

impl Proofs {
    /// Checks a proof, except that it was not used before.
    pub fn check(
        &self,
        host: &dyn Host,
        presented: Presented<'_>,
    ) -> Result<CheckedProof, ProofError> {
        self.verify(self.read(host, presented)?)
    }

    /// Checks the signature of a proof.
    pub fn verify(&self, unverified: UnverifiedProof<'_>) -> Result<CheckedProof, ProofError> {
        let UnverifiedProof { proof, algorithm, checked } = unverified;
        let jwk = proof.header.get("jwk").ok_or(ProofError::Key)?;
        self.keys.verify(jwk, algorithm, proof.signed.as_bytes(), &proof.signature)?;
        Ok(checked)
    }

    /// Checks a proof, except its signature, and that it was not used before.
    pub fn read<'p>(
        &self,
        host: &dyn Host,
        presented: Presented<'p>,
    ) -> Result<UnverifiedProof<'p>, ProofError> {
        let now = host.now();
        let field = match presented.fields {
            [] => return Err(ProofError::Missing),
            [one] => one,
            [..] => return Err(ProofError::Repeated),
        };
        let text = std::str::from_utf8(field).ok().filter(|text| text.len() <= MAX_LEN);
        let proof = text.and_then(Compact::parse).ok_or(ProofError::NotAJwt)?;
        if proof.header.get("typ").and_then(Value::as_str) != Some(TYPE) {
            return Err(ProofError::Type);
        }
        let algorithm = self.algorithm(&proof.header)?;
        let jwk = proof.header.get("jwk").filter(|jwk| jwk.is_object()).ok_or(ProofError::Key)?;
        if PRIVATE.iter().any(|name| jwk.get(name).is_some()) {
            return Err(ProofError::PrivateKey);
        }
        let thumbprint = thumbprint(jwk).ok_or(ProofError::Key)?;
        let claims = Claims::read(&proof.claims)?;
        if claims.htm.as_bytes() != presented.method {
            return Err(ProofError::Method);
        }
        if !self.origin.has(claims.htu, presented.path) {
            return Err(ProofError::Target);
        }
        if let Some(token) = presented.token {
            let hash = claims.ath.and_then(Digest::from_base64url).ok_or(ProofError::Token)?;
            if !hash.matches(&Digest::of(token.as_bytes())) {
                return Err(ProofError::Token);
            }
        }
        let until = match &self.nonces {
            None if claims.iat > now.secs().saturating_add(AHEAD) => return Err(ProofError::Time),
            None if claims.iat.saturating_add(FRESH_FOR) < now.secs() => {
                return Err(ProofError::Time);
            }
            None => {
                UnixTime::from_millis(claims.iat.saturating_add(FRESH_FOR + 1).saturating_mul(1000))
            }
            Some(nonces) if claims.nonce.is_some_and(|nonce| nonces.accept(host, nonce)) => {
                now.after(nonce::LONGEST)
            }
            Some(_) => return Err(ProofError::Nonce),
        };
        let id = [&thumbprint.as_bytes()[..], claims.jti.as_bytes()].concat();
        let checked = CheckedProof { key: thumbprint, id, until };
        Ok(UnverifiedProof { proof, algorithm, checked })
    }

    /// The nonce that a client should put into its next proof; `None` where proofs need none.
    pub fn nonce(&self, host: &dyn Host) -> Option<String> {
        self.nonces.as_ref()?.current(host)
    }

    fn algorithm(&self, header: &Map<String, Value>) -> Result<Algorithm, ProofError> {
        let named = header.get("alg").and_then(Value::as_str).and_then(Algorithm::from_name);
        named.filter(|named| self.algorithms().contains(named)).ok_or(ProofError::Algorithm)
    }
}

impl CheckedProof {
    /// The thumbprint of the key that signed the proof.
    #[cfg(test)]
    pub(super) const fn key(&self) -> Digest {
        self.key
    }

    /// Refuses a proof by another key than the one that an access token is bound to.
    pub fn by(self, key: &Digest) -> Result<Self, ProofError> {
        if self.key.matches(key) { Ok(self) } else { Err(ProofError::AnotherKey) }
    }

    /// Remembers the proof. Refuses one that was used before, and one that cannot be remembered.
    /// The key has a share of the memory: a token is bound to it, so nobody has many such keys.
    pub fn first_use(self, host: &dyn Host, proofs: &Proofs) -> Result<Possession, ProofError> {
        let key = self.key;
        self.first_use_by(host, proofs, key.as_bytes())
    }

    /// Remembers the proof of a key that nobody has approved, as [`first_use`](Self::first_use) does.
    /// Anybody can make such keys, so the share of the memory is that of the `bearer`.
    pub fn first_use_by(
        self,
        host: &dyn Host,
        proofs: &Proofs,
        bearer: &[u8],
    ) -> Result<Possession, ProofError> {
        if proofs.seen.first_time(host, bearer, &self.id, self.until)? {
            Ok(Possession { key: Some(self.key), certificate: None })
        } else {
            Err(ProofError::Replayed)
        }
    }
}

/// The claims of a proof (RFC 9449 §4.2).
struct Claims<'p> {
    jti: &'p str,
    htm: &'p str,
    htu: &'p str,
    iat: u64,
    ath: Option<&'p str>,
    nonce: Option<&'p str>,
}

impl<'p> Claims<'p> {
    fn read(claims: &'p Map<String, Value>) -> Result<Self, ProofError> {
        let text = |name: &'static str| {
            let value = claims.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
            value.ok_or(ProofError::Claims(name))
        };
        let optional = |name: &'static str| {
            if claims.contains_key(name) { text(name).map(Some) } else { Ok(None) }
        };
        Ok(Self {
            jti: text("jti")?,
            htm: text("htm")?,
            htu: text("htu")?,
            iat: claims.get("iat").and_then(seconds).ok_or(ProofError::Claims("iat"))?,
            ath: optional("ath")?,
            nonce: optional("nonce")?,
        })
    }
}

/// Reads a time in seconds, which may have a fraction (RFC 7519 §2).
fn seconds(time: &Value) -> Option<u64> {
    time.as_u64().or_else(|| {
        let time = time.as_f64().filter(|time| (0.0..1e15).contains(time))?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "within bounds"
        )]
        Some(time as u64)
    })
}
