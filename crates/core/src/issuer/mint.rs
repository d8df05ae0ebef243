//! `POST /api/subject-tokens`: a backend asks for a subject token for one of its users.
//!
//! The caller is verified before its body is read any further: strangers learn nothing about what is
//! accepted. Whether the requester may impersonate that user was the backend's to decide; here it is
//! held accountable for it.

use std::rc::Rc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::service::Service;
use super::{Body, Head, REALM, bearer_token, body_too_long, secret_json, temporarily_unavailable};
use crate::bearer::BearerError;
use crate::config::UserLookup;
use crate::media_type;
use crate::oauth::error::{ErrorResponse, Refusal};
use crate::step::{Context, Outcome, Response};
use crate::store::{Grant, Mint, NotStored};
use crate::upstream::{Upstream, UpstreamFailure, ask};

/// The longest `userId`, in characters.
const MAX_USER_ID: usize = 255;

/// Why no subject token was minted.
#[derive(Debug, thiserror::Error)]
enum MintError {
    #[error("method not allowed")]
    Method,
    #[error("no bearer token")]
    NoBearer,
    #[error("bearer refused: {0}")]
    Bearer(#[from] BearerError),
    #[error("content type is not JSON")]
    ContentType,
    #[error("body over the limit")]
    BodyTooLong,
    #[error("body is not a JSON object")]
    NotAnObject,
    #[error(
        "userId is missing or not a string of 1 to {MAX_USER_ID} characters without control characters"
    )]
    UserId,
    #[error("context is not an object")]
    Context,
    #[error("context of {len} bytes, {max} are allowed")]
    ContextTooLong { len: usize, max: usize },
    #[error("no such user")]
    UserNotFound,
    #[error("the caller may not look the user up")]
    UserLookupRefused,
    #[error(transparent)]
    Upstream(#[from] UpstreamFailure),
    #[error("not stored: {0}")]
    NotStored(#[from] NotStored),
}

/// The request (specification, section 4.1). Other members are ignored.
#[derive(Deserialize)]
struct MintRequest {
    #[serde(rename = "userId", default)]
    user_id: Value,
    #[serde(default = "empty_object")]
    context: Value,
}

/// The answer (specification, section 4.1).
#[derive(Serialize)]
struct MintResponse {
    #[serde(rename = "subjectToken")]
    subject_token: String,
    #[serde(rename = "expiresIn")]
    expires_in: u64,
}

fn empty_object() -> Value {
    Value::Object(serde_json::Map::new())
}

/// Mints a subject token.
pub(super) async fn mint(
    service: Rc<Service>,
    context: Context,
    head: Head,
    body: Body,
) -> Outcome {
    Ok(try_mint(&service, &context, &head, body).await?)
}

/// Answers any other method on this path.
pub(super) async fn method_not_allowed() -> Outcome {
    Err(MintError::Method.into())
}

async fn try_mint(
    service: &Service,
    context: &Context,
    head: &Head,
    body: Body,
) -> Result<Response, MintError> {
    let token = bearer_token(head).ok_or(MintError::NoBearer)?;
    let caller = service.config.subject_tokens.callers.verify(context, token).await?;
    let caller = caller.caller().unwrap_or_default().to_owned();
    context.note(|facts| facts.caller = Some(caller.clone()));

    if !media_type::is(&head.content_type, "application/json") {
        return Err(MintError::ContentType);
    }
    let Body::Whole(body) = body else { return Err(MintError::BodyTooLong) };
    let grant = parse(&body, service.config.subject_tokens.max_context_bytes)?;
    context.note(|facts| {
        facts.user_id = Some(grant.user_id.clone());
        facts.context = service.audited(&grant.context);
    });

    if let Some(lookup) = &service.config.subject_tokens.user_lookup {
        look_up(lookup, context, head, &grant.user_id).await?;
    }

    let host = context.host();
    let now = host.now();
    let lifetime = service.config.subject_tokens.lifetime;
    let mint = Mint { caller, request_id: context.request_id(), at_millis: now.millis() };
    let (token, digest) = service.store.mint(host, mint, grant, now.after(lifetime))?;
    context.note(|facts| facts.subject_token_id = Some(digest.id()));

    let body = MintResponse { subject_token: token.reveal(), expires_in: lifetime.as_secs() };
    Ok(secret_json(201, serde_json::to_vec(&body).unwrap_or_default()))
}

/// Asks the identity gateway whether there is such a user, as the caller.
async fn look_up(
    lookup: &UserLookup,
    context: &Context,
    head: &Head,
    user_id: &str,
) -> Result<(), MintError> {
    let authorization =
        head.authorization.as_deref().and_then(|value| std::str::from_utf8(value).ok());
    let call =
        lookup.call(user_id, authorization.unwrap_or_default()).ok_or(MintError::UserNotFound)?;
    let answer = ask(context, Upstream::UserLookup, call).await?;
    match answer.status {
        200..=299 => Ok(()),
        404 => Err(MintError::UserNotFound),
        401 | 403 => Err(MintError::UserLookupRefused),
        _ => Err(answer.unexpected(context.host()).into()),
    }
}

/// Reads the body.
fn parse(body: &[u8], max_context_bytes: usize) -> Result<Grant, MintError> {
    // `serde` would take a list for the members in order.
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err(MintError::NotAnObject);
    }
    let request: MintRequest = serde_json::from_slice(body).map_err(|_| MintError::NotAnObject)?;
    let user_id = match request.user_id {
        Value::String(user_id) if is_user_id(&user_id) => user_id,
        _ => return Err(MintError::UserId),
    };
    if !request.context.is_object() {
        return Err(MintError::Context);
    }
    let context = request.context.to_string();
    if context.len() > max_context_bytes {
        return Err(MintError::ContextTooLong { len: context.len(), max: max_context_bytes });
    }
    Ok(Grant { user_id, context })
}

fn is_user_id(text: &str) -> bool {
    (1..=MAX_USER_ID).contains(&text.chars().count()) && !text.chars().any(char::is_control)
}

impl Refusal for MintError {
    fn response(&self) -> ErrorResponse {
        let invalid_request =
            |description: &str| ErrorResponse::new(400, "invalid_request", description);
        match self {
            Self::Method => ErrorResponse {
                allow: Some("POST"),
                ..ErrorResponse::new(405, "invalid_request", "only POST is allowed here")
            },
            // RFC 6750 §3.1: who did not try to authenticate is told how to, not what was wrong.
            Self::NoBearer => {
                ErrorResponse::new(401, "invalid_token", "a bearer access token is required")
                    .challenged(format!("Bearer realm=\"{REALM}\""))
            }
            Self::Bearer(BearerError::InsufficientScope(scopes)) => {
                let challenge = format!(
                    "Bearer realm=\"{REALM}\", error=\"insufficient_scope\", scope=\"{}\"",
                    scopes.join(" ")
                );
                ErrorResponse::new(
                    403,
                    "insufficient_scope",
                    "the access token lacks a required scope",
                )
                .challenged(challenge)
            }
            Self::Bearer(BearerError::Upstream(_)) | Self::Upstream(_) => temporarily_unavailable(),
            Self::UserNotFound => {
                ErrorResponse::new(404, "user_not_found", "there is no user with this userId")
            }
            Self::UserLookupRefused => ErrorResponse::new(
                403,
                "insufficient_scope",
                "the access token does not allow looking up this user",
            )
            .challenged(format!("Bearer realm=\"{REALM}\", error=\"insufficient_scope\"")),
            Self::Bearer(_) => {
                ErrorResponse::new(401, "invalid_token", "the access token is invalid or expired")
                    .challenged(format!(
                        "Bearer realm=\"{REALM}\", error=\"invalid_token\", \
                         error_description=\"the access token is invalid or expired\""
                    ))
            }
            Self::ContentType => ErrorResponse::new(
                415,
                "invalid_request",
                "the content type must be application/json",
            ),
            Self::BodyTooLong => body_too_long(),
            Self::NotAnObject => {
                invalid_request("the body must be a JSON object, each member given once")
            }
            Self::UserId => invalid_request(
                "userId must be a string of 1 to 255 characters without control characters",
            ),
            Self::Context => invalid_request("context must be an object"),
            Self::ContextTooLong { max, .. } => ErrorResponse::new(
                413,
                "invalid_request",
                format!("context must not be longer than {max} bytes as compact JSON"),
            ),
            Self::NotStored(_) => temporarily_unavailable(),
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Method => "method_not_allowed",
            Self::NoBearer => "bearer_missing",
            Self::Bearer(error) => error.reason(),
            Self::ContentType => "content_type",
            Self::BodyTooLong => "body_too_long",
            Self::NotAnObject => "body_malformed",
            Self::UserId => "user_id",
            Self::Context => "context",
            Self::ContextTooLong { .. } => "context_too_long",
            Self::UserNotFound => "user_not_found",
            Self::UserLookupRefused => "user_lookup_refused",
            Self::Upstream(_) => "callout_failed",
            Self::NotStored(NotStored::Full) => super::STORE_FULL,
            Self::NotStored(NotStored::Host(_)) => "host_failed",
        }
    }
}

#[cfg(test)]
mod tests;
