//! The guard's plugin: Envoy's callbacks on one side, `impersonation_core::guard` on the other. It
//! decides nothing.
//!
//! The module is small (no JavaScript, no signing keys), because every worker runs it in addition
//! to the filter, for every request of an impersonation. Envoy never shows it a body or a response:
//! the build removes those callbacks from the module (see the Makefile).
#![cfg(target_arch = "wasm32")]

use std::rc::Rc;
use std::time::Duration;

use impersonation_core::config::ConfigError;
use impersonation_core::guard::{Guard, TICK};
use impersonation_core::host::Host;
use impersonation_core::step::StreamEvent;
use impersonation_envoy::host::{self, CallId, Envoy};
use impersonation_envoy::{Background, ForeignFunctions, HeldStream, Plugin, Shown, action, start};
use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::Action;

proxy_wasm::main! {{ start::<Worker>() }}

/// The state that the contexts of one VM share.
struct Worker {
    host: Rc<Envoy>,
    guard: Rc<Guard>,
    background: Background,
    /// The stream on which etcd sends new revocations.
    stream: HeldStream,
}

impl Worker {
    fn on_stream(&self, event: Option<StreamEvent>) {
        if let Some(event) = event {
            self.guard.on_watch(&*self.host, &event);
        }
    }
}

impl Plugin for Worker {
    const TICK: Duration = TICK;

    fn configure(root: u32, host: &Rc<Envoy>, bytes: &[u8]) -> Result<Self, ConfigError> {
        let variable = |name: &str| std::env::var(name).ok();
        let native = || Some(Box::new(ForeignFunctions) as Box<_>);
        let guard = Rc::new(Guard::configure(bytes, host.now(), &variable, native)?);
        guard.introduce(&**host);
        let (background, stream) = (Background::new(root), HeldStream::new(root));
        Ok(Self { host: Rc::clone(host), guard, background, stream })
    }

    fn http_context(self: &Rc<Self>, context: u32) -> Box<dyn HttpContext> {
        Box::new(Http { worker: Rc::clone(self), context })
    }

    fn on_tick(self: &Rc<Self>) {
        self.guard.on_tick(&*self.host, &Shown(()), &host::act_for);
        if let Some(action) = self.guard.tend_watch(&*self.host) {
            self.on_stream(self.stream.perform(&action));
        }
        let host: Rc<dyn Host> = self.host.clone();
        if let Some(step) = self.guard.follow(&host) {
            self.background.run(step);
        }
    }

    fn on_grpc_reply(self: &Rc<Self>, call: u32, status: u32, size: usize) {
        self.background.reply(CallId::Grpc(call), host::grpc_reply(status, size));
    }

    fn on_stream_message(&self, stream: u32, size: usize) {
        self.on_stream(self.stream.message(stream, size));
    }

    fn on_stream_close(&self, stream: u32, status: u32) {
        self.on_stream(self.stream.closed(stream, status));
    }
}

/// One request.
struct Http {
    worker: Rc<Worker>,
    context: u32,
}

impl Context for Http {}

impl HttpContext for Http {
    fn on_http_request_headers(&mut self, _num_headers: usize, _end_of_stream: bool) -> Action {
        let Worker { guard, host, .. } = &*self.worker;
        action(guard.on_request_headers(&**host, &Shown(()), self.context))
    }
}

/// Envoy deletes the context when the stream ends.
impl Drop for Http {
    fn drop(&mut self) {
        self.worker.guard.on_end(self.context);
    }
}
