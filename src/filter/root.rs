//! The configured plugin in one VM.

use std::rc::Rc;

use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{ContextType, LogLevel};

use super::host::{self, Envoy};
use super::http::Http;
use crate::config::Config;
use crate::service::Service;

#[derive(Default)]
pub(super) struct Root {
    service: Option<Rc<Service>>,
}

impl Context for Root {}

impl RootContext for Root {
    fn on_configure(&mut self, plugin_configuration_size: usize) -> bool {
        let bytes = host::plugin_configuration(plugin_configuration_size);
        match Config::parse(&bytes, &|name| std::env::var(name).ok()) {
            Ok(config) => {
                for warning in &config.warnings {
                    host::log(LogLevel::Warn, &format!("configuration: {warning}"));
                }
                self.service = Some(Rc::new(Service::new(config)));
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

    fn create_http_context(&self, _context_id: u32) -> Option<Box<dyn HttpContext>> {
        let host = Rc::new(Envoy);
        Some(Box::new(Http::new(self.service.clone(), host)))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}
