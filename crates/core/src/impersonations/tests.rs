#![expect(clippy::arithmetic_side_effects, reason = "small numbers, in a test")]

use proptest::prelude::*;

use super::*;
use crate::fakes::{FakeHost, START};
use crate::step::{Step, Task};

const HOUR: Duration = Duration::from_secs(3600);

fn list(capacity: u32) -> List {
    List::shared_data("tenant", capacity, HOUR)
}

fn entry(number: usize, expires_at: UnixTime) -> Entry {
    Entry {
        id: format!("{number:024x}"),
        user_id: "user".into(),
        actor_id: Some("agent".into()),
        client_id: "client".into(),
        caller: "caller".into(),
        resource: "https://api.example.com/orders".into(),
        scope: "orders:read".into(),
        jti: "jti".into(),
        context: Vec::new(),
        issued_at_millis: START.millis(),
        expires_at_millis: expires_at.millis(),
    }
}

/// All pages, one after the other.
fn walk(world: &FakeHost, list: &List, limit: usize) -> Vec<Entry> {
    let (mut all, mut place) = (Vec::new(), None);
    loop {
        let page = list.page_here(world, place, limit, |_| true).unwrap();
        assert!(page.entries.len() <= limit);
        all.extend(page.entries);
        let Some(next) = page.next else { return all };
        place = Some(Place::parse(&next.to_text()).unwrap());
    }
}

#[test]
fn every_page_goes_on_where_the_one_before_ended() {
    let (world, list) = (FakeHost::default(), list(64));
    list.begin(&world).unwrap();
    let entries: Vec<_> = (0..64).map(|number| entry(number, START.after(HOUR))).collect();
    for entry in &entries {
        assert_eq!(list.insert_here(&world, entry), Ok(Listed::Yes));
        assert_eq!(list.find_here(&world, &entry.id), Ok(Some(entry.clone())));
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
    list.insert_here(&world, &entry(1, START.after(HOUR))).map(|_| ()).unwrap();
    let page = list.page_here(&world, None, 10, |_| true).unwrap();
    assert_eq!((page.entries.len(), page.next), (1, None));
}

/// Looks through the whole list, and does `meanwhile` for each that is seen.
fn seen(world: &Rc<FakeHost>, list: List, meanwhile: fn(&FakeHost)) -> (usize, bool) {
    let host: Rc<dyn Host> = Rc::clone(world) as Rc<dyn Host>;
    let world = Rc::clone(world);
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
fn the_whole_list_is_looked_through_page_by_page_for_no_longer_than_a_moment() {
    const LARGE: u32 = 3 * BUCKETS_TO_A_PAGE * LOAD;
    let world = Rc::new(FakeHost::default());
    list(LARGE).begin(&*world).unwrap();
    for number in 0..300 {
        let inserted = list(LARGE).insert_here(&*world, &entry(number, START.after(HOUR)));
        assert_eq!(inserted, Ok(Listed::Yes));
    }
    assert_eq!(seen(&world, list(LARGE), |_| {}), (300, true));
    let (count, complete) = seen(&world, list(LARGE), |world| {
        world.now.set(world.now.get().after(Duration::from_millis(10)));
    });
    assert!((1..300).contains(&count) && !complete, "{count}");
    // The default list is one page, which is looked through whole.
    world.now.set(START);
    let small = Rc::new(FakeHost::default());
    list(65_536).begin(&*small).unwrap();
    list(65_536).insert_here(&*small, &entry(1, START.after(HOUR))).map(|_| ()).unwrap();
    let slow = |world: &FakeHost| world.now.set(world.now.get().after(Duration::from_secs(9)));
    assert_eq!(seen(&small, list(65_536), slow), (1, true));
}

#[test]
fn a_list_that_lacks_one_is_not_looked_through_whole() {
    let world = Rc::new(FakeHost::default());
    list(1).begin(&*world).unwrap();
    for number in 0..2 {
        list(1).insert_here(&*world, &entry(number, START.after(HOUR))).map(|_| ()).unwrap();
    }
    assert_eq!(seen(&world, list(1), |_| {}), (1, false));
}

#[test]
fn a_full_list_says_that_it_lacks_one_until_that_one_has_expired() {
    for capacity in [1, 2, 16] {
        let (world, list) = (FakeHost::default(), list(capacity));
        list.begin(&world).unwrap();
        for number in 0..capacity as usize {
            let listed = list.insert_here(&world, &entry(number, START.after(HOUR))).unwrap();
            assert_eq!(listed, Listed::Yes);
        }
        assert_eq!(list.is_complete(&world), Ok(true));
        let late = entry(99, START.after(HOUR * 2));
        assert_eq!(list.insert_here(&world, &late), Ok(Listed::NoRoom));
        assert_eq!(list.is_complete(&world), Ok(false));
        // Room for others comes before it is complete again.
        world.now.set(START.after(HOUR));
        assert_eq!(list.insert_here(&world, &entry(100, START.after(HOUR * 3))), Ok(Listed::Yes));
        assert_eq!(list.is_complete(&world), Ok(false));
        world.now.set(START.after(HOUR * 2));
        assert_eq!(list.is_complete(&world), Ok(true));
        assert_eq!(walk(&world, &list, 10).len(), 1);
    }
}

#[test]
fn what_has_expired_is_neither_listed_nor_found_nor_kept() {
    let (world, list) = (FakeHost::default(), list(1));
    list.insert_here(&world, &entry(1, START.after(HOUR))).map(|_| ()).unwrap();
    world.now.set(START.after(HOUR));
    assert_eq!(walk(&world, &list, 10), []);
    assert_eq!(list.find_here(&world, &entry(1, START).id), Ok(None));
    assert_eq!(list.insert_here(&world, &entry(2, START.after(HOUR * 2))), Ok(Listed::Yes));
}

#[test]
fn who_never_wins_a_write_goes_on_unlisted() {
    let (world, list) = (FakeHost::default(), list(16));
    list.begin(&world).unwrap();
    world.lost_writes.set(ATTEMPTS);
    assert_eq!(list.insert_here(&world, &entry(1, START.after(HOUR))), Ok(Listed::NoRoom));
    assert_eq!(list.is_complete(&world), Ok(false));
}

#[test]
fn another_size_is_not_complete_until_the_longest_has_expired() {
    let world = FakeHost::default();
    list(64).begin(&world).unwrap();
    list(64).begin(&world).unwrap();
    assert_eq!(list(64).is_complete(&world), Ok(true));
    list(32).begin(&world).unwrap();
    assert_eq!(list(32).is_complete(&world), Ok(false));
    world.now.set(START.after(HOUR));
    assert_eq!(list(32).is_complete(&world), Ok(true));
}

/// The promise of docs/operations.md.
#[test]
fn a_full_list_of_the_default_size_drops_less_than_one_in_a_hundred() {
    let (world, list) = (FakeHost::default(), list(65_536));
    let dropped = (0..65_536)
        .filter(|number| {
            let listed = list.insert_here(&world, &entry(*number, START.after(HOUR))).unwrap();
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
    fn an_entry_is_read_back(user_id: String, actor_id: Option<String>, scope: String, expires: u64) {
        let entry = Entry { user_id, actor_id, scope, ..entry(1, UnixTime::from_millis(expires)) };
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
