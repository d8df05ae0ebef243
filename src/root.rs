//! The root context: configures the plugin of one VM, and runs its background work.

use std::rc::Rc;
use std::time::Duration;

use impersonation_core::host::{Host, Level};
use impersonation_core::issuer::Service;
use impersonation_envoy::ForeignFunctions;
use impersonation_envoy::host::{self, CallId, Envoy};
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::ContextType;

use crate::http::Http;
use crate::page;
use crate::worker::Worker;

/// The interval at which Envoy calls each worker's VM for background work.
const TICK: Duration = Duration::from_secs(1);

/// The delay of the first tick. Envoy tries a configuration in a VM that it then discards, together
/// with any fetch: only a VM that stays reaches its first tick.
const FIRST_TICK: Duration = Duration::from_millis(1);

pub(crate) struct Root {
    context: u32,
    ticked: bool,
    worker: Rc<Worker>,
}

impl Root {
    pub(crate) fn new(context: u32) -> Self {
        let worker = Rc::new(Worker::new(context, Rc::default(), None));
        Self { context, ticked: false, worker }
    }
}

impl Context for Root {
    fn on_http_call_response(
        &mut self,
        call: u32,
        num_headers: usize,
        body_size: usize,
        _num_trailers: usize,
    ) {
        let reply = host::http_reply(num_headers, body_size);
        self.worker.as_root(|| self.worker.reply(CallId::Http(call), reply));
    }

    fn on_grpc_call_response(&mut self, call: u32, status: u32, body_size: usize) {
        let reply = host::grpc_reply(status, body_size);
        self.worker.as_root(|| self.worker.reply(CallId::Grpc(call), reply));
    }
}

impl RootContext for Root {
    fn on_configure(&mut self, plugin_configuration_size: usize) -> bool {
        let bytes = host::plugin_configuration(plugin_configuration_size);
        let host = Rc::new(Envoy::default());
        let environment = |name: &str| std::env::var(name).ok();
        let native = Some(Box::new(ForeignFunctions) as Box<_>);
        match Service::configure(&bytes, &environment, host.now(), native, page::built()) {
            Ok(service) => {
                service.create_tables(&*host);
                service.introduce(&*host);
                self.worker = Rc::new(Worker::new(self.context, host, Some(Rc::new(service))));
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
        let Some(service) = &self.worker.service else { return };
        let host: Rc<dyn Host> = self.worker.host.clone();
        self.worker.as_root(|| {
            service.tick(&host).into_iter().for_each(|step| self.worker.run(step));
        });
    }

    /// No queue is used. [`Worker`] calls this to act as the root context.
    fn on_queue_ready(&mut self, _queue: u32) {
        self.worker.send_handed_over();
    }

    fn create_http_context(&self, context_id: u32) -> Option<Box<dyn HttpContext>> {
        Some(Box::new(Http::new(&self.worker, context_id)))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}
