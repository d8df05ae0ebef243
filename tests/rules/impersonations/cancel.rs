//! `DELETE /api/subject-tokens/{id}`.

use super::{
    Parties, assert_kept, assert_not_found, begin, delete, event, exchange, is_active, mint, start,
};
use testkit::gateway::IDENTITY_GATEWAY;
use testkit::http::Request;
use testkit::impersonations::backend;

fn path(id: &str) -> String {
    format!("/api/subject-tokens/{id}")
}

#[test]
fn the_minter_can_cancel_a_token_before_it_is_exchanged() {
    let (world, parties) = (start(), Parties::new());
    let (token, id) = mint(&world, &parties);
    let answer = world.send(&parties.cancellation(&id));
    assert_eq!((answer.status, answer.text()), (204, String::new()), "{answer:?}");
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let line = event(&world, "subject_token.cancelled");
    assert_eq!(
        (&line["subject_token_id"], &line["caller"]),
        (&id.into(), &parties.caller[..].into())
    );
    let refused = exchange(&world, &parties, &token);
    assert_eq!(refused.refusal(), (400, "invalid_request".into()), "{refused:?}");
    assert_eq!(refused.json()["error_description"], "the subject token is invalid");
    assert_eq!(event(&world, "token_exchange.refused")["reason"], "revoked");
}

#[test]
fn cancelling_an_exchanged_token_ends_its_impersonation() {
    let (world, parties) = (start(), Parties::new());
    let (cancelled, other) = (begin(&world, &parties), begin(&world, &parties));
    // Cancelling again does no harm.
    for _ in 0..2 {
        let answer = world.send(&parties.cancellation(cancelled.id()));
        assert_eq!(answer.status, 204, "{answer:?}");
        assert!(!is_active(&world, &cancelled));
    }
    assert!(is_active(&world, &other));
}

#[test]
fn another_caller_can_neither_cancel_a_token_nor_learn_that_it_exists() {
    let (world, parties) = (start(), Parties::new());
    let (token, id) = mint(&world, &parties);
    let stranger = backend("another-backend");
    let unknown = world.send(&delete(&path(&"0".repeat(24))).bearer(&stranger));
    assert_not_found(&unknown, "unknown");
    let answer = world.send(&delete(&path(&id)).bearer(&stranger));
    assert_not_found(&answer, "another's");
    assert_eq!(answer.text(), unknown.text());
    for id in ["x", "%2e%2e", &id.to_uppercase(), &format!("{id}0")] {
        assert_not_found(&world.send(&parties.cancellation(id)), id);
    }
    assert_eq!(world.send(&delete(&path(&id))).refusal(), (401, "invalid_token".into()));
    assert_eq!(exchange(&world, &parties, &token).status, 200);
}

#[test]
fn the_path_of_a_subject_token_allows_only_delete() {
    let world = start();
    let answer = world.send(&Request::get(&path("1")));
    assert_eq!((answer.status, answer.header("allow")), (405, Some("DELETE")));
    let answer = world.send(&Request::new("OPTIONS", &path("1")));
    assert!(world.upstream(IDENTITY_GATEWAY).received_for(&answer).is_some(), "{answer:?}");
}

#[test]
fn cancelling_an_unexchanged_token_takes_no_revocation() {
    let (world, parties) = (start(), Parties::new());
    for _ in 0..20 {
        let (token, id) = mint(&world, &parties);
        for _ in 0..2 {
            assert_eq!(world.send(&parties.cancellation(&id)).status, 204);
        }
        let refused = exchange(&world, &parties, &token);
        assert_eq!(refused.refusal(), (400, "invalid_request".into()), "{refused:?}");
    }
    assert_kept(&world, 0, 7);
}
