//! A store of limited size: it holds exactly as many tokens as configured, and being full harms no
//! token in it.

use std::thread;

use serde_json::json;

use crate::mint::describes;
use testkit::configuration::Configuration;
use testkit::gateway::{
    Gateway, Options, exchange_form, exchange_request, mint_body_request, mint_request, minted, now,
};
use testkit::{Findings, wait_for};

const CAPACITY: &str = "/store/shared_data/capacity";

#[test]
fn a_full_store_asks_to_retry_and_keeps_its_tokens() {
    let gateway = Gateway::lent(&Configuration::default().with(CAPACITY, 10));
    let mut tokens: Vec<_> = (0..10).map(|n| gateway.mint(&format!("u-{n}"))).collect();
    let mut findings = Findings::default();
    for attempt in 0..30 {
        let answer = gateway.send(&mint_request("u-late"));
        let case = format!("attempt {attempt} at a full store");
        findings.expect(&case, &answer.refusal(), &(503, "temporarily_unavailable".into()));
        let seconds = answer.header("retry-after").and_then(|value| value.parse::<u32>().ok());
        findings.expect(&case, &seconds.is_some_and(|seconds| (1..=600).contains(&seconds)), &true);
        describes(&mut findings, &case, &answer);
    }
    // A spent token frees its slot for exactly one mint, at any place in the table.
    for place in [9, 0, 4] {
        let token = tokens.remove(place);
        assert_eq!(gateway.exchange(&exchange_form(&token)).status, 200, "token {place}");
        tokens.push(gateway.mint("u-next"));
        assert_eq!(gateway.send(&mint_request("u-late")).status, 503, "full again");
        gateway.assert_spent(&token, "its slot has been given to another");
    }
    for token in &tokens {
        gateway.assert_spendable(token, "outstanding all the while");
    }
    gateway.assert_serves("after it was full");
}

#[test]
fn expired_tokens_make_room() {
    let configuration =
        Configuration::default().with(CAPACITY, 3).with("/subject_tokens/lifetime", "5s");
    let gateway = Gateway::lent(&configuration);
    for round in 0..2 {
        let tokens: Vec<_> = (0..3).map(|_| gateway.mint("u-1")).collect();
        assert_eq!(gateway.send(&mint_request("u-late")).status, 503, "round {round}");
        let minted_by = now();
        wait_for("the subject tokens to expire", || (now() > minted_by + 5).then_some(()));
        for token in &tokens {
            gateway.assert_spent(token, "expired");
        }
    }
    let token = gateway.mint("u-1");
    gateway.assert_spendable(&token, "in a slot used before");
}

#[test]
fn capacity_counts_tokens_of_any_size_of_context() {
    let gateway = Gateway::lent(&Configuration::default().with(CAPACITY, 3));
    let body = json!({"userId": "u-1", "context": {"k": "x".repeat(4000)}});
    let tokens: Vec<_> = (0..3).map(|_| minted(&gateway.send(&mint_body_request(&body)))).collect();
    assert_eq!(gateway.send(&mint_request("u-late")).status, 503);
    for token in &tokens {
        gateway.assert_spendable(token, "with a long context");
    }
}

#[test]
fn a_busy_store_loses_no_slot() {
    const ROOM: usize = 16;
    let options = Options { concurrency: 4, ..Options::default() };
    let configuration = Configuration::default().with(CAPACITY, ROOM);
    let gateway = Gateway::try_start(&configuration, &options).unwrap();
    // One worker mints a token and another spends it, at once.
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let (mut backend, mut client) = (gateway.connect(), gateway.connect());
                for _ in 0..200 {
                    let token = minted(&backend.send(&mint_request("u-1")));
                    let answer = client.send(&exchange_request(&exchange_form(&token)));
                    assert_eq!(answer.status, 200, "{answer:?}");
                }
            });
        }
    });
    let tokens: Vec<_> = (0..ROOM).map(|_| gateway.mint("u-1")).collect();
    assert_eq!(gateway.send(&mint_request("u-late")).status, 503);
    for token in &tokens {
        gateway.assert_spendable(token, "minted after the storm");
    }
}
