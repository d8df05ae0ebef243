//! The bounds of a call, and the watch that ends a call beyond them.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// The facilities that the embedding program gives to a script.
pub trait Host {
    /// The time since any fixed moment. It never goes back.
    fn now(&self) -> Duration;

    /// The next random number of `Math.random`: at least 0, less than 1.
    fn random(&self) -> f64;

    /// Receives `host.send(channel, text)` from the prelude.
    fn receive(&self, channel: &str, text: &str) -> Next;
}

/// The host's answer to a message of the script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The script goes on.
    Continue,
    /// The call ends as [`CallError::Stopped`](crate::CallError::Stopped), whatever the script does
    /// then.
    Stop,
}

/// The way in which the function's result becomes JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// Like `JSON.stringify`, which drops or changes values that JSON cannot express.
    Stringified,
    /// Exactly. A result that JSON cannot express in full is a failure,
    /// [`CallError::NotSerializable`](crate::CallError::NotSerializable): `undefined`, a function,
    /// a symbol, a BigInt, a number that is not finite, a hole, a getter, a proxy, or a prototype
    /// of its own.
    Exact,
}

/// The bounds of one call.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The time on the host's clock.
    pub time: Duration,
    /// The time for the script's top level, which runs once.
    pub load_time: Duration,
    /// The memory for the script's values. The engine's own memory is added.
    pub memory_bytes: usize,
    /// The size of the stack.
    pub stack_bytes: usize,
    /// The size of the stack for compiling the script. The compiler may need more than it accounts
    /// for.
    pub compile_stack_bytes: usize,
    /// The most bytes of the function's result as compact JSON.
    pub output_bytes: usize,
}

/// The reason why a call is ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Stopped,
    TimedOut,
    OutOfMemory,
}

/// Watches one call. The first reason to end the call is kept.
pub(crate) struct Watch {
    host: Rc<dyn Host>,
    deadline: Cell<Duration>,
    ended: Cell<Option<Ended>>,
    /// Bytes that may still be allocated before the clock is read again.
    until_next_look: Cell<usize>,
}

/// Copying this many bytes takes some microseconds. Reading the clock takes a tenth of one.
const BYTES_PER_LOOK: usize = 64 * 1024;

impl Watch {
    pub(crate) fn new(host: Rc<dyn Host>) -> Self {
        Self {
            host,
            deadline: Cell::new(Duration::MAX),
            ended: Cell::new(None),
            until_next_look: Cell::new(BYTES_PER_LOOK),
        }
    }

    pub(crate) fn start(&self, time: Duration) {
        self.deadline.set(self.host.now().saturating_add(time));
        self.ended.set(None);
        self.until_next_look.set(BYTES_PER_LOOK);
    }

    pub(crate) fn ended(&self) -> Option<Ended> {
        self.ended.get()
    }

    pub(crate) fn end(&self, reason: Ended) {
        if self.ended.get().is_none() {
            self.ended.set(Some(reason));
        }
    }

    /// Returns true if the call must end. Reads the clock.
    pub(crate) fn is_over(&self) -> bool {
        if self.ended.get().is_none() && self.host.now() > self.deadline.get() {
            self.end(Ended::TimedOut);
        }
        self.ended.get().is_some()
    }

    /// Returns true if the call must end. Reads the clock only after enough work, measured in
    /// allocated bytes.
    pub(crate) fn is_over_after(&self, bytes: usize) -> bool {
        match self.until_next_look.get().checked_sub(bytes) {
            Some(left) => {
                self.until_next_look.set(left);
                self.ended.get().is_some()
            }
            None => {
                self.until_next_look.set(BYTES_PER_LOOK);
                self.is_over()
            }
        }
    }
}
