//! The memory that turns over: for ids to which it does no harm that they are forgotten.

use std::time::Duration;

use super::*;
use crate::fakes::{FakeHost, START};

const DAY: Duration = Duration::from_secs(86_400);

fn memory() -> SeenOnce {
    SeenOnce::new("tenant", "event")
}

/// The number of buckets, and their length together. The secret is no bucket.
fn bytes_of(host: &FakeHost) -> (usize, usize) {
    let stored: Vec<_> = host.stored().into_iter().filter(is_bucket).collect();
    (stored.len(), stored.iter().map(|(_, bytes)| bytes.len()).sum())
}

fn is_bucket((key, _): &(String, Vec<u8>)) -> bool {
    !key.contains("secret")
}

/// A sender cannot fill the memory: it forgets the oldest ids, and always knows the latest.
#[test]
fn the_memory_stays_flat_when_it_turns_over_and_knows_the_latest() {
    // Three times as many as there is room for. `make race-events` sends a million.
    const ALL: u32 = 400_000;
    let (host, memory) = (FakeHost::default(), memory());
    let mut filled = None;
    for number in 0..ALL {
        host.advance(Duration::from_millis(1));
        let id = number.to_le_bytes();
        memory.remember(&host, &id, host.now().after(DAY)).unwrap();
        if number % 9973 == 0 {
            assert_eq!(memory.has(&host, &id), Ok(true), "{number}");
        }
        if number == ALL / 2 {
            filled = Some(bytes_of(&host));
        }
    }
    let most = usize::try_from(BUCKETS).unwrap() * ROOM * ENTRY;
    assert_eq!(bytes_of(&host), filled.unwrap(), "it has grown");
    assert_eq!(bytes_of(&host), (usize::try_from(BUCKETS).unwrap(), most));
    assert_eq!(memory.has(&host, &0_u32.to_le_bytes()), Ok(false), "it has turned over");
    assert_eq!(memory.has(&host, &(ALL - 1).to_le_bytes()), Ok(true));
}

#[test]
fn an_id_is_known_until_its_time_and_a_repetition_takes_no_room() {
    let (host, memory) = (FakeHost::default(), memory());
    assert_eq!(memory.has(&host, b"id"), Ok(false));
    for _ in 0..3 {
        memory.remember(&host, b"id", host.now().after(DAY)).unwrap();
    }
    assert_eq!(bytes_of(&host), (1, ENTRY));
    host.advance(DAY.saturating_sub(Duration::from_millis(1)));
    assert_eq!(memory.has(&host, b"id"), Ok(true));
    host.advance(Duration::from_millis(1));
    assert_eq!(memory.has(&host, b"id"), Ok(false));
    assert_eq!(host.now(), START.after(DAY));
}

/// An owner gets half of what the others leave, so a flood leaves room for everybody else.
#[test]
fn each_owner_has_a_share_of_each_bucket() {
    let host = FakeHost::default();
    let memory = SeenOnce::with_buckets("tenant", "proof", 1);
    let until = host.now().after(DAY);
    let first = |owner: &str, number: u32| {
        let id = [owner.as_bytes(), &number.to_le_bytes()].concat();
        memory.first_time(&host, owner.as_bytes(), &id, until)
    };
    let flood = |owner: &str| (0..100).take_while(|it| first(owner, *it) == Ok(true)).count();
    assert_eq!(["a", "b", "c", "d", "e", "f", "g", "h"].map(flood), [32, 16, 8, 4, 2, 1, 1, 0]);
    assert_eq!(first("a", 100), Err(NotRemembered::Full));
    assert_eq!(first("a", 0), Ok(false), "it is remembered");
    host.advance(DAY);
    let until = host.now().after(DAY);
    assert_eq!(memory.first_time(&host, b"a", b"new", until), Ok(true), "there is room again");
}

#[test]
fn a_bucket_in_another_format_and_a_failure_are_errors() {
    let (host, memory) = (FakeHost::default(), memory());
    memory.remember(&host, b"id", host.now().after(DAY)).unwrap();
    let (key, _) = host.stored().into_iter().find(is_bucket).unwrap();
    host.overwrite(&key, b"odd");
    assert_eq!(memory.has(&host, b"id"), Err(UNREADABLE.into()));
    assert_eq!(memory.remember(&host, b"id", host.now().after(DAY)), Err(UNREADABLE.into()));
    host.fail_shared_data(0);
    assert!(matches!(memory.has(&host, b"other"), Err(NotRemembered::Host(_))));
}
