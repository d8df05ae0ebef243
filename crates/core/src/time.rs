//! Points in time, as records, caches and tokens hold them.

use std::time::Duration;

/// How far ahead of the clock a time that was written in the past may lie. Machines correct their clocks by less
/// than this all the time; a time that lies further ahead was written before the clock was set back.
const SLACK: Duration = Duration::from_secs(5);

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

    /// Whether this cannot have been written yet: the clock has been set back since.
    pub fn is_ahead_of(self, now: Self) -> bool {
        self > now.after(SLACK)
    }

    /// Whether less than `duration` has passed since this was written. What was written in the future says
    /// nothing about how long ago that was: it never counts as recent.
    pub fn is_within(self, duration: Duration, now: Self) -> bool {
        !self.is_ahead_of(now) && now < self.after(duration)
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_in_the_future_is_not_recent() {
        let minute = Duration::from_secs(60);
        let now = UnixTime::from_millis(1_000_000);
        #[rustfmt::skip]
        let cases = [
            ("just now",                    now,                                        true),
            ("a moment ahead",              now.after(Duration::from_secs(5)),          true),
            ("ahead",                       now.after(Duration::from_millis(5001)),     false),
            ("far ahead",                   UnixTime::from_millis(u64::MAX),            false),
            ("nearly a minute ago",         now.before(Duration::from_millis(59_999)),  true),
            ("a minute ago",                now.before(minute),                         false),
            ("never",                       UnixTime::default(),                        false),
        ];
        for (case, written, recent) in cases {
            assert_eq!(written.is_within(minute, now), recent, "{case}");
        }
    }
}
