//! etcd, over gRPC through a cluster of Envoy's: its calls, its messages, its leases, and what can go wrong.
//!
//! What is kept there, and why that is safe, is for those who keep it to say.

pub(crate) mod calls;
mod failure;
pub(crate) mod lease;
pub(crate) mod proto;

pub(crate) use failure::Complaints;
pub use failure::EtcdFailure;
