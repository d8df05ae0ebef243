//! Failures around the core: lost races, shared data and randomness that fail, callers that leave,
//! and upstreams. No failure costs a token or yields two.

use std::rc::Rc;
use std::time::Duration;

use jsonwebtoken::Algorithm;
use serde_json::json;

use super::setting::{ExchangeForm, configuration, configured, mint_form};
use crate::driver::Gateway;
use testkit::keys::Key;

#[test]
fn one_of_two_simultaneous_exchanges_gets_a_token() {
    let gateway = Gateway::usual();
    let form = ExchangeForm::new(&gateway.mint());
    let other = Gateway::in_world(&gateway.world, &configuration());
    let others_form = form.clone();
    gateway.world.before_next_write(move || {
        assert_eq!(other.exchange(&others_form).status, 200);
    });
    let answer = gateway.exchange(&form);
    assert_eq!((answer.status, answer.text("error")), (400, "invalid_request"));
    assert_eq!(answer.text("error_description"), "the subject token was already used");
    assert_eq!(answer.reason(), "subject_token_spent");
    assert_eq!(answer.event.get("jti"), None, "a token that nobody got has no name");
    let alarm = answer.alarm.unwrap();
    assert_eq!(alarm["first_exchange"]["client_id"], "console");
}

/// The token had not expired, and its record is gone, so it is unknown which request was first.
#[test]
fn the_second_exchange_is_told_the_same_if_the_slot_was_taken_again() {
    let gateway = Gateway::usual();
    let subject_token = gateway.mint();
    let form = ExchangeForm::new(&subject_token);
    let other = Gateway::in_world(&gateway.world, &configuration());
    gateway.world.before_next_write(move || {
        other.assert_spendable(&subject_token, "fresh");
        for _ in 0..4 {
            other.mint();
        }
    });
    for case in ["in the race", "later"] {
        let answer = gateway.exchange(&form);
        assert_eq!((answer.status, answer.reason()), (400, "subject_token_unknown"), "{case}");
        assert_eq!(answer.text("error_description"), "the subject token is invalid", "{case}");
    }
}

#[test]
fn two_simultaneous_mints_both_get_a_token() {
    let gateway = Gateway::usual();
    let other = Rc::new(Gateway::in_world(&gateway.world, &configuration()));
    for _ in 0..2 {
        let intruder = Rc::clone(&other);
        gateway.world.before_next_write(move || {
            intruder.mint();
        });
        let subject_token = gateway.mint();
        gateway.assert_spendable(&subject_token, "minted beside another");
    }
}

/// Whichever call to shared data fails, the exchange is granted or can be tried again.
#[test]
fn shared_data_that_fails_costs_no_token() {
    let mut statuses = Vec::new();
    for answered in 0.. {
        let gateway = Gateway::usual();
        let subject_token = gateway.mint();
        gateway.world.fail_shared_data(answered);
        let answer = gateway.exchange(&ExchangeForm::new(&subject_token));
        if !gateway.world.heal() {
            break;
        }
        statuses.push(answer.status);
        if answer.status != 200 {
            assert_eq!(answer.text("error"), "temporarily_unavailable");
            assert_eq!(answer.header("retry-after"), Some("1"));
            assert_eq!(answer.reason(), "host_failed");
            gateway.assert_spendable(&subject_token, "after shared data failed");
        }
    }
    // The calls are the look-up, the read of the revocations (the first one with the table), and
    // the compare-and-set; then two for the hint and two for the list, whose failure does not fail
    // the exchange.
    assert_eq!(statuses, [503, 503, 503, 503, 200, 200, 200, 200]);
}

#[test]
fn shared_data_that_fails_mints_nothing() {
    let mut statuses = Vec::new();
    for answered in 0.. {
        let gateway = Gateway::usual();
        gateway.world.fail_shared_data(answered);
        let answer = gateway.send(&mint_form().request());
        if !gateway.world.heal() {
            break;
        }
        statuses.push(answer.status);
        if answer.status == 503 {
            assert_eq!(answer.reason(), "host_failed");
            assert!(gateway.world.stored().is_empty(), "something was stored all the same");
        }
    }
    assert_eq!(statuses, [503, 503, 503, 201]);
}

#[test]
fn without_randomness_nothing_is_minted_or_exchanged() {
    let gateway = Gateway::usual();
    let subject_token = gateway.mint();
    gateway.world.fail_randomness(0);
    let answer = gateway.exchange(&ExchangeForm::new(&subject_token));
    assert_eq!((answer.status, answer.reason()), (503, "host_failed"));
    gateway.assert_spendable(&subject_token, "after randomness failed");

    // The random numbers are the nonce, and the slot at which a new worker begins to search.
    for drawn in 0..2 {
        let gateway = Gateway::usual();
        gateway.world.fail_randomness(drawn);
        let answer = gateway.send(&mint_form().request());
        assert!(gateway.world.heal());
        assert_eq!((answer.status, answer.reason()), (503, "host_failed"));
        assert!(gateway.world.stored().is_empty());
    }
}

/// RSA needs randomness for its signature too.
#[test]
fn a_signature_without_randomness_is_not_sent_and_can_be_tried_again() {
    let key = Key::generate(Algorithm::RS256, "rsa");
    for algorithm in [Algorithm::RS256, Algorithm::PS256] {
        let jwk = key.under(algorithm, "rsa").private_jwk();
        let gateway = Gateway::new(&configured("/signing_keys/0/jwk", jwk));
        let subject_token = gateway.mint();
        gateway.world.fail_randomness(1);
        let answer = gateway.exchange(&ExchangeForm::new(&subject_token));
        assert!(gateway.world.heal());
        assert_eq!((answer.status, answer.text("error")), (503, "temporarily_unavailable"));
        assert_eq!((answer.reason(), answer.header("retry-after")), ("signing_failed", Some("1")));
        gateway.assert_spendable(&subject_token, "after its signature failed");
    }
}

#[test]
fn a_worker_that_dies_between_two_calls_costs_no_token() {
    let gateway = Gateway::new(&configured(
        "/actor_tokens/userinfo",
        json!({"http_uri": {"uri": "https://auth.example.com/oidc/me", "cluster": "gateway"}}),
    ));
    let subject_token = gateway.mint();
    gateway.send_and_die(&ExchangeForm::new(&subject_token).actor("opaque").request());
    Gateway::in_world(&gateway.world, &configuration())
        .assert_spendable(&subject_token, "in another worker");
}

/// The record of a spent token names the first exchange until its slot is taken again.
#[test]
fn a_replay_is_told_from_a_guess_until_the_slot_is_taken_again() {
    let gateway = Gateway::usual();
    let subject_token = gateway.mint();
    gateway.assert_spendable(&subject_token, "fresh");
    gateway.world.advance(Duration::from_secs(3600));
    let late = gateway.exchange(&ExchangeForm::new(&subject_token));
    assert_eq!(late.reason(), "subject_token_spent", "an hour later");
    for _ in 0..4 {
        gateway.mint();
    }
    let answer = gateway.exchange(&ExchangeForm::new(&subject_token));
    assert_eq!(answer.reason(), "subject_token_unknown");
    assert_eq!(answer.text("error_description"), "the subject token is invalid");
}

#[test]
fn without_a_count_nothing_is_minted() {
    let gateway = Gateway::new(&configured(
        "/subject_tokens/max_mints_per_caller",
        json!({"count": 2, "per": "60s"}),
    ));
    for answered in 0..3 {
        gateway.world.fail_shared_data(answered);
        let answer = gateway.send(&mint_form().request());
        assert_eq!((answer.status, answer.reason()), (503, "host_failed"));
        assert!(gateway.world.heal());
    }
}
