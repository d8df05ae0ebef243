//! The key that every revocation writes besides its own.

use super::revision::Revision;

/// The last revocation of a service, as one read of the store found it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastRevocation {
    /// The revision of the last revocation; none if nothing was ever revoked.
    pub(crate) revision: Revision,
    /// The number of revocations until then. The store counts them from `counted_since` on.
    pub(crate) number: u64,
    /// The revision of the first revocation that the store counted.
    pub(crate) counted_since: Revision,
    /// The store's revision when this was read.
    pub(crate) seen_at: Revision,
}
