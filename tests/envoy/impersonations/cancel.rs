//! `DELETE /api/subject-tokens/{id}`.

use std::thread;

use serde_json::json;

use super::{
    Live, Parties, assert_not_found, backend, configuration, delete, event, gateway, is_active,
    revoke, start, start_with_workers,
};
use testkit::gateway::Gateway;
use testkit::http::Request;
use testkit::wait_for;

/// The number of impersonations that one caller or one client can end before further ends cover all
/// of its own.
const SHARE: usize = 1024;

fn path(id: &str) -> String {
    format!("/api/subject-tokens/{id}")
}

#[test]
fn the_minter_can_cancel_a_token_before_it_is_exchanged() {
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
fn cancelling_an_exchanged_token_ends_its_impersonation() {
    let (gateway, parties) = (gateway(), Parties::new());
    let (cancelled, other) = (parties.begin(gateway), parties.begin(gateway));
    let answer = gateway.send(&delete(&path(cancelled.id())).bearer(&backend(&parties.caller)));
    assert_eq!(answer.status, 204, "{answer:?}");
    assert!(!is_active(gateway, &cancelled.access_token));
    assert!(is_active(gateway, &other.access_token));
    // Cancelling again does no harm.
    let answer = gateway.send(&delete(&path(cancelled.id())).bearer(&backend(&parties.caller)));
    assert_eq!(answer.status, 204, "{answer:?}");
}

#[test]
fn another_caller_can_neither_cancel_a_token_nor_learn_that_it_exists() {
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
fn the_path_of_a_subject_token_allows_only_delete() {
    let answer = gateway().send(&Request::get(&path("1")));
    assert_eq!((answer.status, answer.header("allow")), (405, Some("DELETE")));
    assert!(gateway().passed_on(&gateway().send(&Request::new("OPTIONS", &path("1")))));
}

fn take_back(gateway: &Gateway, parties: &Parties, id: &str) {
    let answer = gateway.send(&delete(&path(id)).bearer(&backend(&parties.caller)));
    assert_eq!(answer.status, 204, "{answer:?}");
}

/// Returns the number of revocations that are kept. Revokes something first: the metric is updated
/// now and then.
pub(super) fn kept(gateway: &Gateway) -> u64 {
    revoke(gateway, &json!({"userId": "nobody"}));
    wait_for("revocations to be counted", || {
        gateway.envoy.metric("impersonation_revocations_kept").filter(|kept| *kept > 0)
    })
}

#[test]
fn cancelling_an_unexchanged_token_takes_no_revocation() {
    let gateway = start(&configuration());
    let parties = Parties::new();
    for _ in 0..50 {
        let (token, id) = parties.mint(&gateway);
        for _ in 0..2 {
            take_back(&gateway, &parties, &id);
        }
        let refused = parties.exchange(&gateway, &token);
        assert_eq!(refused.refusal(), (400, "invalid_request".into()), "{refused:?}");
    }
    assert_eq!(kept(&gateway), 1, "the operator's");
}

/// A caller with the scope `impersonate` alone, or a client, ends only its own impersonations,
/// however many it cancels.
#[test]
fn a_caller_who_cancels_more_than_its_share_ends_only_its_own() {
    const AT_ONCE: usize = 4;
    let gateway = start_with_workers(4, &configuration());
    let (hostile, others) = (Parties::new(), Parties::new());
    let (goes_on, early) = (others.begin(&gateway), hostile.begin(&gateway));
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                for _ in 0..(SHARE + 200) / AT_ONCE {
                    take_back(&gateway, &hostile, hostile.begin(&gateway).id());
                    take_back(&gateway, &hostile, &hostile.mint(&gateway).1);
                }
            });
        }
    });
    let last = hostile.begin(&gateway);
    take_back(&gateway, &hostile, last.id());
    let active = |live: &Live| is_active(&gateway, &live.access_token);
    assert!(active(&goes_on), "another caller's");
    assert!(!active(&last));
    assert!(!active(&early), "its own, from before");
    let metric = |name: &str| gateway.envoy.metric(name).unwrap();
    assert!(metric("impersonation_revocation_shares_exceeded_total") >= 1);
    assert_eq!(metric("impersonation_revocations_overflowed_total"), 0);
    assert!(gateway.envoy.log().contains("has used up its share"));
    assert!(
        active(&others.begin(&gateway)) && active(&hostile.begin(&gateway)),
        "new impersonations"
    );
}
