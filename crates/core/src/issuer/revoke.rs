//! `DELETE /api/impersonations/{id}` and `POST /api/impersonations/revocations`: somebody who is entitled to ends
//! impersonations, one or all that have something.
//!
//! What was issued until now has ended once this is answered. New ones may begin: who wants to prevent that has to
//! take the right to mint, too.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::answer::{nothing, secret_json};
use super::oversight::{Oversight, REVOKE, listed};
use super::refusal::Refusal;
use super::request::{Body, Head};
use super::service::Service;
use crate::audit::Trail;
use crate::impersonations::Wanted;
use crate::media_type;
use crate::revocations::{Revocation, View};
use crate::step::{Context, Response};
use crate::store::{Cancelled, TokenId};

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
        // It may be one that found no room in the list, or one that is about to begin, and then never does.
        match service.store.cancel(context, &token_id, |_, _| true).await? {
            Cancelled::Yes(_) => return Ok(nothing(204)),
            Cancelled::Spent(..) => {}
            Cancelled::NotTheirs if oversight.list.is_complete(context.host())? => {
                return Err(not_found());
            }
            Cancelled::NotTheirs => {}
        }
    }
    oversight.revoke(context, &Revocation::of_id(&id)).await?;
    Ok(nothing(204))
}

/// What is to end. A member that nobody knows is refused: without it more would end than was meant.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RevocationRequest {
    #[serde(default, deserialize_with = "given")]
    user_id: Option<Value>,
    #[serde(default, deserialize_with = "given")]
    actor_id: Option<Value>,
    #[serde(default, deserialize_with = "given")]
    client_id: Option<Value>,
    #[serde(default, deserialize_with = "given")]
    caller: Option<Value>,
    #[serde(default, deserialize_with = "given")]
    resource: Option<Value>,
    #[serde(default, deserialize_with = "given")]
    all: Option<Value>,
}

/// A member that is there, be it `null`: whoever meant somebody, and has no name, does not mean everybody.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// How long a name may be, in characters. Every Envoy that starts reads all of them.
const LONGEST_NAME: usize = 255;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RevocationResponse {
    revoked_before: String,
    /// How many listed impersonations were live and have ended by this revocation.
    ended: u64,
    /// Given only as `false`: more may have ended than were counted.
    #[serde(skip_serializing_if = "Clone::clone")]
    complete: bool,
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
    let known_before = oversight.revocations.current_view(context).await.ok();
    let before = oversight.revoke(context, &revocation).await?;
    // Nothing that happens from here on takes that back.
    trail.is_done();
    let counted = count_ended(oversight, context, &revocation, known_before.as_deref()).await;
    trail.note(|facts| facts.ended = Some(counted.ended));
    let answer = RevocationResponse {
        revoked_before: before.rfc3339().to_string(),
        ended: counted.ended,
        complete: counted.complete,
    };
    Ok(secret_json(201, serde_json::to_vec(&answer).unwrap_or_default()))
}

/// How many impersonations a revocation has ended.
struct Counted {
    ended: u64,
    /// Whether it has ended no more.
    complete: bool,
}

/// Counts the live impersonations that a revocation has ended. An impersonation counts if it has
/// ended now, and had not ended by `known_before`. One that began meanwhile counts only if it has
/// ended.
///
/// The revocation is made already, and the operator must learn that. So a list that cannot be read,
/// or not in a moment, only makes the count incomplete.
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
