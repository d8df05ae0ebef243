//! `GET /api/impersonations`.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    Parties, World, begin, configuration, event, exchange, in_etcd, list, mint, mint_with, revoke,
    start,
};
use testkit::configuration::{Configuration, ORDERS};
use testkit::guarded::operator_with;
use testkit::http::Request;
use testkit::impersonations::{LIST, list_request};

#[test]
fn a_live_impersonation_is_listed_with_all_its_members() {
    let (world, parties) = (start(), Parties::new());
    assert_eq!(list(&world, &format!("?userId={}", parties.user)), [] as [Value; 0]);
    let live = begin(&world, &parties);
    let [listed] = &list(&world, &format!("?userId={}", parties.user))[..] else {
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
    let line = event(&world, "impersonations.listed");
    assert_eq!(
        (&line["user_id"], &line["requested_by"]),
        (&json!(parties.user), &json!("operator-1"))
    );
}

#[test]
fn every_filter_finds_only_matching_impersonations() {
    let (world, parties, others) = (start(), Parties::new(), Parties::new());
    let live = begin(&world, &parties);
    begin(&world, &others);
    let Parties { user, actor, caller } = &parties;
    for query in [
        format!("?userId={user}"),
        format!("?actorId={actor}"),
        format!("?caller={caller}"),
        format!("?clientId=support-console&caller={caller}&limit=1000"),
        format!("?resource={ORDERS}&userId={user}"),
    ] {
        let found = list(&world, &query);
        assert_eq!(found.len(), 1, "{query}: {found:?}");
        assert_eq!(found[0]["id"], live.id(), "{query}");
    }
    for none in [
        format!("?userId={user}&actorId={}", others.actor),
        format!("?userId={user}&resource=https://api.example.com/payments"),
    ] {
        assert_eq!(list(&world, &none), [] as [Value; 0], "{none}");
    }
}

#[test]
fn only_the_configured_members_of_a_context_are_listed_and_long_ones_are_cut() {
    let names = json!(["ticketId", "reason", "tags", "missing"]);
    let world = World::start(&configuration().with("/impersonations/context", names));
    let parties = Parties::new();
    let context = json!({
        "secret": "x", "tags": ["a", 1], "reason": "é".repeat(200), "ticketId": "T-1001\n",
    });
    let (subject_token, _) = mint_with(&world, &parties, &json!({"context": context}));
    assert_eq!(exchange(&world, &parties, &subject_token).status, 200);
    let [listed] = &list(&world, "")[..] else { panic!("not one") };
    let expected = json!({"ticketId": "T-1001\n", "reason": "é".repeat(128), "tags": "[\"a\",1]"});
    assert_eq!(listed["context"], expected);

    let (subject_token, _) = mint(&world, &parties);
    assert_eq!(exchange(&world, &parties, &subject_token).status, 200);
    let without = list(&world, "").into_iter().filter(|one| one.get("context").is_none());
    assert_eq!(without.count(), 1, "an impersonation without these members");
}

#[test]
fn an_ended_impersonation_is_not_listed() {
    let (world, parties) = (start(), Parties::new());
    begin(&world, &parties);
    revoke(&world, &json!({"userId": parties.user}));
    assert_eq!(list(&world, &format!("?userId={}", parties.user)), [] as [Value; 0]);
}

#[test]
fn pages_have_every_impersonation_once() {
    let (world, parties) = (start(), Parties::new());
    let begun: BTreeSet<_> = (0..7).map(|_| begin(&world, &parties).id().to_owned()).collect();
    let (mut found, mut cursor, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let query = format!("?caller={}&limit=3{cursor}", parties.caller);
        let body = world.send(&list_request(&query)).json();
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
    let world = start();
    assert_eq!(world.send(&Request::get(LIST)).refusal(), (401, "invalid_token".into()));
    for scope in ["", "impersonate", "impersonations:revoke", "impersonations:readx"] {
        let answer = world.send(&Request::get(LIST).bearer(&operator_with(scope)));
        assert_eq!(answer.refusal(), (403, "insufficient_scope".into()), "{scope}");
        let challenge = answer.header("www-authenticate").unwrap();
        assert!(challenge.contains("scope=\"impersonations:read\""), "{challenge}");
    }
    let live = begin(&world, &Parties::new()).access_token;
    let answer = world.send(&Request::get(LIST).bearer(&live));
    assert_eq!(answer.refusal(), (401, "invalid_token".into()), "an impersonation");

    let nobody = World::start(&Configuration::default());
    let answer = nobody.send(&list_request(""));
    assert_eq!(answer.refusal(), (403, "access_denied".into()), "no operator is configured");
}

#[test]
fn a_wrong_query_is_refused() {
    let world = start();
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
        let answer = world.send(&list_request(query));
        assert_eq!(answer.refusal(), (400, "invalid_request".into()), "{query}: {answer:?}");
    }
    let answer = world.send(&Request::post(LIST).json(&json!({})));
    assert_eq!((answer.status, answer.header("allow")), (405, Some("GET")));
}

/// etcd has room for all of them.
#[test]
fn a_full_list_says_that_it_is_incomplete_and_stops_no_exchange() {
    let world = World::start(&configuration().with("/impersonations/capacity", 2));
    for begun in 1..=4 {
        begin(&world, &Parties::new());
        let body = world.send(&list_request("")).json();
        assert_eq!(body["complete"], in_etcd() || begun <= 2, "{body}");
        let listed = if in_etcd() { begun } else { begun.min(2) };
        assert_eq!(body["impersonations"].as_array().unwrap().len(), listed);
    }
    assert_eq!(world.counted("impersonation_unlisted_total"), if in_etcd() { 0 } else { 2 });
}
