//! An HTTP stream: passes Envoy's callbacks to the core, and the core's actions on the stream to
//! Envoy.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use impersonation_core::step::{Call, CallFailure, Reply, WhenCallerLeaves};
use impersonation_core::stream::{Flow, HttpRequest, HttpStream, Stream};
use impersonation_envoy::host::{self, CallId};
use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::{Action, MapType};

use crate::worker::{AwaitsReply, ReplyTo, Worker};

pub(crate) struct Http {
    worker: Rc<Worker>,
    held: Rc<Held>,
}

/// A stream that a call may outlive.
struct Held {
    stream: RefCell<Stream>,
    /// The number of the stream's context.
    context: u32,
    /// The call whose reply Envoy brings to the root context.
    call_of_root: Cell<Option<CallId>>,
}

impl AwaitsReply for Held {
    fn on_reply(self: Rc<Self>, worker: &Rc<Worker>, reply: Reply) {
        host::act_for(self.context);
        self.stream.borrow_mut().on_reply(&Shown { worker, held: &self }, reply);
    }
}

impl Http {
    pub(crate) fn new(worker: &Rc<Worker>, context: u32) -> Self {
        let host = Rc::clone(&worker.host);
        let stream = RefCell::new(Stream::new(worker.service.clone(), host));
        let held = Rc::new(Held { stream, context, call_of_root: Cell::default() });
        Self { worker: Rc::clone(worker), held }
    }

    const fn shown(&self) -> Shown<'_> {
        Shown { worker: &self.worker, held: &self.held }
    }
}

fn action(flow: Flow) -> Action {
    match flow {
        Flow::Continue => Action::Continue,
        Flow::Pause => Action::Pause,
    }
}

impl Context for Http {
    fn on_http_call_response(
        &mut self,
        _call: u32,
        num_headers: usize,
        body_size: usize,
        _num_trailers: usize,
    ) {
        let reply = host::http_reply(num_headers, body_size);
        self.held.stream.borrow_mut().on_reply(&self.shown(), reply);
    }

    fn on_grpc_call_response(&mut self, _call: u32, status: u32, body_size: usize) {
        let reply = host::grpc_reply(status, body_size);
        self.held.stream.borrow_mut().on_reply(&self.shown(), reply);
    }
}

impl HttpContext for Http {
    fn on_http_request_headers(&mut self, _num_headers: usize, end_of_stream: bool) -> Action {
        action(self.held.stream.borrow_mut().on_request_headers(&self.shown(), end_of_stream))
    }

    fn on_http_request_body(&mut self, body_size: usize, end_of_stream: bool) -> Action {
        action(self.held.stream.borrow_mut().on_request_body(
            &self.shown(),
            body_size,
            end_of_stream,
        ))
    }

    fn on_http_request_trailers(&mut self, _num_trailers: usize) -> Action {
        action(self.held.stream.borrow_mut().on_request_trailers(&self.shown()))
    }

    fn on_http_response_headers(&mut self, _num_headers: usize, end_of_stream: bool) -> Action {
        action(self.held.stream.borrow_mut().on_response_headers(&self.shown(), end_of_stream))
    }

    fn on_http_response_body(&mut self, body_size: usize, end_of_stream: bool) -> Action {
        action(self.held.stream.borrow_mut().on_response_body(
            &self.shown(),
            body_size,
            end_of_stream,
        ))
    }

    fn on_http_response_trailers(&mut self, _num_trailers: usize) -> Action {
        action(self.held.stream.borrow_mut().on_response_trailers(&self.shown()))
    }

    fn on_log(&mut self) {
        let awaits_reply = self.held.stream.borrow_mut().on_end(&self.shown());
        if let (false, Some(id)) = (awaits_reply, self.held.call_of_root.take()) {
            self.worker.forget(id);
        }
    }
}

/// The stream that Envoy shows at this moment.
struct Shown<'a> {
    worker: &'a Rc<Worker>,
    held: &'a Rc<Held>,
}

impl HttpRequest for Shown<'_> {
    fn metadata(&self) -> Vec<u8> {
        host::metadata()
    }

    fn request_header(&self, name: &str) -> Option<Vec<u8>> {
        host::header(MapType::HttpRequestHeaders, name)
    }

    fn visit_request_headers(&self, see: &mut dyn FnMut(&[u8], &[u8])) {
        host::visit_headers(MapType::HttpRequestHeaders, see);
    }

    fn connection_property(&self, name: &str) -> Option<Vec<u8>> {
        host::connection_property(name)
    }

    fn set_request_header(&self, name: &str, value: &str) {
        host::set_header(MapType::HttpRequestHeaders, name, value);
    }

    fn remove_request_header(&self, name: &str) {
        host::remove_header(MapType::HttpRequestHeaders, name);
    }

    fn respond(&self, status: u16, headers: &[(&str, &[u8])], body: &[u8], details: &str) {
        host::respond(status, headers, body, details);
    }

    fn set_filter_state(&self, name: &str, value: &str) {
        host::set_filter_state(name, value);
    }
}

impl HttpStream for Shown<'_> {
    fn request_body(&self, len: usize) -> Vec<u8> {
        host::request_body(len)
    }

    fn response_header(&self, name: &str) -> Option<Vec<u8>> {
        host::header(MapType::HttpResponseHeaders, name)
    }

    fn response_headers(&self) -> Vec<(String, Vec<u8>)> {
        host::headers(MapType::HttpResponseHeaders)
    }

    fn set_response_header(&self, name: &str, value: &str) {
        host::set_header(MapType::HttpResponseHeaders, name, value);
    }

    fn remove_response_header(&self, name: &str) {
        host::remove_header(MapType::HttpResponseHeaders, name);
    }

    fn response_body(&self, len: usize) -> Vec<u8> {
        host::response_body(len)
    }

    fn replace_response_body(&self, body: &[u8], size: usize) {
        host::replace_response_body(body, size);
    }

    fn resume_request(&self) {
        host::resume_request();
    }

    fn send(&self, call: &Call, when_caller_leaves: WhenCallerLeaves) -> Result<(), CallFailure> {
        self.held.call_of_root.set(None);
        let sent = self.worker.send(call, when_caller_leaves, self.held.context)?;
        if let ReplyTo::Root(id) = sent {
            self.held.call_of_root.set(Some(id));
            self.worker.await_reply(id, Rc::clone(self.held) as Rc<dyn AwaitsReply>);
        }
        Ok(())
    }
}
