//! The senders of events, as a table keeps them: of whose people each tells, and its cut-off.

use serde::{Deserialize, Serialize};

use super::Uptime;
use crate::host::UnixTime;
use crate::state::remote::Revision;
use crate::state::revocations::entry::{Concerned, End, IssuedAt, Revocation};
use crate::state::revocations::happened::{Extent, Happened, People, Whose};

/// A sender as it tells of the people of one issuer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Source {
    pub(super) sender: String,
    pub(super) people: People,
    pub(super) whose: Whose,
    pub(super) role: Role,
    /// The seconds for which events are kept.
    pub(super) kept_for_secs: u32,
    /// The cut-off: the older events, which have no rows any more.
    pub(super) cut_off: Option<CutOff>,
}

/// The role that people have in an impersonation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Role {
    Actors,
    Users,
}

/// Events that became one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CutOff {
    pub(super) at_millis: u64,
    pub(super) end_millis: u64,
    pub(super) revision: i64,
    pub(super) made_at: Uptime,
}

impl CutOff {
    pub(super) fn new(at: UnixTime, end: End, made_at: Uptime) -> Self {
        let End { time, revision } = end.near(at);
        let (at_millis, end_millis) = (at.millis(), time.millis());
        Self { at_millis, end_millis, revision: revision.as_i64(), made_at }
    }

    pub(super) const fn at(self) -> UnixTime {
        UnixTime::from_millis(self.at_millis)
    }

    pub(super) fn end(self) -> End {
        let time = UnixTime::from_millis(self.end_millis);
        End { time, revision: Revision::new(self.revision) }
    }

    pub(super) fn merged(self, other: Self) -> Self {
        let (at, end) = (self.at().max(other.at()), self.end().max(other.end()));
        Self::new(at, end, self.made_at.max(other.made_at))
    }

    pub(super) fn ends(self, issued: IssuedAt) -> bool {
        issued.is_until_event(self.at(), self.end())
    }

    /// Returns true if an actor token that was issued at that time is too old.
    pub(super) fn refuses(self, since: Option<UnixTime>) -> bool {
        since.is_some_and(|since| since <= self.at())
    }
}

impl Role {
    pub(super) fn of(revocation: &Revocation, extent: Extent) -> Self {
        match extent {
            Extent::One if revocation.user_id.is_some() => Self::Users,
            Extent::AllUsers => Self::Users,
            Extent::One | Extent::SessionsOfPerson | Extent::AllActors => Self::Actors,
        }
    }
}

impl Source {
    pub(super) fn new(revocation: &Revocation, happened: &Happened) -> Self {
        Self {
            sender: happened.sender.clone(),
            people: happened.people.clone(),
            whose: happened.whose,
            role: Role::of(revocation, happened.extent),
            kept_for_secs: happened.kept_for_secs,
            cut_off: None,
        }
    }

    pub(super) fn is_that_of(&self, revocation: &Revocation, happened: &Happened) -> bool {
        self.role == Role::of(revocation, happened.extent)
            && self.whose == happened.whose
            && self.sender == happened.sender
            && self.people == happened.people
    }

    pub(super) fn concerns(&self, Concerned { actor_id, session, user_id }: Concerned<'_>) -> bool {
        let names = match self.role {
            Role::Actors => [actor_id, session],
            Role::Users => [user_id, None],
        };
        names.into_iter().flatten().any(|name| self.people.have(name))
    }
}
