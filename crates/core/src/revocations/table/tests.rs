#![expect(clippy::arithmetic_side_effects, reason = "small numbers, in a test")]

use proptest::prelude::*;

use super::*;
use crate::revocations::CallerTag;

const KEY: Key = [7; 16];
const HOUR: Duration = Duration::from_secs(3600);

fn at(millis: u64) -> UnixTime {
    UnixTime::from_millis(millis)
}

fn end(time: UnixTime) -> End {
    End::at(time)
}

/// A table in which nothing has ended.
fn empty() -> Table {
    let mut table = Table::new(KEY, at(0));
    table.keep_for(HOUR);
    table
}

/// An impersonation among very few of each kind, so that they meet.
#[derive(Debug, Clone)]
struct Sample {
    id: String,
    user_id: String,
    actor_id: Option<String>,
    client_id: String,
    caller: Option<String>,
    resource: String,
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
        }
    }

    /// What a revocation says, read literally.
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
    }
}

/// The same words for every member: an entry of one must not be found as one of another.
fn word() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "ab", ""]).prop_map(str::to_owned)
}

fn sample() -> impl Strategy<Value = Sample> {
    let members =
        (word(), word(), prop::option::of(word()), word(), prop::option::of(word()), word());
    members.prop_map(|(id, user_id, actor_id, client_id, caller, resource)| Sample {
        id,
        user_id,
        actor_id,
        client_id,
        caller,
        resource,
    })
}

fn revocation() -> impl Strategy<Value = Revocation> {
    let word = || prop::option::weighted(0.3, word());
    (word(), word(), word(), word(), word(), word()).prop_map(
        |(id, user_id, actor_id, client_id, caller, resource)| Revocation {
            id,
            user_id,
            actor_id,
            client_id,
            caller,
            resource,
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
    }
}

fn ended(table: &Table, sample: &Sample, issued: Issued) -> bool {
    table.has_ended(&sample.impersonation(), issued)
}

proptest! {
    /// By a list of all revocations that is read from one end to the other.
    #[test]
    fn what_a_look_up_finds_is_what_was_revoked(
        revoked in prop::collection::vec((revocation(), 1_u64..4000), 0..12),
        sample in sample(),
        issued in 1_u64..4000,
        exactly: bool,
    ) {
        let mut table = empty();
        let mut in_order = revoked.clone();
        in_order.sort_by_key(|(_, millis)| *millis);
        for (revocation, millis) in &in_order {
            table.insert(revocation, end(at(*millis)));
            table = Table::decode(&table.encode()).unwrap();
        }
        let issued = if exactly { Issued::At(at(issued)) } else { Issued::Within(issued / 1000) };
        let expected = revoked.iter().any(|(revocation, millis)| {
            sample.has_all_of(revocation) && issued.is_until(end(at(*millis)))
        }) || issued.is_until(end(at(0)));
        let found = ended(&table, &sample, issued);
        // A caller that is not known counts as the one that is meant, whatever else is asked for.
        prop_assert!(found == expected || (found && sample.caller.is_none()));
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes: Vec<u8>, head in any::<bool>()) {
        let mut table = if head { empty().encode() } else { Vec::new() };
        table.extend(bytes);
        if let Some(table) = Table::decode(&table) {
            let _ = ended(&table, &user(1), Issued::Within(1));
        }
    }

    /// A table that lost a byte could have lost a revocation.
    #[test]
    fn a_cut_table_is_never_read_as_one_with_less_in_its_head(len in 0_usize..1000) {
        let mut table = empty();
        table.insert(&of_user(1), end(at(5)));
        let bytes = table.encode();
        let cut = &bytes[..len.min(bytes.len() - 1)];
        // Between two entries it cannot be known: shared data has a value or has it not.
        prop_assume!(!(bytes.len() - cut.len()).is_multiple_of(ENTRY));
        prop_assert_eq!(Table::decode(cut), None);
    }
}

/// A table with an entry for each of so many users, as one by one they would have made it.
fn filled(times: impl Iterator<Item = (usize, UnixTime)>) -> Table {
    let mut table = empty();
    for (user, time) in times {
        let revocation = of_user(user);
        table.entries.push(entry(&revocation.name(&KEY), end(time)));
        match table.kinds.first_mut() {
            Some((_, last)) => *last = end(time).max(*last),
            None => table.kinds.push((revocation.mask(), end(time))),
        }
    }
    table.entries.sort_unstable();
    table
}

/// In whatever order times come, as clocks are set back.
#[test]
fn a_full_table_ends_more_and_never_less() {
    for seed in [1_u64, 3, 0x9e37_79b9, 4999] {
        let time = |number: usize| at(1 + (number as u64).wrapping_mul(seed) % 5000);
        let mut table = filled((0..MAX_ENTRIES).map(|number| (number, time(number))));
        let all = MAX_ENTRIES + 10;
        let overflowed = (MAX_ENTRIES..all)
            .filter(|number| table.insert(&of_user(*number), end(time(*number))))
            .count();
        assert_eq!(overflowed, 1);
        assert!(table.entries.len() < MAX_ENTRIES);
        for number in 0..all {
            let issued = Issued::At(time(number));
            assert!(table.has_ended(&user(number).impersonation(), issued), "{number}");
        }
        // Others go on, but for those whose time came before the cut-off.
        let cut_off = table.cut_off.time;
        assert!(at(0) < cut_off && cut_off < at(1000), "{cut_off:?}");
        let after = Issued::At(cut_off.after(Duration::from_millis(1)));
        assert!(!ended(&table, &user(all), after));
    }
}

#[test]
fn the_oldest_are_the_ones_that_become_a_cut_off() {
    let time = |number: usize| at(1000 + number as u64);
    let mut table = filled((0..MAX_ENTRIES).map(|number| (number, time(number))));
    assert!(table.insert(&of_user(MAX_ENTRIES), end(time(MAX_ENTRIES))));
    assert_eq!(table.cut_off.time, at(1000 + MADE_ROOM as u64));
    assert_eq!(table.entries.len(), MAX_ENTRIES - MADE_ROOM);
    assert!(ended(&table, &user(usize::MAX), Issued::At(table.cut_off.time)));
    assert!(!ended(&table, &user(usize::MAX), Issued::At(at(table.cut_off.time.millis() + 1))));
}

#[test]
fn a_revocation_of_everyone_takes_no_entry() {
    let mut table = empty();
    table.insert(&of_user(1), end(at(5)));
    table.insert(&Revocation::default(), end(at(10)));
    assert_eq!((table.entries.len(), table.kinds.len()), (0, 0));
    assert!(ended(&table, &user(1), Issued::At(at(10))));
    assert!(!ended(&table, &user(1), Issued::At(at(11))));
}

#[test]
fn an_entry_is_kept_for_as_long_as_anybody_wants() {
    let mut table = empty();
    assert!(!table.keep_for(HOUR / 2), "a shorter lifetime says nothing of what was issued before");
    table.insert(&of_user(1), end(at(1000)));
    let hour = 3_600_000;
    table.insert(&of_user(2), end(at(1000 + hour - 1)));
    assert_eq!(table.entries.len(), 2);
    table.insert(&of_user(2), end(at(1000 + hour)));
    assert_eq!(table.entries.len(), 1);
    assert!(ended(&table, &user(2), Issued::At(at(1000 + hour))));
}

#[test]
fn what_was_issued_in_the_second_of_a_revocation_has_ended_if_no_more_is_known() {
    let mut table = empty();
    table.insert(&of_user(1), end(at(5_400)));
    #[rustfmt::skip]
    let cases = [
        ("the second before",      Issued::Within(4),     true),
        ("the same second",        Issued::Within(5),     true),
        ("the second after",       Issued::Within(6),     false),
        ("the same millisecond",   Issued::At(at(5_400)), true),
        ("the millisecond after",  Issued::At(at(5_401)), false),
    ];
    for (case, issued, expected) in cases {
        assert_eq!(ended(&table, &user(1), issued), expected, "{case}");
    }
}

#[test]
fn a_table_of_another_format_or_out_of_order_is_not_read() {
    let mut table = empty();
    table.insert(&of_user(1), end(at(5)));
    table.insert(&of_user(2), end(at(5)));
    let bytes = table.encode();
    assert_eq!(Table::decode(&bytes).as_ref(), Some(&table));
    let mut other = bytes.clone();
    other[0] = VERSION + 1;
    assert_eq!(Table::decode(&other), None);
    table.entries.reverse();
    assert_eq!(Table::decode(&table.encode()), None);
}

/// As the version before wrote it: times of eight bytes, and no revisions.
#[test]
fn a_table_of_the_format_before_has_ended_what_it_had() {
    let revocation = of_user(1);
    let mut bytes = vec![1];
    bytes.extend(7_u64.to_be_bytes());
    bytes.extend(KEY);
    bytes.extend(3_u64.to_be_bytes());
    bytes.extend(3_600_000_u64.to_be_bytes());
    bytes.extend([1, revocation.mask()]);
    bytes.extend(5_u64.to_be_bytes());
    let head = bytes.clone();
    bytes.extend(revocation.name(&KEY));
    bytes.extend(5_u64.to_be_bytes());
    let table = Table::decode(&bytes).unwrap();
    let mut expected = empty();
    expected.sequence = 7;
    expected.cut_off(end(at(3)));
    expected.insert(&revocation, end(at(5)));
    assert_eq!(table, expected);
    assert!(
        ended(&table, &user(1), Issued::At(at(5))) && !ended(&table, &user(2), Issued::At(at(5)))
    );
    for len in head.len() + 1..bytes.len() {
        assert_eq!(Table::decode(&bytes[..len]), None);
    }
}
