//! The shares of senders and persons: a flood ends more of the same people's work, never less, and
//! nothing of anybody else's.

#![expect(clippy::arithmetic_side_effects, reason = "small numbers, in a test")]

use proptest::prelude::*;

use super::*;
use crate::state::revocations::People;
use crate::state::revocations::entry::Learned;
use crate::state::revocations::table::{Clocks, Overflow, Told};

/// A time that no test reaches back from.
const BASE: u64 = 1_000_000;
const DAY: Duration = Duration::from_secs(86_400);
const OWN: &str = "https://auth.example.com";
const PARTNER: &str = "https://partner.example.com";
/// The flood of the attack.
const FLOOD: u64 = 8400;

fn at(millis: u64) -> UnixTime {
    UnixTime::from_millis(millis)
}

fn empty() -> Table {
    Table::new([7; 16], at(0))
}

fn clocks(now: u64) -> Clocks {
    Clocks { now: at(now), uptime: u32::try_from(now / 1000).unwrap() }
}

/// An event of this sender, about people of the two issuers `""` and `p:`.
fn of(sender: &str, name: &str, millis: u64) -> Happened {
    let people = People::of(name, ["", "p:"].into_iter());
    let is_own = (sender == PARTNER) == name.starts_with("p:");
    let whose = if is_own { Whose::Own } else { Whose::Others };
    Happened { people, whose, ..Happened::new(sender, millis, DAY) }
}

fn actor(name: &str) -> Revocation {
    Revocation::of_actor(name)
}

fn user(name: &str) -> Revocation {
    Revocation { user_id: Some(name.to_owned()), ..Revocation::default() }
}

/// The end of one session, and whose session the sender says it was.
fn logout(sender: &str, person: &str, sid: &str, millis: u64) -> (Revocation, Happened) {
    let session = Revocation { session: Some(sid.to_owned()), ..Revocation::default() };
    (session, Happened { person: Some(person.to_owned()), ..of(sender, person, millis) })
}

fn tell(table: &mut Table, (revocation, happened): &(Revocation, Happened)) -> Told {
    let told = table.open_event(revocation, happened, clocks(happened.at_millis));
    table.close_event(revocation, happened, happened.at());
    told
}

fn ended(table: &Table, actor: &str, sid: &str, issued: u64) -> bool {
    table.has_ended(&Impersonation::by(actor, sid), IssuedAt::At(at(issued)))
}

#[test]
fn one_accounts_logouts_end_only_its_own_work() {
    let mut table = empty();
    for number in 0..FLOOD {
        let logout = logout(OWN, "flooder", &format!("s-{number}"), BASE + number);
        assert_eq!(tell(&mut table, &logout), Told::News(None), "{number}");
        assert!(table.len() <= OF_PERSON + 1, "{number}");
    }
    table = Table::decode(&table.encode()).unwrap();
    for number in [0, 1, FLOOD / 2, FLOOD - 1] {
        let (sid, event) = (format!("s-{number}"), BASE + number);
        assert!(ended(&table, "flooder", &sid, event), "{number}");
        let actor = Concerned { actor_id: Some("flooder"), session: Some(&sid), user_id: None };
        assert!(table.has_event_since(actor, at(event)), "{number}");
        assert_eq!(tell(&mut table, &logout(OWN, "flooder", &sid, event)), Told::OldNews);
    }
    assert!(ended(&table, "flooder", "another", BASE), "more of their work");
    assert!(!ended(&table, "agent", "s", BASE) && !ended(&table, "p:agent", "p:s", BASE));
    assert!(!ended(&table, "flooder", "another", BASE + FLOOD), "the next sign-in");
}

#[test]
fn a_senders_flood_ends_only_its_own_peoples_work() {
    let mut table = empty();
    let session = logout(OWN, "agent", "over", BASE);
    tell(&mut table, &session);
    let mut overflows = 0;
    for number in 0..FLOOD {
        let name = format!("p:nobody-{number}");
        let event = (actor(&name), of(PARTNER, &name, BASE + number));
        let told = tell(&mut table, &event);
        assert_ne!(told, Told::OldNews, "{number}");
        overflows += usize::from(told == Told::News(Some(Overflow::Events)));
        assert!(table.len() <= OF_SOURCE + 1, "{number}");
    }
    assert!(overflows > 2, "{overflows}");
    table = Table::decode(&table.encode()).unwrap();
    for number in [0, 1, FLOOD / 2, FLOOD - 1] {
        let name = format!("p:nobody-{number}");
        assert!(ended(&table, &name, "p:s", BASE + number), "{number}");
        let event = (actor(&name), of(PARTNER, &name, BASE + number));
        assert_eq!(tell(&mut table, &event), Told::OldNews, "{number}");
    }
    assert!(ended(&table, "p:agent", "p:s", BASE), "the partner's own people");
    assert!(!ended(&table, "p:agent", "p:s", BASE + FLOOD), "the next sign-in");
    assert!(ended(&table, "agent", "over", BASE) && !ended(&table, "agent", "other", BASE));
    assert!(!ended(&table, "agent-2", "s", BASE) && !ended(&table, "agent-2", "s", 1));
    let no_actor = Impersonation { actor_id: None, session: None, ..Impersonation::by("", "") };
    assert!(!table.has_ended(&no_actor, IssuedAt::At(at(BASE))));
    assert_eq!(tell(&mut table, &session), Told::OldNews);
}

/// Events about users end what anybody does in these users' names, and nothing else.
#[test]
fn a_flood_about_users_ends_what_is_done_in_the_names_of_the_senders_people() {
    let mut table = empty();
    for number in 0..FLOOD {
        let name = format!("p:customer-{number}");
        tell(&mut table, &(user(&name), of(PARTNER, &name, BASE + number)));
    }
    let of_user = |user_id| Impersonation { user_id, ..Impersonation::by("agent", "s") };
    let has_ended = |user| table.has_ended(&of_user(user), IssuedAt::At(at(BASE)));
    assert!(has_ended("p:customer-0") && has_ended("p:customer-8399") && has_ended("p:other"));
    assert!(!has_ended("user") && !ended(&table, "p:agent", "p:s", BASE));
}

/// A cut-off would end what another issuer's people do. The sender is refused, and only about them.
#[test]
fn a_sender_has_a_bounded_share_for_another_issuers_people() {
    let mut table = empty();
    let about = |sender, name: String| (actor(&name), of(sender, &name, BASE));
    for number in 0..OF_OTHERS {
        let event = about(PARTNER, format!("nobody-{number}"));
        assert!(!table.has_no_room_for(&event.0, &event.1), "{number}");
        assert_eq!(tell(&mut table, &event), Told::News(None), "{number}");
    }
    for (case, event, has_room) in [
        ("one more", about(PARTNER, "nobody".into()), false),
        ("one that is there", about(PARTNER, "nobody-0".into()), true),
        ("the sender's own person", about(PARTNER, "p:agent".into()), true),
        ("their issuer", about(OWN, "nobody".into()), true),
        ("their issuer, about another's", about(OWN, "p:agent".into()), true),
    ] {
        assert_eq!(!table.has_no_room_for(&event.0, &event.1), has_room, "{case}");
    }
    assert!(ended(&table, "nobody-0", "s", BASE) && !ended(&table, "agent", "s", BASE));
}

#[test]
fn a_source_with_no_more_than_its_part_makes_no_room_for_others() {
    let mut table = empty();
    let senders = ["", "p:", "q:"];
    let event = |sender: &str, name: String, number| {
        let people = People::of(&name, senders.into_iter());
        (actor(&name), Happened { people, ..Happened::new(sender, BASE + number, DAY) })
    };
    for number in 0..80 {
        tell(&mut table, &event("small", format!("agent-{number}"), number));
    }
    for number in 0..1000 {
        tell(&mut table, &event("p", format!("p:{number}"), number));
        tell(&mut table, &event("q", format!("q:{number}"), number));
        assert!(table.len() <= EVENTS + 1, "{number}");
    }
    assert!(ended(&table, "agent-79", "s", BASE) && !ended(&table, "other", "s", BASE));
}

#[test]
fn an_event_is_forgotten_when_both_clocks_say_so_and_so_is_its_cut_off() {
    let day = u64::try_from(DAY.as_millis()).unwrap();
    let flood = || {
        let mut table = empty();
        for number in 0..2 * OF_SOURCE {
            let name = format!("agent-{number}");
            tell(&mut table, &(actor(&name), of(OWN, &name, BASE)));
        }
        table
    };
    for (case, wall, up, kept) in [
        ("both a minute before", day - 60_000, day - 60_000, true),
        ("the wall clock alone", 9 * day, day - 60_000, true),
        ("the uptime alone", day - 60_000, 9 * day, true),
        ("both", day + 60_000, day + 60_000, false),
    ] {
        let mut table = flood();
        let clocks = Clocks { now: at(BASE + wall), uptime: clocks(BASE + up).uptime };
        table.open_event(&actor("p:x"), &of(PARTNER, "p:x", BASE + wall), clocks);
        for name in ["agent-0", "agent-255", "never-named"] {
            assert_eq!(ended(&table, name, "s", BASE), kept, "{case} {name}");
        }
        assert!(ended(&table, "p:x", "s", BASE + wall), "{case}");
        assert_eq!(table.sources.len(), if kept { 2 } else { 1 }, "{case}");
    }
}

/// One of the events that a random sender tells.
fn told() -> impl Strategy<Value = (Revocation, Happened)> {
    (0..4_u8, 0..2_u8, 0..150_u32, 0..40_u32).prop_map(|(kind, sender, number, time)| {
        let (sender, prefix) = [(OWN, ""), (PARTNER, "p:")][usize::from(sender)];
        let (name, millis) = (format!("{prefix}{number}"), BASE + 50 * u64::from(time));
        match kind {
            0 => (actor(&name), of(sender, &name, millis)),
            1 => (user(&name), of(sender, &name, millis)),
            2 => logout(sender, &format!("{prefix}{}", number % 3), &name, millis),
            _ => {
                let session = Some(format!("{prefix}s-{number}"));
                let both = Revocation { session, ..actor(&format!("{prefix}{}", number % 3)) };
                (both, of(sender, &name, millis))
            }
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// The model is a list of all events. In one Envoy, and in a copy that learns them in groups,
    /// the table ends all that the events ended. It ends nothing of an issuer of whose people
    /// nothing was told.
    #[test]
    fn no_order_of_events_ends_less(
        events in prop::collection::vec(told(), 200..500),
        group in 1_usize..200,
    ) {
        let (mut table, mut copy) = (empty(), empty());
        let mut arrival = BASE;
        for (revocation, happened) in &events {
            arrival = arrival.max(happened.at_millis);
            table.open_event(revocation, happened, clocks(arrival));
            table.close_event(revocation, happened, at(arrival));
        }
        let learned = |(revocation, happened): &(Revocation, Happened)| Learned {
            revocation: revocation.clone(),
            end: super::super::end_at_revision(happened, Revision::default()),
            owner: None,
            event: Some(happened.clone()),
        };
        for group in events.chunks(group) {
            copy.insert_all(&group.iter().map(learned).collect::<Vec<_>>());
        }
        for table in [Table::decode(&table.encode()).unwrap(), copy] {
            for (revocation, happened) in &events {
                let Revocation { actor_id, user_id, session, .. } = revocation;
                let person = actor_id.as_deref().or(happened.person.as_deref());
                let named = Impersonation {
                    user_id: user_id.as_deref().unwrap_or("user"),
                    actor_id: person.or(Some("x:actor")),
                    session: session.as_deref(),
                    ..Impersonation::by("", "")
                };
                let issued = IssuedAt::At(happened.at());
                prop_assert!(table.has_ended(&named, issued), "{revocation:?} {happened:?}");
                if user_id.is_none() {
                    let since = Impersonation { actor_since: Some(happened.at()), ..named };
                    let late = IssuedAt::At(at(arrival + 3_600_000));
                    prop_assert!(table.has_ended(&since, late), "{revocation:?}");
                }
            }
            prop_assert!(table.rows.len() <= MOST_IN_COPY.of_all);
        }
    }
}
