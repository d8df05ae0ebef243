//! Every reader of what strangers send, as a function of bytes: requests, what upstreams answer, what is stored, and
//! what an operator may have been given to paste.
//!
//! A target panics where something does not hold. That is a panic of the filter's, most of all: it would kill the
//! worker's VM. Beyond that each says what must follow from what was accepted, as another reader of the same bytes has
//! it, or as whoever made them knows.
//!
//! `scripts/fuzz` has libFuzzer look for such bytes, guided by what they reach. What it kept is in `corpus`, and
//! `tests/replay.rs` tries that in every test run.

mod check;
pub mod corpus;
mod etcd;
mod readers;
mod requests;
mod setting;
mod world;

/// A reader, and what must hold of it.
pub struct Target {
    /// Its name, and that of its file in `corpus`.
    pub name: &'static str,
    /// Reads, and panics where something does not hold.
    pub run: fn(&[u8]),
}

/// All of them.
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
