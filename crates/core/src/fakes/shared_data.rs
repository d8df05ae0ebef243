//! Envoy's shared data, by the rules of `SharedData` in proxy-wasm-cpp-host (`src/shared_data.cc`).
//!
//! One counter numbers the writes to all keys. A write to a key that exists needs its current
//! version, unless it names none; a write to a missing key succeeds whatever version it names.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::host::{Expected, Swap, Version};

/// A version that no value has, as the filter names it to create a key.
const NEVER_CURRENT: u32 = u32::MAX;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EnvoyMap<V> {
    values: BTreeMap<Rc<str>, (V, u32)>,
    last_version: u32,
}

impl<V> Default for EnvoyMap<V> {
    fn default() -> Self {
        Self { values: BTreeMap::new(), last_version: 0 }
    }
}

impl<V: Clone> EnvoyMap<V> {
    pub fn get(&self, key: &str) -> Option<(V, Version)> {
        let (value, version) = self.values.get(key)?;
        Some((value.clone(), Version::new(*version)?))
    }

    /// Envoy's own write. `version` 0 names none.
    pub fn set(&mut self, key: &str, value: V, version: u32) -> Swap {
        if self.values.get(key).is_some_and(|(_, now)| version != 0 && version != *now) {
            return Swap::Lost;
        }
        self.last_version = self.last_version.checked_add(1).unwrap_or(1);
        self.values.insert(key.into(), (value, self.last_version));
        Swap::Done
    }

    /// The filter's write, in the terms of the one above.
    pub fn compare_and_set(&mut self, key: &str, value: V, expected: Expected) -> Swap {
        let version = match expected {
            Expected::Absent => NEVER_CURRENT,
            Expected::Version(version) => version.get(),
        };
        self.set(key, value, version)
    }

    pub fn entries(&self) -> impl Iterator<Item = (&str, &V)> {
        self.values.iter().map(|(key, (value, _))| (key.borrow(), value))
    }
}
