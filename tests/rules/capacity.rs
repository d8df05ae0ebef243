//! A store of limited size: it holds exactly as many tokens as configured, and being full harms no
//! token in it.

use serde_json::json;

use super::flow::describes;
use crate::world::World;
use testkit::Findings;
use testkit::configuration::Configuration;
use testkit::gateway::{exchange_form, mint_body_request, mint_request, minted};

const CAPACITY: &str = "/store/shared_data/capacity";

#[test]
fn a_full_store_asks_to_retry_and_keeps_its_tokens() {
    let world = World::start(&Configuration::default().with(CAPACITY, 10));
    let mut tokens: Vec<_> = (0..10).map(|n| world.mint_for(&format!("u-{n}"))).collect();
    let mut findings = Findings::default();
    for attempt in 0..30 {
        let answer = world.send(&mint_request("u-late"));
        let case = format!("attempt {attempt} at a full store");
        findings.expect(&case, &answer.refusal(), &(503, "temporarily_unavailable".into()));
        let seconds = answer.header("retry-after").and_then(|value| value.parse::<u32>().ok());
        findings.expect(&case, &seconds.is_some_and(|seconds| (1..=600).contains(&seconds)), &true);
        describes(&mut findings, &case, &answer);
    }
    // A spent token frees its slot for exactly one mint, at any place in the table.
    for place in [9, 0, 4] {
        let token = tokens.remove(place);
        assert_eq!(world.exchange(&exchange_form(&token)).status, 200, "token {place}");
        tokens.push(world.mint_for("u-next"));
        assert_eq!(world.send(&mint_request("u-late")).status, 503, "full again");
        world.assert_spent(&token, "its slot has been given to another");
    }
    for token in &tokens {
        world.assert_spendable(token, "outstanding all the while");
    }
    world.assert_spendable(&world.mint(), "minted after it was full");
}

#[test]
fn expired_tokens_make_room() {
    let world = World::start(&Configuration::default().with(CAPACITY, 3));
    for round in 0..2 {
        let tokens: Vec<_> = (0..3).map(|_| world.mint()).collect();
        assert_eq!(world.send(&mint_request("u-late")).status, 503, "round {round}");
        world.advance(601);
        for token in &tokens {
            world.assert_spent(token, "expired");
        }
    }
    let token = world.mint();
    world.assert_spendable(&token, "in a slot used before");
}

#[test]
fn capacity_counts_tokens_of_any_size_of_context() {
    let world = World::start(&Configuration::default().with(CAPACITY, 3));
    let body = json!({"userId": "u-1", "context": {"k": "x".repeat(4000)}});
    let tokens: Vec<_> = (0..3).map(|_| minted(&world.send(&mint_body_request(&body)))).collect();
    assert_eq!(world.send(&mint_request("u-late")).status, 503);
    for token in &tokens {
        world.assert_spendable(token, "with a long context");
    }
}
