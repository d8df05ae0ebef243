//! The rules of requests, played natively on a fake host: all of them in seconds.
#![cfg(test)]
#![expect(
    clippy::arithmetic_side_effects,
    clippy::string_slice,
    reason = "a test that overflows or slices wrongly fails, and that is all it does"
)]

#[path = "world/guarded_natively.rs"]
mod guarded;
#[path = "mod.rs"]
mod rules;
mod without_envoy;
#[path = "world/natively.rs"]
mod world;
