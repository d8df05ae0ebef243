//! A host whose clock stands still until a test moves it, and whose randomness is the same in every
//! run.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use super::EnvoyMap;
use crate::host::{Expected, Host, HostFailure, Level, SharedData, Swap, UnixTime, Version};
use crate::jose::TestedCrypto;
use crate::metrics;

/// The time at which a fake host begins.
pub const START: UnixTime = UnixTime::from_millis(1_790_000_000_000);

/// One Envoy as the host of the core.
pub struct FakeHost {
    /// The wall clock.
    pub now: Cell<UnixTime>,
    /// The cryptography that this host offers, if it offers any.
    pub native: Option<TestedCrypto>,
    /// The number of writes that other workers will win before one of this worker takes effect.
    pub lost_writes: Cell<usize>,
    /// The operator's log, except for the alarms.
    pub warnings: RefCell<Vec<String>>,
    /// The alarms about spent tokens.
    pub alarms: RefCell<Vec<String>>,
    /// The audit log.
    pub events: RefCell<Vec<String>>,
    /// The lines of level debug.
    pub debugged: RefCell<Vec<String>>,
    /// The counters that were incremented, without those for the outcome of a request.
    pub counted: RefCell<Vec<Cow<'static, str>>>,
    /// The value of each counter.
    pub counters: RefCell<BTreeMap<Cow<'static, str>, u64>>,
    /// The last value of each gauge.
    pub gauges: RefCell<BTreeMap<&'static str, u64>>,
    random_state: Cell<u64>,
    shared_data: RefCell<EnvoyMap<Vec<u8>>>,
    /// The number of calls that shared data answers before one fails.
    shared_data_fails_after: Cell<Option<u32>>,
    /// The number of draws that succeed before one fails.
    random_fails_after: Cell<Option<u32>>,
    /// The values that a service stores before any token is minted.
    begun: RefCell<Vec<(String, Vec<u8>)>>,
    intruder: RefCell<Option<Box<dyn FnOnce()>>>,
}

impl Default for FakeHost {
    fn default() -> Self {
        Self::with_seed(1)
    }
}

impl FakeHost {
    /// A host whose random numbers follow from `seed`.
    pub fn with_seed(seed: u64) -> Self {
        Self {
            now: Cell::new(START),
            native: None,
            lost_writes: Cell::new(0),
            warnings: RefCell::default(),
            alarms: RefCell::default(),
            events: RefCell::default(),
            debugged: RefCell::default(),
            counted: RefCell::default(),
            counters: RefCell::default(),
            gauges: RefCell::default(),
            random_state: Cell::new(seed),
            shared_data: RefCell::default(),
            shared_data_fails_after: Cell::new(None),
            random_fails_after: Cell::new(None),
            begun: RefCell::default(),
            intruder: RefCell::default(),
        }
    }

    /// A host that offers this cryptography.
    pub fn with_native(native: TestedCrypto) -> Self {
        Self { native: Some(native), ..Self::default() }
    }

    /// A host with the same clock and shared data, which goes on to draw the same numbers.
    pub fn copy(&self) -> Self {
        Self {
            now: self.now.clone(),
            shared_data: self.shared_data.clone(),
            ..Self::with_seed(self.random_state.get())
        }
    }

    /// Moves the clock on.
    pub fn advance(&self, by: Duration) {
        self.now.set(self.now.get().after(by));
    }

    /// Sets the clock back.
    pub fn set_back(&self, by: Duration) {
        self.now.set(self.now.get().before(by));
    }

    /// Makes one call to shared data fail, after `answered` others.
    pub fn fail_shared_data(&self, answered: u32) {
        self.shared_data_fails_after.set(Some(answered));
    }

    /// Makes one draw fail, after `answered` others.
    pub fn fail_randomness(&self, answered: u32) {
        self.random_fails_after.set(Some(answered));
    }

    /// Cancels the failures that have not happened yet. Returns true if there were none left.
    pub fn heal(&self) -> bool {
        let left = [self.shared_data_fails_after.take(), self.random_fails_after.take()];
        left.iter().all(Option::is_none)
    }

    /// Makes another worker act right before the next write, once.
    pub fn before_next_write(&self, intruder: impl FnOnce() + 'static) {
        *self.intruder.borrow_mut() = Some(Box::new(intruder));
    }

    /// Leaves the values that are stored now out of [`stored`](Self::stored).
    pub fn has_begun(&self) {
        let begun = self.stored();
        self.begun.borrow_mut().extend(begun);
    }

    /// The values that were stored since the service began.
    pub fn stored(&self) -> Vec<(String, Vec<u8>)> {
        let (map, begun) = (self.shared_data.borrow(), self.begun.borrow());
        let all = map.entries().map(|(key, value)| (key.to_owned(), value.clone()));
        all.filter(|entry| !begun.contains(entry)).collect()
    }

    /// Overwrites a value, as another version of the filter could.
    pub fn overwrite(&self, key: &str, value: &[u8]) {
        let _ = self.shared_data.borrow_mut().set(key, value.to_vec(), 0);
    }
}

/// Counts down to a failure, which happens once.
fn due(fails_after: &Cell<Option<u32>>) -> bool {
    match fails_after.get() {
        Some(0) => {
            fails_after.set(None);
            true
        }
        left => {
            fails_after.set(left.map(|left| left - 1));
            false
        }
    }
}

impl SharedData for FakeHost {
    fn get(&self, key: &str) -> Result<Option<(Vec<u8>, Version)>, HostFailure> {
        if due(&self.shared_data_fails_after) {
            return Err(HostFailure("shared data"));
        }
        Ok(self.shared_data.borrow().get(key))
    }

    fn compare_and_set(
        &self,
        key: &str,
        value: &[u8],
        expected: Expected,
    ) -> Result<Swap, HostFailure> {
        if due(&self.shared_data_fails_after) {
            return Err(HostFailure("shared data"));
        }
        if let Some(left) = self.lost_writes.get().checked_sub(1) {
            self.lost_writes.set(left);
            return Ok(Swap::Lost);
        }
        let intruder = self.intruder.take();
        if let Some(intruder) = intruder {
            intruder();
        }
        Ok(self.shared_data.borrow_mut().compare_and_set(key, value.to_vec(), expected))
    }
}

impl Host for FakeHost {
    fn now(&self) -> UnixTime {
        self.now.get()
    }

    fn random(&self, buffer: &mut [u8]) -> Result<(), HostFailure> {
        if due(&self.random_fails_after) {
            return Err(HostFailure("randomness"));
        }
        for byte in buffer {
            // SplitMix64: it mixes well in three lines.
            let state = self.random_state.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
            self.random_state.set(state);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            *byte = (mixed >> 56) as u8;
        }
        Ok(())
    }

    fn count(&self, counter: Cow<'static, str>) {
        *self.counters.borrow_mut().entry(counter.clone()).or_default() += 1;
        let outcomes = [
            metrics::CREATED,
            metrics::EXCHANGED,
            metrics::REPLAYED,
            metrics::STORE_FULL,
            "impersonation_refusals_total",
        ];
        if !outcomes.iter().any(|outcome| counter.starts_with(outcome)) {
            self.counted.borrow_mut().push(counter);
        }
    }

    fn add(&self, counter: &'static str, count: u64) {
        (0..count).for_each(|_| self.count(counter.into()));
    }

    fn set(&self, gauge: &'static str, value: u64) {
        self.gauges.borrow_mut().insert(gauge, value);
    }

    fn log(&self, level: Level, line: &str) {
        // With control characters a caller could forge another line, or write to a terminal.
        assert!(!line.chars().any(char::is_control), "{level:?}: {line:?}");
        let lines = match level {
            Level::Debug => &self.debugged,
            Level::Info => &self.events,
            Level::Warn if line.starts_with("{\"alarm\"") => &self.alarms,
            Level::Warn | Level::Error => &self.warnings,
        };
        lines.borrow_mut().push(line.to_owned());
    }
}

/// A host that draws other random numbers than every earlier host, as every Envoy does.
pub fn another_envoy() -> Rc<FakeHost> {
    thread_local!(static ENVOYS: Cell<u64> = const { Cell::new(0) });
    Rc::new(FakeHost::with_seed(ENVOYS.replace(ENVOYS.get() + 1)))
}
