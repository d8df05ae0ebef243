//! What the filter answers: subject tokens, their exchange, and the documents that say how to verify what comes
//! out of it.

mod answer;
mod begin;
mod cancel;
mod configure;
mod documents;
mod exchange;
mod introspect;
mod issued_token;
mod last_good;
mod list;
mod mint;
mod oversight;
mod refusal;
mod request;
mod revoke;
mod revoke_token;
mod routes;
mod service;

pub use answer::{Answer, Outcome};
pub use begin::{Begun, begin};
pub use configure::{Environment, check};
pub(crate) use documents::{PARTIAL_HEADERS, STALE_HEADERS, stays_beside};
pub use request::{Body, Head, MAX_BODY};
pub use routes::{Paths, Route};
pub use service::Service;
