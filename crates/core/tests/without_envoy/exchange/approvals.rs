//! Two people: approvals, the user's consent, break glass, the decision point and the hooks, at the
//! endpoints of the filter.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use impersonation_core::fakes::Etcd;
use impersonation_core::step::{CallFailure, HttpCall, Reply};
use serde_json::{Value, json};
use testkit::configuration::{ISSUER, ORDERS, jwks};

use super::callouts::{http_uri, reply};
use super::refusals::assert_refused;
use super::setting::{
    ExchangeForm, MintForm, NOW, PROVIDER_KEY, actor_claims, backend_claims, configuration, with,
    without,
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

fn approving(required: u8) -> Gateway {
    Gateway::new(&with_approvals(&json!({"required": required})))
}

/// The access token of a person who may approve.
fn approver(name: &str) -> String {
    PROVIDER_KEY.sign(&person(name, "openid impersonations:approve"))
}

/// The access token of a person who may not.
fn user(name: &str) -> String {
    PROVIDER_KEY.sign(&person(name, "openid"))
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

fn assert_waits(gateway: &Gateway, token: &str) {
    let answer = exchange(gateway, token);
    assert_refused(&answer, "waits", 400, "authorization_pending", "undecided");
    assert_eq!(answer.event["user_id"], "user-42");
}

#[test]
fn a_token_is_exchanged_after_its_last_approval_and_once() {
    let gateway = approving(2);
    let answer = mint(&gateway, &json!({}));
    assert_eq!((answer.status, &answer.event["event"]), (201, &json!("approval.requested")));
    assert_eq!(
        (&answer.body["expiresIn"], &answer.event["approvals_needed"]),
        (&json!(3600), &json!(2))
    );
    let (token, id) = minted(&gateway, &json!({}));
    assert_waits(&gateway, &token);
    let first = decide(&gateway, &approver("dana"), &id, "approve");
    assert_eq!((first.status, first.text("state")), (200, "pending"), "{first:?}");
    assert_eq!(
        (&first.event["event"], &first.event["requested_by"]),
        (&json!("approval.given"), &json!("dana"))
    );
    let again = decide(&gateway, &approver("dana"), &id, "approve");
    assert_eq!((again.status, again.body["needed"].as_u64()), (200, Some(1)), "{again:?}");
    assert_waits(&gateway, &token);
    let second = decide(&gateway, &approver("eli"), &id, "approve");
    assert_eq!((second.text("state"), second.body["needed"].as_u64()), ("approved", Some(0)));
    assert_eq!(state(&gateway, &id), "approved");
    let late = decide(&gateway, &approver("fay"), &id, "deny");
    assert_refused(&late, "late", 409, "already_decided", "already_decided");

    let granted = exchange(&gateway, &token);
    assert_eq!(granted.status, 200, "{granted:?}");
    assert_eq!(granted.event["approved_by"], json!(["dana", "eli"]));
    assert_eq!(exchange(&gateway, &token).reason(), "subject_token_spent");
    assert_eq!(state(&gateway, &id), "exchanged");
    assert_eq!(decide(&gateway, &approver("fay"), &id, "approve").status, 409);
}

#[test]
fn one_denial_ends_a_token() {
    let gateway = approving(2);
    let (token, id) = minted(&gateway, &json!({}));
    assert_eq!(decide(&gateway, &approver("dana"), &id, "approve").status, 200);
    let path = format!("/api/approvals/{id}");
    let body = json!({"decision": "deny", "reason": "<b>no\u{2028}"}).to_string();
    let denied = gateway.send(&ask("POST", &path, &approver("eli"), &body));
    assert_eq!((denied.status, denied.text("state")), (200, "denied"), "{denied:?}");
    assert_eq!(denied.event["event"], "approval.denied");
    assert_eq!(denied.event["decision_reason"], "<b>no\u{2028}");
    assert_eq!(denied.body["denied"]["by"], "eli");
    let refused = exchange(&gateway, &token);
    assert_refused(&refused, "denied", 400, "access_denied", "denied");
    assert_eq!(decide(&gateway, &approver("fay"), &id, "approve").status, 409);
    assert_eq!(decide(&gateway, &approver("eli"), &id, "deny").status, 200, "a repetition");
    assert_eq!(exchange(&gateway, &token).reason(), "denied");
    assert_eq!(list(&gateway, &approver("fay")).body["approvals"], json!([]));
}

#[test]
fn nobody_approves_for_themselves() {
    let gateway = approving(1);
    let (token, id) = minted(&gateway, &json!({"actorId": "agent-7"}));
    for name in ["backend", "agent-7", "user-42"] {
        let answer = decide(&gateway, &approver(name), &id, "approve");
        assert_refused(&answer, name, 403, "access_denied", "own_request");
    }
    // The caller could use such a token without its user.
    let theirs = with(person("dana", "impersonations:approve"), "client_id", "backend");
    let answer = decide(&gateway, &PROVIDER_KEY.sign(&theirs), &id, "approve");
    assert_refused(&answer, "of the caller's client", 403, "access_denied", "own_request");
    let machine = without(person("dana", "impersonations:approve"), "sub");
    let answer = decide(&gateway, &PROVIDER_KEY.sign(&machine), &id, "approve");
    assert_refused(&answer, "no person", 403, "access_denied", "nobody_named");
    assert_waits(&gateway, &token);

    // A person who minted through a client cannot approve under their own name.
    let by_person = PROVIDER_KEY.sign(&with(backend_claims(), "sub", "dana"));
    let form = MintForm::new(&json!({"userId": "user-42"})).bearer(&by_person);
    let answer = gateway.send(&form.request());
    let id = answer.header("location").unwrap().rsplit_once('/').unwrap().1;
    let refused = decide(&gateway, &approver("dana"), id, "approve");
    assert_refused(&refused, "the minter", 403, "access_denied", "own_request");

    // Without a bound actor, an approver cannot act later.
    let (token, id) = minted(&gateway, &json!({}));
    assert_eq!(decide(&gateway, &approver("agent-7"), &id, "approve").status, 200);
    let act = |name: &str| PROVIDER_KEY.sign(&with(actor_claims(), "sub", name));
    let form = ExchangeForm::new(&token);
    let refused = gateway.exchange(&form.clone().actor(&act("agent-7")));
    assert_refused(&refused, "the approver acts", 400, "invalid_request", "actor_approved");
    assert_eq!(gateway.exchange(&form.actor(&act("agent-8"))).status, 200);
}

/// A name has its issuer's prefix, so the filter cannot see that two names are one person's.
#[test]
fn a_person_counts_once_under_each_name() {
    let mut configuration = with_approvals(&json!({"required": 2}));
    let partner = json!({
        "issuer": "https://partner.example", "name_prefix": "partner:", "audiences": ["people"],
        "local_jwks": jwks(&[&PROVIDER_KEY]),
    });
    let issuers = configuration["approvals"]["authentication"]["jwt"].as_array_mut().unwrap();
    issuers[0]["name_prefix"] = json!("");
    issuers.push(partner);
    let gateway = Gateway::new(&configuration);
    let of_the_partner = |name: &str| {
        let claims = person(name, "impersonations:approve");
        PROVIDER_KEY.sign(&with(claims, "iss", "https://partner.example"))
    };
    let (token, id) = minted(&gateway, &json!({}));
    for _ in 0..2 {
        let answer = decide(&gateway, &of_the_partner("dana"), &id, "approve");
        assert_eq!((answer.status, answer.text("state")), (200, "pending"), "{answer:?}");
    }
    // Another person's name at the partner is nobody's here.
    let answer = decide(&gateway, &of_the_partner("user-42"), &id, "deny");
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.event["requested_by"], "partner:user-42");
    assert_eq!(exchange(&gateway, &token).reason(), "denied");

    let (token, id) = minted(&gateway, &json!({}));
    decide(&gateway, &of_the_partner("dana"), &id, "approve");
    let answer = decide(&gateway, &approver("dana"), &id, "approve");
    assert_eq!(answer.text("state"), "approved");
    let names: Vec<_> = (0..2).map(|n| answer.body["approvals"][n]["by"].clone()).collect();
    assert_eq!(names, ["partner:dana", "dana"]);
    assert_eq!(exchange(&gateway, &token).status, 200);
}

#[test]
fn a_user_consents_to_what_concerns_them_and_needs_no_scope() {
    let gateway = approving(0);
    let (token, id) = minted(&gateway, &json!({"consent": true}));
    let (other, other_id) = minted(&gateway, &json!({"consent": true, "userId": "user-43"}));
    assert_waits(&gateway, &token);
    let listed = list(&gateway, &user("user-42"));
    assert_eq!(listed.body["approvals"].as_array().unwrap().len(), 1, "{listed:?}");
    assert_eq!(listed.body["approvals"][0]["id"], id);
    assert_eq!(listed.body["approvals"][0]["consent"], "needed");
    assert_eq!(list(&gateway, &approver("dana")).body["approvals"].as_array().unwrap().len(), 2);
    for answer in
        [list(&gateway, &user("mallory")), decide(&gateway, &user("user-42"), &other_id, "approve")]
    {
        assert_refused(&answer, "a stranger", 403, "insufficient_scope", "insufficient_scope");
    }
    let no_approval = decide(&gateway, &approver("dana"), &id, "approve");
    assert_eq!(no_approval.status, 409, "an approval is no consent: {no_approval:?}");
    let consented = decide(&gateway, &user("user-42"), &id, "approve");
    assert_eq!((consented.text("state"), consented.text("consent")), ("approved", "given"));
    assert_eq!(exchange(&gateway, &token).status, 200);
    assert_eq!(decide(&gateway, &user("user-43"), &other_id, "deny").text("state"), "denied");
    assert_eq!(exchange(&gateway, &other).text("error"), "access_denied");
}

#[test]
fn the_operator_the_mint_and_nobody_else_say_how_many_must_approve() {
    let protect = json!({"required": 0, "protected_users": ["user-4*"]});
    let gateway = Gateway::new(&with_approvals(&protect));
    #[rustfmt::skip]
    let cases = [
        (json!({"userId": "other"}),                   None),
        (json!({"userId": "other", "approvals": 0}),   None),
        (json!({"userId": "other", "approvals": 3}),   Some(3)),
        (json!({"approvals": 0}),                      Some(1)),
        (json!({"approvals": 2}),                      Some(2)),
    ];
    for (bounds, needed) in cases {
        let (token, id) = minted(&gateway, &bounds);
        let answer = exchange(&gateway, &token);
        assert_eq!(answer.status == 200, needed.is_none(), "{bounds}: {answer:?}");
        let Some(needed) = needed else { continue };
        let token = PROVIDER_KEY.sign(&backend_claims());
        let shown = gateway.send(&ask("GET", &format!("/api/subject-tokens/{id}"), &token, ""));
        assert_eq!(shown.body["needed"], needed, "{bounds}");
    }
    #[rustfmt::skip]
    let cases = [
        (json!({"approvals": 6}),          "bounds",      "approvals must be a number of people, from 0 to 5"),
        (json!({"approvals": "1"}),        "bounds",      "approvals must be a number of people, from 0 to 5"),
        (json!({"consent": 1}),            "bounds",      "consent must be true or false"),
        (json!({"breakGlass": "yes"}),     "break_glass", "breakGlass must be true or false"),
        (json!({"expiresIn": 3601}),       "bounds",      "expiresIn must be at most 3600 seconds"),
    ];
    for (bounds, reason, told) in cases {
        let answer = mint(&gateway, &bounds);
        assert_refused(&answer, &bounds.to_string(), 400, "invalid_request", reason);
        assert_eq!(answer.text("error_description"), told);
    }
    let without = Gateway::usual();
    for bounds in [json!({"approvals": 0}), json!({"consent": true}), json!({"breakGlass": true})] {
        let answer = mint(&without, &bounds);
        assert_eq!((answer.status, answer.text("error")), (400, "invalid_request"), "{bounds}");
    }
}

#[test]
fn break_glass_needs_its_context_and_raises_the_alarm() {
    let gateway = approving(2);
    let answer = mint(&gateway, &json!({"breakGlass": true}));
    assert_refused(&answer, "no incident", 403, "access_denied", "required_context");
    let glass = json!({"breakGlass": true, "context": {"incident": "I-7"}});
    let answer = mint(&gateway, &glass);
    assert_eq!((answer.status, &answer.event["event"]), (201, &json!("break_glass.used")));
    assert_eq!(answer.body["expiresIn"], 600);
    let alarm = answer.alarm.unwrap();
    assert_eq!(
        (&alarm["alarm"], &alarm["user_id"]),
        (&json!("break_glass.used"), &json!("user-42"))
    );
    let granted = exchange(&gateway, answer.body["subjectToken"].as_str().unwrap());
    assert_eq!(granted.status, 200, "{granted:?}");

    let mut strict = with_approvals(&json!({"required": 1}));
    strict["approvals"].as_object_mut().unwrap().remove("break_glass");
    let answer = mint(&Gateway::new(&strict), &glass);
    assert_refused(&answer, "not allowed", 403, "access_denied", "break_glass_not_allowed");
}

#[test]
fn what_was_taken_back_or_has_expired_cannot_be_decided() {
    let gateway = approving(1);
    let (token, id) = minted(&gateway, &json!({}));
    let cancelled = gateway.send(&ask(
        "DELETE",
        &format!("/api/subject-tokens/{id}"),
        &super::setting::backend_token(),
        "",
    ));
    assert_eq!(cancelled.status, 204);
    assert_eq!(state(&gateway, &id), "cancelled");
    assert_eq!(decide(&gateway, &approver("dana"), &id, "approve").status, 404);
    assert_eq!(exchange(&gateway, &token).reason(), "revoked");

    let (token, id) = minted(&gateway, &json!({"expiresIn": 900}));
    gateway.world.advance(Duration::from_secs(900));
    assert_eq!(state(&gateway, &id), "expired");
    assert_eq!(decide(&gateway, &approver("dana"), &id, "approve").status, 404);
    assert_eq!(exchange(&gateway, &token).reason(), "subject_token_expired");
    for id in ["0".repeat(25), "x".into()] {
        let answer = decide(&gateway, &approver("dana"), &id, "approve");
        assert_refused(&answer, &id, 404, "not_found", "approval_unknown");
    }
    let stranger = PROVIDER_KEY.sign(&with(backend_claims(), "client_id", "another"));
    let answer = gateway.send(&ask("GET", &format!("/api/subject-tokens/{id}"), &stranger, ""));
    assert_refused(&answer, "another caller", 404, "not_found", "subject_token_unknown");
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

/// A revocation of many impersonations writes to no token, so each endpoint has to ask for it.
#[test]
fn what_a_revocation_has_ended_waits_for_nobody() {
    let mut configuration = with_approvals(&json!({"required": 1}));
    configuration["impersonations"] = operators();
    let bounds = json!({
        "actorId": "agent-1", "clientId": "portal",
        "resource": ORDERS,
    });
    let ends = [
        json!({"userId": "user-42"}),
        json!({"actorId": "agent-1"}),
        json!({"clientId": "portal"}),
        json!({"caller": "backend"}),
        json!({"resource": ORDERS}),
        json!({"all": true}),
    ];
    for end in ends {
        for (place, gateway) in in_both_stores(configuration.clone()) {
            let case = format!("{end}, {place}");
            let approver = approver("dana");
            let (token, id) = minted(&gateway, &bounds);
            gateway.world.advance(Duration::from_secs(1));
            assert_eq!(gateway.send(&revocation(&end)).status, 201, "{case}");
            gateway.world.advance(Duration::from_secs(1));
            let (_, later) = minted(&gateway, &bounds);

            assert_eq!(state(&gateway, &id), "cancelled", "{case}");
            let refused = decide(&gateway, &approver, &id, "approve");
            assert_refused(&refused, &case, 404, "not_found", "approval_unknown");
            assert_eq!(exchange(&gateway, &token).status, 400, "{case}");
            let listed = list(&gateway, &approver).body["approvals"].clone();
            let ids: Vec<_> = listed.as_array().unwrap().iter().map(|it| &it["id"]).collect();
            assert_eq!(ids, [&json!(later)], "{case}");
            assert_eq!(decide(&gateway, &approver, &later, "approve").status, 200, "{case}");
            assert_eq!(state(&gateway, &later), "approved", "{case}");
        }
    }
}

#[test]
fn the_list_has_pages_and_shows_what_callers_wrote_as_text() {
    let gateway = approving(1);
    let odd = format!("<script>alert(1)</script>\u{202e}\u{7}{}", "x".repeat(3900));
    let (_, first) = minted(&gateway, &json!({"context": {"odd": odd}}));
    let others: Vec<_> = (0..4).map(|_| minted(&gateway, &json!({})).1).collect();
    let (mut ids, mut cursor) = (Vec::new(), Value::Null);
    loop {
        let query = cursor.as_str().map_or(String::new(), |cursor| format!("&cursor={cursor}"));
        let path = format!("/api/approvals?limit=2{query}");
        let page = gateway.send(&ask("GET", &path, &approver("dana"), ""));
        assert_eq!((page.status, &page.body["complete"]), (200, &json!(true)), "{page:?}");
        for row in page.body["approvals"].as_array().unwrap() {
            assert_eq!((&row["state"], &row["caller"]), (&json!("pending"), &json!("backend")));
            if row["id"] == first.as_str() {
                assert_eq!(row["context"]["odd"], odd);
            }
            ids.push(row["id"].as_str().unwrap().to_owned());
        }
        cursor = page.body["cursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    let mut expected: Vec<_> = others.into_iter().chain([first]).collect();
    ids.sort();
    expected.sort();
    assert_eq!(ids, expected);
    for query in ["limit=0", "limit=201", "limit=x", "user=1"] {
        let path = format!("/api/approvals?{query}");
        assert_eq!(gateway.send(&ask("GET", &path, &approver("dana"), "")).status, 400, "{query}");
    }
}

#[test]
fn a_malformed_decision_decides_nothing() {
    let gateway = approving(1);
    let (token, id) = minted(&gateway, &json!({}));
    let path = format!("/api/approvals/{id}");
    let long = json!({"decision": "deny", "reason": "x".repeat(1025)}).to_string();
    for body in [
        "{}",
        "[]",
        "",
        r#"{"decision":true}"#,
        r#"{"decision":"Approve"}"#,
        r#"{"decision":"approve","x":1}"#,
        r#"{"decision":"approve","decision":"deny"}"#,
        r#"{"decision":"approve","reason":null}"#,
        &long,
    ] {
        let answer = gateway.send(&ask("POST", &path, &approver("dana"), body));
        assert_eq!((answer.status, answer.text("error")), (400, "invalid_request"), "{body}");
    }
    assert_waits(&gateway, &token);
    let answer = gateway.send(&ask("POST", &path, "opaque", r#"{"decision":"approve"}"#));
    assert_eq!(answer.status, 401);
}

#[test]
fn a_caller_cannot_fill_the_store_with_tokens_that_wait() {
    let gateway = approving(1);
    let minted: Vec<_> = (0..10).map(|_| minted(&gateway, &json!({}))).collect();
    let answer = mint(&gateway, &json!({}));
    assert_refused(&answer, "too many", 429, "temporarily_unavailable", "too_many_waiting");
    let other = PROVIDER_KEY.sign(&with(backend_claims(), "client_id", "another"));
    let form = MintForm::new(&json!({"userId": "user-42"})).bearer(&other);
    assert_eq!(gateway.send(&form.request()).status, 201, "the others have space of their own");
    let (token, id) = &minted[0];
    assert_eq!(decide(&gateway, &approver("dana"), id, "approve").status, 200);
    assert_eq!(exchange(&gateway, token).status, 200);
    assert_eq!(mint(&gateway, &json!({})).status, 201);
}

/// A gateway with its state in shared data, and one with the same configuration and its state in
/// etcd.
fn in_both_stores(mut configuration: Value) -> [(&'static str, Gateway); 2] {
    configuration["store"]["shared_data"]["capacity"] = json!(8000);
    let local = Gateway::new(&configuration);
    let etcd = Rc::<RefCell<Etcd>>::default();
    [("shared data", local), ("etcd", Gateway::with_etcd(&etcd, &kept_in_etcd(configuration)))]
}

fn kept_in_etcd(mut configuration: Value) -> Value {
    configuration["store"] = json!({"etcd": {"cluster": "etcd"}});
    configuration
}

#[test]
fn a_caller_holds_a_thousand_tokens_that_wait_and_the_others_have_as_many() {
    for (store, gateway) in in_both_stores(with_approvals(&json!({"required": 1}))) {
        let (token, id) = minted(&gateway, &json!({}));
        for _ in 1..1000 {
            minted(&gateway, &json!({}));
        }
        let answer = mint(&gateway, &json!({}));
        assert_refused(&answer, store, 429, "temporarily_unavailable", "too_many_waiting");
        let another = PROVIDER_KEY.sign(&with(backend_claims(), "client_id", "another"));
        let form = MintForm::new(&json!({"userId": "user-42"})).bearer(&another);
        assert_eq!(gateway.send(&form.request()).status, 201, "{store}: another caller");
        // An exchange makes space again.
        assert_eq!(decide(&gateway, &approver("dana"), &id, "approve").status, 200, "{store}");
        assert_eq!(exchange(&gateway, &token).status, 200, "{store}");
        assert_eq!(mint(&gateway, &json!({})).status, 201, "{store}: after an exchange");
        let answer = mint(&gateway, &json!({}));
        assert_refused(&answer, store, 429, "temporarily_unavailable", "too_many_waiting");
    }
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
    // No hook expects a call from here on. The person repeats the decision, and learns that it counts.
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
