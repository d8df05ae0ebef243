//! The rules of requests. Each rule is written once and runs in two worlds: natively, and in a real
//! Envoy. What only Envoy can do wrong is in `tests/envoy`.

mod bounds;
mod flow;
mod mint_order;
mod mint_rules;
