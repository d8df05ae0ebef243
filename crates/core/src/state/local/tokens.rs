//! Subject tokens in one Envoy: the table of slots and its count.

use std::time::Duration;

use super::census::Census;
use super::slots::SlotTable;
use crate::host::{Host, UnixTime};
use crate::metrics;
use crate::secret::Digest;
use crate::state::remote::Beside;
use crate::state::store::{
    Cancelled, Exchange, Found, Grant, Known, Lifetimes, Mint, NotDecided, NotSpent, NotStored,
    Outstanding, Review, StoreFailure, SubjectToken, TokenId, WaitingPage,
};
use crate::step::Context;

/// The subject tokens of one Envoy, as one worker sees them.
#[derive(Debug)]
pub(crate) struct LocalTokens {
    table: SlotTable,
    census: Census,
    capacity: u32,
    lifetime: Duration,
}

impl LocalTokens {
    pub(crate) fn new(tenant: &str, capacity: u32, lifetimes: Lifetimes) -> Self {
        let table = SlotTable::new(tenant, capacity, lifetimes.longest);
        Self { table, census: Census::default(), capacity, lifetime: lifetimes.usual }
    }

    pub(crate) async fn mint(
        &self,
        context: &Context,
        mint: Mint,
        grant: Grant,
        expires_at: UnixTime,
    ) -> Result<(SubjectToken, Digest), NotStored> {
        self.table.mint(context.host(), mint, grant, expires_at)
    }

    pub(crate) async fn mint_for_review(
        &self,
        context: &Context,
        mint: Mint,
        grant: Grant,
        review: Review,
        expires_at: UnixTime,
    ) -> Result<(SubjectToken, Digest), NotStored> {
        self.table.mint_for_review(context.host(), mint, grant, review, expires_at)
    }

    pub(crate) async fn known(
        &self,
        context: &Context,
        id: &TokenId,
    ) -> Result<Option<Known>, StoreFailure> {
        Ok(self.table.known(context.host(), id)?)
    }

    pub(crate) async fn decide(
        &self,
        context: &Context,
        id: &TokenId,
        decide: &mut dyn FnMut(&Known) -> Option<Review>,
    ) -> Result<Option<Known>, NotDecided> {
        Ok(self.table.decide(context.host(), id, decide)?)
    }

    pub(crate) async fn waiting(
        &self,
        context: &Context,
        user_id: Option<&str>,
        place: Option<&str>,
        limit: usize,
        wanted: &mut dyn FnMut(&TokenId, &Known) -> bool,
    ) -> Result<WaitingPage, StoreFailure> {
        Ok(self.table.waiting(context.host(), user_id, place, limit, wanted)?)
    }

    pub(crate) async fn find(
        &self,
        context: &Context,
        token: &SubjectToken,
        digest: &Digest,
    ) -> Result<Found, StoreFailure> {
        Ok(self.table.find(context.host(), token, digest)?)
    }

    pub(crate) async fn find_again(
        &self,
        context: &Context,
        found: &Outstanding,
    ) -> Result<Found, StoreFailure> {
        Ok(self.table.find_in(context.host(), found.slot(), &found.digest)?)
    }

    pub(crate) async fn cancel(
        &self,
        context: &Context,
        id: &TokenId,
        theirs: &dyn Fn(&Digest, &Mint) -> bool,
    ) -> Result<Cancelled, StoreFailure> {
        Ok(self.table.cancel(context.host(), id, theirs)?)
    }

    pub(crate) async fn spend(
        &self,
        context: &Context,
        token: Outstanding,
        exchange: Exchange,
        _: Option<Beside>,
    ) -> Result<(), NotSpent> {
        self.table.spend(context.host(), token, exchange)
    }

    /// Counts the next pages, and sets the gauges when the count is complete.
    pub(crate) fn set_gauges(&self, host: &dyn Host) {
        let Ok(Some(occupancy)) = self.census.tick(host, &self.table) else { return };
        occupancy.set_gauges(host, self.lifetime);
        host.set(metrics::CAPACITY, u64::from(self.capacity));
    }

    pub(crate) fn counts(&self, _: &dyn Host) -> bool {
        false
    }

    pub(crate) async fn count(&self, _: &Context) {}
}
