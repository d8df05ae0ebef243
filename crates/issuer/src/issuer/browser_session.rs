//! Browser sessions: `POST /.impersonation/begin`, `GET /.impersonation/me` and
//! `POST /.impersonation/end` on the host of a session.
//!
//! A session begins by a form that a support console posts in a tab. The checks of the tab come
//! before all others: no page of a stranger spends a token, or puts a session into somebody's
//! browser. The host names the subject token, so a token begins no session but its own. Then the
//! exchange decides, with all of its checks; its access token goes into the cookie.
//!
//! `begin` answers with a page that goes on, and not with a redirect: a browser withholds a strict
//! cookie from a redirect that another site has caused.
//!
//! `me` and `end` stand before `jwt_authn` and the guard. So they verify the cookie themselves.

pub(super) mod pages;

use serde::Serialize;
use serde_json::{Map, Value};

use super::answer::secret_json;
use super::exchange::issue;
use super::issued_token::IssuedToken;
use super::listing::ListedContext;
use super::recipient::Recipient;
use super::refusal::Refusal;
use super::request::Body;
use super::request_context::RequestContext;
use super::service::Service;
use crate::browser_session::{expired, holding, is_landing};
use crate::config::BrowserSessions;
use crate::host::UnixTime;
use crate::media_type;
use crate::oauth::TOKEN_EXCHANGE;
use crate::oauth::form::Form;
use crate::state::revocations::Owner;
use crate::state::store::SubjectToken;
use crate::step::Response;

/// Begins a session.
pub(super) async fn begin(request: RequestContext<'_>, body: Body) -> Result<Response, Refusal> {
    begin_in_tab(request, body).await.map_err(Refusal::in_terms_of_people)
}

async fn begin_in_tab(request: RequestContext<'_>, body: Body) -> Result<Response, Refusal> {
    let (sessions, head) = (configured(request.service)?, request.head);
    if !head.session.navigates_from(&sessions.begin_from) {
        let told = "only a page of the support console may begin a session, in a tab of its own";
        return Err(Refusal::access_denied("another_origin", told));
    }
    if !media_type::is(&head.content_type, "application/x-www-form-urlencoded") {
        let told = "the content type must be application/x-www-form-urlencoded";
        return Err(Refusal::new(415, "invalid_request", "content_type", told));
    }
    let form = body.form(head)?;
    if head.session.label(&sessions.domain) != id_of_token(&form).as_deref() {
        let told = "the host is not that of the subject token";
        return Err(Refusal::invalid_request("another_session", told));
    }
    let landing = form.get("landing").unwrap_or(&sessions.landing);
    if !is_landing(landing) {
        let told = "landing must be a path of the host of the session";
        return Err(Refusal::invalid_request("landing", told));
    }
    if form.get("grant_type") != Some(TOKEN_EXCHANGE) {
        let told = "grant_type must be urn:ietf:params:oauth:grant-type:token-exchange";
        return Err(Refusal::invalid_request("grant_type", told));
    }
    let issued = issue(request, &form, Recipient::Browser).await?;
    let cookie = holding(&issued.access_token, issued.expires_in);
    Ok(pages::response(200, vec![("set-cookie", cookie)], pages::going_on(landing)))
}

/// Returns the id of the subject token in a form; `None` if it has none.
fn id_of_token(form: &Form<'_>) -> Option<String> {
    let token = SubjectToken::parse(form.get("subject_token")?)?;
    Some(token.id(&token.digest()).to_string())
}

/// The facts about a session, for the banner and for the application.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Session<'s> {
    id: &'s str,
    user_id: &'s str,
    #[serde(skip_serializing_if = "Option::is_none")]
    actor_id: Option<&'s str>,
    client_id: &'s str,
    scope: &'s str,
    resource: &'s str,
    read_only: bool,
    context: ListedContext<'s>,
    issued_at: String,
    expires_at: String,
    /// The address to which the tab goes in the end.
    ended: &'s str,
}

/// Shows the session.
pub(super) async fn me(request: RequestContext<'_>) -> Result<Response, Refusal> {
    let RequestContext { service, context, .. } = request;
    let sessions = configured(service)?;
    let token = live(request, sessions).await?;
    let impersonation = token.impersonation().ok_or_else(ended)?;
    let kept = if service.config.impersonations.context.is_empty() {
        Vec::new()
    } else {
        // The list may have had no room for the session, and its store may fail.
        let entry = service.oversight.list.find(context, impersonation.id).await;
        entry.ok().flatten().map(|entry| entry.context).unwrap_or_default()
    };
    let claims = token.claims();
    Ok(secret_json(
        200,
        &Session {
            id: impersonation.id,
            user_id: impersonation.user_id,
            actor_id: impersonation.actor_id,
            client_id: impersonation.client_id,
            scope: claims.get("scope").and_then(Value::as_str).unwrap_or_default(),
            resource: impersonation.resource,
            read_only: sessions.read_only,
            context: ListedContext::Excerpt(&kept),
            issued_at: time(claims, "iat"),
            expires_at: time(claims, "exp"),
            ended: &sessions.ended,
        },
    ))
}

/// Ends the session.
pub(super) async fn end(request: RequestContext<'_>) -> Result<Response, Refusal> {
    #[derive(Serialize)]
    struct Ended<'s> {
        location: &'s str,
    }

    let RequestContext { service, context, trail, .. } = request;
    let sessions = configured(service)?;
    let token = live(request, sessions).await?;
    let impersonation = token.impersonation().ok_or_else(ended)?;
    trail.note(|facts| {
        facts.subject_token_id = Some(impersonation.id.to_owned());
        facts.user_id = Some(impersonation.user_id.to_owned());
        facts.actor_id = impersonation.actor_id.map(str::to_owned);
        facts.client_id = Some(impersonation.client_id.to_owned());
        facts.resource = Some(impersonation.resource.to_owned());
    });
    let owner = Owner::Client(impersonation.client_id.to_owned());
    service.oversight.end_anyway(context, impersonation.id, &owner).await?;
    trail.is_done();
    let mut response = secret_json(200, &Ended { location: &sessions.ended });
    response.headers.push(("set-cookie", expired()));
    // The directive "cookies" would take the cookies of all sessions.
    response.headers.push(("clear-site-data", r#""storage", "cache""#.to_owned()));
    Ok(response)
}

/// Returns the verified access token of the session of the request's host.
async fn live(
    request: RequestContext<'_>,
    sessions: &BrowserSessions,
) -> Result<IssuedToken, Refusal> {
    let RequestContext { service, context, head, .. } = request;
    if !head.session.is_same_origin(&head.method) {
        let told = "only pages of this host may send this request";
        return Err(Refusal::access_denied("another_origin", told));
    }
    let label = head.session.label(&sessions.domain).ok_or_else(ended)?;
    let token = head.session.token().and_then(|token| service.own_tokens.verify(token));
    let is_of_session = |token: &IssuedToken| {
        token
            .impersonation()
            .is_some_and(|one| one.id == label && one.resource == sessions.resource)
    };
    let token = token.filter(is_of_session).ok_or_else(ended)?;
    let known = service.oversight.revocations.current_view(context).await?;
    if token.has_ended(&known, context.host().now()) {
        return Err(ended());
    }
    Ok(token)
}

fn configured(service: &Service) -> Result<&BrowserSessions, Refusal> {
    let told = "there are no browser sessions";
    let sessions = service.config.browser_sessions.as_ref();
    sessions.ok_or_else(|| Refusal::not_found("impersonation_unknown", told))
}

fn ended() -> Refusal {
    let told = "this host has no session, or the session has ended";
    Refusal::new(401, "invalid_token", "session_ended", told).challenged_for_bearer()
}

/// Returns the time of a claim.
fn time(claims: &Map<String, Value>, name: &str) -> String {
    let seconds = claims.get(name).and_then(Value::as_i64).unwrap_or_default();
    UnixTime::from_secs(seconds).rfc3339().to_string()
}
