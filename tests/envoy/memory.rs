//! Memory does not grow with the number of requests. Envoy's shared data never forgets a key, so
//! only a filter that reuses its keys keeps its size. The benchmark does this with a million
//! tokens.

use jsonwebtoken::Algorithm;
use serde_json::json;

use testkit::configuration::{Configuration, PROVIDER_KEY, jwks};
use testkit::gateway::{
    Gateway, backend_claims, exchange_form, exchange_request, mint_request, minted,
};
use testkit::http::Request;
use testkit::keys::Key;

const CAPACITY: &str = "/store/shared_data/capacity";
const ROOM: u64 = 20 << 20;

#[test]
fn memory_is_bounded_by_capacity_not_by_the_number_of_tokens() {
    let configuration =
        Configuration::default().with(CAPACITY, 5000).with("/subject_tokens/lifetime", "1s");
    let gateway = Gateway::start(&configuration);
    let mut connection = gateway.connect();
    let request = mint_request("u-1");
    let mut mint = |count: u32| {
        let mut minted = 0;
        while minted < count {
            match connection.send(&request).status {
                201 => minted += 1,
                status => assert_eq!(status, 503),
            }
        }
    };
    mint(10_000);
    let before = gateway.envoy.resident_bytes();
    mint(40_000);
    let after = gateway.envoy.resident_bytes();
    assert!(after < before + ROOM, "{before} bytes after 10 000 mints, {after} after 50 000");
}

#[test]
fn memory_is_bounded_for_any_number_of_bearers_and_exchanges() {
    let key = Key::generate(Algorithm::EdDSA, "ed");
    let configuration = Configuration::default()
        .with("/subject_tokens/authentication/jwt/0/local_jwks", jwks(&[&PROVIDER_KEY, &key]));
    let gateway = Gateway::start(&configuration);
    let mut connection = gateway.connect();
    let mut flow = |count: u32| {
        for _ in 0..count {
            // Each bearer is new, so the memory of the last one does not help.
            let bearer = key.sign(&backend_claims());
            let request = Request::post("/api/subject-tokens")
                .bearer(&bearer)
                .json(&json!({"userId": "u-1"}));
            let token = minted(&connection.send(&request));
            let answer = connection.send(&exchange_request(&exchange_form(&token)));
            assert_eq!(answer.status, 200, "{answer:?}");
        }
    };
    flow(3000);
    let before = gateway.envoy.resident_bytes();
    flow(9000);
    let after = gateway.envoy.resident_bytes();
    assert!(after < before + ROOM, "{before} bytes after 3000 flows, {after} after 12 000");
}
