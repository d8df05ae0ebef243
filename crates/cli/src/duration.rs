//! A duration on the command line: a number with a unit, so that nobody takes milliseconds for
//! seconds.

use std::time::Duration;

use jiff::SignedDuration;

const LEAST: Duration = Duration::from_millis(1);
const MOST: Duration = Duration::from_mins(10);

/// Reads a duration such as `2s` or `1500ms`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let read = text.parse::<SignedDuration>().ok().and_then(|read| Duration::try_from(read).ok());
    read.filter(|read| (LEAST..=MOST).contains(read))
        .ok_or_else(|| "expected a time of at most 600s, such as 2s or 1500ms".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_unit() {
        #[rustfmt::skip]
        let cases = [
            ("2s",     Some(2000)),
            ("1500ms", Some(1500)),
            ("2",      None),
            ("s",      None),
            ("0s",     None),
            ("601s",   None),
            ("-1s",    None),
            ("1.5s",   Some(1500)),
        ];
        for (text, expected) in cases {
            let expected = expected.map(Duration::from_millis);
            assert_eq!(duration(text).ok(), expected, "{text}");
        }
    }
}
