//! etcd, over gRPC through a cluster of Envoy's: its calls, its messages, its leases, and what can go wrong.
//!
//! What is kept there, and why that is safe, is for those who keep it to say.

mod authentic;
mod calls;
mod impersonations;
mod lease;
mod places;
mod proto;
mod read;
mod revocations;
mod tokens;
mod write;

use authentic::Bound;
pub use authentic::RecordKeys;
pub use calls::Server;
pub(crate) use impersonations::EtcdList;
use places::Places;
pub(crate) use revocations::EtcdRevocations;
pub(crate) use tokens::EtcdTokens;
