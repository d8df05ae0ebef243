//! The memory of ids that may be used once, under every interleaving of its workers, and when it is
//! full.

use std::collections::HashMap;

use impersonation_core::host::{Expected, HostFailure, SharedData as _, UnixTime};
use impersonation_core::state::shared_data::{NotRemembered, SeenOnce};
use proptest::collection::vec;
use proptest::prelude::*;

use super::explorer::{Actor, Explorer};
use super::model::at;
use super::worker::Direct;
use impersonation_core::fakes::EnvoyMap;

const UNTIL: UnixTime = UnixTime::from_millis(9000);

fn ids() -> SeenOnce {
    SeenOnce::new("tenant", "jti")
}

fn host() -> Direct {
    Direct::new(&EnvoyMap::default(), at(1000))
}

#[test]
fn exactly_one_of_the_workers_that_present_an_id_is_told_that_it_is_the_first() {
    for calls_fail in [false, true] {
        let worker = || -> Actor<'_, Result<bool, NotRemembered>> {
            Box::new(|stage| stage.note(ids().first_time(stage, b"owner", b"id", UNTIL)))
        };
        let explorer = Explorer {
            actors: vec![worker(), worker(), worker()],
            times: vec![at(1000)],
            calls_fail,
            check: Box::new(|world| {
                let told: Vec<_> = world.actors.iter().flat_map(|actor| &actor.events).collect();
                let firsts = told.iter().filter(|told| ***told == Ok(true)).count();
                let all = told.len() == 3 && told.iter().all(|told| told.is_ok());
                let is_right = if all { firsts == 1 } else { firsts <= 1 };
                if is_right { Ok(()) } else { Err(format!("told {told:?}")) }
            }),
        };
        // Each worker reads the secret that the buckets depend on, and one has made it before.
        let host = host();
        let _ = ids().first_time(&host, b"owner", b"another", UNTIL);
        explorer.explore(host.into_shared_data()).unwrap_or_else(|violation| panic!("{violation}"));
    }
}

#[test]
fn an_id_is_remembered_until_its_time_and_not_longer() {
    let host = host();
    assert_eq!(ids().first_time(&host, b"owner", b"id", UNTIL), Ok(true));
    let shared_data = host.into_shared_data();
    for (millis, expected) in [(1000, false), (8999, false), (9000, true)] {
        let host = Direct::new(&shared_data, at(millis));
        assert_eq!(ids().first_time(&host, b"owner", b"id", at(20_000)), Ok(expected), "{millis}");
    }
}

#[test]
fn an_id_that_would_be_forgotten_at_once_is_refused() {
    let host = host();
    assert_eq!(ids().first_time(&host, b"owner", b"id", at(1000)), Err(NotRemembered::Expired));
}

#[test]
fn services_and_kinds_of_ids_are_remembered_apart() {
    let host = host();
    for (tenant, kind) in [("tenant", "jti"), ("other", "jti"), ("tenant", "nonce")] {
        let ids = SeenOnce::new(tenant, kind);
        assert_eq!(ids.first_time(&host, b"owner", b"id", UNTIL), Ok(true), "{tenant} {kind}");
        assert_eq!(ids.first_time(&host, b"owner", b"id", UNTIL), Ok(false), "{tenant} {kind}");
    }
}

/// A memory that forgot a live id to make room would allow a second use of that id.
#[test]
fn a_full_memory_refuses_new_ids_and_forgets_none() {
    let host = host();
    let mut remembered = Vec::new();
    let refused = (0_u32..131_073).map(u32::to_be_bytes).find(|id| {
        let first = ids().first_time(&host, id, id, UNTIL);
        remembered.push(*id);
        first != Ok(true)
    });
    let refused = refused.unwrap();
    assert_eq!(ids().first_time(&host, &refused, &refused, UNTIL), Err(NotRemembered::Full));
    remembered.pop();
    assert!(remembered.len() > 20_000, "{}", remembered.len());
    for id in remembered.iter().rev().take(5000) {
        assert_eq!(ids().first_time(&host, id, id, UNTIL), Ok(false));
    }
    let later = Direct::new(&host.into_shared_data(), UNTIL);
    assert_eq!(
        ids().first_time(&later, &refused, &refused, at(20_000)),
        Ok(true),
        "there is room again"
    );
}

#[test]
fn a_bucket_that_cannot_be_read_refuses_its_ids() {
    let host = host();
    assert_eq!(ids().first_time(&host, b"owner", b"id", UNTIL), Ok(true));
    let shared_data = host.into_shared_data();
    let is_bucket = |key: &str| !key.contains("secret");
    let key = shared_data.entries().map(|(key, _)| key).find(|key| is_bucket(key));
    let key = key.unwrap().to_owned();
    let host = Direct::new(&shared_data, at(1000));
    let version = host.get(&key).unwrap().unwrap().1;
    let _ = host.compare_and_set(&key, b"x", Expected::Version(version)).unwrap();
    let refused = ids().first_time(&host, b"owner", b"id", UNTIL);
    assert!(matches!(refused, Err(NotRemembered::Host(HostFailure(_)))), "{refused:?}");
}

proptest! {
    #[test]
    fn an_id_is_new_unless_it_is_live(
        presented in vec((0_u8..5, 0_u64..2000, 1_u64..5000), 0..60),
    ) {
        let (mut shared_data, mut now) = (EnvoyMap::default(), 1000);
        let mut live: HashMap<u8, u64> = HashMap::new();
        for (id, passed, lives) in presented {
            now += passed;
            let host = Direct::new(&shared_data, at(now));
            let is_new = live.get(&id).is_none_or(|until| now >= *until);
            prop_assert_eq!(ids().first_time(&host, b"owner", &[id], at(now + lives)), Ok(is_new));
            if is_new {
                live.insert(id, now + lives);
            }
            shared_data = host.into_shared_data();
        }
    }
}
