//! Whole requests through the core, natively: the answers to callers, and the lines in the logs.

mod callouts;
mod documents;
mod events;
mod failures;
mod flow;
mod leaving;
mod order;
mod page;
mod refusals;
#[cfg(feature = "custom-claims")]
mod scripts;
mod secrecy;
mod setting;
mod time;
mod tokens;
