//! The plugin: Envoy's callbacks on one side, `impersonation_core` on the other. It decides nothing.
//!
//! This folder is the only place that names `proxy_wasm`, and `host` the only file that reads from it:
//! the SDK's string getters panic on bytes that are not UTF-8, and a panic kills the worker's VM.
#![cfg(target_arch = "wasm32")]

mod abi;
mod crypto;
mod host;
mod http;
mod metrics;
mod root;
mod worker;

use proxy_wasm::types::LogLevel;

proxy_wasm::main! {{
    // Envoy filters by its own level; this also turns a panic into a log line.
    proxy_wasm::set_log_level(LogLevel::Debug);
    proxy_wasm::set_root_context(|context| Box::new(root::Root::new(context)));
}}
