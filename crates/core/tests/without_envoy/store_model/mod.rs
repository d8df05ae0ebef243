//! The store under every interleaving of the workers that share it.
//!
//! Each world is checked against the rules in `model`. A token is spent at most once. A token that
//! was handed out is found until it is spent or has expired, and no worker overwrites it. The
//! outstanding tokens are never more than the slots, and when all workers have finished, exactly as
//! many can be outstanding. A refused request changes nothing. A worker that dies after any call
//! costs no token, and at most one slot until its token would have expired.
//!
//! `cargo test -p impersonation-core --test without_envoy store_model -- --nocapture` prints the
//! size of each search.

mod census;
mod explorer;
mod model;
mod seen_once;
mod worker;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use explorer::{Value, Violation};
use impersonation_core::fakes::EnvoyMap;
use impersonation_core::host::Swap;
use impersonation_core::state::local::SlotTable;
use impersonation_core::state::store::{Choice, NotStored};
use model::{Ends, LIFETIME, Scenario, at};
use worker::{Direct, Fault, Op, Refusal, decide, kind_and_number, mint, mint_for_review, spend};

/// Every scenario ends only in these ways, and in each of them at least once.
fn assert_ends(name: &str, scenario: &Scenario, expected: &[&str]) {
    let ends = explore(name, scenario);
    assert_eq!(ends, expected.iter().map(|end| (*end).to_owned()).collect(), "{name}");
}

fn explore(name: &str, scenario: &Scenario) -> Ends {
    scenario.explore(name).unwrap_or_else(|violation| panic!("{name}: {violation}"))
}

/// The time until which a slot is taken.
const LONG: u64 = 60_500;

#[test]
fn one_of_any_number_of_spends_wins() {
    let spends = |count: usize| {
        (0..count).fold(Scenario::new(1, &[LONG]), |scenario, _| scenario.spender(0))
    };
    assert_ends("spend, spend", &spends(2), &["won | already spent", "already spent | won"]);
    assert_ends(
        "spend, spend, spend",
        &spends(3),
        &[
            "won | already spent | already spent",
            "already spent | won | already spent",
            "already spent | already spent | won",
        ],
    );
    explore("spend, spend, spend, spend", &spends(4));
}

/// In every race, a token that was taken back is never exchanged, and a token that was exchanged is
/// never reported as taken back.
#[test]
fn a_token_is_either_spent_or_taken_back() {
    let one = || Scenario::new(1, &[LONG]);
    let ends = ["won | already spent", "cancelled | taken back"];
    assert_ends("spend, cancel", &one().spender(0).canceller(0), &ends);
    let cancels = one().canceller(0).canceller(0);
    assert_ends("cancel, cancel", &cancels, &["taken back | taken back"]);
    let all = one().spender(0).spender(0).canceller(0);
    assert_ends(
        "spend, spend, cancel",
        &all,
        &[
            "won | already spent | already spent",
            "already spent | won | already spent",
            "cancelled | cancelled | taken back",
        ],
    );
    explore("spend, cancel, cancel", &one().spender(0).canceller(0).canceller(0));
    explore("spend, cancel, mint: 1 slot", &one().spender(0).canceller(0).minter(0));
    explore("spend, cancel, failing", &one().spender(0).canceller(0).calls_fail());
    let clock = Scenario::new(1, &[2500]).clock(&[1000, 2000, 2500]);
    explore("spend, cancel, clock", &clock.spender(0).canceller(0));
}

/// Any number of approvals, denials and exchanges run at once. No exchange wins before the last
/// approval, none wins after a denial, and one wins at most.
#[test]
fn a_token_under_review_is_exchanged_after_its_last_approval_or_never() {
    let two = || Scenario::new(1, &[]).for_review(LONG, 2);
    let ends = ["counted | counted | won", "counted | counted | waiting"];
    let both = || two().approver(0, "dana").approver(0, "eli").spender(0);
    assert_ends("approve, approve, spend", &both(), &ends);
    let twice = two().approver(0, "dana").approver(0, "dana").spender(0);
    assert_ends("the same approves twice, spend", &twice, &["counted | counted | waiting"]);
    let one = || Scenario::new(1, &[]).for_review(LONG, 1);
    assert_ends(
        "approve, deny, spend",
        &one().approver(0, "dana").denier(0).spender(0),
        &[
            "counted | decided | won",
            "counted | decided | waiting",
            "decided | counted | denied",
            "decided | counted | waiting",
        ],
    );
    explore("approve, approve, deny, spend", &both().denier(0));
    explore("approve, approve, spend, spend", &both().spender(0));
    explore("approve, spend, cancel", &one().approver(0, "dana").spender(0).canceller(0));
    explore("deny, cancel, spend", &one().denier(0).canceller(0).spender(0));
    let all = one().approver(0, "dana").denier(0).spender(0).canceller(0);
    explore("approve, deny, spend, cancel", &all);
    explore("approve, deny, mint: 1 slot", &one().approver(0, "dana").denier(0).minter(0));
    let failing = one().approver(0, "dana").denier(0).spender(0).calls_fail();
    explore("approve, deny, spend, calls fail", &failing);
    let clock = Scenario::new(1, &[]).for_review(2500, 1).clock(&[1000, 2000, 2500]);
    explore("approve, spend, clock", &clock.approver(0, "dana").spender(0));
}

/// A search that finds no fault is only worth something if it could find one.
#[test]
fn a_store_that_loses_a_decision_is_found_out() {
    for fault in [Fault::Overwrites, Fault::ComparesThenWrites, Fault::ReadsVersionAgain] {
        let table = || Scenario::new(1, &[]).for_review(LONG, 1);
        let broken = table().approver(0, "dana").denier(0).spender(0).broken(fault);
        let found = broken.explore("approve, deny, spend").map_err(|violation| violation.rule);
        let rule = found.expect_err("it is broken");
        assert!(rule.contains("approved and denied"), "{fault:?}: {rule}");
    }
}

/// One caller cannot use up the slots of the others with tokens that nobody decides about.
#[test]
fn a_caller_holds_a_quarter_of_the_slots_under_review_at_the_most() {
    let host = Direct::new(&EnvoyMap::default(), at(1000));
    let table = SlotTable::new("a", 8, LIFETIME);
    let first = mint_for_review(&host, &table, at(LONG), 1).unwrap();
    let second = mint_for_review(&host, &table, at(LONG), 1).unwrap();
    assert_eq!(mint_for_review(&host, &table, at(LONG), 1), Err(NotStored::HoldsTooMany));
    assert_eq!((0..6).filter(|_| mint(&host, &table, at(LONG)).is_ok()).count(), 6);

    assert_eq!(decide(&host, &table, &first, "dana", Choice::Approve), Ok(()));
    assert_eq!(mint_for_review(&host, &table, at(LONG), 1), Err(NotStored::Full));
    assert_eq!(spend(&host, &table, &first), Ok(()));
    assert!(mint_for_review(&host, &table, at(LONG), 1).is_ok(), "a spent token counts no more");
    assert_eq!(worker::cancel(&host, &table, &second), Ok(()));
    assert_eq!(mint_for_review(&host, &table, at(LONG), 1), Err(NotStored::Full));
    let shared_data = host.into_shared_data();
    let later = Direct::new(&shared_data, at(LONG));
    assert!(mint_for_review(&later, &table, at(2 * LONG), 1).is_ok());
}

/// A search that finds no fault is only worth something if it could find one.
#[test]
fn a_store_that_takes_back_what_is_spent_is_found_out() {
    for fault in [Fault::Overwrites, Fault::ComparesThenWrites, Fault::ReadsVersionAgain] {
        let broken = Scenario::new(1, &[LONG]).spender(0).canceller(0).broken(fault);
        let found = broken.explore("spend, cancel").map_err(|violation| violation.rule);
        let rule = found.expect_err("it is broken");
        assert!(rule.contains("spent and taken back"), "{fault:?}: {rule}");
    }
}

#[test]
fn as_many_mints_win_as_there_are_free_slots() {
    for hands in [[0, 0], [0, 1], [1, 0], [1, 1]] {
        let mints = Scenario::new(2, &[LONG]).minter(hands[0]).minter(hands[1]);
        let name = format!("mint, mint: 1 of 2 slots free, from {hands:?}");
        assert_ends(&name, &mints, &["minted | full", "full | minted"]);
    }
    let mints = Scenario::new(1, &[]).minter(0).minter(0);
    assert_ends("mint, mint: 1 slot", &mints, &["minted | full", "full | minted"]);
    for hands in [[0, 0], [0, 1]] {
        let mints = Scenario::new(2, &[]).minter(hands[0]).minter(hands[1]);
        assert_ends(&format!("mint, mint: 2 slots, from {hands:?}"), &mints, &["minted | minted"]);
    }
    for hands in [[0, 0, 0], [0, 0, 1], [0, 1, 1]] {
        let mints = hands.into_iter().fold(Scenario::new(2, &[]), Scenario::minter);
        assert_ends(
            &format!("mint, mint, mint: 2 slots, from {hands:?}"),
            &mints,
            &["minted | minted | full", "minted | full | minted", "full | minted | minted"],
        );
    }
}

#[test]
fn a_spent_slot_goes_to_one_of_those_who_want_it() {
    let full = Scenario::new(1, &[LONG]).spender(0).minter(0);
    assert_ends("spend, mint: 1 slot", &full, &["won | full", "won | minted"]);
    let full = Scenario::new(1, &[LONG]).spender(0).minter(0).minter(0);
    let ends = ["won | full | full", "won | minted | full", "won | full | minted"];
    assert_ends("spend, mint, mint: 1 slot", &full, &ends);
    for hands in [[0, 0], [0, 1], [1, 0], [1, 1]] {
        let full = Scenario::new(2, &[LONG, LONG]).spender(0).minter(hands[0]).minter(hands[1]);
        assert_ends(&format!("spend, mint, mint: 2 slots, from {hands:?}"), &full, &ends);
    }
    for hands in [[0, 0], [0, 1], [1, 0], [1, 1]] {
        let half = Scenario::new(2, &[LONG]).spender(0).minter(hands[0]).minter(hands[1]);
        assert_ends(
            &format!("spend, mint, mint: 1 of 2 slots free, from {hands:?}"),
            &half,
            &["won | minted | full", "won | full | minted", "won | minted | minted"],
        );
    }
}

#[test]
fn no_spend_wins_after_expiry_and_the_slot_is_used_again() {
    // The hint is free from 2000 on; the record is live until 2500.
    const CLOCK: [u64; 4] = [1000, 2000, 2499, 2500];
    let spend = Scenario::new(1, &[2500]).spender(0).clock(&CLOCK);
    assert_ends("spend, clock", &spend, &["won", "expired"]);
    let spends = Scenario::new(1, &[2500]).spender(0).spender(0).clock(&CLOCK);
    explore("spend, spend, clock", &spends);
    let mints = Scenario::new(1, &[2500]).minter(0).minter(0).clock(&CLOCK);
    assert_ends(
        "mint, mint, clock: 1 slot",
        &mints,
        &["full | full", "full | minted", "minted | full"],
    );
    let both = Scenario::new(1, &[2500]).spender(0).minter(0).clock(&CLOCK);
    assert_ends(
        "spend, mint, clock: 1 slot",
        &both,
        &["won | full", "won | minted", "expired | full", "expired | minted", "unknown | minted"],
    );
}

#[test]
fn a_double_spend_beside_expiry_and_reuse_of_the_slot_wins_once_at_the_most() {
    let all = Scenario::new(1, &[2500]).spender(0).spender(0).minter(0).clock(&[1000, 2000, 2500]);
    for end in explore("spend, spend, mint, clock: 1 slot", &all) {
        assert!(end.matches("won").count() <= 1, "{end}");
    }
}

#[test]
fn one_of_two_mints_beside_a_spend_and_expiry_gets_the_slot() {
    let all = Scenario::new(1, &[2500]).spender(0).minter(0).minter(0).clock(&[1000, 2000, 2500]);
    for end in explore("spend, mint, mint, clock: 1 slot", &all) {
        assert!(end.matches("minted").count() <= 1, "{end}");
    }
}

#[test]
fn workers_that_mint_and_spend_get_by_on_few_slots() {
    let cycle = [Op::Mint(at(LONG)), Op::SpendOwn];
    let two = Scenario::new(1, &[]).actor(0, cycle.clone()).actor(0, cycle.clone());
    assert_ends(
        "mint then spend, twice: 1 slot",
        &two,
        &["minted then won | full", "full | minted then won", "minted then won | minted then won"],
    );
    let two = Scenario::new(2, &[]).actor(0, cycle.clone()).actor(0, cycle.clone());
    assert_ends("mint then spend, twice: 2 slots", &two, &["minted then won | minted then won"]);
    let short = [Op::Mint(at(2500)), Op::SpendOwn];
    let two = Scenario::new(1, &[]).actor(0, short.clone()).actor(0, short).clock(&[1000, 2500]);
    explore("mint then spend, twice, clock: 1 slot", &two);
}

#[test]
fn a_contended_page_of_hints_loses_no_slot() {
    let spends = Scenario::new(3, &[LONG; 3]).spender(0).spender(1).spender(2);
    assert_ends("spends of 3 tokens on a page", &spends, &["won | won | won"]);
    let mints = Scenario::new(3, &[]).minter(0).minter(1).minter(2);
    assert_ends("3 mints on a page", &mints, &["minted | minted | minted"]);
    let both = Scenario::new(3, &[LONG, LONG]).spender(0).spender(1).minter(2);
    assert_ends("2 spends and a mint on a page", &both, &["won | won | minted"]);
}

#[test]
fn a_search_goes_over_all_pages_and_finds_the_one_free_slot() {
    let full_page = || Scenario::new(257, &[LONG; 256]);
    for hands in [[0, 0], [255, 256]] {
        let mints = full_page().minter(hands[0]).minter(hands[1]);
        let name = format!("mint, mint: 1 of 257 slots free, from {hands:?}");
        assert_ends(&name, &mints, &["minted | full", "full | minted"]);
    }
    let both = full_page().spender(7).minter(256);
    assert_ends("spend, mint: 1 of 257 slots free", &both, &["won | minted"]);
}

#[test]
fn a_call_that_fails_costs_no_token() {
    let spends = Scenario::new(1, &[LONG]).spender(0).spender(0).calls_fail();
    explore("spend, spend, calls fail", &spends);
    let mints = Scenario::new(2, &[LONG]).minter(0).minter(1).calls_fail();
    explore("mint, mint, calls fail: 1 of 2 slots free", &mints);
    let both = Scenario::new(1, &[LONG]).spender(0).minter(0).calls_fail();
    explore("spend, mint, calls fail: 1 slot", &both);
    let three = Scenario::new(2, &[LONG]).spender(0).minter(0).minter(1).calls_fail();
    explore("spend, mint, mint, calls fail: 1 of 2 slots free", &three);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// More workers than a complete search can cover: a sample of their schedules.
    #[test]
    fn a_crowd_on_few_slots_keeps_the_rules(choices in vec(any::<Index>(), 300)) {
        let long = [Op::Mint(at(LONG)), Op::SpendOwn];
        let short = [Op::Mint(at(1500)), Op::SpendOwn];
        let ops = [long.clone(), short, long].concat();
        let table = Scenario::new(3, &[1500]).spender(0).spender(0);
        let crowd = (0..4).fold(table, |crowd, hand| crowd.actor(hand, ops.clone()));
        let crowd = crowd.clock(&[1000, 1400, 1500, 2000]).calls_fail();
        let mut choices = choices.into_iter();
        let choose = |len: usize| choices.next().map_or(0, |choice| choice.index(len));
        if let Err(violation) = crowd.walk(choose) {
            prop_assert!(false, "{}", violation);
        }
    }
}

#[test]
fn services_that_share_a_map_do_not_know_each_others_tokens() {
    let host = Direct::new(&EnvoyMap::default(), at(1000));
    let tables = ["a", "b"].map(|tenant| SlotTable::new(tenant, 1, LIFETIME));
    let tokens = tables.each_ref().map(|table| mint(&host, table, at(LONG)).unwrap());
    assert_eq!(spend(&host, &tables[0], &tokens[1]), Err(Refusal::Unknown));
    assert_eq!(spend(&host, &tables[1], &tokens[0]), Err(Refusal::Unknown));
    for (table, token) in tables.iter().zip(&tokens) {
        assert_eq!(spend(&host, table, token), Ok(()));
    }
}

/// A filter that was rolled back to an older version finds records of the newer one.
#[test]
fn a_slot_that_a_newer_filter_wrote_is_left_alone_until_its_time() {
    let host = Direct::new(&EnvoyMap::default(), at(1000));
    let table = SlotTable::new("a", 1, LIFETIME);
    let token = mint(&host, &table, at(2500)).unwrap();
    let mut shared_data = host.into_shared_data();
    let slot = shared_data.entries().find(|(key, _)| kind_and_number(key).0 == 's');
    let (key, mut bytes) =
        slot.map(|(key, value)| (key.to_owned(), value.bytes().to_vec())).unwrap();
    bytes[0] = 99;
    assert_eq!(shared_data.set(&key, Value::new(&bytes), 0), Swap::Done);

    // The hint is free from 2000 on; the record is live longer.
    for now in [1000, 2000, 2499] {
        let host = Direct::new(&shared_data, at(now));
        assert_eq!(spend(&host, &table, &token), Err(Refusal::Unknown), "{now}");
        assert_eq!(mint(&host, &table, at(LONG)), Err(Refusal::Full), "{now}");
    }
    assert!(mint(&Direct::new(&shared_data, at(2500)), &table, at(LONG)).is_ok());
}

/// The rules find every fault that the tests put into the store. So a search that finds none is
/// worth something.
#[test]
fn a_broken_store_is_found_out() {
    let spends = || Scenario::new(1, &[LONG]).spender(0).spender(0);
    let mints = || Scenario::new(1, &[]).minter(0).minter(0);
    let reuse = || Scenario::new(1, &[2500]).spender(0).minter(0).clock(&[1000, 2500]);
    let full = || Scenario::new(2, &[LONG, LONG]).spender(0).minter(0);
    let spent_twice = "a token is spent twice";
    #[rustfmt::skip]
    let cases = [
        (Fault::Overwrites,         spends(), spent_twice),
        (Fault::Overwrites,         mints(),  "an outstanding token is lost: Unknown"),
        (Fault::Overwrites,         reuse(),  "an outstanding token is lost: Unknown"),
        (Fault::CreatesOverOthers,  mints(),  "an outstanding token is lost: Unknown"),
        (Fault::ReadsVersionAgain,  spends(), spent_twice),
        (Fault::ReadsVersionAgain,  mints(),  "an outstanding token is lost: Unknown"),
        (Fault::ComparesThenWrites, spends(), spent_twice),
        (Fault::ComparesThenWrites, mints(),  "an outstanding token is lost: Unknown"),
        (Fault::IgnoresLosses,      spends(), spent_twice),
        (Fault::IgnoresLosses,      mints(),  "an outstanding token is lost: Unknown"),
        (Fault::KeepsHints,         full(),   "only 1 of 2 slots can be used"),
        (Fault::IgnoresTime,        reuse(),  "a token is spent that had expired before"),
    ];
    for (fault, scenario, rule) in cases {
        let violation: Violation = scenario.broken(fault).explore("").unwrap_err();
        assert_eq!(violation.rule, rule, "{fault:?}: {violation}");
        assert!(!violation.schedule.is_empty());
    }
}
