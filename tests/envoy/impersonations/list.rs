//! `GET /api/impersonations`.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    LIST, Parties, configuration, event, gateway, list, list_answer, operator, revoke, start,
};
use testkit::configuration::{Configuration, ORDERS};
use testkit::gateway::{Gateway, exchange_form};
use testkit::http::Request;

#[test]
fn a_live_impersonation_is_listed_with_all_its_members() {
    let (gateway, parties) = (gateway(), Parties::new());
    assert_eq!(list(gateway, &format!("?userId={}", parties.user)), [] as [Value; 0]);
    let live = parties.begin(gateway);
    let [listed] = &list(gateway, &format!("?userId={}", parties.user))[..] else {
        panic!("not one")
    };
    let time = |name: &str| {
        let text = listed[name].as_str().unwrap();
        assert!(text.len() == 24 && text.ends_with('Z'), "{text}");
        text.to_owned()
    };
    assert!(time("issuedAt") < time("expiresAt"));
    let mut rest = listed.clone();
    rest.as_object_mut().unwrap().retain(|name, _| !name.ends_with("At"));
    assert_eq!(
        rest,
        json!({
            "id": live.id(), "userId": parties.user, "actorId": parties.actor,
            "clientId": "support-console", "caller": parties.caller, "resource": ORDERS,
            "scope": "orders:read", "jti": live.claims["jti"],
        })
    );
    let line = event(gateway, "impersonations.listed", "user_id", &parties.user);
    assert_eq!(line["requested_by"], "operator-1");
}

#[test]
fn every_filter_finds_only_matching_impersonations() {
    let (gateway, parties, others) = (gateway(), Parties::new(), Parties::new());
    let live = parties.begin(gateway);
    others.begin(gateway);
    let Parties { user, actor, caller } = &parties;
    for query in [
        format!("?userId={user}"),
        format!("?actorId={actor}"),
        format!("?caller={caller}"),
        format!("?clientId=support-console&caller={caller}&limit=1000"),
        format!("?resource={ORDERS}&userId={user}"),
    ] {
        let found = list(gateway, &query);
        assert_eq!(found.len(), 1, "{query}: {found:?}");
        assert_eq!(found[0]["id"], live.id(), "{query}");
    }
    for none in [
        format!("?userId={user}&actorId={}", others.actor),
        format!("?userId={user}&resource=https://api.example.com/payments"),
    ] {
        assert_eq!(list(gateway, &none), [] as [Value; 0], "{none}");
    }
}

#[test]
fn only_the_configured_members_of_a_context_are_listed_and_long_ones_are_cut() {
    let names = json!(["ticketId", "reason", "tags", "missing"]);
    let gateway = start(&configuration().with("/impersonations/context", names));
    let parties = Parties::new();
    let context = json!({
        "secret": "x", "tags": ["a", 1], "reason": "é".repeat(200), "ticketId": "T-1001\n",
    });
    let (subject_token, _) = parties.mint_with(&gateway, &json!({"context": context}));
    assert_eq!(parties.exchange(&gateway, &subject_token).status, 200);
    let [listed] = &list(&gateway, "")[..] else { panic!("not one") };
    let expected = json!({"ticketId": "T-1001\n", "reason": "é".repeat(128), "tags": "[\"a\",1]"});
    assert_eq!(listed["context"], expected);

    let (subject_token, _) = parties.mint(&gateway);
    assert_eq!(parties.exchange(&gateway, &subject_token).status, 200);
    let without = list(&gateway, "").into_iter().filter(|one| one.get("context").is_none());
    assert_eq!(without.count(), 1, "an impersonation without these members");
}

#[test]
fn an_ended_impersonation_is_not_listed() {
    let (gateway, parties) = (gateway(), Parties::new());
    parties.begin(gateway);
    revoke(gateway, &json!({"userId": parties.user}));
    assert_eq!(list(gateway, &format!("?userId={}", parties.user)), [] as [Value; 0]);
}

#[test]
fn pages_have_every_impersonation_once() {
    let (gateway, parties) = (gateway(), Parties::new());
    let begun: BTreeSet<_> = (0..7).map(|_| parties.begin(gateway).id().to_owned()).collect();
    let (mut found, mut cursor, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let query = format!("?caller={}&limit=3{cursor}", parties.caller);
        let body = list_answer(gateway, &query).json();
        let page = body["impersonations"].as_array().unwrap();
        assert!(page.len() <= 3);
        found.extend(page.iter().map(|one| one["id"].as_str().unwrap().to_owned()));
        pages += 1;
        match body["cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!((found.len(), pages), (7, 3));
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), begun);
}

#[test]
fn only_an_entitled_operator_sees_the_list() {
    let gateway = gateway();
    assert_eq!(gateway.send(&Request::get(LIST)).refusal(), (401, "invalid_token".into()));
    for scope in ["", "impersonate", "impersonations:revoke", "impersonations:readx"] {
        let answer = gateway.send(&Request::get(LIST).bearer(&operator(scope)));
        assert_eq!(answer.refusal(), (403, "insufficient_scope".into()), "{scope}");
        let challenge = answer.header("www-authenticate").unwrap();
        assert!(challenge.contains("scope=\"impersonations:read\""), "{challenge}");
    }
    let live = gateway.exchange(&exchange_form(&gateway.mint("user"))).member("access_token");
    let answer = gateway.send(&Request::get(LIST).bearer(&live));
    assert_eq!(answer.refusal(), (401, "invalid_token".into()), "an impersonation");

    let nobody = Gateway::lent(&Configuration::default());
    let answer = list_answer(&nobody, "");
    assert_eq!(answer.refusal(), (403, "access_denied".into()), "no operator is configured");
}

#[test]
fn a_wrong_query_is_refused() {
    let gateway = gateway();
    for query in [
        "?userid=x",
        "?userId=",
        "?userId=a&userId=b",
        "?limit=0",
        "?limit=1001",
        "?limit=+1",
        "?limit=",
        "?cursor=x",
        "?cursor=",
        "?userId=%zz",
        "?userId=a%0Aforged",
        "?caller=%C2%85",
        "?resource=",
    ] {
        let answer = list_answer(gateway, query);
        assert_eq!(answer.refusal(), (400, "invalid_request".into()), "{query}: {answer:?}");
    }
    let answer = gateway.send(&Request::post(LIST).json(&json!({})));
    assert_eq!((answer.status, answer.header("allow")), (405, Some("GET")));
}
