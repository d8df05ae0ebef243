//! What a call of the operator's functions may use up.

use std::ops::RangeInclusive;
use std::time::Duration;

/// What one call may use up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// How long it may run.
    pub timeout: Duration,
    /// Memory for what it makes.
    pub memory_bytes: usize,
    /// How long the claims may be, as compact JSON.
    pub output_bytes: usize,
}

impl Limits {
    /// What an operator may ask for as `timeout`.
    pub const TIMEOUTS: RangeInclusive<Duration> =
        Duration::from_millis(1)..=Duration::from_secs(1);
    /// What an operator may ask for as `memory_limit_bytes`.
    pub const MEMORY_BYTES: RangeInclusive<u64> = 1024 * 1024..=64 * 1024 * 1024;
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            timeout: Duration::from_millis(10),
            memory_bytes: 8 * 1024 * 1024,
            output_bytes: 4096,
        }
    }
}
