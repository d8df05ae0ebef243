//! Seeing and ending impersonations: the list of live ones, and the revocations. Every endpoint
//! that lists or ends uses this.

use std::cell::Cell;
use std::time::Duration;

use super::endings::{Ending, Endings};
use super::listing::listed;
use super::refusal::Refusal;
use crate::config::{LONGEST_ACCESS_TOKEN_LIFETIME, OnReplay};
use crate::host::{Host, HostFailure, UnixTime};
use crate::metrics;
use crate::state::impersonations::{Listed, LiveImpersonation};
use crate::state::revocations::{
    Happened, IssuedAt, Mark, Overflow, Owner, Revocation, Revoked, Told,
};
use crate::state::storage::{List, Revocations};
use crate::state::store::Exchange;
use crate::step::Context;

/// How often the revocations are counted. Under etcd each count is a read.
const COUNTED_EVERY: Duration = Duration::from_secs(5);

/// How long an API may accept an access token after its expiry, because the API's clock is behind.
const LEEWAY: Duration = Duration::from_secs(600);

/// When an impersonation ended that a request wants to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// This request ended the impersonation.
    Now,
    /// The impersonation had ended or expired before the request.
    Before,
}

/// The live impersonations and the revocations.
pub(crate) struct Oversight {
    pub(super) revocations: Revocations,
    pub(super) list: List,
    on_replay: OnReplay,
    counted_at: Cell<UnixTime>,
    /// Tells the hooks which impersonations have ended.
    endings: Endings,
}

impl Oversight {
    pub(super) fn new(
        revocations: Revocations,
        list: List,
        on_replay: OnReplay,
        endings: Endings,
    ) -> Self {
        Self { revocations, list, on_replay, counted_at: Cell::default(), endings }
    }

    /// Takes the endings that the hooks have not been told.
    pub(super) fn untold_endings(&self) -> Vec<Ending> {
        self.endings.take()
    }

    /// Tells the hooks which impersonations have ended.
    pub(super) async fn tell_of_endings(&self, context: &Context, endings: Vec<Ending>) {
        self.endings.tell(context, &self.revocations, &self.list, endings).await;
    }

    /// Creates the tables in shared data if they are missing.
    pub(super) fn create_tables(&self, host: &dyn Host) -> Result<(), HostFailure> {
        self.revocations.create_if_missing(host)?;
        self.list.create_if_missing(host)
    }

    /// Returns true if it is time to [count](Self::count) again.
    pub(super) fn counts(&self, now: UnixTime) -> bool {
        let due = !self.counted_at.get().is_within(COUNTED_EVERY, now);
        if due {
            self.counted_at.set(now);
        }
        due
    }

    /// Reads the revocations and sets their gauge.
    pub(super) async fn count(&self, context: &Context) {
        if let Some(count) = self.revocations.count(context).await {
            let count = u64::try_from(count).unwrap_or(u64::MAX);
            context.host().set(metrics::REVOCATIONS, count);
        }
    }

    /// Makes an operator's revocation. Returns the time up to which it ends what was issued.
    pub(super) async fn revoke(
        &self,
        context: &Context,
        revocation: &Revocation,
    ) -> Result<UnixTime, Refusal> {
        self.endings.expect(context.host(), &self.revocations, revocation.id.as_deref());
        let revoked = self.revocations.revoke(context, revocation).await?;
        Ok(self.tell_of(context.host(), revoked))
    }

    /// Ends what an event names.
    pub(super) async fn keep_event(
        &self,
        context: &Context,
        revocation: &Revocation,
        happened: &Happened,
    ) -> Result<Told, Refusal> {
        self.endings.expect(context.host(), &self.revocations, None);
        let told = self.revocations.keep_event(context, revocation, happened).await?;
        if let Told::News(overflow) = told {
            self.warn_of(context.host(), overflow);
        }
        Ok(told)
    }

    /// Ends the impersonation that a subject token was exchanged for, at its `owner`'s request.
    /// `exchange` is the store's record of it. An impersonation that has ended or expired is not
    /// ended again, so that repeated requests cannot make the filter write.
    pub(super) async fn end(
        &self,
        context: &Context,
        id: &str,
        exchange: &Exchange,
        owner: &Owner,
    ) -> Result<Ended, Refusal> {
        let host = context.host();
        let longest = LONGEST_ACCESS_TOKEN_LIFETIME.saturating_add(LEEWAY);
        let exchanged_at = UnixTime::from_millis(exchange.at_millis);
        let issued = Mark::read(&exchange.jti, exchanged_at.secs()).issued;
        if host.now() >= exchanged_at.after(longest) || self.has_ended(host, id, issued, owner) {
            return Ok(Ended::Before);
        }
        self.end_anyway(context, id, owner).await?;
        Ok(Ended::Now)
    }

    /// Ends an impersonation that is listed, at its `owner`'s request, unless it has ended already.
    pub(super) async fn end_listed(
        &self,
        context: &Context,
        entry: &LiveImpersonation,
        owner: &Owner,
    ) -> Result<(), Refusal> {
        let (impersonation, issued) = listed(entry);
        let known = self.revocations.local_view(context.host());
        if known.is_ok_and(|known| known.has_ended(&impersonation, issued)) {
            return Ok(());
        }
        self.end_anyway(context, &entry.id, owner).await
    }

    /// Ends the impersonation with this id at its `owner`'s request, even if it may have ended
    /// already.
    pub(super) async fn end_anyway(
        &self,
        context: &Context,
        id: &str,
        owner: &Owner,
    ) -> Result<(), Refusal> {
        self.endings.expect(context.host(), &self.revocations, Some(id));
        let revoked = self.revocations.end(context, id, owner).await?;
        self.tell_of(context.host(), revoked);
        Ok(())
    }

    /// Returns true if this worker knows that the impersonation was ended, by its id or with
    /// everything of its owner.
    fn has_ended(&self, host: &dyn Host, id: &str, issued: IssuedAt, owner: &Owner) -> bool {
        self.revocations.local_view(host).is_ok_and(|known| {
            known.has(&Revocation::of_id(id), issued) || known.has(&owner.everything(), issued)
        })
    }

    /// Warns the operator if a full table made a revocation end more than it names. Returns the
    /// time up to which the revocation ends what was issued.
    fn tell_of(&self, host: &dyn Host, Revoked { before, overflow }: Revoked) -> UnixTime {
        self.warn_of(host, overflow);
        before
    }

    fn warn_of(&self, host: &dyn Host, overflow: Option<Overflow>) {
        match overflow {
            None => {}
            Some(Overflow::Events) => {
                host.count(metrics::EVENTS_OVERFLOWED.into());
                host.warn(
                    "a sender has told of more events than can be told apart: the older half was \
                     merged into one that covers all impersonations of its people",
                );
            }
            Some(Overflow::Share) => {
                host.count(metrics::REVOCATION_SHARES_EXCEEDED.into());
                host.warn(
                    "a caller or a client has used up its share of the table of revocations: its oldest \
                     revocations were merged into one that covers all of its impersonations",
                );
            }
            Some(Overflow::Table) => {
                host.count(metrics::REVOCATIONS_OVERFLOWED.into());
                host.warn(
                    "the table of revocations is full: the oldest were merged into one that covers \
                     all impersonations",
                );
            }
        }
    }

    /// Ends the impersonation of a spent subject token that was presented again, if the operator
    /// configured that. `first` is the exchange that spent the token. The revocation counts against
    /// the share of the client that presented the token again.
    pub(super) async fn revoke_replayed(
        &self,
        context: &Context,
        id: &str,
        client_id: &str,
        first: &Exchange,
        refusal: &mut Refusal,
    ) {
        if self.on_replay == OnReplay::Report {
            return;
        }
        let owner = Owner::Client(client_id.to_owned());
        match self.end(context, id, first, &owner).await {
            Ok(ended) => {
                if ended == Ended::Now {
                    context.host().count(metrics::REVOKED_ON_REPLAY.into());
                }
                refusal.take_note_of_the_end();
            }
            Err(failure) => {
                context.host().warn(&format!("not revoked after a replay: {failure}"));
            }
        }
    }

    /// Adds an impersonation that has begun to the list. A failure does not fail the exchange.
    pub(super) fn note(&self, host: &dyn Host, entry: &LiveImpersonation) {
        if self.list.insert(host, entry) != Ok(Listed::Yes) {
            host.count(metrics::UNLISTED.into());
            host.warn("an impersonation could not be listed: see impersonations.capacity");
        }
    }
}
