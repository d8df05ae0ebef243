//! The guard before an API: which impersonated requests reach it.

mod audit;
mod claims;
mod configuration;
mod ended;
mod rules;
