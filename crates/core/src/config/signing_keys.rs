//! The keys that sign access tokens, and published keys that signed before.

use serde_json::Value;

use super::kinds::{ListOf, Text};
use super::node::Node;
use super::section::{Kind, Raw, Refined, section};
use super::source::Variable;
use crate::jose::{self, Algorithm, PublishedKey, private_from_pem};
use crate::secret::Secret;

#[cfg(test)]
use serde_json::json;

#[cfg(test)]
use super::describe::{Described, Descriptions};

/// The key that signs access tokens.
#[derive(Debug)]
pub struct SigningJwk {
    /// The private key as a JWK. It has been parsed successfully.
    pub jwk: Secret<Value>,
    /// The key's id.
    pub kid: String,
    /// The algorithm that the key signs with.
    pub algorithm: Algorithm,
}

section! {
    /// A key of the filter's own.
    pub(super) struct KeyMembers under "signing_keys", "keys" {
        /// A JWK: `OKP` with `Ed25519`, `EC` with `P-256` or `P-384`, `RSA` of 2048 to 4096 bits.
        /// The first key must be private.
        jwk: Jwk => "one of the three",
        /// The environment variable that holds a JWK, or a PKCS #8 private key in PEM.
        environment_variable: Variable => "one of the three",
        /// A PKCS #8 private key in PEM (`BEGIN PRIVATE KEY`).
        pem: Pem => "one of the three",
        /// The key's id. No two keys may have the same.
        kid: Text => "the key's own, else its thumbprint (RFC 7638)",
        /// The algorithm that the key signs with. `Ed25519` is the newer name of `EdDSA` (RFC
        /// 9864). Tokens and key set use the name that you give, so check that your APIs know it.
        alg: KeyAlgorithm => "the key's own, else what its kind decides; `RS256` for RSA",
    }
    exactly_one [jwk, environment_variable, pem]
}

/// A key in JSON (RFC 7517).
struct Jwk;

impl Kind for Jwk {
    type Value = Value;

    fn read(node: Node<'_>) -> Option<Value> {
        match node.value {
            Value::Object(_) => Some(node.value.clone()),
            _ => node.problem("expected a JWK: an object"),
        }
    }

    #[cfg(test)]
    fn describe(_: &mut Descriptions) -> Described {
        let types = json!({"kty": {"enum": ["OKP", "EC", "RSA"]}});
        Described::plain(
            "object",
            json!({"type": "object", "required": ["kty"], "properties": types}),
        )
    }
}

/// A private key in PEM.
struct Pem;

impl Kind for Pem {
    type Value = String;

    fn read(node: Node<'_>) -> Option<String> {
        node.string().map(str::to_owned)
    }

    #[cfg(test)]
    fn describe(_: &mut Descriptions) -> Described {
        Described::plain("string", json!({"type": "string"}))
    }
}

/// The name of an algorithm. The key's own parser checks that it fits the key.
struct KeyAlgorithm;

impl Kind for KeyAlgorithm {
    type Value = String;

    fn read(node: Node<'_>) -> Option<String> {
        node.non_empty_string()
    }

    #[cfg(test)]
    fn describe(_: &mut Descriptions) -> Described {
        let names = ["EdDSA", "Ed25519", "ES256", "ES384", "RS256", "PS256"];
        Described::plain(format!("`{}`", names.join("`, `")), json!({"enum": names}))
    }
}

/// A key as it was given, its published form and, if it is private, the signer.
pub(super) struct GivenKey {
    jwk: Value,
    published: PublishedKey,
    private: Option<jose::SigningKey>,
}

impl Refined for GivenKey {
    type From = KeyMembers;
    type Value = Self;

    fn refine(raw: Raw<Self>, place: Node<'_>) -> Option<Self> {
        let KeyMembers { jwk, environment_variable, pem, kid, alg } = raw;
        let (source, jwk) = match (jwk, environment_variable, pem) {
            (Some(jwk), ..) => ("jwk", Ok(jwk)),
            (None, Some(text), _) => {
                let jwk = match serde_json::from_str(&text) {
                    Ok(jwk @ Value::Object(_)) => Ok(jwk),
                    _ => private_from_pem(&text),
                };
                ("environment_variable", jwk)
            }
            (None, None, pem) => ("pem", private_from_pem(&pem?)),
        };
        if let Ok(jwk) = &jwk {
            for (name, beside) in [("kid", &kid), ("alg", &alg)] {
                let within = jwk.get(name).and_then(Value::as_str);
                if within.zip(beside.as_deref()).is_some_and(|(within, beside)| within != beside) {
                    return place
                        .member(name)
                        .problem(format!("the key itself has another {name}"));
                }
            }
        }
        let key = jwk.and_then(|jwk| {
            let (published, private) =
                PublishedKey::from_jwk(&jwk, kid.as_deref(), alg.as_deref())?;
            Ok(Self { jwk, published, private })
        });
        match key {
            Ok(key) => Some(key),
            Err(error) => place.member(source).problem(format!("expected {error}")),
        }
    }
}

/// The result of reading the list of keys.
pub(super) struct OwnKeys {
    /// The first key.
    pub(super) signing: SigningJwk,
    /// All keys.
    pub(super) published: Vec<PublishedKey>,
    /// Keys that authenticate records in etcd: one for each private key, in their order.
    pub(super) records: Vec<Secret<[u8; 16]>>,
    /// Keys that make nonces: one for each private key, in their order.
    pub(super) nonces: Vec<Secret<[u8; 16]>>,
}

/// The label with which [`OwnKeys::records`] are derived from the private keys.
const RECORDS: &str = "impersonation-filter: records in etcd";

/// The label with which [`OwnKeys::nonces`] are derived from the private keys.
const NONCES: &str = "impersonation-filter: nonces for proofs";

/// The list of keys: the first signs, all are published.
pub(super) struct SigningKeys;

impl Refined for SigningKeys {
    type From = ListOf<GivenKey>;
    type Value = OwnKeys;

    fn refine(keys: Raw<Self>, list: Node<'_>) -> Option<Self::Value> {
        let mut published: Vec<PublishedKey> = Vec::new();
        let mut signing = None;
        let (mut records, mut nonces) = (Vec::new(), Vec::new());
        for (index, key) in keys.into_iter().enumerate() {
            let kid = &key.published.kid;
            if published.iter().any(|earlier| earlier.kid == *kid) {
                let problem = format!("another key has the kid {kid:?} too");
                return list.item(index).problem(problem);
            }
            if index == 0 {
                signing = key.private.as_ref().map(|private| SigningJwk {
                    jwk: Secret::new(key.jwk),
                    kid: kid.clone(),
                    algorithm: private.algorithm(),
                });
            }
            records.extend(key.private.as_ref().map(|private| private.derive(RECORDS)));
            nonces.extend(key.private.as_ref().map(|private| private.derive(NONCES)));
            published.push(key.published);
        }
        match signing {
            Some(signing) => Some(OwnKeys { signing, published, records, nonces }),
            None if published.is_empty() => list.problem("expected at least one key"),
            None => list.item(0).problem("expected a private key: the first key signs"),
        }
    }

    #[cfg(test)]
    fn refine_description(described: Described, _: &mut Descriptions) -> Described {
        described.not_empty()
    }
}
