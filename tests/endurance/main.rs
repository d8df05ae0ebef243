//! Tests that need large numbers: no token is exchanged twice, and Envoy does not grow.
//!
//! Each has a long form, whose length docs/reliability.md names (`make race`, `make soak`), and a
//! short one, which shows in every test run that the tests work.
#![cfg(test)]
#![expect(
    clippy::arithmetic_side_effects,
    reason = "a test that overflows fails, and that is all it does"
)]

mod crash;
mod events;
mod race;
mod soak;

/// Returns a number from the environment, or the default.
fn from_environment(name: &str, otherwise: usize) -> usize {
    std::env::var(name).map_or(otherwise, |text| {
        text.parse().unwrap_or_else(|error| panic!("{name}={text}: {error}"))
    })
}
