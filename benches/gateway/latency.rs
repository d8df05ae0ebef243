//! Latency at a constant rate, in an open loop: at what fills the same share of a worker's time, and at 3 000 a second.
//!
//! An exchange costs Envoy several times what `direct_response` does. At the same rate a worker that answers the one
//! is nearly idle while it answers the other, and what is compared is how busy it is.

use std::time::Instant;

use jsonwebtoken::Algorithm;

use crate::chart::{self, Bar};
use crate::exchange::{mint_with_context, with_key};
use crate::lane::exchange_of;
use crate::load::{CONNECTIONS, Load, at_rate, leave_envoy_alone, median, quantile};
use testkit::configuration::Configuration;
use testkit::envoy::Envoy;
use testkit::gateway::Gateway;
use testkit::open_loop::OpenLoop;

const ROUNDS: usize = 10;
/// Of a closed loop, which finds the peak.
const TURN: usize = 3000;
const SECONDS_A_TURN: f64 = 1.0;
/// Of the peak.
const SHARES: [f64; 2] = [0.3, 0.6];
/// Requests per second.
const RATE: f64 = 3000.0;

/// Whose bars they are.
type Kind = fn(&str, f64) -> Bar;

pub(crate) fn run() {
    leave_envoy_alone();
    let Gateway { envoy, .. } = with_key(Algorithm::ES256, &Configuration::default());
    let mint = mint_with_context().to_bytes();
    let mut minting = Load::new(envoy.address("gateway"));
    let mut exchanges = |count: usize| -> Vec<_> {
        let minted = minting.run(&vec![mint.clone(); count]);
        minted.iter().map(|reply| exchange_of(&reply.body)).collect()
    };

    let mut direct = Lane::new("direct_response", &envoy, "direct", Bar::of_the_measure);
    let mut ours = Lane::new("exchange, ES256", &envoy, "gateway", Bar::of_ours);
    let peaks: Vec<_> = (0..=ROUNDS)
        .map(|_| {
            let requests = exchanges(TURN);
            (direct.peak(&requests), ours.peak(&requests))
        })
        .skip(1)
        .collect();
    let (of_direct, of_ours): (Vec<_>, Vec<_>) = peaks.into_iter().unzip();
    let (of_direct, of_ours) = (median(of_direct), median(of_ours));
    println!("\npeaks: direct_response {of_direct:.0}/s, exchange {of_ours:.0}/s");

    let shares = SHARES.map(|share| (share * of_direct, share * of_ours));
    let rates: Vec<_> = shares.into_iter().chain([(RATE, RATE)]).collect();
    for round in 0..=ROUNDS {
        for (at_direct, at_ours) in &rates {
            direct.turn(&exchanges(1), *at_direct, round == 0);
            ours.turn(&exchanges((at_ours * SECONDS_A_TURN) as usize), *at_ours, round == 0);
        }
    }

    println!("open loop, {CONNECTIONS} connections; medians of {ROUNDS} turns of a second each");
    println!(
        "{:<30}{:>9}{:>9}{:>9}{:>9}{:>9}",
        "", "req/s", "p50 ms", "p90 ms", "p99 ms", "max ms"
    );
    let mut bars = Vec::new();
    let names = SHARES.map(|share| format!("{:.0} % of a worker", share * 100.0));
    let names = names.into_iter().chain([format!("{RATE:.0}/s")]);
    for (place, name) in names.enumerate() {
        let p99s = [&direct, &ours].map(|lane| {
            let at = lane.medians(place, rates.len());
            let rate = if lane.name == direct.name { rates[place].0 } else { rates[place].1 };
            println!(
                "{:<30}{rate:>9.0}{:>9.2}{:>9.2}{:>9.2}{:>9.1}",
                format!("{}, {name}", lane.name),
                at[0],
                at[1],
                at[2],
                at[3]
            );
            for (label, value) in [("p50", at[0]), ("p99", at[2])] {
                bars.push((lane.bar)(&format!("{name}: {}, {label}", lane.name), value));
            }
            at[2]
        });
        println!("p99 at {name}: {:.2} times that of direct_response", p99s[1] / p99s[0]);
    }
    chart::draw("latency", "Milliseconds at a constant rate, open loop, one worker", 2, &bars);
}

/// One kind of request.
struct Lane {
    name: &'static str,
    bar: Kind,
    closed: Load,
    open: OpenLoop,
    /// p50, p90, p99 and the longest of each turn, in milliseconds; the rates take turns.
    turns: Vec<[f64; 4]>,
}

impl Lane {
    fn new(name: &'static str, envoy: &Envoy, listener: &str, bar: Kind) -> Self {
        let address = envoy.address(listener);
        let (closed, open) = (Load::new(address), OpenLoop::new(address, CONNECTIONS));
        Self { name, bar, closed, open, turns: Vec::new() }
    }

    /// Requests per second of a closed loop.
    fn peak(&mut self, requests: &[Vec<u8>]) -> f64 {
        let began = Instant::now();
        self.closed.run(requests);
        requests.len() as f64 / began.elapsed().as_secs_f64()
    }

    /// Requests at this rate for a while, the same ones again where there are too few.
    fn turn(&mut self, requests: &[Vec<u8>], rate: f64, forget: bool) {
        let count = (rate * SECONDS_A_TURN) as usize;
        let requests: Vec<_> = requests.iter().cycle().take(count).cloned().collect();
        let latencies = at_rate(&mut self.open, &requests, rate, 200);
        if !forget {
            self.turns.push([0.5, 0.9, 0.99, 1.0].map(|at| quantile(&latencies, at) * 1e3));
        }
    }

    /// Over all turns at the rate with this place among so many.
    fn medians(&self, place: usize, rates: usize) -> [f64; 4] {
        let turns = || self.turns.iter().skip(place).step_by(rates);
        [0, 1, 2, 3].map(|column| median(turns().map(|turn| turn[column]).collect()))
    }
}
