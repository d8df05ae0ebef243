//! The last steps of an exchange. After them the impersonation has begun.

use super::super::listing::{ListedContext, Listing, listed};
use super::super::refusal::Refusal;
use super::super::request_context::RequestContext;
use super::super::reviewed::as_json;
use super::access_token::{AccessToken, Granted};
use super::subject::{cancelled, expired, replayed, revoked, unknown};
use crate::bearer::SignIn;
use crate::config::Happening;
use crate::host::{HostFailure, UnixTime};
use crate::notifications::Notice;
use crate::state::impersonations::{LiveImpersonation, excerpt};
use crate::state::remote::Revision;
use crate::state::revocations::{CaughtUp, Concerned, IssuedAt, View};
use crate::state::store::{Exchange, Found, NotSpent, Outstanding};

/// An impersonation that is about to begin.
pub(super) struct Beginning<'g> {
    /// The subject token that is about to be spent.
    subject: Outstanding,
    /// The sign-in of the actor; `None` if there is no actor.
    sign_in: Option<&'g SignIn>,
    /// The impersonation, as the list will have it.
    entry: LiveImpersonation,
}

impl<'g> Beginning<'g> {
    pub(super) fn new(
        request: RequestContext<'_>,
        subject: Outstanding,
        granted: &'g Granted<'_>,
        access_token: &AccessToken,
    ) -> Self {
        let actor = granted.actor.as_ref();
        let sign_in = actor.map(|actor| &actor.sign_in);
        let in_list = &request.service.config.impersonations.context;
        let entry = LiveImpersonation {
            id: subject.id().to_string(),
            user_id: subject.grant.user_id.clone(),
            actor_id: actor.map(|actor| actor.id.clone()),
            client_id: granted.client.client_id.clone(),
            caller: subject.mint.caller.clone(),
            resource: granted.indicator.to_owned(),
            session: sign_in.and_then(|sign_in| sign_in.session.clone()),
            scope: granted.scope.clone(),
            jti: access_token.jti.clone(),
            context: excerpt(in_list, &subject.grant.context),
            issued_at_millis: access_token.issued_at.millis(),
            expires_at_millis: access_token.expires_at.millis(),
        };
        Self { subject, sign_in, entry }
    }

    /// Begins the impersonation: tells the required hooks, and spends the subject token.
    pub(super) async fn begin(
        self,
        request: RequestContext<'_>,
        caught_up: CaughtUp,
    ) -> Result<(), Refusal> {
        let RequestContext { service, context, .. } = request;
        let notifier = &service.notifier;
        if !notifier.wants(Happening::Began) {
            return self.spend(request, caught_up).await;
        }
        // No hook is told of an impersonation that cannot begin.
        self.look_for_endings(request, caught_up).await?;
        let announced = notifier.announce(context, self.notice(request)?).await?;
        let caught_up = match announced.took_time() {
            true => service.oversight.revocations.catch_up(context, None).await?,
            false => caught_up,
        };
        let spent = self.spend(request, caught_up).await;
        match &spent {
            Ok(()) => notifier.note(request.host(), announced.has_happened()),
            // Nobody knows if the impersonation has begun, so the hooks are told nothing more.
            Err(refusal) if refusal.is_of_unknown_spend() => drop(announced.has_happened()),
            Err(_) => drop(announced),
        }
        spent
    }

    /// Makes the notice that the impersonation begins, with the whole context of its mint.
    fn notice(&self, request: RequestContext<'_>) -> Result<Notice, HostFailure> {
        let Self { subject, entry, .. } = self;
        let context = serde_json::from_str(&subject.grant.context).unwrap_or_default();
        let context = ListedContext::Whole(context);
        let data = as_json(&Listing { context, ..Listing::of(entry) })?;
        let issuer = &request.service.config.issuer;
        Notice::new(request.host(), issuer, Happening::Began, &entry.id, &data, &data)
    }

    /// Spends the subject token: the last step, which only one request can take.
    async fn spend(self, request: RequestContext<'_>, caught_up: CaughtUp) -> Result<(), Refusal> {
        let RequestContext { service, context, trail, .. } = request;
        // A caller who has left could not use the access token.
        context.still_wanted().await;
        self.look_for_endings(request, caught_up).await?;
        let Self { subject, entry, .. } = self;
        let exchange = Exchange {
            client_id: entry.client_id.clone(),
            actor_id: entry.actor_id.clone(),
            request_id: trail.request_id(),
            jti: entry.jti.clone(),
            at_millis: entry.issued_at_millis,
        };
        let beside = service.oversight.list.beside(&entry)?;
        let Err(not_spent) = service.store.spend(context, subject, exchange, beside).await else {
            service.oversight.note(request.host(), &entry);
            return Ok(());
        };
        Err(match not_spent {
            NotSpent::Already(winner) => {
                let (mint, first) = *winner;
                replayed(request, &entry.id, &entry.client_id, mint, first).await
            }
            NotSpent::Cancelled => cancelled(),
            // A request that comes a moment later is told the same.
            NotSpent::Forgotten => unknown(),
            NotSpent::Expired => expired(),
            NotSpent::Store(failure) => failure.into(),
            NotSpent::Unknown(failure) => Refusal::spend_unknown(failure),
        })
    }

    /// Refuses an impersonation that has ended before it begins, or whose actor has left.
    async fn look_for_endings(
        &self,
        request: RequestContext<'_>,
        caught_up: CaughtUp,
    ) -> Result<(), Refusal> {
        let RequestContext { service, context, .. } = request;
        let Self { subject, sign_in, entry } = self;
        let known = service.oversight.revocations.view_after(request.host(), caught_up)?;
        if let Some(sign_in) = sign_in {
            look_at_events(&known, entry, sign_in)?;
        }
        let looked_at = look_at_revocations(&known, caught_up.revision(), subject, entry);
        let Err(refusal) = looked_at else { return Ok(()) };
        // Another request may have spent the token, and the impersonation may have ended since.
        Err(match service.store.find_again(context, subject).await? {
            Found::Spent(mint, first) => {
                replayed(request, &entry.id, &entry.client_id, mint, first).await
            }
            Found::Cancelled(_) => cancelled(),
            Found::Outstanding(_)
            | Found::Waiting(..)
            | Found::Denied(..)
            | Found::Expired(..)
            | Found::Unknown => refusal,
        })
    }
}

/// Refuses an actor token that was issued until an event about its actor or its session: a logout,
/// for example. The actor signs in again, and presents a new one. A token without `iat` counts as
/// issued when its issuer vouched for it, or else as issued long ago.
fn look_at_events(
    known: &View,
    entry: &LiveImpersonation,
    sign_in: &SignIn,
) -> Result<(), Refusal> {
    let actor = Concerned {
        actor_id: entry.actor_id.as_deref(),
        session: entry.session.as_deref(),
        user_id: None,
    };
    let is_too_old = match (sign_in.known_since(), sign_in.vouched_at) {
        (Some(since), _) => known.has_event_since(actor, since),
        (None, vouched_at) => {
            known.event_has_ended(actor, IssuedAt::At(vouched_at.unwrap_or_default()))
        }
    };
    if is_too_old {
        let told = "the actor has signed out, or must sign in again: present a new actor token";
        return Err(Refusal::invalid_request("actor_has_left", told)
            .because("the actor token is no younger than an event about its actor"));
    }
    Ok(())
}

/// Refuses a subject token that was outstanding when a revocation ended its impersonation. Refuses
/// an access token that would have ended before its client has it.
fn look_at_revocations(
    known: &View,
    revision: Revision,
    subject: &Outstanding,
    entry: &LiveImpersonation,
) -> Result<(), Refusal> {
    let (impersonation, issued) = listed(entry);
    let unavailable = |wrong| Refusal::temporarily_unavailable("revoked_meanwhile", wrong);
    // After the clock was set back, a revocation can have a time in the future, and its effect
    // cannot be known. Revisions never lie in the future.
    let last = if revision.is_some() { Revision::LAST } else { revision };
    let latest = IssuedAt::new(entry.issued_at().at_the_latest(), last);
    if known.has_ended(&impersonation, latest) {
        return Err(unavailable("a revocation names the impersonation, of a time that is not yet"));
    }
    let minted_at = UnixTime::from_millis(subject.mint.at_millis);
    let minted = IssuedAt::new(minted_at, subject.created());
    // A token that is bound to no actor is good for the next sign-in of any actor.
    let concerned = Concerned {
        actor_id: subject.mint.bounds.actor_id.as_deref(),
        session: None,
        user_id: Some(&entry.user_id),
    };
    if known.has_revoked(&impersonation, minted) || known.event_has_ended(concerned, minted) {
        return Err(revoked());
    }
    if known.has_ended(&impersonation, issued) {
        return Err(unavailable("a revocation names the impersonation, of this same moment"));
    }
    Ok(())
}
