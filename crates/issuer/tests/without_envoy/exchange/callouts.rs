//! A key set that one worker fetches for all. The other rules of key sets are in
//! `tests/rules/key_sets.rs`.

use impersonation_core::step::Reply;
use serde_json::{Value, json};

use super::setting::{PROVIDER_KEY, configuration, mint_form};
use crate::driver::Gateway;
use testkit::keys::Key;

pub(super) fn reply(status: u16, body: &Value) -> Reply {
    Reply::Http { status, json: true, body: body.to_string().into_bytes() }
}

pub(super) fn http_uri(path: &str) -> Value {
    json!({"uri": format!("https://auth.example.com{path}"), "cluster": "gateway"})
}

/// The keys of the backend's issuer are fetched from that issuer.
pub(super) fn with_remote_keys() -> Value {
    let mut configuration = configuration();
    let issuer = configuration.pointer_mut("/subject_tokens/authentication/jwt/0").unwrap();
    issuer.as_object_mut().unwrap().remove("local_jwks");
    issuer["remote_jwks"] = json!({"http_uri": http_uri("/oidc/jwks"), "cache_duration": "300s"});
    configuration
}

pub(super) fn key_set(keys: &[&Key]) -> Reply {
    let keys: Vec<_> = keys.iter().map(|key| key.public_jwk()).collect();
    reply(200, &json!({"keys": keys}))
}

#[test]
fn one_worker_fetches_for_all() {
    let first = Gateway::new(&with_remote_keys());
    first.upstream(|_| key_set(&[&PROVIDER_KEY]));
    first.tick();
    let second = Gateway::in_world(&first.world, &with_remote_keys());
    second.tick();
    assert_eq!(second.send(&mint_form().request()).status, 201);
    assert!(second.calls.borrow().is_empty());
}
