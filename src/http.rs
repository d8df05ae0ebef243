//! One HTTP stream: holds a request back while the core needs its body or a reply, then answers it or
//! lets it go.

use std::rc::Rc;
use std::time::SystemTime;

use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::{Action, LogLevel};

use crate::host::{self, Envoy};
use impersonation_core::audit::{Event, EventName};
use impersonation_core::issuer::Service;
use impersonation_core::issuer::{Begun, Body, Head, MAX_BODY, PARTIAL_HEADERS, Route};
use impersonation_core::metrics;
use impersonation_core::step::{Finished, Origin, Reply, Step, Task};

pub(crate) struct Http {
    service: Option<Rc<Service>>,
    host: Rc<Envoy>,
    state: State,
    /// Whether a document's header fields are all that is asked for (RFC 9110 §9.3.2).
    head_only: bool,
    /// When the request was complete.
    began_at: SystemTime,
}

enum State {
    /// Not ours: Envoy routes it.
    PassingThrough,
    /// Held back until its body is complete.
    Reading(Route, Head),
    /// Held back until a reply comes.
    Calling(Task),
    /// Answered.
    Answered,
    /// On its way to the gateway, whose document will be merged with ours.
    Asked(Route, Option<Vec<u8>>),
    /// The gateway's document is being read, if it is one.
    Merging { route: Route, if_none_match: Option<Vec<u8>>, document: bool },
    /// Ours was sent instead of a document that is too long; what still comes of that is dropped.
    Replaced,
}

impl Http {
    pub(crate) const fn new(service: Option<Rc<Service>>, host: Rc<Envoy>) -> Self {
        Self {
            service,
            host,
            state: State::PassingThrough,
            head_only: false,
            began_at: SystemTime::UNIX_EPOCH,
        }
    }

    fn begin(&mut self, service: &Rc<Service>, route: Route, head: Head, body: Body) -> Action {
        self.began_at = host::time();
        let host = Rc::clone(&self.host);
        match service.begin(host, route, head, body) {
            Begun::PassThrough => {
                self.state = State::PassingThrough;
                Action::Continue
            }
            Begun::Merge(route, if_none_match) => {
                for name in PARTIAL_HEADERS {
                    host::remove_request_header(name);
                }
                // RFC 9110 §12.5.3: who says nothing takes any coding.
                host::set_request_header("accept-encoding", "identity");
                if self.head_only {
                    // Length and validator are those of a document that has yet to be merged. Envoy takes
                    // no request header back once it is sent: the access log says GET.
                    host::set_request_header(":method", "GET");
                }
                self.state = State::Asked(route, if_none_match);
                Action::Continue
            }
            Begun::Step(step) => {
                self.run(step);
                Action::Pause
            }
        }
    }

    fn run(&mut self, mut step: Step) {
        loop {
            match step {
                Step::Call(call, task) => match host::send(&call) {
                    Ok(_) => {
                        self.state = State::Calling(task);
                        return;
                    }
                    Err(failure) => step = task.resume(Reply::Failed(failure)),
                },
                Step::Done(finished) => {
                    self.state = State::Answered;
                    self.finish(&finished);
                    return;
                }
            }
        }
    }

    fn finish(&self, finished: &Finished) {
        if let Some(event) = &finished.event {
            self.audit(event);
            if event.event == EventName::TokenExchangeSucceeded {
                let took = host::time().duration_since(self.began_at).unwrap_or_default();
                let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
                self.host.metrics.record(metrics::EXCHANGE_DURATION, micros);
            }
        }
        if let Some(replay) = &finished.replay {
            host::log(LogLevel::Warn, &replay.to_json());
        }
        if let Some(explanation) = &finished.explanation {
            host::log(LogLevel::Debug, explanation);
        }
        let reason = finished.event.as_ref().and_then(|event| event.reason);
        host::respond(&finished.response, reason);
    }

    /// Writes an event down: in the log, for the access log, in the metrics.
    fn audit(&self, event: &Event) {
        host::log(LogLevel::Info, &event.to_json());
        for (name, value) in event.members() {
            host::set_filter_state(name, value);
        }
        for counter in metrics::counters(event) {
            self.host.metrics.count(counter);
        }
    }

    /// Goes on once the body, `size` bytes so far, is complete or too long.
    fn read(&mut self, size: usize, complete: bool) -> Action {
        match std::mem::replace(&mut self.state, State::PassingThrough) {
            state @ (State::PassingThrough | State::Asked(..)) => {
                self.state = state;
                Action::Continue
            }
            State::Reading(route, head) if complete || size > MAX_BODY => {
                let Some(service) = self.service.clone() else { return Action::Continue };
                let bytes = host::request_body(size.min(MAX_BODY));
                let body = if size > MAX_BODY { Body::TooLong(bytes) } else { Body::Whole(bytes) };
                self.begin(&service, route, head, body)
            }
            state => {
                self.state = state;
                Action::Pause
            }
        }
    }

    /// Answers in the place of a gateway whose answer has no body, or too long a one. Without a body Envoy
    /// has nothing that could be replaced, and to try would panic in the SDK.
    fn serve_alone(&mut self, route: Route) -> Action {
        self.state = State::Answered;
        let Some(service) = &self.service else { return Action::Continue };
        let response = service.documents.merged(&*self.host, route, None, None);
        host::respond(&response, None);
        Action::Pause
    }

    /// Puts the merged document in the place of the gateway's, of which `size` bytes are here.
    fn merge(&mut self, size: usize, complete: bool) -> Action {
        match std::mem::replace(&mut self.state, State::PassingThrough) {
            State::Merging { route, if_none_match, document }
                if complete || size > MAX_DOCUMENT =>
            {
                let Some(service) = self.service.clone() else { return Action::Continue };
                let body = if document && size <= MAX_DOCUMENT {
                    Some(host::response_body(size))
                } else {
                    None
                };
                let host = &*self.host;
                let response = service.documents.merged(
                    host,
                    route,
                    body.as_deref(),
                    if_none_match.as_deref(),
                );
                if self.head_only {
                    self.state = State::Answered;
                    host::respond_without_body(&response);
                    return Action::Pause;
                }
                host::replace_response(&response, size);
                if !complete {
                    self.state = State::Replaced;
                }
                Action::Continue
            }
            State::Replaced => {
                host::replace_response_body(&[], size);
                self.state = State::Replaced;
                Action::Continue
            }
            state @ State::Merging { .. } => {
                self.state = state;
                Action::Pause
            }
            state => {
                self.state = state;
                Action::Continue
            }
        }
    }
}

/// The longest document of a gateway that is read; Envoy buffers a megabyte unless it is told otherwise.
const MAX_DOCUMENT: usize = 512 * 1024;

/// A request header, if it can be passed on as it is.
fn printable(name: &str) -> Option<String> {
    let value = String::from_utf8(host::request_header(name)?).ok()?;
    let printable = value.len() <= 256 && value.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    printable.then_some(value)
}

/// A request header to be written down, whatever it is: as much of it as anybody needs.
fn legible(name: &str) -> String {
    let value = host::request_header(name).unwrap_or_default();
    String::from_utf8_lossy(value.get(..256).unwrap_or(&value)).into_owned()
}

impl Context for Http {
    fn on_http_call_response(
        &mut self,
        _call: u32,
        num_headers: usize,
        body_size: usize,
        _num_trailers: usize,
    ) {
        match std::mem::replace(&mut self.state, State::Answered) {
            State::Calling(task) => self.run(task.resume(host::reply(num_headers, body_size))),
            state => self.state = state,
        }
    }
}

impl HttpContext for Http {
    fn on_http_request_headers(&mut self, _num_headers: usize, end_of_stream: bool) -> Action {
        let Some(service) = self.service.clone() else { return Action::Continue };
        let path = host::request_header(":path").unwrap_or_default();
        let method = host::request_header(":method").unwrap_or_default();
        let Some(route) = service.paths.route(&method, &path) else { return Action::Continue };
        self.head_only = method == b"HEAD";
        let head = Head {
            origin: Origin {
                request_id: legible("x-request-id"),
                traceparent: printable("traceparent"),
            },
            authorization: host::request_header("authorization"),
            content_type: host::request_header("content-type"),
            if_none_match: match route {
                Route::Jwks | Route::Discovery => host::request_header("if-none-match"),
                _ => None,
            },
        };
        if route.needs_body(&head) && !end_of_stream {
            self.state = State::Reading(route, head);
            return Action::Pause;
        }
        self.begin(&service, route, head, Body::Whole(Vec::new()))
    }

    fn on_http_request_body(&mut self, body_size: usize, end_of_stream: bool) -> Action {
        self.read(body_size, end_of_stream)
    }

    fn on_http_request_trailers(&mut self, _num_trailers: usize) -> Action {
        // Behind trailers no end of the body is announced: this is it.
        let size = match self.state {
            State::Reading(..) => host::request_body(MAX_BODY.saturating_add(1)).len(),
            _ => 0,
        };
        self.read(size, true)
    }

    fn on_http_response_headers(&mut self, _num_headers: usize, end_of_stream: bool) -> Action {
        match std::mem::replace(&mut self.state, State::PassingThrough) {
            State::Asked(route, if_none_match) => {
                let document = host::is_document();
                // What is too long is not even buffered: Envoy has a limit for that, too.
                if end_of_stream || host::response_len().is_some_and(|len| len > MAX_DOCUMENT) {
                    return self.serve_alone(route);
                }
                self.state = State::Merging { route, if_none_match, document };
                Action::Pause
            }
            state => {
                self.state = state;
                Action::Continue
            }
        }
    }

    fn on_http_response_body(&mut self, body_size: usize, end_of_stream: bool) -> Action {
        self.merge(body_size, end_of_stream)
    }

    fn on_http_response_trailers(&mut self, _num_trailers: usize) -> Action {
        let State::Merging { route, .. } = self.state else { return Action::Continue };
        match host::response_body(MAX_DOCUMENT.saturating_add(1)).len() {
            0 => self.serve_alone(route),
            size => self.merge(size, true),
        }
    }

    fn on_log(&mut self) {
        if let State::Calling(task) = std::mem::replace(&mut self.state, State::Answered) {
            self.audit(&task.abandon());
        }
    }
}
