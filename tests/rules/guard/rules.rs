//! The operator's rules, and the default without rules.

use serde_json::{Value, json};

use testkit::Findings;
use testkit::gateway::now;
use testkit::guarded::{ACTOR_HEADER, ID_HEADER, claims, claims_with, guard_configuration, token};
use testkit::http::Request;

use crate::guarded::Api;

const DENIED: u16 = 403;

/// A request to the API, and its status.
type Case = (&'static str, &'static str, Value, u16);

fn run(api: &Api, cases: &[Case]) {
    let mut findings = Findings::default();
    for (method, target, changes, status) in cases {
        let request = Request::new(method, target);
        let answer = api.send_as(&token(&claims_with(changes)), request);
        let case = format!("{method} {target} {changes}");
        findings.expect(&case, &answer.status, status);
        findings.expect(&case, &api.received_for(&answer).is_some(), &(*status == 200));
    }
}

#[test]
fn without_rules_an_impersonation_can_read_but_not_write() {
    let api = Api::start(&json!({}));
    let nobody = || json!({"act": null});
    #[rustfmt::skip]
    let cases = [
        ("GET",     "/orders/7?a=b", json!({}), 200),
        ("HEAD",    "/orders",       json!({}), 200),
        ("OPTIONS", "/orders",       json!({}), 200),
        ("GET",     "/orders",       nobody(),  200),
        ("POST",    "/orders",       json!({}), DENIED),
        ("PUT",     "/orders/7",     json!({}), DENIED),
        ("PATCH",   "/orders/7",     json!({}), DENIED),
        ("DELETE",  "/orders/7",     json!({}), DENIED),
        ("TRACE",   "/orders",       json!({}), DENIED),
        ("PROPFIND", "/orders",      json!({}), DENIED),
        ("POST",    "/orders",       nobody(),  DENIED),
    ];
    run(&api, &cases);
}

/// A client may ask for less scope than it could have.
#[test]
fn a_rule_that_less_scope_escapes_causes_a_warning() {
    let rules = json!([{"path": "/orders", "scopes": ["orders:write"], "action": "deny"}]);
    let api = Api::start(&json!({}));
    let configuration = guard_configuration(&json!({"rules": rules}));
    api.update(&configuration).unwrap();
    let cases = [
        ("GET", "/orders", json!({}), DENIED),
        ("GET", "/orders", json!({"scope": "orders:read"}), 200),
    ];
    run(&api, &cases);
    let log = api.log();
    assert!(log.contains("rules[0]: a client escapes this rule by asking for less scope"), "{log}");
}

#[test]
fn the_first_rule_that_matches_decides() {
    let api = Api::start(&json!({"rules": [
        {"path_prefix": "/account/password", "action": "deny"},
        {"path": "/orders/search", "methods": ["POST"], "action": "allow"},
        {"path_prefix": "/orders/", "methods": ["POST", "PATCH"], "scopes": ["orders:write"], "actors": ["agent-*"], "action": "allow"},
        {"path_prefix": "/invoices", "actors": ["trainee-*"], "action": "deny"},
    ]}));
    let reader = || json!({"scope": "orders:read"});
    let robot = || json!({"act": {"sub": "robot-1"}});
    let trainee = || json!({"act": {"sub": "trainee-1"}});
    let nobody = || json!({"act": null});
    #[rustfmt::skip]
    let cases = [
        ("GET",    "/account/password",       json!({}), DENIED),
        ("POST",   "/account/password/reset", json!({}), DENIED),
        ("GET",    "/account",                json!({}), 200),
        ("POST",   "/orders/search",          reader(),  200),
        ("POST",   "/orders/search?q=a",      nobody(),  200),
        ("POST",   "/orders/searches",        reader(),  DENIED),
        ("POST",   "/orders/7",               json!({}), 200),
        ("PATCH",  "/orders/7",               json!({}), 200),
        ("DELETE", "/orders/7",               json!({}), DENIED),
        ("POST",   "/orders/7",               reader(),  DENIED),
        ("POST",   "/orders/7",               robot(),   DENIED),
        ("POST",   "/orders/7",               nobody(),  DENIED),
        ("GET",    "/orders/7",               robot(),   200),
        ("POST",   "/orders",                 json!({}), DENIED),
        ("GET",    "/invoices/7",             json!({}), 200),
        ("GET",    "/invoices/7",             trainee(), DENIED),
        ("GET",    "/invoices/7",             nobody(),  DENIED),
    ];
    run(&api, &cases);
}

#[test]
fn the_configured_default_decides_if_no_rule_matches() {
    #[rustfmt::skip]
    let defaults = [
        ("allow", 200,    200),
        ("deny",  DENIED, DENIED),
    ];
    for (default, read, write) in defaults {
        let api = Api::start(&json!({"default": default, "rules": [
            {"path": "/always", "action": "allow"},
            {"path": "/never", "action": "deny"},
        ]}));
        run(
            &api,
            &[
                ("GET", "/orders", json!({}), read),
                ("DELETE", "/orders", json!({}), write),
                ("POST", "/always", json!({}), 200),
                ("GET", "/never", json!({}), DENIED),
            ],
        );
    }
}

#[test]
fn the_api_learns_whose_request_it_is() {
    let api = Api::start(&json!({}));
    #[rustfmt::skip]
    let cases = [
        (json!({}),                                        Some("agent-7")),
        (json!({"act": null}),                             None),
        (json!({"act": {"sub": "J\u{fc}rgen, 100%"}}),     Some("J%C3%BCrgen%2C%20100%25")),
        (json!({"act": {"sub": "agent-7;admin=1"}}),       Some("agent-7%3Badmin=1")),
    ];
    for (changes, actor) in cases {
        let answer = api.send_as(&token(&claims_with(&changes)), Request::get("/orders"));
        let received = api.received_for(&answer).unwrap_or_else(|| panic!("{changes}: {answer:?}"));
        assert_eq!(received.header(ID_HEADER), Some("a-txn"), "{changes}");
        assert_eq!(received.header(ACTOR_HEADER), actor, "{changes}");
    }
    // The filter issues no token with such a name.
    for actor in ["a\r\nx-admin: yes", "a\u{0}b"] {
        let claims = claims_with(&json!({"act": {"sub": actor}}));
        let answer = api.send_as(&token(&claims), Request::get("/orders"));
        assert_eq!(answer.refusal(), (401, "invalid_token".into()), "{actor:?}");
        assert!(api.received_for(&answer).is_none(), "{actor:?}");
    }
}

#[test]
fn headers_that_are_not_configured_are_not_touched() {
    let mut configuration = guard_configuration(&json!({}));
    configuration.as_object_mut().unwrap().remove("headers");
    let api = Api::start_with(&configuration);
    let answer = api.send_as(&token(&claims()), Request::get("/orders"));
    let received = api.received_for(&answer).unwrap();
    assert_eq!((received.header(ID_HEADER), received.header(ACTOR_HEADER)), (None, None));
}

#[test]
fn report_mode_refuses_nothing_and_logs_what_it_would_refuse() {
    let api =
        Api::start(&json!({"mode": "report", "rules": [{"path": "/never", "action": "deny"}]}));
    #[rustfmt::skip]
    let cases = [
        ("GET",  "/orders",   json!({}),             "allowed: default"),
        ("POST", "/orders",   json!({}),             "reported: default"),
        ("GET",  "/never",    json!({}),             "reported: rules[0]"),
        ("GET",  "/a/%2Fb",   json!({}),             "reported: rules[0]"),
        ("GET",  "/orders",   json!({"act": {}}),    "reported: claims_malformed"),
    ];
    for (method, target, changes, _) in &cases {
        let answer = api.send_as(&token(&claims_with(changes)), Request::new(method, target));
        assert_eq!(answer.status, 200, "{method} {target}");
        assert!(api.received_for(&answer).is_some(), "{method} {target}");
    }
    let lines = api.access_log(cases.len());
    for ((method, target, changes, outcome), line) in cases.iter().zip(lines) {
        assert_eq!(line["guard"], *outcome, "{method} {target} {changes}: {line}");
    }
    let counted = |name: &str, reason: &str| {
        api.counted(&format!("impersonation_guard_{name}_total.reason.{reason}"))
    };
    for reason in ["default", "rule", "path_not_normal", "claims_malformed"] {
        let counts = (counted("reported", reason), counted("refusals", reason));
        assert_eq!(counts, (1, 0), "{reason}");
    }
    let events = api.refusals(4);
    assert!(events.iter().all(|event| event["enforced"] == false), "{events:?}");
}

/// The codes for an old sign-in, and for a token that the filter does not issue.
const OLD: &str = "insufficient_user_authentication";
const MALFORMED: &str = "invalid_token";

#[test]
fn a_rule_of_the_guard_may_demand_a_sign_in_of_late() {
    let api = Api::start(&json!({"rules": [
        {"path_prefix": "/payments", "methods": ["GET"], "action": "allow", "actor_max_age": "300s"},
    ]}));
    let by = |auth_time: Value| json!({"act": {"sub": "agent-1", "auth_time": auth_time}});
    #[rustfmt::skip]
    let cases = [
        ("/payments", by(json!(now() - 10)),            ""),
        ("/payments", by(json!(now() - 250)),           ""),
        ("/payments", by(json!(now() - 400)),           OLD),
        ("/payments", by(json!(now().to_string())),     MALFORMED),
        ("/payments", by(Value::Null),                  MALFORMED),
        ("/payments", json!({"act": {"sub": "agent-1"}}), OLD),
        ("/payments", json!({"act": null}),             OLD),
        ("/payments", json!({"auth_time": now(), "act": {"sub": "agent-1"}}), OLD),
        ("/orders",   json!({"act": {"sub": "agent-1"}}), ""),
    ];
    let mut findings = Findings::default();
    for (path, changes, error) in cases {
        let status = if error.is_empty() { 200 } else { 401 };
        let answer = api.send_as(&token(&claims_with(&changes)), Request::get(path));
        let case = format!("{path} {changes}");
        findings.expect(&case, &answer.status, &status);
        findings.expect(&case, &api.received_for(&answer).is_some(), &(status == 200));
        if answer.status != 401 {
            continue;
        }
        // RFC 9470 §3.
        let (scheme, parameters) = answer.challenge();
        let parameter = |name: &str| {
            parameters.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
        };
        findings.expect(&case, &scheme.as_str(), &"Bearer");
        findings.expect(&case, &parameter("error"), &Some(error));
        let max_age = (error == OLD).then_some("300");
        findings.expect(&case, &parameter("max_age"), &max_age);
        findings.expect(&case, &answer.member("error").as_str(), &error);
    }
}
