//! The filter as a plugin: connects Envoy's callbacks with `impersonation_core`, and decides
//! nothing.
//!
//! `impersonation_envoy` has everything that filter and guard share.
#![cfg(target_arch = "wasm32")]

mod http;
mod page;
mod root;
mod worker;

proxy_wasm::main! {{ impersonation_envoy::start::<worker::Worker>() }}
