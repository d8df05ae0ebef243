//! Claims that the filter does not issue: a token with them can neither read nor write.

use serde_json::{Value, json};

use testkit::Findings;
use testkit::guarded::{claims, claims_with, token};
use testkit::http::Request;

use crate::guarded::Api;

/// Returns the claims with one of them null.
fn null(name: &str) -> Value {
    let mut claims = claims();
    claims[name] = Value::Null;
    claims
}

#[test]
fn claims_that_the_filter_does_not_issue_are_refused() {
    let api = Api::start(&json!({"default": "allow"}));
    #[rustfmt::skip]
    let cases = [
        ("as they are issued",         claims(),                                          200),
        ("without an actor",           claims_with(&json!({"act": null})),                200),
        ("one more that is null",      null("ticket"),                                    200),
        ("null in one of the operator's", claims_with(&json!({"a": {"b": [null]}})),      200),
        ("an actor without a name",    claims_with(&json!({"act": {}})),                  401),
        ("a null actor",               null("act"),                                       401),
        ("a list of actors",           claims_with(&json!({"act": [{"sub": "agent-7"}]})), 401),
        ("an actor as text",           claims_with(&json!({"act": "agent-7"})),           401),
        ("an actor named null",        claims_with(&json!({"act": {"sub": null}})),       401),
        ("an actor named by a number", claims_with(&json!({"act": {"sub": 7}})),          401),
        ("an actor named nothing",     claims_with(&json!({"act": {"sub": ""}})),         401),
        ("a null txn",                 null("txn"),                                       401),
        ("an empty txn",               claims_with(&json!({"txn": ""})),                  401),
        ("a txn in a list",            claims_with(&json!({"txn": ["a-txn"]})),           401),
        ("a txn as an object",         claims_with(&json!({"txn": {}})),                  401),
        ("no user",                    claims_with(&json!({"sub": null})),                401),
        ("a null user",                null("sub"),                                       401),
        ("no client",                  claims_with(&json!({"client_id": null})),          401),
        ("no time of issue",           claims_with(&json!({"iat": null})),                401),
        ("a null time of issue",       null("iat"),                                       401),
        ("no time of expiry",          claims_with(&json!({"exp": null})),                401),
        ("no jti",                     claims_with(&json!({"jti": null})),                401),
        ("a null scope",               null("scope"),                                     401),
    ];
    let mut findings = Findings::default();
    for (case, claims, status) in cases {
        for method in ["GET", "POST"] {
            let answer = api.send_as(&token(&claims), Request::new(method, "/orders"));
            findings.expect(format!("{case}, {method}"), &answer.status, &status);
            let reached = api.received_for(&answer).is_some();
            findings.expect(format!("{case}, {method}: reached"), &reached, &(status == 200));
        }
    }
}

#[test]
fn a_refusal_follows_rfc_6750_and_reveals_no_rule() {
    let api = Api::start(&json!({"rules": [{"path": "/secret-path", "action": "deny"}]}));
    #[rustfmt::skip]
    let cases = [
        (claims(),                             "/secret-path", 403, "insufficient_scope", "this is not allowed while impersonating a user"),
        (claims_with(&json!({"act": {}})),     "/orders",      401, "invalid_token",      "the access token is invalid"),
        (claims_with(&json!({"iat": 7})),      "/orders",      401, "invalid_token",      "the impersonation has ended"),
    ];
    for (claims, target, status, error, description) in cases {
        let answer = api.send_as(&token(&claims), Request::get(target));
        assert_eq!(answer.refusal(), (status, error.to_owned()));
        assert_eq!(answer.json(), json!({"error": error, "error_description": description}));
        assert_eq!(answer.header("content-type"), Some("application/json"));
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        let parameters = ["realm", "error", "error_description"].map(String::from);
        let values = ["impersonation", error, description].map(String::from);
        let expected = ("Bearer".to_owned(), parameters.into_iter().zip(values).collect());
        assert_eq!(answer.challenge(), expected);
        assert!(!format!("{answer:?}").contains("rule"), "{answer:?}");
    }
}
