//! `POST /oidc/token/revocation` with a token of ours: the client that exchanged a subject token ends what came of it
//! (RFC 7009).
//!
//! A token that is not ours is the gateway's to revoke, and goes on. Of one that is ours the client that has it
//! learns no more than that it is of no use any more: an unknown token and another client's are answered in the same
//! way (RFC 7009 §2.2).

use super::answer::nothing;
use super::exchange::authenticate;
use super::refusal::Refusal;
use super::request::{Body, Head};
use super::service::Service;
use crate::audit::Trail;
use crate::config::Client;
use crate::media_type;
use crate::oauth::form::{Form, FormError};
use crate::revocations::Revocation;
use crate::step::{Context, Response};
use crate::store::{Found, SubjectToken};

/// Revokes a token.
pub(super) async fn revoke_token(
    service: &Service,
    context: &Context,
    trail: &Trail,
    head: Head,
    body: Body,
) -> Result<Response, Refusal> {
    let oversight = &service.oversight;
    let Body::Whole(body) = body else { return Err(Refusal::body_too_long()) };
    if !media_type::is_ascii_based(&head.content_type) {
        return Err(FormError::Charset.into());
    }
    let form = Form::parse(&body)?;
    let client = authenticate(service, trail, &head, &form)?;
    let token = form.get("token").unwrap_or_default();
    match to_revoke(service, context, trail, &client, token).await? {
        Some(id) => {
            oversight.revoke(context, &Revocation::of_id(&id)).await?;
        }
        None => trail.ignore(),
    }
    Ok(nothing(200))
}

/// The impersonation that ends with a token, if the token is this client's: its access token, or the subject token
/// that it has exchanged or could exchange.
async fn to_revoke(
    service: &Service,
    context: &Context,
    trail: &Trail,
    client: &Client,
    token: &str,
) -> Result<Option<String>, Refusal> {
    let note = |id: &str| trail.note(|facts| facts.subject_token_id = Some(id.to_owned()));
    if let Some(issued) = service.issued(token) {
        let Some(impersonation) = issued.impersonation() else { return Ok(None) };
        note(impersonation.id);
        if impersonation.client_id != client.client_id {
            return Ok(None);
        }
        trail.note(|facts| {
            facts.user_id = Some(impersonation.user_id.to_owned());
            facts.actor_id = impersonation.actor_id.map(str::to_owned);
            facts.resource = Some(impersonation.resource.to_owned());
        });
        return Ok(Some(impersonation.id.to_owned()));
    }
    let Some(token) = SubjectToken::parse(token) else { return Ok(None) };
    let digest = token.digest();
    let id = token.id(&digest).to_string();
    note(&id);
    let theirs = match service.store.find(context, &token, &digest).await? {
        Found::Spent(_, exchange) => exchange.client_id == client.client_id,
        Found::Outstanding(subject) => subject.mint.bounds.allows_client(&client.client_id),
        Found::Expired(..) | Found::Unknown => false,
    };
    Ok(theirs.then_some(id))
}
