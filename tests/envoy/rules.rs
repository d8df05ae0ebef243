//! The operator's rules in Envoy: each met and not met, and a flood that holds back only its own
//! caller.

use jsonwebtoken::Algorithm;
use serde_json::json;

use testkit::configuration::{Configuration, PROVIDER_KEY, jwks};
use testkit::gateway::{Gateway, Options, backend_claims, mint_request};
use testkit::http::Request;
use testkit::keys::Key;

fn by(key: &Key, client_id: &str) -> Request {
    let mut claims = backend_claims();
    claims["client_id"] = json!(client_id);
    Request::post("/api/subject-tokens").bearer(&key.sign(&claims)).json(&json!({"userId": "u-1"}))
}

/// All workers count together. The period is far longer than a test.
#[test]
fn a_caller_at_its_mint_limit_does_not_hold_back_others() {
    let configuration = Configuration::default()
        .with("/subject_tokens/max_mints_per_caller", json!({"count": 20, "per": "24h"}));
    let options = Options { concurrency: 2, ..Options::default() };
    let gateway = Gateway::try_start(&configuration, &options).unwrap();
    let mut connections = gateway.envoy.connect_to_every_worker();
    let request = mint_request("u-1");
    let workers = connections.len();
    for n in 0..20 {
        assert_eq!(connections[n % workers].send(&request).status, 201, "mint {n}");
    }
    for connection in &mut connections {
        let answer = connection.send(&request);
        assert_eq!(answer.refusal(), (429, "temporarily_unavailable".into()), "{answer:?}");
        let seconds: u64 = answer.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=86_400).contains(&seconds), "{seconds}");
        assert_eq!(connection.send(&by(&PROVIDER_KEY, "another")).status, 201);
    }
    gateway.update(&configuration.without("/subject_tokens/max_mints_per_caller")).unwrap();
    assert_eq!(gateway.send(&request).status, 201, "after the rule is gone");
}

#[test]
fn a_flood_from_one_of_many_callers_costs_the_others_nothing() {
    const ROOM: u64 = 20 << 20;
    let key = Key::generate(Algorithm::EdDSA, "ed");
    let configuration = Configuration::default()
        .with("/subject_tokens/authentication/jwt/0/local_jwks", jwks(&[&PROVIDER_KEY, &key]))
        .with("/subject_tokens/lifetime", "1s")
        .with("/subject_tokens/max_mints_per_caller", json!({"count": 10, "per": "24h"}));
    let gateway = Gateway::start(&configuration);
    let mut connection = gateway.connect();
    let flood = by(&key, "flood");
    let mut flooded = 0;
    let mut callers = |range: std::ops::Range<u32>| {
        for caller in range {
            let answer = connection.send(&by(&key, &format!("caller-{caller}")));
            assert_eq!(answer.status, 201, "caller {caller}: {answer:?}");
            match connection.send(&flood).status {
                201 => flooded += 1,
                status => assert_eq!(status, 429),
            }
        }
    };
    callers(0..2000);
    let before = gateway.envoy.resident_bytes();
    callers(2000..10_000);
    let after = gateway.envoy.resident_bytes();
    assert_eq!(flooded, 10);
    assert!(after < before + ROOM, "{before} bytes after 2000 callers, {after} after 10 000");
}
