//! The decision point and the hooks, and impersonations that end while a hook is told. The rules of
//! decisions are in `tests/rules/approvals`.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use impersonation_core::step::{CallFailure, HttpCall, Reply};
use serde_json::{Value, json};
use testkit::configuration::{ISSUER, jwks};

use super::callouts::{http_uri, reply};
use super::refusals::assert_refused;
use super::setting::{
    ExchangeForm, MintForm, NOW, PROVIDER_KEY, backend_claims, configuration, with,
};
use crate::driver::{Answer, Gateway, Request};

const WEBHOOK_SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// The usual configuration, with these approvals.
fn with_approvals(approvals: &Value) -> Value {
    let mut configuration = configuration();
    let issuer = json!({
        "issuer": ISSUER, "audiences": ["people"], "local_jwks": jwks(&[&PROVIDER_KEY]),
    });
    let mut section = json!({
        "authentication": {"jwt": [issuer]}, "break_glass": {"required_context": ["incident"]},
    });
    section.as_object_mut().unwrap().extend(approvals.as_object().unwrap().clone());
    configuration["approvals"] = section;
    configuration["store"]["shared_data"]["capacity"] = json!(40);
    configuration
}

/// The access token of a person who may approve.
fn approver(name: &str) -> String {
    PROVIDER_KEY.sign(&person(name, "openid impersonations:approve"))
}

fn person(name: &str, scope: &str) -> Value {
    json!({
        "iss": ISSUER, "sub": name, "client_id": "console", "aud": "people", "iat": NOW,
        "exp": NOW + 7200, "scope": scope,
    })
}

fn mint(gateway: &Gateway, bounds: &Value) -> Answer {
    let mut body = json!({"userId": "user-42", "context": {"ticketId": "T-1"}});
    body.as_object_mut().unwrap().extend(bounds.as_object().unwrap().clone());
    gateway.send(&MintForm::new(&body).request())
}

/// Mints a token, and returns it with its id.
fn minted(gateway: &Gateway, bounds: &Value) -> (String, String) {
    let answer = mint(gateway, bounds);
    assert_eq!(answer.status, 201, "{answer:?}");
    let id = answer.header("location").unwrap().rsplit_once('/').unwrap().1.to_owned();
    (answer.text("subjectToken").to_owned(), id)
}

fn ask(method: &'static str, path: &str, token: &str, body: &str) -> Request {
    Request {
        method,
        path: path.to_owned(),
        headers: vec![
            ("authorization", format!("Bearer {token}")),
            ("content-type", "application/json".into()),
        ],
        body: body.as_bytes().to_vec(),
    }
}

fn decide(gateway: &Gateway, token: &str, id: &str, decision: &str) -> Answer {
    let body = json!({"decision": decision}).to_string();
    gateway.send(&ask("POST", &format!("/api/approvals/{id}"), token, &body))
}

fn list(gateway: &Gateway, token: &str) -> Answer {
    gateway.send(&ask("GET", "/api/approvals", token, ""))
}

fn state(gateway: &Gateway, id: &str) -> String {
    let token = PROVIDER_KEY.sign(&with(backend_claims(), "exp", NOW + 7200));
    let answer = gateway.send(&ask("GET", &format!("/api/subject-tokens/{id}"), &token, ""));
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.text("state").to_owned()
}

fn exchange(gateway: &Gateway, token: &str) -> Answer {
    gateway.exchange(&ExchangeForm::new(token))
}

/// A section `impersonations`, so that operators can end them.
fn operators() -> Value {
    json!({"authentication": {"jwt": [{
        "issuer": ISSUER, "audiences": ["operators"], "local_jwks": jwks(&[&PROVIDER_KEY]),
    }]}})
}

fn revocation(of: &Value) -> Request {
    let claims = with(person("ops", "impersonations:revoke"), "aud", "operators");
    let token = PROVIDER_KEY.sign(&claims);
    ask("POST", "/api/impersonations/revocations", &token, &of.to_string())
}

fn kept_in_etcd(mut configuration: Value) -> Value {
    configuration["store"] = json!({"etcd": {"cluster": "etcd"}});
    configuration
}

#[test]
fn the_decision_point_is_asked_and_only_a_clear_yes_lets_the_mint_continue() {
    let mut configuration = configuration();
    configuration["authzen"] = json!({
        "http_uri": http_uri("/access/v1/evaluation"),
        "authorization": {"inline_string": "Bearer of the filter"},
    });
    let html = Reply::Http { status: 200, json: false, body: b"{\"decision\":true}".to_vec() };
    #[rustfmt::skip]
    let cases = [
        ("yes",            reply(200, &json!({"decision": true})),                  201, ""),
        ("yes and why",    reply(200, &json!({"decision": true, "context": {"id": 1}})), 201, ""),
        ("no",             reply(200, &json!({"decision": false})),                 403, "decision_point_denied"),
        ("a text",         reply(200, &json!({"decision": "true"})),                503, "callout_failed"),
        ("a number",       reply(200, &json!({"decision": 1})),                     503, "callout_failed"),
        ("nothing",        reply(200, &json!({})),                                  503, "callout_failed"),
        ("null",           reply(200, &json!({"decision": null})),                  503, "callout_failed"),
        ("a list",         reply(200, &json!([true])),                              503, "callout_failed"),
        ("a page",         html,                                                    503, "callout_failed"),
        ("created",        reply(201, &json!({"decision": true})),                  503, "callout_failed"),
        ("forbidden",      reply(403, &json!({"decision": true})),                  503, "callout_failed"),
        ("an error",       reply(500, &json!({"decision": true})),                  503, "callout_failed"),
        ("down",           Reply::Failed(CallFailure::NotSent),                     503, "callout_failed"),
        ("cut off",        Reply::Failed(CallFailure::CutOff),                      503, "callout_failed"),
        ("twice",          Reply::Http { status: 200, json: true, body: br#"{"decision":false,"decision":true}"#.to_vec() }, 503, "callout_failed"),
    ];
    for (case, answer, status, reason) in cases {
        let gateway = Gateway::new(&configuration);
        gateway.upstream(move |_| answer.clone());
        let answer = mint(&gateway, &json!({"actorId": "agent-7"}));
        assert_eq!((answer.status, answer.reason()), (status, reason), "{case}: {answer:?}");
        assert_eq!(gateway.world.stored().is_empty(), status != 201, "{case}");
        let calls = gateway.calls.borrow();
        let header = |name: &str| {
            calls[0].headers.iter().find(|(known, _)| *known == name).map(|(_, value)| &**value)
        };
        assert_eq!(header("authorization"), Some("Bearer of the filter"));
        assert_eq!(header("x-request-id"), Some("mint-1"));
        let asked: Value = serde_json::from_slice(&calls[0].body).unwrap();
        let expected = json!({
            "subject": {"type": "client", "id": "backend"},
            "action": {"name": "impersonate"},
            "resource": {"type": "user", "id": "user-42"},
            "context": {
                "context": {"ticketId": "T-1"}, "bounds": {"actorId": "agent-7"},
                "actor": "agent-7", "breakGlass": false,
            },
        });
        assert_eq!(asked, expected);
    }
}

fn hooked(required: bool) -> Value {
    let mut configuration = with_approvals(&json!({"required": 1}));
    configuration["notifications"] = json!([{
        "http_uri": http_uri("/hook"), "required": required,
        "secret": {"inline_string": WEBHOOK_SECRET},
    }]);
    configuration
}

/// Answers the next calls of a gateway with this status, and collects the events.
fn hook(gateway: &Gateway, calls: usize, status: u16) -> Rc<RefCell<Vec<Value>>> {
    let told = Rc::new(RefCell::new(Vec::new()));
    for _ in 0..calls {
        let told = Rc::clone(&told);
        gateway.upstream(move |call: &HttpCall| {
            told.borrow_mut().push(serde_json::from_slice(&call.body).unwrap());
            Reply::Http { status, json: false, body: Vec::new() }
        });
    }
    told
}

fn types(told: &Rc<RefCell<Vec<Value>>>) -> Vec<String> {
    told.borrow().iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_required_hook_is_told_before_a_thing_happens() {
    let gateway = Gateway::new(&hooked(true));
    let told = hook(&gateway, 3, 204);
    let (token, id) = minted(&gateway, &json!({}));
    assert_eq!(decide(&gateway, &approver("dana"), &id, "approve").text("state"), "approved");
    assert_eq!(exchange(&gateway, &token).status, 200);
    assert_eq!(
        types(&told),
        ["approval.requested.v1", "approval.given.v1", "impersonation.began.v1"]
    );
    for event in told.borrow().iter() {
        assert_eq!((&event["specversion"], &event["subject"]), (&json!("1.0"), &json!(id)));
        assert_eq!((&event["source"], &event["data"]["id"]), (&json!(ISSUER), &json!(id)));
        assert_eq!(event["data"]["userId"], "user-42");
        assert_eq!(event["data"]["context"], json!({"ticketId": "T-1"}));
        assert!(!event.to_string().contains(&token), "no token is told");
    }
    gateway.tick();
}

#[test]
fn what_a_required_hook_cannot_be_told_does_not_happen() {
    let gateway = Gateway::new(&hooked(true));
    let _ = hook(&gateway, 3, 500);
    let answer = mint(&gateway, &json!({}));
    assert_refused(&answer, "a mint", 503, "temporarily_unavailable", "notification_failed");
    assert_eq!(list(&gateway, &approver("dana")).body["approvals"], json!([]));

    let told = hook(&gateway, 1, 200);
    let (token, id) = minted(&gateway, &json!({}));
    let failed = hook(&gateway, 3, 500);
    let answer = decide(&gateway, &approver("dana"), &id, "approve");
    assert_refused(&answer, "a decision", 503, "temporarily_unavailable", "notification_failed");
    let ids: Vec<_> = failed.borrow().iter().map(|event| event["id"].clone()).collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "the id is the same in each try");
    assert_eq!(state(&gateway, &id), "pending");
    let not_given = hook(&gateway, 1, 200);
    gateway.tick();
    assert_eq!(types(&not_given), ["approval.not_given.v1"]);
    let _ = hook(&gateway, 1, 200);
    assert_eq!(decide(&gateway, &approver("dana"), &id, "approve").status, 200);

    let _ = hook(&gateway, 3, 503);
    let answer = exchange(&gateway, &token);
    assert_refused(&answer, "an exchange", 503, "temporarily_unavailable", "notification_failed");
    let not_begun = hook(&gateway, 1, 200);
    gateway.tick();
    assert_eq!(types(&not_begun), ["impersonation.not_begun.v1"]);
    let _ = hook(&gateway, 1, 200);
    assert_eq!(exchange(&gateway, &token).status, 200, "the token is unspent");
    assert_eq!(types(&told), ["approval.requested.v1"]);
}

/// The decision may count: to take it back would be a lie as often as the truth.
#[test]
fn a_decision_of_unknown_outcome_is_not_taken_back() {
    let gateway = Gateway::with_etcd(&Rc::default(), &kept_in_etcd(hooked(true)));
    let _ = hook(&gateway, 1, 200);
    let (token, id) = minted(&gateway, &json!({}));
    let lost = Rc::clone(&gateway.lost);
    gateway.upstream(move |_| {
        // All answers to the write.
        lost.set(5);
        Reply::Http { status: 200, json: false, body: Vec::new() }
    });
    let answer = decide(&gateway, &approver("dana"), &id, "approve");
    assert_refused(&answer, "lost", 503, "temporarily_unavailable", "decision_unknown");
    assert_eq!(answer.event["event"], "approval.refused");
    // No hook expects a call from here on. The person repeats the decision, and learns that it
    // counts.
    gateway.tick();
    let answer = decide(&gateway, &approver("dana"), &id, "approve");
    assert_eq!((answer.status, answer.text("state")), (200, "approved"));
    let _ = hook(&gateway, 1, 200);
    assert_eq!(exchange(&gateway, &token).status, 200);
}

#[test]
fn an_impersonation_that_was_announced_and_does_not_begin_is_taken_back() {
    let gateway = Gateway::new(&hooked(true));
    let _ = hook(&gateway, 2, 200);
    let (token, id) = minted(&gateway, &json!({}));
    assert_eq!(decide(&gateway, &approver("dana"), &id, "approve").status, 200);
    // Another worker takes the token back while the hook is told.
    let other = Gateway::in_world(&gateway.world, &with_approvals(&json!({"required": 1})));
    let path = format!("/api/subject-tokens/{id}");
    let request = ask("DELETE", &path, &super::setting::backend_token(), "");
    gateway.upstream(move |_| {
        assert_eq!(other.send(&request).status, 204);
        Reply::Http { status: 200, json: false, body: Vec::new() }
    });
    assert_eq!(exchange(&gateway, &token).reason(), "revoked");
    let told = hook(&gateway, 1, 200);
    gateway.tick();
    assert_eq!(types(&told), ["impersonation.not_begun.v1"]);
}

/// Two workers of one Envoy, or two Envoys with one etcd, that tell a required hook and whose
/// operators end impersonations.
fn two_that_announce(is_in_etcd: bool) -> [Gateway; 2] {
    let mut configuration = hooked(true);
    configuration["approvals"]["required"] = json!(0);
    configuration["impersonations"] = operators();
    if is_in_etcd {
        let (etcd, configuration) = (Rc::default(), kept_in_etcd(configuration));
        return [(); 2].map(|()| Gateway::with_etcd(&etcd, &configuration));
    }
    let one = Gateway::new(&configuration);
    let other = Gateway::in_world(&one.world, &configuration);
    [one, other]
}

/// The hook may take seconds. An ending that is answered meanwhile, by whichever worker or Envoy,
/// is not missed.
#[test]
fn an_impersonation_that_is_ended_while_the_hook_is_told_does_not_begin() {
    type Way = fn(&str) -> (Request, u16);
    let ways: [(&str, Way); 2] = [
        ("an operator ends it", |_| (revocation(&json!({"userId": "user-42"})), 201)),
        ("the caller takes it back", |id| {
            let path = format!("/api/subject-tokens/{id}");
            (ask("DELETE", &path, &super::setting::backend_token(), ""), 204)
        }),
    ];
    for ((case, way), is_in_etcd) in ways.into_iter().flat_map(|way| [(way, false), (way, true)]) {
        let case = format!("{case}, etcd: {is_in_etcd}");
        let [gateway, other] = two_that_announce(is_in_etcd);
        let (token, id) = minted(&gateway, &json!({}));
        gateway.world.advance(Duration::from_secs(1));
        if is_in_etcd {
            other.world.advance(Duration::from_secs(1));
        }
        let (request, status) = way(&id);
        gateway.upstream(move |call| {
            let told: Value = serde_json::from_slice(&call.body).unwrap();
            assert_eq!(told["type"], "impersonation.began.v1");
            assert_eq!(other.send(&request).status, status);
            Reply::Http { status: 200, json: false, body: Vec::new() }
        });
        let refused = exchange(&gateway, &token);
        assert_refused(&refused, &case, 400, "invalid_request", "revoked");
        let told = hook(&gateway, 1, 200);
        gateway.tick();
        assert_eq!(types(&told), ["impersonation.not_begun.v1"], "{case}");
        // No hook expects a call from here on: nobody is told again of what cannot begin.
        assert_eq!(exchange(&gateway, &token).reason(), "revoked", "{case}");
    }
}

#[test]
fn other_hooks_are_told_afterwards_and_delay_nothing() {
    let gateway = Gateway::new(&hooked(false));
    let (token, id) = minted(&gateway, &json!({}));
    let denied = decide(&gateway, &approver("dana"), &id, "deny");
    assert_eq!(denied.status, 200);
    assert_eq!(exchange(&gateway, &token).status, 400);
    let (token, id) = minted(&gateway, &json!({}));
    assert_eq!(decide(&gateway, &approver("dana"), &id, "approve").status, 200);
    assert_eq!(exchange(&gateway, &token).status, 200);
    let cancel =
        ask("DELETE", &format!("/api/subject-tokens/{id}"), &super::setting::backend_token(), "");
    assert_eq!(gateway.send(&cancel).status, 204);
    let glass = json!({"breakGlass": true, "context": {"incident": "I-7"}});
    let _ = minted(&gateway, &glass);
    let told = hook(&gateway, 7, 200);
    // The first tick looks which impersonations have ended, the second tells of them.
    gateway.tick();
    gateway.tick();
    let mut types = types(&told);
    types.sort();
    assert_eq!(
        types,
        [
            "approval.denied.v1",
            "approval.given.v1",
            "approval.requested.v1",
            "approval.requested.v1",
            "break_glass.used.v1",
            "impersonation.began.v1",
            "impersonation.ended.v1",
        ]
    );
}
