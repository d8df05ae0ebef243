//! `POST /oidc/token/revocation` with a token of ours: the client that exchanged a subject token
//! ends the impersonation (RFC 7009).
//!
//! The client is authenticated before the token's signature is verified. A token that is not ours
//! belongs to the gateway, and the request passes through. About a token of ours the client only
//! learns that the token is now useless: an unknown token and another client's token get the same
//! answer (RFC 7009 §2.2).

use super::answer::{Outcome, empty};
use super::exchange::authenticate;
use super::issued_token::IssuedToken;
use super::oversight::Ended;
use super::refusal::Refusal;
use super::request::Body;
use super::request_context::RequestContext;
use crate::config::Client;
use crate::secret::Digest;
use crate::state::revocations::Owner;
use crate::state::store::{Cancelled, Mint, PREFIX, SubjectToken};
use crate::step::Response;

/// Revokes a token.
pub(super) async fn revoke_token(
    request: RequestContext<'_>,
    body: Body,
) -> Result<Outcome<Response>, Refusal> {
    let form = body.form(request.head)?;
    let client = authenticate(request, &form).await?;
    let token = form.get("token").unwrap_or_default();
    let ended = if token.starts_with(PREFIX) {
        end_subject_token(request, &client, token).await?
    } else {
        let Some(issued) = request.service.own_tokens.verify(token) else {
            return Ok(Outcome::PassThrough);
        };
        end_impersonation(request, &client, &issued).await?
    };
    if ended == Ended::Before {
        request.trail.ignore();
    }
    Ok(empty(200).into())
}

/// Ends the impersonation of an access token, if this client exchanged a subject token for it.
async fn end_impersonation(
    request: RequestContext<'_>,
    client: &Client,
    issued: &IssuedToken,
) -> Result<Ended, Refusal> {
    let RequestContext { service, context, trail, .. } = request;
    let Some(impersonation) = issued.impersonation() else { return Ok(Ended::Before) };
    trail.note(|facts| facts.subject_token_id = Some(impersonation.id.to_owned()));
    if impersonation.client_id != client.client_id {
        return Ok(Ended::Before);
    }
    trail.note(|facts| {
        facts.user_id = Some(impersonation.user_id.to_owned());
        facts.actor_id = impersonation.actor_id.map(str::to_owned);
        facts.resource = Some(impersonation.resource.to_owned());
    });
    let (host, oversight) = (context.host(), &service.oversight);
    // A token that has expired or ended needs no revocation, and must not take up room for one.
    let known = oversight.revocations.local_view(host);
    if known.is_ok_and(|known| issued.has_ended(&known, host.now())) {
        return Ok(Ended::Before);
    }
    let owner = Owner::Client(client.client_id.clone());
    oversight.end_anyway(context, impersonation.id, &owner).await?;
    Ok(Ended::Now)
}

/// Takes back a subject token that this client may exchange, or ends the impersonation that this
/// client exchanged it for.
async fn end_subject_token(
    request: RequestContext<'_>,
    client: &Client,
    token: &str,
) -> Result<Ended, Refusal> {
    let RequestContext { service, context, trail, .. } = request;
    let Some(token) = SubjectToken::parse(token) else { return Ok(Ended::Before) };
    let digest = token.digest();
    let id = token.id(&digest);
    trail.note(|facts| facts.subject_token_id = Some(id.to_string()));
    let is_theirs = |found: &Digest, mint: &Mint| {
        found.matches(&digest)
            && client.may_exchange()
            && mint.bounds.allows_client(&client.client_id)
    };
    match service.store.cancel(context, &id, is_theirs).await? {
        Cancelled::Yes(_) => Ok(Ended::Now),
        Cancelled::Spent(_, exchange) if exchange.client_id == client.client_id => {
            let owner = Owner::Client(client.client_id.clone());
            service.oversight.end(context, &id.to_string(), &exchange, &owner).await
        }
        Cancelled::Spent(..) | Cancelled::NotTheirs => Ok(Ended::Before),
    }
}
