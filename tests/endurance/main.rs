//! What only shows in large numbers: whether a token is exchanged twice, whether anything grows.
//!
//! Each has a long form, of the length that docs/reliability.md names (`make race`, `make soak`), and a short one that
//! shows in every test run that the machinery works.
#![cfg(test)]
#![expect(
    clippy::arithmetic_side_effects,
    reason = "a test that overflows fails, and that is all it does"
)]

mod crash;
mod race;
mod soak;

/// A number that the environment may give.
fn from_environment(name: &str, otherwise: usize) -> usize {
    std::env::var(name).map_or(otherwise, |text| {
        text.parse().unwrap_or_else(|error| panic!("{name}={text}: {error}"))
    })
}
