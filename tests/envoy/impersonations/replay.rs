//! `on_replay`.

use super::{Parties, configuration, gateway, is_active, start};
use testkit::gateway::Gateway;
use testkit::wait_for;

fn alarm(gateway: &Gateway, id: &str) -> String {
    wait_for("the alarm", || {
        let log = gateway.envoy.log();
        log.lines()
            .find(|line| line.contains("subject_token.replayed") && line.contains(id))
            .map(str::to_owned)
    })
}

#[test]
fn a_replay_of_a_spent_token_ends_its_impersonation() {
    let (gateway, parties) = (gateway(), Parties::new());
    let (live, other) = (parties.begin(gateway), parties.begin(gateway));
    assert_eq!(parties.exchange(gateway, &live.subject_token).status, 400);
    assert!(!is_active(gateway, &live.access_token));
    assert!(is_active(gateway, &other.access_token));
    assert!(alarm(gateway, live.id()).contains("\"revoked\":true"));
}

#[test]
fn a_replay_is_only_reported_if_so_configured() {
    let gateway = start(&configuration().with("/subject_tokens/on_replay", "report"));
    let parties = Parties::new();
    let live = parties.begin(&gateway);
    assert_eq!(parties.exchange(&gateway, &live.subject_token).status, 400);
    assert!(is_active(&gateway, &live.access_token));
    assert!(alarm(&gateway, live.id()).contains("\"revoked\":false"));
}

/// A token with a part of the secret ends nothing.
#[test]
fn a_guessed_secret_ends_nothing() {
    let (gateway, parties) = (gateway(), Parties::new());
    let live = parties.begin(gateway);
    let token = &live.subject_token;
    let last = if token.ends_with('A') { "Q" } else { "A" };
    let guess = format!("{}{last}", &token[..token.len() - 1]);
    assert_eq!(parties.exchange(gateway, &guess).status, 400);
    assert!(is_active(gateway, &live.access_token));
}

/// An ended impersonation is not ended again: else anyone with a spent token could fill the table.
#[test]
fn many_replays_of_one_token_end_its_impersonation_once() {
    let gateway = start(&configuration());
    let parties = Parties::new();
    let live = parties.begin(&gateway);
    for _ in 0..5 {
        assert_eq!(parties.exchange(&gateway, &live.subject_token).status, 400);
    }
    assert!(!is_active(&gateway, &live.access_token));
    assert_eq!(gateway.envoy.metric("impersonation_revocations_on_replay_total"), Some(1));
    wait_for("each to tell so", || {
        let log = gateway.envoy.log();
        let alarms = log.lines().filter(|line| line.contains("subject_token.replayed"));
        (alarms.filter(|line| line.contains("\"revoked\":true")).count() == 5).then_some(())
    });
    // A replay of a later token ends its own impersonation.
    let anew = parties.begin(&gateway);
    assert_eq!(parties.exchange(&gateway, &anew.subject_token).status, 400);
    assert!(!is_active(&gateway, &anew.access_token));
}
