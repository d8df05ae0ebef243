//! Step-up of the actor (RFC 9470): an actor who did not sign in as the operator demands is
//! refused, and the subject token stays good. The facts come from a JWT, from introspection, or
//! from userinfo.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::world::World;
use testkit::Findings;
use testkit::configuration::{Configuration, ORDERS, PAYMENTS, PROVIDER_KEY};
use testkit::gateway::{actor_claims, exchange_form, now, raw_part, with_actor};
use testkit::http::Answer;
use testkit::impersonations::unique;
use testkit::server::Reply;
use testkit::services::http_uri_of;

const UNMET: &str = "unmet_authentication_requirements";

/// Orders need the class `phr` or `phrh`, and a sign-in of the last hour. Payments need more.
fn demanding() -> Configuration {
    Configuration::default()
        .with("/actor_tokens/acr_values", json!(["phr", "phrh"]))
        .with("/actor_tokens/max_age", "3600s")
        .with("/resources/1/actor_acr_values", json!(["phrh"]))
        .with("/resources/1/actor_max_age", "600s")
}

fn exchange(world: &World, subject_token: &str, actor_token: &str, resource: &str) -> Answer {
    let scope = if resource == ORDERS { "orders:read" } else { "payments:read" };
    let form = exchange_form(subject_token).set("resource", resource).set("scope", scope);
    world.exchange(&with_actor(form, actor_token))
}

/// The sign-ins, and the resources for which each is good.
fn sign_ins() -> Vec<(Value, &'static [&'static str])> {
    const BOTH: &[&str] = &[ORDERS, PAYMENTS];
    const NONE: &[&str] = &[];
    let at = |acr: &str, seconds_ago: u64| json!({"acr": acr, "auth_time": now() - seconds_ago});
    vec![
        (at("phrh", 0), BOTH),
        (at("phrh", 300), BOTH),
        (at("phrh", 900), &[ORDERS]),
        (at("phr", 0), &[ORDERS]),
        (at("phr", 3000), &[ORDERS]),
        (at("phr", 4000), NONE),
        (at("Phr", 0), NONE),
        (at("phr phrh", 0), NONE),
        (at("", 0), NONE),
        (json!({"acr": ["phr"], "auth_time": now()}), NONE),
        (json!({"acr": "phr"}), NONE),
        (json!({"acr": "phr", "auth_time": now().to_string()}), NONE),
        (json!({"acr": "phr", "auth_time": null}), NONE),
        (json!({"auth_time": now()}), NONE),
        (json!({}), NONE),
    ]
}

/// Plays all sign-ins. `present` makes an actor token that says this about its sign-in.
fn run(source: &str, world: &World, present: impl Fn(&Value) -> String) {
    let mut findings = Findings::default();
    let good = present(&json!({"acr": "phrh", "auth_time": now(), "sid": "s-1"}));
    for (sign_in, good_for) in sign_ins() {
        let mut said = sign_in.clone();
        said["sid"] = json!("s-1");
        let actor_token = present(&said);
        for resource in [ORDERS, PAYMENTS] {
            let case = format!("{source}: {sign_in} for {resource}");
            let subject_token = world.mint();
            let answer = exchange(world, &subject_token, &actor_token, resource);
            if !good_for.contains(&resource) {
                findings.expect(&case, &answer.refusal(), &(400, UNMET.to_owned()));
                let again = exchange(world, &subject_token, &good, resource);
                findings.expect(format!("{case}: again"), &again.status, &200);
                continue;
            }
            findings.expect(&case, &answer.status, &200);
            let claims = raw_part(&answer.member("access_token"), 1);
            let act = json!({
                "sub": "agent-1", "sid": "s-1", "acr": sign_in["acr"],
                "auth_time": sign_in["auth_time"],
            });
            findings.expect(&case, &claims["act"], &act);
            for name in ["sid", "acr", "auth_time"] {
                findings.expect(format!("{case}: {name} at top level"), &claims.get(name), &None);
            }
        }
    }
}

#[test]
fn an_actor_token_must_meet_the_demands_wherever_its_facts_come_from() {
    run("a JWT", &World::start(&demanding()), |said| {
        let mut claims = actor_claims("agent-1");
        claims.as_object_mut().unwrap().extend(said.as_object().unwrap().clone());
        PROVIDER_KEY.sign(&claims)
    });

    // An opaque token says nothing itself: the service is told what each of them means.
    let introspection = json!({
        "http_uri": http_uri_of("introspection", "/introspection"),
        "client_id": "impersonation-filter",
        "client_secret": {"inline_string": "introspection-secret"},
        "required_scopes": ["openid"],
    });
    let userinfo = json!({"http_uri": http_uri_of("userinfo", "/userinfo")});
    let active = json!({"active": true, "sub": "agent-1", "scope": "openid"});
    for (source, endpoint, known) in [
        ("introspection", introspection, active),
        ("userinfo", userinfo, json!({"sub": "agent-1"})),
    ] {
        let world = World::start(&demanding().with(&format!("/actor_tokens/{source}"), endpoint));
        let said_by = Arc::new(Mutex::new(HashMap::<String, Value>::new()));
        let all = Arc::clone(&said_by);
        world.upstream(source).answer(move |asked| {
            let bearer =
                asked.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
            let token = asked.parameter("token").or_else(|| bearer.map(str::to_owned)).unwrap();
            Reply::json(&all.lock().unwrap()[&token])
        });
        run(source, &world, |said| {
            let token = unique("opaque");
            let mut answer = known.clone();
            answer.as_object_mut().unwrap().extend(said.as_object().unwrap().clone());
            said_by.lock().unwrap().insert(token.clone(), answer);
            token
        });
    }
}

#[test]
fn a_resource_with_rules_about_its_actors_needs_an_actor() {
    let world = World::start(&demanding());
    let token = world.mint();
    let form = exchange_form(&token).set("resource", PAYMENTS).set("scope", "payments:read");
    assert_eq!(world.exchange(&form).status, 400);
    assert_eq!(world.last_event()["reason"], "actor_required");
    assert_eq!(world.exchange(&exchange_form(&token)).status, 200, "orders need no actor");
}

/// Without a demand the access token has `act.sid` alone: the rest is nobody's business.
#[test]
fn an_access_token_says_of_a_sign_in_what_is_asked_for() {
    let demands = [
        (Configuration::default(), json!({"sub": "agent-1", "sid": "s-1"})),
        (
            Configuration::default().with("/resources/1/actor_acr_values", json!(["phrh"])),
            json!({"sub": "agent-1", "sid": "s-1", "acr": "phr"}),
        ),
    ];
    for (configuration, act) in demands {
        let world = World::start(&configuration);
        let mut claims = actor_claims("agent-1");
        claims["sid"] = json!("s-1");
        claims["acr"] = json!("phr");
        claims["auth_time"] = json!(now());
        let subject_token = world.mint();
        let answer = exchange(&world, &subject_token, &PROVIDER_KEY.sign(&claims), ORDERS);
        assert_eq!(raw_part(&answer.member("access_token"), 1)["act"], act);
    }
}
