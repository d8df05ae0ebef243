//! The state machine of one HTTP stream. Envoy's callbacks are its inputs, and it acts on the
//! stream only through [`HttpStream`]. A native test can therefore play a whole request.
//!
//! A stream ends for Envoy when its caller leaves. Work that must not be cut off goes on after
//! that: see [`WhenCallerLeaves`](crate::step::WhenCallerLeaves).

mod answering;
mod merging;
#[cfg(any(test, feature = "fakes"))]
mod shown;

use std::cell::LazyCell;
use std::rc::Rc;

use self::merging::Merge;
use crate::audit::{AuditEvent, Trail};
use crate::audit_log::{self, AccessLogEntry, legible};
use crate::browser_session::{SessionFields, label};
use crate::certificate::{ClientCertificate, FORWARDED_CERTIFICATE};
use crate::config::CertificateSource;
use crate::host::Host;
pub use crate::http_stream::{Flow, HttpRequest, HttpStream};
use crate::issuer::{
    Answer, Body, Dispatch, Head, MAX_BODY, MAX_DOCUMENT, Outcome, Route, Service, dispatch,
};
use crate::media_type;
use crate::metrics;
use crate::step::{Progress, Reply, Step, Task};

/// An HTTP stream.
pub struct Stream {
    service: Rc<Service>,
    host: Rc<dyn Host>,
    state: State,
    /// The request is a `HEAD`: only the header fields of a document are wanted (RFC 9110 §9.3.2).
    head_only: bool,
    /// The request is gRPC: Envoy turns every answer of the filter into one of gRPC.
    grpc: bool,
    /// The status of the filter's answer to a gRPC request.
    sent: Option<u16>,
    /// The time when the request was complete, in microseconds.
    complete_at: u64,
    caller_has_left: bool,
}

enum State {
    /// The request is not the filter's. Envoy routes it.
    PassingThrough,
    /// The request is held back until its body is complete.
    ReadingBody(Route, Box<Head>),
    /// The request is held back until the reply to a call comes.
    AwaitingReply(Task<Outcome<Answer>>, Trail),
    /// The filter has answered.
    Answered,
    /// The request has gone to the gateway, whose document will be merged with the filter's.
    AwaitingDocument(Merge),
    /// The gateway's document is being read.
    ReadingDocument(Merge),
}

impl Stream {
    /// Makes the stream of a request that Envoy has not shown yet.
    pub const fn new(service: Rc<Service>, host: Rc<dyn Host>) -> Self {
        Self {
            service,
            host,
            state: State::PassingThrough,
            head_only: false,
            grpc: false,
            sent: None,
            complete_at: 0,
            caller_has_left: false,
        }
    }

    /// Handles the header fields of the request.
    pub fn on_request_headers(&mut self, http: &dyn HttpStream, end_of_stream: bool) -> Flow {
        let service = &self.service;
        let path = http.request_header(":path").unwrap_or_default();
        let method = LazyCell::new(|| http.request_header(":method").unwrap_or_default());
        let Some(route) = Route::find(&service.config.paths, &method, &path) else {
            return Flow::Continue;
        };
        let Some(session) = session(http, service, route) else { return Flow::Continue };
        self.head_only = *method == b"HEAD";
        let if_none_match =
            if route.is_to_document() { http.request_header("if-none-match") } else { None };
        let accept_encoding =
            if route.is_to_page() { http.request_header("accept-encoding") } else { None };
        let head = Head {
            request_id: legible(&http.request_header("x-request-id").unwrap_or_default())
                .into_owned(),
            traceparent: printable(http, "traceparent"),
            method: method.to_vec(),
            path,
            authorization: http.request_header("authorization"),
            content_type: http.request_header("content-type"),
            if_none_match,
            session,
            accept_encoding,
            proofs: match service.proofs {
                Some(_) => http.request_header_fields("dpop"),
                None => Vec::new(),
            },
            certificate: certificate(http, service.config.certificates),
        };
        self.grpc = head.content_type.as_deref().is_some_and(media_type::is_grpc);
        if route.needs_body(&head) && !end_of_stream {
            self.state = State::ReadingBody(route, Box::new(head));
            return Flow::Pause;
        }
        self.dispatch(http, route, head, Body::Whole(Vec::new()))
    }

    /// Handles the request body, of which `size` bytes have arrived.
    pub fn on_request_body(
        &mut self,
        http: &dyn HttpStream,
        size: usize,
        end_of_stream: bool,
    ) -> Flow {
        match self.take() {
            State::ReadingBody(route, head) if end_of_stream || size > MAX_BODY => {
                let bytes = http.request_body(size.min(MAX_BODY));
                // The host shows less than it announced. The filter cannot rule out that the
                // request is its own, so it must not let the request pass.
                if bytes.len() < size.min(MAX_BODY) {
                    self.finish(http, &Answer::unreadable());
                    return Flow::Pause;
                }
                let body = if size > MAX_BODY { Body::TooLong(bytes) } else { Body::Whole(bytes) };
                self.dispatch(http, route, *head, body)
            }
            state @ (State::PassingThrough | State::AwaitingDocument(_)) => {
                self.stay(state, Flow::Continue)
            }
            state => self.stay(state, Flow::Pause),
        }
    }

    /// Handles trailers, which end the request. Envoy announces no end of the body before them.
    pub fn on_request_trailers(&mut self, http: &dyn HttpStream) -> Flow {
        let size = match self.state {
            State::ReadingBody(..) => http.request_body(MAX_BODY.saturating_add(1)).len(),
            _ => 0,
        };
        self.on_request_body(http, size, true)
    }

    /// Handles the header fields of the response.
    pub fn on_response_headers(&mut self, http: &dyn HttpStream, end_of_stream: bool) -> Flow {
        match self.take() {
            State::AwaitingDocument(merge) => {
                if end_of_stream || !merging::is_document(http) {
                    return self.stand_in(http, &merge);
                }
                self.stay(State::ReadingDocument(merge), Flow::Pause)
            }
            state => {
                if let Some(status) = self.sent.take() {
                    answering::restore_status(http, status);
                }
                self.stay(state, Flow::Continue)
            }
        }
    }

    /// Handles the response body, of which `size` bytes have arrived.
    pub fn on_response_body(
        &mut self,
        http: &dyn HttpStream,
        size: usize,
        end_of_stream: bool,
    ) -> Flow {
        match self.take() {
            State::ReadingDocument(merge) if size > MAX_DOCUMENT => self.stand_in(http, &merge),
            State::ReadingDocument(merge) if end_of_stream => {
                match merge.merge(&*self.host, http, size) {
                    Some(flow) => flow,
                    None => self.stand_in(http, &merge),
                }
            }
            state @ State::ReadingDocument(_) => self.stay(state, Flow::Pause),
            state => self.stay(state, Flow::Continue),
        }
    }

    /// Handles trailers, which end the response.
    pub fn on_response_trailers(&mut self, http: &dyn HttpStream) -> Flow {
        let size = match self.state {
            State::ReadingDocument(_) => http.response_body(MAX_DOCUMENT.saturating_add(1)).len(),
            _ => 0,
        };
        self.on_response_body(http, size, true)
    }

    /// Handles the reply to the last call of the stream.
    pub fn on_reply(&mut self, http: &dyn HttpStream, reply: Reply) {
        match self.take() {
            State::AwaitingReply(task, trail) => {
                if self.run(http, task.resume(reply), trail) == Flow::Continue {
                    http.resume_request();
                }
            }
            state => self.state = state,
        }
    }

    /// Handles the end of the stream, by an answer or because the caller left. Returns true if the
    /// stream still awaits a reply.
    pub fn on_end(&mut self, http: &dyn HttpStream) -> bool {
        if let State::AwaitingReply(task, trail) = self.take() {
            match task.caller_left() {
                Some(task) => {
                    self.state = State::AwaitingReply(task, trail);
                    self.caller_has_left = true;
                    return true;
                }
                None => self.record(http, &trail.abandoned(), AccessLogEntry::TakesMembers),
            }
        }
        false
    }

    fn take(&mut self) -> State {
        std::mem::replace(&mut self.state, State::Answered)
    }

    fn stay(&mut self, state: State, flow: Flow) -> Flow {
        self.state = state;
        flow
    }

    fn dispatch(&mut self, http: &dyn HttpStream, route: Route, head: Head, body: Body) -> Flow {
        self.complete_at = self.host.micros();
        match dispatch(&self.service, Rc::clone(&self.host), route, head, body) {
            Dispatch::PassThrough => self.stay(State::PassingThrough, Flow::Continue),
            Dispatch::Merge(document, if_none_match) => {
                let service = Rc::clone(&self.service);
                let merge = Merge::new(service, document, if_none_match, self.head_only);
                merge.ask_for_whole_document(http);
                self.stay(State::AwaitingDocument(merge), Flow::Continue)
            }
            Dispatch::Answer(answer) => {
                self.finish(http, &answer);
                Flow::Pause
            }
            Dispatch::Run(step, trail) => self.run(http, step, trail),
        }
    }

    /// Runs an endpoint up to its next call or its end.
    fn run(&mut self, http: &dyn HttpStream, step: Step<Outcome<Answer>>, trail: Trail) -> Flow {
        self.state = match step.run(|call, when_caller_leaves| http.send(call, when_caller_leaves))
        {
            Progress::Waiting(task) => State::AwaitingReply(task, trail),
            Progress::Done(Outcome::PassThrough) if self.caller_has_left => State::Answered,
            Progress::Done(Outcome::PassThrough) => {
                return self.stay(State::PassingThrough, Flow::Continue);
            }
            Progress::Done(Outcome::Answer(mut answer)) => {
                if let Some(event) = &mut answer.event {
                    event.facts.caller_gone = self.caller_has_left;
                }
                self.finish(http, &answer);
                State::Answered
            }
            Progress::Stopped if self.caller_has_left => {
                self.record(http, &trail.abandoned(), AccessLogEntry::Printed);
                State::Answered
            }
            Progress::Stopped => {
                self.finish(http, &Answer::stalled(&trail));
                State::Answered
            }
        };
        Flow::Pause
    }

    /// Records an answer, and sends it if the caller is still there.
    fn finish(&mut self, http: &dyn HttpStream, answer: &Answer) {
        if let Some(event) = &answer.event {
            let entry =
                if self.caller_has_left { AccessLogEntry::Printed } else { AccessLogEntry::Open };
            self.record(http, event, entry);
            if event.is_granted_exchange() {
                let took = self.host.micros().saturating_sub(self.complete_at);
                self.host.record(metrics::EXCHANGE_DURATION, took);
            }
        }
        answering::tell_operator(&*self.host, answer);
        if !self.caller_has_left {
            self.sent = self.grpc.then_some(answer.response.status);
            answering::answer(http, answer);
        }
    }

    /// Counts an event, and writes it to the audit log if it belongs there.
    fn record(&self, http: &dyn HttpStream, event: &AuditEvent, entry: AccessLogEntry) {
        self.host.count(event.counter());
        if event.is_written() {
            let log = self.service.config.audit_log;
            audit_log::write(log, &*self.host, http, entry, &event.to_json(), event.members());
        }
    }

    /// Answers with the gateway's last good document, or lets the gateway's answer go on.
    fn stand_in(&mut self, http: &dyn HttpStream, merge: &Merge) -> Flow {
        match merge.stand_in(&*self.host, http) {
            Some(flow) => flow,
            None => self.stay(State::PassingThrough, Flow::Continue),
        }
    }
}

/// Reads the fields that decide about a browser session. `None` if the request is not the filter's:
/// the hosts of sessions have endpoints of their own, and no other host has those.
fn session(http: &dyn HttpStream, service: &Service, route: Route) -> Option<SessionFields> {
    let mut fields = SessionFields::default();
    let Some(sessions) = &service.config.browser_sessions else { return Some(fields) };
    let authority = http.request_header(":authority").unwrap_or_default();
    if label(&authority, &sessions.domain).is_some() != route.is_of_session() {
        return None;
    }
    if route.is_of_session() {
        http.visit_request_headers(&mut |name, value| fields.see(name, value));
    }
    Some(fields)
}

/// Reads the client's certificate where the operator says that it is; `None` if nothing asks for
/// certificates.
fn certificate(
    http: &dyn HttpStream,
    source: Option<CertificateSource>,
) -> Option<ClientCertificate> {
    match source? {
        CertificateSource::Connection => {
            ClientCertificate::of_connection(|name| http.connection_property(name))
        }
        CertificateSource::Forwarded => {
            ClientCertificate::of_header(&http.request_header_fields(FORWARDED_CERTIFICATE))
        }
    }
}

/// Returns a request header that can be passed on unchanged; `None` if it is too long or not
/// printable ASCII.
fn printable(http: &dyn HttpStream, name: &str) -> Option<String> {
    let value = String::from_utf8(http.request_header(name)?).ok()?;
    let printable = value.len() <= 256 && value.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    printable.then_some(value)
}
