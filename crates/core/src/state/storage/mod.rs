//! The choice of an adapter for subject tokens, revocations and impersonations.
//!
//! `store`, `revocations` and `impersonations` are the vocabulary, and name no adapter. Each
//! adapter is a folder that implements the verbs of the three: [`local`](crate::state::local) for one
//! Envoy, [`etcd`](crate::state::etcd) for many. No module outside names an adapter. A new adapter is a
//! folder, a variant of [`Adapter`] with an arm in `call!`, and an arm in each function of `open`.

mod impersonations;
mod open;
mod revocations;
mod tokens;

pub use impersonations::List;
pub(crate) use open::{Stores, open, open_for_guard};
pub use revocations::Revocations;
pub use tokens::Store;

/// The adapter in use. `L` and `E` are the parts of the adapters that keep one kind of thing.
#[derive(Debug)]
enum Adapter<L, E> {
    /// Envoy's shared data.
    Local(L),
    /// etcd, which many Envoys share.
    Etcd(E),
}

/// Calls a verb of the adapter in use.
macro_rules! call {
    ($adapter:expr, $used:ident => $call:expr) => {
        match &$adapter {
            $crate::state::storage::Adapter::Local($used) => $call,
            $crate::state::storage::Adapter::Etcd($used) => $call,
        }
    };
}

use call;
