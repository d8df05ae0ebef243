//! What the core needs from the world and gets at once: a clock, randomness, shared data.
//!
//! What takes a round trip is not here: that is a [`Call`](crate::step::Call).

use std::num::NonZeroU32;
use std::time::Duration;

use crate::jose::TestedCrypto;
use crate::upstream::Upstream;

/// A point in time: milliseconds since the Unix epoch, by the host's wall clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct UnixTime(u64);

impl UnixTime {
    /// From milliseconds since the epoch.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// From seconds since the epoch; what lies before it or is too far to count is clamped.
    pub fn from_secs(secs: i64) -> Self {
        Self(u64::try_from(secs).unwrap_or(0).saturating_mul(1000))
    }

    /// Milliseconds since the epoch.
    pub const fn millis(self) -> u64 {
        self.0
    }

    /// Whole seconds since the epoch, rounded down: a `NumericDate` (RFC 7519 §2).
    pub const fn secs(self) -> u64 {
        self.0 / 1000
    }

    /// This much later; never past the end of time.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(millis(duration)))
    }

    /// This much earlier; never before the epoch.
    #[must_use]
    pub fn before(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(millis(duration)))
    }

    /// How long ago `earlier` was; nothing if it lies ahead.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

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

/// The world as the core sees it.
pub trait Host: SharedData {
    /// The wall clock.
    fn now(&self) -> UnixTime;

    /// Fills `buffer` from a cryptographically secure source.
    fn random(&self, buffer: &mut [u8]) -> Result<(), HostFailure>;

    /// The host's own cryptography, if it has some and it passed the self-test.
    fn native_crypto(&self) -> Option<&TestedCrypto> {
        None
    }

    /// Counts something that happened apart from the outcome of a request.
    fn count(&self, _counter: Counter) {}

    /// Tells whoever looks closely.
    fn debug(&self, _message: &str) {}

    /// Tells the operator of something that should not be, without secrets.
    fn warn(&self, _message: &str) {}
}

/// What is counted besides the outcome of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counter {
    /// An upstream gave no usable answer.
    CalloutFailed(Upstream),
    /// The operator's function failed.
    CustomClaimsFailed,
    /// A key of the identity gateway has the `kid` of one of ours.
    KeyCollision,
}
