//! The subject token of an exchange, as its client presents it.
//!
//! A client learns nothing of the state of a token that is bound to other clients. A spent token
//! raises an alarm: it may have been stolen.

use super::super::refusal::Refusal;
use super::super::request_context::RequestContext;
use super::super::reviewed::was_ended_for;
use super::Parameters;
use crate::audit::Trail;
use crate::config::Client;
use crate::metrics;
use crate::state::store::{Exchange, Found, Mint, Outstanding, SubjectToken};

pub(super) async fn find_subject(
    request: RequestContext<'_>,
    client: &Client,
    &Parameters { subject_token, resource, .. }: &Parameters<'_>,
) -> Result<Outstanding, Refusal> {
    let RequestContext { service, context, trail, .. } = request;
    let token = SubjectToken::parse(subject_token).ok_or_else(unknown)?;
    let digest = token.digest();
    let id = token.id(&digest).to_string();
    trail.note(|facts| facts.subject_token_id = Some(id.clone()));
    let minted_for = |mint: &Mint, user_id: Option<&str>| {
        trail.note(|facts| {
            facts.caller = Some(mint.caller.clone());
            facts.user_id = user_id.map(str::to_owned);
            facts.bounds = Some(mint.bounds.clone()).filter(|bounds| !bounds.is_empty());
        });
    };
    // A client learns nothing of the state of a token that is bound to other clients.
    let is_theirs = |mint: &Mint| mint.bounds.allows_client(&client.client_id);
    let of = (&*client.client_id, resource);
    let mut found = service.store.find(context, &token, &digest).await?;
    let mut has_ended = false;
    if let Found::Waiting(known) = &found
        && is_theirs(known.mint())
    {
        let revocations = service.oversight.revocations.current_view(context).await?;
        let now = context.host().now();
        has_ended = was_ended_for(&revocations, &token.id(&digest), known, now, of);
        if has_ended {
            // The revocations are newer than the record. An exchange and its replay may lie in
            // between, and the record says so.
            found = service.store.find(context, &token, &digest).await?;
        }
    }
    match found {
        Found::Outstanding(subject) => {
            minted_for(&subject.mint, Some(&subject.grant.user_id));
            trail.note(|facts| {
                facts.context = service.audited(&subject.grant.context);
                facts.approved_by = subject.review.as_ref().map(|review| review.approvers());
            });
            if is_theirs(&subject.mint) { Ok(subject) } else { Err(bound_to_another_client()) }
        }
        Found::Waiting(known) => {
            minted_for(known.mint(), known.user_id());
            Err(match (is_theirs(known.mint()), has_ended) {
                (false, _) => bound_to_another_client(),
                (true, true) => revoked(),
                (true, false) => pending(),
            })
        }
        Found::Denied(mint, grant) => {
            minted_for(&mint, Some(&grant.user_id));
            Err(if is_theirs(&mint) { denied() } else { bound_to_another_client() })
        }
        Found::Spent(mint, exchange) => {
            minted_for(&mint, None);
            let theirs = is_theirs(&mint);
            let client_id = &client.client_id;
            let refusal = replayed(request, &id, client_id, mint, exchange).await;
            Err(if theirs { refusal } else { refusal.telling(INVALID_SUBJECT_TOKEN.to_owned()) })
        }
        Found::Cancelled(mint) => {
            minted_for(&mint, None);
            Err(cancelled())
        }
        Found::Expired(mint, grant) => {
            minted_for(&mint, Some(&grant.user_id));
            Err(if is_theirs(&mint) { expired() } else { bound_to_another_client() })
        }
        Found::Unknown => Err(unknown()),
    }
}

/// The description for a client whose subject token is unknown.
const INVALID_SUBJECT_TOKEN: &str = "the subject token is invalid";

pub(super) fn unknown() -> Refusal {
    Refusal::invalid_request("subject_token_unknown", INVALID_SUBJECT_TOKEN)
        .because("the subject token is unknown")
}

/// Refuses a token that is bound to other clients. The client learns as much as of an unknown
/// token.
fn bound_to_another_client() -> Refusal {
    Refusal::invalid_request("bound_client", INVALID_SUBJECT_TOKEN)
        .because("the subject token is bound to other clients")
}

pub(super) fn expired() -> Refusal {
    Refusal::invalid_request("subject_token_expired", "the subject token has expired")
}

/// Refuses a token that nobody, or not everybody, has decided about (RFC 8628 §3.5 has the code).
/// The token stays unspent.
fn pending() -> Refusal {
    let told = "the subject token waits for a decision: present it again later";
    Refusal::new(400, "authorization_pending", "undecided", told)
}

/// Refuses a token that somebody has denied (RFC 8628 §3.5 has the code).
fn denied() -> Refusal {
    Refusal::new(400, "access_denied", "denied", "this impersonation was denied")
}

/// Refuses a token whose impersonation was ended before it began. The client learns as much as of
/// an unknown token.
pub(super) fn revoked() -> Refusal {
    Refusal::invalid_request("revoked", INVALID_SUBJECT_TOKEN)
        .because("a revocation names the impersonation")
}

/// Refuses a token that was taken back. The client learns as much as of an unknown token.
pub(super) fn cancelled() -> Refusal {
    revoked().because("the subject token was taken back")
}

/// Refuses a spent token that is presented again, and ends its impersonation if the operator wants
/// that.
pub(super) async fn replayed(
    request: RequestContext<'_>,
    id: &str,
    client_id: &str,
    mint: Mint,
    first: Exchange,
) -> Refusal {
    let RequestContext { service, context, trail, .. } = request;
    let mut refusal = spent(trail, mint, first.clone());
    service.oversight.revoke_replayed(context, id, client_id, &first, &mut refusal).await;
    refusal
}

/// Refuses a spent token, and raises an alarm: the token may have been stolen.
fn spent(trail: &Trail, mint: Mint, first: Exchange) -> Refusal {
    let by = format!("minted by {:?}, exchanged by {:?}", mint.caller, first.client_id);
    Refusal::invalid_request("subject_token_spent", "the subject token was already used")
        .because(format_args!("the subject token was used already: {by}"))
        .counted(metrics::REPLAYED)
        .alarming(trail.replay(mint, first))
}
