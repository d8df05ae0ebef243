//! Our own keys: the private key that signs access tokens, and the public keys that are published.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ed25519_dalek::Signer as _;
use ed25519_dalek::pkcs8::DecodePrivateKey as _;
use rsa::pkcs8::EncodePrivateKey as _;
use rsa::signature::{RandomizedSigner as _, SignatureEncoding as _};
use rsa::traits::{PrivateKeyParts as _, PublicKeyParts as _};
use rsa::{BigUint, RsaPrivateKey, RsaPublicKey, pkcs1v15, pss};
use serde::Serialize;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::factorable::is_factorable;
use super::jwk::{self, Jwk, Malformed, RsaSecret};
use super::{Algorithm, TestedCrypto, VerifyingKey, thumbprint, verifying};
use crate::host::{Host, HostFailure};
use crate::secret::Secret;

/// The `typ` of an access token that we sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessTokenType {
    /// `at+jwt` (RFC 9068 §2.1). It keeps access tokens from being mistaken for ID tokens.
    AtJwt,
    /// `JWT` (RFC 7519 §5.1), for APIs that know no other.
    Jwt,
}

impl AccessTokenType {
    pub const ALL: [Self; 2] = [Self::AtJwt, Self::Jwt];

    /// The value of `typ`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AtJwt => "at+jwt",
            Self::Jwt => "JWT",
        }
    }
}

/// A key that signs access tokens, parsed once.
pub struct SigningKey {
    algorithm: Algorithm,
    /// The encoded JOSE headers, each with the dot behind it. All tokens of a type have the same.
    encoded_at_jwt: String,
    encoded_jwt: String,
    private: PrivateKey,
    /// The private key as PKCS #8 for the host; `None` if the host cannot use such keys.
    der: Option<Secret<Vec<u8>>>,
}

/// A public key in our part of the key set.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct PublishedKey {
    jwk: Map<String, Value>,
    /// The key's name.
    #[serde(skip)]
    pub kid: String,
    #[serde(skip)]
    algorithm: Algorithm,
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

/// Converts a private key from PKCS #8 in PEM to a JWK.
pub fn private_from_pem(pem: &str) -> Result<Value, SigningKeyError> {
    if let Ok(key) = ed25519_dalek::SigningKey::from_pkcs8_pem(pem) {
        let numbers = [("x", &key.verifying_key().to_bytes()[..]), ("d", &key.to_bytes())];
        return Ok(jwk::write("OKP", Some("Ed25519"), &numbers));
    }
    if let Ok(key) = p256::ecdsa::SigningKey::from_pkcs8_pem(pem) {
        let point = key.verifying_key().to_encoded_point(false);
        return Ok(elliptic("P-256", point.x(), point.y(), &key.to_bytes()));
    }
    if let Ok(key) = p384::ecdsa::SigningKey::from_pkcs8_pem(pem) {
        let point = key.verifying_key().to_encoded_point(false);
        return Ok(elliptic("P-384", point.x(), point.y(), &key.to_bytes()));
    }
    let key = RsaPrivateKey::from_pkcs8_pem(pem).map_err(|_| SigningKeyError::NotPem)?;
    let [p, q] = key.primes() else { return Err(SigningKeyError::NotPem) };
    let [n, e, d, p, q] = [key.n(), key.e(), key.d(), p, q].map(BigUint::to_bytes_be);
    Ok(jwk::write("RSA", None, &[("n", &n), ("e", &e), ("d", &d), ("p", &p), ("q", &q)]))
}

impl PublishedKey {
    /// The name of the algorithm that the key is for.
    pub(crate) const fn algorithm_name(&self) -> &'static str {
        self.algorithm.name()
    }

    /// Reads one of our keys from a JWK, with its private part if there is one. `kid` and `alg`
    /// apply where the JWK lacks them. If there is no `kid` at all, it is the key's thumbprint (RFC
    /// 7638).
    pub fn from_jwk(
        jwk: &Value,
        kid: Option<&str>,
        alg: Option<&str>,
    ) -> Result<(Self, Option<SigningKey>), SigningKeyError> {
        let not_a_key = |Malformed| SigningKeyError::NotAKey;
        let kid = jwk::text(jwk, "kid").map_err(not_a_key)?.or(kid);
        let alg = jwk::text(jwk, "alg").map_err(not_a_key)?.or(alg);
        let key = Jwk::read(jwk).map_err(not_a_key)?;
        let fitting: &[Algorithm] = match &key {
            Jwk::Edwards { .. } => &[Algorithm::EdDsa, Algorithm::Ed25519],
            Jwk::Elliptic { curve: "P-384", .. } => &[Algorithm::Es384],
            Jwk::Elliptic { .. } => &[Algorithm::Es256],
            Jwk::Rsa { .. } => &[Algorithm::Rs256, Algorithm::Ps256],
        };
        let algorithm = match alg {
            None => fitting.first().copied(),
            Some(name) => fitting.iter().copied().find(|algorithm| algorithm.name() == name),
        }
        .ok_or(SigningKeyError::Algorithm)?;

        let member = |name: &&str| Some(((*name).to_owned(), jwk.get(name)?.clone()));
        let mut published: Map<_, _> = key.public_members().iter().filter_map(member).collect();
        let private = PrivateKey::from_jwk(key, algorithm)?;
        let kid = match kid {
            Some(kid) => kid.to_owned(),
            None => thumbprint(jwk).ok_or(SigningKeyError::NotAKey)?.to_base64url(),
        };
        let named = [("kid", &*kid), ("alg", algorithm.name()), ("use", "sig")];
        published.extend(named.map(|(name, value)| (name.to_owned(), value.into())));
        let signing = private.map(|private| SigningKey::new(algorithm, &kid, private));
        Ok((Self { jwk: published, kid, algorithm }, signing))
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
        let encoded = |r#type: AccessTokenType| {
            let header = Header { alg: algorithm.name(), typ: r#type.name(), kid };
            // Three strings can always be serialized.
            let header = serde_json::to_vec(&header).unwrap_or_default();
            let mut encoded = BASE64_URL_SAFE_NO_PAD.encode(header);
            encoded.push('.');
            encoded
        };
        let [encoded_at_jwt, encoded_jwt] = AccessTokenType::ALL.map(encoded);
        let der = private.to_der().map(Secret::new);
        Self { algorithm, encoded_at_jwt, encoded_jwt, private, der }
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
        r#type: AccessTokenType,
        claims: &[u8],
    ) -> Result<String, SignError> {
        let header = match r#type {
            AccessTokenType::AtJwt => &self.encoded_at_jwt,
            AccessTokenType::Jwt => &self.encoded_jwt,
        };
        let mut token =
            String::with_capacity(header.len().saturating_add(claims.len().saturating_mul(2)));
        token.push_str(header);
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

    /// Reads the private part of a JWK; `None` if there is none.
    fn from_jwk(jwk: Jwk<'_>, algorithm: Algorithm) -> Result<Option<Self>, SigningKeyError> {
        let key = match jwk {
            Jwk::Edwards { secret: None, .. }
            | Jwk::Elliptic { secret: None, .. }
            | Jwk::Rsa { secret: None, .. } => return Ok(None),
            Jwk::Edwards { curve, x, secret: Some(secret) } => <[u8; 32]>::try_from(secret)
                .map(|secret| ed25519_dalek::SigningKey::from_bytes(&secret))
                .ok()
                .filter(|key| verifying::ed25519(curve, &x) == Some(key.verifying_key()))
                .map(|key| Self::Ed25519(Box::new(key))),
            Jwk::Elliptic { curve: "P-384", x, y, secret: Some(secret) } => {
                p384::ecdsa::SigningKey::from_slice(&secret)
                    .ok()
                    .filter(|key| verifying::p384(&x, &y).as_ref() == Some(key.verifying_key()))
                    .map(Self::P384)
            }
            Jwk::Elliptic { curve, x, y, secret: Some(secret) } => <[u8; 32]>::try_from(secret)
                .ok()
                .and_then(|secret| p256::ecdsa::SigningKey::from_slice(&secret).ok())
                .filter(|key| verifying::p256(curve, &x, &y).as_ref() == Some(key.verifying_key()))
                .map(Self::P256),
            Jwk::Rsa { modulus, exponent, secret: Some(secret) } => {
                Some(Self::from_rsa(&modulus, &exponent, secret, algorithm)?)
            }
        };
        key.map(Some).ok_or(SigningKeyError::Mismatched)
    }

    fn from_rsa(
        modulus: &[u8],
        exponent: &[u8],
        secret: RsaSecret,
        algorithm: Algorithm,
    ) -> Result<Self, SigningKeyError> {
        let [n, e] = [modulus, exponent].map(BigUint::from_bytes_be);
        let key = RsaPrivateKey::from_components(n, e, secret.exponent, secret.primes)
            .and_then(|key| key.validate().map(|()| key))
            .map_err(|_| SigningKeyError::Mismatched)?;
        if !(2048..=RsaPublicKey::MAX_SIZE).contains(&key.n().bits()) {
            return Err(SigningKeyError::Weak);
        }
        if is_factorable(modulus) {
            return Err(SigningKeyError::Factorable);
        }
        Ok(match algorithm {
            Algorithm::Ps256 => Self::Ps256(Box::new(pss::SigningKey::new(key))),
            _ => Self::Rs256(Box::new(pkcs1v15::SigningKey::new(key))),
        })
    }
}

/// Writes a key on an elliptic curve as a JWK.
fn elliptic<B: AsRef<[u8]>>(curve: &str, x: Option<&B>, y: Option<&B>, d: &B) -> Value {
    // No public key is the point without coordinates.
    let [x, y] = [x, y].map(|coordinate| coordinate.map(B::as_ref).unwrap_or_default());
    jwk::write("EC", Some(curve), &[("x", x), ("y", y), ("d", d.as_ref())])
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
