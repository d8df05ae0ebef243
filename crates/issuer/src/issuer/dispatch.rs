//! Hands a request whose body is known to the endpoint that answers it.

use std::rc::Rc;

use super::answer::{Answer, Outcome};
use super::documents::Document;
use super::endpoints::{AnsweredBy, Endpoint, Handler, Route};
use super::refusal::Refusal;
use super::request::{Body, Head};
use super::request_context::RequestContext;
use super::service::Service;
use crate::audit::{Operation, Trail};
use crate::config::DocumentSource;
use crate::host::Host;
use crate::step::{Step, Task};

/// The decision about a request whose body is known.
pub(crate) enum Dispatch {
    /// The request is not the filter's. It goes on byte for byte.
    PassThrough,
    /// The request goes on as a `GET` without [`PARTIAL_HEADERS`](super::PARTIAL_HEADERS). The
    /// filter adds its own document to the one that comes back.
    Merge(Document, Option<Vec<u8>>),
    /// The filter answers at once.
    Answer(Answer),
    /// An endpoint of the filter runs, and may wait for calls.
    Run(Step<Outcome<Answer>>, Trail),
}

/// Decides about a request whose body is known, as far as its endpoint needs the body.
pub(crate) fn dispatch(
    service: &Rc<Service>,
    host: Rc<dyn Host>,
    route: Route,
    head: Head,
    body: Body,
) -> Dispatch {
    let endpoint = match route {
        Route::To(endpoint) => endpoint,
        Route::MethodNotAllowed(endpoint) => return method_not_allowed(service, endpoint, head),
    };
    match endpoint.answered_by() {
        AnsweredBy::Handler(_, operation, handler) => {
            run(service, host, operation, handler, head, body)
        }
        AnsweredBy::FormHandler(is_ours, operation, handler) => {
            if endpoint.needs_body(&head) && is_ours(service, &head, &body) {
                run(service, host, operation, handler, head, body)
            } else {
                Dispatch::PassThrough
            }
        }
        AnsweredBy::Document(document) => match service.config.documents {
            DocumentSource::Alone => {
                let alone = service.documents.alone(document, head.if_none_match.as_deref());
                Dispatch::Answer(Answer::document(alone))
            }
            DocumentSource::Merged => Dispatch::Merge(document, head.if_none_match),
        },
        AnsweredBy::Page(show) => match show(service, &head) {
            Some(page) => Dispatch::Answer(Answer::document(page)),
            None => Dispatch::PassThrough,
        },
    }
}

fn run(
    service: &Rc<Service>,
    host: Rc<dyn Host>,
    operation: Operation,
    handler: Handler,
    head: Head,
    body: Body,
) -> Dispatch {
    let service = Rc::clone(service);
    let trail = Trail::new(operation, head.request_id.clone());
    let step = Task::start(host, head.traceparent.clone(), |context| {
        let trail = trail.clone();
        async move {
            let request =
                RequestContext { service: &service, context: &context, trail: &trail, head: &head };
            let outcome = match handler(request, body).await {
                Ok(Outcome::PassThrough) => return Outcome::PassThrough,
                Ok(Outcome::Answer(response)) => Ok(response),
                Err(refusal) => Err(refusal),
            };
            Outcome::Answer(Answer::new(outcome, &trail))
        }
    });
    Dispatch::Run(step, trail)
}

fn method_not_allowed(service: &Service, endpoint: Endpoint, head: Head) -> Dispatch {
    let allowed = endpoint.allowed_methods(&service.config.paths);
    let refusal = Refusal::new(405, "invalid_request", "method_not_allowed", "")
        .telling(format!("only {allowed} is allowed here"))
        .allowing(allowed);
    let refusal = match endpoint {
        Endpoint::SecurityEvents => refusal.in_terms_of_events(),
        Endpoint::SessionBegin => refusal.in_terms_of_people(),
        _ => refusal,
    };
    Dispatch::Answer(match endpoint.answered_by() {
        AnsweredBy::Handler(_, operation, _) => {
            Answer::new(Err(refusal), &Trail::new(operation, head.request_id))
        }
        // Requests to pages are not audited: they show nothing by themselves.
        AnsweredBy::Page(_) => Answer::document(refusal.into_response()),
        AnsweredBy::FormHandler(..) | AnsweredBy::Document(_) => return Dispatch::PassThrough,
    })
}
