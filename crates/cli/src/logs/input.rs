//! Reads logs of any size, and looks only at the lines that can matter.
//!
//! Most lines of an access log are other people's requests. Reading their JSON would take most of
//! the time, so a line is read only if it contains a name that no other line has.

use std::io::{self, Read};

use memchr::{memchr, memchr_iter, memmem};

/// The names that a line about impersonations contains at least one of.
const NAMES: [&[u8]; 3] = [br#""txn""#, br#""event""#, br#""alarm""#];

/// The bytes that are read at a time, and the longest line.
pub(crate) const CHUNK: usize = 1 << 20;

/// The bytes with which a gzip file begins.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// A line that may matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found<'a> {
    /// The line contains one of the names.
    Line(&'a [u8]),
    /// The line begins like an object and does not end like one, or is too long.
    Torn,
}

/// Reads all lines, and calls `found` for those that may matter. Returns the number of lines.
pub(crate) fn scan(
    mut input: impl Read,
    mut found: impl FnMut(Found<'_>) -> io::Result<()>,
) -> io::Result<u64> {
    let finders = NAMES.map(memmem::Finder::new);
    let mut buffer = vec![0; CHUNK];
    let (mut filled, mut lines, mut skipping, mut first) = (0_usize, 0_u64, false, true);
    loop {
        let room = buffer.get_mut(filled..).unwrap_or_default();
        let read = match input.read(room) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        filled = filled.saturating_add(read);
        let held = buffer.get(..filled).unwrap_or_default();
        if std::mem::take(&mut first) && held.starts_with(&GZIP) {
            return Err(io::Error::other("is compressed: pass it through zcat"));
        }
        // A file may end without a line feed.
        let whole = match memchr::memrchr(b'\n', held) {
            _ if read == 0 => filled,
            Some(last) => last.saturating_add(1),
            None if filled < CHUNK => continue,
            None => {
                if !skipping {
                    lines = lines.saturating_add(1);
                    found(Found::Torn)?;
                }
                (skipping, filled) = (true, 0);
                continue;
            }
        };
        let mut region = held.get(..whole).unwrap_or_default();
        if std::mem::take(&mut skipping) {
            let rest = memchr(b'\n', region).map(|end| end.saturating_add(1));
            region = region.get(rest.unwrap_or(whole)..).unwrap_or_default();
        }
        lines = lines.saturating_add(region_lines(region, &finders, &mut found)?);
        if read == 0 {
            return Ok(lines);
        }
        buffer.copy_within(whole..filled, 0);
        filled = filled.saturating_sub(whole);
    }
}

/// Looks through whole lines, and returns their number.
fn region_lines(
    region: &[u8],
    finders: &[memmem::Finder<'_>; 3],
    found: &mut impl FnMut(Found<'_>) -> io::Result<()>,
) -> io::Result<u64> {
    let look = |finder: &memmem::Finder<'_>, from: usize| {
        let at = finder.find(region.get(from..)?)?;
        from.checked_add(at)
    };
    // The next place of each name.
    let mut next = [0; 3].map(Some);
    next.iter_mut().zip(finders).for_each(|(place, finder)| *place = look(finder, 0));
    let (mut start, mut lines) = (0_usize, 0_u64);
    let last = (!region.is_empty() && !region.ends_with(b"\n")).then_some(region.len());
    for end in memchr_iter(b'\n', region).chain(last) {
        let line = region.get(start..end).unwrap_or_default();
        lines = lines.saturating_add(1);
        let mut matters = false;
        for (place, finder) in next.iter_mut().zip(finders) {
            if place.is_some_and(|place| place < end) {
                matters = true;
                *place = look(finder, end);
            }
        }
        if matters {
            found(Found::Line(line))?;
        } else if line.first() == Some(&b'{') && !line.trim_ascii_end().ends_with(b"}") {
            found(Found::Torn)?;
        }
        start = end.saturating_add(1);
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Gives a few bytes at a time.
    struct Slow<'a>(&'a [u8], usize);

    impl Read for Slow<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let length = self.1.min(self.0.len()).min(into.len());
            let (now, later) = self.0.split_at(length);
            into[..length].copy_from_slice(now);
            self.0 = later;
            Ok(length)
        }
    }

    fn scanned(bytes: &[u8], at_a_time: usize) -> (u64, Vec<Vec<u8>>, u64) {
        let (mut found, mut torn) = (Vec::new(), 0_u64);
        let lines = scan(Slow(bytes, at_a_time), |line| {
            match line {
                Found::Line(line) => found.push(line.to_vec()),
                Found::Torn => torn = torn.saturating_add(1),
            }
            Ok(())
        });
        (lines.unwrap(), found, torn)
    }

    #[test]
    fn lines_that_may_matter_are_found_however_the_bytes_arrive() {
        let log =
            b"{\"a\":1}\n{\"txn\":\"1\"}\r\n\n[x] {\"event\":1}\n{\"torn\":\nother\n{\"alarm\"";
        for at_a_time in 1..log.len() {
            let (lines, found, torn) = scanned(log, at_a_time);
            assert_eq!(lines, 7, "{at_a_time}");
            let expected: [&[u8]; 3] = [b"{\"txn\":\"1\"}\r", b"[x] {\"event\":1}", b"{\"alarm\""];
            assert_eq!(found, expected, "{at_a_time}");
            assert_eq!(torn, 1, "{at_a_time}");
        }
    }

    #[test]
    fn a_line_that_is_too_long_is_skipped() {
        let mut log = vec![b'x'; CHUNK * 2 + 7];
        log.extend_from_slice(b"\"txn\"\n{\"txn\":1}\n");
        let (lines, found, torn) = scanned(&log, usize::MAX);
        assert_eq!((lines, found, torn), (2, vec![b"{\"txn\":1}".to_vec()], 1));
    }

    proptest! {
        #[test]
        fn every_line_is_counted_once(
            log in prop::collection::vec(prop_oneof![Just(b'\n'), Just(b'{'), Just(b'}'), any::<u8>()], 0..300),
            at_a_time in 1..40_usize,
        ) {
            prop_assume!(!log.starts_with(&GZIP));
            let whole = scanned(&log, usize::MAX);
            let ends = log.iter().filter(|byte| **byte == b'\n').count() as u64;
            let last = u64::from(!log.is_empty() && !log.ends_with(b"\n"));
            prop_assert_eq!(whole.0, ends.saturating_add(last));
            prop_assert_eq!(scanned(&log, at_a_time), whole);
        }
    }
}
