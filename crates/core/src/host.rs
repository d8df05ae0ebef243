//! What the core needs from the world and gets at once: a clock, randomness, shared data, a log, counters.
//!
//! What takes a round trip is not here: that is a [`Call`](crate::step::Call).

use std::borrow::Cow;
use std::num::NonZeroU32;
use std::time::Duration;

pub use crate::time::UnixTime;

/// The host did not do what it always does: no randomness, or shared data out of order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the host refused {0}")]
pub struct HostFailure(pub &'static str);

/// The version of a value in shared data. Envoy gives every write a new one.
pub type Version = NonZeroU32;

/// What a write expects to replace.
///
/// Envoy also has a write that expects nothing and always overwrites. It is left out on purpose: with
/// it two workers could both believe that they spent a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// No such key: the write creates it.
    Absent,
    /// The value that was read with this version.
    Version(Version),
}

impl From<Option<Version>> for Expected {
    fn from(version: Option<Version>) -> Self {
        version.map_or(Self::Absent, Self::Version)
    }
}

/// What became of a compare-and-set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Swap {
    /// The value is ours.
    Done,
    /// Somebody wrote since we read: nothing was changed.
    Lost,
}

/// Envoy's shared data: one map for all workers, without locks, that never forgets a key.
pub trait SharedData {
    /// The value of `key` and its version, `None` where it was never written.
    fn get(&self, key: &str) -> Result<Option<(Vec<u8>, Version)>, HostFailure>;

    /// Writes `value` if the key still is what `expected` says, atomically.
    fn compare_and_set(
        &self,
        key: &str,
        value: &[u8],
        expected: Expected,
    ) -> Result<Swap, HostFailure>;
}

/// How much a line of the operator's log matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// For who looks closely.
    Debug,
    /// What happened, and should: the audit log.
    Info,
    /// What should not be.
    Warn,
    /// What keeps the filter from its work.
    Error,
}

/// The world as the core sees it.
pub trait Host: SharedData {
    /// The wall clock.
    fn now(&self) -> UnixTime;

    /// For how long the machine has been up, by a clock that nobody sets. All VMs of one Envoy read the same. A host
    /// without such a clock says what the wall clock says.
    fn uptime(&self) -> Duration {
        Duration::from_millis(self.now().millis())
    }

    /// Microseconds by the wall clock, to measure how long something took.
    fn micros(&self) -> u64 {
        self.now().millis().saturating_mul(1000)
    }

    /// Fills `buffer` from a cryptographically secure source.
    fn random(&self, buffer: &mut [u8]) -> Result<(), HostFailure>;

    /// Lets a counter of [`metrics`](crate::metrics) be there, at zero if nobody has counted yet.
    fn define(&self, _counter: Cow<'static, str>) {}

    /// Adds one to a counter of [`metrics`](crate::metrics).
    fn count(&self, _counter: Cow<'static, str>) {}

    /// Adds as many to a counter of [`metrics`](crate::metrics).
    fn add(&self, _counter: &'static str, _count: u64) {}

    /// Adds a value to a histogram of [`metrics`](crate::metrics).
    fn record(&self, _histogram: &'static str, _value: u64) {}

    /// Sets a gauge of [`metrics`](crate::metrics).
    fn set(&self, _gauge: &'static str, _value: u64) {}

    /// Writes a line to the operator's log, without secrets.
    fn log(&self, _level: Level, _line: &str) {}

    /// Tells the operator what is so.
    fn info(&self, line: &str) {
        self.log(Level::Info, line);
    }

    /// Tells whoever looks closely.
    fn debug(&self, line: &str) {
        self.log(Level::Debug, line);
    }

    /// Tells the operator of something that should not be.
    fn warn(&self, line: &str) {
        self.log(Level::Warn, line);
    }
}
