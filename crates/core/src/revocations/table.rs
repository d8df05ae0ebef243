//! The table of revocations, as bytes.
//!
//! It is small enough to be read whole, and is searched as it lies there: 38 bytes an entry, in the order of the
//! names. Its head says which kinds of revocation it has at all, and when the last of each was, so that looking an
//! impersonation up hashes no more than there is to find.
//!
//! # Whose entries they are
//!
//! There are at most [`MAX_ENTRIES`]. Operators make entries, and so do callers and clients, who end what is their own.
//! Each caller and each client has a [`SHARE`]; all of them together have [`OWNED`]. Where a share is used up, the older
//! half of it becomes one cut-off for its owner alone: more of the owner's has ended than was meant, and nothing of
//! anybody else's. Where all shares together are used up, the owner with the most entries makes room. So the other half
//! of the table is the operators'. When they have used it up, their oldest entries become one cut-off for everyone. More
//! has ended than was meant, never less. A revocation of everyone is that cut-off, and takes no entry.
//!
//! # What is forgotten
//!
//! An entry has to outlive every token that it ends, whatever the lifetimes are set to in the meantime: [`RETENTION`] is
//! as long as any configuration allows. No clock can be trusted alone. The wall clock may be wrong by days, and be right
//! again later: a table that went by it alone would forget what it still needs. So a table also notes the
//! [uptime](crate::host::Host::uptime) at which an entry was made. An entry goes when both clocks say that its time is
//! over. What other entries say is no clock.

mod format;
mod shares;

use std::time::Duration;

use super::entry::{
    CALLER, End, Impersonation, IssuedAt, Key, Learned, Mask, Name, Owner, Revocation,
};
use crate::config::{LONGEST_ACCESS_TOKEN_LIFETIME, LONGEST_SUBJECT_TOKEN_LIFETIME};
use crate::host::{Host, UnixTime};
use crate::remote::Revision;
use format::{Entry, entry};
use shares::OPERATORS;

/// The most revocations that are told apart: 600 KiB of them.
pub const MAX_ENTRIES: usize = 16_384;

/// The most entries of one caller or one client.
pub const SHARE: usize = 1024;

/// The most entries of all callers and clients together. The rest is the operators'.
pub const OWNED: usize = MAX_ENTRIES / 2;

/// How many of the oldest become the cut-off at once: so that a full table is not sorted for each new entry.
const MADE_ROOM: usize = 1024;

/// For how long an API may let an expired token pass, as its clock is behind: a revocation outlives that.
const LEEWAY: Duration = Duration::from_secs(600);

/// How long a revocation is kept: for as long as a subject token and then its access token can live under any
/// configuration that there can be.
pub(crate) const RETENTION: Duration = LONGEST_SUBJECT_TOKEN_LIFETIME
    .saturating_add(LONGEST_ACCESS_TOKEN_LIFETIME)
    .saturating_add(LEEWAY);

/// All that was revoked, at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Table {
    /// Grows with every change.
    pub(crate) sequence: u64,
    key: Key,
    /// Whatever was issued until then has ended.
    cut_off: End,
    /// When the last entry of each kind was made; kinds without entries are not there.
    kinds: Vec<Kind>,
    /// Callers and clients that have entries: each is named by the revocation of all that is its own.
    owners: Vec<(Mask, Name)>,
    /// In the order of their names, each there once.
    entries: Vec<Entry>,
}

/// The entries that ask for the same members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kind {
    mask: Mask,
    /// The latest end of all of them.
    last: End,
    /// When the last of them was made.
    made_at: Uptime,
}

/// Seconds by the clock that nobody sets.
type Uptime = u32;

/// The time, by both clocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clocks {
    now: UnixTime,
    uptime: Uptime,
}

impl Clocks {
    /// Reads both.
    pub(crate) fn read(host: &dyn Host) -> Self {
        let uptime = Uptime::try_from(host.uptime().as_secs()).unwrap_or(Uptime::MAX);
        Self { now: host.now(), uptime }
    }

    /// Whether nothing can be alive that was ended then by an entry that was made at this uptime.
    fn have_outlived(self, end: End, made_at: Uptime) -> bool {
        let uptime = Duration::from_secs(self.uptime.saturating_sub(made_at).into());
        has_passed(end, self.now) && uptime >= RETENTION
    }
}

/// Whether nothing can be alive that was ended then, if this wall clock is right.
fn has_passed(end: End, now: UnixTime) -> bool {
    now >= end.time.after(RETENTION)
}

/// What had to be ended besides what was named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Overflow {
    /// More of a caller's or a client's own: its share was used up.
    Share,
    /// More of everyone's: the table was full.
    Table,
}

impl Table {
    /// Whether an impersonation has ended, of which something was issued then.
    pub(crate) fn has_ended(&self, impersonation: &Impersonation<'_>, issued: IssuedAt) -> bool {
        if issued.is_until(self.cut_off) {
            return true;
        }
        self.kinds.iter().filter(|kind| issued.is_until(kind.last)).any(|Kind { mask, .. }| {
            match impersonation.name(&self.key, *mask) {
                Some(name) => self.find(&name).is_some_and(|end| issued.is_until(end)),
                // It could be the caller that is meant.
                None => mask & CALLER != 0 && impersonation.may_match_but_for_the_caller(*mask),
            }
        })
    }

    /// Whether this very revocation, or one of everyone, has ended what was issued then.
    pub(crate) fn has(&self, revocation: &Revocation, issued: IssuedAt) -> bool {
        let found = || self.find(&revocation.name(&self.key));
        issued.is_until(self.cut_off) || found().is_some_and(|end| issued.is_until(end))
    }

    pub(crate) const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is an entry whose time is over, if this wall clock is right.
    pub(crate) fn has_old(&self, now: UnixTime) -> bool {
        self.entries.iter().any(|entry| has_passed(format::end(entry), now))
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
    pub(crate) fn new(key: Key, now: UnixTime) -> Self {
        Self {
            // Never again a number that a table before this one had.
            sequence: now.millis(),
            key,
            cut_off: End::default(),
            kinds: Vec::new(),
            owners: Vec::new(),
            entries: Vec::new(),
        }
    }

    /// Ends what was issued until `end`, and forgets what both clocks say is over. `owner` is who ends it, if no
    /// operator does. Says what else had to be ended for it.
    pub(crate) fn insert(
        &mut self,
        revocation: &Revocation,
        end: End,
        owner: Option<&Owner>,
        clocks: Clocks,
    ) -> Option<Overflow> {
        self.forget_old(clocks);
        let mask = revocation.mask();
        if mask == 0 {
            self.cut_off(end);
            return None;
        }
        let name = revocation.name(&self.key);
        let owner = self.owner(owner);
        self.put(&name, end, owner, clocks.uptime);
        self.note_kind(mask, end, clocks.uptime);
        self.make_room(clocks.uptime)
    }

    /// The same of many at once that are forgotten elsewhere: nothing goes by any clock.
    pub(crate) fn insert_all(&mut self, learned: &[Learned]) -> Option<Overflow> {
        for Learned { revocation, end, owner } in learned {
            let mask = revocation.mask();
            if mask == 0 {
                self.cut_off(*end);
                continue;
            }
            let owner = self.owner(owner.as_ref());
            self.entries.push(entry(&revocation.name(&self.key), *end, owner, 0));
            self.note_kind(mask, *end, 0);
        }
        self.entries.sort_unstable_by_key(format::name);
        self.entries.dedup_by(|next, one| {
            let same = format::name(next) == format::name(one);
            if same {
                *one = format::merged(one, next);
            }
            same
        });
        let cut_offs = learned.iter().filter_map(|one| {
            one.owner.as_ref().filter(|owner| one.revocation == owner.everything())
        });
        cut_offs.for_each(|owner| self.forget_covered(owner));
        self.make_room(0)
    }

    /// This table with the sequence number of `other`.
    pub(crate) fn numbered_like(&self, other: &Self) -> Self {
        Self { sequence: other.sequence, ..self.clone() }
    }

    /// A table in which nothing has ended, and which has the same names.
    pub(crate) fn emptied(&self) -> Self {
        Self {
            sequence: self.sequence,
            key: self.key,
            cut_off: End::default(),
            kinds: Vec::new(),
            owners: Vec::new(),
            entries: Vec::new(),
        }
    }

    /// Becomes `read`, which is all that there was at `revision`. What was revoked later stays, and so does the cut-off of
    /// everyone. Whether it did: a table that began anew in the meantime has other names.
    pub(crate) fn become_what_was_read(&mut self, mut read: Self, revision: Revision) -> bool {
        if read.key != self.key {
            return false;
        }
        for entry in self.entries.iter().filter(|entry| format::end(entry).revision > revision) {
            let owner = match self.owner_of(entry) {
                Some((mask, name)) => read.owner_named(mask, name),
                None => OPERATORS,
            };
            read.put(&format::name(entry), format::end(entry), owner, 0);
        }
        for Kind { mask, last, made_at } in &self.kinds {
            if last.revision > revision {
                read.note_kind(*mask, *last, *made_at);
            }
        }
        read.cut_off(self.cut_off);
        read.sequence = self.sequence;
        *self = read;
        true
    }

    /// Enters an end under a name, or lets the one that is there be as late.
    fn put(&mut self, name: &Name, end: End, owner: u16, made_at: Uptime) {
        let new = entry(name, end, owner, made_at);
        match self.place(name) {
            Ok(place) => {
                if let Some(entry) = self.entries.get_mut(place) {
                    *entry = format::merged(entry, &new);
                }
            }
            Err(place) => self.entries.insert(place, new),
        }
    }

    fn note_kind(&mut self, mask: Mask, end: End, made_at: Uptime) {
        match self.kinds.iter_mut().find(|kind| kind.mask == mask) {
            Some(kind) => {
                kind.last = end.max(kind.last);
                kind.made_at = made_at.max(kind.made_at);
            }
            None => self.kinds.push(Kind { mask, last: end, made_at }),
        }
    }

    /// Until when an entry ends what it names.
    fn find(&self, name: &Name) -> Option<End> {
        self.entries.get(self.place(name).ok()?).map(format::end)
    }

    fn place(&self, name: &Name) -> Result<usize, usize> {
        self.entries.binary_search_by(|entry| format::name(entry).cmp(name))
    }

    /// Forgets what ended nothing that could still be alive.
    fn forget_old(&mut self, clocks: Clocks) {
        self.retain(|end, made_at| !clocks.have_outlived(end, made_at));
    }

    /// Keeps to the shares, and makes the operators' oldest the cut-off if there are too many. What it ended.
    fn make_room(&mut self, uptime: Uptime) -> Option<Overflow> {
        let shares = self.keep_to_shares(uptime).then_some(Overflow::Share);
        shares.max(self.make_room_for_all().then_some(Overflow::Table))
    }

    fn make_room_for_all(&mut self) -> bool {
        let Some(too_many) = self.entries.len().checked_sub(MAX_ENTRIES).filter(|many| *many > 0)
        else {
            return false;
        };
        let operators = self.entries.iter().filter(|entry| format::owner(entry) == OPERATORS);
        let mut ends: Vec<_> = operators.map(format::end).collect();
        // Without one of theirs there are as many owners as entries: then it is everyone's after all.
        if ends.len() < too_many {
            ends = self.entries.iter().map(format::end).collect();
        }
        let oldest =
            too_many.saturating_sub(1).saturating_add(MADE_ROOM).min(ends.len().saturating_sub(1));
        let (oldest, last, _) = ends.select_nth_unstable_by_key(oldest, |end| end.time);
        let last = oldest.iter().fold(*last, |last, end| last.max(*end));
        self.cut_off(last);
        true
    }

    /// Whatever was issued until `end` has ended, and needs no entry any more.
    pub(crate) fn cut_off(&mut self, end: End) {
        let end = self.cut_off.max(end);
        self.cut_off = end;
        self.retain(|one, _| !one.is_within(end));
    }

    /// Keeps the entries of which this holds.
    fn retain(&mut self, mut keep: impl FnMut(End, Uptime) -> bool) {
        let before = self.entries.len();
        self.entries.retain(|entry| keep(format::end(entry), format::made_at(entry)));
        // The last of a kind goes after all others of it.
        self.kinds.retain(|kind| keep(kind.last, kind.made_at));
        if self.entries.len() != before {
            self.forget_owners();
        }
    }
}

#[cfg(test)]
mod tests;
