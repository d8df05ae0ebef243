//! Two issuers use the same names, and a guard tells their actors apart.

use std::sync::LazyLock;

use jsonwebtoken::Algorithm;
use serde_json::{Value, json};

use testkit::bootstrap::Filter;
use testkit::configuration::{Configuration, ISSUER, MANAGEMENT, PROVIDER_KEY, SUPPORT, jwks};
use testkit::gateway::{
    actor_claims, backend_claims, exchange_form, exchange_request, minted, with_actor,
};
use testkit::guarded::{ACTOR_HEADER, Guarded, guard_configuration, guarded_listener};
use testkit::http::Request;
use testkit::keys::Key;
use testkit::server::{Server, as_asked};

const PARTNER: &str = "https://partner.example.com";
const CALLERS: &str = "/subject_tokens/authentication/jwt";
const ACTORS: &str = "/actor_tokens/jwt";

static PARTNER_KEY: LazyLock<Key> = LazyLock::new(|| Key::generate(Algorithm::EdDSA, "partner-1"));

/// Both issuers, for tokens with this audience.
fn both(audience: &str) -> Value {
    json!([
        {"issuer": ISSUER, "name_prefix": "", "audiences": [audience], "local_jwks": jwks(&[&PROVIDER_KEY])},
        {"issuer": PARTNER, "name_prefix": "partner:", "audiences": [audience], "local_jwks": jwks(&[&PARTNER_KEY])},
    ])
}

fn configuration() -> Configuration {
    Configuration::default().with(CALLERS, both(MANAGEMENT)).with(ACTORS, both(SUPPORT))
}

/// A token of the issuer without a prefix, or of its partner.
fn signed(issuer: &str, mut claims: Value) -> String {
    claims["iss"] = json!(issuer);
    if issuer == PARTNER { PARTNER_KEY.sign(&claims) } else { PROVIDER_KEY.sign(&claims) }
}

fn backend(issuer: &str, name: &str) -> String {
    let mut claims = backend_claims();
    claims["sub"] = json!(name);
    claims["client_id"] = json!(name);
    signed(issuer, claims)
}

fn agent(issuer: &str, name: &str) -> String {
    signed(issuer, actor_claims(name))
}

fn mint(bearer: &str, body: &Value) -> Request {
    Request::post("/api/subject-tokens").bearer(bearer).json(body)
}

fn acting(subject_token: &str, actor_token: &str) -> Request {
    exchange_request(&with_actor(exchange_form(subject_token), actor_token))
}

#[test]
fn a_guard_rule_matches_only_the_actor_of_the_named_issuer() {
    let rules =
        json!([{"path": "/orders", "actors": ["agent-*"], "methods": ["POST"], "action": "allow"}]);
    let api = Server::start(testkit::guarded::API);
    api.answer(as_asked);
    let guarded = guarded_listener(&guard_configuration(&json!({"rules": rules})));
    let filter = Filter::from(&configuration());
    let envoy = Guarded::bootstrap_with(guarded, filter, api.address).start();
    let guarded = Guarded { envoy, api };
    for (issuer, actor, status) in [(ISSUER, "agent-7", 200), (PARTNER, "partner:agent-7", 403)] {
        let minted_answer =
            guarded.send_to_filter(&mint(&backend(issuer, "backend"), &json!({"userId": "u-1"})));
        let exchange = acting(&minted(&minted_answer), &agent(issuer, "agent-7"));
        let token = guarded.send_to_filter(&exchange).member("access_token");
        let written = guarded.send_as(&token, Request::post("/orders").body("x"));
        assert_eq!(written.status, status, "{actor}");
        let read = guarded.send_as(&token, Request::get("/orders"));
        let received = guarded.api.received_for(&read).unwrap();
        assert_eq!(received.header(ACTOR_HEADER), Some(actor));
    }
}
