//! The configuration changes under load: outstanding tokens survive, and a refused configuration
//! changes nothing.

use jsonwebtoken::Algorithm;
use serde_json::json;

use testkit::bootstrap::{Filter, Plugin};
use testkit::configuration::{Configuration, ORDERS};
use testkit::gateway::{
    Gateway, Options, exchange_form, exchange_request, mint_request, minted, raw_part,
};
use testkit::keys::Key;

const CAPACITY: &str = "/store/shared_data/capacity";

#[test]
fn outstanding_tokens_outlive_every_change_of_the_configuration() {
    let options = Options { concurrency: 2, ..Options::default() };
    let start = Configuration::default().with(CAPACITY, 10);
    let gateway = Gateway::try_start(&start, &options).unwrap();
    let key = Key::generate(Algorithm::ES256, "gateway-2");
    let changes = [
        ("a longer lifetime", start.clone().with("/subject_tokens/lifetime", "1200s")),
        ("a shorter one", start.clone().with("/subject_tokens/lifetime", "5s")),
        (
            "another signing key",
            start.clone().with("/signing_keys/0", json!({"jwk": key.private_jwk()})),
        ),
        (
            "other audiences",
            start.clone().with("/subject_tokens/authentication/jwt/0/audiences", json!(["urn:x"])),
        ),
        ("a smaller context", start.clone().with("/subject_tokens/max_context_bytes", 10)),
        ("more room", start.clone().with(CAPACITY, 100)),
        ("less room", start.clone().with(CAPACITY, 5)),
        ("less room still", start.clone().with(CAPACITY, 1)),
        ("no change", start.clone()),
    ];
    let mut tokens: Vec<_> = (0..10).map(|n| (n, gateway.mint(&format!("u-{n}")))).collect();
    for (case, configuration) in changes {
        gateway.update(&configuration).unwrap_or_else(|log| panic!("{case}: refused: {log}"));
        let (n, token) = tokens.pop().unwrap();
        let answer = gateway.exchange(&exchange_form(&token));
        assert_eq!(answer.status, 200, "{case}: {answer:?}");
        let claims = raw_part(&answer.member("access_token"), 1);
        assert_eq!(claims["sub"], format!("u-{n}"), "{case}");
        gateway.assert_spent(&token, case);
    }
    let (_, last) = tokens.pop().unwrap();
    gateway.update(Plugin::Text(start.0.to_string())).unwrap();
    gateway.assert_spendable(&last, "the configuration as a string");
}

#[test]
fn a_change_of_capacity_is_exact() {
    let configuration = |capacity: u32| Configuration::default().with(CAPACITY, capacity);
    let gateway = Gateway::start(&configuration(2));
    let mint = || gateway.send(&mint_request("u-1"));
    let mut tokens: Vec<_> = (0..2).map(|_| minted(&mint())).collect();
    assert_eq!(mint().status, 503);
    gateway.update(&configuration(4)).unwrap();
    tokens.extend((0..2).map(|_| minted(&mint())));
    assert_eq!(mint().status, 503);
    gateway.update(&configuration(2)).unwrap();
    assert_eq!(mint().status, 503);
    for token in &tokens {
        gateway.assert_spendable(token, "minted under three capacities");
    }
    tokens = (0..2).map(|_| minted(&mint())).collect();
    assert_eq!(mint().status, 503);
    for token in &tokens {
        gateway.assert_spendable(token, "minted after all");
    }
}

#[test]
fn a_refused_configuration_leaves_the_old_one_serving() {
    let gateway = Gateway::start(&Configuration::default());
    let token = gateway.mint("u-1");
    let refused: [(&str, Filter); 3] = [
        ("a wrong member", (&Configuration::default().with("/issuer", 7)).into()),
        ("not JSON", Plugin::Text("issuer: https://auth.example.com".into()).into()),
        ("nothing", Plugin::Text(String::new()).into()),
    ];
    for (case, filter) in refused {
        let outcome = gateway.update(&filter);
        assert!(outcome.is_err(), "{case}: accepted");
        gateway.assert_serves(case);
    }
    gateway.assert_spendable(&token, "after refused configurations");
    // A corrected configuration is accepted.
    let resources = json!([{"indicator": ORDERS, "scopes": ["orders:list"]}]);
    gateway.update(&Configuration::default().with("/resources", resources)).unwrap();
    let form = exchange_form(&gateway.mint("u-1")).set("scope", "orders:list");
    assert_eq!(gateway.send(&exchange_request(&form)).member("scope"), "orders:list");
}
