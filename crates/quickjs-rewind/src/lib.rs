//! One JavaScript function, called over JSON any number of times, each time as if it were the
//! first.
//!
//! A script may write to globals, change built-in prototypes, leave promises pending or be stopped
//! at any point. None of this may affect the next call. One could build a new context for each call
//! (85 µs in wasm, with the engine warm), or freeze the built-in objects (which breaks scripts that
//! assign to them). This crate does neither. QuickJS keeps all its state in memory from the
//! allocator that it is given. So [`Function::load`] gives it one block of memory, runs the
//! script's top level, and copies the block. [`Function::call`] puts the copy back after each call,
//! in some microseconds. This undoes the call to the byte, however it ended: nothing can leak or
//! add up.
//!
//! A call is bounded in time, memory and stack. QuickJS checks the time every ten thousand jumps
//! and calls in script code, and the allocator checks it. A single built-in function that does
//! neither for long, such as `indexOf` with megabytes of needle and haystack, is not interrupted.

mod bounds;
mod engine;
mod heap;

pub use bounds::{Host, Limits, Next, Output};
pub use engine::{CallError, Exception, Function, LoadError};
