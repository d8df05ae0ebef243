//! Crashes VMs, by a filter that traps in one callback.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use testkit::artifacts::MODULE;
use testkit::envoy::Envoy;
use testkit::gateway::{exchange_form, exchange_request};
use testkit::http::Form;
use testkit::trap::with_trap;
use testkit::wait_for;

/// Returns the filter with a trap: a request with trailers crashes its VM.
pub(crate) fn crashing_module() -> PathBuf {
    with_trap(&MODULE, "proxy_on_request_trailers")
}

/// Crashes the VM of the worker that takes the connection.
pub(crate) fn crash(envoy: &Envoy) {
    let form = exchange_form("sub_none").encode().into_bytes();
    let request = exchange_request(&Form::default()).pieces(vec![form], &[("x-last", "1")]);
    let before = crashes(envoy);
    let mut hanging = Vec::new();
    wait_for("a VM to crash", || {
        // A worker whose VM has just crashed answers 503; one that crashes now does not answer at
        // all.
        let mut connection = envoy.connect();
        connection.write(&request.to_bytes()).ok()?;
        hanging.push(connection);
        let patience = Instant::now() + Duration::from_secs(1);
        while Instant::now() < patience {
            if crashes(envoy) > before {
                return Some(());
            }
            thread::sleep(Duration::from_millis(5));
        }
        None
    });
}

/// Returns the number of crashed VMs.
pub(crate) fn crashes(envoy: &Envoy) -> usize {
    envoy.log().matches("RuntimeError: unreachable").count()
}
