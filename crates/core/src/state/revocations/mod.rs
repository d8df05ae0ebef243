//! Revocations: the impersonations that have ended before their time.
//!
//! A revocation names members that an impersonation must have: an id, a user, an actor, a client, a
//! caller, a resource, or several of them. It ends every impersonation that has all of these
//! members and was issued until now. It works by time, not by a list of live impersonations: an
//! impersonation that is not listed ends too, and one that begins later does not.
//!
//! # The promise
//!
//! Once a call of `revoke` has returned, no worker of this Envoy treats an impersonation that it
//! ended as live, and no subject token that was outstanding when the call began becomes an access
//! token that lives on.
//!
//! The argument for one Envoy: an exchange (1) takes the time for its access token, (2) reads the
//! revocations, (3) spends the subject token. A revocation (a) takes the time, (b) writes its entry
//! with it, (c) takes the time again, and (d) writes again if the time has moved on.
//!
//! - If (2) comes after (b), the exchange sees the revocation, and refuses a subject token that was
//!   minted until (a).
//! - If (2) comes before (b), so does (1), and (c) comes after both. The access token was issued
//!   until (c), and has ended once (d) is written. The revocation is answered after (d).
//!
//! With the time of (a) alone, an exchange could take its time between (a) and (b), see no
//! revocation, and live on.
//!
//! # Many Envoys
//!
//! In a remote store a revocation is a transaction. Its revision orders it: the clocks of two
//! Envoys are never compared. An access token carries the revision that the store had when its
//! subject token was found. A subject token carries the revision that created it. A revocation ends
//! every token that it names and that has a lower revision than its own. An exchange that could not
//! see the revocation yet has a lower revision, so its access token ends, in whatever order the two
//! arrive.
//!
//! Every Envoy keeps a copy of all revocations in its shared data, for all its workers and modules.
//! A worker that revokes writes the copy of its own Envoy before it answers. The other Envoys watch
//! the store, which sends them each revocation, and they ask it now and then. **An Envoy that has
//! had no answer for too long lets no request pass.** A question is one read of one key, through
//! the majority. The watch alone would not do: a silent watch does not show whether there is
//! nothing to say or its node is cut off. A read shows that, and it needs no history that the store
//! could compact. So the watch makes an Envoy know sooner, and only a read makes it know for sure.
//!
//! # Forgetting
//!
//! A revocation is kept for the longest life that any configuration allows for a subject token and
//! its access token, and an event for as long as a token that it ends or refuses can be old. In one
//! Envoy, two clocks must agree that this time is over: see [`table`]. In a remote store a lease
//! removes the revocation. A copy goes by no clock: it forgets a revocation only when a read of all
//! revocations shows that the store has it no more. So a wrong clock makes no Envoy forget, neither
//! its own nor another.
//!
//! Unknown facts count against the token: a time of issue that is only known to the second, an
//! unknown caller, a full table. A value that cannot be read is an error, and the caller must
//! refuse the request.

mod entry;
mod happened;
mod mark;
mod table;
mod view;

pub use entry::{CLOCKS_APART, Learned, Order};
pub use entry::{CallerTag, Concerned, End, Impersonation, IssuedAt, Owner, Revocation};
pub use happened::{Extent, Happened, People, Whose};
pub use mark::Mark;
#[cfg(test)]
pub(crate) use table::EVENTS;
pub(crate) use table::{Clocks, RETENTION, Sessions, Table, end_at_revision};
pub use table::{MAX_ENTRIES, Overflow, SHARE, Told};
pub(crate) use view::LastView;
pub use view::View;

use std::time::Duration;

use crate::host::{HostFailure, UnixTime};
use crate::state::remote::{RemoteFailure, Revision};

/// The time between two ticks of an Envoy that follows the revocations of others.
pub(crate) const FOLLOWED_EVERY: Duration = Duration::from_millis(250);

/// Proof that this Envoy knew all revocations of the store at one revision; no revision if the
/// revocations are in this Envoy alone.
#[derive(Debug, Clone, Copy)]
pub struct CaughtUp(pub(crate) Revision);

impl CaughtUp {
    /// The revision of the store. A later revocation has a higher revision, and ends what is issued
    /// with this one.
    pub const fn revision(self) -> Revision {
        self.0
    }
}

/// The result of a revocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Revoked {
    /// Everything that was named and was issued until this time has ended.
    pub before: UnixTime,
    /// Entries that had to be merged for want of room, which ended more than was named.
    pub overflow: Option<Overflow>,
}

/// A revocation was not made, or may not have been made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotRevoked {
    /// Other workers were faster, again and again.
    #[error("too many revocations at once")]
    Contended,
    /// The sender has used up its share for events about another issuer's people.
    #[error("the sender has used up its share for events about another issuer's people")]
    NoRoom,
    /// Shared data or randomness failed.
    #[error(transparent)]
    Host(#[from] HostFailure),
    /// The remote store failed.
    #[error(transparent)]
    Remote(#[from] RemoteFailure),
}

/// The revocations are not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unknown {
    /// Shared data or randomness failed.
    #[error(transparent)]
    Host(#[from] HostFailure),
    /// The remote store failed.
    #[error(transparent)]
    Remote(#[from] RemoteFailure),
    /// The remote store has not answered yet.
    #[error("the revocations were not read yet")]
    NotYet,
    /// The last answer of the remote store is too old.
    #[error("the revocations were last read too long ago")]
    Stale,
}
