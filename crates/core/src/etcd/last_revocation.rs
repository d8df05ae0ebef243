//! What the key says that is written with every revocation.

use super::proto::{Answer, RangeResponse};
use super::revision::Revision;

/// The last revocation, as somebody read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastRevocation {
    /// Its revision; none if nothing was ever revoked.
    pub(crate) revision: Revision,
    /// What etcd was at when this was so.
    pub(crate) seen_at: Revision,
}

impl LastRevocation {
    /// From the key that was read, as part of an answer.
    pub(crate) fn of(answer: &impl Answer, key: Option<&RangeResponse>) -> Self {
        let kv = key.and_then(|key| key.kvs.first());
        let revision = kv.map(|kv| Revision::new(kv.mod_revision)).unwrap_or_default();
        Self { revision, seen_at: answer.revision() }
    }
}
