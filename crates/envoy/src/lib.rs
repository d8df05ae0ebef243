//! Envoy as the core's host, for both plugins: shared data, clock, log, metrics, calls, and the
//! current stream. It decides nothing.
//!
//! `host` is the only file that reads from the SDK: the SDK's string getters panic on bytes that
//! are not UTF-8, and a panic kills the worker's VM.
#![cfg(target_arch = "wasm32")]

pub mod abi;
mod background;
mod crypto;
pub mod host;
mod metrics;
mod root;
mod shown;
mod stream;

pub use background::Background;
pub use crypto::ForeignFunctions;
pub use root::{Plugin, start};
pub use shown::{SendsCalls, Shown, action};
pub use stream::HeldStream;
