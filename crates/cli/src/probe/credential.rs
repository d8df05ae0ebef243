//! An access token as a request presents it: alone, or with a proof of the key that it is bound to
//! (RFC 9449 §7).

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use impersonation_core::secret::{Digest, Secret};
use p256::ecdsa::signature::Signer as _;
use p256::ecdsa::{Signature, SigningKey};
use rand_core::{OsRng, RngCore as _};
use serde_json::{Map, Value, json};
use ureq::http::request::Builder;

/// A key pair of the probe. It lives as long as the probe.
pub(super) struct Key {
    pair: SigningKey,
    /// The nonce that the guards ask for (RFC 9449 §9).
    nonce_of_guards: Mutex<Option<String>>,
}

/// The request that a proof is made for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target<'t> {
    pub(super) method: &'t str,
    pub(super) url: &'t str,
}

impl Key {
    pub(super) fn new() -> Self {
        Self { pair: SigningKey::random(&mut OsRng), nonce_of_guards: Mutex::default() }
    }

    /// Takes the nonce for proofs to APIs from now on.
    pub(super) fn learn(&self, nonce: String) {
        *self.nonce_of_guards.lock().unwrap_or_else(PoisonError::into_inner) = Some(nonce);
    }

    /// Makes a proof for a request, and for the access token that it presents.
    pub(super) fn prove(
        &self,
        target: Target<'_>,
        token: Option<&str>,
        nonce: Option<&str>,
    ) -> String {
        let point = self.pair.verifying_key().to_encoded_point(false);
        let encoded = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
        let coordinate = |bytes: Option<&_>| bytes.map(|bytes: &p256::FieldBytes| encoded(bytes));
        let jwk = json!({
            "kty": "EC", "crv": "P-256", "x": coordinate(point.x()), "y": coordinate(point.y()),
        });
        let mut jti = [0; 16];
        OsRng.fill_bytes(&mut jti);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut claims = Map::new();
        claims.insert("jti".to_owned(), encoded(&jti).into());
        claims.insert("htm".to_owned(), target.method.into());
        claims.insert("htu".to_owned(), target.url.into());
        claims.insert("iat".to_owned(), now.as_secs().into());
        if let Some(token) = token {
            claims
                .insert("ath".to_owned(), encoded(Digest::of(token.as_bytes()).as_bytes()).into());
        }
        // Only an API is shown a token with its proof.
        let known = self.nonce_of_guards.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let nonce = nonce.map(str::to_owned).or(known.filter(|_| token.is_some()));
        if let Some(nonce) = nonce {
            claims.insert("nonce".to_owned(), nonce.into());
        }
        let header = json!({"typ": "dpop+jwt", "alg": "ES256", "jwk": jwk});
        let part = |value: String| encoded(value.as_bytes());
        let signed =
            format!("{}.{}", part(header.to_string()), part(Value::from(claims).to_string()));
        let signature: Signature = self.pair.sign(signed.as_bytes());
        format!("{signed}.{}", encoded(&signature.to_bytes()))
    }
}

/// An access token, and the key that it is bound to.
#[derive(Clone)]
pub(super) struct Credential {
    pub(super) token: Secret<String>,
    /// `None` for a bearer token.
    pub(super) key: Option<Arc<Key>>,
}

impl Credential {
    pub(super) const fn bearer(token: Secret<String>) -> Self {
        Self { token, key: None }
    }

    /// The scheme of the `Authorization` header.
    pub(super) const fn scheme(&self) -> &'static str {
        if self.key.is_some() { "DPoP" } else { "Bearer" }
    }

    /// The value of the `Authorization` header.
    pub(super) fn authorization(&self) -> String {
        format!("{} {}", self.scheme(), self.token.expose())
    }

    /// Adds a new proof to the request for `target`, if the token is bound to a key.
    pub(super) fn proving(&self, request: Builder, target: Target<'_>) -> Builder {
        let Some(key) = &self.key else { return request };
        request.header("dpop", key.prove(target, Some(self.token.expose()), None))
    }

    /// Adds the token to the request for `target`, and a proof if it needs one.
    pub(super) fn presented(&self, request: Builder, target: Target<'_>) -> Builder {
        self.proving(request.header("authorization", self.authorization()), target)
    }
}
