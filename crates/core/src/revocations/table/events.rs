//! The rows of events.
//!
//! An event ends what was issued until the event's own time, by its sender's clock, which may differ
//! from an Envoy's by [`CLOCKS_APART`]. So its row ends what was issued until
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
//! in between leaves a row that ends too much, for a minute; the sender had no answer, and closes it
//! when it tries again. Anybody who has seen a row may close it.
//!
//! # Repetitions
//!
//! A sender repeats an event until it has an answer. An event that happened no later than the one
//! that its row has from the same sender is old news, and changes nothing: what the row does not
//! end began after a later event of this sender arrived, so after this one. The clocks of two
//! senders may differ, so the row of another sender says less: the event then ends what was issued
//! until its arrival, and until [`CLOCKS_APART`] after the later of the two.
//!
//! # Room
//!
//! When there are more than [`EVENTS`] rows, the older half becomes one row that names nobody: it
//! ends every impersonation that was issued until then, and refuses every actor token that was.

use std::time::Duration;

use super::super::entry::{
    ACTOR, CLOCKS_APART, Concerned, EVENT, End, Happened, Impersonation, IssuedAt, Mask,
    Revocation, SESSION, name_of_all_events,
};
use super::format::{self, Row, SEVERAL, event_row};
use super::{Clocks, EVENTS, Overflow, Table, Uptime, last_of_oldest};
use crate::host::UnixTime;
use crate::remote::Revision;
use crate::secret::Digest;

/// The effect of an event on a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// The event is news. The table may have had to end more for want of room.
    News(Option<Overflow>),
    /// The table knows the event, or a later one.
    OldNews,
}

impl Table {
    /// Returns true if the table has this event, or a later one of its sender.
    pub(crate) fn is_old_news(&self, revocation: &Revocation, happened: &Happened) -> bool {
        let tag = tag(&happened.sender);
        let names = [revocation.event_name(&self.key), name_of_all_events(&self.key)];
        names.iter().filter_map(|name| self.row(name)).any(|row| {
            let is_later = format::event(row).is_some_and(|at| happened.at() <= at);
            is_later && tag != SEVERAL && format::sender(row) == tag
        })
    }

    /// Adds an open row for an event that is news.
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
        let name = revocation.event_name(&self.key);
        let before = self.row(&name);
        let at = before.and_then(format::event).unwrap_or_default().max(happened.at());
        // If the clock was set back since the last event arrived, this one cannot be closed: what
        // has ended would live on.
        let was_set_back = before.is_some_and(|row| format::end(row).time > clocks.now);
        let slack = Duration::from_millis(if was_set_back { 1 } else { 0 });
        let end = End::at(at.after(CLOCKS_APART.saturating_sub(slack)));
        self.put(event_row(&name, at, end, tag(&happened.sender), clocks.uptime));
        self.note_kind(revocation.event_mask(), end, clocks.uptime);
        Told::News(self.make_room(clocks.uptime))
    }

    /// Closes the row of an event, and that of all events: they end what was issued until now.
    /// Returns true if that changed a row.
    pub(crate) fn close_event(&mut self, revocation: &Revocation, now: UnixTime) -> bool {
        let names = [revocation.event_name(&self.key), name_of_all_events(&self.key)];
        let mut changed = false;
        for name in names {
            let Ok(place) = self.place(&name) else { continue };
            let Some(row) = self.rows.get_mut(place) else { continue };
            let Some(at) = format::event(row).filter(|_| format::is_open(row)) else { continue };
            let closed = End { time: now, ..format::end(row) };
            let closed = event_row(&name, at, closed, format::sender(row), format::made_at(row));
            changed |= *row != closed;
            *row = closed;
        }
        changed
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
    }

    /// Returns true if an event about one of these people happened at that time or later, by the
    /// clock of its sender.
    pub(crate) fn has_event_since(&self, concerned: Concerned<'_>, time: UnixTime) -> bool {
        let mut names = concerned.names(&self.key);
        names.any(|name| self.row(&name).is_some_and(|row| refuses(row, Some(time))))
    }

    /// The events that make room for one more, and how far they reach: the event and the end of the
    /// row that would stand for them. `None` if there is room.
    pub(crate) fn cut_off_for_events(&self) -> Option<OlderHalf> {
        let count = self.rows.iter().filter(|row| format::event(row).is_some()).count();
        if count < EVENTS { None } else { self.older_half_of_events() }
    }

    /// Turns the older half of the events into one row, if there are too many. Returns true if it
    /// did.
    pub(super) fn make_room_for_events(&mut self, uptime: Uptime) -> bool {
        let count = self.rows.iter().filter(|row| format::event(row).is_some()).count();
        if count <= EVENTS {
            return false;
        }
        let Some(OlderHalf { at, end, sender }) = self.older_half_of_events() else { return false };
        let name = name_of_all_events(&self.key);
        self.put(event_row(&name, at, end, sender, uptime));
        self.note_kind(EVENT, end, uptime);
        self.forget_covered_events();
        true
    }

    /// Drops the rows of events that the row of all events covers.
    pub(super) fn forget_covered_events(&mut self) {
        let name = name_of_all_events(&self.key);
        let Some(all) = self.row(&name) else { return };
        let Some(at) = format::event(all) else { return };
        let end = format::end(all);
        self.rows.retain(|row| {
            let covered = format::event(row).is_some_and(|event| event <= at);
            !covered || !format::end(row).is_within(end) || format::name(row) == name
        });
    }

    fn older_half_of_events(&self) -> Option<OlderHalf> {
        let all = name_of_all_events(&self.key);
        let events = || {
            let rows = self.rows.iter().filter(|row| format::name(row) != all);
            rows.filter_map(|row| Some((format::event(row)?, row)))
        };
        let mut times: Vec<_> = events().map(|(at, _)| End::at(at)).collect();
        let half = times.len() / 2;
        let at = last_of_oldest(&mut times, half)?.time;
        let older = || events().filter(|(event, _)| *event <= at).map(|(_, row)| row);
        let end = older().map(format::end).reduce(End::max)?;
        let mut senders = older().chain(self.row(&all)).map(format::sender);
        let sender = senders.next()?;
        let is_one = senders.all(|other| other == sender);
        Some(OlderHalf { at, end, sender: if is_one { sender } else { SEVERAL } })
    }
}

/// Returns true if the events of this kind are about actors, their sessions, or everyone: they
/// refuse actor tokens.
pub(super) const fn are_about_actors(mask: Mask) -> bool {
    mask == EVENT || (mask & EVENT != 0 && mask & (ACTOR | SESSION) != 0)
}

/// Returns true if the row is that of an event which happened at that time or later, by the clock of
/// its sender. An actor token that was issued at that time is too old.
pub(super) fn refuses(row: &Row, time: Option<UnixTime>) -> bool {
    time.zip(format::event(row)).is_some_and(|(time, at)| time <= at)
}

/// The older half of all events, as one row has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OlderHalf {
    /// The latest of these events.
    pub(crate) at: UnixTime,
    /// The latest end of their rows.
    pub(crate) end: End,
    /// The tag of their sender.
    pub(crate) sender: u16,
}

impl OlderHalf {
    /// Returns true if this sender told of all these events.
    pub(crate) fn is_of(&self, sender: &str) -> bool {
        self.sender != SEVERAL && self.sender == tag(sender)
    }
}

/// A short name for a sender, to tell whose event a row has. No name stands for several senders.
pub(crate) fn tag(sender: &str) -> u16 {
    if sender.is_empty() {
        return SEVERAL;
    }
    let digest = Digest::of(sender.as_bytes());
    digest.as_bytes().first_chunk().map_or(1, |bytes| u16::from_be_bytes(*bytes)).max(1)
}

#[cfg(test)]
mod tests;

/// The end of the row of an event that a remote store keeps with this revision.
pub(crate) fn end_at_revision(happened: &Happened, revision: Revision) -> End {
    End { time: happened.at().after(CLOCKS_APART), revision }
}
