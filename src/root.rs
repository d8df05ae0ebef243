//! The filter as a plugin: configures the service of one VM, and runs its background work.

use std::rc::Rc;
use std::time::Duration;

use impersonation_core::config::ConfigError;
use impersonation_core::host::Host;
use impersonation_envoy::host::{self, CallId, Envoy};
use impersonation_envoy::{ForeignFunctions, Plugin};
use impersonation_issuer::issuer::{Service, TICK};
use proxy_wasm::traits::HttpContext;

use crate::http::Http;
use crate::page;
use crate::worker::Worker;

impl Plugin for Worker {
    const TICK: Duration = TICK;

    fn configure(root: u32, host: &Rc<Envoy>, bytes: &[u8]) -> Result<Self, ConfigError> {
        let environment = |name: &str| std::env::var(name).ok();
        let native = Some(Box::new(ForeignFunctions) as Box<_>);
        let service = Service::configure(bytes, &environment, host.now(), native, page::built())?;
        service.create_tables(&**host);
        service.introduce(&**host);
        Ok(Self::new(root, Rc::clone(host), Rc::new(service)))
    }

    fn http_context(self: &Rc<Self>, context: u32) -> Box<dyn HttpContext> {
        Box::new(Http::new(self, context))
    }

    fn on_tick(self: &Rc<Self>) {
        let host: Rc<dyn Host> = self.host.clone();
        self.as_root(|| {
            self.service.tick(&host).into_iter().for_each(|step| self.run(step));
        });
    }

    fn on_grpc_reply(self: &Rc<Self>, call: u32, status: u32, size: usize) {
        let reply = host::grpc_reply(status, size);
        self.as_root(|| self.reply(CallId::Grpc(call), reply));
    }

    fn on_http_reply(self: &Rc<Self>, call: u32, num_headers: usize, size: usize) {
        let reply = host::http_reply(num_headers, size);
        self.as_root(|| self.reply(CallId::Http(call), reply));
    }

    fn on_called(&self) {
        self.send_handed_over();
    }
}
