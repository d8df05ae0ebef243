//! Measures the cost of ending impersonations: requests beside thousands of revocations, a
//! revocation itself, and the list of live impersonations.

use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::guard::{TURN, guarded, start};
use crate::lane::{Lane, exchange_of};
use crate::load::{CONNECTIONS, Load, at_rate, envoy_core, leave_envoy_alone, quantile};
use testkit::bootstrap::Filter;
use testkit::envoy::Envoy;
use testkit::gateway::{Gateway, Options, mint_request};
use testkit::guarded::{claims, filter_configuration, gateway_listener, operator, token};
use testkit::http::Request;
use testkit::open_loop::OpenLoop;

const ROUNDS: usize = 30;

/// The number of separate revocations. Their users are not the users of the requests.
const REVOKED: usize = 10_000;

/// The number of revocations in one measurement, and how many are sent per second. No operator
/// sends more by hand; a script during an incident may.
const MEASURED: usize = 2000;
const RATE: f64 = 200.0;

/// The number of impersonations whose memory is measured, and the number before them, which
/// allocate slots, buffers and stacks.
const WEIGHED: usize = 100_000;
const BEFORE: usize = 5000;

/// The number of mints at a time: no more than there are slots.
const BATCH: usize = 500;
const SLOTS: usize = 1000;

pub(crate) fn run() {
    leave_envoy_alone();
    let envoys = [0, REVOKED].map(|revoked| {
        let envoy = start(|bootstrap| {
            let filter = gateway_listener(Filter::from(&filter_configuration()));
            bootstrap.listener(guarded()).listener(filter)
        });
        let revocations = revocations(0..revoked);
        let replies = Load::new(envoy.address("gateway")).run(&revocations);
        assert!(replies.iter().all(|reply| reply.status == 201));
        envoy
    });
    let [few, many] = &envoys;
    let lane = |name, envoy| Lane::new(name, envoy, Envoy::address(envoy, "guarded"), 200);
    let mut lanes =
        [lane("an impersonation, no revocation", few), lane("an impersonation, 10 000", many)];
    let requests = vec![Request::get("/orders/7").bearer(&token(&claims())).to_bytes(); TURN];
    for round in 0..=ROUNDS {
        for lane in &mut lanes {
            lane.turn(&requests);
        }
        if round == 0 {
            lanes.iter_mut().for_each(Lane::forget);
        }
    }
    println!("\nan API behind the guard, one worker, {ROUNDS} turns each");
    Lane::print_head();
    lanes[0].print(None);
    lanes[1].print(Some(&lanes[0]));
    let times = lanes[1].cpu() / lanes[0].cpu();
    println!("beside {REVOKED} revocations a request takes {times:.2} times as long");

    println!("\nrevocations, {RATE:.0} a second in an open loop");
    println!("{:<36}{:>9}{:>9}{:>8}", "", "p50 ms", "p99 ms", "CPU us");
    for (envoy, first, name) in [(few, 0, "none before"), (many, REVOKED, "10 000 before")] {
        let mut load = OpenLoop::new(envoy.address("gateway"), CONNECTIONS);
        let requests = revocations(first..first + MEASURED);
        let worked = envoy.cpu_time();
        let latencies = at_rate(&mut load, &requests, RATE, 201);
        let cpu = (envoy.cpu_time() - worked).as_secs_f64() * 1e6 / MEASURED as f64;
        let at = [0.5, 0.99].map(|at| quantile(&latencies, at) * 1e3);
        println!("{name:<36}{:>9.2}{:>9.2}{cpu:>8.0}", at[0], at[1]);
    }
}

/// Returns one revocation for each of these users.
fn revocations(users: std::ops::Range<usize>) -> Vec<Vec<u8>> {
    let operator = operator();
    let of = |user| {
        let request = Request::post("/api/impersonations/revocations").bearer(&operator);
        request.json(&json!({"userId": format!("gone-{user}")})).to_bytes()
    };
    users.map(of).collect()
}

/// Measures the memory that Envoy takes for live impersonations.
pub(crate) fn weight() {
    leave_envoy_alone();
    // A slot is reused as soon as its token is spent: tokens take no further memory here.
    let configuration = filter_configuration()
        .with("/impersonations/capacity", WEIGHED + BEFORE)
        .with("/store/shared_data/capacity", SLOTS);
    let options = Options { core: envoy_core(), ..Options::default() };
    let gateway = Gateway::try_start(&configuration, &options).unwrap();
    let mut load = Load::new(gateway.address());
    begin(&mut load, BEFORE);
    let before = memory(&gateway.envoy);
    begin(&mut load, WEIGHED);
    let after = memory(&gateway.envoy);
    // A bucket of the list may be full before the whole list is.
    let unlisted = gateway.envoy.metric("impersonation_unlisted_total").unwrap_or_default();
    assert!(unlisted < WEIGHED as u64 / 1000, "{unlisted}");
    let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    println!("\n{:<36}{:>14}{:>14}", "", "allocated MiB", "resident MiB");
    for (live, (allocated, resident)) in [(BEFORE, before), (BEFORE + WEIGHED, after)] {
        println!(
            "{live:<8}{:<28}{:>14.1}{:>14.1}",
            "live",
            mebibytes(allocated),
            mebibytes(resident)
        );
    }
    let bytes = after.0.saturating_sub(before.0) as f64 / WEIGHED as f64;
    println!("a live impersonation takes {bytes:.0} bytes of Envoy's memory");
}

/// Returns the bytes that Envoy has allocated, and its resident bytes. The latter include memory
/// that is left over from compiling the module.
fn memory(envoy: &Envoy) -> (u64, u64) {
    // Envoy updates the allocated bytes every five seconds.
    thread::sleep(Duration::from_secs(6));
    (envoy.stat("server.memory_allocated"), envoy.resident_bytes())
}

fn begin(load: &mut Load, count: usize) {
    let mint = mint_request("u-1").to_bytes();
    let mut left = count;
    while left > 0 {
        let batch = left.min(BATCH);
        let minted = load.run(&vec![mint.clone(); batch]);
        let exchanges: Vec<_> = minted.iter().map(|reply| exchange_of(&reply.body)).collect();
        let exchanged = load.run(&exchanges);
        assert!(exchanged.iter().all(|reply| reply.status == 200));
        left -= batch;
    }
}
