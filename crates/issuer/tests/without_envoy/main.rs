//! The issuer without Envoy: whole requests. `driver` takes the plugin's place.
#![cfg(test)]
#![expect(clippy::arithmetic_side_effects, reason = "counts and small sums that cannot overflow")]

mod driver;
mod exchange;
