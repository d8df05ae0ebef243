//! The services that the filter asks, as its configuration names them.

use std::time::Duration;

use jsonwebtoken::Algorithm;
use serde_json::{Value, json};

use crate::configuration::{Configuration, MANAGEMENT, SUPPORT};
use crate::gateway::{actor_claims, backend_claims, mint_by};
use crate::http::Request;
use crate::keys::Key;
use crate::server::{Reply, Server};

/// Envoy's timeout of a callout: long enough that a busy machine does not reach it by itself.
pub const TIMEOUT: Duration = Duration::from_secs(3);

/// Pointers into the configuration.
pub const MINTERS: &str = "/subject_tokens/authentication/jwt/-";
pub const ACTORS: &str = "/actor_tokens/jwt/-";

/// An `http_uri` that reaches a server by its cluster.
pub fn http_uri_of(cluster: &str, path: &str) -> Value {
    let uri = format!("http://{}.example.com{path}", cluster.replace('_', "-"));
    json!({"uri": uri, "cluster": cluster, "timeout": format!("{}s", TIMEOUT.as_secs())})
}

pub fn introspection(cache_duration: &str, required_scopes: Value) -> Value {
    json!({
        "http_uri": http_uri_of("introspection", "/oidc/token/introspection"),
        "client_id": "impersonation-filter",
        "client_secret": {"inline_string": "introspection-secret"},
        "required_scopes": required_scopes,
        "name_prefix": "",
        "cache_duration": cache_duration,
    })
}

pub fn userinfo(cache_duration: &str) -> Value {
    let http_uri = http_uri_of("userinfo", "/oidc/me");
    json!({"http_uri": http_uri, "name_prefix": "", "cache_duration": cache_duration})
}

/// An issuer, and the service with its key set.
pub struct Issuer {
    pub service: Server,
    pub key: Key,
}

impl Issuer {
    pub fn start(name: &str) -> Self {
        Self::at(&Server::start(name))
    }

    /// An issuer whose key set is at this server.
    pub fn at(service: &Server) -> Self {
        let issuer = Self {
            service: service.clone(),
            key: Key::generate(Algorithm::EdDSA, &format!("{}-1", service.name)),
        };
        issuer.publish(&[&issuer.key]);
        issuer
    }

    pub fn publish(&self, keys: &[&Key]) {
        let keys: Vec<_> = keys.iter().map(|key| key.public_jwk()).collect();
        self.service.answer_always(Reply::json(&json!({"keys": keys})));
    }

    fn url(&self) -> String {
        format!("https://{}.example.com/oidc", self.service.name.replace('_', "-"))
    }

    fn entry(&self, audience: &str, cache_duration: &str) -> Value {
        let http_uri = http_uri_of(&self.service.name, "/jwks");
        json!({
            "issuer": self.url(),
            "name_prefix": format!("{}:", self.service.name),
            "audiences": [audience],
            "remote_jwks": {"http_uri": http_uri, "cache_duration": cache_duration},
        })
    }

    /// An entry of the configuration for callers who mint.
    pub fn minters(&self, cache_duration: &str) -> Value {
        let mut entry = self.entry(MANAGEMENT, cache_duration);
        entry["required_scopes"] = json!(["impersonate"]);
        entry
    }

    /// An entry of the configuration for actors.
    pub fn actors(&self, cache_duration: &str) -> Value {
        self.entry(SUPPORT, cache_duration)
    }

    /// A configuration in which only callers of this issuer can mint.
    pub fn only_minters(&self, cache_duration: &str) -> Configuration {
        let minters = json!([self.minters(cache_duration)]);
        Configuration::default().with("/subject_tokens/authentication/jwt", minters)
    }

    /// A new token of a backend, signed with this key.
    pub fn bearer(&self, key: &Key) -> String {
        let mut claims = backend_claims();
        claims["iss"] = json!(self.url());
        key.sign(&claims)
    }

    /// A mint for `u-1` with a new token, signed with this key.
    pub fn mint(&self, key: &Key) -> Request {
        mint_by(&self.bearer(key), "u-1")
    }

    /// A new token of an acting user, signed with this key.
    pub fn actor(&self, key: &Key) -> String {
        let mut claims = actor_claims("agent-1");
        claims["iss"] = json!(self.url());
        claims["jti"] = json!(fastrand::u64(..).to_string());
        key.sign(&claims)
    }
}
