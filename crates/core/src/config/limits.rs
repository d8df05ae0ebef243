//! Upper bounds for the configuration: lifetimes, and calls of the operator's functions.

use std::ops::RangeInclusive;
use std::time::Duration;

/// The longest `lifetime` of subject tokens that a configuration can have.
pub const LONGEST_SUBJECT_TOKEN_LIFETIME: Duration = LONGEST_LIFETIME;

/// The longest `lifetime` of access tokens that a configuration can have, for any resource.
pub const LONGEST_ACCESS_TOKEN_LIFETIME: Duration = LONGEST_LIFETIME;

/// The longest lifetime of any token.
pub(super) const LONGEST_LIFETIME: Duration = Duration::from_secs(24 * 3600);

/// The bounds of one call of an operator's function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// How long the call may run.
    pub timeout: Duration,
    /// How much memory the call may use.
    pub memory_bytes: usize,
    /// How long the function's result may be, as compact JSON.
    pub output_bytes: usize,
}

impl Limits {
    /// The values that an operator may set as `timeout`.
    pub const TIMEOUTS: RangeInclusive<Duration> =
        Duration::from_millis(1)..=Duration::from_secs(1);
    /// The values that an operator may set as `memory_limit_bytes`.
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
