//! Events in a table: until when they end what they name, and what a repetition changes.

#![expect(clippy::arithmetic_side_effects, reason = "small numbers, in a test")]

use proptest::prelude::*;

use super::super::format::ROW;
use super::super::{EVENTS, Key, Learned, MAX_ENTRIES, Overflow};
use super::*;

const KEY: Key = [7; 16];
const SECOND: u64 = 1000;
/// A time that no test reaches back from.
const BASE: u64 = 1_000 * SECOND;
const SENDER: &str = "https://auth.example.com";
const DAY: Duration = Duration::from_secs(86_400);

fn at(millis: u64) -> UnixTime {
    UnixTime::from_millis(millis)
}

fn empty() -> Table {
    Table::new(KEY, at(0))
}

fn clocks(now: u64) -> Clocks {
    Clocks { now: at(now), uptime: u32::try_from(now / SECOND).unwrap() }
}

fn agent(name: &str) -> Revocation {
    Revocation { actor_id: Some(name.to_owned()), ..Revocation::default() }
}

fn of(sender: &str, millis: u64) -> Happened {
    Happened::new(sender, millis, DAY)
}

/// Tells a table of an event about `agent` that arrives at that time.
fn tell(table: &mut Table, happened: &Happened, arrival: u64) -> Told {
    let told = table.open_event(&agent("agent"), happened, clocks(arrival));
    table.close_event(&agent("agent"), happened, at(arrival));
    *table = Table::decode(&table.encode()).unwrap();
    told
}

fn ended(table: &Table, issued: u64) -> bool {
    table.has_ended(&Impersonation::by("agent", "session"), IssuedAt::At(at(issued)))
}

const AGENT: Concerned<'_> =
    Concerned { actor_id: Some("agent"), session: Some("session"), user_id: None };

#[test]
fn an_event_ends_what_began_until_its_arrival_and_a_minute_after_it() {
    #[rustfmt::skip]
    let cases = [
        // The event, its arrival, and the last time at which an impersonation ends by it.
        ("at once",          BASE, BASE,                BASE),
        ("in a moment",      BASE, BASE + 5,            BASE + 5),
        ("within a minute",  BASE, BASE + 59 * SECOND,  BASE + 59 * SECOND),
        ("after a minute",   BASE, BASE + 60 * SECOND,  BASE + 60 * SECOND),
        ("after an hour",    BASE, BASE + 3600 * SECOND, BASE + 60 * SECOND),
    ];
    for (case, event, arrival, last) in cases {
        let mut table = empty();
        assert_eq!(tell(&mut table, &of(SENDER, event), arrival), Told::News(None), "{case}");
        assert!(ended(&table, 1) && ended(&table, last), "{case}");
        assert!(!ended(&table, last + 1), "{case}");
        assert!(
            !table.has_ended(&Impersonation::by("other", "session"), IssuedAt::At(at(1))),
            "{case}"
        );
    }
}

#[test]
fn an_event_that_has_not_arrived_as_a_whole_ends_all_of_its_minute() {
    let mut table = empty();
    table.open_event(&agent("agent"), &of(SENDER, BASE), clocks(BASE));
    assert!(ended(&table, BASE + 60 * SECOND) && !ended(&table, BASE + 60 * SECOND + 1));
    // The sender tries again, and the row is closed.
    assert_eq!(tell(&mut table, &of(SENDER, BASE), BASE + 3), Told::OldNews);
    assert!(ended(&table, BASE + 3) && !ended(&table, BASE + 4));
    let changed = table.close_event(&agent("agent"), &of(SENDER, BASE), at(BASE + 9));
    assert!(!changed, "a row is closed once");
}

/// Actor tokens are compared by their issuer's clock alone, and the next sign-in is good at once.
#[test]
fn an_event_refuses_actor_tokens_that_are_no_younger() {
    let mut table = empty();
    tell(&mut table, &of(SENDER, BASE), BASE + 5);
    let since = |concerned, millis| table.has_event_since(concerned, at(millis));
    assert!(since(AGENT, BASE) && since(AGENT, 1));
    assert!(!since(AGENT, BASE + 1));
    assert!(!since(Concerned { actor_id: Some("other"), ..AGENT }, 1));
    assert!(!since(Concerned { actor_id: None, user_id: Some("agent"), ..AGENT }, 1));
    // An operator who ends everyone does not make them good again.
    table.cut_off(End::at(at(BASE + 3600 * SECOND)));
    assert!(table.has_event_since(AGENT, at(BASE)));
}

/// The event arrives an hour late. In the meantime an actor token of the session that was over has
/// begun an impersonation.
#[test]
fn a_late_event_ends_what_began_from_an_older_actor_token() {
    let session = Revocation { session: Some("session".to_owned()), ..Revocation::default() };
    let user = Revocation { user_id: Some("user".to_owned()), ..Revocation::default() };
    let (hour, issued) = (BASE + 3600 * SECOND, IssuedAt::At(at(BASE + 1800 * SECOND)));
    let cases = [(agent("agent"), true), (session, true), (user, false)];
    for (revocation, ends) in cases {
        let mut table = empty();
        table.open_event(&revocation, &of(SENDER, BASE), clocks(hour));
        table.close_event(&revocation, &of(SENDER, BASE), at(hour));
        let table = Table::decode(&table.encode()).unwrap();
        let since = |since: Option<u64>| Impersonation {
            actor_since: since.map(at),
            ..Impersonation::by("agent", "session")
        };
        let ended = |since_millis, issued| table.has_ended(&since(since_millis), issued);
        assert_eq!(ended(Some(BASE), issued), ends, "{revocation:?}");
        assert_eq!(ended(Some(0), issued), ends, "{revocation:?}: no time of issue");
        assert!(!ended(Some(BASE + 1), issued), "{revocation:?}: of the next sign-in");
        assert!(!ended(None, issued), "{revocation:?}: its issuer vouched for it");
        // A repetition changes nothing of that, in a store of many Envoys neither.
        let later = IssuedAt::AtRevision(Revision::LAST, at(hour + 3600 * SECOND));
        assert_eq!(ended(Some(BASE), later), ends, "{revocation:?}");
        assert!(!ended(Some(BASE + 1), later), "{revocation:?}");
    }
}

/// The sender's clock is ahead by up to a minute. The row keeps both: the end of what this Envoy
/// issued, by the arrival, and the oldest actor token that is good, by the sender's clock.
#[test]
fn an_event_on_a_clock_ahead_refuses_older_actor_tokens_and_ends_nothing_later() {
    for ahead in [1, SECOND, 60 * SECOND] {
        let mut table = empty();
        let event = BASE + ahead;
        assert_eq!(tell(&mut table, &of(SENDER, event), BASE), Told::News(None), "{ahead}");
        assert!(ended(&table, BASE) && !ended(&table, BASE + 1), "{ahead}");
        assert!(table.has_event_since(AGENT, at(event)), "{ahead}");
        assert!(!table.has_event_since(AGENT, at(event + 1)), "{ahead}");
        assert_eq!(tell(&mut table, &of(SENDER, event), BASE + 9), Told::OldNews, "{ahead}");
        assert!(!ended(&table, BASE + 1), "{ahead}");
        tell(&mut table, &of(SENDER, event + 5), BASE + 5);
        assert!(ended(&table, BASE + 5) && !ended(&table, BASE + 6), "{ahead}");
        assert!(table.has_event_since(AGENT, at(event + 5)), "{ahead}");
    }
}

#[test]
fn a_repetition_changes_nothing() {
    let mut table = empty();
    tell(&mut table, &of(SENDER, BASE), BASE + 5);
    tell(&mut table, &of(SENDER, BASE + 10), BASE + 15);
    let before = table.encode();
    for event in [BASE + 10, BASE + 9, BASE, 1] {
        for arrival in [BASE + 15, BASE + 30, BASE + 3600 * SECOND] {
            assert_eq!(tell(&mut table, &of(SENDER, event), arrival), Told::OldNews);
            assert!(before == table.encode(), "{event} {arrival}");
        }
    }
    assert!(!ended(&table, BASE + 16));
}

/// Two clocks of senders may differ by two minutes, so the other's earlier event can be news.
#[test]
fn an_earlier_event_of_another_sender_is_news() {
    let mut table = empty();
    tell(&mut table, &of(SENDER, BASE), BASE + 5);
    let other = of("https://other.example.com", BASE - 50 * SECOND);
    assert_eq!(tell(&mut table, &other, BASE + 20), Told::News(None));
    assert!(ended(&table, BASE + 20) && !ended(&table, BASE + 21));
    assert_eq!(tell(&mut table, &of(SENDER, BASE), BASE + 40), Told::OldNews);
    assert!(!ended(&table, BASE + 21));
}

#[test]
fn a_clock_that_is_set_back_lets_nothing_live_on() {
    let mut table = empty();
    tell(&mut table, &of(SENDER, BASE), BASE + 3600 * SECOND);
    assert!(ended(&table, BASE + 50 * SECOND));
    tell(&mut table, &of(SENDER, BASE + SECOND), BASE + 2 * SECOND);
    assert!(ended(&table, BASE + 50 * SECOND));
}

#[test]
fn an_event_names_an_actor_a_session_or_both() {
    let session =
        |name: &str| Revocation { session: Some(name.to_owned()), ..Revocation::default() };
    let both = Revocation { session: Some("session".to_owned()), ..agent("agent") };
    #[rustfmt::skip]
    let cases = [
        (session("session"),  true,  true),
        (session("other"),    false, false),
        (both,                true,  true),
        (Revocation { session: Some("other".to_owned()), ..agent("agent") }, false, false),
        (Revocation { user_id: Some("user".to_owned()), ..Revocation::default() }, true, false),
    ];
    for (revocation, ends, refuses) in cases {
        let mut table = empty();
        table.open_event(&revocation, &of(SENDER, BASE), clocks(BASE));
        assert_eq!(ended(&table, BASE), ends, "{revocation:?}");
        assert_eq!(table.has_event_since(AGENT, at(BASE)), refuses, "{revocation:?}");
    }
}

/// Every logout of an ordinary user is an event. More end than were named, never fewer.
#[test]
fn a_million_events_keep_the_table_small_and_the_operators_rows() {
    const ALL: u64 = 1_000_000;
    let mut table = empty();
    let of_operator =
        Revocation { client_id: Some("client-7".to_owned()), ..Revocation::default() };
    table.insert(&of_operator, End::at(at(5)), None, clocks(5));
    let numbers: Vec<_> = (0..ALL).collect();
    let mut overflows = 0;
    for chunk in numbers.chunks(EVENTS / 2) {
        let learned: Vec<_> = chunk
            .iter()
            .map(|number| {
                let event = of(SENDER, BASE + number);
                Learned {
                    revocation: agent(&number.to_string()),
                    end: end_at_revision(&event, Revision::default()),
                    owner: None,
                    event: Some(event),
                }
            })
            .collect();
        overflows += usize::from(table.insert_all(&learned) == Some(Overflow::Events));
        assert!(table.len() <= EVENTS + 2, "{}", table.len());
    }
    assert!(overflows > 100, "{overflows}");
    assert!(table.encode().len() < (EVENTS + 64) * ROW + 4096);
    for number in [0, 1, ALL / 2, ALL - 1] {
        let name = number.to_string();
        let issued = IssuedAt::At(at(BASE + number));
        assert!(table.has_ended(&Impersonation::by(&name, "session"), issued), "{number}");
        let concerned = Concerned { actor_id: Some(&name), session: None, user_id: None };
        assert!(table.has_event_since(concerned, at(BASE + number)), "{number}");
    }
    // A repetition of any of them ends nothing that began since.
    let before = table.encode();
    for number in [0, 1, ALL / 2, ALL - 1] {
        let event = of(SENDER, BASE + number);
        let told = table.open_event(&agent(&number.to_string()), &event, clocks(BASE + 2 * ALL));
        assert_eq!(told, Told::OldNews, "{number}");
    }
    assert!(before == table.encode());
    let client = Impersonation { client_id: "client-7", ..Impersonation::by("x", "session") };
    let late = IssuedAt::At(at(BASE + ALL + 60 * SECOND));
    assert!(table.has_ended(&client, IssuedAt::At(at(5))), "the operator's");
    assert!(!table.has_ended(&Impersonation::by("x", "session"), late), "a new one");
    assert!(table.rows.len() < MAX_ENTRIES);
}

/// An event in a remote store ends by its revision what began before it, whatever the clocks say,
/// and by its time what was signed in before it.
#[test]
fn revisions_and_times_decide_together_in_a_remote_store() {
    let event = of(SENDER, BASE);
    let learned = Learned {
        revocation: agent("agent"),
        end: end_at_revision(&event, Revision::new(50)),
        owner: None,
        event: Some(event),
    };
    let mut table = empty();
    table.insert_all(&[learned]);
    #[rustfmt::skip]
    let cases = [
        ("before, by both",                49, BASE,                    true),
        ("before, on a clock ahead",       49, BASE + 60 * SECOND,      true),
        ("before it arrived, and long after it", 49, BASE + 60 * SECOND + 1, false),
        ("after, by the revision",         50, BASE,                    false),
        ("after, on a clock behind",       50, BASE - 59 * SECOND,      false),
        ("of another history",             99, BASE - 60 * SECOND,      true),
    ];
    for (case, revision, time, expected) in cases {
        let issued = IssuedAt::AtRevision(Revision::new(revision), at(time));
        assert_eq!(
            table.has_ended(&Impersonation::by("agent", "session"), issued),
            expected,
            "{case}"
        );
        let revoked = table.has_revoked(&Impersonation::by("agent", "session"), issued);
        assert!(!revoked, "{case}: no operator did");
        assert_eq!(table.event_has_ended(AGENT, issued), expected, "{case}");
    }
}

proptest! {
    /// In whatever order the events of one sender arrive, the table knows the latest, and ends
    /// everything that was issued until it.
    #[test]
    fn events_in_any_order_end_what_the_latest_ends(
        events in prop::collection::vec((0..200_u64, 0..200_u64), 1..12),
        issued in 0..500_u64,
    ) {
        let mut table = empty();
        let mut arrival = 0;
        let mut latest = 0;
        for (event, delay) in events {
            arrival = (arrival + delay).max(event);
            latest = latest.max(event);
            tell(&mut table, &of(SENDER, BASE + event * SECOND), BASE + arrival * SECOND);
        }
        let time = BASE + issued * SECOND;
        if issued <= latest {
            prop_assert!(ended(&table, time));
        }
        if time > BASE + arrival * SECOND || issued > latest + 60 {
            prop_assert!(!ended(&table, time));
        }
        prop_assert_eq!(table.has_event_since(AGENT, at(time)), issued <= latest);
    }
}
