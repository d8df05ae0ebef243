//! Times in logs and in arguments. Logs have several forms of RFC 3339.

use impersonation_core::time::UnixTime;
use jiff::civil::DateTime;
use jiff::fmt::temporal::DateTimeParser;
use jiff::tz::{Offset, TimeZone};
use jiff::{Span, Timestamp};

static PARSER: DateTimeParser = DateTimeParser::new();

/// Reads a time with its offset (RFC 3339 §5.6). A space may stand for the `T`.
pub(crate) fn with_offset(text: &[u8]) -> Option<UnixTime> {
    read(text, None)
}

/// Reads a time that may have no offset, as Envoy's log writes it; then `assumed` counts.
pub(crate) fn perhaps_without_offset(text: &[u8], assumed: Offset) -> Option<UnixTime> {
    read(text, Some(assumed))
}

/// The hot path reads one time for each line.
fn read(text: &[u8], assumed: Option<Offset>) -> Option<UnixTime> {
    let pieces = PARSER.parse_pieces(text).ok()?;
    let local = DateTime::from_parts(pieces.date(), pieces.time()?);
    at(pieces.to_numeric_offset().or(assumed)?.to_timestamp(local).ok()?)
}

/// Reads an offset from UTC: `Z` or `+02:00`.
pub(crate) fn offset(text: &str) -> Result<Offset, String> {
    let fixed = || PARSER.parse_time_zone(text).ok()?.to_fixed_offset().ok();
    let offset = if text.eq_ignore_ascii_case("z") { Some(Offset::UTC) } else { fixed() };
    offset.ok_or_else(|| "expected an offset such as +02:00".to_owned())
}

/// Reads what `--since` and `--until` accept: a time, or a duration before now such as `24h`.
pub(crate) fn argument(text: &str) -> Result<UnixTime, String> {
    with_offset(text.as_bytes()).or_else(|| before_now(text)).ok_or_else(|| {
        "expected a time such as 2026-11-22T03:28:00Z, or a duration such as 90s, 30m, 24h or 7d"
            .to_owned()
    })
}

fn before_now(text: &str) -> Option<UnixTime> {
    let span: Span = text.parse().ok().filter(|span: &Span| !span.is_negative())?;
    let now = Timestamp::now().to_zoned_datetime(TimeZone::UTC);
    at(now.checked_sub(span).ok()?.timestamp())
}

fn at(time: Timestamp) -> Option<UnixTime> {
    u64::try_from(time.as_millisecond()).ok().map(UnixTime::from_millis)
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
        let here = perhaps_without_offset(b"2026-11-22 23:39:24.215", Offset::constant(2));
        assert_eq!(here, Some(UnixTime::from_millis(1_795_383_564_215)));
    }

    #[test]
    fn since_is_a_time_or_a_duration() {
        for good in ["24h", "90s", "30m", "7d", "0s", "1.5h", "2w", "2026-11-22T03:28:00Z"] {
            assert!(argument(good).is_ok(), "{good}");
        }
        for bad in ["", "h", "24", "-1h", "999999999999999999d", "ü"] {
            assert!(argument(bad).is_err(), "{bad}");
        }
    }
}
