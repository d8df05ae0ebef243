//! `POST /oidc/token/introspection` with a token of ours: an API asks whether an impersonation is live (RFC 7662).
//!
//! A token that is not ours is the gateway's to know, and goes on. A subject token is never active: it is good for an
//! exchange and for nothing else, and whoever can exchange it learns there what has become of it.

use serde_json::{Map, Value};

use super::answer::secret_json;
use super::exchange::authenticate;
use super::refusal::Refusal;
use super::request::{Body, Head};
use super::service::Service;
use crate::audit::Trail;
use crate::client::ClientAuthError;
use crate::step::{Context, Response};

/// Says whether a token is active.
pub(super) async fn introspect(
    service: &Service,
    context: &Context,
    trail: &Trail,
    head: Head,
    body: Body,
) -> Result<Response, Refusal> {
    let oversight = &service.oversight;
    let form = body.form(&head)?;
    let client = authenticate(service, trail, &head, &form)?;
    // RFC 7662 §2.1: whoever asks has to prove who they are, or tokens could be tried out.
    if !client.is_confidential() {
        return Err(ClientAuthError::SecretMissing.into());
    }
    let mut answer = Map::new();
    answer.insert("active".to_owned(), Value::Bool(false));
    if let Some(issued) = service.issued(form.get("token").unwrap_or_default()) {
        trail.note(|facts| facts.subject_token_id = issued.id().map(str::to_owned));
        let known = oversight.revocations.fresh(context).await?;
        if !issued.has_ended(&known, context.host().now()) {
            let mut claims = issued.into_claims();
            claims.remove("active");
            answer.insert("active".to_owned(), Value::Bool(true));
            answer.extend(claims);
        }
    }
    Ok(secret_json(200, &answer))
}
