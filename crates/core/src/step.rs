//! The vocabulary between the core and whoever drives it: calls out, replies in, an answer at the end.
//!
//! An endpoint is an `async fn`: the compiler turns it into the state machine that we would otherwise
//! write by hand, and the checks stay in one function, in the order that makes them safe. Nothing
//! runs it but [`Task`]: there is no executor, no waker and no I/O. Where the protocol needs the
//! network it awaits [`Context::call`], the task stops there, and [`Step::Call`] tells the driver what
//! to send. [`Task::resume`] takes the task itself, so that a reply cannot be used twice.

use std::cell::RefCell;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::audit::{Event, Facts, Operation, Replay};
use crate::host::Host;
use crate::oauth::error::{ErrorResponse, Refusal};
use crate::secret::redacted;

/// An answer to the caller.
#[derive(Clone, PartialEq, Eq)]
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    /// Header fields, names in lower case. The values are ours: ASCII without line breaks.
    pub headers: Vec<(&'static str, String)>,
    /// The body; empty for none.
    pub body: Vec<u8>,
}

/// The end of a request that is ours: the answer, and what to write down about it.
#[derive(Debug)]
pub struct Finished {
    /// What the caller gets.
    pub response: Response,
    /// What the audit log gets; `None` for a document that anybody may read.
    pub event: Option<Box<Event>>,
    /// What the operator's log gets besides: why a request was refused, in full.
    pub explanation: Option<String>,
    /// That a spent token was presented again.
    pub replay: Option<Box<Replay>>,
}

impl Finished {
    /// A document: nobody is accountable for having read it.
    pub const fn document(response: Response) -> Self {
        Self { response, event: None, explanation: None, replay: None }
    }
}

/// An HTTP request that Envoy must send for us.
#[derive(Clone, PartialEq, Eq)]
pub struct Call {
    /// The Envoy cluster.
    pub cluster: Rc<str>,
    /// `GET` or `POST`.
    pub method: &'static str,
    /// `http` or `https`, for `:scheme`.
    pub scheme: Rc<str>,
    /// The `:authority`.
    pub authority: Rc<str>,
    /// The path with its query.
    pub path: String,
    /// Further header fields.
    pub headers: Vec<(&'static str, String)>,
    /// The body; empty for none.
    pub body: Vec<u8>,
    /// When Envoy gives up.
    pub timeout: Duration,
}

/// What came of a [`Call`].
#[derive(Clone, PartialEq, Eq)]
pub enum Reply {
    /// An upstream answered.
    Http {
        /// Its status.
        status: u16,
        /// Whether its content type is JSON.
        json: bool,
        /// Its whole body.
        body: Vec<u8>,
    },
    /// Nobody answered: refused, reset, timed out, no such cluster.
    Failed(CallFailure),
}

/// Why there was no reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CallFailure {
    /// Envoy would not send it: no such cluster, no healthy endpoint, too many requests.
    #[error("the call could not be sent")]
    NotSent,
    /// The connection ended before the reply did, or the reply was too long.
    #[error("the reply was cut off")]
    CutOff,
}

// Header fields and bodies hold tokens and credentials: of them only names and lengths are printed.

impl fmt::Debug for Response {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Response")
            .field("status", &self.status)
            .field("headers", &names(&self.headers))
            .field("body", &redacted(&self.body))
            .finish()
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cluster, method, scheme, authority, path, headers, body, timeout } = self;
        formatter
            .debug_struct("Call")
            .field("cluster", cluster)
            .field("request", &format_args!("{method} {scheme}://{authority}{path}"))
            .field("headers", &names(headers))
            .field("body", &redacted(body))
            .field("timeout", timeout)
            .finish()
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http { status, json, body } => formatter
                .debug_struct("Http")
                .field("status", status)
                .field("json", json)
                .field("body", &redacted(body))
                .finish(),
            Self::Failed(failure) => formatter.debug_tuple("Failed").field(failure).finish(),
        }
    }
}

fn names<'h>(headers: &'h [(&'static str, String)]) -> Vec<&'h str> {
    headers.iter().map(|(name, _)| *name).collect()
}

/// What the driver does next.
#[must_use]
pub enum Step {
    /// Send this, then give the reply to [`Task::resume`].
    Call(Call, Task),
    /// Answer the caller; it is over.
    Done(Finished),
}

/// Where a request comes from.
#[derive(Debug, Clone, Default)]
pub struct Origin {
    /// Envoy's id of it.
    pub request_id: String,
    /// Its `traceparent`, which every call made for it carries on.
    pub traceparent: Option<String>,
}

/// What an endpoint and its driver share: the call that it waits for, the reply, and what is known so far.
struct Shared {
    call: Option<Call>,
    reply: Option<Reply>,
    traceparent: Option<String>,
    facts: Facts,
}

/// What an endpoint is given besides its request: the host, a way to call out, a place for the facts.
#[derive(Clone)]
pub struct Context {
    host: Rc<dyn Host>,
    shared: Rc<RefCell<Shared>>,
}

impl Context {
    /// The world.
    pub fn host(&self) -> &dyn Host {
        &*self.host
    }

    /// Notes a fact for the audit log as soon as it is known, so that it is there whatever comes next.
    pub fn note(&self, fact: impl FnOnce(&mut Facts)) {
        fact(&mut self.shared.borrow_mut().facts);
    }

    /// Envoy's id of this request.
    pub fn request_id(&self) -> String {
        self.shared.borrow().facts.request_id.clone()
    }

    /// Stops here until the driver brings the reply to `call`.
    pub fn call(&self, call: Call) -> impl Future<Output = Reply> + use<> {
        let shared = Rc::clone(&self.shared);
        let mut unsent = Some(call);
        poll_fn(move |_| {
            let mut shared = shared.borrow_mut();
            if let Some(mut call) = unsent.take() {
                call.headers
                    .extend(shared.traceparent.clone().map(|parent| ("traceparent", parent)));
                shared.call = Some(call);
                return Poll::Pending;
            }
            shared.reply.take().map_or(Poll::Pending, Poll::Ready)
        })
    }
}

/// How an endpoint ends.
pub type Outcome = Result<Response, Box<dyn Refusal>>;

/// A request under way, stopped at a call.
pub struct Task {
    operation: Operation,
    endpoint: Pin<Box<dyn Future<Output = Outcome>>>,
    shared: Rc<RefCell<Shared>>,
}

impl Task {
    /// Runs `endpoint` to its first call, or to its end.
    pub fn start<F>(
        host: Rc<dyn Host>,
        operation: Operation,
        origin: Origin,
        endpoint: impl FnOnce(Context) -> F,
    ) -> Step
    where
        F: Future<Output = Outcome> + 'static,
    {
        let Origin { request_id, traceparent } = origin;
        let facts = Facts { request_id, ..Facts::default() };
        let shared = Shared { call: None, reply: None, traceparent, facts };
        let shared = Rc::new(RefCell::new(shared));
        let endpoint = Box::pin(endpoint(Context { host, shared: Rc::clone(&shared) }));
        Self { operation, endpoint, shared }.advance()
    }

    /// Goes on with the reply to the call that it stopped at.
    pub fn resume(self, reply: Reply) -> Step {
        self.shared.borrow_mut().reply = Some(reply);
        self.advance()
    }

    /// Gives up, because the caller is gone: what is left is to write it down.
    pub fn abandon(self) -> Event {
        self.operation.refused(self.take_facts(), "abandoned", "caller_gone")
    }

    fn advance(mut self) -> Step {
        let mut waiting = std::task::Context::from_waker(Waker::noop());
        let outcome = match self.endpoint.as_mut().poll(&mut waiting) {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => {
                let call = self.shared.borrow_mut().call.take();
                match call {
                    Some(call) => return Step::Call(call, self),
                    // It awaits what nobody will bring. No endpoint does; were one to, the caller
                    // must get an answer all the same.
                    None => Err(Stalled.into()),
                }
            }
        };
        Step::Done(self.finish(outcome))
    }

    fn finish(self, outcome: Outcome) -> Finished {
        let facts = self.take_facts();
        match outcome {
            Ok(response) => Finished {
                response,
                event: Some(Box::new(self.operation.succeeded(facts))),
                explanation: None,
                replay: None,
            },
            Err(refusal) => {
                let response = refusal.response();
                let replay = refusal.replayed().map(|spent| Box::new(Replay::new(spent, &facts)));
                let event = self.operation.refused(facts, response.error, refusal.reason());
                Finished {
                    response: response.into_response(),
                    event: Some(Box::new(event)),
                    explanation: Some(refusal.to_string()),
                    replay,
                }
            }
        }
    }

    fn take_facts(&self) -> Facts {
        std::mem::take(&mut self.shared.borrow_mut().facts)
    }
}

/// An endpoint waits for nothing.
#[derive(Debug, thiserror::Error)]
#[error("the endpoint stopped without a call")]
struct Stalled;

impl Refusal for Stalled {
    fn response(&self) -> ErrorResponse {
        ErrorResponse::new(500, "server_error", "internal error")
    }

    fn reason(&self) -> &'static str {
        "stalled"
    }
}

#[cfg(test)]
mod tests;
