use std::collections::HashMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::fakes::{FakeHost, START};

const MINUTE: Duration = Duration::from_secs(60);

fn counter(count: u32) -> MintCounter {
    MintCounter::new("tenant", MintRate { count, per: MINUTE })
}

#[test]
fn a_caller_mints_as_often_as_it_may_and_again_when_its_time_is_over() {
    let (world, counter) = (FakeHost::default(), counter(3));
    for _ in 0..3 {
        assert_eq!(counter.look(&world, &counter.minter("a")), Ok(()));
        assert_eq!(counter.count(&world, &counter.minter("a")), Ok(()));
        world.now.set(world.now().after(Duration::from_secs(10)));
    }
    let left = NotCounted::TooMany(Duration::from_secs(30));
    assert_eq!(counter.look(&world, &counter.minter("a")), Err(left));
    assert_eq!(counter.count(&world, &counter.minter("a")), Err(left));
    assert_eq!(counter.count(&world, &counter.minter("b")), Ok(()), "who is somebody else");
    world.now.set(START.after(MINUTE));
    assert_eq!(counter.look(&world, &counter.minter("a")), Ok(()));
    assert_eq!(counter.count(&world, &counter.minter("a")), Ok(()));
}

#[test]
fn no_step_of_the_clock_locks_a_caller_out() {
    let hour = Duration::from_secs(3600);
    for now in [START.before(hour), START.after(hour), UnixTime::default()] {
        let (world, counter) = (FakeHost::default(), counter(1));
        counter.count(&world, &counter.minter("a")).unwrap();
        assert!(counter.count(&world, &counter.minter("a")).is_err());
        world.now.set(now);
        assert_eq!(counter.look(&world, &counter.minter("a")), Ok(()), "{now:?}");
        assert_eq!(counter.count(&world, &counter.minter("a")), Ok(()), "{now:?}");
        assert!(counter.count(&world, &counter.minter("a")).is_err(), "{now:?}");
    }
}

#[test]
fn a_count_that_others_overtake_is_counted_all_the_same() {
    let (world, counter) = (FakeHost::default(), counter(1));
    world.lost_writes.set(5);
    assert_eq!(counter.count(&world, &counter.minter("a")), Ok(()));
    assert!(matches!(counter.count(&world, &counter.minter("a")), Err(NotCounted::TooMany(_))));
    world.lost_writes.set(usize::MAX);
    assert!(
        matches!(counter.count(&world, &counter.minter("b")), Err(NotCounted::Host(_))),
        "it fails closed"
    );
}

#[test]
fn services_are_counted_apart() {
    let world = FakeHost::default();
    let other = MintCounter::new("another", MintRate { count: 1, per: MINUTE });
    counter(1).count(&world, &counter(1).minter("a")).unwrap();
    assert_eq!(other.count(&world, &other.minter("a")), Ok(()));
}

/// Twice as many callers as fit, and one that floods.
#[test]
fn however_many_mint_memory_is_bounded_and_only_the_flood_is_refused() {
    let (world, counter) = (FakeHost::default(), counter(10));
    let mut flooded: u32 = 0;
    for caller in 0..70_000 {
        assert_eq!(counter.count(&world, &counter.minter(&format!("caller-{caller}"))), Ok(()));
        if caller % 100 == 0 && counter.count(&world, &counter.minter("flood")).is_ok() {
            flooded = flooded.saturating_add(1);
        }
    }
    assert_eq!(flooded, 10);
    let lists = world.stored();
    assert!(lists.len() <= usize::from(LISTS));
    let longest = lists.iter().map(|(_, bytes)| bytes.len()).max().unwrap();
    assert!(longest <= 1 + CALLERS * TALLY_BYTES, "{longest}");
}

proptest! {
    /// A caller mints no more than allowed in its period, and is not refused before that.
    #[test]
    fn each_is_counted_for_itself(mints in vec((0_u8..5, 0_u64..30_000), 0..60)) {
        let (world, counter) = (FakeHost::default(), counter(4));
        let mut model: HashMap<u8, (UnixTime, u32)> = HashMap::new();
        for (caller, passed) in mints {
            world.now.set(world.now().after(Duration::from_millis(passed)));
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
