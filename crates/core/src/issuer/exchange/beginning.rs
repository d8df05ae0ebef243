//! The last steps of an exchange. After them the impersonation has begun.

use super::super::listing::{ListedContext, Listing, listed};
use super::super::refusal::Refusal;
use super::super::request_context::RequestContext;
use super::super::reviewed::as_json;
use super::super::service::Service;
use super::subject::{cancelled, expired, replayed, revoked, unknown};
use crate::bearer::SignIn;
use crate::config::Happening;
use crate::host::{Host, HostFailure, UnixTime};
use crate::notifications::Notice;
use crate::state::impersonations::LiveImpersonation;
use crate::state::remote::Revision;
use crate::state::revocations::{CaughtUp, Concerned, IssuedAt, View};
use crate::state::store::{Exchange, Found, NotSpent, Outstanding};

/// Makes the notice that an impersonation begins, with the whole context of its mint.
pub(super) fn began(
    service: &Service,
    host: &dyn Host,
    entry: &LiveImpersonation,
    given_context: &str,
) -> Result<Notice, HostFailure> {
    let context = ListedContext::Whole(serde_json::from_str(given_context).unwrap_or_default());
    let data = as_json(&Listing { context, ..Listing::of(entry) })?;
    Notice::new(host, &service.config.issuer, Happening::Began, &entry.id, &data, &data)
}

/// Spends the subject token: the last step, which only one request can take.
pub(super) async fn spend(
    request: RequestContext<'_>,
    subject: Outstanding,
    caught_up: CaughtUp,
    (entry, sign_in): (&LiveImpersonation, Option<&SignIn>),
    exchange: Exchange,
) -> Result<(), Refusal> {
    let RequestContext { service, context, .. } = request;
    // A caller who has left could not use the access token.
    context.still_wanted().await;
    look_for_endings(request, &subject, caught_up, (entry, sign_in)).await?;
    let oversight = &service.oversight;
    let beside = oversight.list.beside(entry)?;
    match service.store.spend(context, subject, exchange, beside).await {
        Ok(()) => {}
        Err(NotSpent::Already(winner)) => {
            let (mint, first) = *winner;
            let (id, client_id) = (&entry.id, &entry.client_id);
            return Err(replayed(request, id, client_id, mint, first).await);
        }
        Err(NotSpent::Cancelled) => return Err(cancelled()),
        // A request that comes a moment later is told the same.
        Err(NotSpent::Forgotten) => return Err(unknown()),
        Err(NotSpent::Expired) => return Err(expired()),
        Err(NotSpent::Store(failure)) => return Err(failure.into()),
        Err(NotSpent::Unknown(failure)) => return Err(Refusal::spend_unknown(failure)),
    }
    oversight.note(context.host(), entry);
    Ok(())
}

/// Refuses an impersonation that has ended before it begins, or whose actor has left.
pub(super) async fn look_for_endings(
    request: RequestContext<'_>,
    subject: &Outstanding,
    caught_up: CaughtUp,
    (entry, sign_in): (&LiveImpersonation, Option<&SignIn>),
) -> Result<(), Refusal> {
    let RequestContext { service, context, .. } = request;
    let known = service.oversight.revocations.view_after(context.host(), caught_up)?;
    if let Some(sign_in) = sign_in {
        look_at_events(&known, entry, sign_in)?;
    }
    let looked_at = look_at_revocations(&known, caught_up.revision(), subject, entry);
    let Err(refusal) = looked_at else { return Ok(()) };
    // Another request may have spent the token, and the impersonation may have been ended since.
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
