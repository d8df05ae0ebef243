#![expect(clippy::arithmetic_side_effects, reason = "small numbers, in a test")]

use proptest::prelude::*;

use super::format::{ROW, VERSION};
use super::*;
use crate::state::revocations::CallerTag;

const KEY: Key = [7; 16];

fn at(millis: u64) -> UnixTime {
    UnixTime::from_millis(millis)
}

fn end(time: UnixTime) -> End {
    End::at(time)
}

/// A table in which nothing has ended.
fn empty() -> Table {
    Table::new(KEY, at(0))
}

/// Both clocks at the same time.
fn clocks(now: UnixTime) -> Clocks {
    Clocks { now, uptime: u32::try_from(now.secs()).unwrap() }
}

/// An operator's revocation at that time.
fn insert(table: &mut Table, revocation: &Revocation, end: End) -> Option<Overflow> {
    table.insert(revocation, end, None, clocks(end.time))
}

/// An impersonation whose members have very few values, so that revocations match it often.
#[derive(Debug, Clone)]
struct Sample {
    id: String,
    user_id: String,
    actor_id: Option<String>,
    client_id: String,
    caller: Option<String>,
    resource: String,
    session: Option<String>,
}

impl Sample {
    fn impersonation(&self) -> Impersonation<'_> {
        Impersonation {
            id: &self.id,
            user_id: &self.user_id,
            actor_id: self.actor_id.as_deref(),
            client_id: &self.client_id,
            caller: self.caller.as_deref().map(CallerTag::of),
            resource: &self.resource,
            session: self.session.as_deref(),
            actor_since: None,
        }
    }

    /// Returns true if a revocation matches, by comparing member for member.
    fn has_all_of(&self, revocation: &Revocation) -> bool {
        let has = |asked: &Option<String>, own: Option<&String>| match asked {
            Some(asked) => own == Some(asked),
            None => true,
        };
        has(&revocation.id, Some(&self.id))
            && has(&revocation.user_id, Some(&self.user_id))
            && has(&revocation.actor_id, self.actor_id.as_ref())
            && has(&revocation.client_id, Some(&self.client_id))
            && (self.caller.is_none() || has(&revocation.caller, self.caller.as_ref()))
            && has(&revocation.resource, Some(&self.resource))
            && has(&revocation.session, self.session.as_ref())
    }
}

/// Every member draws from the same words, so that a row of one member could be mistaken for a row
/// of another.
fn word() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "ab", ""]).prop_map(str::to_owned)
}

fn sample() -> impl Strategy<Value = Sample> {
    let perhaps = || prop::option::of(word());
    let members = (word(), word(), perhaps(), word(), perhaps(), word(), perhaps());
    members.prop_map(|(id, user_id, actor_id, client_id, caller, resource, session)| Sample {
        id,
        user_id,
        actor_id,
        client_id,
        caller,
        resource,
        session,
    })
}

fn revocation() -> impl Strategy<Value = Revocation> {
    let word = || prop::option::weighted(0.3, word());
    (word(), word(), word(), word(), word(), word(), word()).prop_map(
        |(id, user_id, actor_id, client_id, caller, resource, session)| Revocation {
            id,
            user_id,
            actor_id,
            client_id,
            caller,
            resource,
            session,
        },
    )
}

fn of_user(user: usize) -> Revocation {
    Revocation { user_id: Some(user.to_string()), ..Revocation::default() }
}

fn user(user: usize) -> Sample {
    Sample {
        id: "id".into(),
        user_id: user.to_string(),
        actor_id: None,
        client_id: "client".into(),
        caller: Some("caller".into()),
        resource: "resource".into(),
        session: None,
    }
}

fn ended(table: &Table, sample: &Sample, issued: IssuedAt) -> bool {
    table.has_ended(&sample.impersonation(), issued)
}

proptest! {
    /// The model is a list of all revocations, which is searched from one end to the other.
    #[test]
    fn a_look_up_finds_exactly_what_was_revoked(
        revoked in prop::collection::vec((revocation(), 1_u64..4000), 0..12),
        sample in sample(),
        issued in 1_u64..4000,
        exactly: bool,
    ) {
        let mut table = empty();
        let mut in_order = revoked.clone();
        in_order.sort_by_key(|(_, millis)| *millis);
        for (revocation, millis) in &in_order {
            insert(&mut table, revocation, end(at(*millis)));
            table = Table::decode(&table.encode()).unwrap();
        }
        let issued = if exactly { IssuedAt::At(at(issued)) } else { IssuedAt::Within(issued / 1000) };
        let expected = revoked.iter().any(|(revocation, millis)| {
            sample.has_all_of(revocation) && issued.is_until(end(at(*millis)))
        }) || issued.is_until(end(at(0)));
        let found = ended(&table, &sample, issued);
        // An unknown caller counts as the named one.
        prop_assert!(found == expected || (found && sample.caller.is_none()));
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes: Vec<u8>, head in any::<bool>()) {
        let mut table = if head { empty().encode() } else { Vec::new() };
        table.extend(bytes);
        if let Some(mut table) = Table::decode(&table) {
            let _ = ended(&table, &user(1), IssuedAt::Within(1));
            table.insert(&of_id(1), end(at(1)), Some(&caller("owner")), clocks(at(1)));
            let _ = table.cut_off_for_room(&caller("owner"));
        }
    }

    /// A table that lost a byte could have lost a revocation.
    #[test]
    fn a_cut_table_is_not_read(len in 0_usize..1000) {
        let mut table = empty();
        insert(&mut table, &of_user(1), end(at(5)));
        let bytes = table.encode();
        let cut = &bytes[..len.min(bytes.len() - 1)];
        // A cut between two rows cannot be noticed. It does not happen: shared data keeps values
        // whole.
        prop_assume!(!(bytes.len() - cut.len()).is_multiple_of(ROW));
        prop_assert_eq!(Table::decode(cut), None);
    }
}

/// A table with a row for each user, as it would be if they were added one by one.
fn filled(times: impl Iterator<Item = (usize, UnixTime)>) -> Table {
    let mut table = empty();
    for (user, time) in times {
        let revocation = of_user(user);
        table.rows.push(row(&revocation.name(&KEY), end(time), OPERATORS, 0));
        table.note_kind(revocation.mask(), end(time), 0);
    }
    table.rows.sort_unstable();
    table
}

/// Times come in any order, because clocks are set back.
#[test]
fn a_full_table_ends_more_and_never_less() {
    for seed in [1_u64, 3, 0x9e37_79b9, 4999] {
        let time = |number: usize| at(1 + (number as u64).wrapping_mul(seed) % 5000);
        let mut table = filled((0..MAX_ENTRIES).map(|number| (number, time(number))));
        let all = MAX_ENTRIES + 10;
        let overflowed = (MAX_ENTRIES..all)
            .filter(|number| {
                insert(&mut table, &of_user(*number), end(time(*number))) == Some(Overflow::Table)
            })
            .count();
        assert_eq!(overflowed, 1);
        assert!(table.rows.len() < MAX_ENTRIES);
        for number in 0..all {
            let issued = IssuedAt::At(time(number));
            assert!(table.has_ended(&user(number).impersonation(), issued), "{number}");
        }
        // Other users continue, unless their token was issued before the cut-off.
        let cut_off = table.cut_off.time;
        assert!(at(0) < cut_off && cut_off < at(1000), "{cut_off:?}");
        let after = IssuedAt::At(cut_off.after(Duration::from_millis(1)));
        assert!(!ended(&table, &user(all), after));
    }
}

#[test]
fn a_full_table_turns_its_oldest_rows_into_a_cut_off() {
    let time = |number: usize| at(1000 + number as u64);
    let mut table = filled((0..MAX_ENTRIES).map(|number| (number, time(number))));
    let overflow = insert(&mut table, &of_user(MAX_ENTRIES), end(time(MAX_ENTRIES)));
    assert_eq!(overflow, Some(Overflow::Table));
    assert_eq!(table.cut_off.time, at(1000 + MADE_ROOM as u64));
    assert_eq!(table.rows.len(), MAX_ENTRIES - MADE_ROOM);
    assert!(ended(&table, &user(usize::MAX), IssuedAt::At(table.cut_off.time)));
    assert!(!ended(&table, &user(usize::MAX), IssuedAt::At(at(table.cut_off.time.millis() + 1))));
}

#[test]
fn a_revocation_of_everyone_takes_no_row() {
    let mut table = empty();
    insert(&mut table, &of_user(1), end(at(5)));
    insert(&mut table, &Revocation::default(), end(at(10)));
    assert_eq!((table.rows.len(), table.kinds.len()), (0, 0));
    assert!(ended(&table, &user(1), IssuedAt::At(at(10))));
    assert!(!ended(&table, &user(1), IssuedAt::At(at(11))));
}

/// One clock may be wrong by any time: the other one keeps the row.
#[test]
fn a_row_is_forgotten_when_both_clocks_say_so_and_never_by_another_row() {
    const DAY: u64 = 24 * 3600 * 1000;
    let retention = u64::try_from(RETENTION.as_millis()).unwrap();
    assert_eq!(retention, 2 * DAY + 600_000, "the longest lives that can be configured");
    let made = 10 * DAY;
    #[rustfmt::skip]
    let cases = [
        ("both a moment before",       retention - 1000, retention - 1000, true),
        ("90 minutes ahead",           5_400_000,        60_000,           true),
        ("three days ahead",           3 * DAY,          60_000,           true),
        ("years ahead",                1000 * DAY,       60_000,           true),
        ("set back, after long",       0,                10 * DAY,         true),
        ("only the wall clock",        retention,        retention - 1000, true),
        ("only the other clock",       retention - 1000, retention,        true),
        ("both",                       retention,        retention,        false),
    ];
    for (case, wall, up, kept) in cases {
        let mut table = empty();
        insert(&mut table, &of_user(1), end(at(made)));
        let uptime = clocks(at(made + up)).uptime;
        let later = Clocks { now: at(made + wall), uptime };
        table.insert(&of_user(2), end(at(made + wall)), None, later);
        assert_eq!(ended(&table, &user(1), IssuedAt::At(at(made))), kept, "{case}");
        assert!(ended(&table, &user(2), IssuedAt::At(at(made + wall))), "{case}");
    }
}

/// A repeated revocation must last from its repetition on.
#[test]
fn a_repeated_revocation_makes_its_row_young_again() {
    let mut table = empty();
    let retention = u64::try_from(RETENTION.as_millis()).unwrap();
    insert(&mut table, &of_user(1), end(at(1000)));
    insert(&mut table, &of_user(1), end(at(retention)));
    insert(&mut table, &of_user(2), end(at(retention + 2000)));
    assert!(ended(&table, &user(1), IssuedAt::At(at(retention))));
    insert(&mut table, &of_user(2), end(at(2 * retention + 2000)));
    assert!(!ended(&table, &user(1), IssuedAt::At(at(retention))));
    assert_eq!(table.len(), 1);
}

fn of_id(id: usize) -> Revocation {
    Revocation::of_id(&id.to_string())
}

fn caller(name: &str) -> Owner {
    Owner::Caller(name.into())
}

/// One impersonation of this caller.
fn of_caller(caller: &str, id: usize) -> Sample {
    Sample { id: id.to_string(), caller: Some(caller.into()), ..user(id) }
}

/// The case of 17 195 mints that were each taken back: a caller that does so ends its own
/// impersonations, and nobody else's.
#[test]
fn a_used_up_share_becomes_a_cut_off_for_its_owner_alone() {
    let time = |number: usize| at(1000 + number as u64);
    let all = 17_195;
    // The first ones are added one by one, the others in groups.
    let one_by_one = 3 * SHARE;
    let mut table = empty();
    let hostile = caller("hostile");
    insert(&mut table, &of_user(7), end(at(1)));
    let mut overflows = 0;
    for number in 0..one_by_one {
        let overflow =
            table.insert(&of_id(number), end(time(number)), Some(&hostile), clocks(time(number)));
        assert!(overflow <= Some(Overflow::Share), "{number}");
        overflows += usize::from(overflow.is_some());
        assert!(table.len() <= SHARE + 1, "{number}");
        if number % 501 == 0 {
            table = Table::decode(&table.encode()).unwrap();
        }
    }
    assert!((2..10).contains(&overflows), "each makes room for many: {overflows}");
    let rest: Vec<_> = (one_by_one..all)
        .map(|number| Learned {
            revocation: of_id(number),
            end: end(time(number)),
            owner: Some(hostile.clone()),
            event: None,
        })
        .collect();
    for some in rest.chunks(SHARE / 4) {
        table.insert_all(some);
        assert!(table.len() <= SHARE + 1);
    }
    for number in 0..all {
        let issued = IssuedAt::At(time(number));
        assert!(ended(&table, &of_caller("hostile", number), issued), "{number}");
        assert!(!ended(&table, &of_caller("other", all + 1), issued), "{number}");
    }
    // The younger rows are still told apart: an impersonation that began later continues.
    assert!(!ended(&table, &of_caller("hostile", all + 1), IssuedAt::At(time(all - SHARE / 4))));
    assert!(ended(&table, &user(7), IssuedAt::At(at(1))), "an operator's");
    assert_eq!(table.cut_off, End::default());
}

/// Adds `all` rows, for these owners in turn.
fn fill(table: &mut Table, owners: &[Owner], all: usize) -> Option<Overflow> {
    let numbers: Vec<_> = (0..all).collect();
    let overflows = numbers.chunks(700).map(|numbers| {
        let learned = numbers.iter().map(|number| Learned {
            revocation: of_id(*number),
            end: end(at(1000 + *number as u64)),
            owner: Some(owners[number % owners.len()].clone()),
            event: None,
        });
        let overflow = table.insert_all(&learned.collect::<Vec<_>>());
        assert!(table.len() <= OWNED);
        overflow
    });
    overflows.max().flatten()
}

#[test]
fn all_shares_together_leave_half_of_the_table_to_the_operators() {
    let owner = |number: usize| {
        let name = format!("owner-{number}");
        if number.is_multiple_of(2) { Owner::Caller(name) } else { Owner::Client(name) }
    };
    let owners: Vec<_> = (0..31).map(owner).collect();
    let mut table = empty();
    assert_eq!(fill(&mut table, &owners, MAX_ENTRIES), Some(Overflow::Share));
    let last = at(1000 + MAX_ENTRIES as u64);
    let operators = |users: std::ops::Range<usize>| {
        let learned =
            |user| Learned { revocation: of_user(user), end: end(last), owner: None, event: None };
        users.map(learned).collect::<Vec<_>>()
    };
    assert_eq!(table.insert_all(&operators(0..MAX_ENTRIES - OWNED)), None);
    assert_eq!(table.cut_off, End::default());
    for number in 0..MAX_ENTRIES {
        let name = format!("owner-{}", number % owners.len());
        let mut sample = of_caller(&name, number);
        sample.client_id = name;
        assert!(ended(&table, &sample, IssuedAt::At(at(1000 + number as u64))), "{number}");
    }
    assert!(!ended(&table, &of_caller("other", MAX_ENTRIES), IssuedAt::At(at(1000))));
    // Only the operators' own volume ends the impersonations of everyone.
    let more = operators(MAX_ENTRIES..2 * MAX_ENTRIES);
    assert_eq!(table.insert_all(&more), Some(Overflow::Table));
    assert!(ended(&table, &of_caller("other", MAX_ENTRIES), IssuedAt::At(at(1000))));
}

#[test]
fn the_owner_with_the_most_rows_makes_room() {
    let mut table = empty();
    let small = caller("small");
    table.insert(&of_id(usize::MAX), end(at(1)), Some(&small), clocks(at(1)));
    let large: Vec<_> = (0..9).map(|number| caller(&format!("large-{number}"))).collect();
    assert_eq!(fill(&mut table, &large, 2 * OWNED), Some(Overflow::Share));
    assert!(ended(&table, &of_caller("small", usize::MAX), IssuedAt::At(at(1))));
    let other = of_caller("small", usize::MAX - 1);
    assert!(!ended(&table, &other, IssuedAt::At(at(1))), "another of the same caller");
}

#[test]
fn a_row_that_an_operator_made_too_takes_no_room_of_a_share() {
    let mut table = empty();
    let owner = caller("owner");
    table.insert(&of_id(1), end(at(1)), Some(&owner), clocks(at(1)));
    insert(&mut table, &of_id(1), end(at(2)));
    assert!(table.owner_of(table.rows.first().unwrap()).is_none());
    assert!(ended(&table, &of_caller("x", 1), IssuedAt::At(at(2))));
}

fn at_revision(revision: i64) -> End {
    End { time: at(1), revision: Revision::new(revision) }
}

fn learned(revocation: Revocation, revision: i64, owner: Option<Owner>) -> Learned {
    Learned { revocation, end: at_revision(revision), owner, event: None }
}

#[test]
fn a_copy_takes_what_was_read_and_keeps_later_revocations() {
    let issued = |revision| IssuedAt::AtRevision(Revision::new(revision), at(1));
    let mut copy = empty();
    let owner = Some(caller("owner"));
    copy.insert_all(&[
        learned(of_user(1), 3, None),
        learned(of_user(2), 4, None),
        learned(of_id(5), 5, owner.clone()),
        learned(of_user(6), 9, None),
        learned(of_id(7), 9, owner),
    ]);
    let mut read = copy.emptied();
    read.insert_all(&[learned(of_user(2), 4, None)]);
    assert!(copy.become_what_was_read(read, Revision::new(8)));
    copy = Table::decode(&copy.encode()).unwrap();
    assert!(!ended(&copy, &user(1), issued(2)), "gone from etcd");
    assert!(ended(&copy, &user(2), issued(3)), "still there");
    assert!(!ended(&copy, &of_caller("x", 5), issued(2)), "gone from etcd");
    assert!(ended(&copy, &user(6), issued(8)), "written since");
    assert!(ended(&copy, &of_caller("x", 7), issued(8)), "written since");
    let other = Table::new([9; 16], at(0));
    assert!(!copy.become_what_was_read(other, Revision::new(99)), "of other names");
}

#[test]
fn an_owners_cut_off_replaces_the_rows_that_it_covers() {
    let owner = caller("owner");
    let mut copy = empty();
    let own = |id: usize| learned(of_id(id), id as i64, Some(owner.clone()));
    copy.insert_all(&(1..=20).map(own).collect::<Vec<_>>());
    copy.insert_all(&[learned(of_user(1), 2, None)]);
    copy.insert_all(&[learned(owner.everything(), 15, Some(owner.clone()))]);
    assert_eq!(copy.len(), 7, "the cut-off, five that are later, and the operator's");
    for id in 1..=20 {
        let issued = IssuedAt::AtRevision(Revision::new(id - 1), at(1));
        assert!(ended(&copy, &of_caller("owner", id as usize), issued), "{id}");
    }
}

#[test]
fn a_token_with_a_time_in_seconds_ends_with_the_whole_second_of_a_revocation() {
    let mut table = empty();
    insert(&mut table, &of_user(1), end(at(5_400)));
    #[rustfmt::skip]
    let cases = [
        ("the second before",      IssuedAt::Within(4),     true),
        ("the same second",        IssuedAt::Within(5),     true),
        ("the second after",       IssuedAt::Within(6),     false),
        ("the same millisecond",   IssuedAt::At(at(5_400)), true),
        ("the millisecond after",  IssuedAt::At(at(5_401)), false),
    ];
    for (case, issued, expected) in cases {
        assert_eq!(ended(&table, &user(1), issued), expected, "{case}");
    }
}

#[test]
fn a_table_of_another_format_or_out_of_order_is_not_read() {
    let mut table = empty();
    insert(&mut table, &of_user(1), end(at(5)));
    insert(&mut table, &of_user(2), end(at(5)));
    let bytes = table.encode();
    assert_eq!(Table::decode(&bytes).as_ref(), Some(&table));
    let mut other = bytes.clone();
    other[0] = VERSION + 1;
    assert_eq!(Table::decode(&other), None);
    table.rows.reverse();
    assert_eq!(Table::decode(&table.encode()), None);
}
