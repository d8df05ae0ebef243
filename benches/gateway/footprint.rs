//! Measures the time until Envoy is ready, and its memory after it has served a million tokens.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use serde_json::json;

use crate::guard::{guarded, unguarded};
use crate::load::{envoy_core, leave_envoy_alone, median};
use testkit::artifacts::{GUARD, MODULE};
use testkit::bootstrap::Bootstrap;
use testkit::configuration::Configuration;
use testkit::gateway::{Gateway, Options, mint_request};
use testkit::guarded::filter_configuration;

pub(crate) fn size() {
    for (name, module) in [("module", &*MODULE), ("the guard's module", &*GUARD)] {
        let bytes = std::fs::metadata(module).unwrap().len();
        println!("{name:<32}{:>8.2} MB", bytes as f64 / 1e6);
    }
}

/// Measures with and without each module. Envoy has all cores here, because V8 compiles on as many
/// threads as there are.
pub(crate) fn ready() {
    let with = until_ready(|| Gateway::start(&Configuration::default()));
    let without = until_ready(|| Gateway::without_filter(&Options::default()));
    println!("Envoy is ready with the filter  {with:>8.2} s   ({without:.2} s without)");
    let page = json!({"client_id": "oncall", "scopes": ["openid", "impersonations:read"]});
    let page = filter_configuration().with("/console", page);
    let with = until_ready(|| Gateway::start(&page));
    let without = until_ready(|| Gateway::start(&filter_configuration()));
    println!("Envoy is ready with the page    {with:>8.2} s   ({without:.2} s without)");
    let with = until_ready(|| Bootstrap::default().listener(guarded()).start());
    let without = until_ready(|| Bootstrap::default().listener(unguarded()).start());
    println!("Envoy is ready with the guard   {with:>8.2} s   ({without:.2} s without)");
}

/// Returns the seconds from the start of the process until `/ready` answers 200.
fn until_ready<E>(start: impl Fn() -> E) -> f64 {
    let times = (0..5).map(|_| {
        let started = Instant::now();
        let envoy = start();
        let elapsed = started.elapsed();
        drop(envoy);
        elapsed.as_secs_f64()
    });
    median(times.collect())
}

/// Measures Envoy's resident memory after it has served many times more tokens than the store
/// holds.
pub(crate) fn memory() {
    leave_envoy_alone();
    const CAPACITY: u64 = 10_000;
    const FIRST: u64 = 20_000;
    const ALL: u64 = 1_000_000;
    let configuration = Configuration::default()
        .with("/store/shared_data/capacity", CAPACITY)
        .with("/subject_tokens/lifetime", "1s");
    let options = Options { core: envoy_core(), ..Options::default() };
    let gateway = Gateway::try_start(&configuration, &options).unwrap();
    let (minted, full) = (AtomicU64::new(0), AtomicU64::new(0));
    let mint_until = |count: u64| {
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut connection = gateway.connect();
                    let request = mint_request("u-1").to_bytes();
                    while minted.load(Ordering::Relaxed) < count {
                        connection.write(&request).unwrap();
                        match connection.read_answer("POST").unwrap().status {
                            201 => minted.fetch_add(1, Ordering::Relaxed),
                            503 => full.fetch_add(1, Ordering::Relaxed),
                            status => panic!("{status}"),
                        };
                    }
                });
            }
        });
        gateway.envoy.resident_bytes() as f64 / f64::from(1 << 20)
    };
    let before = mint_until(FIRST);
    let after = mint_until(ALL);
    println!(
        "\n{ALL} mints at capacity {CAPACITY}, lifetime 1 s ({} more refused: full)",
        full.into_inner()
    );
    println!("resident after the first {FIRST}  {before:>8.1} MiB");
    println!("resident after all              {after:>8.1} MiB, {:+.1} MiB", after - before);
}
