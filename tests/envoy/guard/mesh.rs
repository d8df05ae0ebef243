//! The guard in a sidecar of Istio's: requests enter it by a header that `jwt_authn` makes of a
//! claim, and `jwt_authn` has split `scope` into a list. See `deploy/istio`.

use serde_json::{Value, json};

use testkit::bootstrap::Listener;
use testkit::configuration::PROVIDER_KEY;
use testkit::guarded::{
    ACTOR_HEADER, API, Guarded, ID_HEADER, claims, claims_with, entered_where,
    filter_configuration, guard, guard_configuration, jwt_authn, ordinary_token, token,
    without_headers,
};
use testkit::http::Request;

/// The header of a token that is bound to a key.
const CNF_HEADER: &str = "x-jwt-cnf";

fn as_istio_has_it() -> Value {
    let mut filter = jwt_authn();
    for provider in filter["typed_config"]["providers"].as_object_mut().unwrap().values_mut() {
        provider["payload_in_metadata"] = "payload".into();
        provider["normalize_payload_in_metadata"] =
            json!({"space_delimited_claims": ["permission", "scope"]});
        provider["claim_to_headers"] = json!([
            {"header_name": ID_HEADER, "claim_name": "txn"},
            {"header_name": CNF_HEADER, "claim_name": "cnf"},
        ]);
    }
    filter
}

/// Wraps a filter so that only requests with one of the headers enter it.
fn for_the_headers(filter: Value) -> Value {
    let has = |claim: &str, header: &str| {
        json!({"single_predicate": {
            "input": {
                "name": claim,
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.type.matcher.v3.HttpRequestHeaderMatchInput",
                    "header_name": header,
                },
            },
            "value_match": {"safe_regex": {"google_re2": {}, "regex": "(?s).+"}},
        }})
    };
    let either = [has("txn", ID_HEADER), has("cnf", CNF_HEADER)];
    entered_where(&json!({"or_matcher": {"predicate": either}}), filter)
}

#[test]
fn a_header_that_jwt_authn_makes_marks_impersonations_and_cannot_be_forged() {
    let members = json!({
        "payload_in_metadata": "payload",
        "rules": [{"path": "/orders", "scopes": ["orders:write"], "methods": ["POST"], "action": "allow"}],
    });
    let guard = guard(&guard_configuration(&members));
    let listener = Listener::new("guarded")
        .filter(without_headers(&[ID_HEADER, ACTOR_HEADER]))
        .filter(as_istio_has_it())
        .filter(for_the_headers(guard.into()))
        .route_to(API, "5s");
    let guarded = Guarded::lent_with(listener, &filter_configuration());
    let forged = |request: Request| request.header(ID_HEADER, "forged").header(ACTOR_HEADER, "me");
    let impersonation = token(&claims());
    let bound = claims_with(&json!({"txn": null, "act": null, "cnf": {"jkt": "a-key"}}));
    let bound = PROVIDER_KEY.sign(&bound);
    #[rustfmt::skip]
    let cases = [
        ("a read",             Request::get("/orders"),             &impersonation, 200),
        ("a write",            Request::post("/invoices"),          &impersonation, 403),
        ("by a scope",         Request::post("/orders"),            &impersonation, 200),
        ("an ordinary user",   Request::post("/invoices"),          &ordinary_token(), 200),
        ("a forging user",     forged(Request::post("/invoices")),  &ordinary_token(), 200),
        ("a forging agent",    forged(Request::post("/invoices")),  &impersonation, 403),
        ("a bound token",      Request::post("/invoices"),          &bound, 401),
        ("a scope less",       Request::post("/orders"),
            &token(&claims_with(&json!({"scope": "orders:read"}))), 403),
    ];
    for (case, request, token, expected) in cases {
        let answer = guarded.send_as(token, request);
        assert_eq!(answer.status, expected, "{case}: {answer:?}");
        let Some(received) = guarded.api.received_for(&answer) else {
            assert_ne!(answer.status, 200, "{case}");
            continue;
        };
        let header = |name: &str| received.header(name).map(str::to_owned);
        let told = (header(ID_HEADER), header(ACTOR_HEADER));
        let id = (token == &impersonation).then(|| "a-txn".to_owned());
        assert_eq!(told, (id.clone(), id.map(|_| "agent-7".to_owned())), "{case}");
    }
}
