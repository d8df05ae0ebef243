//! Revocations, in whichever adapter keeps them.

use std::rc::Rc;
use std::time::Duration;

use super::{Adapter, call};
use crate::host::{Host, HostFailure, UnixTime};
use crate::state::etcd::{EtcdRevocations, Server};
use crate::state::local::LocalRevocations;
use crate::state::remote::LastRevocation;
use crate::state::revocations::{
    CaughtUp, Happened, NotRevoked, Owner, Revocation, Revoked, Told, Unknown, View,
};
use crate::step::{Context, StreamAction, StreamEvent};

/// The revocations of one service, as one worker sees them. Workers, and the plugins of one
/// `vm_id`, share the revocations, not this value.
#[derive(Debug)]
pub struct Revocations(Adapter<LocalRevocations, EtcdRevocations>);

impl Revocations {
    /// The revocations in Envoy's shared data of the service that `tenant` names.
    pub fn shared_data(tenant: &str) -> Self {
        Self(Adapter::Local(LocalRevocations::new(tenant)))
    }

    /// The revocations in etcd of the service that `tenant` names. [`Self::recent_view`] fails if
    /// etcd last answered longer than `max_staleness` ago.
    pub fn etcd(server: &Rc<Server>, tenant: &str, max_staleness: Duration) -> Self {
        Self(Adapter::Etcd(EtcdRevocations::new(server, tenant, max_staleness)))
    }

    /// Creates the table in shared data if it is missing. Without a table it is unknown what was
    /// revoked earlier, so a new table ends everything issued until now: call this before anything
    /// is issued. Also call it from time to time: it completes the revocation of a worker that died
    /// between its two writes. A remote store forgets nothing, and needs no table.
    pub fn create_if_missing(&self, host: &dyn Host) -> Result<(), HostFailure> {
        call!(self.0, revocations => revocations.create_if_missing(host))
    }

    /// The revocations that shared data has, if they are recent enough to decide about a request.
    /// Reads a few bytes, and the whole table only if it has changed.
    ///
    /// The view has every revocation that was answered in this Envoy, and every revocation
    /// elsewhere until the remote store last answered. Fails if that answer is too old.
    pub fn recent_view(&self, host: &dyn Host) -> Result<Rc<View>, Unknown> {
        call!(self.0, revocations => revocations.recent_view(host))
    }

    /// The revocations that shared data has, however old they are: some may be missing.
    pub(crate) fn local_view(&self, host: &dyn Host) -> Result<Rc<View>, Unknown> {
        call!(self.0, revocations => revocations.local_view(host))
    }

    /// All revocations until now, in whichever Envoy they were made. Asks the remote store.
    pub async fn current_view(&self, context: &Context) -> Result<Rc<View>, Unknown> {
        let caught_up = self.catch_up(context, None).await?;
        self.view_after(context.host(), caught_up)
    }

    /// Asks the remote store for the revocations that this Envoy lacks. `last` is the last
    /// revocation, if the caller has read it a moment ago.
    pub async fn catch_up(
        &self,
        context: &Context,
        last: Option<LastRevocation>,
    ) -> Result<CaughtUp, Unknown> {
        call!(self.0, revocations => revocations.catch_up(context, last).await)
    }

    /// The revocations that shared data has: at least those until `_caught_up`. Asks no store.
    pub(crate) fn view_after(
        &self,
        host: &dyn Host,
        _caught_up: CaughtUp,
    ) -> Result<Rc<View>, Unknown> {
        self.local_view(host)
    }

    /// The time for which [`Self::recent_view`] is right: now, or when the remote store was last
    /// asked and answered. `None` until it has answered.
    pub(crate) fn confirmed_at(&self, host: &dyn Host) -> Result<Option<UnixTime>, HostFailure> {
        call!(self.0, revocations => revocations.confirmed_at(host))
    }

    /// The number of revocations that are told apart; `None` if it is not known. Removes from the
    /// copy of a remote store's revocations what the store has no more.
    pub async fn count(&self, context: &Context) -> Option<usize> {
        call!(self.0, revocations => revocations.count(context).await)
    }

    /// Ends everything that `revocation` names and that was issued until now, for an operator.
    pub async fn revoke(
        &self,
        context: &Context,
        revocation: &Revocation,
    ) -> Result<Revoked, NotRevoked> {
        call!(self.0, revocations => revocations.revoke(context, revocation, None).await)
    }

    /// Ends the impersonation with this id for its owner. The entry counts against the owner's
    /// share. If the share is used up, more of the owner's impersonations end, and nobody else's.
    pub async fn end(
        &self,
        context: &Context,
        id: &str,
        owner: &Owner,
    ) -> Result<Revoked, NotRevoked> {
        let revocation = Revocation::of_id(id);
        call!(self.0, revocations => revocations.revoke(context, &revocation, Some(owner)).await)
    }

    /// Ends everything that `revocation` names and that was issued until an event, by the clock of
    /// its sender. A repetition of an event ends nothing. Events have room of their own.
    pub async fn keep_event(
        &self,
        context: &Context,
        revocation: &Revocation,
        happened: &Happened,
    ) -> Result<Told, NotRevoked> {
        call!(self.0, revocations => {
            revocations.keep_event(context, revocation, happened).await
        })
    }

    /// The action on the stream of this VM that is due at a tick. One VM of each Envoy holds a
    /// stream, on which the remote store sends new revocations.
    pub fn tend_watch(&self, host: &dyn Host) -> Option<StreamAction> {
        call!(self.0, revocations => revocations.tend_watch(host))
    }

    /// Takes what happened on the stream of this VM.
    pub fn on_watch(&self, host: &dyn Host, event: &StreamEvent) {
        call!(self.0, revocations => revocations.on_watch(host, event));
    }

    /// Returns true if this VM is to call [`Self::follow`] now: one VM of each Envoy is, when no
    /// stream takes the place of a question.
    pub fn follows(&self, host: &dyn Host) -> bool {
        call!(self.0, revocations => revocations.follows(host))
    }

    /// Asks the remote store for new revocations, and shares them with all workers.
    pub async fn follow(&self, context: &Context) {
        call!(self.0, revocations => revocations.follow(context).await);
    }
}
