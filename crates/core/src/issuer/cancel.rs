//! `DELETE /api/subject-tokens/{id}`: a backend takes back a subject token that it minted.
//!
//! Whatever has become of the token: one that is outstanding cannot be exchanged any more, and what a spent one was
//! exchanged for has ended. It is nobody else's to take back, and who asks for another's learns not even that there
//! is one.

use super::answer::nothing;
use super::refusal::Refusal;
use super::request::{Head, bearer_token};
use super::service::Service;
use crate::audit::Trail;
use crate::revocations::Revocation;
use crate::step::{Context, Response};
use crate::store::TokenId;

/// Takes a subject token back.
pub(super) async fn cancel(
    service: &Service,
    context: &Context,
    trail: &Trail,
    head: Head,
) -> Result<Response, Refusal> {
    let token = bearer_token(&head).ok_or_else(Refusal::no_bearer)?;
    let verified = service.callers.verify(context, token).await;
    let verified = verified.map_err(|error| Refusal::bearer(&error))?;
    let caller = verified.caller().unwrap_or_default().to_owned();
    trail.note(|facts| facts.caller = Some(caller.clone()));

    let not_found = || {
        let told = "there is no subject token with this id";
        Refusal::not_found("subject_token_unknown", told)
    };
    let oversight = &service.oversight;
    let id = head.last_segment().and_then(TokenId::parse).ok_or_else(not_found)?;
    trail.note(|facts| facts.subject_token_id = Some(id.to_string()));
    let minted_by = minted_by(service, context, &id).await?;
    if minted_by.is_none_or(|minted_by| minted_by != caller) {
        return Err(not_found());
    }
    oversight.revoke(context, &Revocation::of_id(&id.to_string())).await?;
    Ok(nothing(204))
}

/// Who minted a token. Once its slot has gone to another, the list may still have what it was exchanged for.
async fn minted_by(
    service: &Service,
    context: &Context,
    id: &TokenId,
) -> Result<Option<String>, Refusal> {
    if let Some(mint) = service.store.minted(context, id).await? {
        return Ok(Some(mint.caller));
    }
    let listed = service.oversight.list.find(context, &id.to_string()).await?;
    Ok(listed.map(|entry| entry.caller))
}
