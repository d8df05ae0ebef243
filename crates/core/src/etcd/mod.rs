//! etcd, over gRPC through a cluster of Envoy's: its calls, its messages, its leases, and what can go wrong.
//!
//! What is kept there, and why that is safe, is for those who keep it to say.

mod authentic;
pub(crate) mod calls;
pub(crate) mod lease;
mod places;
pub(crate) mod proto;
mod read;
mod write;

pub(crate) use authentic::Bound;
pub use authentic::RecordKeys;
pub use calls::Server;
pub(crate) use places::Places;
