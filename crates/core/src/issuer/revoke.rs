//! `DELETE /api/impersonations/{id}` and `POST /api/impersonations/revocations`: somebody who is entitled to ends
//! impersonations, one or all that have something.
//!
//! What was issued until now has ended once this is answered. New ones may begin: who wants to prevent that has to
//! take the right to mint, too.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::answer::{nothing, secret_json};
use super::oversight::{REVOKE, listed};
use super::refusal::Refusal;
use super::request::{Body, Head};
use super::service::Service;
use crate::audit::Trail;
use crate::media_type;
use crate::revocations::Revocation;
use crate::step::{Context, Response};
use crate::store::TokenId;

/// Ends one impersonation.
pub(super) async fn revoke_one(
    service: &Service,
    context: &Context,
    trail: &Trail,
    head: Head,
) -> Result<Response, Refusal> {
    let oversight = &service.oversight;
    oversight.authorize(context, trail, &head, REVOKE).await?;
    let not_found = || {
        let told = "there is no live impersonation with this id";
        Refusal::not_found("impersonation_unknown", told)
    };
    let token_id = head.last_segment().and_then(TokenId::parse).ok_or_else(not_found)?;
    let id = token_id.to_string();
    trail.note(|facts| facts.subject_token_id = Some(id.clone()));
    if let Some(entry) = oversight.list.find(context, &id).await? {
        let known = oversight.revocations.fresh(context).await?;
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
        // It may be one that found no room in the list, or one that is about to begin.
        let minted = service.store.minted(context, &token_id).await?;
        if minted.is_none() && oversight.list.is_complete(context.host())? {
            return Err(not_found());
        }
    }
    oversight.revoke(context, &Revocation::of_id(&id)).await?;
    Ok(nothing(204))
}

/// What is to end. A member that nobody knows is refused: without it more would end than was meant.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RevocationRequest {
    user_id: Option<Value>,
    actor_id: Option<Value>,
    client_id: Option<Value>,
    caller: Option<Value>,
    resource: Option<Value>,
    all: Option<Value>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RevocationResponse {
    revoked_before: String,
}

/// Ends all impersonations that have something.
pub(super) async fn revoke_many(
    service: &Service,
    context: &Context,
    trail: &Trail,
    head: Head,
    body: Body,
) -> Result<Response, Refusal> {
    let oversight = &service.oversight;
    oversight.authorize(context, trail, &head, REVOKE).await?;
    if !media_type::is(&head.content_type, "application/json") {
        let told = "the content type must be application/json";
        return Err(Refusal::new(415, "invalid_request", "content_type", told));
    }
    let Body::Whole(body) = body else { return Err(Refusal::body_too_long()) };
    let revocation = parse(&body)?;
    trail.note(|facts| {
        facts.user_id.clone_from(&revocation.user_id);
        facts.actor_id.clone_from(&revocation.actor_id);
        facts.client_id.clone_from(&revocation.client_id);
        facts.caller.clone_from(&revocation.caller);
        facts.resource.clone_from(&revocation.resource);
        facts.all = revocation == Revocation::default();
    });
    let before = oversight.revoke(context, &revocation).await?;
    let answer = RevocationResponse { revoked_before: before.rfc3339().to_string() };
    Ok(secret_json(201, serde_json::to_vec(&answer).unwrap_or_default()))
}

fn parse(body: &[u8]) -> Result<Revocation, Refusal> {
    let malformed = || {
        Refusal::invalid_request(
            "body_malformed",
            "the body must be a JSON object of userId, actorId, clientId, caller and resource, or of all alone, each \
             given once",
        )
    };
    // `serde` would take a list for the members in order.
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err(malformed());
    }
    let request: RevocationRequest = serde_json::from_slice(body).map_err(|_| malformed())?;
    let text = |name: &'static str, value: Option<Value>| match value {
        None => Ok(None),
        // Nobody is called by control characters, and they would reach an access log.
        Some(Value::String(text)) if !text.is_empty() && !text.contains(char::is_control) => {
            Ok(Some(text))
        }
        Some(_) => Err(Refusal::invalid_request("revocation_member", "").telling(format!(
            "{name} must be a string that is not empty, without control characters"
        ))),
    };
    let RevocationRequest { user_id, actor_id, client_id, caller, resource, all } = request;
    let revocation = Revocation {
        id: None,
        user_id: text("userId", user_id)?,
        actor_id: text("actorId", actor_id)?,
        client_id: text("clientId", client_id)?,
        caller: text("caller", caller)?,
        resource: text("resource", resource)?,
    };
    let named = revocation != Revocation::default();
    match all {
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
