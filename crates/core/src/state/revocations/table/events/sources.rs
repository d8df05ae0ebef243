//! The sources of events, and the room that each of them has.
//!
//! A source is one sender as it tells of the people of one issuer, as actors or as users. Each row
//! of an event belongs to one source: that of the latest event that the row has. Rows are merged
//! only with rows of the same source, so nobody's volume reaches what another issuer's people do:
//!
//! - A *person* has [`OF_PERSON`] rows for sessions in each source. One row more, and all of them
//!   become one row of the person, which ends everything in which the person acts. The sender says
//!   whose session ended, so that row ends all that its rows did.
//! - A *source* has [`OF_SOURCE`] rows. One row more, and the older half becomes its cut-off. Each
//!   of these rows names one of its people, so the cut-off ends all that the rows did: it ends what
//!   all of its people began as actors, or what was begun in their names as users. If all sources
//!   together have more than [`EVENTS`] rows, the largest makes room. So a source with no more than
//!   its part of the room never makes room for another.
//! - A source of [others' people](Whose::Others) gets no cut-off: it would end what another
//!   issuer's people do. It has [`OF_OTHERS`] rows. One event more is refused, and its sender is
//!   told so and tries again.

use std::time::Duration;

use super::super::format::{self, NOBODY, Row, event_row};
use super::super::source::{CutOff, Role, Source};
use super::super::{EVENTS, Table, Uptime, last_of_oldest};
use super::{OlderHalf, are_about_actors};
use crate::host::UnixTime;
use crate::state::remote::Revision;
use crate::state::revocations::entry::{
    ACTOR, CLOCKS_APART, Concerned, EVENT, End, Impersonation, IssuedAt, Key, Mask, Name,
    Revocation, SESSIONS,
};
use crate::state::revocations::happened::{Extent, Happened, Whose};

/// The most rows of one source.
const OF_SOURCE: usize = EVENTS / 2;

/// The most rows of a source that tells of another issuer's people.
const OF_OTHERS: usize = EVENTS / 8;

/// The most rows of all sources that tell of other issuers' people.
const OF_ALL_OTHERS: usize = EVENTS / 4;

/// The most rows about sessions of one person.
const OF_PERSON: usize = 16;

/// The most rows that a table tells apart.
#[derive(Clone, Copy)]
pub(in crate::state::revocations::table) struct Most {
    of_person: usize,
    of_source: usize,
    of_all: usize,
}

/// The most rows, for whoever writes.
pub(in crate::state::revocations::table) const MOST: Most =
    Most { of_person: OF_PERSON, of_source: OF_SOURCE, of_all: EVENTS };

/// The most rows in a copy. Those who write to the remote store make room there. Many who write at
/// once each see room for one more, and a copy must not make room before one of them has seen that
/// there is none.
pub(in crate::state::revocations::table) const MOST_IN_COPY: Most = Most {
    of_person: OF_PERSON.saturating_mul(4),
    of_source: OF_SOURCE + OF_SOURCE / 8,
    of_all: EVENTS + EVENTS / 8,
};

impl Table {
    /// The source of an event, and its number.
    pub(super) fn source_of(
        &self,
        revocation: &Revocation,
        happened: &Happened,
    ) -> Option<(u16, &Source)> {
        let mut sources = (0_u16..).zip(&self.sources);
        sources.find(|(_, source)| source.is_that_of(revocation, happened))
    }

    /// The number of the source of an event. A new source gets the next number.
    pub(super) fn source_number(&mut self, revocation: &Revocation, happened: &Happened) -> u16 {
        if let Some((number, _)) = self.source_of(revocation, happened) {
            if let Some(source) = self.sources.get_mut(usize::from(number)) {
                source.kept_for_secs = source.kept_for_secs.max(happened.kept_for_secs);
            }
            return number;
        }
        self.sources.push(Source::new(revocation, happened));
        u16::try_from(self.sources.len().saturating_sub(1)).unwrap_or(u16::MAX)
    }

    /// Returns true if the cut-off of some source has ended an impersonation.
    pub(in crate::state::revocations::table) fn a_cut_off_has_ended(
        &self,
        impersonation: &Impersonation<'_>,
        issued: IssuedAt,
    ) -> bool {
        let Impersonation { actor_id, session, user_id, actor_since, .. } = *impersonation;
        let concerned = Concerned { actor_id, session, user_id: Some(user_id) };
        self.sources.iter().any(|source| {
            let since = actor_since.filter(|_| source.role == Role::Actors);
            source.cut_off.is_some_and(|one| one.ends(issued) || one.refuses(since))
                && source.concerns(concerned)
        })
    }

    /// Returns true if the cut-off of some source concerns these people and has ended what was
    /// issued at that time.
    pub(super) fn a_cut_off_concerns(&self, concerned: Concerned<'_>, issued: IssuedAt) -> bool {
        let mut cut_offs = self.sources.iter().filter(|source| source.concerns(concerned));
        cut_offs.any(|source| source.cut_off.is_some_and(|one| one.ends(issued)))
    }

    /// Returns true if the cut-off of some source concerns these people and refuses an actor token
    /// that was issued at that time.
    pub(super) fn a_cut_off_refuses(&self, concerned: Concerned<'_>, time: UnixTime) -> bool {
        let mut cut_offs = self.sources.iter().filter(|source| source.concerns(concerned));
        cut_offs.any(|source| source.cut_off.is_some_and(|one| one.refuses(Some(time))))
    }

    /// The time of the cut-off of a source.
    pub(super) fn cut_off_at(&self, number: u16) -> Option<UnixTime> {
        Some(self.sources.get(usize::from(number))?.cut_off?.at())
    }

    /// Adds a cut-off to that of its source, and drops the rows that it covers.
    pub(super) fn cut_source_off(
        &mut self,
        number: u16,
        OlderHalf { at, end }: OlderHalf,
        made_at: Uptime,
    ) {
        let Some(source) = self.sources.get_mut(usize::from(number)) else { return };
        let new = CutOff::new(at, end, made_at);
        source.cut_off = Some(source.cut_off.map_or(new, |old| old.merged(new)));
        self.forget_covered_by_cut_offs();
    }

    /// Closes the cut-off of a source at that time. Returns true if that changed it.
    pub(super) fn close_cut_off(&mut self, number: u16, now: UnixTime) -> bool {
        let source = self.sources.get_mut(usize::from(number));
        let Some(cut_off) = source.and_then(|source| source.cut_off.as_mut()) else { return false };
        let (at, end) = (cut_off.at(), cut_off.end());
        if end.time != at.after(CLOCKS_APART) {
            return false;
        }
        let closed = CutOff::new(at, End { time: now, ..end }, cut_off.made_at);
        let changed = closed != *cut_off;
        *cut_off = closed;
        changed
    }

    /// Drops the rows of events that the cut-off of their source covers.
    pub(super) fn forget_covered_by_cut_offs(&mut self) {
        let cut_offs: Vec<_> = self.sources.iter().map(|source| source.cut_off).collect();
        if cut_offs.iter().all(Option::is_none) {
            return;
        }
        self.rows.retain(|row| {
            let Some(at) = format::event(row) else { return true };
            let cut_off = cut_offs.get(usize::from(format::source(row))).copied().flatten();
            cut_off.is_none_or(|one| at > one.at() || !format::end(row).is_within(one.end()))
        });
    }

    /// Returns true if there is no room for the row of an event about another issuer's people.
    pub(crate) fn has_no_room_for(&self, revocation: &Revocation, happened: &Happened) -> bool {
        if happened.whose == Whose::Own {
            return false;
        }
        let number = self.source_of(revocation, happened).map(|(number, _)| number);
        let name = revocation.event_name(&self.key, happened.extent);
        let is_there = |row: &Row| Some(format::source(row)) == number;
        if self.row(&name).is_some_and(is_there) {
            return false;
        }
        let counts = self.events_of_sources();
        let of = |number: u16| counts.get(usize::from(number)).copied().unwrap_or_default();
        let of_others = self.sources.iter().zip(&counts);
        let of_others = of_others.filter(|(source, _)| source.whose == Whose::Others);
        let all: usize = of_others.map(|(_, count)| count).sum();
        number.map_or(0, of) >= OF_OTHERS || all >= OF_ALL_OTHERS
    }

    /// The number of rows of each source.
    fn events_of_sources(&self) -> Vec<usize> {
        let mut counts = vec![0_usize; self.sources.len()];
        for row in self.rows.iter().filter(|row| format::event(row).is_some()) {
            if let Some(count) = counts.get_mut(usize::from(format::source(row))) {
                *count = count.saturating_add(1);
            }
        }
        counts
    }

    /// The source that must make room, if one event more is kept for the source `growing`: it has
    /// too many rows, or it has the most and all together have too many.
    fn too_large_source(&self, growing: Option<Growing>, most: Most) -> Option<u16> {
        let counts = self.events_of_sources();
        let own = (0_u16..).zip(self.sources.iter().zip(&counts));
        let own = own.filter(|(_, (source, _))| source.whose == Whose::Own);
        let grown = |number| usize::from(growing == Some(Growing(Some(number))));
        let own = own.map(|(number, (_, count))| (number, count.saturating_add(grown(number))));
        let own: Vec<_> = own.collect();
        let all: usize = own.iter().map(|(_, count)| count).sum();
        let all = all.saturating_add(usize::from(growing == Some(Growing(None))));
        let (number, count) = own.into_iter().max_by_key(|(_, count)| *count)?;
        (count > most.of_source || all > most.of_all).then_some(number)
    }

    /// The cut-off that makes room for an event, as an event of its own, and its older half. `None`
    /// if there is room.
    pub(crate) fn cut_off_for_event(
        &self,
        revocation: &Revocation,
        happened: &Happened,
    ) -> Option<(Happened, OlderHalf)> {
        if happened.whose == Whose::Others || self.event_before(revocation, happened).is_some() {
            return None;
        }
        let growing = self.source_of(revocation, happened).map(|(number, _)| number);
        let number = self.too_large_source(Some(Growing(growing)), MOST)?;
        let half = self.older_half_of_events(number)?;
        let source = self.sources.get(usize::from(number))?;
        let extent = match source.role {
            Role::Actors => Extent::AllActors,
            Role::Users => Extent::AllUsers,
        };
        let happened = Happened {
            at_millis: half.at.millis(),
            sender: source.sender.clone(),
            people: source.people.clone(),
            whose: source.whose,
            person: None,
            kept_for_secs: source.kept_for_secs,
            extent,
        };
        Some((happened, half))
    }

    /// The rows about sessions of a person that make room for one more, and the row that stands for
    /// them. `None` if there is room.
    pub(crate) fn sessions_without_room(
        &self,
        revocation: &Revocation,
        happened: &Happened,
    ) -> Option<Sessions> {
        let row = person_row(&self.key, revocation, happened);
        let (number, _) = self.source_of(revocation, happened)?;
        let of_person = || self.sessions_of(number, row).map(format::event);
        if row == NOBODY || of_person().count() < OF_PERSON {
            return None;
        }
        let before = self.row(&row).filter(|row| format::source(row) == number);
        let OlderHalf { at, end } = self.all_of(number, row)?;
        let mut sessions: Vec<_> = of_person().flatten().collect();
        sessions.sort_unstable();
        sessions.dedup();
        Some(Sessions { before: before.and_then(format::event), sessions, at, end })
    }

    fn sessions_of(&self, number: u16, person: Name) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| {
            format::event(row).is_some()
                && format::source(row) == number
                && format::person(row) == person
        })
    }

    /// The latest event about sessions of a person, and the latest end.
    fn all_of(&self, number: u16, person: Name) -> Option<OlderHalf> {
        let before = self.row(&person).filter(|row| format::source(row) == number);
        let reach = |row| Some(OlderHalf { at: format::event(row)?, end: format::end(row) });
        let all = self.sessions_of(number, person).chain(before).filter_map(reach);
        all.reduce(|one, next| OlderHalf { at: one.at.max(next.at), end: one.end.max(next.end) })
    }

    /// Makes one row of a person's rows about sessions, if there are too many.
    pub(super) fn keep_person_to_share(
        &mut self,
        (number, person): (u16, Name),
        uptime: Uptime,
        most: Most,
    ) {
        if person == NOBODY || self.sessions_of(number, person).count() <= most.of_person {
            return;
        }
        let Some(OlderHalf { at, end }) = self.all_of(number, person) else { return };
        self.put(event_row(&person, (at, end), number, uptime, &NOBODY));
        self.note_kind(SESSIONS_OF_PERSON, end, uptime);
        self.forget_covered_sessions(number, person);
    }

    /// Drops the rows about sessions that the row of their person covers.
    pub(super) fn forget_covered_sessions(&mut self, number: u16, person: Name) {
        let Some(of_person) = self.row(&person) else { return };
        let Some(at) = format::event(of_person) else { return };
        let end = format::end(of_person);
        self.rows.retain(|row| {
            format::person(row) != person
                || format::source(row) != number
                || format::event(row).is_none_or(|event| event > at)
                || !format::end(row).is_within(end)
        });
    }

    /// Turns the older half of a source into its cut-off, if it has too many rows, or the most of
    /// too many. Returns true if rows were merged.
    pub(super) fn keep_sources_to_shares(&mut self, uptime: Uptime, most: Most) -> bool {
        let mut did = false;
        while let Some(number) = self.too_large_source(None, most) {
            let Some(half) = self.older_half_of_events(number) else { break };
            let before = self.rows.len();
            self.cut_source_off(number, half, uptime);
            if self.rows.len() == before {
                break;
            }
            did = true;
        }
        did
    }

    fn older_half_of_events(&self, number: u16) -> Option<OlderHalf> {
        let rows = || self.rows.iter().filter(|row| format::source(row) == number);
        let events = || rows().filter_map(|row| Some((format::event(row)?, row)));
        let mut times: Vec<_> = events().map(|(at, _)| End::at(at)).collect();
        let half = times.len() / 2;
        let at = last_of_oldest(&mut times, half)?.time;
        let older = events().filter(|(event, _)| *event <= at);
        let end = older.map(|(_, row)| format::end(row)).reduce(End::max)?;
        Some(OlderHalf { at, end })
    }

    /// The longest time for which a source wants its events to be kept.
    pub(in crate::state::revocations::table) fn events_are_kept_for(&self) -> Duration {
        let longest = self.sources.iter().map(|source| source.kept_for_secs).max();
        Duration::from_secs(longest.unwrap_or(u32::MAX).into())
    }

    /// Forgets the cut-offs for which `is_old` returns true, and the sources that have neither rows
    /// nor a cut-off any more.
    pub(in crate::state::revocations::table) fn forget_sources(
        &mut self,
        is_old: impl Fn(End, Uptime) -> bool,
    ) {
        for source in &mut self.sources {
            source.cut_off = source.cut_off.filter(|one| !is_old(one.end(), one.made_at));
        }
        let counts = self.events_of_sources();
        let is_used = |source: &Source, count: usize| count > 0 || source.cut_off.is_some();
        if self.sources.iter().zip(&counts).all(|(source, count)| is_used(source, *count)) {
            return;
        }
        let mut numbers = Vec::new();
        let mut kept = Vec::new();
        for (source, count) in std::mem::take(&mut self.sources).into_iter().zip(counts) {
            numbers.push(u16::try_from(kept.len()).unwrap_or(u16::MAX));
            if is_used(&source, count) {
                kept.push(source);
            }
        }
        self.sources = kept;
        for row in self.rows.iter_mut().filter(|row| format::event(row).is_some()) {
            let number = numbers.get(usize::from(format::source(row)));
            *row = format::of_source(row, number.copied().unwrap_or(u16::MAX));
        }
    }

    /// Takes over the sources of `other`, with their cut-offs that are later than `revision`.
    /// Returns their numbers here.
    pub(in crate::state::revocations::table) fn take_sources(
        &mut self,
        other: &[Source],
        revision: Revision,
    ) -> Vec<u16> {
        let mut numbers = Vec::new();
        for one in other {
            let is_it = |known: &Source| {
                known.role == one.role
                    && known.whose == one.whose
                    && known.sender == one.sender
                    && known.people == one.people
            };
            let number = self.sources.iter().position(is_it).unwrap_or_else(|| {
                self.sources.push(Source { cut_off: None, ..one.clone() });
                self.sources.len().saturating_sub(1)
            });
            let number = u16::try_from(number).unwrap_or(u16::MAX);
            numbers.push(number);
            if let Some(cut_off) = one.cut_off.filter(|cut_off| cut_off.end().revision > revision) {
                let half = OlderHalf { at: cut_off.at(), end: cut_off.end() };
                self.cut_source_off(number, half, cut_off.made_at);
            }
        }
        numbers
    }
}

/// One row more of the source with this number, or of a new source.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Growing(Option<u16>);

/// The kind of the rows that stand for all sessions of a person.
const SESSIONS_OF_PERSON: Mask = EVENT | ACTOR | SESSIONS;

const _: () = assert!(are_about_actors(SESSIONS_OF_PERSON));

/// The name of the row to which all sessions of the person of an event can be merged; [`NOBODY`] if
/// the event is not about a session of a known person.
pub(super) fn person_row(key: &Key, revocation: &Revocation, happened: &Happened) -> Name {
    let person = happened.person.as_deref().or(revocation.actor_id.as_deref());
    match person.filter(|_| revocation.session.is_some()) {
        Some(person) => Revocation::of_actor(person).event_name(key, Extent::SessionsOfPerson),
        None => NOBODY,
    }
}

/// The events about sessions of one person, as one row has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sessions {
    /// The event of the person's row, if there is one already.
    pub(crate) before: Option<UnixTime>,
    /// The events about sessions.
    pub(crate) sessions: Vec<UnixTime>,
    /// The latest of all.
    pub(crate) at: UnixTime,
    /// The latest end of their rows.
    pub(crate) end: End,
}

#[cfg(test)]
mod tests;
