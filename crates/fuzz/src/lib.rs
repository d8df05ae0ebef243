//! A fuzz target for every reader of untrusted bytes: requests, upstreams' answers, stored values,
//! and files that an operator may have been given to paste.
//!
//! A target panics where a rule does not hold. The first rule is that the filter never panics,
//! because a panic kills the worker's VM. Each target also asserts what must follow from the bytes
//! that were accepted, by another reader of the same bytes or by what their maker knows.
//!
//! `scripts/fuzz` lets libFuzzer search for such bytes, guided by the code that they reach. Its
//! findings are in `corpus`, and `tests/replay.rs` tries them in every test run.

mod check;
pub mod corpus;
mod etcd;
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
pub const TARGETS: [Target; 16] = [
    // The token endpoint.
    Target { name: "form", run: readers::form },
    Target { name: "token_request", run: requests::token_request },
    // Where subject tokens are minted.
    Target { name: "mint_body", run: requests::mint_body },
    Target { name: "bearer", run: requests::bearer },
    Target { name: "jwt", run: requests::jwt },
    // What is live, and what has ended.
    Target { name: "oversight", run: requests::oversight },
    // Keys and tokens.
    Target { name: "jwks", run: readers::jwks },
    Target { name: "signing_key", run: readers::signing_key },
    // What others answer.
    Target { name: "upstreams", run: requests::upstreams },
    Target { name: "documents", run: requests::documents },
    Target { name: "etcd", run: requests::etcd },
    // What is stored.
    Target { name: "shared_data", run: requests::shared_data },
    // What passes the guard.
    Target { name: "guard", run: requests::guard },
    // What an operator writes, or is given.
    Target { name: "configuration", run: readers::configuration },
    Target { name: "yaml", run: readers::yaml },
    // Into the engine, and out of it.
    Target { name: "claims", run: readers::claims },
];
