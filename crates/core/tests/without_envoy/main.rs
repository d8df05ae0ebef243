//! The core without Envoy. `driver` takes the plugin's place. `exchange` plays whole requests,
//! `store_model` every interleaving of the store's workers, `etcd_store` every outcome of the calls
//! to etcd, `watched` what can become of a watch of etcd, `guard` the requests of impersonations to
//! an API, and `revocations` every order of a revocation's steps and an exchange's.
#![cfg(test)]
#![expect(clippy::arithmetic_side_effects, reason = "counts and small sums that cannot overflow")]

mod driver;
mod etcd_revocations;
mod etcd_store;
mod exchange;
mod guard;
mod revocations;
mod store_model;
mod watched;
