//! Where subject tokens, impersonations and revocations are kept.

use super::etcd::EtcdSettings;
use super::kinds::Count;
use super::node::Node;
use super::section::{Kind, section};

#[cfg(test)]
use super::describe::{Described, Descriptions};

/// The most of anything that is kept in shared data, which never gives back the room for a key.
pub(super) const MAX_CAPACITY: u32 = 10_000_000;

/// How much of anything is kept in shared data where the operator says nothing else.
pub(super) const DEFAULT_CAPACITY: u32 = 65_536;

/// Where subject tokens are until they are exchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Store {
    /// In Envoy's shared data.
    SharedData {
        /// The most outstanding tokens.
        capacity: u32,
    },
    /// In etcd, for many Envoys.
    Etcd(EtcdSettings),
}

section! {
    /// Where subject tokens are until they are exchanged.
    struct StoreMembers {
        /// In Envoy's shared data: the tokens of one Envoy.
        shared_data: SharedData => "used, unless `etcd` is given",
        /// In etcd: all Envoys that ask the same etcd share their tokens. See [Many
        /// Envoys](many-envoys.md).
        etcd: EtcdSettings => "not used",
    }
    at_most_one [shared_data, etcd]
}

section! {
    /// In Envoy's shared data.
    struct SharedData {
        /// The most subject tokens that can be outstanding in one Envoy. See
        /// [capacity](operations.md#capacity).
        capacity: Count<MAX_CAPACITY> = DEFAULT_CAPACITY,
    }
}

impl Kind for Store {
    type Value = Self;

    fn read(node: Node<'_>) -> Option<Self> {
        let StoreMembers { shared_data, etcd } = StoreMembers::read(node)?;
        let capacity = shared_data.map_or(DEFAULT_CAPACITY, |shared_data| shared_data.capacity);
        Some(etcd.map_or(Self::SharedData { capacity }, Self::Etcd))
    }

    #[cfg(test)]
    fn describe(descriptions: &mut Descriptions) -> Described {
        StoreMembers::describe(descriptions).under(descriptions, "store", "stores")
    }
}
