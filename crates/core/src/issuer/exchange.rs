//! `POST /oidc/token`: one exchange, from form body to token response.
//!
//! The order of the checks is the security argument. The client is authenticated before its subject
//! token is looked up, so strangers learn nothing; the token is spent last, by compare-and-set, and
//! only the request that spent it answers: a refusal costs nobody a token, and a race never yields two.
//!
//! RFC 8693 §2 defines the exchange, RFC 6749 §5.2 the errors.

use std::rc::Rc;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::Serialize;
use serde_json::{Map, Value};

use super::service::Service;
use super::{Body, Head, REALM, body_too_long, secret_json, temporarily_unavailable};
use crate::bearer::BearerError;
use crate::claims::{ClaimsError, Input};
use crate::config::{Client, CustomClaims, OnError, Resource};
use crate::host::{Counter, Host, HostFailure};
use crate::jose::SignError;
use crate::oauth::client_auth::{self, AuthenticatedClient, ClientAuthError};
use crate::oauth::error::{ErrorResponse, Refusal};
use crate::oauth::form::{Form, FormError};
use crate::oauth::{ACCESS_TOKEN_TYPE, JWT_TYPE, TOKEN_EXCHANGE, scope, uri};
use crate::step::{Context, Outcome, Response};
use crate::store::{Exchange, Found, Mint, NotSpent, Outstanding, PREFIX, SubjectToken};

/// Why an exchange was refused.
///
/// `Display` is for the operator's log. What the caller gets never says which check of a client or of a
/// token failed, beyond what the holder of the right secret may know.
#[derive(Debug, thiserror::Error)]
enum ExchangeError {
    #[error("body over the limit")]
    BodyTooLong,
    #[error(transparent)]
    Form(#[from] FormError),
    #[error("client authentication failed: {0}")]
    Client(#[from] ClientAuthError),
    #[error("parameter {0} is missing")]
    Missing(&'static str),
    #[error("parameter {0} is empty")]
    Empty(&'static str),
    #[error("subject_token_type is not supported")]
    SubjectTokenType,
    #[error("requested_token_type is not supported")]
    RequestedTokenType,
    #[error("the subject token is not one of ours")]
    ForeignSubjectToken,
    #[error("the subject token is unknown")]
    UnknownSubjectToken,
    #[error("the subject token has expired")]
    ExpiredSubjectToken,
    #[error("the subject token was used already: minted by {:?}, exchanged by {:?}", .0.0.caller, .0.1.client_id)]
    SpentSubjectToken(Box<(Mint, Exchange)>),
    #[error("resource is missing")]
    NoResource,
    #[error("resource is not an absolute URI without fragment")]
    MalformedResource,
    #[error("resource is unknown or not for this client")]
    ResourceRefused,
    #[error("audience is given")]
    Audience,
    #[error("scope has bad syntax")]
    MalformedScope,
    #[error("no scope can be granted")]
    NoScope,
    #[error("an actor token is required")]
    ActorRequired,
    #[error("actor_token_type without actor_token")]
    LoneActorTokenType,
    #[error("actor_token_type is not supported")]
    ActorTokenType,
    #[error("actor tokens are not accepted")]
    ActorsNotAccepted,
    #[error("actor token refused: {0}")]
    Actor(BearerError),
    #[error("the actor token has no sub")]
    NamelessActor,
    #[error(transparent)]
    CustomClaims(#[from] ClaimsError),
    #[error(transparent)]
    Sign(#[from] SignError),
    #[error(transparent)]
    Host(#[from] HostFailure),
}

/// The claims of an access token (RFC 9068 §2.2, RFC 8693 §4.1).
#[derive(Serialize)]
struct AccessTokenClaims<'a> {
    iss: &'a str,
    sub: &'a str,
    aud: &'a str,
    client_id: &'a str,
    iat: u64,
    exp: u64,
    jti: &'a str,
    scope: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    act: Option<Actor<'a>>,
    /// What the operator's function added; it can have none of the names above.
    #[serde(flatten)]
    custom: Map<String, Value>,
}

/// What the operator's function sees of the claims (contract section 6).
#[derive(Serialize)]
struct ScriptToken<'a> {
    iss: &'a str,
    sub: &'a str,
    aud: &'a str,
    client_id: &'a str,
    jti: &'a str,
    scope: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    act: Option<&'a Actor<'a>>,
}

#[derive(Serialize)]
struct Actor<'a> {
    sub: &'a str,
}

/// The answer (specification, section 2.3): these five members and no other.
#[derive(Serialize)]
struct TokenResponse<'a> {
    access_token: &'a str,
    issued_token_type: &'a str,
    token_type: &'a str,
    expires_in: u64,
    scope: &'a str,
}

/// Exchanges a subject token.
pub(super) async fn exchange(
    service: Rc<Service>,
    context: Context,
    head: Head,
    body: Body,
) -> Outcome {
    Ok(try_exchange(&service, &context, &head, body).await?)
}

async fn try_exchange(
    service: &Service,
    context: &Context,
    head: &Head,
    body: Body,
) -> Result<Response, ExchangeError> {
    let Body::Whole(body) = body else { return Err(ExchangeError::BodyTooLong) };
    let form = Form::parse(&body)?;
    let client = authenticate(service, context, head, &form)?;
    let parameters = Parameters::read(&form)?;
    let subject = find_subject(service, context, parameters.subject_token)?;
    let (indicator, resource) = find_resource(service, context, &client, &form)?;
    let scope = grant_scope(context, parameters.scope, resource)?;
    let actor = authenticate_actor(service, context, &client, &form).await?;

    let host = context.host();
    let mut random = [0; 16];
    host.random(&mut random)?;
    let jti = BASE64_URL_SAFE_NO_PAD.encode(random);
    let now = host.now();
    let lifetime =
        resource.access_token_lifetime.unwrap_or(service.config.access_token_lifetime).as_secs();
    let mut claims = AccessTokenClaims {
        iss: &service.config.issuer,
        sub: &subject.grant.user_id,
        aud: indicator,
        client_id: &client.client_id,
        iat: now.secs(),
        exp: now.secs().saturating_add(lifetime),
        jti: &jti,
        scope: &scope,
        act: actor.as_deref().map(|sub| Actor { sub }),
        custom: Map::new(),
    };
    if let Some(custom_claims) = &service.config.custom_claims {
        claims.custom = run_script(custom_claims, host, &claims, &subject.grant.context)?;
    }
    let claims = serde_json::to_vec(&claims).map_err(|_| HostFailure("memory for claims"))?;
    let access_token = service.config.signing_key.sign_jwt(host, &claims)?;

    let spent = Exchange {
        client_id: client.client_id.clone(),
        actor_id: actor,
        request_id: context.request_id(),
        jti: jti.clone(),
        at_millis: now.millis(),
    };
    spend(service, context, subject, spent)?;

    context.note(|facts| facts.jti = Some(jti));
    let body = TokenResponse {
        access_token: &access_token,
        issued_token_type: ACCESS_TOKEN_TYPE,
        token_type: "Bearer",
        expires_in: lifetime,
        scope: &scope,
    };
    Ok(secret_json(200, serde_json::to_vec(&body).unwrap_or_default()))
}

fn authenticate(
    service: &Service,
    context: &Context,
    head: &Head,
    form: &Form<'_>,
) -> Result<AuthenticatedClient, ExchangeError> {
    let find = |client_id: &str| service.config.clients.get(client_id).cloned();
    let client = client_auth::authenticate(form, head.authorization.as_deref(), find)?;
    // Only now: a client_id that nobody proved would let anybody write into our log.
    context.note(|facts| facts.client_id = Some(client.client_id.clone()));
    Ok(client)
}

/// The parameters of every exchange (RFC 8693 §2.1), there and of a supported type.
struct Parameters<'f> {
    subject_token: &'f str,
    scope: &'f str,
}

impl<'f> Parameters<'f> {
    fn read(form: &'f Form<'_>) -> Result<Self, ExchangeError> {
        let scope = required(form, "scope")?;
        let subject_token = required(form, "subject_token")?;
        if required(form, "subject_token_type")? != ACCESS_TOKEN_TYPE {
            return Err(ExchangeError::SubjectTokenType);
        }
        let requested = optional(form, "requested_token_type")?;
        if requested.is_some_and(|requested| ![ACCESS_TOKEN_TYPE, JWT_TYPE].contains(&requested)) {
            return Err(ExchangeError::RequestedTokenType);
        }
        Ok(Self { subject_token, scope })
    }
}

fn required<'f>(form: &'f Form<'_>, name: &'static str) -> Result<&'f str, ExchangeError> {
    optional(form, name)?.ok_or(ExchangeError::Missing(name))
}

fn optional<'f>(form: &'f Form<'_>, name: &'static str) -> Result<Option<&'f str>, ExchangeError> {
    match form.get(name) {
        Some("") => Err(ExchangeError::Empty(name)),
        value => Ok(value),
    }
}

fn find_subject(
    service: &Service,
    context: &Context,
    subject_token: &str,
) -> Result<Outstanding, ExchangeError> {
    if !subject_token.starts_with(PREFIX) {
        return Err(ExchangeError::ForeignSubjectToken);
    }
    let token = SubjectToken::parse(subject_token).ok_or(ExchangeError::UnknownSubjectToken)?;
    let digest = token.digest();
    context.note(|facts| facts.subject_token_id = Some(digest.id()));
    match service.store.find(context.host(), &token, &digest)? {
        Found::Outstanding(subject) => {
            context.note(|facts| {
                facts.user_id = Some(subject.grant.user_id.clone());
                facts.context = service.audited(&subject.grant.context);
                facts.caller = Some(subject.mint.caller.clone());
            });
            Ok(subject)
        }
        Found::Spent(mint, exchange) => {
            context.note(|facts| facts.caller = Some(mint.caller.clone()));
            Err(ExchangeError::SpentSubjectToken(Box::new((mint, exchange))))
        }
        Found::Expired(_) => Err(ExchangeError::ExpiredSubjectToken),
        Found::Unknown => Err(ExchangeError::UnknownSubjectToken),
    }
}

/// The one resource that the access token will be bound to (RFC 8707 §2).
fn find_resource<'s>(
    service: &'s Service,
    context: &Context,
    client: &Client,
    form: &Form<'_>,
) -> Result<(&'s str, &'s Resource), ExchangeError> {
    if form.get("audience").is_some() {
        return Err(ExchangeError::Audience);
    }
    let indicator = form.get("resource").filter(|resource| !resource.is_empty());
    let indicator = indicator.ok_or(ExchangeError::NoResource)?;
    let Some((indicator, resource)) = service.config.resources.get_key_value(indicator) else {
        let absolute = uri::is_absolute(indicator);
        return Err(if absolute {
            ExchangeError::ResourceRefused
        } else {
            ExchangeError::MalformedResource
        });
    };
    if client.resources.as_ref().is_some_and(|allowed| !allowed.contains(indicator)) {
        return Err(ExchangeError::ResourceRefused);
    }
    context.note(|facts| facts.resource = Some(indicator.clone()));
    Ok((indicator, resource))
}

fn grant_scope(
    context: &Context,
    requested: &str,
    resource: &Resource,
) -> Result<String, ExchangeError> {
    let requested = scope::parse(requested).ok_or(ExchangeError::MalformedScope)?;
    let granted = scope::cut(&requested, &resource.scopes).join(" ");
    if granted.is_empty() && !resource.scopes.is_empty() {
        return Err(ExchangeError::NoScope);
    }
    context.note(|facts| facts.scope = Some(granted.clone()));
    Ok(granted)
}

/// Who is acting; `None` where nobody has to say so and nobody did.
async fn authenticate_actor(
    service: &Service,
    context: &Context,
    client: &Client,
    form: &Form<'_>,
) -> Result<Option<String>, ExchangeError> {
    let token_type = optional(form, "actor_token_type")?;
    let Some(token) = optional(form, "actor_token")? else {
        if token_type.is_some() {
            return Err(ExchangeError::LoneActorTokenType);
        }
        if service.config.actor_tokens.required || client.actor_token_required {
            return Err(ExchangeError::ActorRequired);
        }
        return Ok(None);
    };
    if token_type.ok_or(ExchangeError::Missing("actor_token_type"))? != ACCESS_TOKEN_TYPE {
        return Err(ExchangeError::ActorTokenType);
    }
    let actors = &service.config.actor_tokens.verifier;
    if actors.is_empty() {
        return Err(ExchangeError::ActorsNotAccepted);
    }
    let verified = actors.verify(context, token).await.map_err(ExchangeError::Actor)?;
    let actor = verified.subject.clone().ok_or(ExchangeError::NamelessActor)?;
    context.note(|facts| facts.actor_id = Some(actor.clone()));
    Ok(Some(actor))
}

/// Lets the operator's function add its claims.
fn run_script(
    custom_claims: &CustomClaims,
    host: &dyn Host,
    claims: &AccessTokenClaims<'_>,
    subject_token_context: &str,
) -> Result<Map<String, Value>, ExchangeError> {
    let token = ScriptToken {
        iss: claims.iss,
        sub: claims.sub,
        aud: claims.aud,
        client_id: claims.client_id,
        jti: claims.jti,
        scope: claims.scope,
        act: claims.act.as_ref(),
    };
    let token = serde_json::to_string(&token).map_err(|_| HostFailure("memory for claims"))?;
    let input = Input { token: &token, grant_type: TOKEN_EXCHANGE, subject_token_context };
    match custom_claims.script.run(&input, &mut |line| host.debug(&format!("console: {line}"))) {
        Ok(custom) => Ok(custom),
        Err(error @ ClaimsError::Denied(_)) => Err(error.into()),
        Err(error) => {
            host.count(Counter::CustomClaimsFailed);
            host.warn(&format!("custom claims: {error}"));
            match custom_claims.on_error {
                OnError::Refuse => Err(error.into()),
                OnError::IssueWithout => Ok(Map::new()),
            }
        }
    }
}

fn spend(
    service: &Service,
    context: &Context,
    subject: Outstanding,
    exchange: Exchange,
) -> Result<(), ExchangeError> {
    service.store.spend(context.host(), subject, exchange).map_err(|error| match error {
        NotSpent::Already(winner) => ExchangeError::SpentSubjectToken(winner),
        // As whoever comes a moment later is told.
        NotSpent::Forgotten => ExchangeError::UnknownSubjectToken,
        NotSpent::Expired => ExchangeError::ExpiredSubjectToken,
        NotSpent::Host(failure) => ExchangeError::Host(failure),
    })
}

impl Refusal for ExchangeError {
    fn response(&self) -> ErrorResponse {
        let invalid_request =
            |description: &str| ErrorResponse::new(400, "invalid_request", description);
        let invalid_target =
            |description: &str| ErrorResponse::new(400, "invalid_target", description);
        let invalid_scope =
            |description: &str| ErrorResponse::new(400, "invalid_scope", description);
        match self {
            Self::BodyTooLong => body_too_long(),
            Self::Form(FormError::Encoding) => invalid_request("the form is not properly encoded"),
            Self::Form(FormError::Repeated) => invalid_request("a parameter is given twice"),
            Self::Form(FormError::SeveralResources) => {
                invalid_target("only one resource may be given")
            }
            Self::Client(ClientAuthError::NoClientId | ClientAuthError::EmptyClientId) => {
                invalid_request("client_id is missing")
            }
            Self::Client(ClientAuthError::TwoMethods) => invalid_request(
                "client_secret must not be given in the form beside the Authorization header",
            ),
            Self::Client(_) => {
                ErrorResponse::new(401, "invalid_client", "client authentication failed")
                    .challenged(format!("Basic realm=\"{REALM}\", charset=\"UTF-8\""))
            }
            Self::Missing(name) => invalid_request(&format!("{name} is missing")),
            Self::Empty(name) => invalid_request(&format!("{name} is empty")),
            Self::SubjectTokenType => invalid_request(
                "subject_token_type must be urn:ietf:params:oauth:token-type:access_token",
            ),
            Self::RequestedTokenType => invalid_request(
                "requested_token_type must be urn:ietf:params:oauth:token-type:access_token or \
                 urn:ietf:params:oauth:token-type:jwt",
            ),
            Self::ForeignSubjectToken | Self::UnknownSubjectToken => {
                invalid_request("the subject token is invalid")
            }
            Self::ExpiredSubjectToken => invalid_request("the subject token has expired"),
            Self::SpentSubjectToken(_) => invalid_request("the subject token was already used"),
            Self::NoResource => invalid_target("resource is missing"),
            Self::MalformedResource => {
                invalid_target("resource must be an absolute URI without a fragment")
            }
            Self::ResourceRefused => {
                invalid_target("the resource is unknown or not available to this client")
            }
            Self::Audience => invalid_target("audience is not supported, use resource"),
            Self::MalformedScope => {
                invalid_scope("scope must be a list of scopes with one space between them")
            }
            Self::NoScope => {
                invalid_scope("none of the requested scopes can be granted for this resource")
            }
            Self::ActorRequired => invalid_request("actor_token is required"),
            Self::LoneActorTokenType => {
                invalid_request("actor_token_type is given without actor_token")
            }
            Self::ActorTokenType => invalid_request(
                "actor_token_type must be urn:ietf:params:oauth:token-type:access_token",
            ),
            Self::Actor(BearerError::Upstream(_)) => temporarily_unavailable(),
            Self::ActorsNotAccepted | Self::Actor(_) | Self::NamelessActor => {
                invalid_request("the actor token is invalid, expired or lacks the openid scope")
            }
            Self::CustomClaims(ClaimsError::Denied(message)) => {
                ErrorResponse::new(400, "access_denied", message)
            }
            Self::CustomClaims(_) => {
                ErrorResponse::new(500, "server_error", "the custom claims could not be made")
            }
            Self::Sign(SignError::Key(_)) => {
                ErrorResponse::new(500, "server_error", "the access token could not be signed")
            }
            Self::Sign(SignError::Host(..)) | Self::Host(_) => temporarily_unavailable(),
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::BodyTooLong => "body_too_long",
            Self::Form(FormError::Encoding) => "form_malformed",
            Self::Form(FormError::Repeated) => "parameter_repeated",
            Self::Form(FormError::SeveralResources) => "several_resources",
            Self::Client(_) => "client_authentication",
            Self::Missing(_) => "parameter_missing",
            Self::Empty(_) => "parameter_empty",
            Self::SubjectTokenType => "subject_token_type",
            Self::RequestedTokenType => "requested_token_type",
            Self::ForeignSubjectToken => "subject_token_foreign",
            Self::UnknownSubjectToken => "subject_token_unknown",
            Self::ExpiredSubjectToken => "subject_token_expired",
            Self::SpentSubjectToken(_) => super::REPLAYED,
            Self::NoResource | Self::MalformedResource => "resource_malformed",
            Self::ResourceRefused => "resource_refused",
            Self::Audience => "audience_given",
            Self::MalformedScope => "scope_malformed",
            Self::NoScope => "scope_empty",
            Self::ActorRequired => "actor_required",
            Self::LoneActorTokenType | Self::ActorTokenType => "actor_token_type",
            Self::ActorsNotAccepted => "actors_not_accepted",
            Self::Actor(BearerError::Upstream(_)) => "callout_failed",
            Self::Actor(_) | Self::NamelessActor => "actor_token",
            Self::CustomClaims(ClaimsError::Denied(_)) => "custom_claims_denied",
            Self::CustomClaims(_) => "custom_claims_failed",
            Self::Sign(_) => "signing_failed",
            Self::Host(_) => "host_failed",
        }
    }

    fn replayed(&self) -> Option<(&Mint, &Exchange)> {
        match self {
            Self::SpentSubjectToken(spent) => Some((&spent.0, &spent.1)),
            _ => None,
        }
    }
}
