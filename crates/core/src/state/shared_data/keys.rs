//! The names of all keys in shared data.
//!
//! All plugins of one `vm_id` share one map. Each key begins with the namespace of its service, so
//! that services do not see each other's values. The filter and the guard of one service share a
//! namespace.

use std::fmt::Write as _;

use crate::secret::{Digest, namespace};

/// The keys of one service.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    namespace: String,
}

impl Keys {
    /// The keys of the service that `tenant` names.
    pub(crate) fn new(tenant: &str) -> Self {
        Self { namespace: namespace(tenant) }
    }

    /// The record of the subject token in a slot.
    pub(crate) fn slot(&self, slot: u32) -> String {
        self.numbered("s", slot)
    }

    /// A page of hints: until when each of its slots is taken.
    pub(crate) fn page(&self, page: u32) -> String {
        self.numbered("p", page)
    }

    /// The lease of the VM that counts the tokens in slots.
    pub(crate) fn census(&self) -> String {
        self.named("census")
    }

    /// The lease of the VM that counts the tokens in etcd.
    pub(crate) fn etcd_census(&self) -> String {
        self.named("etcd-census")
    }

    /// The table of this Envoy's revocations.
    pub(crate) fn revocations(&self) -> String {
        self.named("rt")
    }

    /// The sequence number of the table of this Envoy's revocations.
    pub(crate) fn revocations_number(&self) -> String {
        self.named("rv")
    }

    /// The copy of the revocations in etcd.
    pub(crate) fn revocations_copy(&self) -> String {
        self.named("ct")
    }

    /// The sequence number of the copy of the revocations in etcd.
    pub(crate) fn revocations_copy_number(&self) -> String {
        self.named("cv")
    }

    /// The lease of the VM that asks etcd for new revocations.
    pub(crate) fn revocations_follower(&self) -> String {
        self.named("follower")
    }

    /// A bucket of the list of live impersonations.
    pub(crate) fn impersonations(&self, bucket: u32) -> String {
        self.numbered("i", bucket)
    }

    /// The state of the list of live impersonations: its capacity, and until when it is incomplete.
    pub(crate) fn impersonations_state(&self) -> String {
        self.named("il")
    }

    /// A bucket of the index of tokens with a review, by caller.
    pub(crate) fn waiting(&self, bucket: u32) -> String {
        self.numbered("w", bucket)
    }

    /// A bucket of the index of tokens with a review, by user.
    pub(crate) fn waiting_for_user(&self, bucket: u32) -> String {
        self.numbered("u", bucket)
    }

    /// A list of callers, with the number of mints of each.
    pub(crate) fn mints(&self, list: u32) -> String {
        self.numbered("m", list)
    }

    /// A bucket of the ids that were seen once. `purpose` keeps ids of different kinds apart.
    /// `format` is part of the name: another version of the filter uses other keys.
    pub(crate) fn seen_once(&self, purpose: &str, format: u8, bucket: u32) -> String {
        self.numbered(&format!("o-{purpose}-{format}-"), bucket)
    }

    /// The random secret of this Envoy for a purpose.
    pub(crate) fn secret(&self, purpose: &str) -> String {
        self.named(&format!("secret-{purpose}"))
    }

    fn named(&self, name: &str) -> String {
        [&*self.namespace, name].concat()
    }

    fn numbered(&self, kind: &str, number: u32) -> String {
        let mut key = String::with_capacity(24);
        let _ = write!(key, "{}{kind}{number}", self.namespace);
        key
    }
}

/// The key set that was fetched from `source`. All services share it, because one source has
/// one key set.
pub(crate) fn key_set(source: &str) -> String {
    format!("k{}", Digest::of(source.as_bytes()).id())
}

/// The document that was fetched from `source`. All services share it, as they share key sets.
pub fn document(source: &str) -> String {
    format!("d{}", Digest::of(source.as_bytes()).id())
}
