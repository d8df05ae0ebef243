//! Our own keys: the private key that signs access tokens, and the public keys that are published.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ed25519_dalek::Signer as _;
use ed25519_dalek::pkcs8::DecodePrivateKey as _;
use jwt_compact::jwk::JsonWebKey;
use rsa::pkcs8::EncodePrivateKey as _;
use rsa::signature::{RandomizedSigner as _, SignatureEncoding as _};
use rsa::traits::{PrivateKeyParts as _, PublicKeyParts as _};
use rsa::{RsaPrivateKey, RsaPublicKey, pkcs1v15, pss};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::factorable::is_factorable;
use super::{Algorithm, TestedCrypto, VerifyingKey};
use crate::host::{Host, HostFailure};
use crate::secret::Secret;

/// The `typ` of the access tokens that we sign (RFC 9068 §2.1). It keeps them from being mistaken
/// for ID tokens.
pub(crate) const ACCESS_TOKEN_TYPE: &str = "at+jwt";

/// A key that signs access tokens, parsed once.
pub struct SigningKey {
    algorithm: Algorithm,
    /// The encoded JOSE header with the dot behind it, which is the same for every token.
    encoded_header: String,
    private: PrivateKey,
    /// The private key as PKCS #8 for the host; `None` if the host cannot use such keys.
    der: Option<Secret<Vec<u8>>>,
}

/// A public key in our part of the key set.
#[derive(Debug, Clone, Serialize)]
pub struct PublishedKey {
    #[serde(flatten)]
    key: JsonWebKey<'static>,
    /// The key's name.
    pub kid: String,
    alg: &'static str,
    #[serde(rename = "use")]
    public_key_use: &'static str,
}

/// Why a key cannot sign. The error never reveals the key's contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SigningKeyError {
    /// The JSON is not a JWK of a supported type.
    #[error("a JWK with kty OKP (Ed25519), EC (P-256 or P-384) or RSA")]
    NotAKey,
    /// The JWK has no private part.
    #[error("a private key: this JWK has only the public part")]
    NotPrivate,
    /// The text is not a private key in PEM.
    #[error("a PKCS#8 private key in PEM (BEGIN PRIVATE KEY) for Ed25519, P-256, P-384 or RSA")]
    NotPem,
    /// The private and the public part do not belong together, or have the wrong length.
    #[error("a valid key whose private and public parts belong together")]
    Mismatched,
    /// The RSA key is too short to be secure, or longer than the filter can sign with.
    #[error("an RSA key of 2048 to 4096 bits")]
    Weak,
    /// An attacker can factor the RSA key, and then sign with it.
    #[error("an RSA key of another generator: this one's can be factored (CVE-2017-15361)")]
    Factorable,
    /// `alg` names an algorithm that this kind of key does not support.
    #[error("an alg that fits the key: EdDSA, Ed25519, ES256, ES384, RS256 or PS256")]
    Algorithm,
}

/// Why a signature could not be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SignError {
    /// The key failed to sign.
    #[error("signing with {0} failed")]
    Key(Algorithm),
    /// The host gave no randomness. A later try may succeed.
    #[error("signing with {0} failed: {1}")]
    Host(Algorithm, HostFailure),
}

enum PrivateKey {
    Ed25519(Box<ed25519_dalek::SigningKey>),
    P256(p256::ecdsa::SigningKey),
    P384(p384::ecdsa::SigningKey),
    Rs256(Box<pkcs1v15::SigningKey<Sha256>>),
    Ps256(Box<pss::SigningKey<Sha256>>),
}

/// The members of a JWK that name the key and its algorithm.
#[derive(Deserialize)]
struct NamedKey {
    kid: Option<String>,
    alg: Option<String>,
}

/// Converts a private key from PKCS #8 in PEM to a JWK.
pub fn private_from_pem(pem: &str) -> Result<serde_json::Value, SigningKeyError> {
    let jwk = if let Ok(key) = ed25519_dalek::SigningKey::from_pkcs8_pem(pem) {
        serde_json::to_value(JsonWebKey::from(&key))
    } else if let Ok(key) = p256::ecdsa::SigningKey::from_pkcs8_pem(pem) {
        serde_json::to_value(JsonWebKey::from(&key))
    } else if let Ok(key) = p384::ecdsa::SigningKey::from_pkcs8_pem(pem) {
        let secret = BASE64_URL_SAFE_NO_PAD.encode(key.to_bytes());
        serde_json::to_value(p384_jwk(key.verifying_key())).map(|mut jwk| {
            if let Some(members) = jwk.as_object_mut() {
                members.insert("d".to_owned(), secret.into());
            }
            jwk
        })
    } else if let Ok(key) = RsaPrivateKey::from_pkcs8_pem(pem) {
        serde_json::to_value(JsonWebKey::from(&key))
    } else {
        return Err(SigningKeyError::NotPem);
    };
    jwk.map_err(|_| SigningKeyError::NotPem)
}

impl PublishedKey {
    /// The name of the algorithm that the key is for.
    pub(crate) const fn algorithm_name(&self) -> &'static str {
        self.alg
    }

    /// Reads one of our keys from a JWK, with its private part if there is one. `kid` and `alg`
    /// apply where the JWK lacks them. If there is no `kid` at all, it is the key's thumbprint (RFC
    /// 7638).
    pub fn from_jwk(
        jwk: &serde_json::Value,
        kid: Option<&str>,
        alg: Option<&str>,
    ) -> Result<(Self, Option<SigningKey>), SigningKeyError> {
        let named = NamedKey::deserialize(jwk).map_err(|_| SigningKeyError::NotAKey)?;
        let jwk = JsonWebKey::deserialize(jwk).map_err(|_| SigningKeyError::NotAKey)?;
        let fitting: &[Algorithm] = match &jwk {
            JsonWebKey::KeyPair { .. } => &[Algorithm::EdDsa, Algorithm::Ed25519],
            JsonWebKey::EllipticCurve { curve, .. } if curve == "P-384" => &[Algorithm::Es384],
            JsonWebKey::EllipticCurve { .. } => &[Algorithm::Es256],
            JsonWebKey::Rsa { .. } => &[Algorithm::Rs256, Algorithm::Ps256],
            _ => return Err(SigningKeyError::NotAKey),
        };
        let algorithm = match named.alg.as_deref().or(alg) {
            None => fitting.first().copied(),
            Some(name) => fitting.iter().copied().find(|algorithm| algorithm.name() == name),
        }
        .ok_or(SigningKeyError::Algorithm)?;
        let private =
            if jwk.is_signing_key() { Some(PrivateKey::from_jwk(&jwk, algorithm)?) } else { None };

        let key = jwk.to_verifying_key();
        let kid = named
            .kid
            .or_else(|| kid.map(str::to_owned))
            .unwrap_or_else(|| BASE64_URL_SAFE_NO_PAD.encode(key.thumbprint::<Sha256>()));
        let signing = private.map(|private| SigningKey::new(algorithm, &kid, private));
        Ok((Self { key, kid, alg: algorithm.name(), public_key_use: "sig" }, signing))
    }
}

impl SigningKey {
    fn new(algorithm: Algorithm, kid: &str, private: PrivateKey) -> Self {
        #[derive(Serialize)]
        struct Header<'a> {
            alg: &'a str,
            typ: &'a str,
            kid: &'a str,
        }
        let header = Header { alg: algorithm.name(), typ: ACCESS_TOKEN_TYPE, kid };
        let mut encoded_header = String::new();
        // Three strings can always be serialized.
        let header = serde_json::to_vec(&header).unwrap_or_default();
        BASE64_URL_SAFE_NO_PAD.encode_string(header, &mut encoded_header);
        encoded_header.push('.');
        let der = private.to_der().map(Secret::new);
        Self { algorithm, encoded_header, private, der }
    }

    /// The algorithm that the key signs with.
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Signs a JWT (JWS compact serialization, RFC 7515 §3.1) whose claims are JSON already. The
    /// host signs where it can.
    pub fn sign_jwt(
        &self,
        host: &dyn Host,
        crypto: Option<&TestedCrypto>,
        claims: &[u8],
    ) -> Result<String, SignError> {
        let mut token = String::with_capacity(
            self.encoded_header.len().saturating_add(claims.len().saturating_mul(2)),
        );
        token.push_str(&self.encoded_header);
        BASE64_URL_SAFE_NO_PAD.encode_string(claims, &mut token);
        let signature = self.sign(host, crypto, token.as_bytes())?;
        token.push('.');
        BASE64_URL_SAFE_NO_PAD.encode_string(signature, &mut token);
        Ok(token)
    }

    /// Derives a secret key for another purpose. The derived key reveals neither this key nor the
    /// keys of other purposes.
    pub(crate) fn derive(&self, purpose: &str) -> Secret<[u8; 16]> {
        let mut hash = Sha256::new();
        hash.update(purpose);
        hash.update([0]);
        match &self.private {
            PrivateKey::Ed25519(key) => hash.update(key.to_bytes()),
            PrivateKey::P256(key) => hash.update(key.to_bytes()),
            PrivateKey::P384(key) => hash.update(key.to_bytes()),
            PrivateKey::Rs256(key) => {
                let key: &RsaPrivateKey = (**key).as_ref();
                hash.update(key.d().to_bytes_be());
            }
            PrivateKey::Ps256(key) => {
                let key: &RsaPrivateKey = (**key).as_ref();
                hash.update(key.d().to_bytes_be());
            }
        }
        let hash: [u8; 32] = hash.finalize().into();
        let mut derived = [0; 16];
        derived.iter_mut().zip(hash).for_each(|(derived, byte)| *derived = byte);
        Secret::new(derived)
    }

    /// The private key as PKCS #8, if the host can use it.
    pub(super) fn native(&self) -> Option<&[u8]> {
        self.der.as_ref().map(|der| &**der.expose())
    }

    /// The public part, if the host could sign with this key.
    pub(super) fn verifying_key(&self) -> Option<VerifyingKey> {
        match &self.private {
            PrivateKey::P256(key) => Some(VerifyingKey::from_ecdsa_p256(key.verifying_key())),
            PrivateKey::P384(key) => Some(VerifyingKey::from_ecdsa_p384(key.verifying_key())),
            PrivateKey::Rs256(key) => {
                let key: &RsaPrivateKey = (**key).as_ref();
                Some(VerifyingKey::from_rsa(key.to_public_key()))
            }
            PrivateKey::Ed25519(_) | PrivateKey::Ps256(_) => None,
        }
    }

    fn sign(
        &self,
        host: &dyn Host,
        crypto: Option<&TestedCrypto>,
        message: &[u8],
    ) -> Result<Vec<u8>, SignError> {
        let by_host = crypto
            .zip(self.native())
            .and_then(|(crypto, key)| crypto.sign(self.algorithm, key, message));
        by_host.map_or_else(|| self.sign_here(host, message), Ok)
    }

    /// Signs without the host.
    fn sign_here(&self, host: &dyn Host, message: &[u8]) -> Result<Vec<u8>, SignError> {
        let mut rng = HostRng { host, failure: None };
        let signature = match &self.private {
            PrivateKey::Ed25519(key) => key.try_sign(message).map(|signature| signature.to_vec()),
            PrivateKey::P256(key) => {
                key.try_sign(message).map(|signature: p256::ecdsa::Signature| signature.to_vec())
            }
            PrivateKey::P384(key) => {
                key.try_sign(message).map(|signature: p384::ecdsa::Signature| signature.to_vec())
            }
            // Randomness blinds the private operation, so that its duration reveals nothing about
            // the key. It is also the salt of PSS.
            PrivateKey::Rs256(key) => {
                key.try_sign_with_rng(&mut rng, message).map(|signature| signature.to_vec())
            }
            PrivateKey::Ps256(key) => {
                key.try_sign_with_rng(&mut rng, message).map(|signature| signature.to_vec())
            }
        };
        match rng.failure {
            Some(failure) => Err(SignError::Host(self.algorithm, failure)),
            None => signature.map_err(|_| SignError::Key(self.algorithm)),
        }
    }
}

impl PrivateKey {
    /// The key as PKCS #8; `None` if no host supports the algorithm.
    fn to_der(&self) -> Option<Vec<u8>> {
        let der = match self {
            Self::P256(key) => key.to_pkcs8_der(),
            Self::P384(key) => key.to_pkcs8_der(),
            Self::Rs256(key) => {
                let key: &RsaPrivateKey = (**key).as_ref();
                key.to_pkcs8_der()
            }
            Self::Ed25519(_) | Self::Ps256(_) => return None,
        };
        der.ok().map(|der| der.as_bytes().to_vec())
    }

    fn from_jwk(jwk: &JsonWebKey<'_>, algorithm: Algorithm) -> Result<Self, SigningKeyError> {
        let mismatched = |_| SigningKeyError::Mismatched;
        match jwk {
            JsonWebKey::KeyPair { .. } => {
                jwk.try_into().map(|key| Self::Ed25519(Box::new(key))).map_err(mismatched)
            }
            JsonWebKey::EllipticCurve { curve, secret, .. } if curve == "P-384" => {
                let key = secret
                    .as_deref()
                    .and_then(|secret| p384::ecdsa::SigningKey::from_slice(secret).ok());
                let key = key.ok_or(SigningKeyError::Mismatched)?;
                let matches = p384_jwk(key.verifying_key()) == jwk.to_verifying_key();
                if matches { Ok(Self::P384(key)) } else { Err(SigningKeyError::Mismatched) }
            }
            JsonWebKey::EllipticCurve { .. } => jwk.try_into().map(Self::P256).map_err(mismatched),
            JsonWebKey::Rsa { .. } => {
                let key = RsaPrivateKey::try_from(jwk).map_err(mismatched)?;
                if !(2048..=RsaPublicKey::MAX_SIZE).contains(&key.n().bits()) {
                    return Err(SigningKeyError::Weak);
                }
                if is_factorable(&key.n().to_bytes_be()) {
                    return Err(SigningKeyError::Factorable);
                }
                Ok(match algorithm {
                    Algorithm::Ps256 => Self::Ps256(Box::new(pss::SigningKey::new(key))),
                    _ => Self::Rs256(Box::new(pkcs1v15::SigningKey::new(key))),
                })
            }
            _ => Err(SigningKeyError::NotAKey),
        }
    }
}

fn p384_jwk(key: &p384::ecdsa::VerifyingKey) -> JsonWebKey<'static> {
    let point = key.to_encoded_point(false);
    let coordinate =
        |field: Option<&p384::FieldBytes>| field.map(|field| field.to_vec()).unwrap_or_default();
    JsonWebKey::EllipticCurve {
        curve: "P-384".into(),
        x: coordinate(point.x()).into(),
        y: coordinate(point.y()).into(),
        secret: None,
    }
}

/// The host's randomness for crates that expect it never to fail. A failure is recorded, and the
/// caller throws away the signature that was made with it.
struct HostRng<'h> {
    host: &'h dyn Host,
    failure: Option<HostFailure>,
}

impl rsa::rand_core::RngCore for HostRng<'_> {
    fn next_u32(&mut self) -> u32 {
        rsa::rand_core::impls::next_u32_via_fill(self)
    }

    fn next_u64(&mut self) -> u64 {
        rsa::rand_core::impls::next_u64_via_fill(self)
    }

    fn fill_bytes(&mut self, buffer: &mut [u8]) {
        if let Err(failure) = self.host.random(buffer) {
            self.failure = Some(failure);
            // Zeros would not do: the blinding draws numbers until one can be inverted.
            buffer.fill(0x5a);
        }
    }

    fn try_fill_bytes(&mut self, buffer: &mut [u8]) -> Result<(), rsa::rand_core::Error> {
        self.fill_bytes(buffer);
        Ok(())
    }
}

impl rsa::rand_core::CryptoRng for HostRng<'_> {}

#[cfg(test)]
mod tests;
