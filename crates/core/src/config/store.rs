//! The store of subject tokens, impersonations and revocations.

use super::etcd::EtcdSettings;
use super::kinds::SmallInteger;
use super::node::Node;
use super::section::{Raw, Refined, section};

/// The most entries of any table in shared data. Shared data never frees the room of a key.
pub(super) const MAX_CAPACITY: u32 = 10_000_000;

/// The default number of entries of any table in shared data.
pub(super) const DEFAULT_CAPACITY: u32 = 65_536;

/// The store of subject tokens until they are exchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreSettings {
    /// Envoy's shared data: the tokens of one Envoy.
    SharedData {
        /// The most outstanding tokens.
        capacity: u32,
    },
    /// An etcd that many Envoys share.
    Etcd(EtcdSettings),
}

section! {
    /// Where subject tokens are kept until they are exchanged.
    pub(super) struct StoreMembers under "store", "stores" {
        /// Envoy's shared data: the tokens of one Envoy.
        shared_data: SharedData => "used, unless `etcd` is given",
        /// An etcd. All Envoys that use the same etcd share their tokens. See [Many
        /// Envoys](many-envoys.md). A [change of store](many-envoys.md#a-change-of-store) ends what
        /// was issued before.
        etcd: EtcdSettings => "not used",
    }
    at_most_one [shared_data, etcd]
}

section! {
    /// Envoy's shared data.
    struct SharedData {
        /// The most subject tokens that can be outstanding in one Envoy. See
        /// [capacity](operations.md#capacity).
        capacity: SmallInteger<MAX_CAPACITY> = DEFAULT_CAPACITY,
    }
}

impl Refined for StoreSettings {
    type From = StoreMembers;
    type Value = Self;

    fn refine(raw: Raw<Self>, _: Node<'_>) -> Option<Self> {
        let StoreMembers { shared_data, etcd } = raw;
        let capacity = shared_data.map_or(DEFAULT_CAPACITY, |shared_data| shared_data.capacity);
        Some(etcd.map_or(Self::SharedData { capacity }, Self::Etcd))
    }
}
