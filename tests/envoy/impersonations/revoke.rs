//! `DELETE /api/impersonations/{id}` and `POST /api/impersonations/revocations`.

use std::sync::Barrier;
use std::thread;

use serde_json::{Value, json};

use super::{
    LIST, Parties, REVOCATIONS, assert_not_found, configuration, delete, event, gateway, in_etcd,
    is_active, operator, revocation, revoke, start, start_with_workers,
};
use testkit::configuration::ORDERS;
use testkit::gateway::Gateway;
use testkit::http::Request;

fn end(gateway: &Gateway, id: &str, scope: &str) -> testkit::http::Answer {
    gateway.send(&delete(&format!("{LIST}/{id}")).bearer(&operator(scope)))
}

#[test]
fn an_id_ends_its_own_impersonation_and_no_other() {
    let (gateway, parties) = (gateway(), Parties::new());
    let (ended, other) = (parties.begin(gateway), parties.begin(gateway));
    let answer = end(gateway, ended.id(), "impersonations:revoke");
    assert_eq!((answer.status, answer.text()), (204, String::new()), "{answer:?}");
    assert!(!is_active(gateway, &ended.access_token));
    assert!(is_active(gateway, &other.access_token));
    let line = event(gateway, "impersonation.revoked", "subject_token_id", ended.id());
    assert_eq!(
        (&line["user_id"], &line["requested_by"]),
        (&json!(parties.user), &json!("operator-1"))
    );
    assert_not_found(&end(gateway, ended.id(), "impersonations:revoke"), "that has ended");
    assert_not_found(&end(gateway, &"0".repeat(24), "impersonations:revoke"), "unknown");
    assert_not_found(&end(gateway, "x", "impersonations:revoke"), "no id");
}

#[test]
fn an_id_ends_an_unlisted_impersonation_too() {
    let gateway = start(&configuration().with("/impersonations/capacity", 1));
    let parties = Parties::new();
    let [_, unlisted] = [(); 2].map(|()| parties.begin(&gateway));
    assert_eq!(end(&gateway, unlisted.id(), "impersonations:revoke").status, 204);
    assert!(!is_active(&gateway, &unlisted.access_token));
}

/// The gateway is the test's own, because some of these revocations end everybody's impersonations.
#[test]
fn each_kind_of_revocation_ends_live_and_outstanding_matches_but_no_later_ones() {
    let gateway = start(&configuration());
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
        let (live, other) = (parties.begin(&gateway), others.begin(&gateway));
        let (outstanding, _) = parties.mint(&gateway);
        assert!(is_active(&gateway, &live.access_token), "{body}");
        revoke(&gateway, &body);
        assert!(!is_active(&gateway, &live.access_token), "{body}");
        let refused = parties.exchange(&gateway, &outstanding);
        assert_eq!(refused.refusal(), (400, "invalid_request".into()), "{body}: {refused:?}");
        let others_go_on = index < 5;
        assert_eq!(is_active(&gateway, &other.access_token), others_go_on, "{body}");
        let anew = parties.begin(&gateway);
        assert!(is_active(&gateway, &anew.access_token), "{body}: new ones may begin");
    }
}

/// A revocation with two members does not end an impersonation that matches one of them.
#[test]
fn a_revocation_ends_only_impersonations_that_match_all_its_members() {
    let (gateway, parties, others) = (gateway(), Parties::new(), Parties::new());
    let live = parties.begin(gateway);
    for body in [
        json!({"userId": parties.user, "actorId": others.actor}),
        json!({"userId": parties.actor}),
        json!({"userId": parties.user, "clientId": "support-portal"}),
        json!({"caller": parties.caller, "resource": "https://api.example.com/payments"}),
    ] {
        revoke(gateway, &body);
        assert!(is_active(gateway, &live.access_token), "{body}");
    }
}

#[test]
fn a_revocation_answers_with_the_time_before_which_it_applies() {
    let (gateway, parties) = (gateway(), Parties::new());
    let answer = gateway.send(&revocation(&json!({"userId": parties.user})));
    assert_eq!((answer.status, answer.header("cache-control")), (201, Some("no-store")));
    let body = answer.json();
    let before = body["revokedBefore"].as_str().unwrap();
    assert!(before.len() == 24 && before.ends_with('Z') && before.starts_with("20"), "{before}");
    assert_eq!(body.as_object().unwrap().len(), 2, "{body}");
    let line = event(gateway, "impersonation.revoked", "user_id", &parties.user);
    assert_eq!(line["requested_by"], "operator-1");
}

/// The count shows a misspelt name.
#[test]
fn the_answer_counts_the_live_impersonations_that_a_revocation_has_ended() {
    let (gateway, parties, others) = (gateway(), Parties::new(), Parties::new());
    let ended = |body: Value| {
        let answer = gateway.send(&revocation(&body));
        assert_eq!(answer.status, 201, "{answer:?}");
        let answer = answer.json();
        assert_eq!(answer.get("complete"), None, "{answer}");
        answer["ended"].as_u64().unwrap()
    };
    let (user, actor) = (&parties.user, &parties.actor);
    let live: Vec<_> = (0..4).map(|_| parties.begin(gateway)).collect();
    others.begin(gateway);
    parties.mint(gateway);
    assert_eq!(ended(json!({"userId": format!("{user}-typo")})), 0, "an unknown user");
    assert_eq!(
        ended(json!({"userId": user, "actorId": others.actor})),
        0,
        "one of two members matches"
    );
    assert_eq!(end(gateway, live[0].id(), "impersonations:revoke").status, 204);
    assert_eq!(ended(json!({"actorId": actor})), 3, "the ended one does not count");
    assert_eq!(ended(json!({"actorId": actor})), 0, "once more");
    assert_eq!(ended(json!({"userId": others.user})), 1, "another user");
    let line = event(gateway, "impersonation.revoked", "user_id", &others.user);
    assert_eq!(line["ended"], 1);
    std::thread::sleep(std::time::Duration::from_millis(2));
    parties.begin(gateway);
    assert_eq!(ended(json!({"caller": parties.caller, "resource": ORDERS})), 1, "a new one");
}

#[test]
fn a_count_that_may_be_too_low_says_so() {
    let gateway = start(&configuration().with("/impersonations/capacity", 1));
    let parties = Parties::new();
    for _ in 0..3 {
        parties.begin(&gateway);
    }
    let answer = gateway.send(&revocation(&json!({"userId": parties.user}))).json();
    // etcd has room for all of them.
    let (ended, complete) = if in_etcd() { (3, None) } else { (1, Some(&Value::Bool(false))) };
    assert_eq!((&answer["ended"], answer.get("complete")), (&json!(ended), complete), "{answer}");
}

#[test]
fn a_wrong_revocation_ends_nothing() {
    let (gateway, parties) = (gateway(), Parties::new());
    let live = parties.begin(gateway);
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
            .bearer(&operator("impersonations:revoke"))
            .header("content-type", "application/json")
            .body(body.clone());
        let answer = gateway.send(&request);
        assert_eq!(answer.refusal(), (400, "invalid_request".into()), "{body}: {answer:?}");
    }
    let typed = |content_type: &str, body: String| {
        let request = Request::post(REVOCATIONS).bearer(&operator("impersonations:revoke"));
        gateway.send(&request.header("content-type", content_type).body(body)).refusal()
    };
    let right = format!("{{\"userId\": \"{user}\"}}");
    assert_eq!(typed("text/plain", right.clone()), (415, "invalid_request".into()));
    let long = format!("{right}{}", " ".repeat(65_536));
    assert_eq!(typed("application/json", long), (413, "invalid_request".into()));
    assert!(is_active(gateway, &live.access_token));
    // The limit counts characters, not bytes.
    revoke(gateway, &json!({"userId": "\u{1f600}".repeat(255)}));
}

#[test]
fn only_an_entitled_operator_ends_impersonations() {
    let (gateway, parties) = (gateway(), Parties::new());
    let live = parties.begin(gateway);
    let by_user = Request::post(REVOCATIONS).json(&json!({"userId": parties.user}));
    assert_eq!(gateway.send(&by_user).refusal(), (401, "invalid_token".into()));
    for scope in ["impersonations:read", "impersonate", ""] {
        let bearer = operator(scope);
        for request in [
            by_user.clone().bearer(&bearer),
            delete(&format!("{LIST}/{}", live.id())).bearer(&bearer),
        ] {
            let answer = gateway.send(&request);
            assert_eq!(answer.refusal(), (403, "insufficient_scope".into()), "{scope}");
            let challenge = answer.header("www-authenticate").unwrap();
            assert!(challenge.contains("scope=\"impersonations:revoke\""), "{challenge}");
        }
    }
    assert!(is_active(gateway, &live.access_token));
    #[rustfmt::skip]
    let methods = [
        (Request::get(REVOCATIONS),                     "POST"),
        (Request::get(&format!("{LIST}/{}", live.id())), "DELETE"),
    ];
    for (request, allowed) in methods {
        let answer = gateway.send(&request);
        assert_eq!((answer.status, answer.header("allow")), (405, Some(allowed)));
    }
}

#[test]
fn none_of_400_simultaneous_revocations_is_lost() {
    const RIVALS: usize = 16;
    const EACH: usize = 25;
    let gateway = start_with_workers(4, &configuration());
    let all: Vec<Vec<_>> = (0..RIVALS)
        .map(|_| {
            let parties = (0..EACH).map(|_| Parties::new());
            parties.map(|parties| (parties.begin(&gateway), parties)).collect()
        })
        .collect();
    let start = Barrier::new(RIVALS);
    thread::scope(|scope| {
        for chunk in &all {
            let (gateway, start) = (&gateway, &start);
            scope.spawn(move || {
                let mut connection = gateway.connect();
                start.wait();
                for (_, parties) in chunk {
                    let answer = connection.send(&revocation(&json!({"userId": parties.user})));
                    assert_eq!(answer.status, 201, "{answer:?}");
                }
            });
        }
    });
    // Every worker is asked.
    let mut connections = gateway.envoy.connect_to_every_worker();
    for (live, _) in all.iter().flatten() {
        for connection in &mut connections {
            let answer = connection.send(&super::introspection(&live.access_token)).json();
            assert_eq!(answer, json!({"active": false}));
        }
    }
}
