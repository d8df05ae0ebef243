//! Subject tokens that allow less than their user may: the bounds that a mint may ask for, and the
//! access token that an exchange then yields.

use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use proptest::test_runner::TestRunner;
use serde_json::{Map, Value, json};

use crate::world::World;
use testkit::Findings;
use testkit::configuration::{Configuration, ORDERS, PAYMENTS, PROVIDER_KEY};
use testkit::gateway::{
    actor_claims, exchange_form, exchange_request, mint_body_request, minted, portal_request,
    raw_part, with_actor,
};
use testkit::http::{Form, Request};

fn body(bounds: &Value) -> Value {
    let mut body = json!({"userId": "u-1"});
    body.as_object_mut().unwrap().extend(bounds.as_object().unwrap().clone());
    body
}

fn mint(bounds: &Value) -> Request {
    mint_body_request(&body(bounds))
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
    let world = World::start(&Configuration::default());
    let usual: Exchange = |token| form(token, |form| form);
    let payments: Exchange =
        |token| form(token, |form| form.set("resource", PAYMENTS).set("scope", "payments:read"));
    let write: Exchange = |token| form(token, |form| form.set("scope", "orders:write"));
    let agent: Exchange = |token| form(token, |form| acting(form, "agent-1"));
    let another: Exchange = |token| form(token, |form| acting(form, "agent-2"));
    let portal = portal_request as Exchange;
    #[rustfmt::skip]
    let cases = [
        (json!({"clientId": "support-portal"}),                   usual,    "invalid_request", "bound_client",   portal),
        (json!({"clientId": ["support-app", "support-console"]}), portal,   "invalid_request", "bound_client",   usual),
        (json!({"resource": PAYMENTS}),                           usual,    "invalid_target",  "bound_resource", payments),
        (json!({"resource": [ORDERS]}),                           payments, "invalid_target",  "bound_resource", usual),
        (json!({"scope": "orders:read"}),                         write,    "invalid_scope",   "bound_scope",    usual),
        (json!({"scope": "orders:write"}),                        usual,    "invalid_scope",   "bound_scope",    write),
        (json!({"actorId": "agent-1"}),                           usual,    "invalid_request", "bound_actor",    agent),
        (json!({"actorId": "agent-1"}),                           another,  "invalid_request", "bound_actor",    agent),
    ];
    let mut findings = Findings::default();
    for (bounds, not_met, error, reason, met) in cases {
        let token = minted(&world.send(&mint(&bounds)));
        for _ in 0..2 {
            let answer = world.send(&not_met(&token));
            findings.expect(&bounds, &answer.refusal(), &(400, error.to_owned()));
            let event = world.last_event();
            findings.expect(&bounds, &event["reason"], &json!(reason));
            findings.expect(&bounds, &event["user_id"], &json!("u-1"));
        }
        findings.expect(&bounds, &world.send(&met(&token)).status, &200);
        world.assert_spent(&token, &bounds.to_string());
    }
}

#[test]
fn the_scope_is_cut_down_to_the_bound() {
    let world = World::start(&Configuration::default());
    let token = minted(&world.send(&mint(&json!({"scope": "orders:read payments:read"}))));
    let answer = world.exchange(&exchange_form(&token).set("scope", "orders:read orders:write"));
    assert_eq!(answer.member("scope"), "orders:read");
}

/// A client learns nothing of another client's token, not even that it was used or has expired.
#[test]
fn another_clients_token_is_answered_like_an_unknown_one() {
    let world = World::start(&Configuration::default());
    let theirs = || minted(&world.send(&mint(&json!({"clientId": "support-portal"}))));
    let token = theirs();
    let unknown = world.exchange(&exchange_form(&format!("{}A", &token[..token.len() - 1])));
    let is_like_unknown = |token: &str, reason: &str| {
        let answer = world.exchange(&exchange_form(token));
        assert_eq!((answer.status, &answer.body), (unknown.status, &unknown.body), "{answer:?}");
        assert_eq!(world.last_event()["reason"], reason);
    };
    is_like_unknown(&token, "bound_client");
    assert_eq!(world.send(&portal_request(&token)).status, 200);
    is_like_unknown(&token, "subject_token_spent");
    let alarm = world.alarms().pop().unwrap();
    assert_eq!(alarm["mint"]["bounds"], json!({"clientId": ["support-portal"]}));

    let token = theirs();
    world.advance(601);
    is_like_unknown(&token, "bound_client");
    assert_eq!(world.send(&portal_request(&token)).status, 400);
    assert_eq!(world.last_event()["reason"], "subject_token_expired");
}

#[test]
fn both_tokens_live_as_long_as_their_bounds_say() {
    let world = World::start(&Configuration::default());
    let bounds = json!({"expiresIn": 60, "accessTokenExpiresIn": 300});
    let answer = world.send(&mint(&bounds));
    assert_eq!(answer.json()["expiresIn"], 60);
    world.advance(50);
    let answer = world.exchange(&exchange_form(&minted(&answer)));
    assert_eq!(answer.json()["expires_in"], 300, "{answer:?}");
    let claims = raw_part(&answer.member("access_token"), 1);
    assert_eq!(claims["exp"].as_u64().unwrap() - claims["iat"].as_u64().unwrap(), 300);

    let token = minted(&world.send(&mint(&bounds)));
    world.advance(61);
    assert_eq!(world.exchange(&exchange_form(&token)).status, 400);
    assert_eq!(world.last_event()["reason"], "subject_token_expired");
}

#[test]
fn a_resource_with_a_shorter_lifetime_keeps_it() {
    let world = World::start(&Configuration::default());
    let token = minted(&world.send(&mint(&json!({"accessTokenExpiresIn": 3600}))));
    let form = exchange_form(&token).set("resource", PAYMENTS).set("scope", "payments:read");
    assert_eq!(world.exchange(&form).json()["expires_in"], 900);
}

#[test]
fn a_mint_refuses_and_names_a_bound_that_can_never_be_met() {
    let world = World::start(&Configuration::default());
    let mut findings = Findings::default();
    #[rustfmt::skip]
    let cases = [
        (json!({"expiresIn": 601}),             "expiresIn must be at most 600 seconds"),
        (json!({"expiresIn": 0}),               "expiresIn"),
        (json!({"clientId": null}),             "clientId must be a string or a list of strings"),
        (json!({"clientId": "nobody"}),         "clientId"),
        (json!({"clientId": []}),               "clientId"),
        (json!({"resource": "urn:x"}),          "resource must name only configured resources"),
        (json!({"resource": null}),             "resource"),
        (json!({"resource": []}),               "resource"),
        (json!({"scope": "admin"}),             "scope must have only scopes of the resources that the token can be for"),
        (json!({"scope": ""}),                  "scope"),
        (json!({"resource": PAYMENTS, "scope": "orders:read"}), "scope"),
        (json!({"actorId": "u-1"}),             "actorId must not be the user who is impersonated"),
        (json!({"accessTokenExpiresIn": 1.5}),  "accessTokenExpiresIn must be a number of whole seconds, at least 1"),
        (json!({"accessTokenExpiresIn": 3601}), "accessTokenExpiresIn"),
        (json!({"accessTokenExpiresIn": 0}),    "accessTokenExpiresIn"),
        (json!({"clientID": "support-portal"}), "the body must be a JSON object of userId, context and bounds, each given once"),
    ];
    for (bounds, told) in cases {
        let answer = world.send(&mint(&bounds));
        findings.expect(&bounds, &answer.refusal(), &(400, "invalid_request".into()));
        let description = answer.member("error_description");
        if !description.starts_with(told) {
            findings.add(format!("{bounds}: {description}"));
        }
    }
    let twice = r#"{"userId": "u", "clientId": "support-app", "clientId": "support-portal"}"#;
    let answer = world.send(&mint(&json!({})).body(twice));
    findings.expect("twice", &answer.refusal(), &(400, "invalid_request".into()));
    findings.expect("minted", &world.counted("impersonation_subject_tokens_created_total"), &0);
}

/// The audit names the bounds at the mint, at each exchange that they refused, and at the one that
/// they allowed.
#[test]
fn the_audit_has_the_bounds_of_the_mint_and_of_each_exchange() {
    let world = World::start(&Configuration::default());
    let bounds = json!({
        "expiresIn": 60, "clientId": ["support-console"], "resource": [ORDERS], "scope": "orders:read",
        "actorId": "agent-1", "accessTokenExpiresIn": 300,
    });
    let token = minted(&world.send(&mint(&bounds)));
    assert_eq!(world.send(&form(&token, |form| form)).status, 400);
    assert_eq!(world.send(&form(&token, |form| acting(form, "agent-1"))).status, 200);
    let told = world.audit();
    let events: Vec<_> = told.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(
        events,
        ["subject_token.created", "token_exchange.refused", "token_exchange.succeeded"]
    );
    for event in told {
        assert_eq!(event["bounds"], bounds, "{event}");
    }
    assert_eq!(world.exchange(&exchange_form(&world.mint())).status, 200);
    assert_eq!(world.last_event().get("bounds"), None);
}

/// Random bounds and a random exchange, most of which succeed.
fn any_bounds() -> impl Strategy<Value = Value> {
    let clients = [json!("support-portal"), json!(["support-portal", "support-console"])].map(Just);
    let resources = [json!(ORDERS), json!([ORDERS, PAYMENTS])].map(Just);
    let scopes = ["orders:read", "orders:write orders:read", "payments:read orders:read"];
    let members = vec![
        ("clientId", proptest::strategy::Union::new(clients).boxed()),
        ("resource", proptest::strategy::Union::new(resources).boxed()),
        ("scope", select(scopes.to_vec()).prop_map(Value::from).boxed()),
        ("actorId", select(vec!["agent-7", "agent-8"]).prop_map(Value::from).boxed()),
        ("expiresIn", (100_u64..=600).prop_map(Value::from).boxed()),
        ("accessTokenExpiresIn", (1_u64..=3600).prop_map(Value::from).boxed()),
    ];
    let len = members.len();
    subsequence(members, 0..=len)
        .prop_flat_map(|chosen| {
            let one = |(name, value): (&str, BoxedStrategy<Value>)| {
                let name = name.to_owned();
                value.prop_map(move |value| (name.clone(), value))
            };
            chosen.into_iter().map(one).collect::<Vec<_>>()
        })
        .prop_map(|members| Value::Object(members.into_iter().collect::<Map<_, _>>()))
}

/// A client, a form without its subject token, and an actor.
fn any_exchange() -> impl Strategy<Value = (&'static str, Form)> {
    (
        select(vec!["support-portal", "support-console", "support-app"]),
        select(vec![ORDERS, PAYMENTS, "urn:x"]),
        subsequence(vec!["orders:read", "orders:write", "payments:read", "admin"], 1..=4),
        select(vec![None, Some("agent-7"), Some("agent-8")]),
    )
        .prop_map(|(client, resource, scope, actor)| {
            let form = exchange_form("").set("resource", resource).set("scope", &scope.join(" "));
            let form = form.set("client_id", client);
            (client, actor.map_or(form.clone(), |actor| acting(form, actor)))
        })
}

fn names(value: &Value) -> Option<Vec<&str>> {
    match value {
        Value::Null => None,
        Value::String(name) => Some(vec![name]),
        list => Some(list.as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect()),
    }
}

/// An exchange grants nothing beyond the bounds, the resource and the request. Where it accepts a
/// bounded token, it accepts an unbounded one too.
#[test]
fn nothing_is_granted_beyond_the_bounds() {
    let world = World::start(&Configuration::default());
    let mut runner = TestRunner::new(ProptestConfig { cases: 48, ..ProptestConfig::default() });
    let exchange = |client: &str, form: &Form| {
        let request = exchange_request(form);
        world.send(&match client {
            "support-portal" => request.basic(client, &testkit::configuration::CLIENT_SECRET),
            _ => request,
        })
    };
    let outcome = runner.run(&(any_bounds(), any_exchange()), |(bounds, (client, form))| {
        let answer = world.send(&mint(&bounds));
        prop_assume!(answer.status == 201);
        let within = form.clone().set("subject_token", &minted(&answer));
        let answer = exchange(client, &within);
        let unbounded = exchange(client, &form.set("subject_token", &world.mint()));
        if answer.status != 200 {
            prop_assert_eq!(answer.status, 400, "{:?}", answer);
            let again = exchange(client, &within);
            prop_assert_eq!(again.body, answer.body, "the token is as it was");
            return Ok(());
        }
        prop_assert_eq!(unbounded.status, 200, "{:?}", unbounded);

        let claims = raw_part(&answer.member("access_token"), 1);
        let asked = |name: &str| {
            let found = within.0.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| value.as_str())
        };
        for (claim, bound) in [("client_id", "clientId"), ("aud", "resource")] {
            let claim = claims[claim].as_str().unwrap();
            let within = names(&bounds[bound]).is_none_or(|names| names.contains(&claim));
            prop_assert!(within, "{} {}", bounds, claims);
        }
        prop_assert_eq!(claims["aud"].as_str(), asked("resource"));
        let of_resource: &[&str] = match claims["aud"] == ORDERS {
            true => &["orders:read", "orders:write"],
            false => &["payments:read"],
        };
        for scope in claims["scope"].as_str().unwrap().split(' ') {
            let is_in = |list: &str| list.split(' ').any(|known| known == scope);
            prop_assert!(of_resource.contains(&scope));
            prop_assert!(is_in(asked("scope").unwrap()));
            prop_assert!(bounds["scope"].as_str().is_none_or(is_in));
        }
        prop_assert!(bounds["actorId"].is_null() || bounds["actorId"] == claims["act"]["sub"]);
        let lifetime = claims["exp"].as_u64().unwrap() - claims["iat"].as_u64().unwrap();
        prop_assert!(lifetime <= bounds["accessTokenExpiresIn"].as_u64().unwrap_or(3600));
        let longest = if claims["aud"] == ORDERS { 3600 } else { 900 };
        prop_assert!(lifetime <= longest);
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}
