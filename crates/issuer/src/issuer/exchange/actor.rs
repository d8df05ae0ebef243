//! The acting user of an exchange, and how they must have signed in (RFC 8693 §2.1, RFC 9470).

use super::super::refusal::Refusal;
use super::super::request_context::RequestContext;
use super::super::service::Service;
use super::missing;
use crate::bearer::SignIn;
use crate::config::{Client, Resource, SignInRules};
use crate::confirmation::Possession;
use crate::host::UnixTime;
use crate::oauth::form::Form;
use crate::oauth::{ACCESS_TOKEN_TYPE, JWT_TYPE, scope};
use crate::state::store::Outstanding;
use crate::statement::is_jwt;

/// The demands on an actor, besides the bounds of the subject token.
#[derive(Clone, Copy)]
pub(super) struct DemandsOnActor<'e> {
    pub(super) client: &'e Client,
    pub(super) resource: &'e Resource,
    /// The keys that the exchange has proved. An actor token may be bound to one of them.
    pub(super) possession: &'e Possession,
}

/// An acting user whose access token was verified.
pub(super) struct AuthenticatedActor {
    /// The user's name, with the prefix of its issuer.
    pub(super) id: String,
    pub(super) sign_in: SignIn,
}

/// Authenticates the acting user; `None` if no actor is required and none is given.
pub(super) async fn authenticate_actor(
    request: RequestContext<'_>,
    DemandsOnActor { client, resource, possession }: DemandsOnActor<'_>,
    form: &Form<'_>,
    subject: &Outstanding,
) -> Result<Option<AuthenticatedActor>, Refusal> {
    let RequestContext { service, context, trail, .. } = request;
    let token_type = form.get("actor_token_type");
    let Some(token) = form.get("actor_token") else {
        if token_type.is_some() {
            let told = "actor_token_type is given without actor_token";
            return Err(Refusal::invalid_request("actor_token_type", told));
        }
        if !subject.mint.bounds.allows_actor(None) {
            return Err(bound_to_another_actor());
        }
        let is_required = service.config.actor_tokens.required || client.actor_token_required;
        if is_required || !resource.actor_sign_in.is_empty() {
            return Err(Refusal::invalid_request("actor_required", "actor_token is required"));
        }
        return Ok(None);
    };
    let fits = match token_type.ok_or_else(|| missing("actor_token_type"))? {
        ACCESS_TOKEN_TYPE => true,
        JWT_TYPE => is_jwt(token).unwrap_or(false),
        _ => false,
    };
    if !fits {
        return Err(Refusal::invalid_request(
            "actor_token_type",
            "actor_token_type must be urn:ietf:params:oauth:token-type:access_token, or \
             urn:ietf:params:oauth:token-type:jwt for a JWT",
        ));
    }
    let actors = &service.actors;
    if actors.is_empty() {
        let refusal = Refusal::invalid_actor("actors_not_accepted");
        return Err(refusal.because("actor tokens are not accepted"));
    }
    let verified = actors.verify(context, token).await;
    let verified = verified.and_then(|token| token.held_with(possession));
    let verified = verified.map_err(|error| Refusal::actor(&error))?;
    let id = verified.subject.clone().ok_or_else(|| {
        Refusal::invalid_actor("actor_token").because("the actor token has no sub")
    })?;
    trail.note(|facts| facts.actor_id = Some(id.clone()));
    // A user must not impersonate themselves: there would be no second person to hold accountable.
    if id == subject.grant.user_id {
        let told = "the actor must not be the user who is impersonated";
        return Err(Refusal::invalid_request("actor_is_user", told));
    }
    if !subject.mint.bounds.allows_actor(Some(&id)) {
        return Err(bound_to_another_actor());
    }
    // Two people must stand behind the impersonation.
    if subject.review.as_ref().is_some_and(|review| review.has_approval_of(&id)) {
        let told = "the actor must not be a person who approved the impersonation";
        return Err(Refusal::invalid_request("actor_approved", told));
    }
    let now = context.host().now();
    check_age(service, &verified.sign_in, now)?;
    for rules in [&service.config.actor_tokens.sign_in, &resource.actor_sign_in] {
        check_sign_in(rules, &verified.sign_in, now)?;
    }
    Ok(Some(AuthenticatedActor { id, sign_in: verified.sign_in.clone() }))
}

/// Refuses an actor token that may be older than the events that are remembered. One that does not
/// say when it was issued may be, unless its issuer vouched for it.
fn check_age(service: &Service, sign_in: &SignIn, now: UnixTime) -> Result<(), Refusal> {
    let oldest = service.config.actor_tokens.max_lifetime;
    let is_too_old = sign_in.known_since().is_some_and(|since| now > since.after(oldest));
    if !is_too_old || !service.receives_events() {
        return Ok(());
    }
    let refusal = Refusal::invalid_actor("actor_token_too_old");
    Err(refusal.because("the actor token is older than actor_tokens.max_lifetime"))
}

/// Refuses an actor who did not sign in as the operator demands. The subject token stays good for
/// an actor token of a better sign-in.
fn check_sign_in(rules: &SignInRules, sign_in: &SignIn, now: UnixTime) -> Result<(), Refusal> {
    if !rules.allows_acr(sign_in.acr.as_deref()) {
        let values = rules.acr_values.iter().flatten();
        let values: Vec<_> = values.filter(|value| scope::is_scope_token(value)).cloned().collect();
        let told =
            format!("the actor must sign in with one of these acr_values: {}", values.join(" "));
        return Err(Refusal::unmet_sign_in("actor_acr", "").telling(told));
    }
    if !rules.allows_auth_time(sign_in.auth_time, now) {
        let max_age = rules.max_age.unwrap_or_default().as_secs();
        let told = format!("the actor must sign in again: the max_age is {max_age} seconds");
        return Err(Refusal::unmet_sign_in("actor_max_age", "").telling(told));
    }
    Ok(())
}

fn bound_to_another_actor() -> Refusal {
    let told = "the subject token needs the actor token of the user that it was minted for";
    Refusal::invalid_request("bound_actor", told)
}
