//! SIGINT and SIGTERM. A probe that they interrupt still ends what it began.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::Failure;

/// Remembers that the process was asked to stop.
#[derive(Debug, Clone)]
pub(super) struct Interruption(Arc<AtomicBool>);

impl Interruption {
    /// Listens to the signals from now on. The second signal stops the process at once.
    pub(super) fn listen() -> Result<Self, Failure> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // In this order: the first signal finds the flag unset.
            flag::register_conditional_shutdown(signal, 2, Arc::clone(&asked))?;
            flag::register(signal, Arc::clone(&asked))?;
        }
        Ok(Self(asked))
    }

    pub(super) fn has_come(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// Fails if the process was asked to stop.
    pub(super) fn check(&self) -> Result<(), Failure> {
        match self.has_come() {
            true => Err(Failure("interrupted".to_owned())),
            false => Ok(()),
        }
    }
}
