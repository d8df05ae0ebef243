//! One JavaScript function, called over JSON any number of times, as if each call were the first.
//!
//! A script may write to globals, change built-in prototypes, leave promises pending or be stopped
//! in mid-air. To keep that from the next call one can build a new context for each (85 µs in wasm,
//! with the engine warm), or freeze what is built in (and break scripts that assign to it). This
//! crate does neither. QuickJS keeps everything it knows in memory from the allocator that it is
//! given, so [`Function::load`] gives it one block of memory, runs the script's top level, and takes
//! a copy of the block; [`Function::call`] puts the copy back when it is done, in some
//! microseconds. What a call did is then not cleaned up but undone, to the byte, however the call ended, and
//! nothing of it can leak or add up.
//!
//! A call is bounded in time, memory and stack. The bound on time is looked at where QuickJS looks,
//! which is every ten thousand jumps and calls in script code, and wherever it asks for memory: a
//! single built-in function that does neither for long, such as `indexOf` with megabytes of needle
//! and haystack, is waited for.

mod bounds;
mod engine;
mod heap;

pub use bounds::{Host, Limits, Next, Output};
pub use engine::{CallError, Exception, Function, LoadError};
