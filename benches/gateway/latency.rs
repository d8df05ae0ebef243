//! Latency at half of the peak rate, in an open loop.

use jsonwebtoken::Algorithm;

use crate::chart::{self, Bar};
use crate::exchange::{mint_with_context, with_key};
use crate::lane::exchange_of;
use crate::load::{Load, OpenLoop, leave_envoy_alone, median, quantile};
use testkit::configuration::Configuration;
use testkit::gateway::Gateway;

const ROUNDS: usize = 10;
const TURN: usize = 3000;

/// Whose bars they are.
type Kind = fn(&str, f64) -> Bar;

pub(crate) fn run() {
    leave_envoy_alone();
    let Gateway { envoy, .. } = with_key(Algorithm::ES256, &Configuration::default());
    let mints = vec![mint_with_context().to_bytes(); TURN];
    let mut minting = Load::new(envoy.address("gateway"));
    let mut exchanges =
        || -> Vec<_> { minting.run(&mints).iter().map(|reply| exchange_of(&reply.body)).collect() };

    let mut closed = Load::new(envoy.address("gateway"));
    let peaks = (0..5).map(|_| {
        let requests = exchanges();
        let began = std::time::Instant::now();
        closed.run(&requests);
        TURN as f64 / began.elapsed().as_secs_f64()
    });
    let rate = median(peaks.collect()) / 2.0;

    let mut kinds = [
        (
            "direct_response",
            OpenLoop::new(envoy.address("direct")),
            Vec::new(),
            Bar::of_the_measure as Kind,
        ),
        ("exchange, ES256", OpenLoop::new(envoy.address("gateway")), Vec::new(), Bar::of_ours),
    ];
    for round in 0..=ROUNDS {
        for (_, load, latencies, _) in &mut kinds {
            let turn = load.run(&exchanges(), rate, 200);
            if round > 0 {
                latencies.extend(turn);
            }
        }
    }
    println!("\nopen loop at {rate:.0} requests/s, half of the peak, {ROUNDS} turns each");
    println!("{:<36}{:>9}{:>9}{:>9}{:>9}", "", "p50 ms", "p90 ms", "p99 ms", "p99.9 ms");
    let mut bars = Vec::new();
    let mut p99 = Vec::new();
    for (name, _, latencies, bar) in &kinds {
        let at = [0.5, 0.9, 0.99, 0.999].map(|at| quantile(latencies, at) * 1e3);
        println!("{name:<36}{:>9.2}{:>9.2}{:>9.2}{:>9.2}", at[0], at[1], at[2], at[3]);
        for (value, label) in at.iter().zip(["p50", "p90", "p99", "p99.9"]) {
            bars.push(bar(&format!("{name}, {label}"), *value));
        }
        p99.push(at[2]);
    }
    println!("p99 of an exchange is {:.2} ms over Envoy's own", p99[1] - p99[0]);
    chart::draw("latency", "Milliseconds at half of the peak rate, open loop", 2, &bars);
}
