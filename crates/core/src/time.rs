//! Points in time, for records, caches and tokens.

use std::fmt;
use std::time::Duration;

/// How far ahead of the clock a recorded time may lie. Machines routinely correct their clocks by
/// less than this. A time further ahead was recorded before the clock was set back.
const SLACK: Duration = Duration::from_secs(5);

/// A point in time: milliseconds since the Unix epoch, by the host's wall clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct UnixTime(u64);

impl UnixTime {
    /// Converts from milliseconds since the epoch.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Converts from seconds since the epoch. Times before the epoch or beyond the range are
    /// clamped.
    pub fn from_secs(secs: i64) -> Self {
        Self(u64::try_from(secs).unwrap_or(0).saturating_mul(1000))
    }

    /// Converts from a `NumericDate`, which may have a fraction (RFC 7519 §2). Times before the
    /// epoch or beyond the range are clamped.
    pub fn from_numeric_date(date: f64) -> Self {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamps")]
        Self((date * 1000.0) as u64)
    }

    /// Returns the milliseconds since the epoch.
    pub const fn millis(self) -> u64 {
        self.0
    }

    /// Returns the whole seconds since the epoch, rounded down: a `NumericDate` (RFC 7519 §2).
    pub const fn secs(self) -> u64 {
        self.0 / 1000
    }

    /// Formats the time in UTC, to the millisecond (RFC 3339): `2026-11-22T03:28:00.123Z`.
    pub fn rfc3339(self) -> impl fmt::Display {
        fmt::from_fn(move |formatter| {
            let (year, month, day) = civil(self.secs() / 86_400);
            let second = self.secs() % 86_400;
            let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
            let millis = self.0 % 1000;
            // A report has millions of times. The formatter is slow, so it writes only the year,
            // which may have any number of digits.
            let ([a, b], [c, d], [e, f]) = (digits(month), digits(day), digits(hour));
            let ([g, h], [i, j], [k, l, m]) = (digits(minute), digits(second), digits(millis));
            #[rustfmt::skip]
            let rest = [b'-', a, b, b'-', c, d, b'T', e, f, b':', g, h, b':', i, j, b'.', k, l, m, b'Z'];
            write!(formatter, "{year:04}")?;
            formatter.write_str(str::from_utf8(&rest).unwrap_or_default())
        })
    }

    /// Parses a time in exactly the form that [`rfc3339`](Self::rfc3339) writes.
    pub fn from_rfc3339(text: &str) -> Option<Self> {
        let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
        let mut date = date.split('-').map(|number| number.parse::<u64>().ok());
        let (year, month, day) = (date.next()??, date.next()??, date.next()??);
        let (time, millis) = time.split_once('.')?;
        let mut time = time.split(':').map(|number| number.parse::<u64>().ok());
        let (hour, minute, second) = (time.next()??, time.next()??, time.next()??);
        let seconds = hour.checked_mul(60)?.checked_add(minute)?.checked_mul(60)?;
        let seconds = days(year, month, day)?.checked_mul(86_400)?.checked_add(seconds)?;
        let millis: u64 = millis.parse().ok()?;
        let read = Self(seconds.checked_add(second)?.checked_mul(1000)?.checked_add(millis)?);
        (read.rfc3339().to_string() == text).then_some(read)
    }

    /// Returns the time that is later by `duration`, at most the end of the range.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(millis(duration)))
    }

    /// Returns the time that is earlier by `duration`, at the earliest the epoch.
    #[must_use]
    pub fn before(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(millis(duration)))
    }

    /// Returns the time that has passed since `earlier`; zero if `earlier` lies ahead.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// Returns true if this time is too far ahead to have been recorded by the clock as it is now:
    /// the clock has been set back.
    pub fn is_ahead_of(self, now: Self) -> bool {
        self > now.at_the_latest()
    }

    /// Returns the latest time that a clock like this one can have recorded. Later times are
    /// [ahead](Self::is_ahead_of).
    pub fn at_the_latest(self) -> Self {
        self.after(SLACK)
    }

    /// Returns true if less than `duration` has passed since this time was recorded. A time that
    /// lies [ahead](Self::is_ahead_of) never counts as recent, because it says nothing about its
    /// age.
    pub fn is_within(self, duration: Duration, now: Self) -> bool {
        !self.is_ahead_of(now) && now < self.after(duration)
    }
}

/// Converts a day since the epoch to year, month and day of the Gregorian calendar. The algorithm
/// is `civil_from_days` of Howard Hinnant's "chrono-Compatible Low-Level Date Algorithms".
#[expect(clippy::arithmetic_side_effects, reason = "days since the epoch are far from 2^64")]
const fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + if month <= 2 { 1 } else { 0 };
    (year, month, day)
}

/// Returns the last digits of a number, in ASCII.
fn digits<const COUNT: usize>(number: u64) -> [u8; COUNT] {
    let (mut digits, mut left) = ([b'0'; COUNT], number);
    for digit in digits.iter_mut().rev() {
        *digit = digit.saturating_add(u8::try_from(left % 10).unwrap_or_default());
        left /= 10;
    }
    digits
}

/// Converts year, month and day to the day since the epoch (`days_from_civil`). A date that does
/// not exist yields some other day.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    let year = if month <= 2 { year.checked_sub(1)? } else { year };
    let shifted = if month <= 2 { month.checked_add(9)? } else { month.checked_sub(3)? };
    let day_of_year = shifted.checked_mul(153)?.checked_add(2)?.checked_div(5)?.checked_add(day)?;
    let leap_days = (year / 4).checked_add(year / 400)?.checked_sub(year / 100)?;
    let days = year.checked_mul(365)?.checked_add(leap_days)?.checked_add(day_of_year)?;
    days.checked_sub(719_469)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_and_read_as_rfc_3339() {
        #[rustfmt::skip]
        let cases = [
            (0,                     "1970-01-01T00:00:00.000Z"),
            (951_782_400_000,       "2000-02-29T00:00:00.000Z"),
            (951_868_799_999,       "2000-02-29T23:59:59.999Z"),
            (1_790_000_000_123,     "2026-09-21T14:13:20.123Z"),
            (4_107_542_400_000,     "2100-03-01T00:00:00.000Z"),
            (253_402_300_799_000,   "9999-12-31T23:59:59.000Z"),
        ];
        for (millis, text) in cases {
            assert_eq!(UnixTime::from_millis(millis).rfc3339().to_string(), text);
            assert_eq!(UnixTime::from_rfc3339(text), Some(UnixTime::from_millis(millis)));
        }
        for text in [
            "2026-02-29T00:00:00.000Z",
            "2026-13-01T00:00:00.000Z",
            "2026-09-21T24:13:20.123Z",
            "2026-09-21T14:13:20Z",
            "2026-09-21T14:13:20.123+00:00",
            "+026-09-21T14:13:20.123Z",
            "18446744073709551615-09-21T14:13:20.123Z",
            "1969-12-31T23:59:59.999Z",
            "",
        ] {
            assert_eq!(UnixTime::from_rfc3339(text), None, "{text}");
        }
        assert!(UnixTime::from_millis(u64::MAX).rfc3339().to_string().ends_with('Z'));
    }

    #[test]
    fn a_time_recorded_in_the_future_is_not_recent() {
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
