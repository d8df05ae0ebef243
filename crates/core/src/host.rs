//! The host of the core, as far as it answers at once: clock, randomness, shared data, log,
//! counters.
//!
//! A [`Call`](crate::step::Call) is everything that takes a round trip.

use std::borrow::Cow;
use std::num::NonZeroU32;
use std::time::Duration;

pub use crate::time::UnixTime;

/// The host failed: it gave no randomness, or shared data is out of order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the host refused {0}")]
pub struct HostFailure(pub &'static str);

/// The version of a value in shared data. Envoy gives every write a new one.
pub type Version = NonZeroU32;

/// The value that a write expects to replace.
///
/// Envoy also has a write that always overwrites. It is left out on purpose: with it two workers
/// could both believe that they spent a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// The key is missing, and the write creates it.
    Absent,
    /// The value that was read with this version.
    Version(Version),
}

impl From<Option<Version>> for Expected {
    fn from(version: Option<Version>) -> Self {
        version.map_or(Self::Absent, Self::Version)
    }
}

/// The result of a compare-and-set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Swap {
    /// The value was written.
    Done,
    /// Another worker wrote since the read: nothing was changed.
    Lost,
}

/// Envoy's shared data: one map for all workers. It has no locks, and never forgets a key.
pub trait SharedData {
    /// The value of `key` and its version; `None` if the key was never written.
    fn get(&self, key: &str) -> Result<Option<(Vec<u8>, Version)>, HostFailure>;

    /// Writes `value` if the key still has the expected version, atomically.
    fn compare_and_set(
        &self,
        key: &str,
        value: &[u8],
        expected: Expected,
    ) -> Result<Swap, HostFailure>;
}

/// The level of a line in the operator's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Details, for debugging.
    Debug,
    /// Expected events, such as the audit log.
    Info,
    /// Something that should not be.
    Warn,
    /// Something that keeps the filter from its work.
    Error,
}

/// The host, as the core sees it.
pub trait Host: SharedData {
    /// The wall clock.
    fn now(&self) -> UnixTime;

    /// The time since the machine started, by a clock that cannot be set. All VMs of one Envoy read
    /// the same clock. A host without such a clock returns the wall clock.
    fn uptime(&self) -> Duration {
        Duration::from_millis(self.now().millis())
    }

    /// Microseconds by the wall clock, to measure durations.
    fn micros(&self) -> u64 {
        self.now().millis().saturating_mul(1000)
    }

    /// Fills `buffer` from a cryptographically secure source.
    fn random(&self, buffer: &mut [u8]) -> Result<(), HostFailure>;

    /// Creates a counter of [`metrics`](crate::metrics) at zero if it is missing.
    fn define(&self, _counter: Cow<'static, str>) {}

    /// Adds one to a counter of [`metrics`](crate::metrics).
    fn count(&self, _counter: Cow<'static, str>) {}

    /// Adds a number to a counter of [`metrics`](crate::metrics).
    fn add(&self, _counter: &'static str, _count: u64) {}

    /// Adds a value to a histogram of [`metrics`](crate::metrics).
    fn record(&self, _histogram: &'static str, _value: u64) {}

    /// Sets a gauge of [`metrics`](crate::metrics).
    fn set(&self, _gauge: &'static str, _value: u64) {}

    /// Writes a line to the operator's log, without secrets.
    fn log(&self, _level: Level, _line: &str) {}

    /// Logs an expected event.
    fn info(&self, line: &str) {
        self.log(Level::Info, line);
    }

    /// Logs a detail for debugging.
    fn debug(&self, line: &str) {
        self.log(Level::Debug, line);
    }

    /// Logs something that should not be.
    fn warn(&self, line: &str) {
        self.log(Level::Warn, line);
    }
}
