//! `POST /oidc/token`: one exchange, from form body to token response.
//!
//! The order of the checks is the security argument. The client is authenticated before its subject
//! token is looked up, so a stranger learns nothing. The token is spent last, by compare-and-set,
//! and only the request that spent it answers with an access token: a refusal never costs a client
//! its token, and a race never yields two access tokens.
//!
//! Cheap checks come before expensive ones. The sender of a proof of possession chooses its key. So
//! the filter first compares everything that the proof says, its nonce too, and verifies the
//! signature only after it has found the subject token to be live. That order tells nothing: the
//! client has authenticated by then, and whoever holds a subject token may know if it is live.
//!
//! The revocations are read after the time at which the access token counts as issued, and right
//! before the token is spent. So a revocation either is seen here, or ends the access token that is
//! issued here: [`revocations`](crate::state::revocations) has the argument. If required hooks were told in
//! between, which can take seconds, the revocations are read once more: an impersonation that was
//! ended meanwhile does not begin. The list has only impersonations whose token was spent.
//!
//! RFC 8693 §2 defines the exchange, RFC 6749 §5.2 the errors.

mod access_token;
mod actor;
mod beginning;
mod subject;

use serde::Serialize;

use access_token::{AccessToken, Granted};
use actor::{DemandsOnActor, authenticate_actor};
use beginning::Beginning;
use subject::find_subject;

use super::answer::secret_json;
use super::possession::{bind, prove, read_proof, token_type, with_nonce};
use super::recipient::Recipient;
use super::refusal::Refusal;
use super::request::Body;
use super::request_context::RequestContext;
use super::service::Service;
use crate::client::{AuthenticatedClient, Credentials};
use crate::config::{Client, Resource};
use crate::oauth::form::Form;
use crate::oauth::{ACCESS_TOKEN_TYPE, JWT_TYPE, scope, uri};
use crate::policy::Bounds;
use crate::state::store::PREFIX;
use crate::step::Response;

/// The body of the response (RFC 8693 §2.2.1): these five members and no other.
#[derive(Serialize)]
pub(super) struct TokenResponse {
    pub(super) access_token: String,
    issued_token_type: &'static str,
    token_type: &'static str,
    pub(super) expires_in: u64,
    scope: String,
}

/// Exchanges a subject token.
pub(super) async fn exchange(request: RequestContext<'_>, body: Body) -> Result<Response, Refusal> {
    let form = body.form(request.head)?;
    let issued = issue(request, &form, Recipient::Client).await?;
    Ok(with_nonce(request, secret_json(200, &issued)))
}

/// Issues an access token for the subject token in a form, and spends the subject token.
pub(super) async fn issue(
    request: RequestContext<'_>,
    form: &Form<'_>,
    recipient: Recipient,
) -> Result<TokenResponse, Refusal> {
    let client = authenticate(request, form).await?;
    if !client.may_exchange() {
        let told = "this client may not exchange subject tokens";
        return Err(Refusal::new(400, "unauthorized_client", "client_without_resources", told));
    }
    let parameters = Parameters::read(request.service, form)?;
    let proof = read_proof(request)?;
    let subject = find_subject(request, &client, &parameters).await?;
    let bounds = &subject.mint.bounds;
    let (indicator, resource) = find_resource(request, &client, bounds, form)?;
    recipient.check_resource(&request.service.config, indicator)?;
    let scope = grant_scope(request, parameters.scope, resource, bounds)?;
    // Only a request for a live subject token can make the filter verify and remember a proof.
    let possession = prove(request, proof, &subject)?;
    let confirmation = bind(&client, resource, &possession)?;
    let demands = DemandsOnActor { client: &client, resource, possession: &possession };
    let actor = authenticate_actor(request, demands, form, &subject).await?;

    let revocations = &request.service.oversight.revocations;
    let caught_up = revocations.catch_up(request.context, subject.last_revocation()).await?;
    let granted = Granted { client, indicator, resource, scope, confirmation, actor };
    let access_token = AccessToken::sign(request, &subject, &granted, caught_up.revision())?;
    recipient.check_size(&access_token.text)?;
    Beginning::new(request, subject, &granted, &access_token).begin(request, caught_up).await?;

    request.trail.note(|facts| facts.jti = Some(access_token.jti));
    Ok(TokenResponse {
        access_token: access_token.text,
        issued_token_type: ACCESS_TOKEN_TYPE,
        token_type: token_type(&granted.confirmation),
        expires_in: access_token.expires_in,
        scope: granted.scope,
    })
}

/// Authenticates the client of a form.
pub(super) async fn authenticate(
    request: RequestContext<'_>,
    form: &Form<'_>,
) -> Result<AuthenticatedClient, Refusal> {
    let RequestContext { service, context, trail, head } = request;
    let find = |client_id: &str| service.config.clients.get(client_id).cloned();
    let credentials = Credentials {
        form,
        authorization: head.authorization.as_deref(),
        certificate: head.certificate.as_ref(),
    };
    let client = service.clients.authenticate(context, credentials, find).await?;
    // A client_id is noted only after its proof. Otherwise a stranger could write into the audit
    // log.
    trail.note(|facts| facts.client_id = Some(client.client_id.clone()));
    Ok(client)
}

/// The parameters that every exchange needs (RFC 8693 §2.1), of supported types.
struct Parameters<'f> {
    subject_token: &'f str,
    /// The resource as the client names it. It may be unknown or missing.
    resource: &'f str,
    scope: &'f str,
}

impl<'f> Parameters<'f> {
    fn read(service: &Service, form: &'f Form<'_>) -> Result<Self, Refusal> {
        let subject_token = required(form, "subject_token")?;
        // A client with a token of another service must not be told to repair its other parameters.
        if !subject_token.starts_with(PREFIX) {
            let told = "the subject token is not one of this endpoint: those begin with sub_";
            return Err(Refusal::invalid_request("subject_token_foreign", told));
        }
        let scope = scope_parameter(form)?;
        let token_type = required(form, "subject_token_type")?;
        let token_types = &service.config.subject_tokens.token_types;
        if !token_types.iter().any(|known| known == token_type) {
            let told = format!("subject_token_type must be {}", token_types.join(" or "));
            return Err(Refusal::invalid_request("subject_token_type", "").telling(told));
        }
        let requested = form.get("requested_token_type");
        if requested.is_some_and(|requested| ![ACCESS_TOKEN_TYPE, JWT_TYPE].contains(&requested)) {
            return Err(Refusal::invalid_request(
                "requested_token_type",
                "requested_token_type must be urn:ietf:params:oauth:token-type:access_token or \
                 urn:ietf:params:oauth:token-type:jwt",
            ));
        }
        Ok(Self { subject_token, resource: form.get("resource").unwrap_or_default(), scope })
    }
}

fn required<'f>(form: &'f Form<'_>, name: &'static str) -> Result<&'f str, Refusal> {
    form.get(name).ok_or_else(|| missing(name))
}

/// Reads `scope`. RFC 8693 §2.1 makes it optional, so a client that leaves it out is told more.
fn scope_parameter<'f>(form: &'f Form<'_>) -> Result<&'f str, Refusal> {
    required(form, "scope").map_err(|refusal| {
        let fault = format!(
            "{refusal}: a token exchange needs scope here, a list of scopes with one space between"
        );
        refusal.telling(fault)
    })
}

fn missing(name: &'static str) -> Refusal {
    Refusal::invalid_request("parameter_missing", "").telling(format!("{name} is missing"))
}

/// Finds the one resource that the access token will be bound to (RFC 8707 §2).
fn find_resource<'r>(
    request: RequestContext<'r>,
    client: &Client,
    bounds: &Bounds,
    form: &Form<'_>,
) -> Result<(&'r str, &'r Resource), Refusal> {
    // Both name a target, so a token for the resource alone would be for something else.
    if form.get("audience").is_some() {
        let told = "audience is not supported, use resource";
        return Err(Refusal::invalid_target("audience_given", told));
    }
    if form.get("organization_id").is_some() {
        let told = "organization_id is not supported, use resource";
        return Err(Refusal::invalid_target("organization_given", told));
    }
    let indicator = form
        .get("resource")
        .ok_or(const { Refusal::invalid_target("resource_malformed", "resource is missing") })?;
    let refused = || {
        let told = "the resource is unknown or not available to this client";
        Refusal::invalid_target("resource_refused", told)
    };
    let Some((indicator, resource)) = request.service.config.resources.get_key_value(indicator)
    else {
        if uri::is_absolute(indicator) {
            return Err(refused());
        }
        let told = "resource must be an absolute URI without a fragment";
        return Err(Refusal::invalid_target("resource_malformed", told));
    };
    if client.resources.as_ref().is_some_and(|allowed| !allowed.contains(indicator)) {
        return Err(refused());
    }
    request.trail.note(|facts| facts.resource = Some(indicator.clone()));
    if !bounds.allows_resource(indicator) {
        let told = "the subject token is not for this resource";
        return Err(Refusal::invalid_target("bound_resource", told));
    }
    Ok((indicator, resource))
}

fn grant_scope(
    request: RequestContext<'_>,
    requested: &str,
    resource: &Resource,
    bounds: &Bounds,
) -> Result<String, Refusal> {
    let requested = scope::parse(requested).ok_or_else(|| {
        let told = "scope must be a list of scopes with one space between them";
        Refusal::invalid_scope("scope_malformed", told)
    })?;
    let mut granted = scope::cut(&requested, &resource.scopes);
    if granted.is_empty() && !resource.scopes.is_empty() {
        let told = "none of the requested scopes can be granted for this resource";
        return Err(Refusal::invalid_scope("scope_empty", told));
    }
    granted.retain(|scope| bounds.allows_scope(scope));
    if granted.is_empty() && !resource.scopes.is_empty() {
        let told = "none of the requested scopes can be granted for this subject token";
        return Err(Refusal::invalid_scope("bound_scope", told));
    }
    let granted = granted.join(" ");
    request.trail.note(|facts| facts.scope = Some(granted.clone()));
    Ok(granted)
}
