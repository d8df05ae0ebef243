//! Subject tokens that allow less than their user may, in Envoy: each bound met and not met. A
//! refusal leaves the token spendable. The messages about bounds that can never be met are tested
//! natively, beside the code.

use serde_json::{Value, json};

use testkit::Findings;
use testkit::configuration::{Configuration, ORDERS, PAYMENTS, PROVIDER_KEY};
use testkit::gateway::{
    Gateway, actor_claims, exchange_form, exchange_request, mint_body_request, minted,
    portal_request, raw_part, with_actor,
};
use testkit::http::{Form, Request};

fn mint(bounds: &Value) -> Request {
    let mut body = json!({"userId": "u-1"});
    body.as_object_mut().unwrap().extend(bounds.as_object().unwrap().clone());
    mint_body_request(&body)
}

fn acting(form: Form, actor: &str) -> Form {
    with_actor(form, &PROVIDER_KEY.sign(&actor_claims(actor)))
}

type Exchange = fn(&str) -> Request;

fn form(subject_token: &str, change: fn(Form) -> Form) -> Request {
    exchange_request(&change(exchange_form(subject_token)))
}

#[test]
fn each_bound_is_enforced_and_a_refusal_leaves_the_token_spendable() {
    let gateway = Gateway::shared();
    let usual: Exchange = |token| form(token, |form| form);
    let payments: Exchange =
        |token| form(token, |form| form.set("resource", PAYMENTS).set("scope", "payments:read"));
    let write: Exchange = |token| form(token, |form| form.set("scope", "orders:write"));
    let agent: Exchange = |token| form(token, |form| acting(form, "agent-1"));
    let another: Exchange = |token| form(token, |form| acting(form, "agent-2"));
    #[rustfmt::skip]
    let cases = [
        (json!({"clientId": "support-portal"}),                  usual,          "invalid_request", portal_request as Exchange),
        (json!({"clientId": ["support-app", "support-console"]}), portal_request, "invalid_request", usual),
        (json!({"resource": PAYMENTS}),                          usual,          "invalid_target",  payments),
        (json!({"resource": [ORDERS]}),                          payments,       "invalid_target",  usual),
        (json!({"scope": "orders:read"}),                        write,          "invalid_scope",   usual),
        (json!({"scope": "orders:write"}),                       usual,          "invalid_scope",   write),
        (json!({"actorId": "agent-1"}),                          usual,          "invalid_request", agent),
        (json!({"actorId": "agent-1"}),                          another,        "invalid_request", agent),
    ];
    let mut findings = Findings::default();
    for (bounds, not_met, error, met) in cases {
        let token = minted(&gateway.send(&mint(&bounds)));
        for _ in 0..2 {
            let answer = gateway.send(&not_met(&token));
            findings.expect(&bounds, &answer.refusal(), &(400, error.to_owned()));
        }
        findings.expect(&bounds, &gateway.send(&met(&token)).status, &200);
        gateway.assert_spent(&token, &bounds.to_string());
    }
}

#[test]
fn a_mint_may_set_the_lifetimes_of_both_tokens() {
    let gateway = Gateway::shared();
    let minted = gateway.send(&mint(&json!({"expiresIn": 60, "accessTokenExpiresIn": 300})));
    assert_eq!(minted.json()["expiresIn"], 60);
    let answer = gateway.exchange(&exchange_form(&minted.member("subjectToken")));
    assert_eq!(answer.json()["expires_in"], 300, "{answer:?}");
    let claims = raw_part(&answer.member("access_token"), 1);
    assert_eq!(claims["exp"].as_u64().unwrap() - claims["iat"].as_u64().unwrap(), 300);
}

#[test]
fn a_subject_token_expires_when_its_own_bound_says() {
    let gateway = Gateway::shared();
    let token = minted(&gateway.send(&mint(&json!({"expiresIn": 1}))));
    // A refusal for another reason leaves the token as it is, until it expires.
    let other = exchange_form(&token).set("scope", "nothing");
    testkit::wait_for("the end of the token", || {
        (gateway.exchange(&other).refusal().1 == "invalid_request").then_some(())
    });
    gateway.assert_spent(&token, "expired");
}

#[test]
fn a_mint_refuses_and_names_a_bound_that_can_never_be_met() {
    let gateway = Gateway::shared();
    let mut findings = Findings::default();
    #[rustfmt::skip]
    let cases = [
        ("expiresIn",            json!(601)),
        ("expiresIn",            json!(0)),
        ("clientId",             json!("nobody")),
        ("clientId",             json!([])),
        ("resource",             json!("https://api.example.com/nothing")),
        ("resource",             json!(null)),
        ("scope",                json!("admin")),
        ("actorId",              json!("u-1")),
        ("accessTokenExpiresIn", json!(3601)),
        ("accessTokenExpiresIn", json!(0)),
        ("resource",             json!([])),
        ("scope",                json!("")),
    ];
    for (member, value) in cases {
        let answer = gateway.send(&mint(&json!({member: value.clone()})));
        let case = format!("{member} {value}");
        findings.expect(&case, &answer.refusal(), &(400, "invalid_request".into()));
        let named = answer.member("error_description").starts_with(member);
        findings.expect(format!("{case} named"), &named, &true);
    }
    let answer = gateway.send(&mint(&json!({"clientID": "support-portal"})));
    findings.expect("misspelt", &answer.refusal(), &(400, "invalid_request".into()));
    let elsewhere = json!({"resource": PAYMENTS, "scope": "orders:read"});
    let answer = gateway.send(&mint(&elsewhere));
    findings.expect(
        "another resource's scope",
        &answer.refusal(),
        &(400, "invalid_request".into()),
    );
    findings.expect("named", &answer.member("error_description").starts_with("scope"), &true);
}

/// A client learns nothing of another client's token, not even that it was used.
#[test]
fn another_clients_token_is_answered_like_an_unknown_one() {
    let gateway = Gateway::shared();
    let token = minted(&gateway.send(&mint(&json!({"clientId": "support-portal"}))));
    let unknown = gateway.exchange(&exchange_form(&format!("{}A", &token[..token.len() - 1])));
    let before = gateway.exchange(&exchange_form(&token));
    assert_eq!(gateway.send(&portal_request(&token)).status, 200);
    let after = gateway.exchange(&exchange_form(&token));
    for answer in [&before, &after] {
        assert_eq!((answer.status, &answer.body), (unknown.status, &unknown.body), "{answer:?}");
    }
}

/// The audit names the bounds at the mint, at each exchange that they refused, and at the one that
/// they allowed.
#[test]
fn the_audit_has_the_bounds_of_the_mint_and_of_each_exchange() {
    let gateway = Gateway::start(&Configuration::default());
    let bounds = json!({
        "expiresIn": 60, "clientId": ["support-console"], "resource": [ORDERS], "scope": "orders:read",
        "actorId": "agent-1", "accessTokenExpiresIn": 300,
    });
    let token = minted(&gateway.send(&mint(&bounds)));
    assert_eq!(gateway.send(&form(&token, |form| form)).status, 400);
    assert_eq!(gateway.send(&form(&token, |form| acting(form, "agent-1"))).status, 200);
    let log = gateway.envoy.log();
    let events: Vec<Value> = log
        .lines()
        .filter_map(|line| Some(serde_json::from_str(&line[line.find("{\"event\"")?..]).unwrap()))
        .collect();
    let of_token: Vec<_> = events
        .iter()
        .filter(|event| event["subject_token_id"] == events[0]["subject_token_id"])
        .collect();
    let told: Vec<_> = of_token.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(
        told,
        ["subject_token.created", "token_exchange.refused", "token_exchange.succeeded"]
    );
    for event in of_token {
        assert_eq!(event["bounds"], bounds, "{event}");
    }
}
