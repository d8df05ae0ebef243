//! Callers that leave: the work that ends with them, and the work that continues.

use std::time::Duration;

use impersonation_core::step::Reply;
use jsonwebtoken::Algorithm;
use serde_json::json;
use testkit::keys::Key;

use super::callouts::{key_set, with_remote_keys};
use super::setting::{PROVIDER_KEY, backend_claims, mint_form};
use crate::driver::Gateway;

/// A worker that knows the issuer's first key, and a request with a token that the second key
/// signed.
fn rotated() -> (Gateway, Key) {
    let gateway = Gateway::new(&with_remote_keys());
    gateway.upstream(|_| key_set(&[&PROVIDER_KEY]));
    gateway.tick();
    gateway.world.advance(Duration::from_secs(10));
    (gateway, Key::generate(Algorithm::ES256, "provider-2"))
}

#[test]
fn nothing_is_minted_for_a_caller_who_has_left() {
    let (gateway, new) = rotated();
    let form = mint_form().bearer(&new.sign(&backend_claims()));
    let mut waiting = gateway.send_and_wait(&form.request());
    assert_eq!(waiting.leave(), None);
    let event = waiting.reply(key_set(&[&new]));
    assert_eq!(
        (&event["event"], &event["reason"]),
        (&json!("subject_token.refused"), &json!("caller_gone"))
    );
    assert_eq!(event["user_id"], "user-42", "what was known by then");
    let stored = gateway.world.stored();
    assert!(!stored.iter().any(|(key, _)| key.ends_with("s0")), "{stored:?}");
}

#[test]
fn a_fetch_that_fails_when_nobody_waits_is_written_down_all_the_same() {
    let (gateway, new) = rotated();
    let form = mint_form().bearer(&new.sign(&backend_claims()));
    let mut waiting = gateway.send_and_wait(&form.request());
    assert_eq!(waiting.leave(), None);
    let event = waiting.reply(Reply::Http { status: 500, json: false, body: Vec::new() });
    assert_eq!(event["reason"], "callout_failed");
}
