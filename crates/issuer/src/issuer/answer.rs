//! The answer to a request that is the filter's, with everything to be recorded about the request.

use super::refusal::Refusal;
use crate::audit::{AuditEvent, Replay, Trail};
use crate::host::HostFailure;
use crate::step::Response;

/// The filter's answer to a request.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The response to the caller.
    pub(crate) response: Response,
    /// The event for the audit log; `None` for a public document and for the page.
    pub(crate) event: Option<Box<AuditEvent>>,
    /// The whole reason of a refusal, for the operator's log.
    pub(crate) explanation: Option<String>,
    /// The alarm about a spent token that was presented again.
    pub(crate) alarm: Option<Box<Replay>>,
    /// A counter that moves beside the event's.
    pub(crate) counter: Option<&'static str>,
}

impl Answer {
    /// Answers with a public document, which leaves no event.
    pub(super) const fn document(response: Response) -> Self {
        Self { response, event: None, explanation: None, alarm: None, counter: None }
    }

    /// Answers with the outcome of an endpoint.
    pub(super) fn new(outcome: Result<Response, Refusal>, trail: &Trail) -> Self {
        match outcome {
            Ok(response) => {
                Self { event: Some(Box::new(trail.granted())), ..Self::document(response) }
            }
            Err(mut refusal) => Self {
                alarm: refusal.take_alarm(),
                event: Some(Box::new(trail.refused(refusal.error(), refusal.reason()))),
                explanation: Some(refusal.to_string()),
                counter: refusal.counter(),
                response: refusal.into_response(),
            },
        }
    }

    /// Answers a request whose body the host announced and does not show.
    pub(crate) fn unreadable() -> Self {
        let refusal = Refusal::from(HostFailure("the body of a request"));
        let explanation = Some(refusal.to_string());
        Self { explanation, ..Self::document(refusal.into_response()) }
    }

    /// Answers a request whose endpoint stopped without a call under way. No endpoint does that; if
    /// one did, the caller would still get an answer.
    pub(crate) fn stalled(trail: &Trail) -> Self {
        Self::new(Err(Refusal::stalled()), trail)
    }
}

/// The outcome of an endpoint that must read a request to find out whose it is.
#[derive(Debug)]
pub(crate) enum Outcome<A> {
    /// The request is the filter's, and this is the answer.
    Answer(A),
    /// The request is the identity gateway's after all. It goes on byte for byte.
    PassThrough,
}

impl From<Response> for Outcome<Response> {
    fn from(response: Response) -> Self {
        Self::Answer(response)
    }
}

/// Makes the response to a granted request that has no body.
pub(super) fn empty(status: u16) -> Response {
    let headers = vec![("cache-control", "no-store".to_owned()), ("pragma", "no-cache".to_owned())];
    Response { status, headers, body: Vec::new() }
}

/// Makes the response to a granted request. The body may hold secrets, so no cache may keep it.
pub(super) fn secret_json(status: u16, body: &impl serde::Serialize) -> Response {
    let headers = vec![
        ("content-type", "application/json".to_owned()),
        ("cache-control", "no-store".to_owned()),
        ("pragma", "no-cache".to_owned()),
    ];
    // Structs of strings, numbers and lists always serialise.
    Response { status, headers, body: serde_json::to_vec(body).unwrap_or_default() }
}
