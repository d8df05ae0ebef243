//! What every endpoint stands on by which impersonations are seen and ended: the list, the revocations, and who may
//! look at the one and make the others.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use super::refusal::Refusal;
use super::request::{Head, bearer_token};
use crate::audit::Trail;
use crate::bearer::Verifier;
use crate::config::{Config, LONGEST_ACCESS_TOKEN_LIFETIME, OnReplay};
use crate::etcd::Server;
use crate::host::{Host, HostFailure, UnixTime};
use crate::impersonations::{Entry, List, Listed};
use crate::metrics;
use crate::revocations;
use crate::revocations::{Impersonation, Mark, Overflow, Owner, Revocation, Revocations, Revoked};
use crate::step::Context;
use crate::store::Exchange;
use crate::upstream::RemoteKeySet;

/// Who lists impersonations has a token with this scope.
pub(super) const READ: &str = "impersonations:read";

/// Who ends them has one with this.
pub(super) const REVOKE: &str = "impersonations:revoke";

/// How often revocations are counted. In etcd that is a read.
const COUNTED_EVERY: Duration = Duration::from_secs(5);

/// For how long after its end an API may let an access token pass, as its clock is behind.
const LEEWAY: Duration = Duration::from_secs(600);

/// When an impersonation ended that somebody wants to be over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// By this.
    Now,
    /// It had ended before, or expired.
    Before,
}

/// What is live and what has ended.
pub(crate) struct Oversight {
    pub(super) revocations: Revocations,
    pub(super) list: List,
    /// Verifies who lists and ends.
    operators: Verifier,
    on_replay: OnReplay,
    counted_at: Cell<UnixTime>,
}

impl Oversight {
    pub(super) fn new(config: &Config, etcd: Option<&Rc<Server>>, operators: Verifier) -> Self {
        let tenant = config.tenant();
        let longest = config.longest_access_token_lifetime();
        let (revocations, list) = match etcd {
            None => (
                Revocations::shared_data(&tenant),
                List::shared_data(&tenant, config.impersonations.capacity(), longest),
            ),
            Some(server) => (
                // Here it is never gone by what was known before.
                Revocations::etcd(server, &tenant, Duration::ZERO),
                List::etcd(server, &tenant, longest),
            ),
        };
        Self {
            revocations,
            list,
            operators,
            on_replay: config.subject_tokens.on_replay,
            counted_at: Cell::default(),
        }
    }

    pub(super) fn begin(&self, host: &dyn Host) -> Result<(), HostFailure> {
        self.revocations.begin(host)?;
        self.list.begin(host)
    }

    /// Whether it is time to [count](Self::count) again.
    pub(super) fn counts(&self, now: UnixTime) -> bool {
        let due = !self.counted_at.get().is_within(COUNTED_EVERY, now);
        if due {
            self.counted_at.set(now);
        }
        due
    }

    /// Finds out what was revoked, and says how much.
    pub(super) async fn count(&self, context: &Context) {
        if let Some(count) = self.revocations.count(context).await {
            let count = u64::try_from(count).unwrap_or(u64::MAX);
            context.host().set(metrics::REVOCATIONS, count);
        }
    }

    pub(super) fn remote_key_sets(&self) -> impl Iterator<Item = &Rc<RemoteKeySet>> {
        self.operators.remote_key_sets()
    }

    /// Verifies that whoever asks may: by an access token with this scope.
    pub(super) async fn authorize(
        &self,
        context: &Context,
        trail: &Trail,
        head: &Head,
        scope: &str,
    ) -> Result<(), Refusal> {
        let token = bearer_token(head).ok_or_else(Refusal::no_bearer)?;
        if self.operators.is_empty() {
            let told = "nobody is configured to list or end impersonations";
            return Err(Refusal::access_denied("nobody_may", told));
        }
        let verified = self.operators.verify(context, token).await;
        let verified = verified.map_err(|error| Refusal::bearer(&error))?;
        let name = verified.subject.clone().or_else(|| verified.client_id.clone());
        trail.note(|facts| facts.requested_by = name);
        verified.require(scope).map_err(|error| Refusal::bearer(&error))
    }

    /// Ends what `revocation` names, as an operator wants it.
    pub(super) async fn revoke(
        &self,
        context: &Context,
        revocation: &Revocation,
    ) -> Result<UnixTime, Refusal> {
        let revoked = self.revocations.revoke(context, revocation).await?;
        Ok(self.tell_of(context.host(), revoked))
    }

    /// Ends what a subject token was exchanged for, which is `owner`'s. `exchange` is what the store says of it. Whatever
    /// has ended already, or expired, is not ended again: nobody makes us write by doing so again and again.
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

    /// The same of an impersonation that is listed.
    pub(super) async fn end_listed(
        &self,
        context: &Context,
        entry: &Entry,
        owner: &Owner,
    ) -> Result<(), Refusal> {
        let (impersonation, issued) = listed(entry);
        let known = self.revocations.known_here(context.host());
        if known.is_ok_and(|known| known.has_ended(&impersonation, issued)) {
            return Ok(());
        }
        self.end_anyway(context, &entry.id, owner).await
    }

    /// Ends the impersonation with this id, which is `owner`'s, whatever is known of it.
    pub(super) async fn end_anyway(
        &self,
        context: &Context,
        id: &str,
        owner: &Owner,
    ) -> Result<(), Refusal> {
        let revoked = self.revocations.end(context, id, owner).await?;
        self.tell_of(context.host(), revoked);
        Ok(())
    }

    /// Whether it is known here that this one was ended, by itself or with all that is its owner's.
    fn has_ended(
        &self,
        host: &dyn Host,
        id: &str,
        issued: revocations::Issued,
        owner: &Owner,
    ) -> bool {
        self.revocations.known_here(host).is_ok_and(|known| {
            known.has(&Revocation::of_id(id), issued) || known.has(&owner.everything(), issued)
        })
    }

    /// Tells the operator if more had to be ended than was named. Until when all has ended that was.
    fn tell_of(&self, host: &dyn Host, Revoked { before, overflow }: Revoked) -> UnixTime {
        match overflow {
            None => {}
            Some(Overflow::Share) => {
                host.count(metrics::REVOCATION_SHARES_EXCEEDED.into());
                host.warn(
                    "a caller or a client has used up its share of the table of revocations: its oldest have become one \
                     for all that is its own",
                );
            }
            Some(Overflow::Table) => {
                host.count(metrics::REVOCATIONS_OVERFLOWED.into());
                host.warn(
                    "the table of revocations is full: the oldest have become one for everyone",
                );
            }
        }
        before
    }

    /// Ends what a spent subject token was exchanged for, as it was presented once more, if the operator wants that.
    /// `first` is what it was exchanged for. It is of the share of the client that presents it.
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

    /// Writes down what has begun. An exchange never fails by it.
    pub(super) async fn note(&self, context: &Context, entry: &Entry) {
        let host = context.host();
        let listed = self.list.insert(context, entry).await;
        if listed == Ok(Listed::Yes) {
            return;
        }
        host.count(metrics::UNLISTED.into());
        host.warn("an impersonation could not be listed: see impersonations.capacity");
        if listed.is_err() {
            // Once more, as this is the last that anybody hears of it.
            let _ = self.list.lacks(host, entry.expires_at());
        }
    }
}

/// What a revocation can name of an impersonation that is listed, and when it was issued, as exactly as its access
/// token says.
pub(super) fn listed(entry: &Entry) -> (Impersonation<'_>, revocations::Issued) {
    let Mark { caller, issued } = Mark::read(&entry.jti, entry.issued_at().secs());
    let impersonation = Impersonation {
        id: &entry.id,
        user_id: &entry.user_id,
        actor_id: entry.actor_id.as_deref(),
        client_id: &entry.client_id,
        caller,
        resource: &entry.resource,
    };
    (impersonation, issued)
}
