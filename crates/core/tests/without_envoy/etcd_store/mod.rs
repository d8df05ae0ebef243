//! The store in etcd under every order in which calls arrive, get lost, come late, or lose their
//! answers.
//!
//! Every schedule is checked against the rules in `run::judge`. A token is spent at most once. An
//! exchange that is told "spent" has spent the token. A token is not spent if every exchange is
//! refused, unless one of them is told that the outcome is unknown. No exchange is told "used" or
//! "expired" of a token that is neither. A later exchange gets the same answer.

pub(crate) mod run;

use std::rc::Rc;
use std::time::Duration;

use impersonation_core::fakes::{Etcd, FakeHost, another_envoy, play_in_etcd as play};
use impersonation_core::host::Host;
use impersonation_core::metrics;
use impersonation_core::state::storage::Store;
use impersonation_core::state::store::Choice;
use impersonation_core::step::{Call, Step, Task};

use run::{
    LOST, Outcome, Scenario, begin, begin_cancel, begin_decision, begin_mint_for_review, reply,
    shared_data, store,
};

fn assert_holds(scenario: Scenario, least: usize) {
    let searched = scenario.explore().unwrap_or_else(|rule| panic!("{scenario:?}: {rule}"));
    println!("{scenario:?}: {searched} schedules");
    assert!(searched >= least, "{scenario:?}: only {searched} schedules");
}

#[test]
fn one_of_any_number_of_spends_wins_whatever_gets_lost() {
    assert_holds(Scenario { spenders: 2, ..Scenario::default() }, 6);
    assert_holds(Scenario { spenders: 3, ..Scenario::default() }, 60);
    assert_holds(Scenario { spenders: 2, faults: 2, ..Scenario::default() }, 500);
    assert_holds(Scenario { spenders: 3, faults: 1, ..Scenario::default() }, 1000);
}

/// Whatever call gets lost or arrives late: a token that was taken back is never exchanged, and a
/// token that was exchanged is never reported as taken back.
#[test]
fn a_token_is_either_spent_or_taken_back() {
    let one = Scenario { cancellers: 1, ..Scenario::default() };
    assert_holds(Scenario { faults: 4, ..one }, 100);
    let beside = Scenario { spenders: 1, ..one };
    assert_holds(Scenario { faults: 2, ..beside }, 300);
    assert_holds(Scenario { faults: 1, spenders: 2, ..beside }, 300);
    assert_holds(Scenario { faults: 1, cancellers: 2, ..beside }, 300);
    assert_holds(Scenario { faults: 1, expires: true, ..beside }, 100);
    assert_holds(Scenario { compacts: true, ..beside }, 20);
}

/// The search must be able to find a fault.
#[test]
fn an_etcd_that_lets_a_spent_token_be_taken_back_is_found_out() {
    let broken = Scenario { compares_nothing: true, ..Scenario::default() };
    let broken = Scenario { spenders: 1, cancellers: 1, ..broken };
    assert!(broken.explore().is_err());
}

/// Whatever call gets lost or arrives late: no exchange wins before the last approval, none wins
/// after a denial, and one wins at most.
#[test]
fn a_token_under_review_is_exchanged_after_its_last_approval_or_never() {
    let one = Scenario { approvers: 1, ..Scenario::default() };
    assert_holds(Scenario { faults: 2, ..one }, 10);
    assert_holds(Scenario { spenders: 1, faults: 2, ..one }, 100);
    assert_holds(Scenario { deniers: 1, faults: 1, ..one }, 100);
    assert_holds(Scenario { deniers: 1, spenders: 1, ..one }, 20);
    assert_holds(Scenario { approvers: 2, spenders: 1, ..one }, 20);
    assert_holds(Scenario { spenders: 1, cancellers: 1, ..one }, 20);
    assert_holds(Scenario { approvers: 0, deniers: 1, cancellers: 1, faults: 1, ..one }, 20);
    // Each call can be the last of an Envoy that dies: then it gets lost, or arrives late.
    assert_holds(Scenario { deniers: 1, spenders: 1, cancellers: 1, ..one }, 500);
    assert_holds(Scenario { approvers: 2, spenders: 1, faults: 1, ..one }, 200);
}

/// The search must be able to find a fault.
#[test]
fn an_etcd_that_loses_a_decision_is_found_out() {
    let broken = Scenario { compares_nothing: true, ..Scenario::default() };
    let broken = Scenario { approvers: 1, deniers: 1, ..broken };
    assert!(broken.explore().is_err());
}

/// The keys by which approvers and the user find a token are there for as long as it may wait.
#[test]
fn a_token_under_review_is_found_until_it_is_spent_denied_or_taken_back() {
    type End = fn(&Rc<FakeHost>, &str) -> Step<Outcome>;
    let ends: [End; 3] = [
        |world, token| begin(world, &store(), Some(token)),
        |world, token| begin_decision(world, token, "mallory", Choice::Deny),
        |world, token| begin_cancel(world, &store(), token),
    ];
    for (end, approves) in ends.into_iter().zip([true, false, false]) {
        let (world, mut etcd) = (another_envoy(), Etcd::default());
        let minted = play(begin_mint_for_review(&world, &store(), 1), |call| etcd.answer(call));
        let Outcome::Minted(token) = minted else { panic!("{minted:?}") };
        assert_eq!(etcd.folder("waiting").len(), 2);
        if approves {
            let approve = begin_decision(&world, &token, "dana", Choice::Approve);
            assert_eq!(play(approve, |call| etcd.answer(call)), Outcome::Counted);
            assert_eq!(etcd.folder("waiting").len(), 2);
        }
        play(end(&world, &token), |call| etcd.answer(call));
        assert_eq!(etcd.folder("waiting").len(), 0);
    }
}

#[test]
fn a_spend_whose_every_answer_is_lost_is_not_called_a_refusal() {
    assert_holds(Scenario { spenders: 1, faults: 5, ..Scenario::default() }, 500);
}

#[test]
fn expiry_and_lost_leases_end_a_token_and_never_spend_it_twice() {
    let two = Scenario { spenders: 2, faults: 2, ..Scenario::default() };
    let three = Scenario { spenders: 3, ..Scenario::default() };
    for scenario in [two, three] {
        assert_holds(Scenario { expires: true, ..scenario }, 200);
        assert_holds(Scenario { loses_leases: true, ..scenario }, 200);
    }
}

#[test]
fn a_compaction_is_nothing_to_a_token() {
    let two = Scenario { spenders: 2, faults: 1, ..Scenario::default() };
    assert_holds(Scenario { compacts: true, ..two }, 400);
    assert_holds(Scenario { compacts: true, spenders: 1, minters: 1, ..two }, 100);
}

#[test]
fn a_token_that_is_handed_out_is_there_whatever_gets_lost() {
    assert_holds(Scenario { minters: 1, faults: 3, ..Scenario::default() }, 10);
    assert_holds(Scenario { minters: 2, faults: 1, ..Scenario::default() }, 80);
    assert_holds(Scenario { minters: 3, ..Scenario::default() }, 6);
    assert_holds(Scenario { minters: 1, spenders: 2, ..Scenario::default() }, 20);
    assert_holds(Scenario { minters: 1, spenders: 1, faults: 1, ..Scenario::default() }, 50);
}

#[test]
fn a_mint_makes_the_lease_that_vanished_under_it() {
    let one = Scenario { minters: 1, loses_leases: true, ..Scenario::default() };
    assert_holds(Scenario { faults: 2, ..one }, 10);
    assert_holds(Scenario { minters: 2, ..one }, 20);
    assert_holds(Scenario { spenders: 1, ..one }, 15);
}

/// The search must be able to find a fault.
#[test]
fn a_broken_etcd_is_found_out() {
    let two = Scenario { spenders: 2, faults: 1, ..Scenario::default() };
    #[rustfmt::skip]
    let cases = [
        (Scenario { compares_nothing: true, ..two }, "a token is spent twice"),
        (Scenario { lies: true, ..two },             "a token is spent while everybody is told no"),
    ];
    for (scenario, rule) in cases {
        let found = scenario.explore().unwrap_err();
        assert!(found.starts_with(rule), "{scenario:?}: {found}");
    }
}

fn is_read(call: &impersonation_core::step::GrpcCall) -> bool {
    !call.metadata.is_empty()
}

/// An etcd with one token in it.
fn with_token() -> (Rc<FakeHost>, Etcd, String) {
    let (world, mut etcd) = (another_envoy(), Etcd::default());
    let minted = play(begin(&world, &store(), None), |call| etcd.answer(call));
    let Outcome::Minted(token) = minted else { panic!("{minted:?}") };
    (world, etcd, token)
}

#[test]
fn a_mint_is_one_call_and_an_exchange_two() {
    let (world, mut etcd, store) = (another_envoy(), Etcd::default(), store());
    let minted = play(begin(&world, &store, None), |call| etcd.answer(call));
    assert!(matches!(minted, Outcome::Minted(_)), "{minted:?}");
    let mut calls = Vec::new();
    let mut answer = |call: &impersonation_core::step::GrpcCall| {
        calls.push(call.clone());
        etcd.answer(call)
    };
    // A moment later the lease exists.
    world.now.set(world.now.get().after(Duration::from_secs(1)));
    let minted = play(begin(&world, &store, None), &mut answer);
    let Outcome::Minted(token) = minted else { panic!("{minted:?}") };
    assert_eq!(play(begin(&world, &self::store(), Some(&token)), answer), Outcome::Won);
    let methods: Vec<_> = calls.iter().map(|call| call.method).collect();
    assert_eq!(methods, ["Txn"; 3]);
    let metadata: Vec<_> = calls.iter().map(|call| call.metadata.len()).collect();
    assert_eq!(metadata, [0, 1, 0], "only a look-up does not wait for a leader");
    assert_eq!(calls[1].metadata, [("hasleader", "true")]);
    assert_eq!(etcd.leases.len(), 1);
}

/// Each mint ensures the lease that the first one drew, until one of them has granted it.
#[test]
fn those_who_mint_at_once_in_one_vm_share_a_lease() {
    const MINTS: usize = 5;
    let (world, mut etcd, store) = (another_envoy(), Etcd::default(), store());
    let mut steps: Vec<_> = (0..MINTS).map(|_| begin(&world, &store, None)).collect();
    let mut calls = 0;
    while steps.iter().any(|step| matches!(step, Step::Call(..))) {
        let turn = |step| match step {
            Step::Call(Call::Grpc(call), task) => {
                calls += 1;
                task.resume(reply(etcd.answer(&call)))
            }
            other => other,
        };
        steps = steps.into_iter().map(turn).collect();
    }
    assert!(steps.iter().all(|step| matches!(step, Step::Done(Outcome::Minted(_)))));
    assert_eq!((etcd.count(), etcd.leases.len(), calls), (MINTS, 1, 4 * MINTS));
    let minted = play(begin(&world, &store, None), |call| etcd.answer(call));
    assert!(matches!(minted, Outcome::Minted(_)), "{minted:?}");
    assert_eq!(etcd.leases.len(), 1);
    world.now.set(world.now.get().after(Duration::from_secs(10)));
    let minted = play(begin(&world, &store, None), |call| etcd.answer(call));
    assert!(matches!(minted, Outcome::Minted(_)), "{minted:?}");
    assert_eq!(etcd.leases.len(), 2);
}

/// A client of etcd that may only read can still grant, list and revoke leases.
#[test]
fn shortened_leases_lose_no_token_that_was_handed_out() {
    for interferes in [0..1, 1..2, 2..3, 3..4, 0..2, 0..99] {
        let (world, mut etcd) = (another_envoy(), Etcd::default());
        let mut calls = 0;
        let minted = play(begin(&world, &store(), None), |call| {
            if interferes.contains(&calls) {
                etcd.shorten_leases();
            }
            calls += 1;
            etcd.answer(call)
        });
        etcd.shorten_leases();
        etcd.let_go(12);
        match minted {
            Outcome::Minted(token) => {
                let outcome = play(begin(&world, &store(), Some(&token)), |call| etcd.answer(call));
                assert_eq!(outcome, Outcome::Won, "{interferes:?}");
            }
            other => assert_eq!((other, interferes.end), (Outcome::Failed, 99)),
        }
    }
}

/// An intruder who may write to etcd can forge records, put old ones back, and move them.
#[test]
fn a_record_that_somebody_else_has_written_is_none() {
    type Tamper = fn(&mut Etcd, &[u8], &[u8], &[u8]);
    #[rustfmt::skip]
    let tampers: [(&str, Tamper); 6] = [
        ("put back as it was before", |etcd, key, before, _| etcd.put_by_hand(key, before)),
        ("put there once more",       |etcd, key, _, now| etcd.put_by_hand(key, now)),
        ("deleted and created anew", |etcd, key, before, _| {
            let lease = etcd.delete_by_hand(key);
            etcd.create_by_hand(key, before, lease);
        }),
        ("and spent anew, as it was", |etcd, key, before, now| {
            let lease = etcd.delete_by_hand(key);
            etcd.create_by_hand(key, before, lease);
            etcd.put_by_hand(key, now);
        }),
        ("with another lease", |etcd, key, before, _| {
            etcd.delete_by_hand(key);
            etcd.create_by_hand(key, before, 0);
        }),
        ("with another byte", |etcd, key, _, now| {
            let lease = etcd.delete_by_hand(key);
            let mut forged = now.to_vec();
            forged[20] ^= 1;
            etcd.create_by_hand(key, &forged, lease);
        }),
    ];
    for (case, tamper) in tampers {
        let (world, mut etcd, token) = with_token();
        let [(key, before)] = &etcd.folder("tokens")[..] else { panic!("one token") };
        let (key, before) = (key.clone(), before.clone());
        let won = play(begin(&world, &store(), Some(&token)), |call| etcd.answer(call));
        assert_eq!(won, Outcome::Won);
        let now = etcd.folder("tokens")[0].1.clone();
        tamper(&mut etcd, &key, &before, &now);
        let again = play(begin(&world, &store(), Some(&token)), |call| etcd.answer(call));
        assert_eq!(again, Outcome::Failed, "{case}");
        assert!(world.warnings.borrow()[0].contains("by somebody else"), "{case}");
    }
}

/// Moves the record of one token under the key of another.
#[test]
fn a_record_is_that_of_its_own_token() {
    let (world, mut etcd, token) = with_token();
    let minted = play(begin(&world, &store(), None), |call| etcd.answer(call));
    assert!(matches!(minted, Outcome::Minted(_)), "{minted:?}");
    let records = etcd.folder("tokens");
    for (key, _) in &records {
        let other = records.iter().find(|(other, _)| other != key).unwrap();
        let lease = etcd.delete_by_hand(key);
        etcd.create_by_hand(key, &other.1, lease);
    }
    let outcome = play(begin(&world, &store(), Some(&token)), |call| etcd.answer(call));
    assert_eq!(outcome, Outcome::Failed);
}

#[test]
fn a_token_outlives_the_rotation_of_the_key_that_authenticates_it() {
    let (world, mut etcd, token) = with_token();
    let not_asked = |_: &impersonation_core::step::GrpcCall| panic!("etcd is asked");
    let [rotated, removed] = [&[2, 1][..], &[2]].map(run::store_with);
    assert_eq!(play(begin(&world, &removed, Some(&token)), not_asked), Outcome::NoSuchToken);
    let outcome = play(begin(&world, &rotated, Some(&token)), |call| etcd.answer(call));
    assert_eq!(outcome, Outcome::Won);
    let outcome = play(begin(&world, &store(), Some(&token)), |call| etcd.answer(call));
    assert_eq!(outcome, Outcome::Failed, "it was spent with a key that is not listed there");
}

/// The filter does not ask etcd about a token that no filter can have minted.
#[test]
fn a_token_that_was_not_minted_here_is_unknown_and_etcd_is_not_asked() {
    let (world, _, token) = with_token();
    let not_asked = |_: &impersonation_core::step::GrpcCall| panic!("etcd is asked");
    let genuine: String = token.chars().take(75).collect();
    let others = [format!("{genuine}AAAA"), format!("sub_{}", "A".repeat(75))];
    for other in others {
        let outcome = play(begin(&world, &store(), Some(&other)), not_asked);
        assert_eq!(outcome, Outcome::NoSuchToken, "{other}");
    }
}

/// During a roll-out, an Envoy with longer access tokens exchanges a token that an Envoy with
/// shorter ones has minted.
#[test]
fn an_impersonation_is_listed_for_as_long_as_it_lives_whatever_its_token_was_minted_for() {
    let (world, mut etcd, token) = with_token();
    let long = Duration::from_secs(86_400);
    let outcome = run::spend_for(&world, &token, long, |call| etcd.answer(call));
    assert_eq!(outcome, Outcome::Won);
    assert_eq!((etcd.folder("impersonations").len(), etcd.leases.len()), (1, 2));
    etcd.let_go(86_400);
    assert_eq!((etcd.folder("impersonations").len(), etcd.folder("tokens").len()), (1, 1));
    let again = play(begin(&world, &store(), Some(&token)), |call| etcd.answer(call));
    assert_eq!(again, Outcome::AlreadySpent);
}

#[test]
fn no_part_of_the_secret_is_in_etcd() {
    let (_, etcd, token) = with_token();
    assert_eq!(etcd.count(), 1);
    let held = etcd.bytes();
    assert!(
        !held.windows(16).any(|window| token.as_bytes().windows(16).any(|part| part == window))
    );
}

#[test]
fn a_definite_no_is_believed_at_once_and_anything_else_is_tried_again() {
    for status in 1..=16 {
        let (world, mut etcd, token) = with_token();
        let mut asked = 0;
        let outcome = play(begin(&world, &store(), Some(&token)), |call| {
            if is_read(call) {
                return etcd.answer(call);
            }
            asked += 1;
            Err(status)
        });
        let expected = if [3, 5, 7, 8, 9, 12, 16].contains(&status) {
            (Outcome::Failed, 1)
        } else {
            (Outcome::SpendUnknown, 5)
        };
        assert_eq!((outcome, asked), expected, "{status}");
        assert_eq!(world.warnings.borrow().len(), 1, "{status}");
    }
}

#[test]
fn a_no_after_an_answer_that_was_lost_says_nothing_of_the_attempt_before() {
    let (world, mut etcd, token) = with_token();
    let mut asked = 0;
    let outcome = play(begin(&world, &store(), Some(&token)), |call| {
        let answer = etcd.answer(call);
        asked += 1;
        match asked {
            1 => answer,
            2 => Err(LOST),
            // The quota of etcd is now full.
            _ => Err(8),
        }
    });
    assert_eq!(outcome, Outcome::SpendUnknown);
    let again = play(begin(&world, &store(), Some(&token)), |call| etcd.answer(call));
    assert_eq!(again, Outcome::AlreadySpent);
}

#[test]
fn every_verb_ends_in_its_time() {
    let (world, mut etcd, token) = with_token();
    let mut lose = |token: Option<&str>, range_answers: bool| {
        let before = world.now.get();
        let outcome = play(begin(&world, &store(), token), |call| {
            if range_answers && is_read(call) {
                return etcd.answer(call);
            }
            world.now.set(world.now.get().after(call.timeout));
            Err(LOST)
        });
        (outcome, world.now.get().since(before).as_millis())
    };
    assert_eq!(lose(Some(&token), false), (Outcome::Failed, 1200));
    assert_eq!(lose(None, false), (Outcome::Failed, 1600));
    assert_eq!(lose(Some(&token), true), (Outcome::SpendUnknown, 3500));
}

#[test]
fn an_unreadable_record_refuses_no_token_and_is_logged_once_a_minute() {
    let (world, mut etcd, token) = with_token();
    for record in [&b""[..], b"x", &[99; 80]] {
        etcd.overwrite(record);
        let outcome = play(begin(&world, &store(), Some(&token)), |call| etcd.answer(call));
        assert_eq!(outcome, Outcome::Failed, "{record:?}");
    }
    world.warnings.borrow_mut().clear();
    let store = store();
    for (after, said) in [(0, 1), (1, 1), (58, 1), (1, 2), (1, 2)] {
        world.now.set(world.now.get().after(Duration::from_secs(after)));
        for _ in 0..3 {
            let _ = play(begin(&world, &store, Some(&token)), |call| etcd.answer(call));
        }
        assert_eq!(world.warnings.borrow().len(), said, "{:?}", world.warnings);
    }
}

#[test]
fn a_spend_goes_on_without_its_caller_and_a_look_up_does_not() {
    let (world, mut etcd, token) = with_token();
    let Step::Call(Call::Grpc(range), task) = begin(&world, &store(), Some(&token)) else {
        panic!("nothing is called")
    };
    let answer = etcd.answer(&range);
    let Step::Call(Call::Grpc(txn), task) = task.resume(reply(answer)) else {
        panic!("nothing is called")
    };
    let task = task.caller_left().expect("it goes on");
    // This answer is lost, too.
    let _ = etcd.answer(&txn);
    let outcome = play(task.resume(reply(Err(LOST))), |call| etcd.answer(call));
    assert_eq!(outcome, Outcome::Won);

    let Step::Call(_, task) = begin(&world, &store(), Some(&token)) else {
        panic!("nothing is called")
    };
    assert!(task.caller_left().is_none());
}

/// A configuration that changes from shared data to etcd makes a new store in the same Envoy.
#[test]
fn a_store_does_not_know_the_tokens_of_another_and_etcd_is_not_asked() {
    let not_asked = |_: &impersonation_core::step::GrpcCall| panic!("etcd is asked");
    let world = another_envoy();
    let minted = play(begin(&world, &shared_data(), None), not_asked);
    let Outcome::Minted(token) = minted else { panic!("{minted:?}") };
    let outcome = play(begin(&world, &store(), Some(&token)), not_asked);
    assert_eq!(outcome, Outcome::NoSuchToken);
    let outcome = play(begin(&world, &shared_data(), Some(&token)), not_asked);
    assert_eq!(outcome, Outcome::Won, "nobody has spent it");

    let mut etcd = Etcd::default();
    let minted = play(begin(&world, &store(), None), |call| etcd.answer(call));
    let Outcome::Minted(token) = minted else { panic!("{minted:?}") };
    assert_eq!((token.len(), etcd.count()), ("sub_".len() + 75, 1));
    let outcome = play(begin(&world, &shared_data(), Some(&token)), not_asked);
    assert_eq!(outcome, Outcome::NoSuchToken);
}

/// Ticks a VM, and returns the gauges.
fn tick(world: &Rc<FakeHost>, store: &Rc<Store>, etcd: &mut Etcd) -> (Option<u64>, Option<u64>) {
    if store.counts(&**world) {
        let (counting, host) = (Rc::clone(store), Rc::clone(world) as Rc<dyn Host>);
        let step = Task::start(host, None, |context| async move {
            counting.count(&context).await;
            Outcome::Failed
        });
        play(step, |call| etcd.answer(call));
    }
    let gauge = |name| world.gauges.borrow().get(name).copied();
    (gauge(metrics::OUTSTANDING), gauge(metrics::OLDEST_AGE))
}

#[test]
fn one_vm_counts_what_is_neither_spent_nor_expired_in_pages() {
    const TOKENS: usize = 4500;
    let (world, mut etcd) = (another_envoy(), Etcd::default());
    let mint = |etcd: &mut Etcd| match play(begin(&world, &store(), None), |call| etcd.answer(call))
    {
        Outcome::Minted(token) => token,
        other => panic!("{other:?}"),
    };
    let vms = [store(), store()];
    assert_eq!(tick(&world, &vms[0], &mut etcd), (Some(0), Some(0)));
    let tokens: Vec<_> = (0..TOKENS).map(|_| mint(&mut etcd)).collect();
    // The other VM leaves the count to the first, which needs three pages.
    assert_eq!(tick(&world, &vms[1], &mut etcd), (Some(0), Some(0)));
    for page in 0..3 {
        let expected = if page < 2 { 0 } else { TOKENS as u64 };
        assert_eq!(tick(&world, &vms[0], &mut etcd).0, Some(expected), "{page}");
    }
    for token in &tokens[..500] {
        let spent = play(begin(&world, &store(), Some(token)), |call| etcd.answer(call));
        assert_eq!(spent, Outcome::Won);
    }
    world.now.set(world.now.get().after(Duration::from_secs(20)));
    mint(&mut etcd);
    // The first VM has not counted for longer than its turn lasts.
    for _ in 0..2 {
        tick(&world, &vms[1], &mut etcd);
    }
    let (outstanding, age) = tick(&world, &vms[1], &mut etcd);
    assert_eq!(outstanding, Some(TOKENS as u64 - 499));
    assert_eq!(age, Some(20));
    // All tokens but the last have expired, though their keys still exist for a while.
    world.now.set(world.now.get().after(run::LIFETIME - Duration::from_secs(10)));
    for _ in 0..2 {
        tick(&world, &vms[0], &mut etcd);
    }
    assert_eq!(tick(&world, &vms[0], &mut etcd).0, Some(1));
    assert_eq!(etcd.count(), TOKENS + 1);
}
