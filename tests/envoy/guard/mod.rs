//! The guard before an API: which requests of an impersonation reach it.

mod bypass;
mod claims;
mod crashed;
mod ended;
mod etcd;
mod failures;
mod mesh;
mod observed;
mod ordinary;
mod proof;
mod rules;
mod streams;
mod wrong_clocks;
