//! `on_replay`.

use super::{Live, Parties, World, begin, configuration, exchange, is_active, start};

fn replay(world: &World, parties: &Parties, live: &Live) {
    assert_eq!(exchange(world, parties, &live.subject_token).status, 400);
}

/// Returns what the alarms about a token say: if each of them has ended its impersonation.
fn alarms(world: &World, live: &Live) -> Vec<bool> {
    let alarms = world.alarms();
    let of_it = alarms.iter().filter(|alarm| alarm["subject_token_id"] == live.id());
    of_it
        .map(|alarm| {
            assert_eq!(alarm["alarm"], "subject_token.replayed");
            alarm["revoked"].as_bool().unwrap()
        })
        .collect()
}

#[test]
fn a_replay_of_a_spent_token_ends_its_impersonation() {
    let (world, parties) = (start(), Parties::new());
    let (live, other) = (begin(&world, &parties), begin(&world, &parties));
    replay(&world, &parties, &live);
    assert!(!is_active(&world, &live));
    assert!(is_active(&world, &other));
    assert_eq!(alarms(&world, &live), [true]);
}

#[test]
fn a_replay_is_only_reported_if_so_configured() {
    let world = World::start(&configuration().with("/subject_tokens/on_replay", "report"));
    let parties = Parties::new();
    let live = begin(&world, &parties);
    replay(&world, &parties, &live);
    assert!(is_active(&world, &live));
    assert_eq!(alarms(&world, &live), [false]);
}

/// A token with a part of the secret ends nothing.
#[test]
fn a_guessed_secret_ends_nothing() {
    let (world, parties) = (start(), Parties::new());
    let live = begin(&world, &parties);
    let token = &live.subject_token;
    let last = if token.ends_with('A') { "Q" } else { "A" };
    let guess = format!("{}{last}", &token[..token.len() - 1]);
    assert_eq!(exchange(&world, &parties, &guess).status, 400);
    assert!(is_active(&world, &live));
}

/// An ended impersonation is not ended again: else anyone with a spent token could fill the table.
#[test]
fn many_replays_of_one_token_end_its_impersonation_once() {
    let (world, parties) = (start(), Parties::new());
    let live = begin(&world, &parties);
    for _ in 0..5 {
        replay(&world, &parties, &live);
    }
    assert!(!is_active(&world, &live));
    assert_eq!(world.counted("impersonation_revocations_on_replay_total"), 1);
    assert_eq!(alarms(&world, &live), [true; 5], "each tells so");
    // A replay of a later token ends its own impersonation.
    let anew = begin(&world, &parties);
    replay(&world, &parties, &anew);
    assert!(!is_active(&world, &anew));
}
