//! The guard fails: impersonations are refused, and ordinary users' requests pass.

use serde_json::json;

use testkit::artifacts::GUARD;
use testkit::guarded::{
    Guarded, api_listener, claims, for_impersonations, guard, guard_configuration, ordinary_token,
    token,
};
use testkit::http::Request;
use testkit::trap::with_trap;
use testkit::{Findings, wait_for};

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
