//! A wall clock for Envoy that can be set while Envoy runs.
//!
//! The clock of the machine stays as it is. Timers and timeouts go by the monotonic clock, which
//! stays as well.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::scratch;

/// The library that intercepts the system's clock functions.
static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = scratch().join("clock");
    fs::create_dir_all(&folder).unwrap();
    let source = folder.join("clock.c");
    fs::write(&source, include_str!("clock.c")).unwrap();
    let library = folder.join("clock.so");
    let made = Command::new("cc")
        .args(["-O2", "-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .status()
        .unwrap();
    assert!(made.success(), "cc failed");
    library
});

/// The wall clock of the Envoys that use it.
#[derive(Debug)]
pub struct Clock {
    offset: PathBuf,
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock {
    /// Creates a clock that shows the right time.
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let offset = LIBRARY.with_file_name(format!("offset-{count}"));
        fs::write(&offset, "0").unwrap();
        Self { offset }
    }

    /// Sets the clock this many seconds ahead of now, or behind.
    pub fn set(&self, seconds: i64) {
        // The file is replaced as a whole, because Envoy reads it all the time.
        let new = self.offset.with_extension("new");
        fs::write(&new, seconds.to_string()).unwrap();
        fs::rename(new, &self.offset).unwrap();
    }

    /// The variables of a process that goes by this clock.
    pub(crate) fn environment(&self) -> [(&str, &str); 2] {
        [("LD_PRELOAD", LIBRARY.to_str().unwrap()), ("CLOCK_OFFSET", self.offset.to_str().unwrap())]
    }
}
