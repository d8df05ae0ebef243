//! Revocations in one Envoy. The table in shared data is complete, so every read of it is current.

use std::rc::Rc;

use super::table::LocalTable;
use crate::host::{Host, HostFailure, UnixTime};
use crate::state::remote::{LastRevocation, Revision};
use crate::state::revocations::{
    CaughtUp, Happened, LastView, NotRevoked, Order, Owner, Revocation, Revoked, Told, Unknown,
    View,
};
use crate::step::{Context, StreamAction, StreamEvent};

/// The revocations of one Envoy, as one worker sees them.
#[derive(Debug)]
pub(crate) struct LocalRevocations {
    table: LocalTable,
    last: LastView,
}

impl LocalRevocations {
    pub(crate) fn new(tenant: &str) -> Self {
        Self { table: LocalTable::new(tenant), last: LastView::new(Order::Clock) }
    }

    pub(crate) fn create_if_missing(&self, host: &dyn Host) -> Result<(), HostFailure> {
        self.table.create_if_missing(host)
    }

    pub(crate) fn recent_view(&self, host: &dyn Host) -> Result<Rc<View>, Unknown> {
        let number = self.table.number_or_create(host)?;
        let table = self.table.table(host, number, self.last.get().table.as_ref())?;
        Ok(self.last.of(Some(table)))
    }

    pub(crate) fn local_view(&self, host: &dyn Host) -> Result<Rc<View>, Unknown> {
        self.recent_view(host)
    }

    pub(crate) fn confirmed_at(&self, host: &dyn Host) -> Result<Option<UnixTime>, HostFailure> {
        Ok(self.table.number(host)?.map(|_| host.now()))
    }

    pub(crate) async fn catch_up(
        &self,
        _: &Context,
        _: Option<LastRevocation>,
    ) -> Result<CaughtUp, Unknown> {
        Ok(CaughtUp(Revision::default()))
    }

    pub(crate) async fn revoke(
        &self,
        context: &Context,
        revocation: &Revocation,
        owner: Option<&Owner>,
    ) -> Result<Revoked, NotRevoked> {
        self.table.revoke(context.host(), revocation, owner)
    }

    pub(crate) async fn keep_event(
        &self,
        context: &Context,
        revocation: &Revocation,
        happened: &Happened,
    ) -> Result<Told, NotRevoked> {
        self.table.keep_event(context.host(), revocation, happened)
    }

    pub(crate) async fn count(&self, context: &Context) -> Option<usize> {
        Some(self.local_view(context.host()).ok()?.len())
    }

    pub(crate) fn tend_watch(&self, _: &dyn Host) -> Option<StreamAction> {
        None
    }

    pub(crate) fn on_watch(&self, _: &dyn Host, _: &StreamEvent) {}

    pub(crate) fn follows(&self, _: &dyn Host) -> bool {
        false
    }

    pub(crate) async fn follow(&self, _: &Context) {}
}
