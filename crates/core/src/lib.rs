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
mod bearer;
pub mod claims;
mod client;
pub mod config;
pub mod etcd;
pub mod guard;
pub mod host;
pub mod impersonations;
pub mod issuer;
pub mod jose;
pub mod media_type;
pub mod metrics;
pub mod oauth;
mod path;
pub mod policy;
pub mod revocations;
pub mod secret;
pub mod step;
pub mod store;
pub mod stream;
mod strict_json;
pub mod time;
mod turn;
pub mod upstream;
mod versioned;

pub use audit::{moves_text, one_line};
