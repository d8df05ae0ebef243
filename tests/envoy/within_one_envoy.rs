//! Limits of a list and of revocations in one Envoy's shared data: their room, and their end with
//! the process.

use crate::impersonations::{Parties, configuration, is_active, list_answer, start};

/// Shared data is lost with the process: revocations are unknown then, so no earlier impersonation
/// is live.
#[test]
fn a_restart_ends_every_impersonation_from_before() {
    let before = start(&configuration());
    let live = Parties::new().begin(&before);
    drop(before);
    let after = start(&configuration());
    assert!(!is_active(&after, &live.access_token));
    let parties = Parties::new();
    let anew = parties.begin(&after);
    assert!(is_active(&after, &anew.access_token));
}

#[test]
fn a_full_list_says_that_it_is_incomplete_and_stops_no_exchange() {
    let gateway = start(&configuration().with("/impersonations/capacity", 2));
    for begun in 1..=4 {
        gateway.assert_serves("into a list that is full");
        let body = list_answer(&gateway, "").json();
        assert_eq!(body["complete"], begun <= 2, "{body}");
        assert_eq!(body["impersonations"].as_array().unwrap().len(), begun.min(2));
    }
    assert_eq!(gateway.envoy.metric("impersonation_unlisted_total"), Some(2));
}
