//! What threads look at that go on until something is over.

use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::Duration;

const GOES_ON: u8 = 0;
const IS_OVER: u8 = 1;
const HAS_FAILED: u8 = 2;

/// Whether it is over. A scope waits for all of its threads, also when the one panics that would tell the others: so that
/// is told by a destructor.
#[derive(Debug, Default)]
pub struct Over(AtomicU8);

impl Over {
    /// Whether there is nothing more to do.
    pub fn is_over(&self) -> bool {
        self.0.load(Ordering::SeqCst) != GOES_ON
    }

    /// Waits until whoever would say that it is over has panicked.
    pub async fn has_failed(&self) {
        while self.0.load(Ordering::SeqCst) != HAS_FAILED {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// It is over when this is dropped.
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
