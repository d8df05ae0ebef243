//! A flag for threads that run until something is over.

use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::Duration;

const GOES_ON: u8 = 0;
const IS_OVER: u8 = 1;
const HAS_FAILED: u8 = 2;

/// A flag that says when something is over. A destructor sets it, so that it is set even if its
/// thread panics: a scope waits for all of its threads.
#[derive(Debug, Default)]
pub struct Over(AtomicU8);

impl Over {
    /// Returns true if there is nothing more to do.
    pub fn is_over(&self) -> bool {
        self.0.load(Ordering::SeqCst) != GOES_ON
    }

    /// Waits until the thread that sets the flag has panicked.
    pub async fn has_failed(&self) {
        while self.0.load(Ordering::SeqCst) != HAS_FAILED {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Returns a guard that sets the flag when it is dropped.
    pub fn when_dropped(&self) -> impl Drop + use<'_> {
        Drops(self)
    }
}

struct Drops<'o>(&'o Over);

impl Drop for Drops<'_> {
    fn drop(&mut self) {
        let outcome = if thread::panicking() { HAS_FAILED } else { IS_OVER };
        self.0.0.store(outcome, Ordering::SeqCst);
    }
}
