//! `POST /api/security-events`: a transmitter pushes a security event (RFC 8935), and the
//! impersonations that it concerns end.

use super::answer::empty;
use super::refusal::Refusal;
use super::request::Body;
use super::request_context::RequestContext;
use crate::media_type;
use crate::step::Response;

/// Takes a security event.
pub(super) async fn security_event(
    request: RequestContext<'_>,
    body: Body,
) -> Result<Response, Refusal> {
    take(request, body).await.map_err(Refusal::in_terms_of_events)
}

async fn take(request: RequestContext<'_>, body: Body) -> Result<Response, Refusal> {
    let RequestContext { service, context, trail, head } = request;
    if !media_type::is(&head.content_type, "application/secevent+jwt") {
        let told = "the content type must be application/secevent+jwt";
        return Err(Refusal::new(415, "invalid_request", "content_type", told));
    }
    let malformed = || Refusal::invalid_request("not_a_jwt", "the body is not a JWT");
    let token = std::str::from_utf8(body.whole()?).map_err(|_| malformed())?;
    let senders = &service.security_events.senders;
    let authorization = head.authorization.as_deref();
    let event = senders.security_event(context, token.trim_ascii(), authorization).await?;
    service.security_events.keep(&service.oversight, context, trail, event).await?;
    Ok(empty(202))
}
