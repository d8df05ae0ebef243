//! The table of revocations, as bytes.
//!
//! A table is small enough to be read whole. It is searched as it is stored: rows of 58 bytes in
//! the order of their names. Its head lists the kinds of revocation that it has, with the latest
//! end of each kind, so that looking up an impersonation hashes only as often as a match is
//! possible.
//!
//! # Owners
//!
//! A table has at most [`MAX_ENTRIES`] rows. Operators make rows, and so do callers and clients
//! that end their own impersonations. Each caller and each client has a [`SHARE`]; all of them
//! together have [`OWNED`]. When a share is used up, the older half of it becomes one cut-off for
//! its owner alone: more of the owner's impersonations end than was meant, and nobody else's. When
//! all shares together are used up, the owner with the most rows makes room. So the other half of
//! the table is the operators'. When they have used it up, their oldest rows become one cut-off for
//! everyone. More has ended than was meant, never less. A revocation of everyone is that cut-off,
//! and takes no row.
//!
//! # Events
//!
//! Events have [`EVENTS`] rows of their own, beside all others, because every logout of an ordinary
//! user takes one. Each sender and each person has a share of them. See [`events`].
//!
//! # Forgetting
//!
//! A row has to outlive every token that it ends, whatever the lifetimes are set to in the
//! meantime: [`RETENTION`] is the longest that any configuration allows. One clock alone cannot be
//! trusted. The wall clock may be wrong by days and right again later, and a table that went by it
//! alone would forget too early. So a row also has the [uptime](crate::host::Host::uptime) at which
//! it was made. A row goes when both clocks say that its time is over. The times of other rows do
//! not count as a clock.

mod events;
mod format;
mod shares;
mod source;

use std::time::Duration;

use super::entry::{
    CALLER, CLOCKS_APART, EVENT, End, Impersonation, IssuedAt, Key, Learned, Mask, Name, Owner,
    Revocation,
};
use crate::config::{LONGEST_ACCESS_TOKEN_LIFETIME, LONGEST_SUBJECT_TOKEN_LIFETIME};
use crate::host::{Host, UnixTime};
use crate::state::remote::Revision;
pub use events::Told;
pub(crate) use events::{Sessions, end_at_revision};
use format::{OPERATORS, Row, row};

/// The most revocations that are told apart: 928 KiB of rows.
pub const MAX_ENTRIES: usize = 16_384;

/// The most rows of one caller or one client.
pub const SHARE: usize = 1024;

/// The most rows of events: 464 KiB beside those of [`MAX_ENTRIES`], and a quarter more for events
/// about other issuers' people. Unit tests fill a smaller room.
pub(crate) const EVENTS: usize = if cfg!(test) { 256 } else { 8192 };

/// The most rows of all callers and clients together. The rest is the operators'.
pub(crate) const OWNED: usize = MAX_ENTRIES / 2;

/// The number of oldest rows that become the cut-off at once, so that a full table is not sorted
/// for each new row.
const MADE_ROOM: usize = 1024;

/// The time for which an API whose clock is behind may accept an expired token. A revocation
/// outlives it.
const LEEWAY: Duration = Duration::from_secs(600);

/// The time for which a revocation is kept: the longest life of a subject token and then its access
/// token under any configuration.
pub(crate) const RETENTION: Duration = LONGEST_SUBJECT_TOKEN_LIFETIME
    .saturating_add(LONGEST_ACCESS_TOKEN_LIFETIME)
    .saturating_add(LEEWAY);

/// All revocations at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Table {
    /// Grows with every change.
    pub(crate) sequence: u64,
    key: Key,
    /// Everything that was issued until this end has ended.
    cut_off: End,
    /// The kinds that have rows.
    kinds: Vec<Kind>,
    /// The callers and clients that have rows. The revocation of all impersonations of an owner
    /// names it.
    owners: Vec<(Mask, Name)>,
    /// The senders that have told of events.
    sources: Vec<source::Source>,
    /// The rows in the order of their names. Each name is there once.
    rows: Vec<Row>,
}

/// The rows that name the same members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kind {
    mask: Mask,
    /// The latest end of these rows.
    last: End,
    /// The uptime at which the last of them was made.
    made_at: Uptime,
}

impl Kind {
    /// Returns true if a row of this kind may end what was issued at that time.
    fn may_end(&self, issued: IssuedAt, actor_since: Option<UnixTime>) -> bool {
        match self.is_of_events() {
            true => {
                // The event may be later than the end of its row: see `format`.
                let latest = self.last.time.after(CLOCKS_APART);
                issued.is_until_time(self.last.time)
                    || actor_since.is_some_and(|since| since <= latest)
            }
            false => issued.is_until(self.last),
        }
    }

    const fn is_of_events(&self) -> bool {
        self.mask & EVENT != 0
    }
}

/// Seconds by the clock that cannot be set.
type Uptime = u32;

/// The time by both clocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clocks {
    now: UnixTime,
    uptime: Uptime,
}

impl Clocks {
    /// Reads both clocks.
    pub(crate) fn read(host: &dyn Host) -> Self {
        let uptime = Uptime::try_from(host.uptime().as_secs()).unwrap_or(Uptime::MAX);
        Self { now: host.now(), uptime }
    }

    /// The time by the wall clock.
    pub(crate) const fn now(self) -> UnixTime {
        self.now
    }

    /// Returns true if no token that a row ends can still be live. The row has this end, was made
    /// at this uptime, and is `kept_for` that long.
    fn have_outlived(self, end: End, made_at: Uptime, kept_for: Duration) -> bool {
        let uptime = Duration::from_secs(self.uptime.saturating_sub(made_at).into());
        has_passed(end, self.now, kept_for) && uptime >= kept_for
    }
}

/// Returns true if no token can still be live that was issued until `end`, by the wall clock alone.
fn has_passed(end: End, now: UnixTime, kept_for: Duration) -> bool {
    now >= end.time.after(kept_for)
}

/// A lack of room, which ended more than was named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Overflow {
    /// The share of a sender of events was used up, and more of its people's work has ended.
    Events,
    /// The share of a caller or a client was used up, and more of its own has ended.
    Share,
    /// The table was full, and more of everyone's has ended.
    Table,
}

impl Table {
    /// Returns true if an impersonation has ended whose subject token or access token was issued at
    /// that time.
    pub(crate) fn has_ended(&self, impersonation: &Impersonation<'_>, issued: IssuedAt) -> bool {
        self.has_ended_by(impersonation, issued, |_| true)
            || self.a_cut_off_has_ended(impersonation, issued)
    }

    /// Returns true if the cut-off of everyone or a row of one of these kinds has ended it.
    fn has_ended_by(
        &self,
        impersonation: &Impersonation<'_>,
        issued: IssuedAt,
        counts: impl Fn(&Kind) -> bool,
    ) -> bool {
        if issued.is_until(self.cut_off) {
            return true;
        }
        let since = impersonation.actor_since;
        let mut kinds =
            self.kinds.iter().filter(|kind| counts(kind) && kind.may_end(issued, since));
        kinds.any(|Kind { mask, .. }| {
            match impersonation.name(&self.key, *mask) {
                Some(name) => self.row(&name).is_some_and(|row| {
                    let since = since.filter(|_| events::are_about_actors(*mask));
                    format::ends(row, issued) || events::refuses(row, since)
                }),
                // The caller is unknown, and could be the one that is named.
                None => mask & CALLER != 0 && impersonation.may_match_but_for_the_caller(*mask),
            }
        })
    }

    /// Returns true if this very revocation, or one of everyone, has ended what was issued at that
    /// time.
    pub(crate) fn has(&self, revocation: &Revocation, issued: IssuedAt) -> bool {
        let found = || self.find(&revocation.name(&self.key));
        issued.is_until(self.cut_off) || found().is_some_and(|end| issued.is_until(end))
    }

    pub(crate) const fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns true if the time of some row is over by the wall clock alone.
    pub(crate) fn has_old(&self, now: UnixTime) -> bool {
        let events = self.events_are_kept_for();
        let kept_for = |row| if format::event(row).is_some() { events } else { RETENTION };
        self.rows.iter().any(|row| has_passed(format::end(row), now, kept_for(row)))
    }
}

impl Impersonation<'_> {
    /// Returns true if only the unknown caller prevents the look-up of rows with these members.
    fn may_match_but_for_the_caller(&self, mask: Mask) -> bool {
        self.caller.is_none() && self.name(&Key::default(), mask & !CALLER).is_some()
    }
}

impl Table {
    /// A table in which nothing has ended.
    pub(crate) fn new(key: Key, now: UnixTime) -> Self {
        Self {
            // A number that no earlier table had.
            sequence: now.millis(),
            key,
            cut_off: End::default(),
            kinds: Vec::new(),
            owners: Vec::new(),
            sources: Vec::new(),
            rows: Vec::new(),
        }
    }

    /// Adds a revocation, and forgets rows whose time is over by both clocks. `owner` is the caller
    /// or client that revokes; `None` stands for an operator. Returns what else had to be ended.
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
        let owner = self.owner(owner);
        self.put(row(&revocation.name(&self.key), end, owner, clocks.uptime));
        self.note_kind(mask, end, clocks.uptime);
        self.make_room(clocks.uptime, events::MOST)
    }

    /// Adds many revocations of a remote store at once. Forgets nothing by any clock: the remote
    /// store does.
    pub(crate) fn insert_all(&mut self, learned: &[Learned]) -> Option<Overflow> {
        for one in learned {
            let Learned { revocation, end, owner, event } = one;
            if let Some(happened) = event {
                self.learn_event(one, happened);
                continue;
            }
            let mask = revocation.mask();
            if mask == 0 {
                self.cut_off(*end);
                continue;
            }
            let owner = self.owner(owner.as_ref());
            self.rows.push(row(&revocation.name(&self.key), *end, owner, 0));
            self.note_kind(mask, *end, 0);
        }
        self.rows.sort_unstable_by_key(format::name);
        self.rows.dedup_by(|next, one| {
            let same = format::name(next) == format::name(one);
            if same {
                *one = format::merged(one, next);
            }
            same
        });
        self.settle_events(learned);
        let cut_offs = learned.iter().filter_map(|one| {
            one.owner.as_ref().filter(|owner| one.revocation == owner.everything())
        });
        cut_offs.for_each(|owner| self.forget_covered(owner));
        self.make_room(0, events::MOST_IN_COPY)
    }

    /// Returns this table with the sequence number of `other`.
    pub(crate) fn numbered_like(&self, other: &Self) -> Self {
        Self { sequence: other.sequence, ..self.clone() }
    }

    /// Returns an empty table with the same key for names.
    pub(crate) fn emptied(&self) -> Self {
        Self {
            sequence: self.sequence,
            key: self.key,
            cut_off: End::default(),
            kinds: Vec::new(),
            owners: Vec::new(),
            sources: Vec::new(),
            rows: Vec::new(),
        }
    }

    /// Becomes `read`, which has all revocations at `revision`. Later revocations stay, and so does
    /// the cut-off of everyone. Returns false, and changes nothing, if this table began anew in the
    /// meantime: its names are others.
    pub(crate) fn become_what_was_read(&mut self, mut read: Self, revision: Revision) -> bool {
        if read.key != self.key {
            return false;
        }
        let sources = read.take_sources(&self.sources, revision);
        for row in self.rows.iter().filter(|row| format::end(row).revision > revision) {
            let mut row = *row;
            if format::event(&row).is_some() {
                let number = sources.get(usize::from(format::source(&row))).copied();
                row = format::of_source(&row, number.unwrap_or(u16::MAX));
            }
            if let Some((mask, name)) = self.owner_of(&row) {
                format::set_owner(&mut row, read.owner_named(mask, name));
            }
            read.put(row);
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

    /// Adds a row, or merges it into the row with the same name.
    fn put(&mut self, new: Row) {
        match self.place(&format::name(&new)) {
            Ok(place) => {
                if let Some(row) = self.rows.get_mut(place) {
                    *row = format::merged(row, &new);
                }
            }
            Err(place) => self.rows.insert(place, new),
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

    /// The end of the row with this name.
    fn find(&self, name: &Name) -> Option<End> {
        self.row(name).map(format::end)
    }

    fn row(&self, name: &Name) -> Option<&Row> {
        self.rows.get(self.place(name).ok()?)
    }

    fn place(&self, name: &Name) -> Result<usize, usize> {
        self.rows.binary_search_by(|row| format::name(row).cmp(name))
    }

    /// Forgets rows that end no token that could still be live.
    fn forget_old(&mut self, clocks: Clocks) {
        let events = self.events_are_kept_for();
        self.retain(|end, made_at, is_event| {
            let kept_for = if is_event { events } else { RETENTION };
            !clocks.have_outlived(end, made_at, kept_for)
        });
        self.forget_sources(|end, made_at| clocks.have_outlived(end, made_at, events));
    }

    /// Keeps owners to their shares, and turns the operators' oldest rows into the cut-off if there
    /// are too many. Returns what else was ended.
    fn make_room(&mut self, uptime: Uptime, most: events::Most) -> Option<Overflow> {
        let events = self.make_room_for_events(uptime, most).then_some(Overflow::Events);
        let shares = self.keep_to_shares(uptime).then_some(Overflow::Share);
        events.max(shares).max(self.make_room_for_all().then_some(Overflow::Table))
    }

    fn make_room_for_all(&mut self) -> bool {
        let rows = || self.rows.iter().filter(|row| format::event(row).is_none());
        let Some(too_many) = rows().count().checked_sub(MAX_ENTRIES).filter(|many| *many > 0)
        else {
            return false;
        };
        let operators = rows().filter(|row| format::owner(row) == OPERATORS);
        let mut ends: Vec<_> = operators.map(format::end).collect();
        // If the operators have too few rows, there are about as many owners as rows. Then all rows
        // count.
        if ends.len() < too_many {
            ends = rows().map(format::end).collect();
        }
        let oldest =
            too_many.saturating_sub(1).saturating_add(MADE_ROOM).min(ends.len().saturating_sub(1));
        last_of_oldest(&mut ends, oldest).inspect(|last| self.cut_off(*last)).is_some()
    }

    /// Ends everything that was issued until `end`, and drops the rows that this covers. It covers
    /// no events: they also refuse actor tokens.
    pub(crate) fn cut_off(&mut self, end: End) {
        let end = self.cut_off.max(end);
        self.cut_off = end;
        self.retain(|one, _, is_event| is_event || !one.is_within(end));
    }

    /// Keeps the rows for which `keep` returns true.
    fn retain(&mut self, mut keep: impl FnMut(End, Uptime, bool) -> bool) {
        let before = self.rows.len();
        self.rows.retain(|row| {
            keep(format::end(row), format::made_at(row), format::event(row).is_some())
        });
        // The kind has the latest end of its rows, so it goes last.
        self.kinds.retain(|kind| keep(kind.last, kind.made_at, kind.is_of_events()));
        if self.rows.len() != before {
            self.forget_owners();
        }
    }
}

/// The last of the ends at places 0 to `place` in the order of time. `None` if there is none at
/// `place`.
fn last_of_oldest(ends: &mut [End], place: usize) -> Option<End> {
    if ends.len() <= place {
        return None;
    }
    let (oldest, last, _) = ends.select_nth_unstable_by_key(place, |end| end.time);
    Some(oldest.iter().fold(*last, |last, end| last.max(*end)))
}

#[cfg(test)]
mod tests;
