//! Measures latency at a constant rate, in an open loop: at equal shares of a worker's time, and at
//! 3 000 requests per second.
//!
//! An exchange costs Envoy several times as much as a `direct_response`. At one rate a worker is
//! busy with exchanges and nearly idle with direct responses, so the comparison would show only how
//! busy the worker is.
//!
//! All these figures include the delays of the machine itself. To tell them apart, each round also
//! has a turn in which the load's thread sends nothing and only wakes up when a request would be
//! due, and a turn of an Envoy without the filter.

use std::thread;
use std::time::{Duration, Instant};

use jsonwebtoken::Algorithm;

use crate::chart::{self, Bar};
use crate::exchange::{mint_with_context, with_key};
use crate::lane::exchange_of;
use crate::load::{CONNECTIONS, Load, at_rate, envoy_core, leave_envoy_alone, median, quantile};
use testkit::configuration::Configuration;
use testkit::envoy::Envoy;
use testkit::gateway::{Gateway, Options};
use testkit::open_loop::OpenLoop;

const ROUNDS: usize = 30;
/// The requests of one turn of the closed loop, which finds the peak rate.
const TURN: usize = 3000;
const SECONDS_A_TURN: f64 = 1.0;
/// The shares of the peak rate.
const SHARES: [f64; 2] = [0.3, 0.6];
/// Requests per second.
const RATE: f64 = 3000.0;

/// Makes a bar of the filter, or of the baseline.
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

    let mut direct = Lane::new("direct_response", &envoy, "direct", Bar::of_the_baseline);
    let mut ours = Lane::new("exchange, ES256", &envoy, "gateway", Bar::of_the_filter);
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
    let bare = Gateway::without_filter(&Options {
        core: envoy_core(),
        direct_responses: vec![("/oidc/", "x".repeat(800))],
        ..Options::default()
    });
    let mut bare =
        Lane::new("direct_response, no filter", &bare.envoy, "direct", Bar::of_the_baseline);
    let mut nothing = Vec::new();
    // Requests whose answer does not depend on the token can repeat any exchange.
    let any = exchanges(1);
    for round in 0..=ROUNDS {
        for (at_direct, at_ours) in &rates {
            direct.turn(&any, *at_direct, round == 0);
            ours.turn(&exchanges((at_ours * SECONDS_A_TURN) as usize), *at_ours, round == 0);
        }
        bare.turn(&any, RATE, round == 0);
        if round > 0 {
            nothing.push(quantiles(&only_noticed(RATE)));
        }
    }

    println!("open loop, {CONNECTIONS} connections; medians of {ROUNDS} turns of a second each");
    println!(
        "{:<36}{:>9}{:>9}{:>9}{:>9}{:>9}",
        "", "req/s", "p50 ms", "p90 ms", "p99 ms", "max ms"
    );
    print_turns(&format!("nothing but sleep, {RATE:.0}/s"), RATE, &nothing);
    print_turns(&format!("{}, {RATE:.0}/s", bare.name), RATE, &bare.turns);
    let mut bars = Vec::new();
    let names = SHARES.map(|share| format!("{:.0} % of a worker", share * 100.0));
    let names = names.into_iter().chain([format!("{RATE:.0}/s")]);
    for (place, name) in names.enumerate() {
        let p99s = [&direct, &ours].map(|lane| {
            let rate = if lane.name == direct.name { rates[place].0 } else { rates[place].1 };
            let turns: Vec<_> =
                lane.turns.iter().skip(place).step_by(rates.len()).copied().collect();
            let at = print_turns(&format!("{}, {name}", lane.name), rate, &turns);
            for (label, value) in [("p50", at[0]), ("p99", at[2])] {
                bars.push((lane.bar)(&format!("{name}: {}, {label}", lane.name), value));
            }
            at[2]
        });
        println!("p99 at {name}: {:.2} times that of direct_response", p99s[1] / p99s[0]);
    }
    chart::draw("latency", "Milliseconds at a constant rate, open loop, one worker", 2, &bars);
}

/// One kind of request, sent to one listener.
struct Lane {
    name: &'static str,
    bar: Kind,
    closed: Load,
    open: OpenLoop,
    /// p50, p90, p99 and the maximum of each turn, in milliseconds. The rates alternate.
    turns: Vec<[f64; 4]>,
}

impl Lane {
    fn new(name: &'static str, envoy: &Envoy, listener: &str, bar: Kind) -> Self {
        let address = envoy.address(listener);
        let (closed, open) = (Load::new(address), OpenLoop::new(address, CONNECTIONS));
        Self { name, bar, closed, open, turns: Vec::new() }
    }

    /// Returns the requests per second of a closed loop.
    fn peak(&mut self, requests: &[Vec<u8>]) -> f64 {
        let began = Instant::now();
        self.closed.run(requests);
        requests.len() as f64 / began.elapsed().as_secs_f64()
    }

    /// Sends requests at this rate for a while. Repeats the requests if there are too few.
    fn turn(&mut self, requests: &[Vec<u8>], rate: f64, forget: bool) {
        let count = (rate * SECONDS_A_TURN) as usize;
        let requests: Vec<_> = requests.iter().cycle().take(count).cloned().collect();
        let latencies = at_rate(&mut self.open, &requests, rate, 200);
        if !forget {
            self.turns.push(quantiles(&latencies));
        }
    }
}

/// Returns in seconds how late a thread wakes up that only sleeps until a request would be due at
/// this rate.
fn only_noticed(rate: f64) -> Vec<f64> {
    let began = Instant::now();
    let due = |number: usize| began + Duration::from_secs_f64(number as f64 / rate);
    let late = |number| {
        thread::sleep(due(number).saturating_duration_since(Instant::now()));
        due(number).elapsed().as_secs_f64()
    };
    (0..(rate * SECONDS_A_TURN) as usize).map(late).collect()
}

/// Returns p50, p90, p99 and the maximum, in milliseconds.
fn quantiles(latencies: &[f64]) -> [f64; 4] {
    [0.5, 0.9, 0.99, 1.0].map(|at| quantile(latencies, at) * 1e3)
}

/// Prints the medians over the turns, and returns them. The line below shows the minimum, the
/// quartiles and the maximum of the turns' p99: a burst shows in some turns, a constant slowness in
/// all.
fn print_turns(name: &str, rate: f64, turns: &[[f64; 4]]) -> [f64; 4] {
    let column = |column: usize| turns.iter().map(|turn| turn[column]).collect::<Vec<_>>();
    let at = [0, 1, 2, 3].map(|number| median(column(number)));
    println!("{name:<36}{rate:>9.0}{:>9.2}{:>9.2}{:>9.2}{:>9.1}", at[0], at[1], at[2], at[3]);
    let p99s = [0.0, 0.25, 0.5, 0.75, 1.0].map(|at| format!("{:.1}", quantile(&column(2), at)));
    println!("{:>36}: {}", "p99 of the turns, from least to most", p99s.join(", "));
    at
}
