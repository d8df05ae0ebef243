//! Key sets that are fetched: how often, for which workers, and what a failure leaves.

use std::time::Duration;

use impersonation_core::step::{CallFailure, Reply};
use jsonwebtoken::Algorithm;
use serde_json::{Value, json};

use super::setting::{PROVIDER_KEY, backend_claims, configuration, mint_form};
use crate::driver::Gateway;
use testkit::keys::Key;

pub(super) fn reply(status: u16, body: &Value) -> Reply {
    Reply::Http { status, json: true, body: body.to_string().into_bytes() }
}

pub(super) fn http_uri(path: &str) -> Value {
    json!({"uri": format!("https://auth.example.com{path}"), "cluster": "gateway"})
}

/// The replies that do not count as answers.
fn useless() -> Vec<(&'static str, Reply)> {
    let html = Reply::Http { status: 200, json: false, body: b"<html>".to_vec() };
    vec![
        ("not sent", Reply::Failed(CallFailure::NotSent)),
        ("cut off", Reply::Failed(CallFailure::CutOff)),
        ("an error", reply(500, &json!({}))),
        ("a timeout", reply(504, &json!({}))),
        ("a redirect", reply(302, &json!({}))),
        ("a page", html),
        ("no JSON", Reply::Http { status: 200, json: true, body: b"{".to_vec() }),
        (
            "not UTF-8 in a member that nobody reads",
            Reply::Http {
                status: 200,
                json: true,
                body: b"{\"active\":true,\"sub\":\"a\",\"x\":\"\xff\"}".to_vec(),
            },
        ),
        ("another JSON", reply(200, &json!([]))),
    ]
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
fn before_there_are_keys_nothing_is_verified_and_nobody_is_refused_for_good() {
    let gateway = Gateway::new(&with_remote_keys());
    for (case, failure) in useless() {
        let sent = failure != Reply::Failed(CallFailure::NotSent);
        gateway.upstream(move |_| failure.clone());
        let answer = gateway.send(&mint_form().request());
        assert_eq!((answer.status, answer.reason()), (503, "callout_failed"), "{case}");
        // An upstream that did not answer is not asked again for a second.
        if sent {
            assert_eq!(gateway.send(&mint_form().request()).status, 503, "{case}");
            gateway.world.advance(Duration::from_secs(1));
        }
    }
    assert_eq!(gateway.calls.borrow().len(), useless().len());
    gateway.upstream(|_| key_set(&[&PROVIDER_KEY]));
    assert_eq!(gateway.send(&mint_form().request()).status, 201);
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

#[test]
fn a_new_key_is_fetched_when_a_token_names_it_and_an_invented_one_not_too_often() {
    let gateway = Gateway::new(&with_remote_keys());
    gateway.upstream(|_| key_set(&[&PROVIDER_KEY]));
    gateway.tick();
    gateway.world.advance(Duration::from_secs(10));

    let new = Key::generate(Algorithm::ES256, "provider-2");
    let rotated = mint_form().bearer(&new.sign(&backend_claims()));
    let keys = key_set(&[&PROVIDER_KEY, &new]);
    gateway.upstream(move |_| keys.clone());
    assert_eq!(gateway.send(&rotated.request()).status, 201);

    let invented = Key::generate(Algorithm::ES256, "invented");
    for _ in 0..3 {
        let form = mint_form().bearer(&invented.sign(&backend_claims()));
        assert_eq!(gateway.send(&form.request()).reason(), "no_key");
    }
    assert_eq!(gateway.calls.borrow().len(), 2, "one for the start, one for the new key");
}

#[test]
fn a_key_that_is_withdrawn_verifies_nothing_any_more() {
    let gateway = Gateway::new(&with_remote_keys());
    gateway.upstream(|_| key_set(&[&PROVIDER_KEY]));
    gateway.tick();
    assert_eq!(gateway.send(&mint_form().request()).status, 201);

    let new = Key::generate(Algorithm::ES256, "provider-2");
    let keys = key_set(&[&new]);
    gateway.upstream(move |_| keys.clone());
    gateway.world.advance(Duration::from_secs(300));
    gateway.tick();
    gateway.world.advance(Duration::from_secs(1));
    let answer = gateway.send(&mint_form().request());
    assert_eq!((answer.status, answer.reason()), (401, "no_key"), "remembered: {answer:?}");
}

#[test]
fn the_last_good_keys_stay_when_a_fetch_fails() {
    for (case, failure) in useless() {
        let gateway = Gateway::new(&with_remote_keys());
        gateway.upstream(|_| key_set(&[&PROVIDER_KEY]));
        gateway.tick();
        gateway.upstream(move |_| failure.clone());
        gateway.world.advance(Duration::from_secs(300));
        gateway.tick();
        assert_eq!(gateway.calls.borrow().len(), 2, "{case}");
        assert_eq!(gateway.send(&mint_form().request()).status, 201, "{case}");
    }
}
