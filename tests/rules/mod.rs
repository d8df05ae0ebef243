//! The rules of requests. Each rule is written once and runs in two worlds: natively, and in a real
//! Envoy. What only Envoy can do wrong is in `tests/envoy`.

mod binding;
mod bound_callers;
mod bounds;
mod capacity;
mod client_auth;
mod client_keys;
mod documents;
mod exchange;
mod flow;
mod mint;
mod mint_rules;
mod names;
mod opaque_tokens;
mod presented_tokens;
mod user_lookup;
