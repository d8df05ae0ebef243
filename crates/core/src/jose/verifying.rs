//! Public keys. Each verifies the algorithms of its kind and no other (RFC 8725 §3.1).

use std::borrow::Cow;
use std::convert::Infallible;

use jwt_compact::AlgorithmSignature;
use p256::ecdsa::signature::Verifier as _;
use rsa::pkcs8::EncodePublicKey as _;
use rsa::pss;
use rsa::traits::PublicKeyParts as _;
use rsa::{BigUint, RsaPublicKey, pkcs1v15};
use serde_json::Value;
use sha2::{Sha256, Sha384, Sha512};

use super::factorable::is_factorable;
use super::jwk::{self, Jwk, Malformed};
use super::{Algorithm, TestedCrypto};

/// The length of the shortest RSA key that is secure (RFC 7518 §3.3).
const MIN_RSA_BITS: usize = 2048;

/// The length of the longest RSA key, and its exponent, that somebody may choose for whom the
/// filter verifies without having agreed to the key.
const LONGEST_CHOSEN_RSA_BITS: usize = 3072;
const CHOSEN_RSA_EXPONENT: u32 = 65_537;

/// A public key, and the algorithms that it may be used with.
#[derive(Debug, Clone)]
pub struct VerifyingKey {
    /// The key's name in its set.
    pub(super) kid: Option<String>,
    /// `alg`: the only algorithm of this key, if its owner names one.
    algorithm: Option<Algorithm>,
    key: PublicKey,
    /// The key as a `SubjectPublicKeyInfo` for the host; `None` if the host cannot use such keys.
    der: Option<Vec<u8>>,
}

#[derive(Debug, Clone)]
enum PublicKey {
    Ed25519(ed25519_dalek::VerifyingKey),
    P256(p256::ecdsa::VerifyingKey),
    P384(p384::ecdsa::VerifyingKey),
    Rsa(RsaPublicKey),
}

/// Why a JWK is not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VerifyingKeyError {
    /// The key has another purpose: it encrypts, is symmetric, or has a curve or algorithm that the
    /// filter does not accept. A key set may hold such keys.
    #[error("not a key for a signature algorithm that is accepted here")]
    NotForUs,
    /// The key is for verifying signatures, but malformed.
    #[error("malformed key")]
    Malformed,
    /// The RSA key is too short to be secure, or too long to verify with in reasonable time.
    #[error("RSA keys need 2048 to 4096 bits")]
    Weak,
    /// An attacker can factor the RSA key, and then sign with it.
    #[error("an RSA key of a broken generator, which can be factored (CVE-2017-15361)")]
    Factorable,
}

impl VerifyingKey {
    /// Reads one key of a key set.
    pub fn from_jwk(jwk: &Value) -> Result<Self, VerifyingKeyError> {
        let malformed = |Malformed| VerifyingKeyError::Malformed;
        let text = |name| jwk::text(jwk, name).map_err(malformed);
        let [kid, alg, usage, curve] = [text("kid")?, text("alg")?, text("use")?, text("crv")?];
        let kty = text("kty")?.ok_or(VerifyingKeyError::Malformed)?;
        let operations = match jwk.get("key_ops").filter(|operations| !operations.is_null()) {
            Some(operations) => Some(texts(operations).ok_or(VerifyingKeyError::Malformed)?),
            None => None,
        };
        let known = matches!(
            (kty, curve),
            ("RSA", _) | ("OKP", Some("Ed25519")) | ("EC", Some("P-256" | "P-384"))
        );
        let signs = usage.is_none_or(|usage| usage == "sig")
            && operations.is_none_or(|operations| operations.contains(&"verify"));
        if !known || !signs {
            return Err(VerifyingKeyError::NotForUs);
        }
        let algorithm = match alg {
            None => None,
            Some(name) => Some(Algorithm::from_name(name).ok_or(VerifyingKeyError::NotForUs)?),
        };
        let key = PublicKey::from_jwk(&Jwk::read(jwk).map_err(malformed)?)?;
        Ok(Self { kid: kid.map(str::to_owned), algorithm, ..Self::new(key) })
    }

    fn new(key: PublicKey) -> Self {
        let der = match &key {
            PublicKey::Ed25519(_) => None,
            PublicKey::P256(key) => Self::p256_der(key),
            PublicKey::P384(key) => Self::p384_der(key),
            PublicKey::Rsa(key) => key.to_public_key_der().ok().map(|der| der.into_vec()),
        };
        Self { kid: None, algorithm: None, key, der }
    }

    pub(super) fn from_ecdsa_p256(key: &p256::ecdsa::VerifyingKey) -> Self {
        Self::new(PublicKey::P256(*key))
    }

    pub(super) fn from_ecdsa_p384(key: &p384::ecdsa::VerifyingKey) -> Self {
        Self::new(PublicKey::P384(*key))
    }

    pub(super) fn from_rsa(key: RsaPublicKey) -> Self {
        Self::new(PublicKey::Rsa(key))
    }

    pub(super) fn p256_der(key: &p256::ecdsa::VerifyingKey) -> Option<Vec<u8>> {
        key.to_public_key_der().ok().map(|der| der.into_vec())
    }

    pub(super) fn p384_der(key: &p384::ecdsa::VerifyingKey) -> Option<Vec<u8>> {
        key.to_public_key_der().ok().map(|der| der.into_vec())
    }

    /// `alg`: the only algorithm of this key, if its owner names one.
    pub(super) const fn only_algorithm(&self) -> Option<Algorithm> {
        self.algorithm
    }

    /// Returns true if verifying with this key can take milliseconds: an RSA key is long, or has an
    /// exponent that nobody needs. A key that comes in a request must not be such a key.
    pub(crate) fn is_costly(&self) -> bool {
        match &self.key {
            PublicKey::Rsa(key) => {
                key.n().bits() > LONGEST_CHOSEN_RSA_BITS
                    || *key.e() != BigUint::from(CHOSEN_RSA_EXPONENT)
            }
            PublicKey::Ed25519(_) | PublicKey::P256(_) | PublicKey::P384(_) => false,
        }
    }

    /// Returns true if this key may verify signatures of `algorithm`.
    pub fn accepts(&self, algorithm: Algorithm) -> bool {
        self.algorithm.is_none_or(|only| only.is_same_as(algorithm))
            && match self.key {
                PublicKey::Ed25519(_) => {
                    matches!(algorithm, Algorithm::EdDsa | Algorithm::Ed25519)
                }
                PublicKey::P256(_) => algorithm == Algorithm::Es256,
                PublicKey::P384(_) => algorithm == Algorithm::Es384,
                PublicKey::Rsa(_) => matches!(
                    algorithm,
                    Algorithm::Rs256 | Algorithm::Rs384 | Algorithm::Rs512 | Algorithm::Ps256
                ),
            }
    }

    /// Returns true if this key made `signature` for `message`. The host verifies where it can.
    pub fn verify(
        &self,
        native: Option<&TestedCrypto>,
        algorithm: Algorithm,
        message: &[u8],
        signature: &[u8],
    ) -> bool {
        if !self.accepts(algorithm) {
            return false;
        }
        let by_host = native
            .zip(self.der.as_deref())
            .and_then(|(native, key)| native.verify(algorithm, key, signature, message));
        by_host.unwrap_or_else(|| self.key.verify(algorithm, message, signature).is_some())
    }
}

impl PublicKey {
    fn from_jwk(jwk: &Jwk<'_>) -> Result<Self, VerifyingKeyError> {
        let key = match jwk {
            Jwk::Edwards { curve, x, .. } => ed25519(curve, x).map(Self::Ed25519),
            Jwk::Elliptic { curve: "P-384", x, y, .. } => p384(x, y).map(Self::P384),
            Jwk::Elliptic { curve, x, y, .. } => p256(curve, x, y).map(Self::P256),
            Jwk::Rsa { modulus, exponent, .. } => {
                let [n, e] = [modulus, exponent].map(|number| BigUint::from_bytes_be(number));
                if !(MIN_RSA_BITS..=RsaPublicKey::MAX_SIZE).contains(&n.bits()) {
                    return Err(VerifyingKeyError::Weak);
                }
                if is_factorable(modulus) {
                    return Err(VerifyingKeyError::Factorable);
                }
                RsaPublicKey::new(n, e).map(Self::Rsa).ok()
            }
        };
        key.ok_or(VerifyingKeyError::Malformed)
    }

    fn verify(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> Option<()> {
        match self {
            Self::Ed25519(key) => {
                let signature = ed25519_dalek::Signature::from_slice(signature).ok()?;
                key.verify_strict(message, &signature).ok()
            }
            Self::P256(key) => {
                let signature = p256::ecdsa::Signature::from_slice(signature).ok()?;
                key.verify(message, &signature).ok()
            }
            Self::P384(key) => {
                let signature = p384::ecdsa::Signature::from_slice(signature).ok()?;
                key.verify(message, &signature).ok()
            }
            Self::Rsa(key) if algorithm == Algorithm::Ps256 => {
                let signature = pss::Signature::try_from(signature).ok()?;
                pss::VerifyingKey::<Sha256>::new(key.clone()).verify(message, &signature).ok()
            }
            Self::Rsa(key) => {
                let signature = pkcs1v15::Signature::try_from(signature).ok()?;
                let key = key.clone();
                match algorithm {
                    Algorithm::Rs384 => {
                        pkcs1v15::VerifyingKey::<Sha384>::new(key).verify(message, &signature)
                    }
                    Algorithm::Rs512 => {
                        pkcs1v15::VerifyingKey::<Sha512>::new(key).verify(message, &signature)
                    }
                    _ => pkcs1v15::VerifyingKey::<Sha256>::new(key).verify(message, &signature),
                }
                .ok()
            }
        }
    }
}

/// Reads strings.
fn texts(list: &Value) -> Option<Vec<&str>> {
    list.as_array()?.iter().map(Value::as_str).collect()
}

/// Reads a public key on the Edwards curve that is accepted.
pub(super) fn ed25519(curve: &str, x: &[u8]) -> Option<ed25519_dalek::VerifyingKey> {
    let x: &[u8; 32] = x.try_into().ok().filter(|_| curve == "Ed25519")?;
    ed25519_dalek::VerifyingKey::from_bytes(x).ok()
}

/// Reads a public key on P-256.
pub(super) fn p256(curve: &str, x: &[u8], y: &[u8]) -> Option<p256::ecdsa::VerifyingKey> {
    let x: [u8; 32] = x.try_into().ok().filter(|_| curve == "P-256")?;
    let y: [u8; 32] = y.try_into().ok()?;
    let point = p256::EncodedPoint::from_affine_coordinates(&x.into(), &y.into(), false);
    p256::ecdsa::VerifyingKey::from_encoded_point(&point).ok()
}

/// Reads a public key on P-384.
pub(super) fn p384(x: &[u8], y: &[u8]) -> Option<p384::ecdsa::VerifyingKey> {
    let x: [u8; 48] = x.try_into().ok()?;
    let y: [u8; 48] = y.try_into().ok()?;
    let point = p384::EncodedPoint::from_affine_coordinates(&x.into(), &y.into(), false);
    p384::ecdsa::VerifyingKey::from_encoded_point(&point).ok()
}

/// One algorithm as an algorithm of `jwt-compact`, whose validator checks that the token names this
/// algorithm before it verifies the signature. It only verifies, so its signing key has no values.
#[derive(Clone, Copy)]
pub(super) struct Jws<'h> {
    /// The algorithm that a token must name.
    pub(super) algorithm: Algorithm,
    /// The host's cryptography, if it passed the self-test.
    pub(super) crypto: Option<&'h TestedCrypto>,
}

/// The bytes of a signature, whose form the algorithm checks.
#[derive(Debug)]
pub(super) struct Signature(Vec<u8>);

impl AlgorithmSignature for Signature {
    fn try_from_slice(slice: &[u8]) -> Result<Self, anyhow::Error> {
        Ok(Self(slice.to_vec()))
    }

    fn as_bytes(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.0)
    }
}

impl jwt_compact::Algorithm for Jws<'_> {
    type SigningKey = Infallible;
    type VerifyingKey = VerifyingKey;
    type Signature = Signature;

    fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed(self.algorithm.name())
    }

    fn sign(&self, signing_key: &Infallible, _message: &[u8]) -> Signature {
        match *signing_key {}
    }

    fn verify_signature(&self, signature: &Signature, key: &VerifyingKey, message: &[u8]) -> bool {
        key.verify(self.crypto, self.algorithm, message, &signature.0)
    }
}
