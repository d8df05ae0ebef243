//! Envoy's metrics by name. Each metric is defined once in a VM.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;

use proxy_wasm::hostcalls;
use proxy_wasm::types::MetricType;

/// The metrics that this VM has defined.
#[derive(Default)]
pub(crate) struct Metrics {
    defined: RefCell<HashMap<Cow<'static, str>, u32>>,
}

impl Metrics {
    /// Defines a counter. Its value is zero unless another VM has counted already.
    pub(crate) fn define(&self, counter: Cow<'static, str>) {
        let _ = self.id(MetricType::Counter, counter);
    }

    /// Adds one to a counter.
    pub(crate) fn count(&self, name: Cow<'static, str>) {
        self.add(name, 1);
    }

    /// Adds `count` to a counter.
    pub(crate) fn add(&self, name: Cow<'static, str>, count: u64) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        if let Some(id) = self.id(MetricType::Counter, name) {
            let _ = hostcalls::increment_metric(id, count);
        }
    }

    /// Adds a value to a histogram.
    pub(crate) fn record(&self, name: &'static str, value: u64) {
        if let Some(id) = self.id(MetricType::Histogram, name.into()) {
            let _ = hostcalls::record_metric(id, value);
        }
    }

    /// Sets a gauge.
    pub(crate) fn set(&self, name: &'static str, value: u64) {
        if let Some(id) = self.id(MetricType::Gauge, name.into()) {
            let _ = hostcalls::record_metric(id, value);
        }
    }

    fn id(&self, kind: MetricType, name: Cow<'static, str>) -> Option<u32> {
        let mut defined = self.defined.borrow_mut();
        if let Some(id) = defined.get(&name) {
            return Some(*id);
        }
        let id = hostcalls::define_metric(kind, &name).ok()?;
        defined.insert(name, id);
        Some(id)
    }
}
