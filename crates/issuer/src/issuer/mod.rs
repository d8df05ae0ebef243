//! The endpoints of the filter: subject tokens, their exchange, impersonations and revocations, and
//! the documents by which APIs verify access tokens.

mod answer;
mod approvals;
mod body;
mod browser_session;
mod cancel;
mod configure;
mod decision_point;
mod dispatch;
mod documents;
mod endings;
mod endpoints;
mod events;
mod exchange;
mod introspect;
mod issued_token;
mod list;
mod listing;
mod logout;
mod mint;
mod origins;
mod ours;
mod oversight;
mod page;
mod possession;
mod presented;
mod query;
mod recipient;
mod refusal;
mod request;
mod request_context;
mod reviewed;
mod revoke;
mod revoke_token;
mod security_event;
mod service;
mod stand_in;
mod subject_token;

pub use crate::config::Paths;
pub use crate::events::EVENT_TYPES;
pub(crate) use answer::{Answer, Outcome};
pub use configure::{Environment, check};
pub(crate) use dispatch::{Dispatch, dispatch};
pub(crate) use documents::{Document, PARTIAL_HEADERS, STALE_HEADERS, stays_beside};
pub(crate) use endpoints::Route;
pub use endpoints::{Endpoint, Purpose};
pub use page::BuiltPage;
pub use request::{Body, Head, MAX_BODY};

pub use service::{Service, TICK};
pub(crate) use stand_in::MAX_DOCUMENT;
