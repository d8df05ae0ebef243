//! Tokens that are narrower than their user's rights: the bounds that a mint may request, and the
//! access token that an exchange then yields.

use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Map, Value, json};

use super::flow::claims;
use super::refusals::assert_refused;
use super::setting::{
    ExchangeForm, MintForm, ORDERS, PAYMENTS, PROVIDER_KEY, actor_claims, actor_token,
    configuration, with,
};
use crate::driver::{Answer, Gateway};

fn body(bounds: &Value) -> Value {
    let mut body = json!({"userId": "user-42", "context": {"ticketId": "T-1"}});
    body.as_object_mut().unwrap().extend(bounds.as_object().unwrap().clone());
    body
}

fn mint(gateway: &Gateway, bounds: &Value) -> String {
    let answer = gateway.send(&MintForm::new(&body(bounds)).request());
    assert_eq!(answer.status, 201, "{bounds}: {answer:?}");
    answer.text("subjectToken").to_owned()
}

fn other_actor() -> String {
    PROVIDER_KEY.sign(&with(actor_claims(), "sub", "agent-8"))
}

type Change = fn(ExchangeForm) -> ExchangeForm;

/// A refusal does not change the token: afterwards the token still yields everything within its
/// bounds.
#[test]
fn each_bound_is_kept_and_a_refusal_costs_no_token() {
    let all = |form: ExchangeForm| form.portal().set("scope", "orders:read orders:write");
    #[rustfmt::skip]
    let cases: &[(Value, Change, &str, &str, Change)] = &[
        (json!({"clientId": "portal"}),                |form| form,                          "invalid_request", "bound_client",   |form| form.portal()),
        (json!({"clientId": ["portal", "desk"]}),      |form| form,                          "invalid_request", "bound_client",   |form| form.portal()),
        (json!({"resource": PAYMENTS}),                |form| form.portal(),                 "invalid_target",  "bound_resource", |form| form.portal().set("resource", PAYMENTS).set("scope", "payments:read")),
        (json!({"resource": [ORDERS]}),                |form| form.portal().set("resource", PAYMENTS).set("scope", "payments:read"), "invalid_target", "bound_resource", |form| form),
        (json!({"scope": "orders:write"}),             |form| form,                          "invalid_scope",   "bound_scope",    |form| form.set("scope", "orders:write")),
        (json!({"scope": "orders:read"}),              |form| form.set("scope", "orders:write"), "invalid_scope", "bound_scope",  |form| form),
        (json!({"actorId": "agent-7"}),                |form| form,                          "invalid_request", "bound_actor",    |form| form.actor(&actor_token())),
        (json!({"actorId": "agent-7"}),                |form| form.actor(&other_actor()),    "invalid_request", "bound_actor",    |form| form.actor(&actor_token())),
    ];
    for (bounds, refused, error, reason, granted) in cases {
        let gateway = Gateway::usual();
        let subject_token = mint(&gateway, bounds);
        let form = ExchangeForm::new(&subject_token);
        for _ in 0..2 {
            let answer = gateway.exchange(&refused(form.clone()));
            assert_refused(&answer, &bounds.to_string(), 400, error, reason);
            assert_eq!(answer.event["user_id"], "user-42", "{bounds}");
        }
        let answer = gateway.exchange(&granted(form));
        assert_eq!(answer.status, 200, "{bounds}: {answer:?}");
    }

    let gateway = Gateway::usual();
    let subject_token = mint(&gateway, &json!({"scope": "orders:read payments:read"}));
    let answer = gateway.exchange(&all(ExchangeForm::new(&subject_token)));
    assert_eq!(answer.text("scope"), "orders:read", "cut down to the bound");
}

#[test]
fn a_client_learns_nothing_of_a_token_that_is_bound_to_another() {
    let gateway = Gateway::usual();
    let theirs = mint(&gateway, &json!({"clientId": "portal"}));
    let form = ExchangeForm::new(&theirs);
    let made_up = format!("sub_{}", "A".repeat(48));
    let unknown = gateway.exchange(&form.clone().set("subject_token", &made_up));
    assert_eq!(unknown.reason(), "subject_token_unknown");
    let seen = |answer: &Answer| (answer.status, answer.headers.clone(), answer.body.clone());

    let answer = gateway.exchange(&form);
    assert_eq!((answer.reason(), seen(&answer)), ("bound_client", seen(&unknown)));

    assert_eq!(gateway.exchange(&form.clone().portal()).status, 200);
    let answer = gateway.exchange(&form);
    assert_eq!((answer.reason(), seen(&answer)), ("subject_token_spent", seen(&unknown)));
    assert_eq!(answer.alarm.unwrap()["mint"]["bounds"], json!({"clientId": ["portal"]}));

    let theirs = mint(&gateway, &json!({"clientId": "portal"}));
    gateway.world.advance(Duration::from_secs(600));
    let form = form.set("subject_token", &theirs);
    let answer = gateway.exchange(&form);
    assert_eq!((answer.reason(), seen(&answer)), ("bound_client", seen(&unknown)));
    assert_eq!(gateway.exchange(&form.portal()).reason(), "subject_token_expired");
}

#[test]
fn both_tokens_live_as_long_as_their_bounds_say() {
    let gateway = Gateway::usual();
    let bounds = json!({"expiresIn": 60, "accessTokenExpiresIn": 300});
    let answer = gateway.send(&MintForm::new(&body(&bounds)).request());
    assert_eq!(answer.body["expiresIn"], 60);
    let form = ExchangeForm::new(answer.text("subjectToken"));
    gateway.world.advance(Duration::from_millis(59_999));
    let answer = gateway.exchange(&form);
    assert_eq!(answer.body["expires_in"], 300);
    let claims = claims(&gateway, &answer);
    assert_eq!(claims["exp"].as_u64().unwrap() - claims["iat"].as_u64().unwrap(), 300);

    let form = form.set("subject_token", &mint(&gateway, &bounds));
    gateway.world.advance(Duration::from_secs(60));
    assert_eq!(gateway.exchange(&form).reason(), "subject_token_expired");

    // A resource whose tokens have a shorter lifetime keeps it.
    let form = form
        .portal()
        .set("resource", PAYMENTS)
        .set("scope", "payments:read")
        .set("subject_token", &mint(&gateway, &json!({"accessTokenExpiresIn": 3600})));
    assert_eq!(gateway.exchange(&form).body["expires_in"], 900);
}

#[test]
fn bounds_are_in_the_audit_of_both_sides() {
    let gateway = Gateway::usual();
    let bounds = json!({
        "expiresIn": 300, "clientId": ["console"], "resource": [ORDERS], "scope": "orders:read",
        "actorId": "agent-7", "accessTokenExpiresIn": 60,
    });
    let minted = gateway.send(&MintForm::new(&body(&bounds)).request());
    assert_eq!(minted.event["bounds"], bounds);
    let form = ExchangeForm::new(minted.text("subjectToken"));
    assert_eq!(gateway.exchange(&form).event["bounds"], bounds);
    let exchanged = gateway.exchange(&form.actor(&actor_token()));
    assert_eq!((exchanged.status, &exchanged.event["bounds"]), (200, &bounds));
    assert_eq!(gateway.exchange(&ExchangeForm::new(&gateway.mint())).event.get("bounds"), None);
}

#[test]
fn a_bound_that_can_never_be_met_mints_nothing() {
    let gateway = Gateway::usual();
    #[rustfmt::skip]
    let cases = [
        (json!({"expiresIn": 601}),            "bounds",         "expiresIn must be at most 600 seconds"),
        (json!({"clientId": null}),            "bounds",         "clientId must be a string or a list of strings"),
        (json!({"resource": "urn:x"}),         "bounds",         "resource must name only configured resources"),
        (json!({"scope": "admin"}),            "bounds",         "scope must have only scopes of the resources that the token can be for"),
        (json!({"actorId": "user-42"}),        "bounds",         "actorId must not be the user who is impersonated"),
        (json!({"accessTokenExpiresIn": 1.5}), "bounds",         "accessTokenExpiresIn must be a number of whole seconds, at least 1"),
        (json!({"clientID": "portal"}),        "body_malformed", "the body must be a JSON object of userId, context and bounds, each given once"),
    ];
    for (bounds, reason, told) in cases {
        let answer = gateway.send(&MintForm::new(&body(&bounds)).request());
        assert_refused(&answer, &bounds.to_string(), 400, "invalid_request", reason);
        assert_eq!(answer.text("error_description"), told);
    }
    let twice = "{\"userId\": \"u\", \"clientId\": \"portal\", \"clientId\": \"desk\"}";
    let answer = gateway.send(&MintForm::new(&json!({})).body(twice).request());
    assert_refused(&answer, "twice", 400, "invalid_request", "body_malformed");
    assert_eq!(gateway.world.stored(), []);
}

/// Random bounds and a random exchange, most of which succeed.
fn any_bounds() -> impl Strategy<Value = Value> {
    let members = vec![
        (
            "clientId",
            prop_oneof![Just(json!("portal")), Just(json!(["portal", "console"]))].boxed(),
        ),
        ("resource", prop_oneof![Just(json!(ORDERS)), Just(json!([ORDERS, PAYMENTS]))].boxed()),
        (
            "scope",
            select(vec!["orders:read", "orders:write orders:read", "payments:read orders:read"])
                .prop_map(Value::from)
                .boxed(),
        ),
        ("actorId", select(vec!["agent-7", "agent-8"]).prop_map(Value::from).boxed()),
        ("expiresIn", (1_u64..=600).prop_map(Value::from).boxed()),
        ("accessTokenExpiresIn", (1_u64..=3600).prop_map(Value::from).boxed()),
    ];
    let len = members.len();
    subsequence(members, 0..=len)
        .prop_flat_map(|chosen| {
            chosen
                .into_iter()
                .map(|(name, value)| value.prop_map(move |value| (name.to_owned(), value)))
                .collect::<Vec<_>>()
        })
        .prop_map(|members| Value::Object(members.into_iter().collect::<Map<_, _>>()))
}

fn any_exchange() -> impl Strategy<Value = ExchangeForm> {
    (
        select(vec!["portal", "console", "desk"]),
        select(vec![ORDERS, PAYMENTS, "urn:x"]),
        subsequence(vec!["orders:read", "orders:write", "payments:read", "admin"], 1..=4),
        select(vec![0, 7, 8]),
    )
        .prop_map(|(client, resource, scope, actor)| {
            let form =
                ExchangeForm::new("").set("resource", resource).set("scope", &scope.join(" "));
            let form = match client {
                "portal" => form.portal(),
                client => form.set("client_id", client),
            };
            match actor {
                0 => form,
                7 => form.actor(&actor_token()),
                _ => form.actor(&other_actor()),
            }
        })
}

fn names(value: &Value) -> Option<Vec<&str>> {
    match value {
        Value::Null => None,
        Value::String(name) => Some(vec![name]),
        list => Some(list.as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// An exchange grants nothing beyond the bounds, the resource and the request. Where it accepts
    /// a bounded token, it accepts an unbounded one too.
    #[test]
    fn nothing_is_granted_beyond_the_bounds(bounds in any_bounds(), form in any_exchange()) {
        let gateway = Gateway::new(&configuration());
        let minted = gateway.send(&MintForm::new(&body(&bounds)).request());
        prop_assume!(minted.status == 201);
        let within = form.clone().set("subject_token", minted.text("subjectToken"));
        let answer = gateway.exchange(&within);
        let unbounded = gateway.exchange(&form.set("subject_token", &gateway.mint()));
        if answer.status != 200 {
            prop_assert!(answer.status == 400, "{:?}", answer);
            let again = gateway.exchange(&within);
            prop_assert_eq!(again.reason(), answer.reason(), "the token is as it was");
            return Ok(());
        }
        prop_assert_eq!(unbounded.status, 200, "{:?}", unbounded);

        let claims = claims(&gateway, &answer);
        let asked = |name: &str| within.parameters.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        for (claim, bound) in [("client_id", "clientId"), ("aud", "resource")] {
            let claim = claims[claim].as_str().unwrap();
            prop_assert!(names(&bounds[bound]).is_none_or(|names| names.contains(&claim)), "{} {}", bounds, claims);
        }
        prop_assert_eq!(claims["aud"].as_str(), asked("resource"));
        let scopes: &[&str] = if claims["aud"] == ORDERS { &["orders:read", "orders:write"] } else { &["payments:read"] };
        for scope in claims["scope"].as_str().unwrap().split(' ') {
            prop_assert!(scopes.contains(&scope));
            prop_assert!(asked("scope").unwrap().split(' ').any(|asked| asked == scope));
            prop_assert!(bounds["scope"].as_str().is_none_or(|bound| bound.split(' ').any(|bound| bound == scope)));
        }
        prop_assert!(bounds["actorId"].is_null() || bounds["actorId"] == claims["act"]["sub"]);
        let lifetime = claims["exp"].as_u64().unwrap() - claims["iat"].as_u64().unwrap();
        prop_assert!(lifetime <= bounds["accessTokenExpiresIn"].as_u64().unwrap_or(3600));
        let longest = if claims["aud"] == ORDERS { 3600 } else { 900 };
        prop_assert!(lifetime <= longest);
    }
}
