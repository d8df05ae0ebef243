//! RFC 7009 and RFC 7662 at the gateway's own paths, for tokens that the filter has issued.

use serde_json::json;

use super::{
    Live, Parties, World, assert_kept, begin, begin_by_portal, configuration, event, exchange,
    is_active, mint, start,
};
use testkit::configuration::{CLIENT_SECRET, Configuration, PROVIDER_KEY};
use testkit::gateway::{IDENTITY_GATEWAY, backend_claims};
use testkit::http::{Answer, Form, Request};
use testkit::impersonations::{
    INTROSPECTION, REVOCATION, end_by_id, form_request, introspection, unique,
};
use testkit::keys::Key;

/// Returns true if the identity gateway saw the request of this answer.
fn passed_on(world: &World, answer: &Answer) -> bool {
    world.upstream(IDENTITY_GATEWAY).received_for(answer).is_some()
}

/// Asserts that the last line of the audit log is this event about this impersonation.
fn assert_event(world: &World, name: &str, live: &Live) {
    assert_eq!(event(world, name)["subject_token_id"], live.id());
}

fn form(token: &str) -> Form {
    Form::default().set("token", token)
}

/// A revocation by the public client that exchanges in these tests.
fn by_console(token: &str) -> Request {
    form_request(REVOCATION, &form(token).set("client_id", "support-console"))
}

#[test]
fn a_client_can_revoke_a_token_that_it_exchanged() {
    let (world, parties) = (start(), Parties::new());
    for by_subject_token in [false, true] {
        let live = begin(&world, &parties);
        let token = if by_subject_token { &live.subject_token } else { &live.access_token };
        let answer = world.send(&by_console(token));
        assert_eq!((answer.status, answer.text()), (200, String::new()), "{answer:?}");
        assert!(!passed_on(&world, &answer));
        assert_event(&world, "impersonation.revoked", &live);
        assert_eq!(world.last_event()["client_id"], "support-console");
        assert!(!is_active(&world, &live));
    }
    let (outstanding, _) = mint(&world, &parties);
    assert_eq!(world.send(&by_console(&outstanding)).status, 200);
    assert_eq!(exchange(&world, &parties, &outstanding).status, 400);
}

/// A holder of old tokens from a log must not fill the table.
#[test]
fn a_token_that_has_expired_is_not_revoked() {
    let world = World::start(&configuration().with("/access_tokens/lifetime", "600s"));
    let live: Vec<_> = (0..10).map(|_| begin(&world, &Parties::new())).collect();
    world.advance(600);
    for live in &live {
        assert!(!is_active(&world, live));
        let answer = world.send(&by_console(&live.access_token));
        assert_eq!((answer.status, answer.text()), (200, String::new()), "{answer:?}");
        assert_event(&world, "impersonation.revocation_ignored", live);
    }
    assert_kept(&world, 0, 3);
}

/// A token that was taken back while the clock was ahead stays taken back when the clock is right
/// again.
#[test]
fn a_subject_token_that_seems_to_have_expired_is_taken_back_all_the_same() {
    let (world, parties) = (start(), Parties::new());
    let (token, _) = mint(&world, &parties);
    world.advance(5400);
    assert_eq!(world.send(&by_console(&token)).status, 200);
    world.advance(-5400);
    let refused = exchange(&world, &parties, &token);
    assert_eq!(refused.refusal(), (400, "invalid_request".into()));
    assert_eq!(world.last_event()["reason"], "revoked");
}

/// Each end that comes first, and then every other end, many times.
#[test]
fn an_impersonation_that_has_ended_is_not_ended_again() {
    type End = fn(&World, &Parties, &Live) -> u16;
    let ends: [End; 4] = [
        |world, _, live| world.send(&by_console(&live.access_token)).status,
        |world, _, live| world.send(&by_console(&live.subject_token)).status,
        |world, parties, live| world.send(&parties.cancellation(live.id())).status,
        |world, parties, live| exchange(world, parties, &live.subject_token).status,
    ];
    let world = start();
    for (first, end) in ends.into_iter().enumerate() {
        let parties = Parties::new();
        let live = begin(&world, &parties);
        end(&world, &parties, &live);
        assert!(!is_active(&world, &live), "{first}");
        for time in 0..40 {
            let status = ends[time % ends.len()](&world, &parties, &live);
            assert!([200, 204, 400].contains(&status), "{first}: {status}");
        }
    }
    assert_eq!(world.counted("impersonation_revocations_ignored_total"), 80, "half of them");
    assert_kept(&world, ends.len(), 11);
}

#[test]
fn a_client_cannot_revoke_anothers_token_and_gets_the_same_answer() {
    let (world, parties) = (start(), Parties::new());
    let live = begin_by_portal(&world, &parties);
    for token in ["sub_x", &live.access_token, &live.subject_token] {
        let answer = world.send(&by_console(token));
        assert_eq!((answer.status, answer.text()), (200, String::new()), "{answer:?}");
    }
    assert_event(&world, "impersonation.revocation_ignored", &live);
    assert!(is_active(&world, &live));
    let right =
        form_request(REVOCATION, &form(&live.access_token)).basic("support-portal", &CLIENT_SECRET);
    assert_eq!(world.send(&right).status, 200);
    assert!(!is_active(&world, &live));
}

#[test]
fn an_unauthenticated_caller_revokes_and_learns_nothing() {
    let (world, parties) = (start(), Parties::new());
    let live = begin_by_portal(&world, &parties);
    for path in [REVOCATION, INTROSPECTION] {
        let form = form(&live.access_token);
        for request in [
            form_request(path, &form).basic("support-portal", "wrong"),
            form_request(path, &form).basic("nobody", &CLIENT_SECRET),
            form_request(path, &form.clone().set("client_id", "support-portal")),
        ] {
            let answer = world.send(&request);
            assert_eq!(answer.refusal(), (401, "invalid_client".into()), "{path}");
            assert!(answer.header("www-authenticate").unwrap().starts_with("Basic "));
        }
        let answer = world.send(&form_request(path, &form.add("token", "other")));
        assert_eq!(answer.refusal(), (400, "invalid_request".into()), "twice");
        let long = form_request(path, &Form::default().set("pad", &"x".repeat(70_000)));
        assert_eq!(world.send(&long).refusal(), (413, "invalid_request".into()));
    }
    let public = form(&live.access_token).set("client_id", "support-console");
    let answer = world.send(&form_request(INTROSPECTION, &public));
    assert_eq!(answer.refusal(), (401, "invalid_client".into()), "a public client");
    assert!(is_active(&world, &live));
}

#[test]
fn introspection_repeats_the_claims_until_the_impersonation_has_ended() {
    let (world, parties) = (start(), Parties::new());
    let live = begin(&world, &parties);
    let answer = world.send(&introspection(&live.access_token));
    assert_eq!((answer.status, answer.header("cache-control")), (200, Some("no-store")));
    let mut expected = live.claims.clone();
    expected["active"] = json!(true);
    assert_eq!(answer.json(), expected);
    assert_eq!(answer.json()["act"], json!({"sub": parties.actor}));
    assert!(!passed_on(&world, &answer));
    assert_event(&world, "token.introspected", &live);
    assert_eq!(world.send(&end_by_id(live.id())).status, 204);
    assert_eq!(world.send(&introspection(&live.access_token)).json(), json!({"active": false}));
}

/// An API may get another type of token while tokens of the former type are live.
#[test]
fn a_token_of_either_type_is_introspected_and_revoked() {
    let of_type = |name: &str| configuration().with("/access_tokens/typ", name);
    let world = World::start(&of_type("JWT"));
    for name in ["at+jwt", "JWT"] {
        let live = [begin(&world, &Parties::new()), begin(&world, &Parties::new())];
        world.update(&of_type(name)).unwrap();
        for live in live {
            assert!(is_active(&world, &live), "{name}");
            assert_eq!(world.send(&by_console(&live.access_token)).status, 200, "{name}");
            assert!(!is_active(&world, &live), "{name}");
        }
    }
}

#[test]
fn a_subject_token_is_never_active_and_never_sent_to_the_gateway() {
    let (world, parties) = (start(), Parties::new());
    let (token, _) = mint(&world, &parties);
    for path in [REVOCATION, INTROSPECTION] {
        for name in ["token", "%74oken"] {
            for body in [
                format!("{name}={token}"),
                format!("{name}=x&{name}={token}"),
                format!("\u{feff}{name}={token}"),
                format!("{name}=%73ub%5F{}%", &token[4..]),
            ] {
                let request = Request::post(path)
                    .header("content-type", "application/x-www-form-urlencoded")
                    .body(body.clone());
                let answer = world.send(&request);
                assert!(!passed_on(&world, &answer), "{body}");
                assert!((400..500).contains(&answer.status), "{body}: {answer:?}");
            }
        }
    }
    assert_eq!(world.send(&introspection(&token)).json(), json!({"active": false}));
    assert_eq!(exchange(&world, &parties, &token).status, 200);
}

#[test]
fn a_foreign_token_passes_to_the_gateway_byte_for_byte() {
    let world = start();
    let forged = Key::generate(jsonwebtoken::Algorithm::EdDSA, "gateway-1").sign(&backend_claims());
    let provider = PROVIDER_KEY.sign(&backend_claims());
    for path in [REVOCATION, INTROSPECTION] {
        for body in [
            format!("token={provider}&token_type_hint=access_token"),
            format!("token={forged}"),
            format!("token=opaque-{}&client_id=x", unique("t")),
            "token=%zz&&=%".to_owned(),
            "no=token".to_owned(),
            String::new(),
        ] {
            let request = Request::post(path)
                .header("content-type", "application/x-www-form-urlencoded")
                .basic("somebody", "else")
                .body(body.clone());
            let answer = world.send(&request);
            let received = world.upstream(IDENTITY_GATEWAY).received_for(&answer).expect(&body);
            assert_eq!((received.target, received.body), (world.sent_to(path), body.into_bytes()));
        }
        let answer = world.send(&Request::post(path).json(&json!({"token": "sub_x"})));
        assert!(passed_on(&world, &answer), "no form");
        assert!(passed_on(&world, &world.send(&Request::get(path))), "no POST");
    }
}

#[test]
fn a_token_of_another_service_is_foreign() {
    let other =
        World::start(&Configuration::default().with("/issuer", "https://other.example.com"));
    let live = begin(&start(), &Parties::new());
    let answer = other.send(&introspection(&live.access_token));
    assert!(passed_on(&other, &answer), "{answer:?}");
}
