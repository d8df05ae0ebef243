//! `DELETE /api/subject-tokens/{id}`: a backend takes back a subject token that it minted.
//!
//! An outstanding token can no longer be exchanged after that. The impersonation of a spent token
//! ends. Only the caller that minted a token can take it back, and no other caller learns that the
//! token exists.
//!
//! A token that was never exchanged is marked as cancelled in its own record, by the same atomic
//! step by which an exchange would spend it. It needs no entry among the revocations, so a caller
//! cannot fill the table of revocations by minting and cancelling.

use super::answer::empty;
use super::presented::verify_presented;
use super::refusal::Refusal;
use super::request_context::RequestContext;
use crate::state::revocations::Owner;
use crate::state::store::{Cancelled, TokenId};
use crate::step::Response;

/// Takes back a subject token.
pub(super) async fn cancel(request: RequestContext<'_>) -> Result<Response, Refusal> {
    let RequestContext { service, context, trail, head } = request;
    let verified = verify_presented(request, &service.callers).await?;
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
            // The slot may have gone to another token while the list still has the impersonation.
            let listed = oversight.list.find(context, &name).await?;
            let listed = listed.filter(|entry| entry.caller == caller).ok_or_else(not_found)?;
            oversight.end_listed(context, &listed, &Owner::Caller(caller)).await?;
        }
    }
    Ok(empty(204))
}
