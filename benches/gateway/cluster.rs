//! Measures tokens in etcd, on one node and on three, beside the same flows in shared data.
//!
//! First Envoy with one worker, etcd and the load share all cores, as on a small machine. Then
//! Envoy has a core to itself. Other programs on its core fill its caches between two events, so a
//! flow takes Envoy longer there: the second measurement shows the cost of the filter.

use std::time::Instant;

use serde_json::json;

use crate::lane::exchange_of;
use crate::load::{Load, Reply, envoy_core, leave_envoy_alone, median, quantile};
use testkit::configuration::Configuration;
use testkit::etcd::{self, Etcd};
use testkit::gateway::{Gateway, Options, mint_request};

const ROUNDS: usize = 8;

/// Pairs of: the number of callers, and the flows of all of them together in one turn.
const CALLERS: [(usize, usize); 3] = [(1, 200), (32, 1600), (128, 3200)];

pub(crate) fn run() {
    measure("all on the same cores", None, &CALLERS);
    if let Some(core) = envoy_core() {
        leave_envoy_alone();
        measure("Envoy has a core to itself", Some(core), &CALLERS[1..2]);
    }
}

/// Measures the flows. Keeps Envoy on `core`, if one is given.
fn measure(title: &str, core: Option<usize>, callers: &[(usize, usize)]) {
    let (one, three) = ([Etcd::start()], Etcd::start_three());
    let start = |configuration: Configuration, clusters| {
        let options = Options { core, clusters, ..Options::default() };
        Gateway::try_start(&configuration, &options).unwrap()
    };
    let in_etcd = |nodes: &[Etcd]| {
        let store = json!({"etcd": {"cluster": "etcd"}});
        start(Configuration::default().with("/store", store), vec![etcd::cluster(nodes)])
    };
    let gateways = [
        ("shared data", start(Configuration::default(), Vec::new())),
        ("etcd, one node", in_etcd(&one)),
        ("etcd, three nodes", in_etcd(&three)),
    ];
    let mut lanes: Vec<_> = callers
        .iter()
        .map(|(callers, flows)| {
            gateways.each_ref().map(|(name, gateway)| Flows::new(name, gateway, *callers, *flows))
        })
        .collect();
    for round in 0..=ROUNDS {
        for lane in lanes.iter_mut().flatten() {
            lane.turn(round > 0);
        }
    }

    println!("\nflows, a mint and an exchange each: {title}, {ROUNDS} turns each");
    println!(
        "{:<19}{:>8}{:>9}{:>17}{:>17}{:>15}{:>15}{:>18}",
        "",
        "callers",
        "flows/s",
        "mint p50/p99 ms",
        "exch. p50/p99 ms",
        "CPU us a flow",
        "beside shared",
        "calls mint/exch."
    );
    for of_callers in &lanes {
        for lane in of_callers {
            lane.print(&of_callers[0]);
        }
    }
}

/// A number of callers of one gateway.
struct Flows<'a> {
    name: &'static str,
    gateway: &'a Gateway,
    callers: usize,
    load: Load,
    mints: Vec<Vec<u8>>,
    /// Flows per second, turn by turn.
    rates: Vec<f64>,
    /// Seconds of CPU time that Envoy took for each flow, turn by turn.
    cpu: Vec<f64>,
    /// The latencies in seconds: of each mint, then of each exchange.
    latencies: [Vec<f64>; 2],
    /// The number of calls to etcd: for all mints, then for all exchanges.
    calls: [u64; 2],
}

impl<'a> Flows<'a> {
    fn new(name: &'static str, gateway: &'a Gateway, callers: usize, flows: usize) -> Self {
        let load = Load::with_connections(gateway.address(), callers);
        let mints = vec![mint_request("u-1").to_bytes(); flows];
        let (rates, cpu) = (Vec::new(), Vec::new());
        Self {
            name,
            gateway,
            callers,
            load,
            mints,
            rates,
            cpu,
            latencies: [const { Vec::new() }; 2],
            calls: [0; 2],
        }
    }

    fn turn(&mut self, counts: bool) {
        let envoy = &self.gateway.envoy;
        let calls = || envoy.stat("cluster.etcd.upstream_rq_total");
        let (called, worked) = (calls(), envoy.cpu_time());
        let began = Instant::now();
        let minted = self.load.run(&self.mints);
        let mut elapsed = began.elapsed();
        let mut cpu = envoy.cpu_time() - worked;
        let called_to_mint = calls() - called;
        let exchanges: Vec<_> = minted.iter().map(|reply| exchange_of(&reply.body)).collect();

        let (called, worked) = (calls(), envoy.cpu_time());
        let began = Instant::now();
        let exchanged = self.load.run(&exchanges);
        elapsed += began.elapsed();
        cpu += envoy.cpu_time() - worked;
        let called_to_exchange = calls() - called;
        if !counts {
            return;
        }
        let flows = self.mints.len() as f64;
        self.rates.push(flows / elapsed.as_secs_f64());
        self.cpu.push(cpu.as_secs_f64() / flows);
        for (step, (replies, status)) in [(minted, 201), (exchanged, 200)].into_iter().enumerate() {
            self.latencies[step].extend(replies.iter().map(
                |Reply { status: got, body, latency }| {
                    assert_eq!(*got, status, "{}: {}", self.name, String::from_utf8_lossy(body));
                    latency
                },
            ));
        }
        self.calls[0] += called_to_mint;
        self.calls[1] += called_to_exchange;
    }

    fn print(&self, shared_data: &Self) {
        let [mint, exchange] = self.latencies.each_ref().map(|latencies| {
            let at = |at| quantile(latencies, at) * 1e3;
            format!("{:.2} / {:.1}", at(0.5), at(0.99))
        });
        let cpu = median(self.cpu.clone()) * 1e6;
        let more = self.cpu.iter().zip(&shared_data.cpu).map(|(ours, theirs)| ours - theirs);
        let more = median(more.collect()) * 1e6;
        let [to_mint, to_exchange] =
            self.calls.map(|calls| calls as f64 / self.latencies[0].len() as f64);
        println!(
            "{:<19}{:>8}{:>9.0}{mint:>17}{exchange:>17}{cpu:>15.0}{:>15}{:>18}",
            self.name,
            self.callers,
            median(self.rates.clone()),
            format!("{more:+.0}"),
            format!("{to_mint:.3} / {to_exchange:.3}"),
        );
    }
}
