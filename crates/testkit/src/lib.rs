//! The tools of the tests in a real Envoy and of the benchmark: an Envoy with the filter, servers
//! that answer, fail and remember as a test says, clients that write HTTP byte by byte, and keys.
//!
//! Nothing here knows how the filter works. Configurations, requests and tokens are built as an
//! operator, a backend or an attacker would build them, with libraries that the filter does not
//! use.

pub mod artifacts;
pub mod askers;
pub mod audit;
pub mod bootstrap;
pub mod claims_scripts;
pub mod client;
pub mod clock;
pub mod configuration;
pub mod documents;
pub mod envoy;
pub mod etcd;
pub mod events;
pub mod flood;
pub mod gateway;
pub mod generated;
pub mod guarded;
pub mod holder;
pub mod http;
pub mod http2;
pub mod impersonations;
pub mod keys;
pub mod lent;
pub mod network;
pub mod open_loop;
pub mod over;
pub mod paths;
pub mod process;
pub mod refusals;
pub mod relay;
pub mod report;
pub mod server;
pub mod services;
pub mod streaming;
pub mod tls;
pub mod trap;
pub mod two_issuers;
pub mod vectors;

use std::fmt::{Debug, Display};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

/// The runtime of all asynchronous code. The tests themselves block.
pub static RUNTIME: LazyLock<tokio::runtime::Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
});

/// The root of the repository.
pub fn repository() -> &'static Path {
    static REPOSITORY: LazyLock<PathBuf> = LazyLock::new(|| {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
    });
    &REPOSITORY
}

/// The directory that the tests of this process may write to. Another process may run the same
/// tests at the same time, with another Envoy. Removes directories of processes that have ended.
pub fn scratch() -> &'static Path {
    static DIRECTORY: LazyLock<PathBuf> = LazyLock::new(|| {
        let all = repository().join("target/tmp/tests");
        for other in fs::read_dir(&all).into_iter().flatten() {
            let other = other.unwrap();
            if !Path::new("/proc").join(other.file_name()).exists() {
                // Another process may remove it as well.
                let _ = fs::remove_dir_all(other.path());
            }
        }
        let own = all.join(std::process::id().to_string());
        // An earlier process may have had this number.
        let _ = fs::remove_dir_all(&own);
        fs::create_dir_all(&own).unwrap();
        own
    });
    &DIRECTORY
}

/// Calls `probe` every few milliseconds until it finds something, for two minutes at the most: a
/// busy machine may need long.
pub fn wait_for<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Waits for work of unknown length. `probe` returns how much is done, and whether that is enough;
/// the wait fails when nothing more is done for two minutes.
pub fn wait_for_enough(what: &str, mut probe: impl FnMut() -> (usize, bool)) {
    let mut most = 0;
    loop {
        let mut is_enough = false;
        wait_for(&format!("{what}: no more than {most} for two minutes"), || {
            let (done, enough) = probe();
            is_enough = enough;
            let more = done > most;
            most = most.max(done);
            (more || enough).then_some(())
        });
        if is_enough {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// The failed cases of a table. The test fails only at the end of the table, so that one run shows
/// every failure.
#[derive(Default)]
pub struct Findings(Vec<String>);

impl Findings {
    pub fn expect<T: PartialEq + Debug>(&mut self, case: impl Display, got: &T, expected: &T) {
        if got != expected {
            self.add(format!("{case}: expected {expected:?}, got {got:?}"));
        }
    }

    pub fn add(&mut self, finding: impl Into<String>) {
        self.0.push(finding.into());
    }
}

impl Drop for Findings {
    fn drop(&mut self) {
        if !thread::panicking() {
            assert!(self.0.is_empty(), "{} cases:\n{}", self.0.len(), self.0.join("\n"));
        }
    }
}
