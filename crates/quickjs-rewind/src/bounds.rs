//! What a call may use up, and who says when it has.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// What the program is given by whoever runs it.
pub trait Host {
    /// The time since any fixed moment. It never goes back.
    fn now(&self) -> Duration;

    /// The next random number of `Math.random`: at least 0, less than 1.
    fn random(&self) -> f64;

    /// The prelude has called `host.send(channel, text)`.
    fn receive(&self, channel: &str, text: &str) -> Next;
}

/// Whether the program goes on after it sent something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// It does.
    Continue,
    /// The call ends as [`CallError::Stopped`](crate::CallError::Stopped), whatever the script does now.
    Stop,
}

/// How what the function returns becomes JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// As `JSON.stringify` has it, which leaves out and changes what JSON has no word for.
    Stringified,
    /// As it is: an object that JSON cannot say all of is a failure,
    /// [`CallError::NotSerializable`](crate::CallError::NotSerializable). Such is one with `undefined`, a function, a
    /// symbol, a BigInt, a number that is not finite, a hole, a getter, a proxy, or a prototype of its own in it.
    Exact,
}

/// What one call may use up.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Time on the host's clock.
    pub time: Duration,
    /// Time to run the script's top level, once.
    pub load_time: Duration,
    /// Memory for what the script makes. The engine's own comes on top.
    pub memory_bytes: usize,
    /// Stack.
    pub stack_bytes: usize,
    /// Stack to compile the script with, where the compiler needs more of it than it is seen to take.
    pub compile_stack_bytes: usize,
    /// How long what the function returns may be, as compact JSON.
    pub output_bytes: usize,
}

/// Why a call is to end before it has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Stopped,
    TimedOut,
    OutOfMemory,
}

/// Watches one call. The first reason to end it stays the reason.
pub(crate) struct Watch {
    host: Rc<dyn Host>,
    deadline: Cell<Duration>,
    ended: Cell<Option<Ended>>,
    /// Bytes that may still be allocated before the clock is read again.
    until_next_look: Cell<usize>,
}

/// Copying this much takes some microseconds; reading the clock takes a tenth of one.
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

    /// Is the call to end? Reads the clock.
    pub(crate) fn is_over(&self) -> bool {
        if self.ended.get().is_none() && self.host.now() > self.deadline.get() {
            self.end(Ended::TimedOut);
        }
        self.ended.get().is_some()
    }

    /// Is the call to end? Reads the clock only after some work, measured in bytes allocated.
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
