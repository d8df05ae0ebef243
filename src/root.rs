//! The configured plugin in one VM.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{ContextType, LogLevel};

use crate::crypto::ForeignFunctions;
use crate::host::{self, Envoy};
use crate::http::Http;
use impersonation_core::config::Config;
use impersonation_core::host::{Host as _, UnixTime};
use impersonation_core::issuer::Service;
use impersonation_core::jose::{Algorithm, TestedCrypto};
use impersonation_core::metrics;
use impersonation_core::step::Reply;
use impersonation_core::upstream::RemoteKeySet;

/// How often key sets and gauges are looked at. Envoy calls each worker's VM.
const TICK: Duration = Duration::from_secs(1);

/// When they are first. Envoy tries a configuration in a VM that it then throws away, and a fetch with it:
/// only a VM that stays gets to its first tick.
const FIRST_TICK: Duration = Duration::from_millis(1);

#[derive(Default)]
pub(crate) struct Root {
    ticked: bool,
    service: Option<Rc<Service>>,
    host: Rc<Envoy>,
    /// The key sets that are being fetched, by the number of the call.
    fetches: HashMap<u32, Rc<RemoteKeySet>>,
    configured_at: UnixTime,
}

impl Root {
    fn refresh_key_sets(&mut self, service: &Service) {
        for key_set in service.remote_key_sets() {
            let Some(call) = key_set.tick(&*self.host) else { continue };
            match host::send(&call) {
                Ok(number) => {
                    self.fetches.insert(number, Rc::clone(key_set));
                }
                // It is counted and logged there; the next tick tries again.
                Err(failure) => drop(key_set.fetched(&*self.host, &Reply::Failed(failure))),
            }
        }
    }

    fn set_crypto_gauge(&self, config: &Config) {
        let native = self.host.crypto.as_ref();
        let signs = native.is_some_and(|crypto| crypto.signs(config.signing_key.algorithm()));
        self.host.metrics.set(metrics::NATIVE_SIGNING, u64::from(signs));
    }

    fn set_gauges(&self, service: &Service) {
        let now = self.host.now();
        let gauges = &self.host.metrics;
        let waiting = now.since(self.configured_at);
        let ages = service.remote_key_sets().map(|key_set| key_set.age(now).unwrap_or(waiting));
        if let Some(age) = ages.max() {
            gauges.set(metrics::KEY_SET_AGE, age.as_secs());
        }
        if let Ok(Some(occupancy)) = service.census.tick(&*self.host, &service.store) {
            let lifetime = service.config.subject_tokens.lifetime;
            let left = occupancy.first_expiry.map(|expiry| expiry.since(now));
            let age = left.map(|left| lifetime.saturating_sub(left)).unwrap_or_default();
            gauges.set(metrics::OUTSTANDING, u64::from(occupancy.outstanding));
            gauges.set(metrics::CAPACITY, u64::from(service.config.subject_tokens.capacity));
            gauges.set(metrics::OLDEST_AGE, age.as_secs());
        }
    }
}

/// Says who signs and verifies, and warns of what is slow.
fn report(crypto: &TestedCrypto, config: &Config) {
    let algorithm = config.signing_key.algorithm();
    host::log(LogLevel::Info, &format!("signatures: {crypto}; the rest is done in the sandbox"));
    if matches!(algorithm, Algorithm::Rs256 | Algorithm::Ps256) && !crypto.signs(algorithm) {
        let warning = "holds a worker up for about 10 ms in the sandbox: prefer ES256 or EdDSA";
        host::log(LogLevel::Warn, &format!("signing with {algorithm} {warning}"));
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
            let _ = key_set.fetched(&*self.host, &host::reply(num_headers, body_size));
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
                let crypto = TestedCrypto::new(Box::new(ForeignFunctions), &config.signing_key);
                report(&crypto, &config);
                self.host = Rc::new(Envoy { crypto: Some(crypto), ..Envoy::default() });
                self.set_crypto_gauge(&config);
                metrics::from_the_start().for_each(|counter| self.host.metrics.define(counter));
                self.configured_at = self.host.now();
                self.service = Some(Rc::new(Service::new(config)));
                self.ticked = false;
                host::tick_every(FIRST_TICK);
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
        if !std::mem::replace(&mut self.ticked, true) {
            host::tick_every(TICK);
        }
        let Some(service) = self.service.clone() else { return };
        self.refresh_key_sets(&service);
        self.set_gauges(&service);
    }

    fn create_http_context(&self, _context_id: u32) -> Option<Box<dyn HttpContext>> {
        Some(Box::new(Http::new(self.service.clone(), Rc::clone(&self.host))))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}
