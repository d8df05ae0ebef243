//! The rules of requests. Each rule is written once and runs in two worlds: natively, and in a real
//! Envoy. What only Envoy can do wrong is in `tests/envoy`.

pub(crate) mod approvals;
mod audit;
#[cfg(feature = "custom-claims")]
mod authorize;
mod binding;
mod bound_callers;
mod bounds;
mod browser_sessions;
mod callouts;
mod capacity;
#[cfg(feature = "custom-claims")]
mod claims;
mod client_auth;
mod client_keys;
mod clock;
mod documents;
mod events;
mod exchange;
mod flow;
mod guard;
mod impersonations;
#[expect(clippy::duplicate_mod, reason = "the same holds with the other store")]
#[path = "impersonations/mod.rs"]
mod impersonations_in_etcd;
mod key_sets;
mod leaving;
mod merged_documents;
mod mint;
mod names;
mod opaque_tokens;
mod paths;
mod presented_tokens;
mod stand_in;
mod step_up;
mod user_lookup;
