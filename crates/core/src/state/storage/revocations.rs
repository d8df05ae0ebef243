//! Revocations, in whichever adapter keeps them.

use std::rc::Rc;
use std::time::Duration;

use crate::host::{Host, HostFailure, UnixTime};
use crate::state::etcd::{EtcdRevocations, Server};
use crate::state::local::LocalTable;
use crate::state::remote::{LastRevocation, Revision};
use crate::state::revocations::{
    CaughtUp, Happened, LastView, NotRevoked, Order, Owner, Revocation, Revoked, Told, Unknown,
    View,
};
use crate::step::{Context, StreamAction, StreamEvent};

/// The revocations of one service, as one worker sees them. Workers, and the plugins of one
/// `vm_id`, share the revocations, not this value.
#[derive(Debug)]
pub struct Revocations(RevocationsIn);

#[derive(Debug)]
enum RevocationsIn {
    /// The table in shared data is complete, so every read of it is current.
    SharedData {
        table: LocalTable,
        last: LastView,
    },
    Etcd(Box<EtcdRevocations>),
}

impl Revocations {
    /// The revocations in Envoy's shared data of the service that `tenant` names.
    pub fn shared_data(tenant: &str) -> Self {
        let (table, last) = (LocalTable::new(tenant), LastView::new(Order::Clock));
        Self(RevocationsIn::SharedData { table, last })
    }

    /// The revocations in etcd of the service that `tenant` names. [`Self::recent_view`] fails if
    /// etcd last answered longer than `max_staleness` ago.
    pub fn etcd(server: &Rc<Server>, tenant: &str, max_staleness: Duration) -> Self {
        let revocations = EtcdRevocations::new(server, tenant, max_staleness);
        Self(RevocationsIn::Etcd(Box::new(revocations)))
    }

    /// Creates the table in shared data if it is missing. Without a table it is unknown what was
    /// revoked earlier, so a new table ends everything issued until now: call this before anything
    /// is issued. Also call it from time to time: it completes the revocation of a worker that died
    /// between its two writes. A remote store forgets nothing, and needs no table.
    pub fn create_if_missing(&self, host: &dyn Host) -> Result<(), HostFailure> {
        match &self.0 {
            RevocationsIn::SharedData { table, .. } => table.create_if_missing(host),
            RevocationsIn::Etcd(_) => Ok(()),
        }
    }

    /// The revocations that shared data has, if they are recent enough to decide about a request.
    /// Reads a few bytes, and the whole table only if it has changed.
    ///
    /// The view has every revocation that was answered in this Envoy, and every revocation
    /// elsewhere until the remote store last answered. Fails if that answer is too old.
    pub fn recent_view(&self, host: &dyn Host) -> Result<Rc<View>, Unknown> {
        match &self.0 {
            RevocationsIn::SharedData { .. } => self.local_view(host),
            RevocationsIn::Etcd(revocations) => revocations.recent_view(host),
        }
    }

    /// The revocations that shared data has, however old they are: some may be missing.
    pub fn local_view(&self, host: &dyn Host) -> Result<Rc<View>, Unknown> {
        match &self.0 {
            RevocationsIn::SharedData { table, last } => {
                let number = table.number_or_create(host)?;
                let table = table.table(host, number, last.get().table.as_ref())?;
                Ok(last.of(Some(table)))
            }
            RevocationsIn::Etcd(revocations) => revocations.local_view(host),
        }
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
        match &self.0 {
            RevocationsIn::SharedData { .. } => Ok(CaughtUp(Revision::default())),
            RevocationsIn::Etcd(revocations) => revocations.catch_up(context, last).await,
        }
    }

    /// The revocations that shared data has: at least those until `_caught_up`. Asks no store.
    pub fn view_after(&self, host: &dyn Host, _caught_up: CaughtUp) -> Result<Rc<View>, Unknown> {
        self.local_view(host)
    }

    /// The time for which [`Self::recent_view`] is right: now, or when the remote store was last
    /// asked and answered. `None` until it has answered.
    pub(crate) fn confirmed_at(&self, host: &dyn Host) -> Result<Option<UnixTime>, HostFailure> {
        match &self.0 {
            RevocationsIn::SharedData { table, .. } => Ok(table.number(host)?.map(|_| host.now())),
            RevocationsIn::Etcd(revocations) => revocations.confirmed_at(host),
        }
    }

    /// The number of revocations that are told apart; `None` if it is not known. Removes from the
    /// copy of a remote store's revocations what the store has no more.
    pub async fn count(&self, context: &Context) -> Option<usize> {
        match &self.0 {
            RevocationsIn::SharedData { .. } => Some(self.local_view(context.host()).ok()?.len()),
            RevocationsIn::Etcd(revocations) => revocations.count(context).await,
        }
    }

    /// Ends everything that `revocation` names and that was issued until now, for an operator.
    pub async fn revoke(
        &self,
        context: &Context,
        revocation: &Revocation,
    ) -> Result<Revoked, NotRevoked> {
        self.revoke_for(context, revocation, None).await
    }

    /// Ends the impersonation with this id for its owner. The entry counts against the owner's
    /// share. If the share is used up, more of the owner's impersonations end, and nobody else's.
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
        match &self.0 {
            RevocationsIn::SharedData { table, .. } => {
                table.revoke(context.host(), revocation, owner)
            }
            RevocationsIn::Etcd(revocations) => {
                revocations.revoke(context, revocation, owner).await
            }
        }
    }

    /// Ends everything that `revocation` names and that was issued until an event, by the clock of
    /// its sender. A repetition of an event ends nothing. Events have room of their own.
    pub async fn keep_event(
        &self,
        context: &Context,
        revocation: &Revocation,
        happened: &Happened,
    ) -> Result<Told, NotRevoked> {
        match &self.0 {
            RevocationsIn::SharedData { table, .. } => {
                table.keep_event(context.host(), revocation, happened)
            }
            RevocationsIn::Etcd(revocations) => {
                revocations.keep_event(context, revocation, happened).await
            }
        }
    }

    /// The action on the stream of this VM that is due at a tick. One VM of each Envoy holds a
    /// stream, on which the remote store sends new revocations.
    pub fn tend_watch(&self, host: &dyn Host) -> Option<StreamAction> {
        self.in_etcd()?.tend_watch(host)
    }

    /// Takes what happened on the stream of this VM.
    pub fn on_watch(&self, host: &dyn Host, event: &StreamEvent) {
        if let Some(revocations) = self.in_etcd() {
            revocations.on_watch(host, event);
        }
    }

    /// Returns true if this VM is to call [`Self::follow`] now: one VM of each Envoy is, when no
    /// stream takes the place of a question.
    pub fn follows(&self, host: &dyn Host) -> bool {
        self.in_etcd().is_some_and(|revocations| revocations.follows(host))
    }

    /// Asks the remote store for new revocations, and shares them with all workers.
    pub async fn follow(&self, context: &Context) {
        if let Some(revocations) = self.in_etcd() {
            revocations.follow(context).await;
        }
    }

    fn in_etcd(&self) -> Option<&EtcdRevocations> {
        match &self.0 {
            RevocationsIn::SharedData { .. } => None,
            RevocationsIn::Etcd(revocations) => Some(revocations),
        }
    }
}
