//! The guard before an API: which requests of an impersonation reach it.

mod bypass;
mod claims;
mod failures;
mod observed;
mod ordinary;
mod rules;
