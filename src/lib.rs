//! The filter as a plugin: connects Envoy's callbacks with `impersonation_core`, and decides
//! nothing.
//!
//! `impersonation_envoy` has everything that filter and guard share.
#![cfg(target_arch = "wasm32")]

mod http;
mod page;
mod root;
mod worker;

use proxy_wasm::types::LogLevel;

proxy_wasm::main! {{
    // Envoy filters by its own level. This call also turns a panic into a log line.
    proxy_wasm::set_log_level(LogLevel::Debug);
    proxy_wasm::set_root_context(|context| Box::new(root::Root::new(context)));
}}
