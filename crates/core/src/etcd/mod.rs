//! etcd, over gRPC through a cluster of Envoy's: its calls, its messages, its leases, and what can go wrong.
//!
//! What is kept there, and why that is safe, is for those who keep it to say.

mod authentic;
pub(crate) mod calls;
mod failure;
mod last_revocation;
pub(crate) mod lease;
mod places;
pub(crate) mod proto;
mod read;
mod revision;
mod write;

pub use authentic::RecordKeys;
pub(crate) use authentic::{Bound, TAG_LEN, Tag};
pub use calls::Server;
pub use failure::EtcdFailure;
pub use last_revocation::LastRevocation;
pub(crate) use places::Places;
pub use revision::Revision;

use crate::host::UnixTime;

/// A key that is written in the same transaction as another, and shares its lease.
#[derive(Debug, Clone)]
pub struct Beside {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
    /// Until when it is needed.
    pub(crate) needed_until: UnixTime,
}
