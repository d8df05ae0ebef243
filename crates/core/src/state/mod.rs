//! The state of the filter: all that outlives a request.
//!
//! The rest of the core asks the stores of `storage` for subject tokens, revocations and the list
//! of impersonations. Only `storage` knows if they are in Envoy's shared data or in etcd.

pub mod etcd;
pub mod impersonations;
pub mod local;
pub mod mint_rate;
pub mod remote;
pub mod revocations;
pub mod shared_data;
pub mod storage;
pub mod store;
pub mod versioned;
