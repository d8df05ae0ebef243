//! The table of revocations, as bytes.
//!
//! It is small enough to be read whole, and is searched as it lies there: 32 bytes an entry, in the order of the
//! names. Its head says which kinds of revocation it has at all, and when the last of each was, so that looking an
//! impersonation up hashes no more than there is to find.
//!
//! There are at most [`MAX_ENTRIES`]. When they are used up, the oldest become one cut-off for everyone: more has
//! ended than was meant, never less. A revocation of everyone is that cut-off, and takes no entry.

use std::time::Duration;

use super::entry::{
    CALLER, End, Impersonation, Issued, Key, Learned, MASKS, Mask, Name, Revocation,
};
use crate::etcd::Revision;
use crate::host::UnixTime;

/// The most revocations that are told apart: half a MiB of them.
pub const MAX_ENTRIES: usize = 16_384;

/// How many of the oldest become the cut-off at once: so that a full table is not sorted for each new entry.
const MADE_ROOM: usize = 1024;

/// The format. Who finds another says so and lets nobody pass: to begin anew would be to forget.
const VERSION: u8 = 2;

/// The format before, which knew no revisions. It is still read, so that an upgrade forgets nothing.
const TIMES_VERSION: u8 = 1;

const NAME: usize = 16;
const END: usize = 8 + 8;
const ENTRY: usize = NAME + END;

/// The longest head, with every kind in it.
const HEAD: usize = 1 + 8 + 16 + END + 8 + 1 + 64 * (1 + END);

type Entry = [u8; ENTRY];

/// All that was revoked, at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Table {
    /// Grows with every change.
    pub(super) sequence: u64,
    key: Key,
    /// Whatever was issued until then has ended.
    cut_off: End,
    /// How long an entry is kept.
    retention: Duration,
    /// When the last entry of each kind was made; kinds without entries are not there.
    kinds: Vec<(Mask, End)>,
    /// In the order of their names, each there once.
    entries: Vec<Entry>,
}

impl Table {
    /// Whether an impersonation has ended, of which something was issued then.
    pub(super) fn has_ended(&self, impersonation: &Impersonation<'_>, issued: Issued) -> bool {
        if issued.is_until(self.cut_off) {
            return true;
        }
        self.kinds.iter().filter(|(_, last)| issued.is_until(*last)).any(|(mask, _)| {
            match impersonation.name(&self.key, *mask) {
                Some(name) => self.find(&name).is_some_and(|end| issued.is_until(end)),
                // It could be the caller that is meant.
                None => mask & CALLER != 0 && impersonation.may_match_but_for_the_caller(*mask),
            }
        })
    }

    /// Whether this very revocation, or one of everyone, has ended what was issued then.
    pub(super) fn has(&self, revocation: &Revocation, issued: Issued) -> bool {
        let found = || self.find(&revocation.name(&self.key));
        issued.is_until(self.cut_off) || found().is_some_and(|end| issued.is_until(end))
    }

    pub(super) const fn len(&self) -> usize {
        self.entries.len()
    }
}

impl Impersonation<'_> {
    /// Whether nothing but a caller that is not known keeps an entry of this kind from being looked up.
    fn may_match_but_for_the_caller(&self, mask: Mask) -> bool {
        self.caller.is_none() && self.name(&Key::default(), mask & !CALLER).is_some()
    }
}

impl Table {
    /// A table in which nothing has ended.
    pub(super) fn new(key: Key, now: UnixTime) -> Self {
        Self {
            // Never again a number that a table before this one had.
            sequence: now.millis(),
            key,
            cut_off: End::default(),
            retention: Duration::ZERO,
            kinds: Vec::new(),
            entries: Vec::new(),
        }
    }

    /// Keeps entries for at least so long. Whether that is new.
    pub(super) fn keep_for(&mut self, retention: Duration) -> bool {
        let longer = retention > self.retention;
        self.retention = self.retention.max(retention);
        longer
    }

    /// Ends what was issued until `end`. Whether others than those named had to be ended for it.
    pub(super) fn insert(&mut self, revocation: &Revocation, end: End) -> bool {
        self.forget_expired(end.time);
        let mask = revocation.mask();
        if mask == 0 {
            self.cut_off(end);
            return false;
        }
        let name = revocation.name(&self.key);
        match self.place(&name) {
            Ok(place) => {
                if let Some(entry) = self.entries.get_mut(place) {
                    *entry = self::entry(&name, self::end(entry).max(end));
                }
            }
            Err(place) => self.entries.insert(place, self::entry(&name, end)),
        }
        self.note_kind(mask, end);
        self.make_room()
    }

    /// The same of many at once, each kept for as long as it says.
    pub(super) fn insert_all(&mut self, learned: &[Learned]) -> bool {
        let Some(now) = learned.iter().map(|one| one.end.time).max() else { return false };
        learned.iter().for_each(|one| _ = self.keep_for(one.retention));
        self.forget_expired(now);
        for Learned { revocation, end, .. } in learned {
            let mask = revocation.mask();
            if mask == 0 {
                self.cut_off(*end);
                continue;
            }
            self.entries.push(entry(&revocation.name(&self.key), *end));
            self.note_kind(mask, *end);
        }
        self.entries.sort_unstable_by(|one, other| name(one).cmp(name(other)));
        self.entries.dedup_by(|next, one| {
            let same = name(next) == name(one);
            if same && let Some((name, _)) = one.split_first_chunk() {
                *one = entry(name, end(one).max(end(next)));
            }
            same
        });
        self.make_room()
    }

    fn note_kind(&mut self, mask: Mask, end: End) {
        match self.kinds.iter_mut().find(|(kind, _)| *kind == mask) {
            Some((_, last)) => *last = end.max(*last),
            None => self.kinds.push((mask, end)),
        }
    }

    /// Until when an entry ends what it names.
    fn find(&self, name: &Name) -> Option<End> {
        self.entries.get(self.place(name).ok()?).map(end)
    }

    fn place(&self, name: &Name) -> Result<usize, usize> {
        self.entries.binary_search_by(|entry| self::name(entry).cmp(name))
    }

    /// Forgets what ended nothing that could still be alive.
    fn forget_expired(&mut self, now: UnixTime) {
        let retention = self.retention;
        self.retain(|end| now < end.time.after(retention));
    }

    /// Makes the oldest the cut-off, if there are too many. Whether it did.
    fn make_room(&mut self) -> bool {
        let Some(too_many) = self.entries.len().checked_sub(MAX_ENTRIES).filter(|many| *many > 0)
        else {
            return false;
        };
        let mut ends: Vec<_> = self.entries.iter().map(end).collect();
        let oldest =
            too_many.saturating_sub(1).saturating_add(MADE_ROOM).min(ends.len().saturating_sub(1));
        let (oldest, last, _) = ends.select_nth_unstable_by_key(oldest, |end| end.time);
        let last = oldest.iter().fold(*last, |last, end| last.max(*end));
        self.cut_off(last);
        true
    }

    /// Whatever was issued until `end` has ended, and needs no entry any more.
    pub(super) fn cut_off(&mut self, end: End) {
        let end = self.cut_off.max(end);
        self.cut_off = end;
        self.retain(|one| !one.is_within(end));
    }

    /// Keeps the entries of which this holds.
    fn retain(&mut self, mut keep: impl FnMut(End) -> bool) {
        self.entries.retain(|entry| keep(end(entry)));
        // The last of a kind goes after all others of it.
        self.kinds.retain(|(_, last)| keep(*last));
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes =
            Vec::with_capacity(self.entries.len().saturating_mul(ENTRY).saturating_add(HEAD));
        bytes.push(VERSION);
        bytes.extend_from_slice(&self.sequence.to_be_bytes());
        bytes.extend_from_slice(&self.key);
        bytes.extend_from_slice(&end_to_bytes(self.cut_off));
        let retention = u64::try_from(self.retention.as_millis()).unwrap_or(u64::MAX);
        bytes.extend_from_slice(&retention.to_be_bytes());
        bytes.push(u8::try_from(self.kinds.len()).unwrap_or(u8::MAX));
        for (mask, last) in &self.kinds {
            bytes.push(*mask);
            bytes.extend_from_slice(&end_to_bytes(*last));
        }
        bytes.extend_from_slice(self.entries.as_flattened());
        bytes
    }

    /// Reads a table; `None` if it is none, in this format.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let read_end = match take(&mut rest)? {
            [VERSION] => |rest: &mut &[u8]| Some(end_from_bytes(&take(rest)?)),
            [TIMES_VERSION] => |rest: &mut &[u8]| {
                Some(End::at(UnixTime::from_millis(u64::from_be_bytes(take(rest)?))))
            },
            _ => return None,
        };
        let sequence = u64::from_be_bytes(take(&mut rest)?);
        let key = take(&mut rest)?;
        let cut_off = read_end(&mut rest)?;
        let retention = Duration::from_millis(u64::from_be_bytes(take(&mut rest)?));
        let [kinds] = take(&mut rest)?;
        let kinds: Vec<_> = (0..kinds)
            .map(|_| {
                let [mask] = take(&mut rest)?;
                let last = read_end(&mut rest)?;
                (1..MASKS).contains(&mask).then_some((mask, last))
            })
            .collect::<Option<_>>()?;
        let entries = if bytes.first() == Some(&VERSION) {
            let (entries, []) = rest.as_chunks::<ENTRY>() else { return None };
            entries.to_vec()
        } else {
            let mut entries = Vec::new();
            while !rest.is_empty() {
                let name = take(&mut rest)?;
                entries.push(entry(&name, read_end(&mut rest)?));
            }
            entries
        };
        // What is out of order would not be found.
        if !entries.is_sorted_by(|one, next| name(one) < name(next)) {
            return None;
        }
        Some(Self { sequence, key, cut_off, retention, kinds, entries })
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, left) = rest.split_first_chunk()?;
    *rest = left;
    Some(*taken)
}

fn entry(name: &Name, end: End) -> Entry {
    let mut entry = [0; ENTRY];
    if let Some((head, rest)) = entry.split_first_chunk_mut::<NAME>() {
        *head = *name;
        rest.copy_from_slice(&end_to_bytes(end));
    }
    entry
}

fn name(entry: &Entry) -> &[u8] {
    entry.split_at(NAME).0
}

fn end(entry: &Entry) -> End {
    end_from_bytes(entry.last_chunk().unwrap_or(&[u8::MAX; END]))
}

fn end_to_bytes(end: End) -> [u8; END] {
    let mut bytes = [0; END];
    let (time, revision) = bytes.split_at_mut(END / 2);
    time.copy_from_slice(&end.time.millis().to_be_bytes());
    revision.copy_from_slice(&end.revision.to_bytes());
    bytes
}

fn end_from_bytes(bytes: &[u8; END]) -> End {
    let number = u128::from_be_bytes(*bytes);
    let half = |number: u128| u64::try_from(number & u128::from(u64::MAX)).unwrap_or(u64::MAX);
    End {
        time: UnixTime::from_millis(half(number >> 64)),
        revision: Revision::from_bytes(half(number).to_be_bytes()),
    }
}

#[cfg(test)]
mod tests;
