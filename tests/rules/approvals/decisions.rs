//! Decisions: how many people must approve, who may, and what becomes of the token.

use serde_json::{Value, json};

use super::{
    World, approver, approving, ask, assert_refused, assert_waits, decide, exchange,
    in_both_stores, list, mint, mint_by, minted, person_claims, state, told_exchange, user, with,
    with_approvals,
};
use testkit::configuration::{Configuration, PROVIDER_KEY, jwks};
use testkit::gateway::{BEARER, actor_claims, backend_claims, exchange_form, with_actor};

#[test]
fn a_token_is_exchanged_after_its_last_approval_and_once() {
    let world = approving(2);
    let answer = mint(&world, &json!({}));
    assert_eq!((answer.status, &answer.event["event"]), (201, &json!("approval.requested")));
    assert_eq!(
        (&answer.body["expiresIn"], &answer.event["approvals_needed"]),
        (&json!(3600), &json!(2))
    );
    let (token, id) = minted(&world, &json!({}));
    assert_waits(&world, &token);
    let first = decide(&world, &approver("dana"), &id, "approve");
    assert_eq!((first.status, first.text("state")), (200, "pending"), "{first:?}");
    assert_eq!(
        (&first.event["event"], &first.event["requested_by"]),
        (&json!("approval.given"), &json!("dana"))
    );
    let again = decide(&world, &approver("dana"), &id, "approve");
    assert_eq!((again.status, again.body["needed"].as_u64()), (200, Some(1)), "{again:?}");
    assert_waits(&world, &token);
    let second = decide(&world, &approver("eli"), &id, "approve");
    assert_eq!((second.text("state"), second.body["needed"].as_u64()), ("approved", Some(0)));
    assert_eq!(state(&world, &id), "approved");
    let late = decide(&world, &approver("fay"), &id, "deny");
    assert_refused(&late, "late", 409, "already_decided", "already_decided");

    let granted = exchange(&world, &token);
    assert_eq!(granted.status, 200, "{granted:?}");
    assert_eq!(granted.event["approved_by"], json!(["dana", "eli"]));
    assert_eq!(exchange(&world, &token).reason(), "subject_token_spent");
    assert_eq!(state(&world, &id), "exchanged");
    assert_eq!(decide(&world, &approver("fay"), &id, "approve").status, 409);
}

#[test]
fn one_denial_ends_a_token() {
    let world = approving(2);
    let (token, id) = minted(&world, &json!({}));
    assert_eq!(decide(&world, &approver("dana"), &id, "approve").status, 200);
    let path = format!("/api/approvals/{id}");
    let body = json!({"decision": "deny", "reason": "<b>no\u{2028}"}).to_string();
    let denied = world.told(&ask("POST", &path, &approver("eli"), &body));
    assert_eq!((denied.status, denied.text("state")), (200, "denied"), "{denied:?}");
    assert_eq!(denied.event["event"], "approval.denied");
    assert_eq!(denied.event["decision_reason"], "<b>no\u{2028}");
    assert_eq!(denied.body["denied"]["by"], "eli");
    let refused = exchange(&world, &token);
    assert_refused(&refused, "denied", 400, "access_denied", "denied");
    assert_eq!(decide(&world, &approver("fay"), &id, "approve").status, 409);
    assert_eq!(decide(&world, &approver("eli"), &id, "deny").status, 200, "a repetition");
    assert_eq!(exchange(&world, &token).reason(), "denied");
    assert_eq!(list(&world, &approver("fay")).body["approvals"], json!([]));
}

#[test]
fn nobody_approves_for_themselves() {
    let world = approving(1);
    let (token, id) = minted(&world, &json!({"actorId": "agent-7"}));
    for name in ["support-backend", "agent-7", "user-42"] {
        let answer = decide(&world, &approver(name), &id, "approve");
        assert_refused(&answer, name, 403, "access_denied", "own_request");
    }
    // The caller could use such a token without its user.
    let theirs =
        with(person_claims("dana", "impersonations:approve"), "client_id", "support-backend");
    let answer = decide(&world, &PROVIDER_KEY.sign(&theirs), &id, "approve");
    assert_refused(&answer, "of the caller's client", 403, "access_denied", "own_request");
    let mut machine = person_claims("dana", "impersonations:approve");
    machine.as_object_mut().unwrap().remove("sub");
    let answer = decide(&world, &PROVIDER_KEY.sign(&machine), &id, "approve");
    assert_refused(&answer, "no person", 403, "access_denied", "nobody_named");
    assert_waits(&world, &token);

    // A person who minted through a client cannot approve under their own name.
    let by_person = PROVIDER_KEY.sign(&with(backend_claims(), "sub", "dana"));
    let form = mint_by(&by_person);
    let answer = world.told(&form);
    let id = answer.header("location").unwrap().rsplit_once('/').unwrap().1;
    let refused = decide(&world, &approver("dana"), id, "approve");
    assert_refused(&refused, "the minter", 403, "access_denied", "own_request");

    // Without a bound actor, an approver cannot act later.
    let (token, id) = minted(&world, &json!({}));
    assert_eq!(decide(&world, &approver("agent-7"), &id, "approve").status, 200);
    let act = |name: &str| PROVIDER_KEY.sign(&actor_claims(name));
    let form = exchange_form(&token);
    let refused = told_exchange(&world, &with_actor(form.clone(), &act("agent-7")));
    assert_refused(&refused, "the approver acts", 400, "invalid_request", "actor_approved");
    assert_eq!(told_exchange(&world, &with_actor(form, &act("agent-8"))).status, 200);
}

/// A name has its issuer's prefix, so the filter cannot see that two names are one person's.
#[test]
fn a_person_counts_once_under_each_name() {
    let partner = json!({
        "issuer": "https://partner.example", "name_prefix": "partner:", "audiences": ["people"],
        "local_jwks": jwks(&[&PROVIDER_KEY]),
    });
    let configuration = with_approvals(&json!({"required": 2}))
        .with("/approvals/authentication/jwt/0/name_prefix", "")
        .with("/approvals/authentication/jwt/-", partner);
    let world = World::start(&configuration);
    let of_the_partner = |name: &str| {
        let claims = person_claims(name, "impersonations:approve");
        PROVIDER_KEY.sign(&with(claims, "iss", "https://partner.example"))
    };
    let (token, id) = minted(&world, &json!({}));
    for _ in 0..2 {
        let answer = decide(&world, &of_the_partner("dana"), &id, "approve");
        assert_eq!((answer.status, answer.text("state")), (200, "pending"), "{answer:?}");
    }
    // Another person's name at the partner is nobody's here.
    let answer = decide(&world, &of_the_partner("user-42"), &id, "deny");
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.event["requested_by"], "partner:user-42");
    assert_eq!(exchange(&world, &token).reason(), "denied");

    let (token, id) = minted(&world, &json!({}));
    decide(&world, &of_the_partner("dana"), &id, "approve");
    let answer = decide(&world, &approver("dana"), &id, "approve");
    assert_eq!(answer.text("state"), "approved");
    let names: Vec<_> = (0..2).map(|n| answer.body["approvals"][n]["by"].clone()).collect();
    assert_eq!(names, ["partner:dana", "dana"]);
    assert_eq!(exchange(&world, &token).status, 200);
}

#[test]
fn a_user_consents_to_what_concerns_them_and_needs_no_scope() {
    let world = approving(0);
    let (token, id) = minted(&world, &json!({"consent": true}));
    let (other, other_id) = minted(&world, &json!({"consent": true, "userId": "user-43"}));
    assert_waits(&world, &token);
    let listed = list(&world, &user("user-42"));
    assert_eq!(listed.body["approvals"].as_array().unwrap().len(), 1, "{listed:?}");
    assert_eq!(listed.body["approvals"][0]["id"], id);
    assert_eq!(listed.body["approvals"][0]["consent"], "needed");
    assert_eq!(list(&world, &approver("dana")).body["approvals"].as_array().unwrap().len(), 2);
    for answer in
        [list(&world, &user("mallory")), decide(&world, &user("user-42"), &other_id, "approve")]
    {
        assert_refused(&answer, "a stranger", 403, "insufficient_scope", "insufficient_scope");
    }
    let no_approval = decide(&world, &approver("dana"), &id, "approve");
    assert_eq!(no_approval.status, 409, "an approval is no consent: {no_approval:?}");
    let consented = decide(&world, &user("user-42"), &id, "approve");
    assert_eq!((consented.text("state"), consented.text("consent")), ("approved", "given"));
    assert_eq!(exchange(&world, &token).status, 200);
    assert_eq!(decide(&world, &user("user-43"), &other_id, "deny").text("state"), "denied");
    assert_eq!(exchange(&world, &other).text("error"), "access_denied");
}

#[test]
fn the_operator_the_mint_and_nobody_else_say_how_many_must_approve() {
    let protect = json!({"required": 0, "protected_users": ["user-4*"]});
    let world = World::start(&with_approvals(&protect));
    #[rustfmt::skip]
    let cases = [
        (json!({"userId": "other"}),                   None),
        (json!({"userId": "other", "approvals": 0}),   None),
        (json!({"userId": "other", "approvals": 3}),   Some(3)),
        (json!({"approvals": 0}),                      Some(1)),
        (json!({"approvals": 2}),                      Some(2)),
    ];
    for (bounds, needed) in cases {
        let (token, id) = minted(&world, &bounds);
        let answer = exchange(&world, &token);
        assert_eq!(answer.status == 200, needed.is_none(), "{bounds}: {answer:?}");
        let Some(needed) = needed else { continue };
        let token = PROVIDER_KEY.sign(&backend_claims());
        let shown = world.told(&ask("GET", &format!("/api/subject-tokens/{id}"), &token, ""));
        assert_eq!(shown.body["needed"], needed, "{bounds}");
    }
    #[rustfmt::skip]
    let cases = [
        (json!({"approvals": 6}),          "bounds",      "approvals must be a number of people, from 0 to 5"),
        (json!({"approvals": "1"}),        "bounds",      "approvals must be a number of people, from 0 to 5"),
        (json!({"consent": 1}),            "bounds",      "consent must be true or false"),
        (json!({"breakGlass": "yes"}),     "break_glass", "breakGlass must be true or false"),
        (json!({"expiresIn": 3601}),       "bounds",      "expiresIn must be at most 3600 seconds"),
    ];
    for (bounds, reason, told) in cases {
        let answer = mint(&world, &bounds);
        assert_refused(&answer, &bounds.to_string(), 400, "invalid_request", reason);
        assert_eq!(answer.text("error_description"), told);
    }
    let without = World::start(&Configuration::default());
    for bounds in [json!({"approvals": 0}), json!({"consent": true}), json!({"breakGlass": true})] {
        let answer = mint(&without, &bounds);
        assert_eq!((answer.status, answer.text("error")), (400, "invalid_request"), "{bounds}");
    }
}

#[test]
fn break_glass_needs_its_context_and_raises_the_alarm() {
    let world = approving(2);
    let answer = mint(&world, &json!({"breakGlass": true}));
    assert_refused(&answer, "no incident", 403, "access_denied", "required_context");
    let glass = json!({"breakGlass": true, "context": {"incident": "I-7"}});
    let answer = mint(&world, &glass);
    assert_eq!((answer.status, &answer.event["event"]), (201, &json!("break_glass.used")));
    assert_eq!(answer.body["expiresIn"], 600);
    let alarm = world.alarms().pop().unwrap();
    assert_eq!(
        (&alarm["alarm"], &alarm["user_id"]),
        (&json!("break_glass.used"), &json!("user-42"))
    );
    let granted = exchange(&world, answer.body["subjectToken"].as_str().unwrap());
    assert_eq!(granted.status, 200, "{granted:?}");

    let strict = with_approvals(&json!({"required": 1})).without("/approvals/break_glass");
    let answer = mint(&World::start(&strict), &glass);
    assert_refused(&answer, "not allowed", 403, "access_denied", "break_glass_not_allowed");
}

#[test]
fn what_was_taken_back_or_has_expired_cannot_be_decided() {
    let world = approving(1);
    let (token, id) = minted(&world, &json!({}));
    let cancelled = world.told(&ask("DELETE", &format!("/api/subject-tokens/{id}"), &BEARER, ""));
    assert_eq!(cancelled.status, 204);
    assert_eq!(state(&world, &id), "cancelled");
    assert_eq!(decide(&world, &approver("dana"), &id, "approve").status, 404);
    assert_eq!(exchange(&world, &token).reason(), "revoked");

    let (token, id) = minted(&world, &json!({"expiresIn": 900}));
    world.advance(900);
    assert_eq!(state(&world, &id), "expired");
    assert_eq!(decide(&world, &approver("dana"), &id, "approve").status, 404);
    assert_eq!(exchange(&world, &token).reason(), "subject_token_expired");
    for id in ["0".repeat(25), "x".into()] {
        let answer = decide(&world, &approver("dana"), &id, "approve");
        assert_refused(&answer, &id, 404, "not_found", "approval_unknown");
    }
    let stranger = PROVIDER_KEY.sign(&with(backend_claims(), "client_id", "another"));
    let answer = world.told(&ask("GET", &format!("/api/subject-tokens/{id}"), &stranger, ""));
    assert_refused(&answer, "another caller", 404, "not_found", "subject_token_unknown");
}

#[test]
fn the_list_has_pages_and_shows_what_callers_wrote_as_text() {
    let world = approving(1);
    let odd = format!("<script>alert(1)</script>\u{202e}\u{7}{}", "x".repeat(3900));
    let (_, first) = minted(&world, &json!({"context": {"odd": odd}}));
    let others: Vec<_> = (0..4).map(|_| minted(&world, &json!({})).1).collect();
    let (mut ids, mut cursor) = (Vec::new(), Value::Null);
    loop {
        let query = cursor.as_str().map_or(String::new(), |cursor| format!("&cursor={cursor}"));
        let path = format!("/api/approvals?limit=2{query}");
        let page = world.told(&ask("GET", &path, &approver("dana"), ""));
        assert_eq!((page.status, &page.body["complete"]), (200, &json!(true)), "{page:?}");
        for row in page.body["approvals"].as_array().unwrap() {
            assert_eq!(
                (&row["state"], &row["caller"]),
                (&json!("pending"), &json!("support-backend"))
            );
            if row["id"] == first.as_str() {
                assert_eq!(row["context"]["odd"], odd);
            }
            ids.push(row["id"].as_str().unwrap().to_owned());
        }
        cursor = page.body["cursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    let mut expected: Vec<_> = others.into_iter().chain([first]).collect();
    ids.sort();
    expected.sort();
    assert_eq!(ids, expected);
    for query in ["limit=0", "limit=201", "limit=x", "user=1"] {
        let path = format!("/api/approvals?{query}");
        assert_eq!(world.told(&ask("GET", &path, &approver("dana"), "")).status, 400, "{query}");
    }
}

#[test]
fn a_malformed_decision_decides_nothing() {
    let world = approving(1);
    let (token, id) = minted(&world, &json!({}));
    let path = format!("/api/approvals/{id}");
    let long = json!({"decision": "deny", "reason": "x".repeat(1025)}).to_string();
    for body in [
        "{}",
        "[]",
        "",
        r#"{"decision":true}"#,
        r#"{"decision":"Approve"}"#,
        r#"{"decision":"approve","x":1}"#,
        r#"{"decision":"approve","decision":"deny"}"#,
        r#"{"decision":"approve","reason":null}"#,
        &long,
    ] {
        let answer = world.told(&ask("POST", &path, &approver("dana"), body));
        assert_eq!((answer.status, answer.text("error")), (400, "invalid_request"), "{body}");
    }
    assert_waits(&world, &token);
    let answer = world.told(&ask("POST", &path, "opaque", r#"{"decision":"approve"}"#));
    assert_eq!(answer.status, 401);
}

#[test]
fn a_caller_cannot_fill_the_store_with_tokens_that_wait() {
    let world = approving(1);
    let minted: Vec<_> = (0..10).map(|_| minted(&world, &json!({}))).collect();
    let answer = mint(&world, &json!({}));
    assert_refused(&answer, "too many", 429, "temporarily_unavailable", "too_many_waiting");
    let other = PROVIDER_KEY.sign(&with(backend_claims(), "client_id", "another"));
    let form = mint_by(&other);
    assert_eq!(world.told(&form).status, 201, "the others have space of their own");
    let (token, id) = &minted[0];
    assert_eq!(decide(&world, &approver("dana"), id, "approve").status, 200);
    assert_eq!(exchange(&world, token).status, 200);
    assert_eq!(mint(&world, &json!({})).status, 201);
}

#[test]
fn a_caller_holds_a_thousand_tokens_that_wait_and_the_others_have_as_many() {
    for (store, world) in in_both_stores(&with_approvals(&json!({"required": 1}))) {
        let (token, id) = minted(&world, &json!({}));
        for _ in 1..1000 {
            minted(&world, &json!({}));
        }
        let answer = mint(&world, &json!({}));
        assert_refused(&answer, store, 429, "temporarily_unavailable", "too_many_waiting");
        let another = PROVIDER_KEY.sign(&with(backend_claims(), "client_id", "another"));
        let form = mint_by(&another);
        assert_eq!(world.told(&form).status, 201, "{store}: another caller");
        // An exchange makes space again.
        assert_eq!(decide(&world, &approver("dana"), &id, "approve").status, 200, "{store}");
        assert_eq!(exchange(&world, &token).status, 200, "{store}");
        assert_eq!(mint(&world, &json!({})).status, 201, "{store}: after an exchange");
        let answer = mint(&world, &json!({}));
        assert_refused(&answer, store, 429, "temporarily_unavailable", "too_many_waiting");
    }
}
