//! The plugin's configuration, as an operator writes it, and the parties that it names.

use std::sync::LazyLock;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand;
use jsonwebtoken::Algorithm;
use serde_json::{Map, Value, json};

use crate::keys::Key;

pub const ISSUER: &str = "https://auth.example.com/oidc";
/// The audience of a good bearer token.
pub const MANAGEMENT: &str = "https://auth.example.com/api";
/// The audience of a good actor token.
pub const SUPPORT: &str = "https://support.example.com";
pub const ORDERS: &str = "https://api.example.com/orders";
/// A resource whose tokens live for 900 s.
pub const PAYMENTS: &str = "https://api.example.com/payments";
/// A resource without scopes.
pub const PLAIN: &str = "urn:example:plain";

/// The key that the filter signs access tokens with.
pub static SIGNING_KEY: LazyLock<Key> =
    LazyLock::new(|| Key::generate(Algorithm::EdDSA, "gateway-1"));
/// The key that the identity provider signs bearer tokens and actor tokens with.
pub static PROVIDER_KEY: LazyLock<Key> =
    LazyLock::new(|| Key::generate(Algorithm::RS256, "provider-1"));
/// The secret of `support-portal` and of every other confidential client.
pub static CLIENT_SECRET: LazyLock<String> = LazyLock::new(|| {
    let mut bytes = [0; 24];
    rand::fill(&mut bytes).unwrap();
    hex(&bytes)
});

/// A configuration that a test changes member by member.
#[derive(Clone, Debug)]
pub struct Configuration(pub Value);

impl Default for Configuration {
    fn default() -> Self {
        let secret = sha256_hex(&CLIENT_SECRET);
        Self(json!({
            "issuer": ISSUER,
            "signing_keys": [{"jwk": SIGNING_KEY.private_jwk()}],
            "subject_tokens": {
                "lifetime": "600s",
                "max_context_bytes": 4096,
                "authentication": {"jwt": [{
                    "issuer": ISSUER,
                    "name_prefix": "",
                    "audiences": [MANAGEMENT],
                    "required_scopes": ["impersonate"],
                    "clock_skew": "60s",
                    "local_jwks": jwks(&[&PROVIDER_KEY]),
                }]},
            },
            "store": {"shared_data": {"capacity": 65536}},
            "access_tokens": {"lifetime": "3600s"},
            "actor_tokens": {"jwt": [{
                "issuer": ISSUER,
                "name_prefix": "",
                "audiences": [SUPPORT],
                "clock_skew": "60s",
                "local_jwks": jwks(&[&PROVIDER_KEY]),
            }]},
            "clients": [
                {"client_id": "support-console", "type": "single_page"},
                {"client_id": "support-app", "type": "native"},
                {"client_id": "support-portal", "type": "traditional_web", "client_secret_sha256": [secret]},
                {"client_id": "support-robot", "type": "machine_to_machine", "client_secret_sha256": [secret]},
            ],
            "resources": [
                {"indicator": ORDERS, "scopes": ["orders:read", "orders:write"]},
                {"indicator": PAYMENTS, "scopes": ["payments:read"], "access_token_lifetime": "900s"},
                {"indicator": PLAIN},
            ],
            "foreign_subject_tokens": "refuse",
            "identity_gateway": {"documents": "none"},
        }))
    }
}

impl Configuration {
    /// Sets the member at a JSON pointer; missing objects on the way are made, and `-` as the last
    /// step appends to a list.
    pub fn with(mut self, pointer: &str, value: impl Into<Value>) -> Self {
        let (parent, last) = pointer.rsplit_once('/').unwrap();
        let mut at = &mut self.0;
        for step in parent.split('/').skip(1) {
            at = match at {
                Value::Array(list) => &mut list[step.parse::<usize>().unwrap()],
                _ => at.as_object_mut().unwrap().entry(step).or_insert_with(|| Map::new().into()),
            };
        }
        match at {
            Value::Array(list) if last == "-" => list.push(value.into()),
            Value::Array(list) => list[last.parse::<usize>().unwrap()] = value.into(),
            _ => drop(at.as_object_mut().unwrap().insert(last.into(), value.into())),
        }
        self
    }

    pub fn without(mut self, pointer: &str) -> Self {
        let (parent, last) = pointer.rsplit_once('/').unwrap();
        let removed = self.0.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(last);
        assert!(removed.is_some(), "there is no {pointer} to leave out");
        self
    }
}

/// `local_jwks` with the public halves of these keys.
pub fn jwks(keys: &[&Key]) -> Value {
    let keys: Vec<_> = keys.iter().map(|key| key.public_jwk()).collect();
    json!({"inline_string": json!({"keys": keys}).to_string()})
}

pub fn sha256_hex(text: &str) -> String {
    hex(digest(&SHA256, text.as_bytes()).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
