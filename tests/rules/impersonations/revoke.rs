//! `DELETE /api/impersonations/{id}` and `POST /api/impersonations/revocations`.

use serde_json::{Value, json};

use super::{
    Parties, World, assert_not_found, begin, configuration, delete, event, exchange, in_etcd,
    is_active, mint, revoke, start,
};
use testkit::configuration::ORDERS;
use testkit::guarded::operator_with;
use testkit::http::Request;
use testkit::impersonations::{LIST, REVOCATIONS, end_by_id, revocation};

#[test]
fn an_id_ends_its_own_impersonation_and_no_other() {
    let (world, parties) = (start(), Parties::new());
    let (ended, other) = (begin(&world, &parties), begin(&world, &parties));
    let answer = world.send(&end_by_id(ended.id()));
    assert_eq!((answer.status, answer.text()), (204, String::new()), "{answer:?}");
    let line = event(&world, "impersonation.revoked");
    let told = ["subject_token_id", "user_id", "requested_by"].map(|name| line[name].clone());
    assert_eq!(told, [ended.id(), &parties.user, "operator-1"].map(|name| json!(name)));
    assert!(!is_active(&world, &ended));
    assert!(is_active(&world, &other));
    assert_not_found(&world.send(&end_by_id(ended.id())), "that has ended");
    assert_not_found(&world.send(&end_by_id(&"0".repeat(24))), "unknown");
    assert_not_found(&world.send(&end_by_id("x")), "no id");
}

#[test]
fn an_id_ends_an_unlisted_impersonation_too() {
    let world = World::start(&configuration().with("/impersonations/capacity", 1));
    let parties = Parties::new();
    let [_, unlisted] = [(); 2].map(|()| begin(&world, &parties));
    assert_eq!(world.send(&end_by_id(unlisted.id())).status, 204);
    assert!(!is_active(&world, &unlisted));
}

#[test]
fn each_kind_of_revocation_ends_live_and_outstanding_matches_but_no_later_ones() {
    let world = start();
    let kinds: [fn(&Parties) -> Value; 8] = [
        |parties| json!({"userId": parties.user}),
        |parties| json!({"actorId": parties.actor}),
        |parties| json!({"caller": parties.caller}),
        |parties| json!({"userId": parties.user, "actorId": parties.actor, "caller": parties.caller}),
        |parties| json!({"userId": parties.user, "clientId": "support-console", "resource": ORDERS}),
        |_| json!({"clientId": "support-console"}),
        |_| json!({"resource": ORDERS}),
        |_| json!({"all": true}),
    ];
    for (index, kind) in kinds.into_iter().enumerate() {
        let (parties, others) = (Parties::new(), Parties::new());
        let body = kind(&parties);
        let (live, other) = (begin(&world, &parties), begin(&world, &others));
        let (outstanding, _) = mint(&world, &parties);
        assert!(is_active(&world, &live), "{body}");
        revoke(&world, &body);
        assert!(!is_active(&world, &live), "{body}");
        let refused = exchange(&world, &parties, &outstanding);
        assert_eq!(refused.refusal(), (400, "invalid_request".into()), "{body}: {refused:?}");
        let others_go_on = index < 5;
        assert_eq!(is_active(&world, &other), others_go_on, "{body}");
        let anew = begin(&world, &parties);
        assert!(is_active(&world, &anew), "{body}: new ones may begin");
    }
}

/// A revocation with two members does not end an impersonation that matches one of them.
#[test]
fn a_revocation_ends_only_impersonations_that_match_all_its_members() {
    let (world, parties, others) = (start(), Parties::new(), Parties::new());
    let live = begin(&world, &parties);
    for body in [
        json!({"userId": parties.user, "actorId": others.actor}),
        json!({"userId": parties.actor}),
        json!({"userId": parties.user, "clientId": "support-portal"}),
        json!({"caller": parties.caller, "resource": "https://api.example.com/payments"}),
    ] {
        revoke(&world, &body);
        assert!(is_active(&world, &live), "{body}");
    }
}

#[test]
fn a_revocation_answers_with_the_time_before_which_it_applies() {
    let (world, parties) = (start(), Parties::new());
    let answer = world.send(&revocation(&json!({"userId": parties.user})));
    assert_eq!((answer.status, answer.header("cache-control")), (201, Some("no-store")));
    let body = answer.json();
    let before = body["revokedBefore"].as_str().unwrap();
    assert!(before.len() == 24 && before.ends_with('Z') && before.starts_with("20"), "{before}");
    assert_eq!(body.as_object().unwrap().len(), 2, "{body}");
    let line = event(&world, "impersonation.revoked");
    assert_eq!(
        (&line["user_id"], &line["requested_by"]),
        (&json!(parties.user), &json!("operator-1"))
    );
}

/// The count shows a misspelt name.
#[test]
fn the_answer_counts_the_live_impersonations_that_a_revocation_has_ended() {
    let (world, parties, others) = (start(), Parties::new(), Parties::new());
    let ended = |body: Value| {
        let answer = world.send(&revocation(&body));
        assert_eq!(answer.status, 201, "{answer:?}");
        let answer = answer.json();
        assert_eq!(answer.get("complete"), None, "{answer}");
        answer["ended"].as_u64().unwrap()
    };
    let (user, actor) = (&parties.user, &parties.actor);
    let live: Vec<_> = (0..4).map(|_| begin(&world, &parties)).collect();
    begin(&world, &others);
    mint(&world, &parties);
    assert_eq!(ended(json!({"userId": format!("{user}-typo")})), 0, "an unknown user");
    assert_eq!(
        ended(json!({"userId": user, "actorId": others.actor})),
        0,
        "one of two members matches"
    );
    assert_eq!(world.send(&end_by_id(live[0].id())).status, 204);
    assert_eq!(ended(json!({"actorId": actor})), 3, "the ended one does not count");
    assert_eq!(ended(json!({"actorId": actor})), 0, "once more");
    assert_eq!(ended(json!({"userId": others.user})), 1, "another user");
    let line = event(&world, "impersonation.revoked");
    assert_eq!(line["ended"], 1);
    world.advance(1);
    begin(&world, &parties);
    assert_eq!(ended(json!({"caller": parties.caller, "resource": ORDERS})), 1, "a new one");
}

#[test]
fn a_count_that_may_be_too_low_says_so() {
    let world = World::start(&configuration().with("/impersonations/capacity", 1));
    let parties = Parties::new();
    for _ in 0..3 {
        begin(&world, &parties);
    }
    let answer = world.send(&revocation(&json!({"userId": parties.user}))).json();
    // etcd has room for all of them.
    let (ended, complete) = if in_etcd() { (3, None) } else { (1, Some(&Value::Bool(false))) };
    assert_eq!((&answer["ended"], answer.get("complete")), (&json!(ended), complete), "{answer}");
}

#[test]
fn a_wrong_revocation_ends_nothing() {
    let (world, parties) = (start(), Parties::new());
    let live = begin(&world, &parties);
    let user = &parties.user;
    let bodies = [
        "".to_owned(),
        "{}".to_owned(),
        "[]".to_owned(),
        "{\"all\": false}".to_owned(),
        "{\"all\": \"true\"}".to_owned(),
        format!("{{\"all\": true, \"userId\": \"{user}\"}}"),
        format!("{{\"userId\": \"{user}\", \"userid\": \"x\"}}"),
        format!("{{\"userId\": \"{user}\", \"userId\": \"{user}\"}}"),
        format!("[\"{user}\"]"),
        "{\"userId\": \"\"}".to_owned(),
        "{\"userId\": 7}".to_owned(),
        "{\"userId\": \"a\\nforged\"}".to_owned(),
        format!("{{\"userId\": \"{}\"}}", "x".repeat(256)),
        format!("{{\"userId\": \"{user}\", \"actorId\": null}}"),
        format!("{{\"userId\": \"{user}\", \"resource\": null}}"),
        format!("{{\"userId\": \"{user}\", \"all\": null}}"),
        "{\"userId\": null, \"all\": true}".to_owned(),
        "{\"all\": null}".to_owned(),
    ];
    for body in bodies {
        let request = Request::post(REVOCATIONS)
            .bearer(&operator_with("impersonations:revoke"))
            .header("content-type", "application/json")
            .body(body.clone());
        let answer = world.send(&request);
        assert_eq!(answer.refusal(), (400, "invalid_request".into()), "{body}: {answer:?}");
    }
    let typed = |content_type: &str, body: String| {
        let request = Request::post(REVOCATIONS).bearer(&operator_with("impersonations:revoke"));
        world.send(&request.header("content-type", content_type).body(body)).refusal()
    };
    let right = format!("{{\"userId\": \"{user}\"}}");
    assert_eq!(typed("text/plain", right.clone()), (415, "invalid_request".into()));
    let long = format!("{right}{}", " ".repeat(65_536));
    assert_eq!(typed("application/json", long), (413, "invalid_request".into()));
    assert!(is_active(&world, &live));
    // The limit counts characters, not bytes.
    revoke(&world, &json!({"userId": "\u{1f600}".repeat(255)}));
}

#[test]
fn only_an_entitled_operator_ends_impersonations() {
    let (world, parties) = (start(), Parties::new());
    let live = begin(&world, &parties);
    let by_user = Request::post(REVOCATIONS).json(&json!({"userId": parties.user}));
    assert_eq!(world.send(&by_user).refusal(), (401, "invalid_token".into()));
    for scope in ["impersonations:read", "impersonate", ""] {
        let bearer = operator_with(scope);
        for request in [
            by_user.clone().bearer(&bearer),
            delete(&format!("{LIST}/{}", live.id())).bearer(&bearer),
        ] {
            let answer = world.send(&request);
            assert_eq!(answer.refusal(), (403, "insufficient_scope".into()), "{scope}");
            let challenge = answer.header("www-authenticate").unwrap();
            assert!(challenge.contains("scope=\"impersonations:revoke\""), "{challenge}");
        }
    }
    assert!(is_active(&world, &live));
    #[rustfmt::skip]
    let methods = [
        (Request::get(REVOCATIONS),                     "POST"),
        (Request::get(&format!("{LIST}/{}", live.id())), "DELETE"),
    ];
    for (request, allowed) in methods {
        let answer = world.send(&request);
        assert_eq!((answer.status, answer.header("allow")), (405, Some(allowed)));
    }
}
