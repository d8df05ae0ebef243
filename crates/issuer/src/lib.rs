//! The decisions of the filter that the guard does not need: the endpoints, and all that stands
//! between them and Envoy.
//!
//! The crate does no I/O and does not depend on `proxy_wasm`. An [`issuer`] reads a request and
//! yields a [`step::Step`]: a call that the host must send, or the finished answer.

mod audit;
mod bearer;
pub mod claims;
mod client;
mod events;
pub mod issuer;
mod notifications;
pub mod stream;

// The rooms of the core, by their names there.
#[cfg(any(test, feature = "fakes"))]
use impersonation_core::fakes;
use impersonation_core::{
    audit_log, browser_session, certificate, config, confirmation, dpop, host, http_stream, jose,
    media_type, metrics, oauth, one_line, path, policy, secret, state, statement, step,
    strict_json, upstream,
};
