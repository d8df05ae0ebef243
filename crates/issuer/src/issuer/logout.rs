//! `POST /oidc/backchannel-logout`: an identity gateway says that a session has ended (OpenID
//! Connect Back-Channel Logout 1.0 §2.5), and the impersonations of its actor end.

use super::answer::empty;
use super::refusal::Refusal;
use super::request::Body;
use super::request_context::RequestContext;
use crate::media_type;
use crate::step::Response;

/// Takes a logout token.
pub(super) async fn logout(request: RequestContext<'_>, body: Body) -> Result<Response, Refusal> {
    let RequestContext { service, context, trail, head } = request;
    if !media_type::is(&head.content_type, "application/x-www-form-urlencoded") {
        let told = "the content type must be application/x-www-form-urlencoded";
        return Err(Refusal::new(415, "invalid_request", "content_type", told));
    }
    let form = body.form(head)?;
    let token = form.get("logout_token");
    let missing = || Refusal::invalid_request("parameter_missing", "logout_token is missing");
    let token = token.ok_or_else(missing)?;
    let event = service.logouts.senders.logout_token(context, token).await;
    let event = event.map_err(|error| Refusal::from(error).in_terms_of_oauth())?;
    service.logouts.keep(&service.oversight, context, trail, event).await?;
    Ok(empty(200))
}
