//! Callers that leave: the work that ends with them, and the work that continues.

use jsonwebtoken::Algorithm;
use serde_json::{Value, json};

use crate::world::World;
use testkit::configuration::Configuration;
use testkit::gateway::exchange_by;
use testkit::keys::Key;
use testkit::server::{Fault, Reply};
use testkit::services::{Issuer, userinfo};

/// The seconds after which a token can cause a fetch again.
const AN_INTERVAL: i64 = 6;

/// A filter that knows the first key of an issuer, and the second key, which the issuer has now.
fn rotated() -> (World, Issuer, Key) {
    let world = World::start(&Configuration::default());
    let issuer = Issuer::at(world.upstream("keys"));
    world.update(&issuer.only_minters("300s")).unwrap();
    world.wait_for("the first key", || mints(&world, &issuer, &issuer.key));
    world.advance(AN_INTERVAL);
    let second = Key::generate(Algorithm::EdDSA, "second");
    issuer.publish(&[&second]);
    (world, issuer, second)
}

fn mints(world: &World, issuer: &Issuer, key: &Key) -> Option<()> {
    (world.send(&issuer.mint(key)).status == 201).then_some(())
}

/// Waits for the line of a refusal with this reason.
fn wait_for_line(world: &World, reason: &str) -> Value {
    world.wait_for(reason, || world.audit().into_iter().find(|event| event["reason"] == reason))
}

/// A caller must not be able to prevent a fetch by hanging up: a fetch that a stranger's token
/// caused goes on, and serves everybody.
#[test]
fn a_caller_who_hangs_up_does_not_stop_the_fetch_of_keys() {
    let (world, issuer, second) = rotated();
    let asked = issuer.service.calls();
    let invented = Key::generate(Algorithm::EdDSA, "invented");
    world.leave_while(&issuer.mint(&invented), "keys");
    world.wait_for("the new key", || mints(&world, &issuer, &second));
    assert_eq!(issuer.service.calls(), asked + 1, "the stranger's fetch brought it");
    assert_eq!(wait_for_line(&world, "no_key")["caller_gone"], true);
}

#[test]
fn nothing_is_minted_for_a_caller_who_has_left() {
    let (world, issuer, second) = rotated();
    let minted = || world.counted("impersonation_subject_tokens_created_total");
    let before = minted();
    world.leave_while(&issuer.mint(&second), "keys");
    let event = wait_for_line(&world, "caller_gone");
    assert_eq!(event["event"], "subject_token.refused");
    assert_eq!(event["user_id"], "u-1", "what was known by then");
    assert_eq!(minted(), before);
}

#[test]
fn a_fetch_that_fails_when_nobody_waits_is_written_down_all_the_same() {
    let (world, issuer, second) = rotated();
    issuer.service.fail(Fault::ServerError);
    world.leave_while(&issuer.mint(&second), "keys");
    wait_for_line(&world, "callout_failed");
}

#[test]
fn a_caller_who_goes_away_leaves_a_line_in_the_log_and_the_token() {
    let actors = json!({"userinfo": userinfo("0s")});
    let world = World::start(&Configuration::default().with("/actor_tokens", actors));
    world.upstream("userinfo").answer_always(Reply::json(&json!({"sub": "agent-7"})));
    let token = world.mint();
    world.leave_while(&exchange_by(&token, "opaque"), "userinfo");
    let event = wait_for_line(&world, "caller_gone");
    assert_eq!(event["event"], "token_exchange.refused");
    assert_eq!(event["user_id"], "u-1");
    world.assert_spendable(&token, "after its holder went away");
}
