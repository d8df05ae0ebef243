//! The guard's plugin: Envoy's callbacks on one side, `impersonation_core::guard` on the other. It
//! decides nothing.
//!
//! The module is small (no JavaScript, no signing keys), because every worker runs it in addition
//! to the filter, for every request of an impersonation. Envoy never shows it a body or a response:
//! the build removes those callbacks from the module (see the Makefile).
#![cfg(target_arch = "wasm32")]

use std::rc::Rc;
use std::time::Duration;

use impersonation_core::guard::{Guard, TICK};
use impersonation_core::host::{Host, Level};
use impersonation_core::step::StreamEvent;
use impersonation_envoy::host::{self, CallId, Envoy};
use impersonation_envoy::{Background, ForeignFunctions, HeldStream, Shown, action};
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{Action, ContextType, LogLevel};

proxy_wasm::main! {{
    // Envoy filters by its own log level. This call also turns a panic into a log line.
    proxy_wasm::set_log_level(LogLevel::Debug);
    proxy_wasm::set_root_context(|context| Box::new(Root { context, ticked: false, worker: None }));
}}

/// The first tick comes soon. Only a VM that stays in use receives it.
const FIRST_TICK: Duration = Duration::from_millis(1);

/// The configured plugin in one VM.
struct Root {
    context: u32,
    ticked: bool,
    worker: Option<Rc<Worker>>,
}

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

impl Context for Root {
    fn on_grpc_call_response(&mut self, call: u32, status: u32, body_size: usize) {
        let reply = host::grpc_reply(status, body_size);
        if let Some(worker) = &self.worker {
            worker.background.reply(CallId::Grpc(call), reply);
        }
    }

    fn on_grpc_stream_message(&mut self, stream: u32, message_size: usize) {
        if let Some(worker) = &self.worker {
            worker.on_stream(worker.stream.message(stream, message_size));
        }
    }

    fn on_grpc_stream_close(&mut self, stream: u32, status: u32) {
        if let Some(worker) = &self.worker {
            worker.on_stream(worker.stream.closed(stream, status));
        }
    }
}

impl RootContext for Root {
    fn on_configure(&mut self, plugin_configuration_size: usize) -> bool {
        let bytes = host::plugin_configuration(plugin_configuration_size);
        let host = Rc::new(Envoy::default());
        let variable = |name: &str| std::env::var(name).ok();
        match Guard::configure(&bytes, host.now(), &variable, || Some(Box::new(ForeignFunctions))) {
            Ok(guard) => {
                guard.introduce(&*host);
                let (guard, background) = (Rc::new(guard), Background::new(self.context));
                let stream = HeldStream::new(self.context);
                self.worker = Some(Rc::new(Worker { host, guard, background, stream }));
                self.ticked = false;
                host::tick_every(FIRST_TICK);
                true
            }
            Err(error) => {
                for problem in &error.problems {
                    host::log(Level::Error, &format!("configuration refused: {problem}"));
                }
                false
            }
        }
    }

    fn on_tick(&mut self) {
        if !std::mem::replace(&mut self.ticked, true) {
            host::tick_every(TICK);
        }
        let Some(worker) = &self.worker else { return };
        worker.guard.on_tick(&*worker.host, &Shown(()), &host::act_for);
        if let Some(action) = worker.guard.tend_watch(&*worker.host) {
            worker.on_stream(worker.stream.perform(&action));
        }
        let host: Rc<dyn Host> = worker.host.clone();
        if let Some(step) = worker.guard.follow(&host) {
            worker.background.run(step);
        }
    }

    fn create_http_context(&self, context: u32) -> Option<Box<dyn HttpContext>> {
        Some(Box::new(Http { worker: self.worker.clone(), context }))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}

/// One request.
struct Http {
    worker: Option<Rc<Worker>>,
    context: u32,
}

impl Context for Http {}

impl HttpContext for Http {
    fn on_http_request_headers(&mut self, _num_headers: usize, _end_of_stream: bool) -> Action {
        let Some(worker) = &self.worker else {
            // Envoy drops a plugin that refused its configuration. If it asks one all the same,
            // refuse.
            host::respond(503, &[], &[], "impersonation_unconfigured");
            return Action::Pause;
        };
        action(worker.guard.on_request_headers(&*worker.host, &Shown(()), self.context))
    }
}

/// Envoy deletes the context when the stream ends.
impl Drop for Http {
    fn drop(&mut self) {
        if let Some(worker) = &self.worker {
            worker.guard.on_end(self.context);
        }
    }
}
