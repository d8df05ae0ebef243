//! Tells copies of a line from requests that left equal lines.
//!
//! Where Envoy keeps a caller's `x-request-id`, a caller can make two requests whose lines are
//! equal byte for byte. So a line is a copy only if no other request can have left it: it has
//! Envoy's id of the line (`%UNIQUE_ID%`), which no caller chooses, or its event happens once for
//! each token. Of other audit lines, those in another file are copies. Executed calls are in the
//! access log, so the report never has fewer. All other equal lines count, and the report says so
//! at each of them.

use std::cmp::Ordering;
use std::ops::Range;

use impersonation_core::time::UnixTime;

use crate::logs::line::Source;

/// A line that was kept, as it is in the log.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) time: Option<UnixTime>,
    pub(super) source: Source,
    /// The number of the file that has the line.
    pub(super) file: u32,
    /// No other request can have left the same line.
    pub(super) is_unique: bool,
    pub(super) object: String,
    /// Says how often the line is in the logs, if it is more than once.
    pub(super) repetition: Option<String>,
}

impl Line {
    fn cmp(&self, other: &Self) -> Ordering {
        let key = |line: &Self| (line.time, line.source);
        key(self).cmp(&key(other)).then_with(|| self.object.cmp(&other.object))
    }
}

/// The lines that were there more than once.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    /// Copies that were removed.
    pub(super) repeated: u64,
    /// Lines that are equal to another, and count.
    pub(super) alike: u64,
}

/// Removes copies. `lines` are in the order of their time, and within it in that of their file. A
/// line without a time may always be another request.
pub(super) fn without_copies(lines: &mut Vec<Line>) -> Counts {
    let mut order: Vec<_> =
        lines.iter().enumerate().filter(|(_, line)| line.time.is_some()).collect();
    order.sort_by(|(_, one), (_, other)| one.cmp(other));
    let mut counts = Counts::default();
    let mut removed = vec![false; lines.len()];
    let mut told = Vec::new();
    for equal in order.chunk_by(|(_, one), (_, other)| one.cmp(other).is_eq()) {
        let Some((_, line)) = equal.first().filter(|_| equal.len() > 1) else { continue };
        let kept = match line.source {
            _ if line.is_unique => 0..1,
            Source::AccessLog => 0..equal.len(),
            Source::AuditLine => longest_of_one_file(equal),
        };
        let number = kept.len();
        let repetition = match number {
            1 => format!("its line is {} times in the logs", equal.len()),
            _ => format!("one of {number} equal lines"),
        };
        counts.repeated = counts.repeated.saturating_add(count(equal.len().saturating_sub(number)));
        counts.alike = counts.alike.saturating_add(if number > 1 { count(number) } else { 0 });
        for (place, (index, _)) in equal.iter().enumerate() {
            match removed.get_mut(*index) {
                Some(removed) if !kept.contains(&place) => *removed = true,
                _ => told.push((*index, repetition.clone())),
            }
        }
    }
    for (index, repetition) in told {
        if let Some(line) = lines.get_mut(index) {
            line.repetition = Some(repetition);
        }
    }
    let mut removed = removed.into_iter();
    lines.retain(|_| !removed.next().unwrap_or(false));
    counts
}

/// Returns the places of the equal lines in the file that has most of them.
fn longest_of_one_file(equal: &[(usize, &Line)]) -> Range<usize> {
    let (mut longest, mut start) = (0..0, 0_usize);
    for of_file in equal.chunk_by(|(_, one), (_, other)| one.file == other.file) {
        let end = start.saturating_add(of_file.len());
        if of_file.len() > longest.len() {
            longest = start..end;
        }
        start = end;
    }
    longest
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
