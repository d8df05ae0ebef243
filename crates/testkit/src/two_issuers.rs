//! Two issuers that use the same names: that of the other tests, without a prefix, and its partner.

use std::sync::LazyLock;

use jsonwebtoken::Algorithm;
use serde_json::{Value, json};

use crate::configuration::{ISSUER, PROVIDER_KEY, jwks};
use crate::gateway::{actor_claims, backend_claims, exchange_form, exchange_request, with_actor};
use crate::http::Request;
use crate::keys::Key;

pub const PARTNER: &str = "https://partner.example.com";
pub const CALLERS: &str = "/subject_tokens/authentication/jwt";
pub const ACTORS: &str = "/actor_tokens/jwt";

pub static PARTNER_KEY: LazyLock<Key> =
    LazyLock::new(|| Key::generate(Algorithm::EdDSA, "partner-1"));

/// Both issuers, for tokens with this audience.
pub fn both(audience: &str) -> Value {
    json!([
        {"issuer": ISSUER, "name_prefix": "", "audiences": [audience], "local_jwks": jwks(&[&PROVIDER_KEY])},
        {"issuer": PARTNER, "name_prefix": "partner:", "audiences": [audience], "local_jwks": jwks(&[&PARTNER_KEY])},
    ])
}

/// A token of the issuer without a prefix, or of its partner.
pub fn signed(issuer: &str, mut claims: Value) -> String {
    claims["iss"] = json!(issuer);
    if issuer == PARTNER { PARTNER_KEY.sign(&claims) } else { PROVIDER_KEY.sign(&claims) }
}

/// The access token of the backend with this name.
pub fn backend(issuer: &str, name: &str) -> String {
    let mut claims = backend_claims();
    claims["sub"] = json!(name);
    claims["client_id"] = json!(name);
    signed(issuer, claims)
}

/// The access token of the agent with this name.
pub fn agent(issuer: &str, name: &str) -> String {
    signed(issuer, actor_claims(name))
}

/// A mint by the bearer of this token.
pub fn mint(bearer: &str, body: &Value) -> Request {
    Request::post("/api/subject-tokens").bearer(bearer).json(body)
}

/// An exchange by the bearer of this actor token.
pub fn acting(subject_token: &str, actor_token: &str) -> Request {
    exchange_request(&with_actor(exchange_form(subject_token), actor_token))
}
