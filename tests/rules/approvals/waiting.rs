//! Tokens that wait for a decision, in both stores: who sees them, and what becomes of them when
//! they are revoked.

use serde_json::{Value, json};

use super::{
    Told, approver, ask, decide, exchange, in_both_stores, list, minted, state, user,
    with_approvals,
};
use crate::world::World;
use testkit::Findings;
use testkit::configuration::ORDERS;
use testkit::gateway::BEARER;
use testkit::guarded::filter_configuration;
use testkit::http::Request;
use testkit::impersonations::{backend, list_request, revocation};

/// A world with each store. Operators may end impersonations.
fn with_each_store() -> [(&'static str, World); 2] {
    let operators = filter_configuration().0["impersonations"].clone();
    in_both_stores(&with_approvals(&json!({"required": 0})).with("/impersonations", operators))
}

fn query(world: &World, token: &str, query: &str) -> Told {
    world.told(&Request::get(&format!("/api/approvals{query}")).bearer(token))
}

/// The ids in a list.
fn ids(told: &Told) -> Vec<&str> {
    assert_eq!(told.status, 200, "{told:?}");
    let rows = told.body["approvals"].as_array().unwrap();
    rows.iter().map(|row| row["id"].as_str().unwrap()).collect()
}

#[test]
fn a_person_for_whom_nothing_waits_is_refused_however_many_tokens_wait() {
    const QUERIES: [&str; 5] = ["", "?cursor=x", "?cursor=0.1", "?limit=0", "?unknown=1"];
    for (store, world) in with_each_store() {
        let (mut findings, callers) = (Findings::default(), ["one", "another"].map(backend));
        for number in 0..1205 {
            let body = json!({"userId": format!("u-{}", number % 300), "approvals": 1});
            let caller = &callers[number % callers.len()];
            let request = Request::post("/api/subject-tokens").bearer(caller).json(&body);
            assert_eq!(world.send(&request).status, 201);
        }
        let (asked, nobody) = (user("u-asked"), user("u-nobody"));
        let mut refuses = |who: &str, token: &str| {
            for text in QUERIES {
                let refusal = query(&world, token, text).answer.refusal();
                let case = format!("{store}, {who}, {text:?}");
                findings.expect(case, &refusal, &(403, "insufficient_scope".into()));
            }
        };
        refuses("nobody", &nobody);
        refuses("not yet", &asked);
        let asks = json!({"userId": "u-asked", "consent": true});
        let mut waiting: Vec<_> = (0..3).map(|_| minted(&world, &asks).1).collect();
        refuses("nobody, again", &nobody);

        // The user reads what is theirs, page after page.
        let first = query(&world, &asked, "?limit=2");
        let rest = query(&world, &asked, &format!("?limit=2&cursor={}", first.text("cursor")));
        assert_eq!(rest.body["cursor"], Value::Null, "{store}");
        let mut found = [ids(&first), ids(&rest)].concat();
        waiting.sort();
        found.sort();
        assert_eq!(found, waiting, "{store}");
        // Nothing waits after the decisions.
        for id in &waiting {
            let answer = decide(&world, &asked, id, "approve");
            assert_eq!(answer.status, 200, "{store}: {answer:?}");
        }
        refuses("not any more", &asked);
    }
}

/// The list of live impersonations refuses before it reads the query, too.
#[test]
fn a_cursor_opens_no_list_to_a_person_without_a_right() {
    for (store, world) in with_each_store() {
        for query in ["", "?cursor=x", "?limit=0", "?unknown=1"] {
            let Request { target, .. } = list_request(query);
            let request = Request::get(&target).bearer(&BEARER);
            let answer = world.send(&request);
            assert_eq!(answer.refusal().0, 403, "{store}, {query:?}: {answer:?}");
        }
    }
}

#[test]
fn no_answer_tells_a_stranger_if_an_id_waits() {
    let mut findings = Findings::default();
    for (store, world) in with_each_store() {
        let ids = [
            ("waits for approval", minted(&world, &json!({"approvals": 1})).1),
            ("waits for consent", minted(&world, &json!({"consent": true})).1),
            ("waits for nobody", minted(&world, &json!({})).1),
            ("unknown", "0123456789abcdef01234567".to_owned()),
            ("of a slot that is free", "0123456789abcdef01234567ffff".to_owned()),
            ("not an id", "0123".to_owned()),
        ];
        let (stranger, other) = (user("u-2"), backend("another-backend"));
        let decision = |id: &str, choice: &str| {
            let body = json!({"decision": choice}).to_string();
            ask("POST", &format!("/api/approvals/{id}"), &stranger, &body)
        };
        let of_caller =
            |method: &str, id: &str| ask(method, &format!("/api/subject-tokens/{id}"), &other, "");
        type Asked<'a> = (&'a str, u16, &'a dyn Fn(&str) -> Request);
        let requests: [Asked<'_>; 4] = [
            ("approve", 403, &|id| decision(id, "approve")),
            ("deny", 403, &|id| decision(id, "deny")),
            ("show", 404, &|id| of_caller("GET", id)),
            ("take back", 404, &|id| of_caller("DELETE", id)),
        ];
        for (what, status, request) in requests {
            let told = |id: &str| {
                let answer = world.send(&request(id));
                let mut headers = answer.headers.clone();
                headers.retain(|(name, _)| !["date", "x-request-id"].contains(&&**name));
                (answer.status, headers, answer.text())
            };
            let unknown = told(&ids[3].1);
            assert_eq!(unknown.0, status, "{what}");
            for (case, id) in &ids {
                findings.expect(format!("{store}, {what}, {case}"), &told(id), &unknown);
            }
        }
    }
}

/// A revocation of many impersonations writes to no token, so each endpoint has to ask for it.
#[test]
fn a_token_that_is_revoked_while_it_waits_is_invalid() {
    let pending = (400, "authorization_pending".to_owned());
    let invalid = (400, "invalid_request".to_owned());
    let client = "support-console";
    // A token that is bound to no client can be approved for the others.
    #[rustfmt::skip]
    let cases = [
        (json!({"userId": "u-revoked", "approvals": 1}), json!({"userId": "u-revoked"}),             404),
        (json!({"userId": "u-asked", "consent": true}),  json!({"userId": "u-asked"}),               404),
        (json!({"actorId": "a-1", "approvals": 1}),      json!({"actorId": "a-1"}),                  404),
        (json!({"clientId": client, "approvals": 1}),    json!({"clientId": client}),                404),
        (json!({"approvals": 1}),                        json!({"clientId": client, "userId": "user-42"}), 200),
        (json!({"resource": ORDERS, "approvals": 1}),    json!({"resource": ORDERS}),                404),
        (json!({"approvals": 1}),                        json!({"resource": ORDERS, "userId": "user-42"}), 200),
        (json!({"approvals": 1}),                        json!({"caller": "support-backend"}),       404),
        (json!({"approvals": 1}),                        json!({"all": true}),                       404),
    ];
    let mut findings = Findings::default();
    for (store, world) in with_each_store() {
        for (bounds, revoked, decided) in &cases {
            let case = format!("{store}, {bounds}, {revoked}");
            let refusal = |token: &str| exchange(&world, token).answer.refusal();
            let (token, id) = minted(&world, bounds);
            let (other, _) = minted(&world, &json!({"userId": "u-other", "approvals": 1}));
            findings.expect(format!("{case}, before"), &refusal(&token), &pending);
            world.advance(1);
            assert_eq!(world.told(&revocation(revoked)).status, 201, "{case}");
            // The millisecond of the revocation ends.
            world.advance(1);
            let (_, later) = minted(&world, bounds);
            findings.expect(&case, &refusal(&token), &invalid);
            if *decided == 404 {
                findings.expect(format!("{case}, shown"), &state(&world, &id), &"cancelled".into());
                let listed = list(&world, &approver("dana"));
                findings.expect(&case, &ids(&listed).contains(&&*id), &false);
                findings.expect(&case, &ids(&listed).contains(&&*later), &true);
            }
            let late = decide(&world, &approver("dana"), &id, "approve").status;
            findings.expect(format!("{case}, decided"), &late, decided);
            findings.expect(format!("{case}, afterwards"), &refusal(&token), &invalid);
            if bounds.get("consent").is_none() {
                decide(&world, &approver("dana"), &later, "approve");
                findings.expect(
                    format!("{case}, later"),
                    &state(&world, &later),
                    &"approved".into(),
                );
            }
            if ["userId", "actorId"].iter().any(|name| revoked.get(name).is_some()) {
                findings.expect(format!("{case}, another"), &refusal(&other), &pending);
            }
        }
    }
}

#[test]
fn the_list_says_what_a_person_may_decide() {
    for (store, world) in with_each_store() {
        let rows = [
            ("one", json!({"approvals": 1})),
            ("consent", json!({"consent": true})),
            ("both", json!({"approvals": 1, "consent": true})),
            ("own", json!({"approvals": 1, "actorId": "dana"})),
        ];
        let rows = rows.map(|(name, members)| (name, minted(&world, &members).1));
        let id_of = |wanted: &str| &rows.iter().find(|(name, _)| *name == wanted).unwrap().1;
        let may = |token: &str, name: &str| {
            let listed = list(&world, token).body["approvals"].clone();
            let mut rows = listed.as_array().unwrap().iter();
            let row = rows.find(|row| row["id"] == id_of(name).as_str()).cloned();
            row.map_or_else(String::new, |row| row["mayDecide"].to_string())
        };
        let (dana, user) = (approver("dana"), user("user-42"));
        const BOTH: &str = r#"["approve","deny"]"#;
        for (who, name, expected) in [
            (&dana, "one", BOTH),
            (&dana, "consent", r#"["deny"]"#),
            (&dana, "both", BOTH),
            (&dana, "own", r#"["deny"]"#),
            (&user, "one", "[]"),
            (&user, "consent", BOTH),
            (&user, "both", BOTH),
        ] {
            assert_eq!(may(who, name), expected, "{store}, {name}");
        }
        // What is not offered is refused, in true words.
        let answer = decide(&world, &dana, id_of("consent"), "approve");
        assert_eq!((answer.status, answer.text("error")), (409, "already_decided"));
        let told = "no approval is missing: only the consent of the user is";
        assert_eq!(answer.text("error_description"), told);
        assert_eq!(decide(&world, &dana, id_of("both"), "approve").status, 200);
        assert_eq!(may(&dana, "both"), r#"["deny"]"#, "nobody approves twice");
        assert_eq!(may(&approver("eli"), "both"), r#"["deny"]"#, "only the consent is missing");
    }
}
