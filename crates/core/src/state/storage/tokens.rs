//! Subject tokens, in whichever adapter keeps them.

use std::rc::Rc;
use std::time::Duration;

use crate::host::{Host, UnixTime};
use crate::metrics;
use crate::secret::Digest;
use crate::state::etcd::{EtcdTokens, Server};
use crate::state::local::{Census, SlotTable};
use crate::state::remote::Beside;
use crate::state::store::{
    Cancelled, Exchange, Found, Grant, Known, Lifetimes, Mint, NotDecided, NotSpent, NotStored,
    Outstanding, Review, StoreFailure, SubjectToken, TokenId, WaitingPage,
};
use crate::step::Context;

/// The store of subject tokens. Of any number of simultaneous attempts to spend a token, exactly
/// one succeeds.
///
/// The verbs are `async` because a remote store takes a round trip. Shared data answers at once.
#[derive(Debug)]
pub struct Store(TokensIn);

#[derive(Debug)]
enum TokensIn {
    SharedData {
        slots: SlotTable,
        census: Census,
        /// The lifetime of a token that nobody needs to decide about.
        lifetime: Duration,
    },
    Etcd(Box<EtcdTokens>),
}

impl Store {
    /// The store in Envoy's shared data of the service that `tenant` names: a table for `capacity`
    /// outstanding tokens.
    pub fn shared_data(tenant: &str, capacity: u32, lifetimes: impl Into<Lifetimes>) -> Self {
        let Lifetimes { usual, longest } = lifetimes.into();
        let slots = SlotTable::new(tenant, capacity, longest);
        Self(TokensIn::SharedData { slots, census: Census::default(), lifetime: usual })
    }

    /// The store in etcd of the service that `tenant` names. A record outlives its token by
    /// `afterlife`: the longest life of an access token that it is exchanged for.
    pub fn etcd(
        server: &Rc<Server>,
        tenant: &str,
        lifetimes: impl Into<Lifetimes>,
        afterlife: Duration,
    ) -> Self {
        let lifetimes = lifetimes.into();
        Self(TokensIn::Etcd(Box::new(EtcdTokens::new(server, tenant, lifetimes, afterlife))))
    }

    /// Returns true if the tokens are outside Envoy, so that calls can fail on the way.
    pub const fn is_remote(&self) -> bool {
        matches!(self.0, TokensIn::Etcd(_))
    }

    /// Stores a new token.
    pub async fn mint(
        &self,
        context: &Context,
        mint: Mint,
        grant: Grant,
        expires_at: UnixTime,
    ) -> Result<(SubjectToken, TokenId), NotStored> {
        let (token, digest) = match &self.0 {
            TokensIn::SharedData { slots, .. } => {
                slots.mint(context.host(), mint, grant, expires_at)?
            }
            TokensIn::Etcd(tokens) => tokens.mint(context, mint, grant, expires_at).await?,
        };
        let id = token.id(&digest);
        Ok((token, id))
    }

    /// Stores a new token that people decide about.
    pub async fn mint_for_review(
        &self,
        context: &Context,
        mint: Mint,
        grant: Grant,
        review: Review,
        expires_at: UnixTime,
    ) -> Result<(SubjectToken, TokenId), NotStored> {
        let (token, digest) = match &self.0 {
            TokensIn::SharedData { slots, .. } => {
                slots.mint_for_review(context.host(), mint, grant, review, expires_at)?
            }
            TokensIn::Etcd(tokens) => {
                tokens.mint_for_review(context, mint, grant, review, expires_at).await?
            }
        };
        let id = token.id(&digest);
        Ok((token, id))
    }

    /// Looks up the token that `id` names, for somebody who need not hold it.
    pub async fn known(
        &self,
        context: &Context,
        id: &TokenId,
    ) -> Result<Option<Known>, StoreFailure> {
        match &self.0 {
            TokensIn::SharedData { slots, .. } => Ok(slots.known(context.host(), id)?),
            TokensIn::Etcd(tokens) => tokens.known(context, id).await,
        }
    }

    /// Changes the review of the token that `id` names, atomically. `decide` makes the new review
    /// from the token as it is; `None` to leave it. `decide` may be called several times. Returns
    /// the token as it is then.
    pub async fn decide(
        &self,
        context: &Context,
        id: &TokenId,
        mut decide: impl FnMut(&Known) -> Option<Review>,
    ) -> Result<Option<Known>, NotDecided> {
        match &self.0 {
            TokensIn::SharedData { slots, .. } => Ok(slots.decide(context.host(), id, decide)?),
            TokensIn::Etcd(tokens) => tokens.decide(context, id, &mut decide).await,
        }
    }

    /// Reads a page of the tokens that wait for a decision, for all users or for one, from `place`
    /// on: at most `limit` that `wanted` accepts. What waits for others costs nothing to read for
    /// one.
    pub async fn waiting(
        &self,
        context: &Context,
        user_id: Option<&str>,
        place: Option<&str>,
        limit: usize,
        mut wanted: impl FnMut(&TokenId, &Known) -> bool,
    ) -> Result<WaitingPage, StoreFailure> {
        match &self.0 {
            TokensIn::SharedData { slots, .. } => {
                Ok(slots.waiting(context.host(), user_id, place, limit, wanted)?)
            }
            TokensIn::Etcd(tokens) => {
                tokens.waiting(context, user_id, place, limit, &mut wanted).await
            }
        }
    }

    /// Looks up a presented token by its digest.
    pub async fn find(
        &self,
        context: &Context,
        token: &SubjectToken,
        digest: &Digest,
    ) -> Result<Found, StoreFailure> {
        match &self.0 {
            TokensIn::SharedData { slots, .. } => Ok(slots.find(context.host(), token, digest)?),
            TokensIn::Etcd(tokens) => tokens.find(context, token, digest).await,
        }
    }

    /// Looks up a token again that was found outstanding.
    pub async fn find_again(
        &self,
        context: &Context,
        found: &Outstanding,
    ) -> Result<Found, StoreFailure> {
        match &self.0 {
            TokensIn::SharedData { slots, .. } => {
                Ok(slots.find_in(context.host(), found.slot(), &found.digest)?)
            }
            TokensIn::Etcd(tokens) => tokens.find_again(context, found).await,
        }
    }

    /// Takes back the token that `id` names, if `theirs` allows it by the token's digest and mint.
    /// The token cannot be exchanged after that.
    pub async fn cancel(
        &self,
        context: &Context,
        id: &TokenId,
        theirs: impl Fn(&Digest, &Mint) -> bool,
    ) -> Result<Cancelled, StoreFailure> {
        match &self.0 {
            TokensIn::SharedData { slots, .. } => Ok(slots.cancel(context.host(), id, theirs)?),
            TokensIn::Etcd(tokens) => tokens.cancel(context, id, &theirs).await,
        }
    }

    /// Spends a token, if no other request has spent it since it was found. Only one caller gets
    /// `Ok`. A remote store writes `beside` in the same transaction.
    pub async fn spend(
        &self,
        context: &Context,
        token: Outstanding,
        exchange: Exchange,
        beside: Option<Beside>,
    ) -> Result<(), NotSpent> {
        match &self.0 {
            TokensIn::SharedData { slots, .. } => slots.spend(context.host(), token, exchange),
            TokensIn::Etcd(tokens) => tokens.spend(context, token, exchange, beside).await,
        }
    }

    /// Counts the next tokens in shared data, and sets the gauges when the count is complete.
    pub fn set_gauges(&self, host: &dyn Host) {
        let TokensIn::SharedData { slots, census, lifetime } = &self.0 else { return };
        let Ok(Some(occupancy)) = census.tick(host, slots) else { return };
        occupancy.set_gauges(host, *lifetime);
        host.set(metrics::CAPACITY, u64::from(slots.capacity()));
    }

    /// Returns true if this VM is to call [`Self::count`] now.
    pub fn counts(&self, host: &dyn Host) -> bool {
        matches!(&self.0, TokensIn::Etcd(tokens) if tokens.counts(host))
    }

    /// Counts the next tokens of a remote store, and sets the gauges when the count is complete.
    pub async fn count(&self, context: &Context) {
        if let TokensIn::Etcd(tokens) = &self.0 {
            tokens.count(context).await;
        }
    }
}
