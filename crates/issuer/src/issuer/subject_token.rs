//! `GET /api/subject-tokens/{id}`: a backend asks what became of a subject token that it minted.
//!
//! Only the caller that minted a token learns about it, and no other caller learns that the token
//! exists.

use super::answer::secret_json;
use super::presented::verify_presented;
use super::refusal::Refusal;
use super::request_context::RequestContext;
use super::reviewed::{Reviewed, was_ended};
use crate::state::store::TokenId;
use crate::step::Response;

/// Shows a subject token.
pub(super) async fn show(request: RequestContext<'_>) -> Result<Response, Refusal> {
    let RequestContext { service, context, trail, head } = request;
    let verified = verify_presented(request, &service.callers).await?;
    let caller = verified.caller().unwrap_or_default();
    trail.note(|facts| facts.caller = Some(caller.to_owned()));

    let not_found = || {
        let told = "there is no subject token with this id";
        Refusal::not_found("subject_token_unknown", told)
    };
    let id = head.last_segment().and_then(TokenId::parse).ok_or_else(not_found)?;
    trail.note(|facts| facts.subject_token_id = Some(id.to_string()));
    // Read before the token: a replay of a token that was exchanged in between ends it, too.
    let revocations = service.oversight.revocations.current_view(context).await?;
    let known = service.store.known(context, &id).await?;
    let known = known.filter(|known| known.mint().caller == caller).ok_or_else(not_found)?;
    trail.note(|facts| facts.user_id = known.user_id().map(str::to_owned));
    let now = context.host().now();
    let shown = Reviewed::new(&id, &known, now);
    let has_ended = was_ended(&revocations, &id, &known, now);
    Ok(secret_json(200, &if has_ended { shown.taken_back() } else { shown }))
}
