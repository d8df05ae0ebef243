//! Envoy as the core's host, for whichever plugin stands on it: shared data, clock, log, metrics and calls, and the
//! stream that is shown. It decides nothing.
//!
//! `host` is the only file that reads from the SDK: its string getters panic on bytes that are not UTF-8, and a panic
//! kills the worker's VM.
#![cfg(target_arch = "wasm32")]

pub mod abi;
mod background;
mod crypto;
pub mod host;
mod metrics;

pub use background::Background;
pub use crypto::ForeignFunctions;
