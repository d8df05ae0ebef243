//! The list of live impersonations, in whichever adapter keeps it.

use std::rc::Rc;
use std::time::Duration;

use crate::host::{Host, HostFailure};
use crate::state::etcd::{EtcdList, Server};
use crate::state::impersonations::{Listed, LiveImpersonation, Page, Place};
use crate::state::local::LocalList;
use crate::state::remote::Beside;
use crate::state::store::StoreFailure;
use crate::step::Context;

/// The longest time to look through the list beyond its first page. A caller waits for the answer.
const LOOKED_THROUGH_WITHIN: Duration = Duration::from_millis(500);

/// The list of live impersonations of one service, as one worker sees it. Workers share the list,
/// not this value.
#[derive(Debug)]
pub struct List(ListIn);

#[derive(Debug)]
enum ListIn {
    SharedData(LocalList),
    Etcd(EtcdList),
}

impl List {
    /// The list in Envoy's shared data of the service that `tenant` names, for `capacity`
    /// impersonations that each are live for at most `lifetime`.
    pub(crate) fn shared_data(tenant: &str, capacity: u32, lifetime: Duration) -> Self {
        Self(ListIn::SharedData(LocalList::new(tenant, capacity, lifetime)))
    }

    /// The list in etcd of the service that `tenant` names. It has room for all impersonations.
    pub fn etcd(server: &Rc<Server>, tenant: &str) -> Self {
        Self(ListIn::Etcd(EtcdList::new(server, tenant)))
    }

    /// The key that lists an impersonation, for the transaction that spends its subject token;
    /// `None` if the list is not in a remote store.
    pub fn beside(&self, entry: &LiveImpersonation) -> Result<Option<Beside>, StoreFailure> {
        match &self.0 {
            ListIn::SharedData(_) => Ok(None),
            ListIn::Etcd(list) => list.beside(entry).map(Some),
        }
    }

    /// Creates the list if it is missing, and writes down its size.
    pub fn create_if_missing(&self, host: &dyn Host) -> Result<(), HostFailure> {
        match &self.0 {
            ListIn::SharedData(list) => list.create_if_missing(host),
            ListIn::Etcd(_) => Ok(()),
        }
    }

    /// Adds an impersonation that has just begun, unless its spend has listed it: see
    /// [`Self::beside`]. If it finds no room, the list says that it is incomplete.
    pub fn insert(
        &self,
        host: &dyn Host,
        entry: &LiveImpersonation,
    ) -> Result<Listed, HostFailure> {
        match &self.0 {
            ListIn::SharedData(list) => list.insert(host, entry),
            ListIn::Etcd(_) => Ok(Listed::Yes),
        }
    }

    /// Returns true if every live impersonation is listed.
    pub fn is_complete(&self, host: &dyn Host) -> Result<bool, HostFailure> {
        match &self.0 {
            ListIn::SharedData(list) => list.is_complete(host),
            ListIn::Etcd(_) => Ok(true),
        }
    }

    /// Finds the impersonation with this id, if it is listed and has not expired.
    pub async fn find(
        &self,
        context: &Context,
        id: &str,
    ) -> Result<Option<LiveImpersonation>, StoreFailure> {
        match &self.0 {
            ListIn::SharedData(list) => Ok(list.find(context.host(), id)?),
            ListIn::Etcd(list) => list.find(context, id).await,
        }
    }

    /// Reads a page of the list, from `place` on: at most `limit` of the impersonations that
    /// `wanted` accepts.
    pub async fn page(
        &self,
        context: &Context,
        place: Option<Place>,
        limit: usize,
        wanted: impl FnMut(&LiveImpersonation) -> bool,
    ) -> Result<Page, StoreFailure> {
        match &self.0 {
            ListIn::SharedData(list) => Ok(list.page(context.host(), place, limit, wanted)?),
            ListIn::Etcd(list) => list.page(context, place, limit, wanted).await,
        }
    }

    /// Shows every live impersonation to `see`, but stops after half a second. Returns true if it
    /// has shown all live impersonations.
    pub async fn look_through(
        &self,
        context: &Context,
        mut see: impl FnMut(&LiveImpersonation),
    ) -> Result<bool, StoreFailure> {
        let host = context.host();
        let mut complete = self.is_complete(host)?;
        let (began, mut place) = (host.now(), None);
        loop {
            let wanted = |entry: &LiveImpersonation| {
                see(entry);
                false
            };
            let page = self.page(context, place, usize::MAX, wanted).await?;
            complete &= page.complete;
            place = page.next;
            if place.is_none() {
                return Ok(complete);
            }
            if !began.is_within(LOOKED_THROUGH_WITHIN, host.now()) {
                return Ok(false);
            }
        }
    }
}
