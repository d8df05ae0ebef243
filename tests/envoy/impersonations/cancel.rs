//! `DELETE /api/subject-tokens/{id}`.

use super::{Parties, assert_not_found, backend, delete, event, gateway, is_active};
use testkit::http::Request;

fn path(id: &str) -> String {
    format!("/api/subject-tokens/{id}")
}

#[test]
fn who_minted_a_token_takes_it_back_before_it_is_exchanged() {
    let (gateway, parties) = (gateway(), Parties::new());
    let (token, id) = parties.mint(gateway);
    let answer = gateway.send(&delete(&path(&id)).bearer(&backend(&parties.caller)));
    assert_eq!((answer.status, answer.text()), (204, String::new()), "{answer:?}");
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let refused = parties.exchange(gateway, &token);
    assert_eq!(refused.refusal(), (400, "invalid_request".into()), "{refused:?}");
    assert_eq!(refused.json()["error_description"], "the subject token is invalid");
    let line = event(gateway, "subject_token.cancelled", "subject_token_id", &id);
    assert_eq!(line["caller"], parties.caller);
    assert_eq!(
        event(gateway, "token_exchange.refused", "subject_token_id", &id)["reason"],
        "revoked"
    );
}

#[test]
fn what_a_cancelled_token_was_exchanged_for_has_ended() {
    let (gateway, parties) = (gateway(), Parties::new());
    let (cancelled, other) = (parties.begin(gateway), parties.begin(gateway));
    let answer = gateway.send(&delete(&path(cancelled.id())).bearer(&backend(&parties.caller)));
    assert_eq!(answer.status, 204, "{answer:?}");
    assert!(!is_active(gateway, &cancelled.access_token));
    assert!(is_active(gateway, &other.access_token));
    // Once more is no harm.
    let answer = gateway.send(&delete(&path(cancelled.id())).bearer(&backend(&parties.caller)));
    assert_eq!(answer.status, 204, "{answer:?}");
}

#[test]
fn nobody_else_takes_a_token_back_or_learns_that_there_is_one() {
    let (gateway, parties) = (gateway(), Parties::new());
    let (token, id) = parties.mint(gateway);
    let stranger = backend("another-backend");
    let unknown = gateway.send(&delete(&path(&"0".repeat(24))).bearer(&stranger));
    assert_not_found(&unknown, "unknown");
    let answer = gateway.send(&delete(&path(&id)).bearer(&stranger));
    assert_not_found(&answer, "another's");
    assert_eq!(answer.text(), unknown.text());
    for id in ["x", "%2e%2e", &id.to_uppercase(), &format!("{id}0")] {
        let answer = gateway.send(&delete(&path(id)).bearer(&backend(&parties.caller)));
        assert_not_found(&answer, id);
    }
    assert_eq!(gateway.send(&delete(&path(&id))).refusal(), (401, "invalid_token".into()));
    assert_eq!(parties.exchange(gateway, &token).status, 200);
}

#[test]
fn another_method_is_told_which_one_is_right() {
    let answer = gateway().send(&Request::get(&path("1")));
    assert_eq!((answer.status, answer.header("allow")), (405, Some("DELETE")));
    assert!(gateway().passed_on(&gateway().send(&Request::new("OPTIONS", &path("1")))));
}
