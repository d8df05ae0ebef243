//! Which impersonations have ended before their time.
//!
//! A revocation says what an impersonation must have (an id, a user, an actor, a client, a caller, a resource, or
//! several of them) and ends, of all that have it, what was issued until now. It is by time, never by a list of
//! what there is: what nobody can list any more has ended too, and what begins later has not.
//!
//! # What is promised
//!
//! Once [`Revocations::revoke`] has returned, no worker of this Envoy takes what it ended for alive, and no subject
//! token that was outstanding when it began becomes an access token that lives on. The argument, for an exchange
//! that (1) takes the time for its access token, (2) looks here, (3) spends the subject token, and a revocation
//! that (a) takes the time, (b) writes it, (c) takes the time anew, and (d), if that is later, writes again:
//!
//! - If (2) comes after (b), the exchange sees the revocation, and refuses a subject token that was minted until
//!   (a).
//! - If (2) comes before (b), so does (1), and (c) comes after both: the access token was issued until (c), and has
//!   ended once (d) is written. Nobody was answered before that.
//!
//! With the time of (a) alone an exchange could take its own between (a) and (b), see nothing, and live on.
//!
//! # Of many Envoys
//!
//! Where etcd has them, a revocation is a transaction, and its revision says what it comes after: no clock of one
//! Envoy is held against that of another. An access token carries the revision at which etcd was when its subject
//! token was found, a subject token has the one that created it, and what has a revision below that of a revocation
//! which names it has ended. So whatever order an exchange and a revocation come in: a revocation that the exchange
//! could not see yet has the higher revision, and ends what comes out of it.
//!
//! Every Envoy has a copy of them in its shared data, for all its workers and modules. Who revokes writes the copy of
//! its own Envoy before it answers. The others ask etcd for what is new a few times a second, and know how long ago it
//! last answered: **who has not heard from it for too long lets nobody pass.** To ask is one read of one key, through
//! the majority. A watch would tell sooner, but of a watch that says nothing nobody knows whether there is nothing to
//! say or its node is cut off; a read knows, and needs no history that could be compacted.
//!
//! # What is forgotten
//!
//! A revocation is kept for the longest life that any configuration gives to a subject token and its access token. In one
//! Envoy two clocks have to agree that it is over: [`table`] has the reason. In etcd a lease takes it away. A copy goes by
//! no clock at all: it forgets what is in etcd no more, as found out by reading all that is there. So a clock that is
//! wrong makes no Envoy forget, neither its own nor another.
//!
//! Whatever cannot be known counts as ended: an issue that is only known to the second, a caller that is not known,
//! a table that was full. What cannot be read is an error, and whoever asked must not go on.

mod entry;
mod etcd;
mod mark;
mod shared;
mod table;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

pub use entry::{CallerTag, End, Impersonation, Issued, Owner, Revocation};
pub use mark::Mark;
pub use table::{MAX_ENTRIES, OWNED, Overflow, SHARE};

use crate::etcd::Server;
use crate::host::{Host, HostFailure, UnixTime};
use crate::remote::{LastRevocation, RemoteFailure, Revision};
use crate::step::Context;
use etcd::Etcd;
use shared::{Number, SharedTable};
use table::Table;

/// The revocations of one service, as one worker knows them. Workers, and the plugins of one `vm_id`, share the
/// revocations, not this value.
#[derive(Debug)]
pub struct Revocations {
    /// Of this Envoy. Where etcd has them: what was revoked before it had.
    table: SharedTable,
    etcd: Option<Etcd>,
    /// What was read last; the numbers say whether it still is what there is.
    known: RefCell<Rc<Known>>,
}

/// What a worker knows of what was revoked.
#[derive(Debug, Default)]
pub struct Known {
    here: Option<Rc<Table>>,
    copy: Option<Rc<Table>>,
}

/// Somebody knew all that was revoked, when etcd was at this revision; at none without it.
#[derive(Debug, Clone, Copy)]
pub struct CaughtUp(Revision);

impl CaughtUp {
    /// What etcd was at. What is revoked later has a higher one, and ends what is issued by this.
    pub const fn revision(self) -> Revision {
        self.0
    }
}

/// What was revoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Revoked {
    /// All that was named and was issued until then has ended.
    pub before: UnixTime,
    /// What had to be ended besides, for want of room.
    pub overflow: Option<Overflow>,
}

/// Why nothing was revoked, or nobody knows whether it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotRevoked {
    /// Others were faster, again and again.
    #[error("too many revocations at once")]
    Contended,
    /// Shared data or randomness failed.
    #[error(transparent)]
    Host(#[from] HostFailure),
    /// etcd was of no use.
    #[error(transparent)]
    Remote(#[from] RemoteFailure),
}

/// Why nobody knows what was revoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unknown {
    /// Shared data or randomness failed.
    #[error(transparent)]
    Host(#[from] HostFailure),
    /// etcd was of no use.
    #[error(transparent)]
    Remote(#[from] RemoteFailure),
    /// Nobody has heard from etcd yet.
    #[error("the revocations were not read yet")]
    NotYet,
    /// It is too long ago that anybody has.
    #[error("the revocations were last read too long ago")]
    Stale,
}

impl Known {
    /// Whether an impersonation has ended, of which something was issued then: its access token, or the subject
    /// token that it is to come from.
    pub fn has_ended(&self, impersonation: &Impersonation<'_>, issued: Issued) -> bool {
        self.tables().any(|table| table.has_ended(impersonation, issued))
    }

    /// Whether this very revocation, or one of everyone, has ended already what was issued then.
    pub fn has(&self, revocation: &Revocation, issued: Issued) -> bool {
        self.tables().any(|table| table.has(revocation, issued))
    }

    /// How many revocations are told apart.
    pub fn len(&self) -> usize {
        self.tables().map(Table::len).sum()
    }

    /// Whether there are none but those of everyone.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn tables(&self) -> impl Iterator<Item = &Table> {
        [&self.here, &self.copy].into_iter().flatten().map(|table| &**table)
    }
}

impl Revocations {
    /// The revocations of the service that `tenant` names.
    ///
    /// A revocation is kept for as long as any configuration lets live what it ends.
    pub fn shared_data(tenant: &str) -> Self {
        Self { table: SharedTable::new(tenant), etcd: None, known: RefCell::default() }
    }

    /// The same in etcd. What was last read longer ago than `max_staleness` is not known any more.
    pub fn etcd(server: &Rc<Server>, tenant: &str, max_staleness: Duration) -> Self {
        let etcd = Etcd::new(server, tenant, max_staleness);
        Self { etcd: Some(etcd), ..Self::shared_data(tenant) }
    }

    /// Lets there be a table. If there was none, nobody knows what was revoked before: whatever was issued until
    /// now has ended. So this is called as early as possible, before anything is issued; and now and then afterwards, as
    /// it finishes what a worker has left behind that died between its two writes. What is in etcd is not forgotten, and
    /// needs no beginning.
    pub fn begin(&self, host: &dyn Host) -> Result<(), HostFailure> {
        if self.etcd.is_some() { Ok(()) } else { self.table.begin(host) }
    }

    /// What is known now: one read of a few bytes, and of the whole table only when it has changed. Whatever
    /// [`revoke`](Self::revoke) has returned of, in this Envoy, is in it; under etcd also whatever was revoked
    /// elsewhere until it was [asked](Self::follow) last, which is not too long ago.
    pub fn known(&self, host: &dyn Host) -> Result<Rc<Known>, Unknown> {
        self.read(host, |etcd, copy| etcd.is_current(copy, host.now()))
    }

    /// Of when that is which is [known](Self::known), be it too long ago or not: of now, and under etcd of when that was
    /// last asked and has answered; `None` until it has.
    pub fn as_of(&self, host: &dyn Host) -> Result<Option<UnixTime>, HostFailure> {
        let Some(etcd) = &self.etcd else {
            return Ok(self.table.number(host)?.map(|_| host.now()));
        };
        let confirmed_at = etcd.copy.number(host)?.unwrap_or_default().confirmed_at;
        Ok((confirmed_at != UnixTime::default()).then_some(confirmed_at))
    }

    /// All that was revoked until now, in whatever Envoy.
    pub async fn fresh(&self, context: &Context) -> Result<Rc<Known>, Unknown> {
        let caught_up = self.catch_up(context, None).await?;
        self.known_by(context.host(), caught_up)
    }

    /// Lets all be known here that was revoked until now, in whatever Envoy: under etcd it is asked for what is not
    /// known yet. `last` is the last revocation, if the caller has read that a moment ago.
    pub async fn catch_up(
        &self,
        context: &Context,
        last: Option<LastRevocation>,
    ) -> Result<CaughtUp, Unknown> {
        match &self.etcd {
            Some(etcd) => {
                let caught_up = etcd.catch_up(context, last).await;
                let caught_up =
                    caught_up.inspect_err(|unknown| etcd.complain(context.host(), unknown));
                Ok(CaughtUp(caught_up?))
            }
            None => Ok(CaughtUp(Revision::default())),
        }
    }

    /// How many are told apart; `None` if nobody can say. Of that nobody hears: nobody asked. Lets the copy of what is in
    /// etcd forget what is there no more.
    pub async fn count(&self, context: &Context) -> Option<usize> {
        if let Some(etcd) = &self.etcd {
            etcd.catch_up(context, None).await.ok()?;
            etcd.compare(context).await;
        }
        Some(self.known_here(context.host()).ok()?.len())
    }

    /// What is known in this Envoy: nothing that has not ended, and perhaps not all that has.
    pub fn known_here(&self, host: &dyn Host) -> Result<Rc<Known>, Unknown> {
        self.read(host, |_, _| Ok(()))
    }

    /// What is known now, and no less than was then.
    pub fn known_by(&self, host: &dyn Host, _: CaughtUp) -> Result<Rc<Known>, Unknown> {
        self.known_here(host)
    }

    /// Ends what `revocation` names and was issued until now, as an operator wants it.
    pub async fn revoke(
        &self,
        context: &Context,
        revocation: &Revocation,
    ) -> Result<Revoked, NotRevoked> {
        self.revoke_for(context, revocation, None).await
    }

    /// Ends the impersonation with this id, which is `owner`'s. It is of the owner's share: where that is used up, more of
    /// what is the owner's ends, and nothing else.
    pub async fn end(
        &self,
        context: &Context,
        id: &str,
        owner: &Owner,
    ) -> Result<Revoked, NotRevoked> {
        self.revoke_for(context, &Revocation::of_id(id), Some(owner)).await
    }

    async fn revoke_for(
        &self,
        context: &Context,
        revocation: &Revocation,
        owner: Option<&Owner>,
    ) -> Result<Revoked, NotRevoked> {
        match &self.etcd {
            Some(etcd) => etcd.revoke(context, revocation, owner).await,
            None => self.table.revoke(context.host(), revocation, owner),
        }
    }

    /// Whether this VM is to ask etcd for what is new, by [`Self::follow`]: one of each Envoy is.
    pub fn follows(&self, host: &dyn Host) -> bool {
        self.etcd.as_ref().is_some_and(|etcd| etcd.follows(host))
    }

    /// Asks etcd for what is new, and lets all workers know.
    pub async fn follow(&self, context: &Context) {
        if let Some(etcd) = &self.etcd {
            etcd.follow(context).await;
        }
    }

    /// What there is, if the copy of what is in etcd is good enough.
    fn read(
        &self,
        host: &dyn Host,
        is_good: impl FnOnce(&Etcd, Number) -> Result<(), Unknown>,
    ) -> Result<Rc<Known>, Unknown> {
        let last = Rc::clone(&self.known.borrow());
        let (here, copy) = match &self.etcd {
            None => (Some(self.table.number_or_begin(host)?), None),
            Some(etcd) => {
                let number = etcd.copy.number(host)?.unwrap_or_default();
                is_good(etcd, number)?;
                // One that only says when etcd answered comes without a table, where nothing was ever revoked.
                (self.table.number(host)?, number.has_table().then_some((etcd, number)))
            }
        };
        let here = here.map(|number| self.table.table(host, number, last.here.as_ref()));
        let copy = copy.map(|(etcd, number)| etcd.copy.table(host, number, last.copy.as_ref()));
        let (here, copy) = (here.transpose()?, copy.transpose()?);
        let is_same = |one: &Option<Rc<Table>>, other: &Option<Rc<Table>>| match (one, other) {
            (Some(one), Some(other)) => Rc::ptr_eq(one, other),
            (None, None) => true,
            _ => false,
        };
        if is_same(&here, &last.here) && is_same(&copy, &last.copy) {
            return Ok(last);
        }
        let known = Rc::new(Known { here, copy });
        self.known.replace(Rc::clone(&known));
        Ok(known)
    }
}
