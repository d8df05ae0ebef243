//! The table of revocations, as bytes.
//!
//! It is small enough to be read whole, and is searched as it lies there: 24 bytes an entry, in the order of the
//! names. Its head says which kinds of revocation it has at all, and when the last of each was, so that looking an
//! impersonation up hashes no more than there is to find.
//!
//! There are at most [`MAX_ENTRIES`]. When they are used up, the oldest become one cut-off for everyone: more has
//! ended than was meant, never less. A revocation of everyone is that cut-off, and takes no entry.

use std::time::Duration;

use super::entry::{CALLER, Impersonation, Issued, Key, MASKS, Mask, Name, Revocation};
use crate::host::UnixTime;

/// The most revocations that are told apart: 384 KiB of them.
pub const MAX_ENTRIES: usize = 16_384;

/// How many of the oldest become the cut-off at once: so that a full table is not sorted for each new entry.
const MADE_ROOM: usize = 1024;

/// The format. Who finds another says so and lets nobody pass: to begin anew would be to forget.
const VERSION: u8 = 1;

const NAME: usize = 16;
const ENTRY: usize = NAME + 8;

/// The longest head, with every kind in it.
const HEAD: usize = 1 + 8 + 16 + 8 + 8 + 1 + 64 * 9;

type Entry = [u8; ENTRY];

/// All that was revoked, at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Table {
    /// Grows with every change.
    pub(super) sequence: u64,
    key: Key,
    /// Whatever was issued until then has ended.
    cut_off: UnixTime,
    /// How long an entry is kept.
    retention: Duration,
    /// When the last entry of each kind was made; kinds without entries are not there.
    kinds: Vec<(Mask, UnixTime)>,
    /// In the order of their names, each there once.
    entries: Vec<Entry>,
}

/// What a worker knows of what was revoked.
#[derive(Debug)]
pub struct Known {
    pub(super) table: Table,
}

impl Known {
    /// Whether an impersonation has ended, of which something was issued then: its access token, or the subject
    /// token that it is to come from.
    pub fn has_ended(&self, impersonation: &Impersonation<'_>, issued: Issued) -> bool {
        let table = &self.table;
        if issued.is_until(table.cut_off) {
            return true;
        }
        table.kinds.iter().filter(|(_, last)| issued.is_until(*last)).any(|(mask, _)| {
            match impersonation.name(&table.key, *mask) {
                Some(name) => table.find(&name).is_some_and(|at| issued.is_until(at)),
                // It could be the caller that is meant.
                None => mask & CALLER != 0 && impersonation.may_match_but_for_the_caller(*mask),
            }
        })
    }

    /// Until when everything has ended, whoever it is.
    pub const fn cut_off(&self) -> UnixTime {
        self.table.cut_off
    }

    /// How many revocations are told apart.
    pub const fn len(&self) -> usize {
        self.table.entries.len()
    }

    /// Whether there are none but the cut-off.
    pub const fn is_empty(&self) -> bool {
        self.table.entries.is_empty()
    }
}

impl Impersonation<'_> {
    /// Whether nothing but a caller that is not known keeps an entry of this kind from being looked up.
    fn may_match_but_for_the_caller(&self, mask: Mask) -> bool {
        self.caller.is_none() && self.name(&Key::default(), mask & !CALLER).is_some()
    }
}

impl Table {
    /// A table in which nothing is known of what was until `cut_off`.
    pub(super) const fn new(key: Key, cut_off: UnixTime) -> Self {
        Self {
            // Never again a number that a table before this one had.
            sequence: cut_off.millis(),
            key,
            cut_off,
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

    /// Ends what was issued until `at`. Whether others than those named had to be ended for it.
    pub(super) fn insert(&mut self, revocation: &Revocation, at: UnixTime) -> bool {
        self.forget_expired(at);
        let mask = revocation.mask();
        if mask == 0 {
            self.cut_off(at);
            return false;
        }
        let name = revocation.name(&self.key);
        match self.place(&name) {
            Ok(place) => {
                if let Some(entry) = self.entries.get_mut(place) {
                    *entry = self::entry(&name, time(entry).max(at));
                }
            }
            Err(place) => self.entries.insert(place, self::entry(&name, at)),
        }
        match self.kinds.iter_mut().find(|(kind, _)| *kind == mask) {
            Some((_, last)) => *last = at.max(*last),
            None => self.kinds.push((mask, at)),
        }
        self.make_room()
    }

    /// When an entry was made.
    fn find(&self, name: &Name) -> Option<UnixTime> {
        self.entries.get(self.place(name).ok()?).map(time)
    }

    fn place(&self, name: &Name) -> Result<usize, usize> {
        self.entries.binary_search_by(|entry| self::name(entry).cmp(name))
    }

    /// Forgets what ended nothing that could still be alive.
    fn forget_expired(&mut self, now: UnixTime) {
        let retention = self.retention;
        self.retain(|at| now < at.after(retention));
    }

    /// Makes the oldest the cut-off, if there are too many. Whether it did.
    fn make_room(&mut self) -> bool {
        if self.entries.len() <= MAX_ENTRIES {
            return false;
        }
        let mut times: Vec<_> = self.entries.iter().map(time).collect();
        let (_, last, _) = times.select_nth_unstable(MADE_ROOM);
        let last = *last;
        self.cut_off(last);
        true
    }

    /// Whatever was issued until `end` has ended, and needs no entry any more.
    fn cut_off(&mut self, end: UnixTime) {
        let end = self.cut_off.max(end);
        self.cut_off = end;
        self.retain(|at| at > end);
    }

    fn retain(&mut self, mut keep: impl FnMut(UnixTime) -> bool) {
        self.entries.retain(|entry| keep(time(entry)));
        // The last of a kind goes after all others of it.
        self.kinds.retain(|(_, last)| keep(*last));
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes =
            Vec::with_capacity(self.entries.len().saturating_mul(ENTRY).saturating_add(HEAD));
        bytes.push(VERSION);
        bytes.extend_from_slice(&self.sequence.to_be_bytes());
        bytes.extend_from_slice(&self.key);
        bytes.extend_from_slice(&self.cut_off.millis().to_be_bytes());
        let retention = u64::try_from(self.retention.as_millis()).unwrap_or(u64::MAX);
        bytes.extend_from_slice(&retention.to_be_bytes());
        bytes.push(u8::try_from(self.kinds.len()).unwrap_or(u8::MAX));
        for (mask, last) in &self.kinds {
            bytes.push(*mask);
            bytes.extend_from_slice(&last.millis().to_be_bytes());
        }
        bytes.extend_from_slice(self.entries.as_flattened());
        bytes
    }

    /// Reads a table; `None` if it is none, in this format.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let [version] = take(&mut rest)?;
        if version != VERSION {
            return None;
        }
        let sequence = u64::from_be_bytes(take(&mut rest)?);
        let key = take(&mut rest)?;
        let cut_off = UnixTime::from_millis(u64::from_be_bytes(take(&mut rest)?));
        let retention = Duration::from_millis(u64::from_be_bytes(take(&mut rest)?));
        let [kinds] = take(&mut rest)?;
        let kinds: Vec<_> = (0..kinds)
            .map(|_| {
                let [mask] = take(&mut rest)?;
                let last = UnixTime::from_millis(u64::from_be_bytes(take(&mut rest)?));
                (1..MASKS).contains(&mask).then_some((mask, last))
            })
            .collect::<Option<_>>()?;
        let (entries, []) = rest.as_chunks::<ENTRY>() else { return None };
        // What is out of order would not be found.
        if !entries.is_sorted_by(|one, next| name(one) < name(next)) {
            return None;
        }
        Some(Self { sequence, key, cut_off, retention, kinds, entries: entries.to_vec() })
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, left) = rest.split_first_chunk()?;
    *rest = left;
    Some(*taken)
}

fn entry(name: &Name, at: UnixTime) -> Entry {
    let mut entry = [0; ENTRY];
    if let Some((head, rest)) = entry.split_first_chunk_mut::<NAME>() {
        *head = *name;
        rest.copy_from_slice(&at.millis().to_be_bytes());
    }
    entry
}

fn name(entry: &Entry) -> &[u8] {
    entry.split_at(NAME).0
}

fn time(entry: &Entry) -> UnixTime {
    let millis = entry.last_chunk().map_or(u64::MAX, |bytes| u64::from_be_bytes(*bytes));
    UnixTime::from_millis(millis)
}

#[cfg(test)]
mod tests;
