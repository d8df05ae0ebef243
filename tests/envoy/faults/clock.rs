//! The wall clock is set while Envoy runs: the age of an entry with a later time is unknown.

use jsonwebtoken::Algorithm;

use super::{Issuer, echoing_gateway, mint_with, minters_of};
use testkit::clock::Clock;
use testkit::configuration::Configuration;
use testkit::gateway::{exchange_form, exchange_request, in_front_of, mint_request, minted};
use testkit::keys::Key;
use testkit::wait_for;

const HOUR: i64 = 3600;

#[test]
fn key_sets_are_fetched_anew_when_the_clock_was_set_back() {
    let clock = Clock::new();
    let issuer = Issuer::start("keys");
    let services = [&echoing_gateway(), &issuer.service];
    let bootstrap = in_front_of(&services, &minters_of(&issuer, "300s")).workers(2);
    let envoy = clock.for_envoy(bootstrap).start();
    wait_for("the keys", || {
        (envoy.send(&mint_with(&issuer.bearer(&issuer.key))).status == 201).then_some(())
    });
    let rotated = Key::generate(Algorithm::EdDSA, "rotated");
    issuer.publish(&[&rotated]);
    clock.set(-HOUR);
    for connection in &mut envoy.connect_to_every_worker() {
        wait_for("the new key", || {
            (connection.send(&mint_with(&issuer.bearer(&rotated))).status == 201).then_some(())
        });
    }
    wait_for("the age of the keys", || {
        envoy.metric("impersonation_key_set_age_seconds").filter(|age| *age < 60)
    });
}

#[test]
fn subject_tokens_expire_when_the_clock_is_set_and_leave_their_slots() {
    let clock = Clock::new();
    let configuration = Configuration::default().with("/store/shared_data/capacity", 4);
    let bootstrap = in_front_of(&[&echoing_gateway()], &configuration);
    let envoy = clock.for_envoy(bootstrap).start();
    let mint = || minted(&envoy.send(&mint_request("u-1")));
    let exchange = |token: &str| envoy.send(&exchange_request(&exchange_form(token)));
    let mint_all = || [mint(), mint(), mint(), mint()];
    let assert_expired = |tokens: [String; 4]| {
        for token in &tokens {
            let answer = exchange(token);
            assert_eq!(answer.refusal(), (400, "invalid_request".into()), "{answer:?}");
            assert!(answer.text().contains("has expired"), "{answer:?}");
        }
    };
    let tokens = mint_all();
    clock.set(-HOUR);
    assert_expired(tokens);
    // Before Envoy's start by its own clock, a new token cannot be told from one that was lost with
    // the process.
    let tokens = mint_all();
    for token in &tokens {
        assert_eq!(exchange(token).refusal(), (503, "temporarily_unavailable".into()));
    }
    clock.set(0);
    assert_expired(tokens);
    for token in &mint_all() {
        assert_eq!(exchange(token).status, 200);
    }
}
