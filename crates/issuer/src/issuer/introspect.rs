//! `POST /oidc/token/introspection` with a token of ours: an API asks whether an impersonation is
//! live (RFC 7662).
//!
//! The client is authenticated before the token's signature is verified, so strangers can neither
//! try tokens out nor make the filter compute. A token that is not ours belongs to the gateway, and
//! the request passes through.
//!
//! A subject token is never active: it is good for one exchange and for nothing else. A client that
//! may exchange it learns its state at the exchange.

use serde_json::{Map, Value};

use super::answer::{Outcome, secret_json};
use super::exchange::authenticate;
use super::possession::token_type;
use super::refusal::Refusal;
use super::request::Body;
use super::request_context::RequestContext;
use crate::client::ClientAuthError;
use crate::confirmation::Confirmation;
use crate::state::store::PREFIX;
use crate::step::Response;

/// The type of an access token with these claims (RFC 9449 §6.2).
fn issued_type(claims: &Map<String, Value>) -> &'static str {
    let confirmation = claims.get("cnf").and_then(Confirmation::read).unwrap_or_default();
    token_type(&confirmation)
}

/// Answers whether a token is active.
pub(super) async fn introspect(
    request: RequestContext<'_>,
    body: Body,
) -> Result<Outcome<Response>, Refusal> {
    let RequestContext { service, context, trail, head } = request;
    let form = body.form(head)?;
    let client = authenticate(request, &form).await?;
    // RFC 7662 §2.1: the client must prove who it is, or strangers could try tokens out.
    if !client.is_confidential() {
        return Err(ClientAuthError::CredentialsMissing.into());
    }
    let token = form.get("token").unwrap_or_default();
    let mut answer = Map::new();
    answer.insert("active".to_owned(), Value::Bool(false));
    if !token.starts_with(PREFIX) {
        let Some(issued) = service.own_tokens.verify(token) else {
            return Ok(Outcome::PassThrough);
        };
        trail.note(|facts| facts.subject_token_id = issued.id().map(str::to_owned));
        let known = service.oversight.revocations.current_view(context).await?;
        if !issued.has_ended(&known, context.host().now()) {
            let mut claims = issued.into_claims();
            claims.remove("active");
            answer.insert("active".to_owned(), Value::Bool(true));
            if service.config.binds_tokens() {
                answer.insert("token_type".to_owned(), issued_type(&claims).into());
            }
            answer.extend(claims);
        }
    }
    Ok(secret_json(200, &answer).into())
}
