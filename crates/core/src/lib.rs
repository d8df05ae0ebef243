//! The decisions of the impersonation filter.
//!
//! A backend mints a *subject token* for a user. A support client exchanges it, exactly once, for
//! an access token that names the user and the acting person (RFC 8693). All other traffic passes
//! Envoy unchanged.
//!
//! The crate does no I/O and does not depend on `proxy_wasm`. An [`issuer`] reads a request and
//! yields a [`step::Step`]: a call that the host must send, or the finished answer. Clock,
//! randomness and Envoy's shared data come in through [`host::Host`], so tests can run whole
//! exchanges natively.

mod audit;
mod audit_log;
mod bearer;
mod browser_session;
mod certificate;
pub mod claims;
mod client;
pub mod config;
mod confirmation;
mod dpop;
mod events;
#[cfg(any(test, feature = "fakes"))]
pub mod fakes;
pub mod guard;
pub mod host;
mod http_stream;
pub mod issuer;
pub mod jose;
pub mod media_type;
pub mod metrics;
mod notifications;
pub mod oauth;
mod one_line;
mod path;
pub mod policy;
pub mod secret;
pub mod state;
mod statement;
pub mod step;
pub mod stream;
mod strict_json;
pub mod time;
pub mod upstream;

pub use one_line::{moves_text, one_line};
