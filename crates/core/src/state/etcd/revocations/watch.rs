//! The state of the watch that one VM holds, and when the VM must ask although it watches.
//!
//! A watch takes the place of most questions only while it is believed: etcd has confirmed it, and
//! it has brought every revocation that a question found. A watch that does not bring what a
//! question found is replaced. Its successor is not believed before it has brought something, so a
//! watch that stays silent costs no more than the time to the next question.

use std::cell::Cell;
use std::time::Duration;

use super::counted::{Count, Counted};
use crate::state::remote::{LastRevocation, Revision};
use crate::state::revocations::FOLLOWED_EVERY;

/// The time for etcd to confirm a watch, and to bring what a question has found.
const PATIENCE: Duration = Duration::from_secs(1);

/// The time between two attempts to open a watch.
const REOPENED_AFTER: Duration = Duration::from_secs(1);

/// The `max_staleness` above which a VM does not ask more seldom. It is the default: a silent watch
/// is found soon even if the operator lets the guard be out of touch for an hour.
const LONGEST_STALENESS: Duration = Duration::from_secs(10);

/// The watch of one VM.
#[derive(Debug, Default)]
pub(super) struct Watch {
    stream: Cell<Stream>,
    counted: Cell<Counted>,
    /// The first revision that a new watch must bring; `None` if nothing was read since the last
    /// watch ended.
    from: Cell<Option<Revision>>,
    /// The uptime at which a watch was last opened.
    opened_at: Cell<Option<Duration>>,
    /// A revocation that a question found and the watch has not brought, and the uptime at which
    /// it was found.
    owes: Cell<Option<(Count, Duration)>>,
    /// An earlier watch was silent, and this one has brought nothing yet.
    is_doubted: Cell<bool>,
}

/// The stream of the watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Stream {
    #[default]
    Closed,
    /// It was asked for, and etcd has not confirmed it.
    Opening,
    Open,
    /// It is of no use any more, and has to be cancelled.
    GivenUp,
}

/// The next action on the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tend {
    /// Nothing.
    Leave,
    /// Open a watch from this revision on.
    Open(Revision),
    /// Cancel the watch: etcd has ended it, or another VM has the turn to ask.
    Cancel,
    /// Cancel the watch: it is silent.
    Replace,
}

impl Watch {
    /// The time after a question within which the next one is not due. Questions come at ticks, so
    /// the next one is sent one tick early rather than late.
    pub(super) fn rest(max_staleness: Duration) -> Duration {
        let third = max_staleness.min(LONGEST_STALENESS).checked_div(3).unwrap_or_default();
        third.saturating_sub(FOLLOWED_EVERY)
    }

    /// Returns true if the watch takes the place of most questions.
    pub(super) fn is_believed(&self) -> bool {
        self.stream.get() == Stream::Open && self.owes.get().is_none() && !self.is_doubted.get()
    }

    /// Decides what to do about the stream at a tick.
    pub(super) fn tend(&self, uptime: Duration, is_ours: bool) -> Tend {
        let since = |then: Duration| uptime.saturating_sub(then);
        let opened = self.opened_at.get().map(since);
        let owes = self.owes.get().map(|(_, found_at)| since(found_at));
        match self.stream.get() {
            Stream::Closed => match self.from.get() {
                Some(from) if is_ours && opened.is_none_or(|time| time >= REOPENED_AFTER) => {
                    self.opened_at.set(Some(uptime));
                    self.stream.set(Stream::Opening);
                    Tend::Open(from)
                }
                _ => Tend::Leave,
            },
            Stream::GivenUp => {
                self.end();
                Tend::Cancel
            }
            Stream::Opening | Stream::Open if !is_ours => {
                self.end();
                Tend::Cancel
            }
            // etcd, or a proxy before it, does not speak.
            Stream::Opening if opened.is_none_or(|time| time >= PATIENCE) => {
                self.end();
                Tend::Replace
            }
            Stream::Open if owes.is_some_and(|time| time >= PATIENCE) => {
                self.end();
                self.is_doubted.set(true);
                Tend::Replace
            }
            Stream::Opening | Stream::Open => Tend::Leave,
        }
    }

    /// Notes that etcd has confirmed the watch.
    pub(super) fn confirm(&self) {
        if self.stream.get() == Stream::Opening {
            self.stream.set(Stream::Open);
        }
    }

    /// Returns true if the watch was asked for and not given up.
    pub(super) fn is_there(&self) -> bool {
        matches!(self.stream.get(), Stream::Opening | Stream::Open)
    }

    /// Notes that the watch is of no use any more. The next tick cancels it.
    pub(super) fn give_up(&self) {
        self.end();
        self.stream.set(Stream::GivenUp);
    }

    /// Notes that there is no watch any more.
    pub(super) fn end(&self) {
        self.stream.set(Stream::Closed);
        self.from.set(None);
        self.owes.set(None);
        self.with_counted(Counted::forget_brought);
    }

    /// Notes that the watch brought these revocations, and that the copy has them.
    pub(super) fn note_brought(&self, brought: &[LastRevocation]) {
        if brought.is_empty() {
            return;
        }
        self.with_counted(|counted| {
            brought.iter().for_each(|last| counted.note_brought((*last).into()));
        });
        self.is_doubted.set(false);
        if self.owes.get().is_some_and(|(count, _)| self.counted.get().has_brought(count)) {
            self.owes.set(None);
        }
    }

    /// Notes that the watch has missed something, or that the copy does not have what it brought.
    pub(super) fn note_gap(&self) {
        self.with_counted(Counted::forget_brought);
    }

    /// If the copy has all revocations until `last`, returns the revision until which it was
    /// complete when that was last shown.
    pub(super) fn has_all_until(&self, last: LastRevocation) -> Option<Revision> {
        self.counted.get().has_all_until(last.into())
    }

    /// Notes the answer to a question: this is the last revocation, and the copy has all until
    /// then. `had_all` says that it had them before the answer.
    pub(super) fn note_read(&self, last: LastRevocation, had_all: bool, uptime: Duration) {
        let count = last.into();
        if !had_all && self.stream.get() == Stream::Open && self.owes.get().is_none() {
            self.owes.set(Some((count, uptime)));
        }
        self.with_counted(|counted| counted.note_read(count));
        self.from.set(Some(last.seen_at.next()));
    }

    fn with_counted(&self, change: impl FnOnce(&mut Counted)) {
        let mut counted = self.counted.get();
        change(&mut counted);
        self.counted.set(counted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = FOLLOWED_EVERY;

    fn last(number: u64) -> LastRevocation {
        let at = |number: u64| Revision::new(i64::try_from(number).unwrap().saturating_mul(10));
        let (revision, counted_since) = (at(number), at(number.min(1)));
        LastRevocation { revision, number, counted_since, seen_at: revision }
    }

    fn open(at: Duration) -> Watch {
        let watch = Watch::default();
        watch.note_read(last(1), false, at);
        assert_eq!(watch.tend(at, true), Tend::Open(Revision::new(11)));
        assert!(!watch.is_believed(), "etcd has not confirmed it");
        watch.confirm();
        assert!(watch.is_believed());
        watch
    }

    #[test]
    fn the_next_question_is_due_after_a_third_of_max_staleness() {
        let seconds = [1, 2, 3, 10, 60, 3600].map(Duration::from_secs);
        let rests = seconds.map(|max_staleness| Watch::rest(max_staleness).as_millis());
        assert_eq!(rests, [83, 416, 750, 3083, 3083, 3083]);
        for max_staleness in seconds {
            assert!((Watch::rest(max_staleness) + TICK) * 3 <= max_staleness);
        }
        assert_eq!(Watch::rest(Duration::ZERO), Duration::ZERO);
    }

    #[test]
    fn a_watch_is_opened_after_a_read_and_by_the_vm_whose_turn_it_is() {
        let (watch, now) = (Watch::default(), Duration::from_secs(9));
        assert_eq!(watch.tend(now, true), Tend::Leave, "nothing was read");
        watch.note_read(last(0), true, now);
        assert_eq!(watch.tend(now, false), Tend::Leave);
        assert_eq!(watch.tend(now, true), Tend::Open(Revision::new(1)));
        assert_eq!(watch.tend(now, true), Tend::Leave, "one is on its way");
        watch.confirm();
        assert_eq!(watch.tend(now + TICK, true), Tend::Leave);
        assert_eq!(watch.tend(now + TICK, false), Tend::Cancel);
        assert!(!watch.is_believed());
        assert_eq!(watch.tend(now + TICK, false), Tend::Leave);
    }

    #[test]
    fn a_watch_that_etcd_has_ended_is_cancelled_at_the_next_tick_and_opened_again() {
        let now = Duration::from_secs(9);
        let watch = open(now);
        watch.give_up();
        assert!(!watch.is_believed() && !watch.is_there());
        watch.note_read(last(2), false, now);
        assert_eq!(watch.tend(now + TICK, true), Tend::Cancel);
        assert_eq!(watch.tend(now + TICK, true), Tend::Leave, "something must be read first");
        watch.note_read(last(2), true, now + TICK);
        assert_eq!(watch.tend(now + TICK * 2, true), Tend::Leave, "a second has not passed");
        assert_eq!(watch.tend(now + TICK * 4, true), Tend::Open(Revision::new(21)));
    }

    #[test]
    fn a_watch_that_is_not_confirmed_is_given_up_and_tried_again_once_a_second() {
        let (watch, mut now) = (Watch::default(), Duration::from_secs(9));
        let mut opened = 0;
        for _ in 0..40 {
            watch.note_read(last(1), true, now);
            opened += usize::from(watch.tend(now, true) == Tend::Open(Revision::new(11)));
            assert!(!watch.is_believed());
            now += TICK;
        }
        assert!((5..=10).contains(&opened), "{opened}");
        // The same if Envoy cannot open it.
        for _ in 0..40 {
            watch.note_read(last(1), true, now);
            opened += usize::from(watch.tend(now, true) == Tend::Open(Revision::new(11)));
            watch.end();
            now += TICK;
        }
        assert!((15..=20).contains(&opened), "{opened}");
    }

    #[test]
    fn a_watch_that_does_not_bring_what_a_question_found_is_replaced_and_its_successor_doubted() {
        let now = Duration::from_secs(9);
        let watch = open(now);
        watch.note_read(last(2), false, now);
        assert!(!watch.is_believed(), "it owes a revocation");
        watch.note_read(last(2), true, now + TICK);
        assert_eq!(watch.tend(now + PATIENCE - TICK, true), Tend::Leave);
        assert_eq!(watch.tend(now + PATIENCE, true), Tend::Replace);
        watch.note_read(last(2), true, now + PATIENCE);
        assert_eq!(watch.tend(now + PATIENCE + TICK, true), Tend::Open(Revision::new(21)));
        watch.confirm();
        assert!(!watch.is_believed(), "it may be as silent");
        watch.note_brought(&[last(3)]);
        assert!(watch.is_believed());
        assert_eq!(watch.has_all_until(last(3)), Some(Revision::new(20)));
    }

    #[test]
    fn a_watch_that_is_only_slower_than_a_question_stays() {
        let now = Duration::from_secs(9);
        let watch = open(now);
        watch.note_read(last(3), false, now);
        watch.note_brought(&[last(2)]);
        assert!(!watch.is_believed());
        watch.note_brought(&[last(3)]);
        assert!(watch.is_believed());
        assert_eq!(watch.tend(now + PATIENCE, true), Tend::Leave);
        assert_eq!(watch.has_all_until(last(3)), Some(Revision::new(30)));
    }
}
