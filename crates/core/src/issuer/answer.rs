//! The end of a request that is ours.

use super::refusal::Refusal;
use crate::audit::{Event, Replay, Trail};
use crate::host::HostFailure;
use crate::step::Response;

/// What the caller gets, and what is written down about it.
#[derive(Debug)]
pub struct Answer {
    /// What the caller gets.
    pub response: Response,
    /// What the audit log gets; `None` for a document that anybody may read.
    pub event: Option<Box<Event>>,
    /// What the operator's log gets besides: why a request was refused, in full.
    pub explanation: Option<String>,
    /// That a spent token was presented again.
    pub alarm: Option<Box<Replay>>,
    /// A counter that is moved besides that of the event.
    pub counter: Option<&'static str>,
}

impl Answer {
    /// A document: nobody is accountable for having read it.
    pub(super) const fn document(response: Response) -> Self {
        Self { response, event: None, explanation: None, alarm: None, counter: None }
    }

    /// How an endpoint ended.
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

    /// The answer to a request of which the host does not show what it announced.
    pub(crate) fn unreadable() -> Self {
        let refusal = Refusal::from(HostFailure("the body of a request"));
        let explanation = Some(refusal.to_string());
        Self { explanation, ..Self::document(refusal.into_response()) }
    }

    /// The answer to a request whose endpoint waits for what nobody will bring. None does; were one to, the
    /// caller must get an answer all the same.
    pub(crate) fn stalled(trail: &Trail) -> Self {
        Self::new(Err(Refusal::stalled()), trail)
    }
}

/// How an endpoint ends that reads a request in order to find out whose it is.
#[derive(Debug)]
pub enum Outcome<A> {
    /// The request is ours, and this is the answer.
    Answer(A),
    /// The request belongs to the gateway after all, and goes on byte for byte.
    PassThrough,
}

impl From<Response> for Outcome<Response> {
    fn from(response: Response) -> Self {
        Self::Answer(response)
    }
}

/// A granted request of which there is nothing to say.
pub(super) fn nothing(status: u16) -> Response {
    let headers = vec![("cache-control", "no-store".to_owned()), ("pragma", "no-cache".to_owned())];
    Response { status, headers, body: Vec::new() }
}

/// A granted request: the answer, with the headers that every answer with a secret has.
pub(super) fn secret_json(status: u16, body: Vec<u8>) -> Response {
    let headers = vec![
        ("content-type", "application/json".to_owned()),
        ("cache-control", "no-store".to_owned()),
        ("pragma", "no-cache".to_owned()),
    ];
    Response { status, headers, body }
}
