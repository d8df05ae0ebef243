//! The rules of requests. Each rule is written once and runs in two worlds: natively, and in a real
//! Envoy. What only Envoy can do wrong is in `tests/envoy`.

mod approvals;
mod bounds;
mod events;
mod flow;
mod impersonations;
#[expect(clippy::duplicate_mod, reason = "the same holds with the other store")]
#[path = "impersonations/mod.rs"]
mod impersonations_in_etcd;
mod mint_order;
mod mint_rules;
mod step_up;
