//! The choice of an adapter for subject tokens, revocations and impersonations.
//!
//! `store`, `revocations` and `impersonations` are the vocabulary, and name no adapter. An adapter
//! is a folder: `local` for one Envoy, `etcd` for many. No module outside names an adapter. There
//! is no trait for both: a table of slots and a store with leases differ in kind, and a verb that
//! one of them does not need is not written for it. A new adapter is a folder, and an arm in each
//! function here.

mod impersonations;
mod open;
mod revocations;
mod tokens;

pub use impersonations::List;
pub use open::{Stores, open, open_for_guard};
pub use revocations::Revocations;
pub use tokens::Store;
