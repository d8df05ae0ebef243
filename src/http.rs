//! An HTTP stream: passes Envoy's callbacks to the core, and the core's actions on the stream to
//! Envoy.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use impersonation_core::step::{Call, CallFailure, Reply, WhenCallerLeaves};
use impersonation_envoy::host::{self, CallId};
use impersonation_envoy::{SendsCalls, Shown, action};
use impersonation_issuer::stream::Stream;
use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::Action;

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
        self.stream.borrow_mut().on_reply(&Shown(Calls { worker, held: &self }), reply);
    }
}

impl Http {
    pub(crate) fn new(worker: &Rc<Worker>, context: u32) -> Self {
        let host = Rc::clone(&worker.host);
        let stream = RefCell::new(Stream::new(Rc::clone(&worker.service), host));
        let held = Rc::new(Held { stream, context, call_of_root: Cell::default() });
        Self { worker: Rc::clone(worker), held }
    }

    const fn shown(&self) -> Shown<Calls<'_>> {
        Shown(Calls { worker: &self.worker, held: &self.held })
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

/// Sends the calls of a stream.
struct Calls<'a> {
    worker: &'a Rc<Worker>,
    held: &'a Rc<Held>,
}

impl SendsCalls for Calls<'_> {
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
