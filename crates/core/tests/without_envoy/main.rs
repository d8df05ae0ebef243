//! The core without Envoy. `store_model` plays every interleaving of the store's workers,
//! `etcd_store` every outcome of the calls to etcd, `watched` what can become of a watch of etcd,
//! `guard` the requests of impersonations to an API, and `revocations` every order of the steps of
//! a revocation and an exchange.
#![cfg(test)]
#![expect(clippy::arithmetic_side_effects, reason = "counts and small sums that cannot overflow")]

mod etcd_revocations;
mod etcd_store;
mod guard;
mod revocations;
mod store_model;
mod watched;
