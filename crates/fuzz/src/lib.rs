//! A fuzz target for every reader of untrusted bytes: requests, upstreams' answers, stored values,
//! and files that an operator may have been given to paste.
//!
//! A target panics where a rule does not hold. The first rule is that the filter never panics,
//! because a panic kills the worker's VM. Each target also asserts what must follow from the bytes
//! that were accepted, by another reader of the same bytes or by what their maker knows.
//!
//! `scripts/fuzz` lets libFuzzer search for such bytes, guided by the code that they reach. Its
//! findings are in `corpus`, and `tests/replay.rs` tries them in every test run.

mod approvals;
mod check;
pub mod corpus;
mod etcd;
mod keys;
mod readers;
mod requests;
mod setting;
mod world;

/// A reader, and the rules that must hold of it.
pub struct Target {
    /// The name of the target and of its file in `corpus`.
    pub name: &'static str,
    /// Reads the bytes, and panics where a rule does not hold.
    pub run: fn(&[u8]),
}

/// All targets.
pub const TARGETS: [Target; 20] = [
    // The token endpoint.
    Target { name: "form", run: readers::form },
    Target { name: "token_request", run: requests::token_request },
    Target { name: "proof", run: keys::proof },
    Target { name: "assertion", run: keys::assertion },
    // The endpoint for subject tokens.
    Target { name: "mint_body", run: requests::mint_body },
    Target { name: "bearer", run: requests::bearer },
    Target { name: "jwt", run: requests::jwt },
    // The endpoints that list and end impersonations.
    Target { name: "oversight", run: requests::oversight },
    // Approvals, their records, and the decision point.
    Target { name: "approvals", run: approvals::approvals },
    Target { name: "waiting", run: approvals::waiting },
    // Keys and tokens.
    Target { name: "jwks", run: readers::jwks },
    Target { name: "signing_key", run: readers::signing_key },
    // The answers of upstreams.
    Target { name: "upstreams", run: requests::upstreams },
    Target { name: "documents", run: requests::documents },
    Target { name: "etcd", run: requests::etcd },
    // The records in shared data.
    Target { name: "shared_data", run: requests::shared_data },
    // The guard.
    Target { name: "guard", run: requests::guard },
    // The operator's files, and the reports for the operator.
    Target { name: "configuration", run: readers::configuration },
    Target { name: "yaml", run: readers::yaml },
    // Into the engine, and out of it.
    Target { name: "claims", run: readers::claims },
];
