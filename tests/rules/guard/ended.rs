//! Ended impersonations: the guard refuses their requests, and no others.

use serde_json::{Value, json};

use testkit::configuration::ORDERS;
use testkit::gateway::now;
use testkit::guarded::{Begun, Parties, claims_with, guard_configuration, token};
use testkit::http::Request;
use testkit::impersonations::{end_by_id, revocation};
use testkit::wait_for;

use crate::guarded::Api;

fn status(api: &Api, begun: &Begun) -> u16 {
    api.send_as(&begun.access_token, Request::get("/orders")).status
}

fn revoke(api: &Api, body: &Value) {
    let answer = api.send_to_filter(&revocation(body));
    assert_eq!(answer.status, 201, "{body}: {answer:?}");
}

fn end(api: &Api, begun: &Begun) {
    let answer = api.send_to_filter(&end_by_id(&begun.id));
    assert_eq!(answer.status, 204, "{answer:?}");
}

#[test]
fn a_revoked_impersonation_is_refused_from_the_next_request_on() {
    type Named = fn(&Parties) -> Value;
    #[rustfmt::skip]
    let kinds: [(&str, Named); 8] = [
        ("its user",            |parties| json!({"userId": parties.user})),
        ("its actor",           |parties| json!({"actorId": parties.actor})),
        ("its client",          |_| json!({"clientId": "support-console"})),
        ("its caller",          |parties| json!({"caller": parties.caller})),
        ("its resource",        |_| json!({"resource": ORDERS})),
        ("two of them",         |parties| json!({"userId": parties.user, "resource": ORDERS})),
        ("all of them",         |parties| json!({
            "userId": parties.user, "actorId": parties.actor, "caller": parties.caller,
            "clientId": "support-console", "resource": ORDERS,
        })),
        ("everyone",            |_| json!({"all": true})),
    ];
    let api = Api::start(&json!({}));
    let begin = |parties: &Parties| {
        wait_for("an impersonation that began after the last revocation", || {
            Some(api.begin(parties)).filter(|begun| status(&api, begun) == 200)
        })
    };
    for (kind, named) in kinds {
        let parties = Parties::new();
        let begun = begin(&parties);
        revoke(&api, &named(&parties));
        assert_eq!(status(&api, &begun), 401, "{kind}");
        begin(&parties);
    }
    let begun = begin(&Parties::new());
    end(&api, &begun);
    assert_eq!(status(&api, &begun), 401, "its id");
}

#[test]
fn a_revocation_of_others_ends_nothing_here() {
    let api = Api::start(&json!({}));
    let parties = Parties::new();
    let (begun, other) = (api.begin(&parties), api.begin(&Parties::new()));
    end(&api, &other);
    for revoked in [
        json!({"userId": parties.user, "clientId": "another"}),
        json!({"actorId": parties.actor, "caller": "another"}),
        json!({"caller": "another"}),
    ] {
        revoke(&api, &revoked);
        assert_eq!(status(&api, &begun), 200, "{revoked}");
    }
}

/// An access token of another version shows neither its minter nor its millisecond of issue.
#[test]
fn unknown_facts_count_against_a_token() {
    let api = Api::start(&json!({}));
    let token = token(&claims_with(&json!({"iat": now() + 600, "jti": "plain"})));
    let status = || api.send_as(&token, Request::get("/orders")).status;
    assert_eq!(status(), 200);
    revoke(&api, &json!({"caller": "another"}));
    assert_eq!(status(), 200, "a revocation before the time of issue");
    api.advance(1200);
    revoke(&api, &json!({"caller": "another"}));
    assert_eq!(status(), 401);
}

/// Nobody knows what was revoked before the guard began.
#[test]
fn a_guard_that_starts_takes_earlier_tokens_for_revoked_and_later_ones_not() {
    let api = Api::start(&json!({}));
    for (iat, status) in [(now() - 60, 401), (now() + 30, 200), (now() + 3600, 200)] {
        let token = token(&claims_with(&json!({"iat": iat, "exp": now() + 7200})));
        assert_eq!(api.send_as(&token, Request::get("/orders")).status, status, "{iat}");
    }
}

#[test]
fn a_refused_caller_is_told_that_the_impersonation_has_ended() {
    let api = Api::start(&json!({}));
    let begun = api.begin(&Parties::new());
    revoke(&api, &json!({"all": true}));
    let answer = api.send_as(&begun.access_token, Request::get("/orders"));
    assert_eq!(answer.refusal(), (401, "invalid_token".into()));
    let expected =
        json!({"error": "invalid_token", "error_description": "the impersonation has ended"});
    assert_eq!(answer.json(), expected);
    let value = |name: &str| {
        let (_, parameters) = answer.challenge();
        parameters.into_iter().find_map(|(have, value)| (have == name).then_some(value))
    };
    assert_eq!(value("error").as_deref(), Some("invalid_token"));
    let refused = "impersonation_guard_refusals_total.reason.ended";
    assert_eq!(api.counted(refused), 1);
}

/// The guard and the filter are two modules, and each change of the configuration makes a new VM of
/// the guard.
#[test]
fn a_new_guard_configuration_keeps_revocations_and_live_impersonations() {
    let api = Api::start(&json!({}));
    let (ended, live) = (api.begin(&Parties::new()), api.begin(&Parties::new()));
    end(&api, &ended);
    for default in ["allow", "read_only"] {
        let configuration = guard_configuration(&json!({"default": default}));
        api.update(&configuration).unwrap();
        assert_eq!((status(&api, &ended), status(&api, &live)), (401, 200), "{default}");
    }
}

/// A guard with another issuer or base path reads other revocations: those of a service that it
/// does not know. Tokens that this service issued before the guard started are refused.
#[test]
fn revocations_belong_to_one_issuer_and_base_path() {
    let api = Api::start(&json!({}));
    let begun = api.begin(&Parties::new());
    let other: Value = json!({"base_path": "/tenant-a"});
    let configuration = guard_configuration(&other);
    api.update(&configuration).unwrap();
    let answer = api.send_as(&begun.access_token, Request::get("/orders"));
    assert_eq!(answer.refusal(), (401, "invalid_token".into()));
}
