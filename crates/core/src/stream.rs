//! One HTTP stream, from its first header to its end: what is held back and until when, what is answered, what
//! goes on, and what is written down about it.
//!
//! Envoy's callbacks are its inputs; whatever it does to the stream it does through [`HttpStream`], and it decides
//! all of it, so that a request can be played natively from end to end. A stream whose caller has left is over
//! for Envoy, but not always for us: see [`WhenCallerLeaves`].

use std::cell::LazyCell;
use std::rc::Rc;

use crate::audit::{Event, Trail};
use crate::config::AuditLog;
use crate::host::{Host, Level};
use crate::issuer::{
    Answer, Begun, Body, Head, MAX_BODY, Outcome, PARTIAL_HEADERS, Route, STALE_HEADERS, Service,
    begin, stays_beside,
};
use crate::media_type;
use crate::metrics;
use crate::step::{Call, CallFailure, Progress, Reply, Response, Step, Task, WhenCallerLeaves};

/// The longest document of a gateway that is read; Envoy buffers a megabyte unless it is told otherwise.
const MAX_DOCUMENT: usize = 512 * 1024;

/// A request and its response, as they pass Envoy. Where there is no such header or no body, a getter says so and
/// a setter does nothing.
pub trait HttpStream {
    /// A header field of the request, as it came.
    fn request_header(&self, name: &str) -> Option<Vec<u8>>;

    /// Replaces a header field of the request, before it goes on.
    fn set_request_header(&self, name: &str, value: &str);

    /// Takes a header field from the request, before it goes on.
    fn remove_request_header(&self, name: &str);

    /// The first bytes of the request body, at most `len`.
    fn request_body(&self, len: usize) -> Vec<u8>;

    /// A header field of the response.
    fn response_header(&self, name: &str) -> Option<Vec<u8>>;

    /// All header fields of the response.
    fn response_headers(&self) -> Vec<(String, Vec<u8>)>;

    /// Replaces a header field of the response.
    fn set_response_header(&self, name: &str, value: &str);

    /// Takes a header field from the response.
    fn remove_response_header(&self, name: &str);

    /// The first bytes of the response body, at most `len`.
    fn response_body(&self, len: usize) -> Vec<u8>;

    /// Puts `body` in the place of the `size` bytes of response body that are here.
    fn replace_response_body(&self, body: &[u8], size: usize);

    /// Answers the caller, in the place of whoever else would. `details` is why, for the access log.
    fn respond(&self, status: u16, headers: &[(&str, &[u8])], body: &[u8], details: &str);

    /// Lets a request go on that was held back.
    fn resume_request(&self);

    /// Says something about the stream that an access log can print.
    fn set_filter_state(&self, name: &str, value: &str);

    /// Sends a call for the stream, whose reply belongs to [`Stream::on_reply`].
    fn send(&self, call: &Call, when_caller_leaves: WhenCallerLeaves) -> Result<(), CallFailure>;
}

/// What Envoy does with what it has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Flow {
    /// It goes on.
    Continue,
    /// It is held back.
    Pause,
}

/// One stream.
pub struct Stream {
    service: Option<Rc<Service>>,
    host: Rc<dyn Host>,
    state: State,
    /// Whether a document's header fields are all that is asked for (RFC 9110 §9.3.2).
    head_only: bool,
    /// Whether Envoy makes an answer of ours one of gRPC.
    grpc: bool,
    /// The status of an answer of ours of which it does.
    sent: Option<u16>,
    /// When the request was complete, in microseconds.
    began_at: u64,
    caller_has_left: bool,
}

enum State {
    /// Not ours: Envoy routes it.
    PassingThrough,
    /// Held back until its body is complete.
    Reading(Route, Head),
    /// Held back until a reply comes.
    Calling(Task<Outcome<Answer>>, Trail),
    /// Over.
    Answered,
    /// On its way to the gateway, whose document will be merged with ours.
    Asked(Document),
    /// The gateway's document is being read.
    Merging(Document),
}

/// A document that is asked for.
#[derive(Clone)]
struct Document {
    route: Route,
    if_none_match: Option<Vec<u8>>,
}

impl Stream {
    /// A stream that has not begun. Without a service nothing is ours.
    pub const fn new(service: Option<Rc<Service>>, host: Rc<dyn Host>) -> Self {
        Self {
            service,
            host,
            state: State::PassingThrough,
            head_only: false,
            grpc: false,
            sent: None,
            began_at: 0,
            caller_has_left: false,
        }
    }

    /// The request's header fields are there.
    pub fn on_request_headers(&mut self, http: &dyn HttpStream, end_of_stream: bool) -> Flow {
        let Some(service) = self.service.clone() else { return Flow::Continue };
        let path = http.request_header(":path").unwrap_or_default();
        let method = LazyCell::new(|| http.request_header(":method").unwrap_or_default());
        let Some(route) = service.route(&method, &path) else { return Flow::Continue };
        self.head_only = *method == b"HEAD";
        let head = Head {
            request_id: legible(http, "x-request-id"),
            traceparent: printable(http, "traceparent"),
            path,
            authorization: http.request_header("authorization"),
            content_type: http.request_header("content-type"),
            if_none_match: match route {
                Route::Jwks | Route::Discovery => http.request_header("if-none-match"),
                _ => None,
            },
        };
        self.grpc = head.content_type.as_deref().is_some_and(media_type::is_grpc);
        if route.needs_body(&head) && !end_of_stream {
            self.state = State::Reading(route, head);
            return Flow::Pause;
        }
        self.begin(http, &service, route, head, Body::Whole(Vec::new()))
    }

    /// Of the request's body `size` bytes are there.
    pub fn on_request_body(
        &mut self,
        http: &dyn HttpStream,
        size: usize,
        end_of_stream: bool,
    ) -> Flow {
        match self.take() {
            State::Reading(route, head) if end_of_stream || size > MAX_BODY => {
                let Some(service) = self.service.clone() else { return Flow::Continue };
                let bytes = http.request_body(size.min(MAX_BODY));
                // What cannot be read cannot be known for somebody else's.
                if bytes.len() < size.min(MAX_BODY) {
                    self.finish(http, &Answer::unreadable());
                    return Flow::Pause;
                }
                let body = if size > MAX_BODY { Body::TooLong(bytes) } else { Body::Whole(bytes) };
                self.begin(http, &service, route, head, body)
            }
            state @ (State::PassingThrough | State::Asked(_)) => self.stay(state, Flow::Continue),
            state => self.stay(state, Flow::Pause),
        }
    }

    /// Trailers end the request. Behind them no end of the body is announced: this is it.
    pub fn on_request_trailers(&mut self, http: &dyn HttpStream) -> Flow {
        let size = match self.state {
            State::Reading(..) => http.request_body(MAX_BODY.saturating_add(1)).len(),
            _ => 0,
        };
        self.on_request_body(http, size, true)
    }

    /// The response's header fields are there.
    pub fn on_response_headers(&mut self, http: &dyn HttpStream, end_of_stream: bool) -> Flow {
        match self.take() {
            State::Asked(document) => {
                // What is too long is not even buffered: Envoy has a limit for that, too.
                let too_long = response_len(http).is_some_and(|len| len > MAX_DOCUMENT);
                if end_of_stream || too_long || !is_document(http) {
                    return self.stand_in(http, &document);
                }
                self.stay(State::Merging(document), Flow::Pause)
            }
            state => {
                if let Some(status) = self.sent.take() {
                    keep_status(http, status);
                }
                self.stay(state, Flow::Continue)
            }
        }
    }

    /// Of the response's body `size` bytes are there.
    pub fn on_response_body(
        &mut self,
        http: &dyn HttpStream,
        size: usize,
        end_of_stream: bool,
    ) -> Flow {
        match self.take() {
            State::Merging(document) if size > MAX_DOCUMENT => self.stand_in(http, &document),
            State::Merging(document) if end_of_stream => self.merge(http, &document, size),
            state @ State::Merging(_) => self.stay(state, Flow::Pause),
            state => self.stay(state, Flow::Continue),
        }
    }

    /// Trailers end the response.
    pub fn on_response_trailers(&mut self, http: &dyn HttpStream) -> Flow {
        let size = match self.state {
            State::Merging(_) => http.response_body(MAX_DOCUMENT.saturating_add(1)).len(),
            _ => 0,
        };
        self.on_response_body(http, size, true)
    }

    /// The reply to the call that was sent last.
    pub fn on_reply(&mut self, http: &dyn HttpStream, reply: Reply) {
        match self.take() {
            State::Calling(task, trail) => {
                if self.run(http, task.resume(reply), trail) == Flow::Continue {
                    http.resume_request();
                }
            }
            state => self.state = state,
        }
    }

    /// The stream is over: answered, passed on, or given up by its caller. Whether a reply is still to come.
    pub fn on_end(&mut self, http: &dyn HttpStream) -> bool {
        if let State::Calling(task, trail) = self.take() {
            match task.caller_left() {
                Some(task) => {
                    self.state = State::Calling(task, trail);
                    self.caller_has_left = true;
                    return true;
                }
                None => self.write_down(http, &trail.abandoned(), true),
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

    fn begin(
        &mut self,
        http: &dyn HttpStream,
        service: &Rc<Service>,
        route: Route,
        head: Head,
        body: Body,
    ) -> Flow {
        self.began_at = self.host.micros();
        match begin(service, Rc::clone(&self.host), route, head, body) {
            Begun::PassThrough => self.stay(State::PassingThrough, Flow::Continue),
            Begun::Merge(route, if_none_match) => {
                for name in PARTIAL_HEADERS {
                    http.remove_request_header(name);
                }
                // RFC 9110 §12.5.3: who says nothing takes any coding.
                http.set_request_header("accept-encoding", "identity");
                if self.head_only {
                    // Length and validator are those of a document that has yet to be merged. Envoy takes
                    // no request header back once it is sent: the access log says GET.
                    http.set_request_header(":method", "GET");
                }
                self.stay(State::Asked(Document { route, if_none_match }), Flow::Continue)
            }
            Begun::Answer(answer) => {
                self.finish(http, &answer);
                Flow::Pause
            }
            Begun::Endpoint(step, trail) => self.run(http, step, trail),
        }
    }

    /// Runs an endpoint up to its next call or its end. Returns whether the request goes on.
    fn run(&mut self, http: &dyn HttpStream, step: Step<Outcome<Answer>>, trail: Trail) -> Flow {
        self.state = match step.run(|call, when_caller_leaves| http.send(call, when_caller_leaves))
        {
            Progress::Waiting(task) => State::Calling(task, trail),
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
                self.write_down(http, &trail.abandoned(), true);
                State::Answered
            }
            Progress::Stopped => {
                self.finish(http, &Answer::stalled(&trail));
                State::Answered
            }
        };
        Flow::Pause
    }

    fn finish(&mut self, http: &dyn HttpStream, answer: &Answer) {
        if let Some(event) = &answer.event {
            self.write_down(http, event, self.caller_has_left);
            if event.is_exchange() {
                let took = self.host.micros().saturating_sub(self.began_at);
                self.host.record(metrics::EXCHANGE_DURATION, took);
            }
        }
        if let Some(alarm) = &answer.alarm {
            self.host.warn(&alarm.to_json());
        }
        if let Some(explanation) = &answer.explanation {
            self.host.debug(explanation);
        }
        if let Some(counter) = answer.counter {
            self.host.count(counter.into());
        }
        if !self.caller_has_left {
            let reason = answer.event.as_ref().and_then(|event| event.reason);
            let details = reason.map(|reason| format!("impersonation_{reason}"));
            self.sent = self.grpc.then_some(answer.response.status);
            respond(http, &answer.response, &details.unwrap_or_default());
        }
    }

    /// Writes an event down, where the operator wants it, and in the metrics.
    fn write_down(&self, http: &dyn HttpStream, event: &Event, is_over: bool) {
        let log = self.service.as_ref().map_or(AuditLog::Both, |service| service.config.audit_log);
        // Of a stream that is over no access log prints anything any more.
        match log {
            AuditLog::AccessLog if !is_over => http.set_filter_state("audit", &event.to_json()),
            AuditLog::AccessLog | AuditLog::Envoy => {
                self.host.log(Level::Info, &event.to_json());
            }
            AuditLog::Both => {
                self.host.log(Level::Info, &event.to_json());
                if !self.caller_has_left {
                    for (name, value) in event.members() {
                        http.set_filter_state(name, value);
                    }
                }
            }
        }
        self.host.count(event.counter());
    }

    /// Puts the merged document in the place of the gateway's, of which all `size` bytes are here.
    fn merge(&mut self, http: &dyn HttpStream, document: &Document, size: usize) -> Flow {
        let Document { route, if_none_match } = document;
        let merged = self.service.as_ref().and_then(|service| {
            let body = http.response_body(size);
            service.documents.merged(&*self.host, *route, &body, if_none_match.as_deref())
        });
        match merged {
            Some(response) if self.head_only => respond_to_head(http, &response),
            Some(response) => {
                replace_response(http, &response, size);
                Flow::Continue
            }
            None => self.stand_in(http, document),
        }
    }

    /// What becomes of an answer of the gateway's that is no document: its last good one stands in, or else it goes
    /// on as it is.
    fn stand_in(&mut self, http: &dyn HttpStream, document: &Document) -> Flow {
        let Document { route, if_none_match } = document;
        let stand_in = self.service.as_ref().and_then(|service| {
            service.documents.stand_in(&*self.host, *route, if_none_match.as_deref())
        });
        match stand_in {
            Some(response) => {
                self.host
                    .warn("the identity gateway has no such document: its last good one stands in");
                respond(http, &response, "");
                Flow::Pause
            }
            None => {
                self.host.warn("the identity gateway has no such document, nor had it one of late");
                if self.head_only {
                    // It was asked by a GET, and its body is not for whoever asked by a HEAD.
                    let status = http.response_header(":status").as_deref().and_then(number);
                    let nothing = Response {
                        status: status.unwrap_or(502),
                        headers: Vec::new(),
                        body: Vec::new(),
                    };
                    return respond_to_head(http, &nothing);
                }
                self.stay(State::PassingThrough, Flow::Continue)
            }
        }
    }
}

/// Answers with a response of ours.
fn respond(http: &dyn HttpStream, response: &Response, details: &str) {
    let headers = response.headers.iter().map(|(name, value)| (*name, value.as_bytes()));
    http.respond(response.status, &headers.collect::<Vec<_>>(), &response.body, details);
}

/// Gives an answer of ours the status that it was sent with. Envoy makes of any answer to a gRPC request one of
/// gRPC: whatever status it is told becomes 200, and the body a header. Here the body can no longer be had; so what
/// is no refusal becomes one, rather than half an answer.
fn keep_status(http: &dyn HttpStream, status: u16) {
    if http.response_header("grpc-status").is_some() {
        for name in ["grpc-status", "grpc-message", "content-type"] {
            http.remove_response_header(name);
        }
        let status = if status < 400 { 415 } else { status };
        http.set_response_header(":status", &status.to_string());
    }
}

/// Puts an answer in the place of a gateway's, of whose body `size` bytes are here. Its header fields
/// replace those of the same name; the others stay.
fn replace_response(http: &dyn HttpStream, response: &Response, size: usize) {
    for name in STALE_HEADERS {
        http.remove_response_header(name);
    }
    http.set_response_header(":status", &response.status.to_string());
    for (name, value) in &response.headers {
        http.set_response_header(name, value);
    }
    if response.status != 304 {
        http.set_response_header("content-length", &response.body.len().to_string());
    }
    http.replace_response_body(&response.body, size);
}

/// Answers a `HEAD` in the place of a gateway: with the header fields that [`replace_response`] leaves.
/// Not by a body that is emptied: a compressor on its way to the caller would fill it again, and the
/// caller, who expects none, would take that for the next answer. Envoy sends none of an answer of ours.
fn respond_to_head(http: &dyn HttpStream, response: &Response) -> Flow {
    let theirs = http.response_headers();
    let theirs = theirs.iter().filter(|(name, _)| stays_beside(response, name));
    let mut headers: Vec<_> = theirs.map(|(name, value)| (&**name, &**value)).collect();
    headers.extend(response.headers.iter().map(|(name, value)| (*name, value.as_bytes())));
    http.respond(response.status, &headers, &response.body, "");
    Flow::Pause
}

/// Whether the gateway answered with a document: 200, JSON, as it is.
fn is_document(http: &dyn HttpStream) -> bool {
    http.response_header(":status").is_some_and(|status| status == b"200")
        && http.response_header("content-type").is_some_and(|value| media_type::is_json(&value))
        && http
            .response_header("content-encoding")
            .is_none_or(|value| value.eq_ignore_ascii_case(b"identity"))
}

/// How long the gateway says its answer is.
fn response_len(http: &dyn HttpStream) -> Option<usize> {
    number(&http.response_header("content-length")?)
}

fn number<N: std::str::FromStr>(text: &[u8]) -> Option<N> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// A request header, if it can be passed on as it is.
fn printable(http: &dyn HttpStream, name: &str) -> Option<String> {
    let value = String::from_utf8(http.request_header(name)?).ok()?;
    let printable = value.len() <= 256 && value.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    printable.then_some(value)
}

/// A request header to be written down, whatever it is: as much of it as anybody needs.
fn legible(http: &dyn HttpStream, name: &str) -> String {
    let value = http.request_header(name).unwrap_or_default();
    String::from_utf8_lossy(value.get(..256).unwrap_or(&value)).into_owned()
}
