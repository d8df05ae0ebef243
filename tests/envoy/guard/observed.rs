//! The operator's view of impersonated requests: audit, access log, metrics, size.

use serde_json::{Value, json};

use testkit::artifacts::GUARD;
use testkit::guarded::{
    Guarded, claims, claims_with, filter_configuration, guard_configuration, guarded_listener,
    ordinary_token, token,
};
use testkit::http::Request;
use testkit::{scratch, wait_for};

use crate::audit::audit_logger;

fn events(guarded: &Guarded) -> Vec<Value> {
    let log = guarded.envoy.log();
    let lines =
        log.lines().filter_map(|line| line.split_once("{\"event\":\"impersonated_request."));
    lines
        .map(|(_, rest)| {
            serde_json::from_str(&format!("{{\"event\":\"impersonated_request.{rest}")).unwrap()
        })
        .collect()
}

#[test]
fn every_impersonated_call_is_in_the_access_log_with_its_id_actor_and_user() {
    let guarded = Guarded::lent(&json!({}));
    let who = |line: &Value| ["txn", "sub", "act", "guard"].map(|name| line[name].clone());
    #[rustfmt::skip]
    let cases = [
        (token(&claims()),                              "GET",  json!(["a-txn", "u-1", "agent-7", "allowed: default"])),
        (token(&claims_with(&json!({"act": null}))),    "GET",  json!(["a-txn", "u-1", null, "allowed: default"])),
        (token(&claims()),                              "POST", json!(["a-txn", "u-1", "agent-7", "refused: default"])),
        (ordinary_token(),                              "POST", json!([null, "u-1", null, null])),
    ];
    for (token, method, _) in &cases {
        guarded.send_as(token, Request::new(method, "/orders"));
    }
    let lines = wait_for("the access log", || {
        Some(guarded.envoy.access_log()).filter(|lines| lines.len() == cases.len())
    });
    for ((_, method, expected), line) in cases.iter().zip(&lines) {
        assert_eq!(json!(who(line)), *expected, "{method}: {line}");
    }
    let refused = &lines[2];
    assert_eq!(refused["details"], "impersonation_default");
    assert_eq!(refused["event"], "impersonated_request.refused");
    assert_eq!(
        (&refused["subject_token_id"], &refused["user_id"]),
        (&json!("a-txn"), &json!("u-1"))
    );
}

/// Uses the access logger of docs/operations.md, as the filter does.
#[test]
fn the_guards_audit_goes_only_to_the_configured_log() {
    for log in ["envoy", "access_log"] {
        let path = scratch().join(format!("guards-audit-{log}.log"));
        let configuration = guard_configuration(&json!({"audit": {"log": log}}));
        let listener = guarded_listener(&configuration).access_logger(audit_logger(&path));
        let guarded = Guarded::lent_with(listener, &filter_configuration());
        guarded.send_as(&token(&claims()), Request::get("/orders"));
        guarded.send_as(&token(&claims()), Request::post("/orders"));
        let lines = wait_for("the access log", || {
            Some(guarded.envoy.access_log()).filter(|lines| lines.len() == 2)
        });
        assert!(lines.iter().all(|line| line["event"].is_null()), "{log}: {lines:?}");
        let decided: Vec<_> = lines.iter().map(|line| line["guard"].as_str().unwrap()).collect();
        assert_eq!(decided, ["allowed: default", "refused: default"], "{log}");
        let whole: Vec<Value> = wait_for("the audit", || {
            let all = if log == "envoy" {
                events(&guarded)
            } else {
                let text = std::fs::read_to_string(&path).unwrap_or_default();
                text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
            };
            Some(all).filter(|all| all.len() == 1)
        });
        assert_eq!(whole[0]["event"], "impersonated_request.refused", "{log}");
        assert_eq!(whole[0]["user_id"], "u-1", "{log}");
        assert_eq!(events(&guarded).len(), usize::from(log == "envoy"), "{log}");
    }
}

#[test]
fn the_guard_counts_requests_and_refusals_from_zero() {
    let guarded = Guarded::start(&json!({}));
    let counted = |name: &str| guarded.envoy.metric(&format!("impersonation_guard_{name}"));
    let refused = |reason: &str| counted(&format!("refusals_total.reason.{reason}"));
    for reason in [
        "claims_missing",
        "other_issuer",
        "claims_malformed",
        "revocations_unknown",
        "revocations_stale",
        "expired",
        "expired_while_open",
        "ended",
        "ended_while_open",
        "stale_while_open",
        "rule",
        "default",
        "path_not_normal",
        "method_override",
    ] {
        assert_eq!(refused(reason), Some(0), "{reason}");
    }
    assert_eq!((counted("requests_total"), counted("streams_ended_total")), (Some(0), Some(0)));
    wait_for("the first tick", || counted("revocations_age_seconds"));
    for request in [Request::get("/orders"), Request::post("/orders"), Request::post("/orders//7")]
    {
        guarded.send_as(&token(&claims()), request);
    }
    wait_for("the requests to be counted", || (counted("requests_total") == Some(3)).then_some(()));
    assert_eq!((refused("default"), refused("path_not_normal")), (Some(1), Some(1)));
    // Envoy keeps the gauge of the worker that wrote last.
    assert!(counted("revocations_age_seconds").unwrap() <= 60);
}

/// Every worker has one, besides the filter.
#[test]
fn the_module_is_small_and_has_no_callbacks_for_bodies_or_responses() {
    let module = std::fs::read(&*GUARD).unwrap();
    assert!(module.len() <= 440_000, "{} bytes", module.len());
    let has = |name: &str| module.windows(name.len()).any(|window| window == name.as_bytes());
    assert!(has("proxy_on_request_headers") && has("proxy_on_tick"));
    for callback in [
        "proxy_on_request_body",
        "proxy_on_response_headers",
        "proxy_on_response_body",
        "proxy_on_log",
    ] {
        assert!(!has(callback), "{callback}");
    }
}
