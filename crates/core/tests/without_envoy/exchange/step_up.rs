//! How the actor must have signed in (RFC 9470), for all exchanges and for one resource.

use serde_json::{Value, json};

use super::flow::claims;
use super::setting::{
    ExchangeForm, NOW, ORDERS, PAYMENTS, PROVIDER_KEY, actor_claims, configuration, with,
};
use crate::driver::Gateway;

fn actor(acr: Option<&str>, auth_time: Option<u64>) -> String {
    let mut claims = actor_claims();
    if let Some(acr) = acr {
        claims = with(claims, "acr", acr);
    }
    if let Some(auth_time) = auth_time {
        claims = with(claims, "auth_time", auth_time);
    }
    PROVIDER_KEY.sign(&claims)
}

/// All exchanges need a class and a sign-in of the last 900 seconds; payments need more.
fn strict() -> Value {
    let mut configuration = configuration();
    configuration["actor_tokens"]["acr_values"] = json!(["phr", "phrh"]);
    configuration["actor_tokens"]["max_age"] = json!("900s");
    for resource in configuration["resources"].as_array_mut().unwrap() {
        if resource["indicator"] == PAYMENTS {
            resource["actor_acr_values"] = json!(["phrh"]);
            resource["actor_max_age"] = json!("60s");
        }
    }
    configuration
}

#[test]
fn an_actor_who_did_not_sign_in_as_demanded_is_refused_and_the_subject_token_stays() {
    let gateway = Gateway::new(&strict());
    let (acr, age) = (Some("actor_acr"), Some("actor_max_age"));
    #[rustfmt::skip]
    let cases = [
        (ORDERS,   Some("phr"),  Some(NOW),       None),
        (ORDERS,   Some("phrh"), Some(NOW - 900), None),
        (ORDERS,   Some("phr"),  Some(NOW - 901), age),
        (ORDERS,   Some("phr"),  None,            age),
        (ORDERS,   Some("PHR"),  Some(NOW),       acr),
        (ORDERS,   Some("0"),    Some(NOW),       acr),
        (ORDERS,   None,         Some(NOW),       acr),
        (PAYMENTS, Some("phrh"), Some(NOW - 60),  None),
        (PAYMENTS, Some("phr"),  Some(NOW),       acr),
        (PAYMENTS, Some("phrh"), Some(NOW - 61),  age),
    ];
    for (resource, class, time, reason) in cases {
        let case = format!("{resource} {class:?} {time:?}");
        let scope = if resource == ORDERS { "orders:read" } else { "payments:read" };
        let form = ExchangeForm::new(&gateway.mint()).portal();
        let form = form.set("resource", resource).set("scope", scope);
        let answer = gateway.exchange(&form.clone().actor(&actor(class, time)));
        let Some(reason) = reason else {
            let act = json!({"sub": "agent-7", "acr": class, "auth_time": time});
            assert_eq!(claims(&gateway, &answer)["act"], act, "{case}");
            continue;
        };
        let refused = (answer.status, answer.text("error"), answer.reason());
        assert_eq!(refused, (400, "unmet_authentication_requirements", reason), "{case}");
        let again = form.actor(&actor(Some("phrh"), Some(NOW)));
        assert_eq!(gateway.exchange(&again).status, 200, "{case}: the token was spent");
    }
}

#[test]
fn a_resource_with_rules_about_its_actors_needs_an_actor() {
    let gateway = Gateway::new(&strict());
    let form = ExchangeForm::new(&gateway.mint()).portal();
    let form = form.set("resource", PAYMENTS).set("scope", "payments:read");
    let answer = gateway.exchange(&form);
    assert_eq!((answer.status, answer.reason()), (400, "actor_required"));
    gateway.assert_spendable(form.subject_token(), "orders need no actor");
}
