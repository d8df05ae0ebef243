//! The count of outstanding tokens: one VM counts for all, and another VM takes over if it stops.

use std::cell::RefCell;

use impersonation_core::fakes::EnvoyMap;
use impersonation_core::host::{Expected, Host, HostFailure, SharedData, Swap, UnixTime, Version};
use impersonation_core::state::local::{Census, SlotTable};
use impersonation_core::state::store::Occupancy;

use super::explorer::{Actor, Explorer, Value};
use super::model::{LIFETIME, at};
use super::worker::{Direct, mint, spend};

const TENANT: &str = "https://auth.example.com/oidc\n";

/// A VM that counts. It draws its name.
struct Vm<'h> {
    host: &'h dyn Host,
    name: u8,
}

impl SharedData for Vm<'_> {
    fn get(&self, key: &str) -> Result<Option<(Vec<u8>, Version)>, HostFailure> {
        self.host.get(key)
    }

    fn compare_and_set(
        &self,
        key: &str,
        value: &[u8],
        expected: Expected,
    ) -> Result<Swap, HostFailure> {
        self.host.compare_and_set(key, value, expected)
    }
}

impl Host for Vm<'_> {
    fn now(&self) -> UnixTime {
        self.host.now()
    }

    fn random(&self, buffer: &mut [u8]) -> Result<(), HostFailure> {
        buffer.fill(self.name);
        Ok(())
    }
}

#[test]
fn one_of_any_vms_that_tick_at_once_counts() {
    let direct = Direct::new(&EnvoyMap::default(), at(1000));
    let table = SlotTable::new(TENANT, 3, LIFETIME);
    for _ in 0..2 {
        mint(&direct, &table, at(9000)).unwrap();
    }
    let shared_data: EnvoyMap<Value> = direct.into_shared_data();
    let counts = RefCell::new(Vec::new());
    let vm = |name| -> Actor<'_, Occupancy> {
        Box::new(move |stage| {
            let (vm, table) = (Vm { host: stage, name }, SlotTable::new(TENANT, 3, LIFETIME));
            if let Ok(Some(occupancy)) = Census::default().tick(&vm, &table) {
                stage.note(occupancy);
            }
        })
    };
    let explorer = Explorer {
        actors: vec![vm(1), vm(2), vm(3)],
        times: vec![at(1000)],
        calls_fail: true,
        check: Box::new(|world| {
            let counted = world.actors.iter().flat_map(|actor| &actor.events);
            let counted: Vec<_> = counted.copied().collect();
            if world.actors.iter().all(|actor| actor.finished) {
                counts.borrow_mut().push(counted.len());
            }
            match &*counted {
                [] => Ok(()),
                [Occupancy { outstanding: 2, first_expiry: Some(first) }] if *first == at(9000) => {
                    Ok(())
                }
                _ => Err(format!("counted {counted:?}")),
            }
        }),
    };
    explorer.explore(shared_data).unwrap_or_else(|violation| panic!("{violation}"));
    drop(explorer);
    assert!(counts.borrow().contains(&1));
}

#[test]
fn another_vm_counts_when_the_first_is_gone() {
    let mut shared_data = EnvoyMap::default();
    let table = SlotTable::new(TENANT, 3, LIFETIME);
    let (first, second) = (Census::default(), Census::default());
    let mut tick = |census: &Census, name: u8, millis: u64| {
        let direct = Direct::new(&shared_data, at(millis));
        let counted = census.tick(&Vm { host: &direct, name }, &table).unwrap().is_some();
        shared_data = direct.into_shared_data();
        counted
    };
    for second_number in 1..=3 {
        assert!(tick(&first, 1, second_number * 1000));
        assert!(!tick(&second, 2, second_number * 1000 + 500));
    }
    // The first VM counted at 3000, and its lease lasts five seconds.
    assert!(!tick(&second, 2, 7999));
    assert!(tick(&second, 2, 8000));
    assert!(!tick(&first, 1, 8001), "it is back, and waits for its turn");
}

#[test]
fn spent_and_expired_tokens_do_not_count() {
    let direct = Direct::new(&EnvoyMap::default(), at(1000));
    let host = Vm { host: &direct, name: 1 };
    let table = SlotTable::new(TENANT, 600, LIFETIME);
    let tokens: Vec<_> = [5000, 3000, 1000, 4000]
        .map(|expiry| mint(&direct, &table, at(expiry)).unwrap())
        .into_iter()
        .collect();
    spend(&direct, &table, &tokens[1]).unwrap();
    let counted = Census::default().tick(&host, &table).unwrap().unwrap();
    assert_eq!(counted, Occupancy { outstanding: 2, first_expiry: Some(at(4000)) });
}

#[test]
fn a_large_table_is_counted_over_several_ticks() {
    let direct = Direct::new(&EnvoyMap::default(), at(1000));
    let host = Vm { host: &direct, name: 1 };
    // 256 pages of 256 slots for each tick, and one slot more.
    let (table, census) = (SlotTable::new(TENANT, 65_537, LIFETIME), Census::default());
    mint(&direct, &table, at(5000)).unwrap();
    for _ in 0..2 {
        assert_eq!(census.tick(&host, &table), Ok(None));
        let counted = census.tick(&host, &table).unwrap().unwrap();
        assert_eq!(counted, Occupancy { outstanding: 1, first_expiry: Some(at(5000)) });
    }
}
