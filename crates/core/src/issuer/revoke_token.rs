//! `POST /oidc/token/revocation` with a token of ours: the client that exchanged a subject token ends what came of it
//! (RFC 7009).
//!
//! A token that is not ours is the gateway's to revoke, and goes on. Of one that is ours the client that has it
//! learns no more than that it is of no use any more: an unknown token and another client's are answered in the same
//! way (RFC 7009 §2.2).

use super::answer::empty;
use super::exchange::authenticate;
use super::oversight::Ended;
use super::refusal::Refusal;
use super::request::{Body, Head};
use super::service::Service;
use crate::audit::Trail;
use crate::config::Client;
use crate::revocations::Owner;
use crate::secret::Digest;
use crate::step::{Context, Response};
use crate::store::{Cancelled, Mint, SubjectToken};

/// Revokes a token.
pub(super) async fn revoke_token(
    service: &Service,
    context: &Context,
    trail: &Trail,
    head: Head,
    body: Body,
) -> Result<Response, Refusal> {
    let form = body.form(&head)?;
    let client = authenticate(service, trail, &head, &form)?;
    let token = form.get("token").unwrap_or_default();
    if end(service, context, trail, &client, token).await? == Ended::Before {
        trail.ignore();
    }
    Ok(empty(200))
}

/// Ends the impersonation of a token, if the token is this client's: its access token, or the subject token that it has
/// exchanged or could exchange.
async fn end(
    service: &Service,
    context: &Context,
    trail: &Trail,
    client: &Client,
    token: &str,
) -> Result<Ended, Refusal> {
    let oversight = &service.oversight;
    let owner = Owner::Client(client.client_id.clone());
    let note = |id: &str| trail.note(|facts| facts.subject_token_id = Some(id.to_owned()));
    if let Some(issued) = service.issued(token) {
        let Some(impersonation) = issued.impersonation() else { return Ok(Ended::Before) };
        note(impersonation.id);
        if impersonation.client_id != client.client_id {
            return Ok(Ended::Before);
        }
        trail.note(|facts| {
            facts.user_id = Some(impersonation.user_id.to_owned());
            facts.actor_id = impersonation.actor_id.map(str::to_owned);
            facts.resource = Some(impersonation.resource.to_owned());
        });
        // One that has expired needs no end, and one that has ended no other.
        let host = context.host();
        let known = oversight.revocations.known_here(host).unwrap_or_default();
        if issued.has_ended(&known, host.now()) {
            return Ok(Ended::Before);
        }
        oversight.end_anyway(context, impersonation.id, &owner).await?;
        return Ok(Ended::Now);
    }
    let Some(token) = SubjectToken::parse(token) else { return Ok(Ended::Before) };
    let digest = token.digest();
    let id = token.id(&digest);
    note(&id.to_string());
    let theirs = |found: &Digest, mint: &Mint| {
        found.matches(&digest)
            && client.may_exchange()
            && mint.bounds.allows_client(&client.client_id)
    };
    match service.store.cancel(context, &id, theirs).await? {
        Cancelled::Yes(_) => Ok(Ended::Now),
        Cancelled::Spent(_, exchange) if exchange.client_id == client.client_id => {
            oversight.end(context, &id.to_string(), &exchange, &owner).await
        }
        Cancelled::Spent(..) | Cancelled::NotTheirs => Ok(Ended::Before),
    }
}
