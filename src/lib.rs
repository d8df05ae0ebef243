//! The plugin: Envoy's callbacks on one side, `impersonation_core` on the other. It decides nothing.
//!
//! What every plugin needs of Envoy is in `impersonation_envoy`; here is what makes this one.
#![cfg(target_arch = "wasm32")]

mod http;
mod root;
mod worker;

use proxy_wasm::types::LogLevel;

proxy_wasm::main! {{
    // Envoy filters by its own level; this also turns a panic into a log line.
    proxy_wasm::set_log_level(LogLevel::Debug);
    proxy_wasm::set_root_context(|context| Box::new(root::Root::new(context)));
}}
