//! The audit log of guarded requests.

use serde_json::{Value, json};

use testkit::guarded::{claims, claims_with, token};
use testkit::http::Request;
use testkit::wait_for;

use crate::guarded::Api;

#[test]
fn each_refusal_is_an_event_of_the_audit_log() {
    let api = Api::start(&json!({"rules": [
        {"path": "/first", "action": "allow"},
        {"path": "/second", "action": "deny"},
    ]}));
    let send = |claims: &Value, request: Request| {
        api.send_as(
            &token(claims),
            request.header("x-request-id", "00000000-0000-4000-8000-000000000007"),
        );
    };
    send(&claims(), Request::get("/orders"));
    send(&claims(), Request::get("/second?token=hunter2"));
    send(&claims(), Request::post("/orders"));
    send(&claims_with(&json!({"act": []})), Request::get("/orders"));
    let events = api.refusals(3);
    let known = json!({
        "event": "impersonated_request.refused",
        "request_id": "00000000-0000-4000-8000-000000000007",
        "subject_token_id": "a-txn",
        "user_id": "u-1",
        "actor_id": "agent-7",
        "client_id": "support-portal",
        "resource": "https://api.example.com/orders",
        "scope": "orders:read orders:write",
        "jti": "a-jti",
        "method": "GET",
        "path": "/second",
        "error": "insufficient_scope",
        "reason": "rule",
        "rule": "rules[1]",
        "enforced": true,
    });
    assert_eq!(events[0], known);
    assert_eq!((&events[1]["reason"], &events[1]["rule"]), (&json!("default"), &json!("default")));
    assert_eq!(
        (&events[2]["reason"], &events[2]["rule"]),
        (&json!("claims_malformed"), &Value::Null)
    );
    assert!(!api.log().contains("hunter2"));
}

#[test]
fn the_guard_counts_each_request_and_each_refusal() {
    let api = Api::start(&json!({"rules": [{"path": "/second", "action": "deny"}]}));
    for target in ["/first", "/second"] {
        api.send_as(&token(&claims()), Request::get(target));
    }
    assert_eq!(api.counted("impersonation_guard_refusals_total.reason.rule"), 1);
    // The next tick counts the requests.
    wait_for("the requests to be counted", || {
        (api.counted("impersonation_guard_requests_total") == 2).then_some(())
    });
}

#[test]
fn nothing_that_a_caller_sends_is_logged_in_full_or_with_its_query() {
    let api = Api::start(&json!({"default": "deny"}));
    let target = format!("/{}?token=secret", "a".repeat(5000));
    api.send_as(&token(&claims()), Request::get(&target));
    let event = &api.refusals(1)[0];
    assert!(event.to_string().len() < 1000, "{event}");
    assert!(!api.log().contains("secret"));
    let line = &api.access_log(1)[0];
    let members = line.as_object().unwrap().iter().filter(|(name, _)| *name != "path");
    for (name, value) in members {
        assert!(value.to_string().len() < 100, "{name}: {value}");
    }
}
