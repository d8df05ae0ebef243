use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::host::{Expected, SharedData, Swap, Version};

const START: UnixTime = UnixTime::from_millis(1_790_000_000_000);
const MINUTE: Duration = Duration::from_secs(60);

#[derive(Default)]
struct World {
    now: Cell<UnixTime>,
    map: RefCell<HashMap<String, (Vec<u8>, u32)>>,
    lost: Cell<usize>,
}

impl World {
    fn new() -> Self {
        Self { now: Cell::new(START), ..Self::default() }
    }

    fn set(&self, now: UnixTime) {
        self.now.set(now);
    }
}

impl SharedData for World {
    fn get(&self, key: &str) -> Result<Option<(Vec<u8>, Version)>, HostFailure> {
        let found = self.map.borrow().get(key).cloned();
        Ok(found.map(|(bytes, version)| (bytes, Version::new(version).unwrap())))
    }

    fn compare_and_set(
        &self,
        key: &str,
        value: &[u8],
        expected: Expected,
    ) -> Result<Swap, HostFailure> {
        if let Some(left) = self.lost.get().checked_sub(1) {
            self.lost.set(left);
            return Ok(Swap::Lost);
        }
        let mut map = self.map.borrow_mut();
        let version = map.get(key).map_or(0, |(_, version)| *version);
        let current = match expected {
            Expected::Absent => 0,
            Expected::Version(version) => version.get(),
        };
        if version != current {
            return Ok(Swap::Lost);
        }
        map.insert(key.to_owned(), (value.to_vec(), version.saturating_add(1)));
        Ok(Swap::Done)
    }
}

impl Host for World {
    fn now(&self) -> UnixTime {
        self.now.get()
    }

    fn random(&self, _buffer: &mut [u8]) -> Result<(), HostFailure> {
        Err(HostFailure("randomness"))
    }
}

fn counter(count: u32) -> MintCounter {
    MintCounter::new("tenant", MintRate { count, per: MINUTE })
}

#[test]
fn a_caller_mints_as_often_as_it_may_and_again_when_its_period_is_over() {
    let (world, counter) = (World::new(), counter(3));
    for _ in 0..3 {
        assert_eq!(counter.look(&world, &counter.minter("a")), Ok(()));
        assert_eq!(counter.count(&world, &counter.minter("a")), Ok(()));
        world.set(world.now().after(Duration::from_secs(10)));
    }
    let left = NotCounted::TooMany(Duration::from_secs(30));
    assert_eq!(counter.look(&world, &counter.minter("a")), Err(left));
    assert_eq!(counter.count(&world, &counter.minter("a")), Err(left));
    assert_eq!(counter.count(&world, &counter.minter("b")), Ok(()), "another caller");
    world.set(START.after(MINUTE));
    assert_eq!(counter.look(&world, &counter.minter("a")), Ok(()));
    assert_eq!(counter.count(&world, &counter.minter("a")), Ok(()));
}

#[test]
fn no_step_of_the_clock_locks_a_caller_out() {
    let hour = Duration::from_secs(3600);
    for now in [START.before(hour), START.after(hour), UnixTime::default()] {
        let (world, counter) = (World::new(), counter(1));
        counter.count(&world, &counter.minter("a")).unwrap();
        assert!(counter.count(&world, &counter.minter("a")).is_err());
        world.set(now);
        assert_eq!(counter.look(&world, &counter.minter("a")), Ok(()), "{now:?}");
        assert_eq!(counter.count(&world, &counter.minter("a")), Ok(()), "{now:?}");
        assert!(counter.count(&world, &counter.minter("a")).is_err(), "{now:?}");
    }
}

#[test]
fn a_count_is_kept_although_others_write_first() {
    let (world, counter) = (World::new(), counter(1));
    world.lost.set(5);
    assert_eq!(counter.count(&world, &counter.minter("a")), Ok(()));
    assert!(matches!(counter.count(&world, &counter.minter("a")), Err(NotCounted::TooMany(_))));
    world.lost.set(usize::MAX);
    assert!(
        matches!(counter.count(&world, &counter.minter("b")), Err(NotCounted::Host(_))),
        "it fails closed"
    );
}

#[test]
fn services_are_counted_apart() {
    let world = World::new();
    let other = MintCounter::new("another", MintRate { count: 1, per: MINUTE });
    counter(1).count(&world, &counter(1).minter("a")).unwrap();
    assert_eq!(other.count(&world, &other.minter("a")), Ok(()));
}

/// Twice as many callers as fit, and one that floods.
#[test]
fn memory_is_bounded_and_only_the_flooding_caller_is_refused() {
    let (world, counter) = (World::new(), counter(10));
    let mut flooded: u32 = 0;
    for caller in 0..70_000 {
        assert_eq!(counter.count(&world, &counter.minter(&format!("caller-{caller}"))), Ok(()));
        if caller % 100 == 0 && counter.count(&world, &counter.minter("flood")).is_ok() {
            flooded = flooded.saturating_add(1);
        }
    }
    assert_eq!(flooded, 10);
    let map = world.map.borrow();
    assert!(map.len() <= usize::from(LISTS));
    let longest = map.values().map(|(bytes, _)| bytes.len()).max().unwrap();
    assert!(longest <= 1 + CALLERS * TALLY_BYTES, "{longest}");
}

proptest! {
    /// A caller mints no more than allowed in its period, and is not refused before that.
    #[test]
    fn each_caller_is_counted_for_itself(mints in vec((0_u8..5, 0_u64..30_000), 0..60)) {
        let (world, counter) = (World::new(), counter(4));
        let mut model: HashMap<u8, (UnixTime, u32)> = HashMap::new();
        for (caller, passed) in mints {
            world.set(world.now().after(Duration::from_millis(passed)));
            let (began, count) = model.entry(caller).or_insert((world.now(), 0));
            if world.now() >= began.after(MINUTE) {
                (*began, *count) = (world.now(), 0);
            }
            let allowed = *count < 4;
            prop_assert_eq!(counter.look(&world, &counter.minter(&caller.to_string())).is_ok(), allowed);
            prop_assert_eq!(counter.count(&world, &counter.minter(&caller.to_string())).is_ok(), allowed);
            if allowed {
                *count = count.saturating_add(1);
            }
        }
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes: Vec<u8>) {
        let _ = tallies(&bytes).count();
    }
}
