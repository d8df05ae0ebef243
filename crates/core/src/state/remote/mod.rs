//! The vocabulary of a store outside Envoy: its revisions, its failures, and the last revocation.
//!
//! Subject tokens, revocations and impersonations use these types whichever adapter keeps them. An
//! adapter turns its own errors and versions into them.

mod failure;
mod last_revocation;
mod revision;

pub(crate) use failure::Complaints;
pub use failure::RemoteFailure;
pub use last_revocation::LastRevocation;
pub use revision::Revision;

use crate::host::UnixTime;

/// A key that the store writes in the same transaction as another, and on the same lease.
#[derive(Debug, Clone)]
pub struct Beside {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
    /// The key must exist until this time.
    pub(crate) needed_until: UnixTime,
}

/// The length of a [`Tag`] in bytes.
pub(crate) const TAG_LEN: usize = 16;

/// Proves that a filter with one of the signing keys wrote something: nobody else can make it.
pub(crate) type Tag = [u8; TAG_LEN];
