//! Memory does not grow with the number of requests. Envoy's shared data never forgets a key, so
//! only a filter that reuses its keys keeps its size. The benchmark does this with a million
//! tokens.

use std::ops::Range;

use jsonwebtoken::Algorithm;
use serde_json::json;

use testkit::configuration::{Configuration, PROVIDER_KEY, jwks};
use testkit::gateway::{
    Gateway, Options, backend_claims, exchange_form, exchange_request, mint_request, minted,
};
use testkit::http::{Connection, Request};
use testkit::keys::Key;

/// The number of tokens in a full store.
const CAPACITY: u32 = 1000;

/// A quarter of a kilobyte for each token of the rounds that are measured.
const ROOM: u64 = 1 << 20;

/// Fills the store in each round, and sets the clock past the end of all its tokens before the next
/// one. Asserts that Envoy has reached its size after two rounds.
fn stays_small(configuration: Configuration, mut play: impl FnMut(&mut Connection)) {
    let configuration = configuration
        .with("/store/shared_data/capacity", CAPACITY)
        .with("/subject_tokens/lifetime", "10s")
        .with("/access_tokens/lifetime", "10s");
    let options = Options { clock: true, ..Options::default() };
    let gateway = Gateway::try_start(&configuration, &options).unwrap();
    let mut connection = gateway.connect();
    let mut resident_after = |rounds: Range<i64>| {
        for round in rounds {
            (0..CAPACITY).for_each(|_| play(&mut connection));
            gateway.envoy.clock().set((round + 1) * 11);
        }
        gateway.envoy.resident_bytes()
    };
    let before = resident_after(0..2);
    let after = resident_after(2..6);
    assert!(after < before + ROOM, "{before} bytes after two rounds, {after} after six");
}

#[test]
fn memory_is_bounded_by_capacity_not_by_the_number_of_tokens() {
    let request = mint_request("u-1");
    stays_small(Configuration::default(), |connection| {
        assert_eq!(connection.send(&request).status, 201);
    });
}

#[test]
fn memory_is_bounded_for_any_number_of_bearers_and_exchanges() {
    let key = Key::generate(Algorithm::EdDSA, "ed");
    let configuration = Configuration::default()
        .with("/subject_tokens/authentication/jwt/0/local_jwks", jwks(&[&PROVIDER_KEY, &key]));
    stays_small(configuration, |connection| {
        // Each bearer is new, so the memory of the last one does not help.
        let bearer = key.sign(&backend_claims());
        let request =
            Request::post("/api/subject-tokens").bearer(&bearer).json(&json!({"userId": "u-1"}));
        let token = minted(&connection.send(&request));
        let answer = connection.send(&exchange_request(&exchange_form(&token)));
        assert_eq!(answer.status, 200, "{answer:?}");
    });
}
