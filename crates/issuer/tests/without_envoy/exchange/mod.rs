//! Whole requests through the core, natively: the answers to callers, and the lines in the logs.

mod documents;
mod events;
mod failures;
mod order;
mod page;
#[cfg(feature = "custom-claims")]
mod scripts;
mod secrecy;
mod setting;
mod time;
mod tokens;
