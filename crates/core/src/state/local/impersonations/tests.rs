#![expect(clippy::arithmetic_side_effects, reason = "small numbers, in a test")]

use std::rc::Rc;

use proptest::prelude::*;

use super::*;
use crate::fakes::{FakeHost, START};
use crate::state::storage::List;
use crate::step::{Step, Task};

const HOUR: Duration = Duration::from_secs(3600);

fn list(capacity: u32) -> LocalList {
    LocalList::new("tenant", capacity, HOUR)
}

fn entry(number: usize, expires_at: UnixTime) -> LiveImpersonation {
    LiveImpersonation {
        id: format!("{number:024x}"),
        user_id: "user".into(),
        actor_id: Some("agent".into()),
        client_id: "client".into(),
        caller: "caller".into(),
        resource: "https://api.example.com/orders".into(),
        session: None,
        scope: "orders:read".into(),
        jti: "jti".into(),
        context: Vec::new(),
        issued_at_millis: START.millis(),
        expires_at_millis: expires_at.millis(),
    }
}

/// Reads all pages, one after the other.
fn walk(world: &FakeHost, list: &LocalList, limit: usize) -> Vec<LiveImpersonation> {
    let (mut all, mut place) = (Vec::new(), None);
    loop {
        let page = list.page(world, place, limit, |_| true).unwrap();
        assert!(page.entries.len() <= limit);
        all.extend(page.entries);
        let Some(next) = page.next else { return all };
        place = Some(Place::parse(&next.to_text()).unwrap());
    }
}

#[test]
fn every_page_goes_on_where_the_one_before_ended() {
    let (world, list) = (FakeHost::default(), list(64));
    list.create_if_missing(&world).unwrap();
    let entries: Vec<_> = (0..64).map(|number| entry(number, START.after(HOUR))).collect();
    for entry in &entries {
        assert_eq!(list.insert(&world, entry), Ok(Listed::Yes));
        assert_eq!(list.find(&world, &entry.id), Ok(Some(entry.clone())));
    }
    for limit in [1, 2, 7, 63, 64, 65] {
        let mut found = walk(&world, &list, limit);
        found.sort_by(|one, other| one.id.cmp(&other.id));
        assert_eq!(found, entries, "{limit}");
    }
    assert_eq!(list.is_complete(&world), Ok(true));
}

#[test]
fn a_list_as_large_as_the_default_is_one_page() {
    let (world, list) = (FakeHost::default(), list(65_536));
    list.insert(&world, &entry(1, START.after(HOUR))).map(|_| ()).unwrap();
    let page = list.page(&world, None, 10, |_| true).unwrap();
    assert_eq!((page.entries.len(), page.next), (1, None));
}

/// Looks through the whole list, and calls `meanwhile` for each impersonation.
fn seen(world: &Rc<FakeHost>, capacity: u32, meanwhile: fn(&FakeHost)) -> (usize, bool) {
    let host: Rc<dyn Host> = Rc::clone(world) as Rc<dyn Host>;
    let (world, list) = (Rc::clone(world), List::shared_data("tenant", capacity, HOUR));
    let step = Task::start(host, None, |context| async move {
        let mut count = 0;
        let look = list.look_through(&context, |_| {
            count += 1;
            meanwhile(&world);
        });
        let complete = look.await.unwrap();
        (count, complete)
    });
    let Step::Done(seen) = step else { panic!("shared data needs no call") };
    seen
}

#[test]
fn looking_through_the_list_stops_after_half_a_second() {
    const LARGE: u32 = 3 * BUCKETS_TO_A_PAGE * LOAD;
    let world = Rc::new(FakeHost::default());
    list(LARGE).create_if_missing(&*world).unwrap();
    for number in 0..300 {
        let inserted = list(LARGE).insert(&*world, &entry(number, START.after(HOUR)));
        assert_eq!(inserted, Ok(Listed::Yes));
    }
    assert_eq!(seen(&world, LARGE, |_| {}), (300, true));
    let (count, complete) = seen(&world, LARGE, |world| {
        world.now.set(world.now.get().after(Duration::from_millis(10)));
    });
    assert!((1..300).contains(&count) && !complete, "{count}");
    // The default list is one page, and a page is always read whole.
    world.now.set(START);
    let small = Rc::new(FakeHost::default());
    list(65_536).create_if_missing(&*small).unwrap();
    list(65_536).insert(&*small, &entry(1, START.after(HOUR))).map(|_| ()).unwrap();
    let slow = |world: &FakeHost| world.now.set(world.now.get().after(Duration::from_secs(9)));
    assert_eq!(seen(&small, 65_536, slow), (1, true));
}

#[test]
fn a_list_that_lacks_one_is_not_looked_through_whole() {
    let world = Rc::new(FakeHost::default());
    list(1).create_if_missing(&*world).unwrap();
    for number in 0..2 {
        list(1).insert(&*world, &entry(number, START.after(HOUR))).map(|_| ()).unwrap();
    }
    assert_eq!(seen(&world, 1, |_| {}), (1, false));
}

#[test]
fn a_full_list_is_incomplete_until_the_missing_impersonation_has_expired() {
    for capacity in [1, 2, 16] {
        let (world, list) = (FakeHost::default(), list(capacity));
        list.create_if_missing(&world).unwrap();
        for number in 0..capacity as usize {
            let listed = list.insert(&world, &entry(number, START.after(HOUR))).unwrap();
            assert_eq!(listed, Listed::Yes);
        }
        assert_eq!(list.is_complete(&world), Ok(true));
        let late = entry(99, START.after(HOUR * 2));
        assert_eq!(list.insert(&world, &late), Ok(Listed::NoRoom));
        assert_eq!(list.is_complete(&world), Ok(false));
        // The list has room again before it is complete again.
        world.now.set(START.after(HOUR));
        assert_eq!(list.insert(&world, &entry(100, START.after(HOUR * 3))), Ok(Listed::Yes));
        assert_eq!(list.is_complete(&world), Ok(false));
        world.now.set(START.after(HOUR * 2));
        assert_eq!(list.is_complete(&world), Ok(true));
        assert_eq!(walk(&world, &list, 10).len(), 1);
    }
}

#[test]
fn what_has_expired_is_neither_listed_nor_found_nor_kept() {
    let (world, list) = (FakeHost::default(), list(1));
    list.insert(&world, &entry(1, START.after(HOUR))).map(|_| ()).unwrap();
    world.now.set(START.after(HOUR));
    assert_eq!(walk(&world, &list, 10), []);
    assert_eq!(list.find(&world, &entry(1, START).id), Ok(None));
    assert_eq!(list.insert(&world, &entry(2, START.after(HOUR * 2))), Ok(Listed::Yes));
}

#[test]
fn who_never_wins_a_write_goes_on_unlisted() {
    let (world, list) = (FakeHost::default(), list(16));
    list.create_if_missing(&world).unwrap();
    world.lost_writes.set(ATTEMPTS);
    assert_eq!(list.insert(&world, &entry(1, START.after(HOUR))), Ok(Listed::NoRoom));
    assert_eq!(list.is_complete(&world), Ok(false));
}

#[test]
fn another_size_is_not_complete_until_the_longest_has_expired() {
    let world = FakeHost::default();
    list(64).create_if_missing(&world).unwrap();
    list(64).create_if_missing(&world).unwrap();
    assert_eq!(list(64).is_complete(&world), Ok(true));
    list(32).create_if_missing(&world).unwrap();
    assert_eq!(list(32).is_complete(&world), Ok(false));
    world.now.set(START.after(HOUR));
    assert_eq!(list(32).is_complete(&world), Ok(true));
}

/// docs/operations.md promises this.
#[test]
fn a_full_list_of_the_default_size_drops_less_than_one_in_a_hundred() {
    let (world, list) = (FakeHost::default(), list(65_536));
    let dropped = (0..65_536)
        .filter(|number| {
            let listed = list.insert(&world, &entry(*number, START.after(HOUR))).unwrap();
            listed == Listed::NoRoom
        })
        .count();
    assert!(dropped < 655, "{dropped}");
    let bytes: usize = world.stored().iter().map(|(_, bytes)| bytes.len()).sum();
    assert!(bytes < 65_536 * 250, "{bytes}");
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(bytes: Vec<u8>, head: bool) {
        let mut bucket = if head { Bucket::default().encode() } else { Vec::new() };
        bucket.extend(bytes);
        if let Some(bucket) = Bucket::decode(&bucket) {
            prop_assert!(bucket.entries().len() <= bucket.len());
        }
    }

    #[test]
    fn an_entry_is_read_back(user_id in "\\PC{1,255}", actor_id in prop::option::of("\\PC{1,255}"), scope: String, expires: u64) {
        let entry = LiveImpersonation { user_id, actor_id, scope, ..entry(1, UnixTime::from_millis(expires)) };
        let encoded = entry.encode().unwrap();
        let mut bucket = Bucket::default();
        bucket.push(entry.expires_at(), &encoded);
        bucket.push(entry.expires_at(), b"of another format");
        let bytes = bucket.encode();
        let read = Bucket::decode(&bytes).unwrap();
        prop_assert_eq!(read.len(), 2);
        prop_assert_eq!(&read.entries()[0], &entry);
    }

    #[test]
    fn no_text_makes_the_reader_of_a_place_panic(text in "[0-9]{0,12}\\.?\\PC*") {
        if let Some(place) = Place::parse(&text) {
            prop_assert_eq!(Place::parse(&place.to_text()), Some(place));
        }
    }
}
