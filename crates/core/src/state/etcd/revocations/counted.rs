//! Counts the revocations that a watch brings, to show that it has missed none.
//!
//! Every revocation writes one key besides its own, in the same transaction, and etcd counts the
//! writes to that key. A transaction arrives as a whole. So a watch that brings revocation 8 after
//! revocation 7 has missed nothing between them, and one that brings revocation 9 has.
//!
//! The count is evidence about the past, and says nothing about the present: a watch that brings
//! nothing may have stopped. Only a read shows the number of the last revocation.

use crate::state::remote::{LastRevocation, Revision};

/// A revocation, as the key that every revocation writes counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Count {
    /// Zero stands for none: nothing was ever revoked.
    number: u64,
    revision: Revision,
    /// The revision of the first revocation that was counted. It differs if the key was deleted in
    /// between, and the count began anew.
    since: Revision,
}

/// Revocations without a gap between them.
#[derive(Debug, Clone, Copy)]
struct Run {
    first: Count,
    last: Count,
}

/// The revocations that are in the copy of this Envoy, as far as one VM has counted them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counted {
    /// All revocations until this one are in the copy.
    all_until: Option<Count>,
    /// The revision until which a read last showed the copy to be complete. `all_until` builds on
    /// it, and means nothing for a copy that began anew since.
    known: Revision,
    /// The last revocations that the watch has brought.
    brought: Option<Run>,
}

impl From<LastRevocation> for Count {
    fn from(last: LastRevocation) -> Self {
        let LastRevocation { revision, number, counted_since, .. } = last;
        Self { number, revision, since: counted_since }
    }
}

impl Count {
    /// Returns true if this revocation and `earlier` were counted without a new beginning between
    /// them.
    fn continues(self, earlier: Self) -> bool {
        earlier.number == 0 || self.since == earlier.since
    }

    /// Returns true if no revocation is between this one and `earlier`.
    fn comes_right_after(self, earlier: Self) -> bool {
        earlier.number.checked_add(1) == Some(self.number)
            && self.revision > earlier.revision
            && self.continues(earlier)
    }

    /// Returns true if this revocation is `other`, or came later.
    fn is_no_earlier_than(self, other: Self) -> bool {
        self == other
            || self.number > other.number && self.revision > other.revision && self.continues(other)
    }
}

impl Counted {
    /// Notes that the watch brought a revocation, and that the copy has it.
    pub(super) fn note_brought(&mut self, count: Count) {
        let run = match self.brought {
            Some(run) if count == run.last => run,
            Some(Run { first, last }) if count.comes_right_after(last) => {
                Run { first, last: count }
            }
            _ => Run { first: count, last: count },
        };
        self.brought = Some(run);
        self.join();
    }

    /// Notes that a read showed this to be the last revocation, and that the copy has all until
    /// then.
    pub(super) fn note_read(&mut self, count: Count) {
        if !self.all_until.is_some_and(|all| all.is_no_earlier_than(count)) {
            self.all_until = Some(count);
        }
        self.known = count.revision;
        self.join();
    }

    /// Forgets all that the watch has brought: its next revocation need not follow the last.
    pub(super) fn forget_brought(&mut self) {
        self.brought = None;
    }

    /// If all revocations until this one are in the copy, returns the revision of the read that
    /// this builds on.
    pub(super) fn has_all_until(&self, count: Count) -> Option<Revision> {
        let has_all = self.all_until.is_some_and(|all| all.is_no_earlier_than(count));
        has_all.then_some(self.known)
    }

    /// Returns true if the watch has brought this revocation or a later one.
    pub(super) fn has_brought(&self, count: Count) -> bool {
        self.brought.is_some_and(|run| run.last.is_no_earlier_than(count))
    }

    /// Moves `all_until` on if what the watch has brought begins no later than right after it.
    fn join(&mut self) {
        let (Some(all), Some(run)) = (self.all_until, self.brought) else { return };
        let leaves_no_gap = run.first.number <= all.number.saturating_add(1);
        if leaves_no_gap && run.first.continues(all) && run.last.is_no_earlier_than(all) {
            self.all_until = Some(run.last);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The revocation with this number, of a key that was created at revision 10.
    fn count(number: u64) -> Count {
        let revision =
            |number: u64| Revision::new(i64::try_from(number).unwrap().saturating_mul(10));
        let since = revision(number.min(1));
        Count { number, revision: revision(number), since }
    }

    fn counted(read: u64, brought: impl IntoIterator<Item = u64>) -> Counted {
        let mut counted = Counted::default();
        counted.note_read(count(read));
        brought.into_iter().for_each(|number| counted.note_brought(count(number)));
        counted
    }

    #[test]
    fn a_run_without_a_gap_reaches_as_far_as_its_last() {
        for (read, brought, all_until) in [
            (0, &[][..], 0),
            (0, &[1, 2, 3], 3),
            (5, &[6, 7], 7),
            (5, &[6, 6, 7, 7], 7),
            (5, &[3, 4, 5, 6], 6),
            (5, &[4], 5),
            (5, &[7], 5),
            (5, &[6, 8], 6),
            (5, &[6, 8, 9], 6),
            (5, &[6, 5, 7], 7),
        ] {
            let counted = counted(read, brought.iter().copied());
            for number in 0..12 {
                let has_all = counted.has_all_until(count(number)).is_some();
                assert_eq!(has_all, number <= all_until, "{read} {brought:?}: {number}");
            }
        }
    }

    #[test]
    fn what_was_brought_before_the_read_counts_from_the_read_on() {
        let mut counted = Counted::default();
        (7..10).for_each(|number| counted.note_brought(count(number)));
        assert_eq!(counted.has_all_until(count(9)), None, "nothing was read");
        counted.note_read(count(5));
        assert_eq!(counted.has_all_until(count(9)), None, "6 is missing");
        counted.note_read(count(6));
        assert_eq!(counted.has_all_until(count(9)), Some(count(6).revision));
        counted.forget_brought();
        counted.note_brought(count(11));
        assert!(counted.has_all_until(count(9)).is_some());
        assert_eq!(counted.has_all_until(count(11)), None, "10 is missing");
    }

    #[test]
    fn a_count_that_began_anew_continues_nothing() {
        let anew = |number: u64| Count { since: Revision::new(70), ..count(number) };
        let mut counted = counted(5, [6]);
        counted.note_brought(anew(7));
        assert_eq!(counted.has_all_until(anew(7)), None);
        assert_eq!(counted.has_all_until(anew(6)), None);
        // The same number at another revision is another revocation.
        let other = Count { revision: Revision::new(61), ..count(6) };
        assert_eq!(counted.has_all_until(other), None);
    }

    proptest! {
        /// Whatever arrives in whatever order: no revocation is said to be in the copy that was
        /// neither read nor brought.
        #[test]
        fn nothing_that_is_missing_is_counted(
            steps in proptest::collection::vec((0_u64..20, 0_u8..8), 0..60),
        ) {
            let (mut counted, mut has) = (Counted::default(), [false; 21]);
            has[0] = true;
            for (number, kind) in steps {
                match kind {
                    0 => {
                        has[..=usize::try_from(number).unwrap()].fill(true);
                        counted.note_read(count(number));
                    }
                    1 => counted.forget_brought(),
                    _ => {
                        has[usize::try_from(number).unwrap()] = true;
                        counted.note_brought(count(number));
                    }
                }
                for number in 0..20 {
                    let missing = has[..=usize::try_from(number).unwrap()].contains(&false);
                    prop_assert!(!missing || counted.has_all_until(count(number)).is_none());
                }
            }
        }
    }
}
