//! A duration on the command line: a number with a unit, so that nobody takes milliseconds for
//! seconds.

use std::time::Duration;

/// Reads a duration such as `2s` or `1500ms`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = text.split_at(text.find(|it: char| !it.is_ascii_digit()).unwrap_or(0));
    let number: Option<u64> = number.parse().ok().filter(|it| (1..=600_000).contains(it));
    match (number, unit) {
        (Some(number), "ms") => Ok(Duration::from_millis(number)),
        (Some(number @ ..=600), "s") => Ok(Duration::from_secs(number)),
        _ => Err("expected a time of at most 600s, such as 2s or 1500ms".to_owned()),
    }
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
            ("1.5s",   None),
        ];
        for (text, expected) in cases {
            let expected = expected.map(Duration::from_millis);
            assert_eq!(duration(text).ok(), expected, "{text}");
        }
    }
}
