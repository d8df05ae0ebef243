//! The guard fails: impersonations are refused, and ordinary users' requests pass.

use serde_json::{Value, json};

use testkit::artifacts::GUARD;
use testkit::guarded::{
    Guarded, api_listener, claims, for_impersonations, guard, guard_configuration,
    guarded_listener, ordinary_token, token,
};
use testkit::http::Request;
use testkit::trap::with_trap;
use testkit::{Findings, wait_for};

#[test]
fn a_wrong_configuration_is_refused_and_the_old_one_stays() {
    let guarded = Guarded::lent(&json!({}));
    let wrong = |members: Value| guarded_listener(&guard_configuration(&members));
    #[rustfmt::skip]
    let cases = [
        (wrong(json!({"rule": []})),                        "configuration refused: rule: unknown member"),
        (wrong(json!({"mode": "off"})),                     "configuration refused: mode: expected one of enforce, report"),
        (wrong(json!({"rules": [{"path": "/a"}]})),         "configuration refused: rules[0].action: is required"),
        (wrong(json!({"issuer": 7})),                       "configuration refused: issuer: expected a string, found a number"),
        (wrong(json!({"store": {"etcd": {}}})),             "configuration refused: store.etcd.cluster: is required"),
        (guarded_listener(&json!({})),                      "configuration refused: "),
    ];
    for (listener, problem) in cases {
        let log = guarded.envoy.update(listener).expect_err(problem);
        assert!(log.contains(problem), "{problem}: {log}");
        assert_eq!(guarded.send_as(&token(&claims()), Request::get("/orders")).status, 200);
        assert_eq!(guarded.send_as(&token(&claims()), Request::post("/orders")).status, 403);
        assert_eq!(guarded.send_as(&ordinary_token(), Request::post("/orders")).status, 200);
    }
    // A corrected configuration is accepted.
    let listener = guarded_listener(&guard_configuration(&json!({"default": "allow"})));
    guarded.envoy.update(listener).unwrap();
    assert_eq!(guarded.send_as(&token(&claims()), Request::post("/orders")).status, 200);
}

/// A guard with a wrong `issuer` or `payload_in_metadata` recognises no token, and lets none pass.
#[test]
fn a_guard_of_another_issuer_or_payload_lets_no_impersonation_pass() {
    for members in [
        json!({"issuer": "https://auth.example.com", "default": "allow"}),
        json!({"payload_in_metadata": "payload", "default": "allow"}),
    ] {
        let guarded = Guarded::lent(&members);
        let answer = guarded.send_as(&token(&claims()), Request::get("/orders"));
        assert_eq!(answer.refusal(), (401, "invalid_token".into()), "{members}");
        assert_eq!(guarded.send_as(&ordinary_token(), Request::post("/orders")).status, 200);
    }
}

#[test]
fn a_crashing_guard_refuses_impersonations_and_lets_ordinary_users_pass() {
    let mut filter = guard(&guard_configuration(&json!({"default": "allow"})));
    // The trap stands for any crash in the guard.
    filter.module = Some(with_trap(&GUARD, "proxy_on_request_headers"));
    let guarded =
        Guarded::try_start_with(api_listener("guarded", [for_impersonations(filter)])).unwrap();
    let mut findings = Findings::default();
    for n in 0..20 {
        let answer = guarded.send_as(&token(&claims()), Request::get("/orders"));
        findings.expect(format!("impersonation {n}"), &answer.status, &503);
        findings.expect(format!("impersonation {n}: reached"), &guarded.reached(&answer), &false);
        let answer = guarded.send_as(&ordinary_token(), Request::post("/orders").body("x"));
        findings.expect(format!("ordinary user {n}"), &answer.status, &200);
    }
    assert!(guarded.envoy.is_running());
    let log = wait_for("the crash in the log", || {
        Some(guarded.envoy.log()).filter(|log| log.contains("RuntimeError: unreachable"))
    });
    assert!(!log.contains("assert failure"), "{log}");
}

/// Each change makes a new VM in every worker, with the same shared data.
#[test]
fn a_new_guard_configuration_ends_no_live_impersonation() {
    let guarded = Guarded::lent(&json!({}));
    let request = Request::get("/live").bearer(&token(&claims()));
    assert_eq!(guarded.send(&request).status, 200);
    for n in 0..5 {
        let rules = json!([{"path": format!("/{n}"), "action": "deny"}]);
        let listener = guarded_listener(&guard_configuration(&json!({"rules": rules})));
        guarded.envoy.update(listener).unwrap();
        assert_eq!(guarded.send(&request).status, 200, "a change ends no impersonation");
        let denied = Request::get(&format!("/{n}")).bearer(&token(&claims()));
        assert_eq!(guarded.send(&denied).status, 403);
    }
}
