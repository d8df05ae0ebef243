//! The adapter for many Envoys: it keeps everything in etcd, over gRPC through a cluster of
//! Envoy's.
//!
//! All Envoys that ask the same etcd share subject tokens, revocations and impersonations.

mod authentic;
mod calls;
mod impersonations;
mod lease;
mod places;
mod proto;
mod read;
mod revocations;
#[cfg(test)]
mod room_for_events;
mod tokens;
mod write;

use authentic::Bound;
pub use authentic::RecordKeys;
pub use calls::Server;
pub(crate) use impersonations::EtcdList;
use places::Places;
pub(crate) use revocations::EtcdRevocations;
pub(crate) use tokens::EtcdTokens;
