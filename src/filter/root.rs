//! The configured plugin in one VM.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{ContextType, LogLevel};

use super::host::{self, Envoy};
use super::http::Http;
use crate::config::Config;
use crate::service::Service;
use crate::step::Reply;
use crate::upstream::RemoteKeySet;

/// How often key sets are looked at. Envoy calls each worker's VM.
const TICK: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Root {
    service: Option<Rc<Service>>,
    /// The key sets that are being fetched, by the number of the call.
    fetches: HashMap<u32, Rc<RemoteKeySet>>,
}

impl Root {
    fn refresh_key_sets(&mut self) {
        let Some(service) = self.service.clone() else { return };
        for key_set in service.remote_key_sets() {
            let Some(call) = key_set.tick(&Envoy) else { continue };
            match host::send(&call) {
                Ok(number) => {
                    self.fetches.insert(number, Rc::clone(key_set));
                }
                // It is counted and logged there; the next tick tries again.
                Err(failure) => drop(key_set.fetched(&Envoy, &Reply::Failed(failure))),
            }
        }
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
        if let Some(key_set) = self.fetches.remove(&call) {
            let _ = key_set.fetched(&Envoy, &host::reply(num_headers, body_size));
        }
    }
}

impl RootContext for Root {
    fn on_configure(&mut self, plugin_configuration_size: usize) -> bool {
        let bytes = host::plugin_configuration(plugin_configuration_size);
        match Config::parse(&bytes, &|name| std::env::var(name).ok()) {
            Ok(config) => {
                for warning in &config.warnings {
                    host::log(LogLevel::Warn, &format!("configuration: {warning}"));
                }
                let service = Service::new(config);
                if service.remote_key_sets().next().is_some() {
                    host::tick_every(TICK);
                }
                self.service = Some(Rc::new(service));
                self.refresh_key_sets();
                true
            }
            Err(error) => {
                for problem in &error.problems {
                    host::log(LogLevel::Error, &format!("configuration refused: {problem}"));
                }
                false
            }
        }
    }

    fn on_tick(&mut self) {
        self.refresh_key_sets();
    }

    fn create_http_context(&self, _context_id: u32) -> Option<Box<dyn HttpContext>> {
        let host = Rc::new(Envoy);
        Some(Box::new(Http::new(self.service.clone(), host)))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}
