//! Step-up of the actor (RFC 9470): an actor who did not sign in as the operator demands is
//! refused, and the subject token stays good. The facts come from a JWT, from introspection, or
//! from userinfo.

use std::collections::HashMap;

use serde_json::{Value, json};

use testkit::Findings;
use testkit::bootstrap::{Bootstrap, Filter, Listener};
use testkit::configuration::{Configuration, ORDERS, PAYMENTS, PROVIDER_KEY};
use testkit::gateway::{
    Gateway, actor_claims, exchange_form, exchange_request, http_uri, mint_request, minted, now,
    raw_part, with_actor,
};
use testkit::guarded::{Guarded, claims_with, connect, token};
use testkit::http::{Answer, Request};
use testkit::server::{Reply, Server};

/// The guard's codes for an old sign-in, and for a token that the filter does not issue.
const OLD: &str = "insufficient_user_authentication";
const MALFORMED: &str = "invalid_token";

const UNMET: &str = "unmet_authentication_requirements";

/// Orders need the class `phr` or `phrh`, and a sign-in of the last hour. Payments need more.
fn demanding() -> Configuration {
    Configuration::default()
        .with("/actor_tokens/acr_values", json!(["phr", "phrh"]))
        .with("/actor_tokens/max_age", "3600s")
        .with("/resources/1/actor_acr_values", json!(["phrh"]))
        .with("/resources/1/actor_max_age", "600s")
}

/// Sends a request to one filter.
type Send<'s> = &'s dyn Fn(&Request) -> Answer;

fn exchange(send: Send<'_>, subject_token: &str, actor_token: &str, resource: &str) -> Answer {
    let scope = if resource == ORDERS { "orders:read" } else { "payments:read" };
    let form = exchange_form(subject_token).set("resource", resource).set("scope", scope);
    send(&exchange_request(&with_actor(form, actor_token)))
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
fn run(source: &str, send: Send<'_>, present: impl Fn(&Value) -> String) {
    let mut findings = Findings::default();
    let good = present(&json!({"acr": "phrh", "auth_time": now(), "sid": "s-1"}));
    for (sign_in, good_for) in sign_ins() {
        let mut said = sign_in.clone();
        said["sid"] = json!("s-1");
        let actor_token = present(&said);
        for resource in [ORDERS, PAYMENTS] {
            let case = format!("{source}: {sign_in} for {resource}");
            let subject_token = minted(&send(&mint_request("u-1")));
            let answer = exchange(send, &subject_token, &actor_token, resource);
            if !good_for.contains(&resource) {
                findings.expect(&case, &answer.refusal(), &(400, UNMET.to_owned()));
                let again = exchange(send, &subject_token, &good, resource);
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
    let gateway = Gateway::lent(&demanding());
    run("a JWT", &|request| gateway.send(request), |said| {
        let mut claims = actor_claims("agent-1");
        claims.as_object_mut().unwrap().extend(said.as_object().unwrap().clone());
        PROVIDER_KEY.sign(&claims)
    });
    drop(gateway);

    // An opaque token says nothing itself: the service is told what each of them means.
    let service = Server::start("service");
    let tell = |answer: Value, said: &Value| {
        let token = format!("opaque-{:016x}", fastrand::u64(..));
        let mut answer = answer;
        answer.as_object_mut().unwrap().extend(said.as_object().unwrap().clone());
        (token, answer)
    };
    let known = std::sync::Arc::new(std::sync::Mutex::new(HashMap::<String, Value>::new()));
    let all = std::sync::Arc::clone(&known);
    service.answer(move |asked| {
        let bearer = asked.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
        let token = asked.parameter("token").or_else(|| bearer.map(str::to_owned)).unwrap();
        Reply::json(&all.lock().unwrap()[&token])
    });
    let introspection = json!({
        "http_uri": http_uri(&service, "/introspection", "5s"),
        "client_id": "impersonation-filter",
        "client_secret": {"inline_string": "introspection-secret"},
        "required_scopes": ["openid"],
    });
    let userinfo = json!({"http_uri": http_uri(&service, "/userinfo", "5s")});
    let active = json!({"active": true, "sub": "agent-1", "scope": "openid"});
    let sources = [
        ("introspection", introspection, active),
        ("userinfo", userinfo, json!({"sub": "agent-1"})),
    ];
    let listener = |(source, endpoint, _): &(&str, Value, Value)| {
        let configuration = demanding().with(&format!("/actor_tokens/{source}"), endpoint.clone());
        let filter = Filter { vm_id: (*source).to_owned(), ..Filter::from(&configuration) };
        Listener::new(source).filter(filter).answer("/", "not ours")
    };
    let envoy = sources.iter().map(listener).fold(Bootstrap::default(), Bootstrap::listener);
    let envoy = envoy.servers(&[&service]).start();
    for (source, _, answer) in sources {
        run(source, &|request| connect(&envoy, source).send(request), |said| {
            let (token, answer) = tell(answer.clone(), said);
            known.lock().unwrap().insert(token.clone(), answer);
            token
        });
    }
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
        let gateway = Gateway::lent(&configuration);
        let send = |request: &Request| gateway.send(request);
        let mut claims = actor_claims("agent-1");
        claims["sid"] = json!("s-1");
        claims["acr"] = json!("phr");
        claims["auth_time"] = json!(now());
        let subject_token = minted(&send(&mint_request("u-1")));
        let answer = exchange(&send, &subject_token, &PROVIDER_KEY.sign(&claims), ORDERS);
        assert_eq!(raw_part(&answer.member("access_token"), 1)["act"], act);
    }
}

#[test]
fn a_rule_of_the_guard_may_demand_a_sign_in_of_late() {
    let guarded = Guarded::lent(&json!({"rules": [
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
        let answer = guarded.send_as(&token(&claims_with(&changes)), Request::get(path));
        let case = format!("{path} {changes}");
        findings.expect(&case, &answer.status, &status);
        findings.expect(&case, &guarded.reached(&answer), &(status == 200));
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
