//! The filter from outside: requests to a real Envoy, and its answers.
//!
//! Each test is named for the rule it holds and checks what a caller, an upstream or an operator
//! sees; none knows how the filter works. One gateway serves all tests that leave its configuration
//! alone, so they run side by side; the others start their own.
#![cfg(test)]
#![expect(
    clippy::arithmetic_side_effects,
    clippy::string_slice,
    reason = "a test that overflows or slices wrongly fails, and that is all it does"
)]

mod approvals;
mod audit;
mod bound_callers;
mod browser_sessions;
mod certificates;
#[cfg(feature = "custom-claims")]
mod claims;
mod configuration;
mod descriptors;
mod documents;
mod etcd;
mod events;
mod faults;
mod framing;
mod grpc;
mod guard;
mod harness;
mod hostile;
mod impersonations;
mod memory;
mod names;
mod nonces;
mod operator;
mod pass_through;
mod paths;
mod probe;
mod proof_memory;
mod race;
mod rules;
mod spellings;
mod updates;
mod vectors;
mod version;
mod versions;
