//! The guard's configuration: a wrong one lets no impersonation pass, and a new one ends none.

use serde_json::{Value, json};

use testkit::guarded::{claims, guard_configuration, ordinary_token, token};
use testkit::http::Request;

use crate::guarded::Api;

#[test]
fn a_wrong_configuration_is_refused_and_the_old_one_stays() {
    let api = Api::start(&json!({}));
    let wrong = |members: Value| guard_configuration(&members);
    #[rustfmt::skip]
    let cases = [
        (wrong(json!({"rule": []})),                        "configuration refused: rule: unknown member"),
        (wrong(json!({"mode": "off"})),                     "configuration refused: mode: expected one of enforce, report"),
        (wrong(json!({"rules": [{"path": "/a"}]})),         "configuration refused: rules[0].action: is required"),
        (wrong(json!({"issuer": 7})),                       "configuration refused: issuer: expected a string, found a number"),
        (wrong(json!({"store": {"etcd": {}}})),             "configuration refused: store.etcd.cluster: is required"),
        (json!({}),                      "configuration refused: "),
    ];
    for (configuration, problem) in cases {
        let log = api.update(&configuration).expect_err(problem);
        assert!(log.contains(problem), "{problem}: {log}");
        assert_eq!(api.send_as(&token(&claims()), Request::get("/orders")).status, 200);
        assert_eq!(api.send_as(&token(&claims()), Request::post("/orders")).status, 403);
        assert_eq!(api.send_as(&ordinary_token(), Request::post("/orders")).status, 200);
    }
    // A corrected configuration is accepted.
    api.update(&guard_configuration(&json!({"default": "allow"}))).unwrap();
    assert_eq!(api.send_as(&token(&claims()), Request::post("/orders")).status, 200);
}

/// A guard with a wrong `issuer` or `payload_in_metadata` recognises no token, and lets none pass.
#[test]
fn a_guard_of_another_issuer_or_payload_lets_no_impersonation_pass() {
    for members in [
        json!({"issuer": "https://auth.example.com", "default": "allow"}),
        json!({"payload_in_metadata": "payload", "default": "allow"}),
    ] {
        let api = Api::start(&members);
        let answer = api.send_as(&token(&claims()), Request::get("/orders"));
        assert_eq!(answer.refusal(), (401, "invalid_token".into()), "{members}");
        assert_eq!(api.send_as(&ordinary_token(), Request::post("/orders")).status, 200);
    }
}

/// Each change makes a new VM in every worker, with the same shared data.
#[test]
fn a_new_guard_configuration_ends_no_live_impersonation() {
    let api = Api::start(&json!({}));
    let token = token(&claims());
    let status = |target: &str| api.send_as(&token, Request::get(target)).status;
    assert_eq!(status("/live"), 200);
    for n in 0..5 {
        let rules = json!([{"path": format!("/{n}"), "action": "deny"}]);
        api.update(&guard_configuration(&json!({"rules": rules}))).unwrap();
        assert_eq!(status("/live"), 200, "a change ends no impersonation");
        assert_eq!(status(&format!("/{n}")), 403);
    }
}
