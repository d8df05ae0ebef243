//! The services that the filter asks, when they answer and when they fail. The provider is a fake:
//! a real one cannot be told to break off in the middle of a body.

mod callouts;
mod clock;
mod documents;
mod key_sets;
mod recovery;
mod stand_in;

use std::fmt::Display;
use std::time::Duration;

use jsonwebtoken::Algorithm;
use serde_json::{Value, json};

use testkit::Findings;
use testkit::configuration::{Configuration, MANAGEMENT, SUPPORT};
use testkit::gateway::{
    IDENTITY_GATEWAY, actor_claims, backend_claims, exchange_form, exchange_request, http_uri,
    with_actor,
};
use testkit::http::{Answer, Request};
use testkit::keys::Key;
use testkit::server::{Reply, Server};

/// Envoy's timeout of a callout: long enough that a busy machine does not reach it by itself.
const TIMEOUT: Duration = Duration::from_secs(3);
const TIMEOUT_TEXT: &str = "3s";

/// The time that a request with one callout may take on a busy machine. Without the timeout it
/// would take 15 s, when Envoy gives up the request itself.
const BOUND: Duration = Duration::from_secs(10);

/// Pointers into the configuration.
const MINTERS: &str = "/subject_tokens/authentication/jwt/-";
const ACTORS: &str = "/actor_tokens/jwt/-";

/// An issuer, and the service with its key set.
struct Issuer {
    service: Server,
    key: Key,
}

impl Issuer {
    fn start(name: &str) -> Self {
        Self::at(&Server::start(name))
    }

    /// An issuer whose key set is at this server.
    fn at(service: &Server) -> Self {
        let issuer = Self {
            service: service.clone(),
            key: Key::generate(Algorithm::EdDSA, &format!("{}-1", service.name)),
        };
        issuer.publish(&[&issuer.key]);
        issuer
    }

    fn publish(&self, keys: &[&Key]) {
        let keys: Vec<_> = keys.iter().map(|key| key.public_jwk()).collect();
        self.service.answer_always(Reply::json(&json!({"keys": keys})));
    }

    fn url(&self) -> String {
        format!("https://{}.example.com/oidc", self.service.name.replace('_', "-"))
    }

    fn remote_jwks(&self, cache_duration: &str) -> Value {
        let http_uri = http_uri(&self.service, "/jwks", TIMEOUT_TEXT);
        json!({"http_uri": http_uri, "cache_duration": cache_duration})
    }

    /// An entry of the configuration for callers who mint.
    fn minters(&self, cache_duration: &str) -> Value {
        json!({
            "issuer": self.url(),
            "name_prefix": format!("{}:", self.service.name),
            "audiences": [MANAGEMENT],
            "required_scopes": ["impersonate"],
            "remote_jwks": self.remote_jwks(cache_duration),
        })
    }

    /// An entry of the configuration for actors.
    fn actors(&self, cache_duration: &str) -> Value {
        json!({
            "issuer": self.url(),
            "name_prefix": format!("{}:", self.service.name),
            "audiences": [SUPPORT],
            "remote_jwks": self.remote_jwks(cache_duration),
        })
    }

    /// A new token of a backend, signed with this key.
    fn bearer(&self, key: &Key) -> String {
        let mut claims = backend_claims();
        claims["iss"] = json!(self.url());
        key.sign(&claims)
    }

    /// A new token of an acting user, signed with this key.
    fn actor(&self, key: &Key) -> String {
        let mut claims = actor_claims("agent-1");
        claims["iss"] = json!(self.url());
        claims["jti"] = json!(fastrand::u64(..).to_string());
        key.sign(&claims)
    }
}

/// Starts the gateway behind the filter, which echoes requests.
fn echoing_gateway() -> Server {
    Server::start(IDENTITY_GATEWAY)
}

/// A configuration in which only callers of this issuer can mint.
fn minters_of(issuer: &Issuer, cache_duration: &str) -> Configuration {
    let minters = json!([issuer.minters(cache_duration)]);
    Configuration::default().with("/subject_tokens/authentication/jwt", minters)
}

/// An `http_uri` that reaches a service by its name.
fn uri(service: &str, path: &str) -> Value {
    json!({
        "uri": format!("http://{service}.example.com{path}"), "cluster": service,
        "timeout": TIMEOUT_TEXT,
    })
}

fn introspection(cache_duration: &str, required_scopes: Value) -> Value {
    introspection_at("introspection", cache_duration, required_scopes)
}

fn introspection_at(service: &str, cache_duration: &str, required_scopes: Value) -> Value {
    json!({
        "http_uri": uri(service, "/oidc/token/introspection"),
        "client_id": "impersonation-filter",
        "client_secret": {"inline_string": "introspection-secret"},
        "required_scopes": required_scopes,
        "name_prefix": "",
        "cache_duration": cache_duration,
    })
}

fn userinfo(cache_duration: &str) -> Value {
    let http_uri = uri("userinfo", "/oidc/me");
    json!({"http_uri": http_uri, "name_prefix": "", "cache_duration": cache_duration})
}

fn mint_with(bearer: &str) -> Request {
    mint_for(bearer, "u-1")
}

fn mint_for(bearer: &str, user_id: &str) -> Request {
    Request::post("/api/subject-tokens").bearer(bearer).json(&json!({"userId": user_id}))
}

fn exchange_by(subject_token: &str, actor_token: &str) -> Request {
    exchange_request(&with_actor(exchange_form(subject_token), actor_token))
}

/// Checks the answer to a request whose service did not answer.
fn expect_unavailable(findings: &mut Findings, case: impl Display, answer: &Answer) {
    findings.expect(
        format!("{case}: the answer"),
        &answer.refusal(),
        &(503, "temporarily_unavailable".into()),
    );
    let seconds = answer.header("retry-after").and_then(|value| value.parse::<u32>().ok());
    findings.expect(format!("{case}: Retry-After in seconds"), &seconds.is_some(), &true);
}
