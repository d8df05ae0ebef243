//! The decisions of the guard, and all that the guard shares with the filter: configuration, state,
//! signatures, statements of others.
//!
//! A backend mints a *subject token* for a user. A support client exchanges it, exactly once, for
//! an access token that names the user and the acting person (RFC 8693). `crates/issuer` does
//! that, above this crate. The guard stands before the APIs that receive the access token.
//!
//! The crate does no I/O and does not depend on `proxy_wasm`. A request is a task that yields a
//! [`step::Step`]: a call that the host must send, or the finished answer. Clock, randomness and
//! Envoy's shared data come in through [`host::Host`], so tests can run whole exchanges natively.

pub mod audit_log;
pub mod browser_session;
pub mod certificate;
pub mod config;
pub mod confirmation;
pub mod dpop;
#[cfg(any(test, feature = "fakes"))]
pub mod fakes;
pub mod guard;
pub mod host;
pub mod http_stream;
pub mod jose;
pub mod media_type;
pub mod metrics;
pub mod oauth;
pub mod one_line;
pub mod path;
pub mod policy;
pub mod secret;
pub mod state;
pub mod statement;
pub mod step;
pub mod strict_json;
pub mod time;
pub mod upstream;

pub use one_line::{moves_text, one_line};
