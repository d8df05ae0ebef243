//! `DELETE /api/subject-tokens/{id}`: a backend takes back a subject token that it minted.
//!
//! Whatever has become of the token: one that is outstanding cannot be exchanged any more, and what a spent one was
//! exchanged for has ended. It is nobody else's to take back, and who asks for another's learns not even that there
//! is one.
//!
//! A token that nobody exchanged becomes a cancelled one in its own record, by the same atomic step as an exchange would
//! spend it. That takes no room among the revocations, so that nobody can fill them by minting.

use super::answer::nothing;
use super::refusal::Refusal;
use super::request::{Head, bearer_token};
use super::service::Service;
use crate::audit::Trail;
use crate::revocations::Owner;
use crate::step::{Context, Response};
use crate::store::{Cancelled, TokenId};

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
    let id = head.last_segment().and_then(TokenId::parse).ok_or_else(not_found)?;
    let name = id.to_string();
    trail.note(|facts| facts.subject_token_id = Some(name.clone()));
    let oversight = &service.oversight;
    match service.store.cancel(context, &id, |_, mint| mint.caller == caller).await? {
        Cancelled::Yes(_) => {}
        Cancelled::Spent(_, exchange) => {
            oversight.end(context, &name, &exchange, &Owner::Caller(caller)).await?;
        }
        Cancelled::NotTheirs => {
            // Once its slot has gone to another, the list may still have what it was exchanged for.
            let listed = oversight.list.find(context, &name).await?;
            let listed = listed.filter(|entry| entry.caller == caller).ok_or_else(not_found)?;
            oversight.end_listed(context, &listed, &Owner::Caller(caller)).await?;
        }
    }
    Ok(nothing(204))
}
