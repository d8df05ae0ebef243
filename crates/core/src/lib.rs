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
pub mod audit_log;
mod bearer;
pub mod browser_session;
pub mod certificate;
pub mod claims;
mod client;
pub mod config;
pub mod confirmation;
pub mod dpop;
mod events;
#[cfg(any(test, feature = "fakes"))]
pub mod fakes;
pub mod guard;
pub mod host;
pub mod http_stream;
pub mod issuer;
pub mod jose;
pub mod media_type;
pub mod metrics;
mod notifications;
pub mod oauth;
pub mod one_line;
pub mod path;
pub mod policy;
pub mod secret;
pub mod state;
pub mod statement;
pub mod step;
pub mod stream;
pub mod strict_json;
pub mod time;
pub mod upstream;

pub use one_line::{moves_text, one_line};
