//! The rules of requests, in a real Envoy over real sockets.
#![cfg(test)]
#![expect(
    clippy::arithmetic_side_effects,
    clippy::string_slice,
    reason = "a test that overflows or slices wrongly fails, and that is all it does"
)]

#[path = "world/guarded_in_envoy.rs"]
mod guarded;
#[path = "mod.rs"]
mod rules;
#[path = "world/in_envoy.rs"]
mod world;
