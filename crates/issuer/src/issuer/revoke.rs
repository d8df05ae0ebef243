//! `DELETE /api/impersonations/{id}` and `POST /api/impersonations/revocations`: an operator ends
//! one impersonation, or all that have the named members.
//!
//! Every access token that was issued before the answer has ended with the answer. New
//! impersonations may begin. An operator who wants to prevent that must also take away the right to
//! mint.

use serde::Serialize;
use serde_json::Value;

use super::answer::{empty, secret_json};
use super::listing::listed;
use super::oversight::Oversight;
use super::presented::{REVOKE, authorize_operator};
use super::refusal::Refusal;
use super::request::{Body, Head};
use super::request_context::RequestContext;
use crate::state::impersonations::Wanted;
use crate::state::revocations::{Revocation, View};
use crate::state::store::{Cancelled, TokenId};
use crate::step::{Context, Response};

/// Ends one impersonation.
pub(super) async fn revoke_one(request: RequestContext<'_>) -> Result<Response, Refusal> {
    let RequestContext { service, context, trail, head } = request;
    let oversight = &service.oversight;
    authorize_operator(request, REVOKE).await?;
    let not_found = || {
        let told = "there is no live impersonation with this id";
        Refusal::not_found("impersonation_unknown", told)
    };
    let token_id = head.last_segment().and_then(TokenId::parse).ok_or_else(not_found)?;
    let id = token_id.to_string();
    trail.note(|facts| facts.subject_token_id = Some(id.clone()));
    if let Some(entry) = oversight.list.find(context, &id).await? {
        let known = oversight.revocations.current_view(context).await?;
        let (impersonation, issued) = listed(&entry);
        if known.has_ended(&impersonation, issued) {
            return Err(not_found());
        }
        trail.note(|facts| {
            facts.user_id = Some(entry.user_id);
            facts.actor_id = entry.actor_id;
            facts.client_id = Some(entry.client_id);
            facts.caller = Some(entry.caller);
            facts.resource = Some(entry.resource);
            facts.scope = Some(entry.scope);
            facts.jti = Some(entry.jti);
        });
    } else {
        // The list may have had no room for the impersonation. Or the impersonation has not begun,
        // and a cancelled subject token makes sure that it never does.
        match service.store.cancel(context, &token_id, |_, _| true).await? {
            Cancelled::Yes(_) => return Ok(empty(204)),
            Cancelled::Spent(..) => {}
            Cancelled::NotTheirs if oversight.list.is_complete(context.host())? => {
                return Err(not_found());
            }
            Cancelled::NotTheirs => {}
        }
    }
    oversight.revoke(context, &Revocation::of_id(&id)).await?;
    Ok(empty(204))
}

/// The members of the body. An unknown member is refused: without it, more would end than the
/// operator meant.
const MEMBERS: [&str; 6] = ["userId", "actorId", "clientId", "caller", "resource", "all"];

/// The longest name in a revocation, in characters. Every Envoy that starts reads all names.
const LONGEST_NAME: usize = 255;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RevocationResponse {
    revoked_before: String,
    /// The number of listed, live impersonations that this revocation has ended.
    ended: u64,
    /// Present only as `false`: more impersonations may have ended than were counted.
    #[serde(skip_serializing_if = "Clone::clone")]
    complete: bool,
}

/// Ends all impersonations that have the named members.
pub(super) async fn revoke_many(
    request: RequestContext<'_>,
    body: Body,
) -> Result<Response, Refusal> {
    let RequestContext { service, context, trail, head } = request;
    let oversight = &service.oversight;
    authorize_operator(request, REVOKE).await?;
    let revocation = read(head, &body)?;
    trail.note(|facts| {
        facts.user_id.clone_from(&revocation.user_id);
        facts.actor_id.clone_from(&revocation.actor_id);
        facts.client_id.clone_from(&revocation.client_id);
        facts.caller.clone_from(&revocation.caller);
        facts.resource.clone_from(&revocation.resource);
        facts.all = revocation == Revocation::default();
    });
    let known_before = oversight.revocations.current_view(context).await.ok();
    let before = oversight.revoke(context, &revocation).await?;
    // The revocation stands from here on, however the request ends.
    trail.is_done();
    let counted = count_ended(oversight, context, &revocation, known_before.as_deref()).await;
    trail.note(|facts| facts.ended = Some(counted.ended));
    let answer = RevocationResponse {
        revoked_before: before.rfc3339().to_string(),
        ended: counted.ended,
        complete: counted.complete,
    };
    Ok(secret_json(201, &answer))
}

/// The number of impersonations that a revocation has ended.
struct Counted {
    ended: u64,
    /// The revocation has ended no more than these.
    complete: bool,
}

/// Counts the live impersonations that a revocation has ended. An impersonation counts if it has
/// ended now, and had not ended by `known_before`.
///
/// The revocation stands already, and the operator must learn that. So the count is only incomplete
/// if the list cannot be read in time.
async fn count_ended(
    oversight: &Oversight,
    context: &Context,
    revocation: &Revocation,
    known_before: Option<&View>,
) -> Counted {
    let mut counted = Counted { ended: 0, complete: false };
    let known_now = oversight.revocations.local_view(context.host());
    let (Some(known_before), Ok(known_now)) = (known_before, known_now) else { return counted };
    let wanted = Wanted {
        user_id: revocation.user_id.as_deref(),
        actor_id: revocation.actor_id.as_deref(),
        client_id: revocation.client_id.as_deref(),
        caller: revocation.caller.as_deref(),
        resource: revocation.resource.as_deref(),
    };
    let ended = &mut counted.ended;
    let looked = oversight.list.look_through(context, |entry| {
        let (impersonation, issued) = listed(entry);
        if wanted.has_found(entry)
            && known_now.has_ended(&impersonation, issued)
            && !known_before.has_ended(&impersonation, issued)
        {
            *ended = ended.saturating_add(1);
        }
    });
    counted.complete = looked.await.unwrap_or(false);
    counted
}

fn read(head: &Head, body: &Body) -> Result<Revocation, Refusal> {
    let mut members = body.members(
        head,
        |name| MEMBERS.contains(&name),
        "the body must be a JSON object of userId, actorId, clientId, caller and resource, or of all \
         alone, each given once",
    )?;
    let mut text = |name: &'static str| match members.remove(name) {
        None => Ok(None),
        // No name has control characters, and they would reach an access log.
        Some(Value::String(text))
            if (1..=LONGEST_NAME).contains(&text.chars().count())
                && !text.contains(char::is_control) =>
        {
            Ok(Some(text))
        }
        Some(_) => Err(Refusal::invalid_request("revocation_member", "").telling(format!(
            "{name} must be a string of 1 to {LONGEST_NAME} characters without control characters"
        ))),
    };
    let revocation = Revocation {
        id: None,
        user_id: text("userId")?,
        actor_id: text("actorId")?,
        client_id: text("clientId")?,
        caller: text("caller")?,
        resource: text("resource")?,
        session: None,
    };
    let named = revocation != Revocation::default();
    match members.get("all") {
        None if named => Ok(revocation),
        None => Err(Refusal::invalid_request(
            "revocation_empty",
            "the body must say what is to end: to end everything all must be true",
        )),
        Some(Value::Bool(true)) if !named => Ok(revocation),
        Some(_) => Err(Refusal::invalid_request(
            "revocation_all",
            "all must be true, and nothing else may be given beside it",
        )),
    }
}
