//! The wall clock is set while Envoy runs: the age of an entry with a later time is unknown.

use crate::world::World;
use testkit::configuration::Configuration;
use testkit::gateway::exchange_form;

const HOUR: i64 = 3600;

#[test]
fn subject_tokens_expire_when_the_clock_is_set_and_leave_their_slots() {
    let configuration = Configuration::default().with("/store/shared_data/capacity", 4);
    let world = World::start(&configuration);
    let mint = || world.mint();
    let exchange = |token: &str| world.exchange(&exchange_form(token));
    let mint_all = || [mint(), mint(), mint(), mint()];
    let assert_expired = |tokens: [String; 4]| {
        for token in &tokens {
            let answer = exchange(token);
            assert_eq!(answer.refusal(), (400, "invalid_request".into()), "{answer:?}");
            assert!(answer.text().contains("has expired"), "{answer:?}");
        }
    };
    let tokens = mint_all();
    world.advance(-HOUR);
    assert_expired(tokens);
    // Before Envoy's start by its own clock, a new token cannot be told from one that was lost with
    // the process.
    let tokens = mint_all();
    for token in &tokens {
        assert_eq!(exchange(token).refusal(), (503, "temporarily_unavailable".into()));
    }
    world.advance(HOUR);
    assert_expired(tokens);
    for token in &mint_all() {
        assert_eq!(exchange(token).status, 200);
    }
}
