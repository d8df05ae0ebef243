//! What the impersonation filter decides.
//!
//! A backend mints a *subject token* for a user; a support client exchanges it, exactly once, for an
//! access token that says who the user is and who really acts (RFC 8693). Everything else that
//! passes Envoy is left as it was.
//!
//! Nothing here does I/O, and nothing here can name `proxy_wasm`: it is not among the dependencies. An
//! [`issuer`] reads a request and yields a [`step::Step`], either a call that the host must make
//! for it or the finished answer. Clock, randomness and Envoy's shared data come in through
//! [`host::Host`], so that whole exchanges run natively in tests.

mod audit;
mod bearer;
pub mod claims;
mod client;
pub mod config;
pub mod etcd;
#[cfg(any(test, feature = "fakes"))]
pub mod fakes;
pub mod guard;
pub mod host;
pub mod impersonations;
pub mod issuer;
pub mod jose;
pub mod media_type;
pub mod metrics;
pub mod oauth;
pub mod path;
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
