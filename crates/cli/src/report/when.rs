//! Times in logs and in arguments. Logs have several forms of RFC 3339, and the hot path reads one
//! time for each line, so nothing here allocates.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use impersonation_core::time::UnixTime;

/// The milliseconds of a second.
const SECOND: i64 = 1000;

/// Reads a time with its offset (RFC 3339 §5.6). A space may stand for the `T`.
pub(super) fn with_offset(text: &[u8]) -> Option<UnixTime> {
    let (local, rest) = local(text)?;
    let offset = offset(rest)?;
    at(local.checked_sub(offset)?)
}

/// Reads a time that may have no offset, as Envoy's log writes it; then `assumed` counts, in
/// milliseconds.
pub(super) fn perhaps_without_offset(text: &[u8], assumed: i64) -> Option<UnixTime> {
    let (local, rest) = local(text)?;
    let offset = if rest.is_empty() { assumed } else { offset(rest)? };
    at(local.checked_sub(offset)?)
}

/// Reads an offset from UTC: `Z` or `+02:00`. Returns it in milliseconds.
pub(super) fn offset(text: &[u8]) -> Option<i64> {
    let (sign, hours, minutes) = match *text {
        [b'Z' | b'z'] => return Some(0),
        [b'+', a, b, b':', c, d] => (1, number(&[a, b])?, number(&[c, d])?),
        [b'-', a, b, b':', c, d] => (-1, number(&[a, b])?, number(&[c, d])?),
        _ => return None,
    };
    let minutes = hours.checked_mul(60)?.checked_add(minutes)?;
    minutes.checked_mul(60)?.checked_mul(SECOND)?.checked_mul(sign)
}

/// Reads what `--since` and `--until` accept: a time, or a duration before now such as `24h`.
pub(super) fn argument(text: &str) -> Result<UnixTime, String> {
    if let Some(time) = with_offset(text.as_bytes()) {
        return Ok(time);
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = UnixTime::from_millis(u64::try_from(now.as_millis()).unwrap_or(u64::MAX));
    let before = duration(text).map(|duration| now.before(duration));
    before.ok_or_else(|| {
        "expected a time such as 2026-11-22T03:28:00Z, or a duration such as 90s, 30m, 24h or 7d"
            .to_owned()
    })
}

fn duration(text: &str) -> Option<Duration> {
    let unit = text.chars().next_back()?;
    let count: u64 = text.strip_suffix(unit)?.parse().ok()?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        _ => return None,
    };
    count.checked_mul(seconds).map(Duration::from_secs)
}

/// Reads `2026-11-22T03:28:00.123` as milliseconds since the epoch, and returns the rest.
fn local(text: &[u8]) -> Option<(i64, &[u8])> {
    #[rustfmt::skip]
    let [a, b, c, d, b'-', e, f, b'-', g, h, b'T' | b't' | b' ',
         i, j, b':', k, l, b':', m, n, rest @ ..] = text else { return None };
    let (year, month, day) = (number(&[*a, *b, *c, *d])?, number(&[*e, *f])?, number(&[*g, *h])?);
    let (hour, minute) = (number(&[*i, *j])?, number(&[*k, *l])?);
    let second = number(&[*m, *n])?;
    let fits = (1..=12).contains(&month) && (1..=31).contains(&day);
    if !(fits && hour < 24 && minute < 60 && second <= 60) {
        return None;
    }
    let (millis, rest) = match rest {
        [b'.', fraction @ ..] => {
            let digits = fraction.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let (fraction, rest) = fraction.split_at_checked(digits)?;
            let mut padded = *b"000";
            padded.iter_mut().zip(fraction).for_each(|(digit, given)| *digit = *given);
            (number(&padded)?, rest)
        }
        _ => (0, rest),
    };
    #[expect(clippy::arithmetic_side_effects, reason = "a year of four digits is far from 2^63")]
    let local = {
        let seconds = ((days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second;
        seconds * SECOND + millis
    };
    Some((local, rest))
}

/// Converts a date to the day since the epoch. The algorithm is `days_from_civil` of Howard
/// Hinnant's "chrono-Compatible Low-Level Date Algorithms".
#[expect(clippy::arithmetic_side_effects, reason = "a year of four digits is far from 2^63")]
const fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let shifted = if month <= 2 { month + 9 } else { month - 3 };
    let era = year.div_euclid(400);
    let year_of_era = year - era * 400;
    let day_of_year = (153 * shifted + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

fn number(digits: &[u8]) -> Option<i64> {
    digits.iter().try_fold(0_i64, |sum, digit| {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
        sum.checked_mul(10)?.checked_add(i64::from(digit))
    })
}

fn at(millis: i64) -> Option<UnixTime> {
    u64::try_from(millis).ok().map(UnixTime::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_logs_are_read() {
        #[rustfmt::skip]
        let cases = [
            ("1970-01-01T00:00:00Z",                Some(0)),
            ("2000-02-29T00:00:00.000Z",            Some(951_782_400_000)),
            ("2026-11-22T21:39:24.215Z",            Some(1_795_383_564_215)),
            ("2026-11-22T23:39:24.215999999+02:00", Some(1_795_383_564_215)),
            ("2026-11-22T16:09:24.2-05:30",         Some(1_795_383_564_200)),
            ("2026-11-22 21:39:24.215Z",            Some(1_795_383_564_215)),
            ("2026-11-22T21:39:24.215",             None),
            ("2026-13-22T21:39:24Z",                None),
            ("2026-11-22T24:00:00Z",                None),
            ("1969-12-31T23:59:59Z",                None),
            ("2026-11-22T21:39:24.Zz",              None),
            ("",                                    None),
        ];
        for (text, millis) in cases {
            let read = with_offset(text.as_bytes());
            assert_eq!(read, millis.map(UnixTime::from_millis), "{text}");
            if let Some(time) = read {
                assert_eq!(UnixTime::from_rfc3339(&time.rfc3339().to_string()), read, "{text}");
            }
        }
        let here = perhaps_without_offset(b"2026-11-22 23:39:24.215", 7_200_000);
        assert_eq!(here, Some(UnixTime::from_millis(1_795_383_564_215)));
    }

    #[test]
    fn since_is_a_time_or_a_duration() {
        for good in ["24h", "90s", "30m", "7d", "0s", "2026-11-22T03:28:00Z"] {
            assert!(argument(good).is_ok(), "{good}");
        }
        for bad in ["", "h", "24", "-1h", "1.5h", "24 h", "2w", "999999999999999999d", "ü"] {
            assert!(argument(bad).is_err(), "{bad}");
        }
    }
}
