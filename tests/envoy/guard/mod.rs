//! The guard before an API: which impersonated requests reach it.

mod binding;
pub(super) mod bypass;
mod crashed;
mod ended;
mod etcd;
mod expired;
mod failures;
mod mesh;
mod observed;
mod ordinary;
pub(super) mod proof;
mod streams;
mod wrong_clocks;
