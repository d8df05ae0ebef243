//! The rows of events.
//!
//! An event ends what was issued until the event's own time, by its sender's clock, which may
//! differ from an Envoy's by [`CLOCKS_APART`]. So its row ends what was issued until
//!
//! - the event and [`CLOCKS_APART`], so that nothing lives on whose time is earlier only by the
//!   Envoy's clock, and
//! - the arrival of the event, because what begins later begins after the event. In one Envoy this
//!   is a time, which is the row's end. In a remote store it is a revision.
//!
//! An event can arrive late: its sender was out of reach, for an hour perhaps. In the meantime an
//! exchange may have made use of an actor token of the session that was over. Its access token was
//! issued more than a minute after the event, but the actor token was not. So an event about an
//! actor or a session also ends every impersonation whose actor token was issued until the event,
//! and of this both times are by the clock of the identity gateway. Each access token says when its
//! actor token was issued. If its issuer only vouched for the actor token and said no time, a late
//! event spares what began more than a minute after it. So does an event about a *user*: whoever
//! minted for this user after the event asked for it anew.
//!
//! # Arrival in one Envoy
//!
//! An event is kept in two steps. The first writes a row that is *open*: it has no arrival, and its
//! end is [`CLOCKS_APART`] after the event. The second takes the time, after the first is written,
//! and *closes* the row at that time. An exchange that did not see the open row took its time
//! before it was written, so its access token has ended when the row is closed. A worker that dies
//! in between leaves a row that ends too much, for a minute; the sender had no answer, and closes
//! it when it tries again. Anybody who has seen a row may close it.
//!
//! # Repetitions
//!
//! A sender repeats an event until it has an answer. An event that happened no later than the one
//! that its row has from the same sender is old news, and changes nothing: what the row does not
//! end began after a later event of this sender arrived, so after this one. The row can be its own,
//! or one that stands for it: that of the person whose session it is, or the sender's cut-off. The
//! clocks of two senders may differ, so the row of another sender says less: the event then ends
//! what was issued until its arrival, and until [`CLOCKS_APART`] after the later of the two.
//!
//! # Forgetting
//!
//! A row ends what began before the event arrived, and refuses actor tokens that were issued until
//! the event. It is kept for a day, the longest that any configuration allows for an access token,
//! and for as long as an actor token may be old (`actor_tokens.max_lifetime`): the exchange refuses
//! an older one. Nothing that the row ends or refuses outlives it.
//!
//! # Room
//!
//! Each sender has a share, and in it each person: see [`sources`]. Where a share is full, rows
//! become one that ends more of the same people's work, never less, and nothing of anybody else's.

mod sources;

use std::time::Duration;

use super::super::entry::{
    ACTOR, CLOCKS_APART, Concerned, EVENT, End, Impersonation, IssuedAt, Learned, Mask, Revocation,
    SESSION,
};
use super::super::happened::{Extent, Happened};
use super::format::{self, NOBODY, Row, event_row};
use super::{Clocks, Overflow, Table, Uptime};
use crate::host::UnixTime;
use crate::state::remote::Revision;
pub(crate) use sources::Sessions;
use sources::person_row;
pub(super) use sources::{MOST, MOST_IN_COPY, Most};

/// The effect of an event on a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// The event is news. The table may have had to end more for want of room.
    News(Option<Overflow>),
    /// The table knows the event, or a later one.
    OldNews,
}

impl Table {
    /// Returns true if the table has this event, or a later one of its source.
    pub(crate) fn is_old_news(&self, revocation: &Revocation, happened: &Happened) -> bool {
        let Some((number, _)) = self.source_of(revocation, happened) else { return false };
        let names = [
            revocation.event_name(&self.key, happened.extent),
            person_row(&self.key, revocation, happened),
        ];
        let rows = names.iter().filter_map(|name| self.row(name));
        let mut rows = rows.filter(|row| format::source(row) == number);
        rows.any(|row| format::event(row).is_some_and(|at| happened.at() <= at))
            || self.cut_off_at(number).is_some_and(|at| happened.at() <= at)
    }

    /// The earlier event of the same source that the row of an event has.
    pub(crate) fn event_before(
        &self,
        revocation: &Revocation,
        happened: &Happened,
    ) -> Option<UnixTime> {
        let (number, _) = self.source_of(revocation, happened)?;
        let row = self.row(&revocation.event_name(&self.key, happened.extent));
        row.filter(|row| format::source(row) == number).and_then(format::event)
    }

    /// Adds an open row for an event that is news. The caller has asked if there is
    /// [room](Table::has_no_room_for) for it.
    pub(crate) fn open_event(
        &mut self,
        revocation: &Revocation,
        happened: &Happened,
        clocks: Clocks,
    ) -> Told {
        if self.is_old_news(revocation, happened) {
            return Told::OldNews;
        }
        self.forget_old(clocks);
        let name = revocation.event_name(&self.key, happened.extent);
        let before = self.row(&name);
        let at = before.and_then(format::event).unwrap_or_default().max(happened.at());
        // If the clock was set back since the last event arrived, this one cannot be closed: what
        // has ended would live on.
        let was_set_back = before.is_some_and(|row| format::end(row).time > clocks.now);
        let slack = Duration::from_millis(if was_set_back { 1 } else { 0 });
        let end = End::at(at.after(CLOCKS_APART.saturating_sub(slack)));
        let number = self.source_number(revocation, happened);
        let person = person_row(&self.key, revocation, happened);
        // If the row has a later event of another source, it stays that source's.
        self.put(event_row(&name, (at, end), number, clocks.uptime, &person));
        self.note_kind(revocation.event_mask(happened.extent), end, clocks.uptime);
        self.keep_person_to_share((number, person), clocks.uptime, MOST);
        Told::News(self.make_room(clocks.uptime, MOST))
    }

    /// Closes the row of an event, and those that may stand for it: they end what was issued until
    /// now. Returns true if that changed one.
    pub(crate) fn close_event(
        &mut self,
        revocation: &Revocation,
        happened: &Happened,
        now: UnixTime,
    ) -> bool {
        let names = [
            revocation.event_name(&self.key, happened.extent),
            person_row(&self.key, revocation, happened),
        ];
        let number = self.source_of(revocation, happened).map(|(number, _)| number);
        let mut changed = number.is_some_and(|number| self.close_cut_off(number, now));
        for name in names {
            let Ok(place) = self.place(&name) else { continue };
            let Some(row) = self.rows.get_mut(place) else { continue };
            let Some(at) = format::event(row).filter(|_| format::is_open(row)) else { continue };
            let reach = (at, End { time: now, ..format::end(row) });
            let (source, made_at) = (format::source(row), format::made_at(row));
            let closed = event_row(&name, reach, source, made_at, &format::person(row));
            changed |= *row != closed;
            *row = closed;
        }
        changed
    }

    /// Adds an event that was read from the remote store.
    pub(super) fn learn_event(&mut self, learned: &Learned, happened: &Happened) {
        let Learned { revocation, end, .. } = learned;
        let number = self.source_number(revocation, happened);
        if matches!(happened.extent, Extent::AllActors | Extent::AllUsers) {
            self.cut_source_off(number, OlderHalf { at: happened.at(), end: *end }, 0);
            return;
        }
        let name = revocation.event_name(&self.key, happened.extent);
        let person = match happened.extent {
            Extent::One => person_row(&self.key, revocation, happened),
            _ => NOBODY,
        };
        self.rows.push(event_row(&name, (happened.at(), *end), number, 0, &person));
        self.note_kind(revocation.event_mask(happened.extent), *end, 0);
    }

    /// Drops the rows that events which were read cover, and keeps their persons to their shares.
    pub(super) fn settle_events(&mut self, learned: &[Learned]) {
        self.forget_covered_by_cut_offs();
        for Learned { revocation, event, .. } in learned {
            let Some(happened) = event else { continue };
            let Some((number, _)) = self.source_of(revocation, happened) else { continue };
            if happened.extent == Extent::SessionsOfPerson {
                let person = revocation.event_name(&self.key, happened.extent);
                self.forget_covered_sessions(number, person);
            } else {
                let person = person_row(&self.key, revocation, happened);
                self.keep_person_to_share((number, person), 0, MOST_IN_COPY);
            }
        }
    }

    /// Returns true if a revocation has ended an impersonation of which a token was issued at that
    /// time. Events do not count.
    pub(crate) fn has_revoked(&self, impersonation: &Impersonation<'_>, issued: IssuedAt) -> bool {
        self.has_ended_by(impersonation, issued, |kind| !kind.is_of_events())
    }

    /// Returns true if an event about one of these people has ended a token that was issued at that
    /// time.
    pub(crate) fn event_has_ended(&self, concerned: Concerned<'_>, issued: IssuedAt) -> bool {
        let mut names = concerned.names(&self.key);
        names.any(|name| self.row(&name).is_some_and(|row| format::ends(row, issued)))
            || self.a_cut_off_concerns(concerned, issued)
    }

    /// Returns true if an event about one of these people happened at that time or later, by the
    /// clock of its sender.
    pub(crate) fn has_event_since(&self, concerned: Concerned<'_>, time: UnixTime) -> bool {
        let mut names = concerned.names(&self.key);
        names.any(|name| self.row(&name).is_some_and(|row| refuses(row, Some(time))))
            || self.a_cut_off_refuses(concerned, time)
    }

    /// Keeps sources to their shares. Returns true if one got a cut-off.
    pub(super) fn make_room_for_events(&mut self, uptime: Uptime, most: Most) -> bool {
        !self.sources.is_empty() && self.keep_sources_to_shares(uptime, most)
    }
}

/// Returns true if the events of this kind are about actors or their sessions: they refuse actor
/// tokens.
pub(super) const fn are_about_actors(mask: Mask) -> bool {
    mask & EVENT != 0 && mask & (ACTOR | SESSION) != 0
}

/// Returns true if the row is that of an event which happened at that time or later, by the clock
/// of its sender. An actor token that was issued at that time is too old.
pub(super) fn refuses(row: &Row, time: Option<UnixTime>) -> bool {
    time.zip(format::event(row)).is_some_and(|(time, at)| time <= at)
}

/// The older half of the events of one source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OlderHalf {
    /// The latest of these events.
    pub(crate) at: UnixTime,
    /// The latest end of their rows.
    pub(crate) end: End,
}

#[cfg(test)]
mod tests;

/// The end of the row of an event that a remote store keeps with this revision.
pub(crate) fn end_at_revision(happened: &Happened, revision: Revision) -> End {
    End { time: happened.at().after(CLOCKS_APART), revision }
}
