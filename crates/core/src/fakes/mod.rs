//! One fake of each part of Envoy that the core needs, for the tests of this crate and of others.
//!
//! A fake follows the rules of the original. A test can make it fail, and it asserts what Envoy
//! would insist on.
#![expect(
    clippy::arithmetic_side_effects,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a fake that panics fails a test, and is never shipped"
)]

mod crypto;
mod etcd;
mod host;
mod metadata;
mod shared_data;
mod stream;

pub use crypto::CountingCrypto;
pub use etcd::{Etcd, EtcdWatch, etcd_server, play_in_etcd};
pub use host::{FakeHost, START, another_envoy};
pub use metadata::{jwt_metadata, protobuf_struct, protobuf_value};
pub use shared_data::EnvoyMap;
pub use stream::{FakeStream, Headers, Sent, run};
