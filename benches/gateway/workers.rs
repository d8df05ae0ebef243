//! Measures two workers beside one.
//!
//! On a machine with two cores the load has no core left: load and Envoy share both, and requests
//! per second say as much about the load as about Envoy. Envoy's CPU time for each request tells
//! more: if two workers hindered each other, at the lock of the shared data or in the caches, it
//! would grow. If it does not grow, two workers on cores of their own do twice the work of one.

use std::thread;
use std::time::Instant;

use crate::lane::exchange_of;
use crate::load::{Load, median};
use testkit::configuration::Configuration;
use testkit::gateway::{Gateway, Options, mint_request};

const ROUNDS: usize = 15;
/// The requests of one half of the load in one turn.
const TURN: usize = 2000;

pub(crate) fn run() {
    let gateways = [1, 2].map(|concurrency| {
        let options = Options { concurrency, ..Options::default() };
        Gateway::try_start(&Configuration::default(), &options).unwrap()
    });
    let mut measured = [Measured::default(), Measured::default()];
    let mut loads = gateways.each_ref().map(|Gateway { envoy, .. }| {
        [Load::new(envoy.address("gateway")), Load::new(envoy.address("gateway"))]
    });
    for round in 0..=ROUNDS {
        for ((Gateway { envoy, .. }, halves), measured) in
            gateways.iter().zip(&mut loads).zip(&mut measured)
        {
            let worked = envoy.cpu_time();
            let began = Instant::now();
            thread::scope(|scope| {
                for half in halves {
                    scope.spawn(|| flows(half));
                }
            });
            if round > 0 {
                let flows = (2 * TURN) as f64;
                measured.rates.push(flows / began.elapsed().as_secs_f64());
                measured.cpu.push((envoy.cpu_time() - worked).as_secs_f64() / flows);
            }
        }
    }
    println!("\nworkers, load and Envoy on the same cores, {ROUNDS} turns each");
    println!("{:<36}{:>9}{:>16}", "", "flows/s", "CPU us a flow");
    for (workers, measured) in (1..).zip(&measured) {
        let (rate, cpu) = (median(measured.rates.clone()), median(measured.cpu.clone()) * 1e6);
        println!("{:<36}{rate:>9.0}{cpu:>16.1}", format!("{workers} worker(s)"));
    }
    let [one, two] = measured;
    let scaling = one.cpu.iter().zip(&two.cpu).map(|(one, two)| 2.0 * one / two).collect();
    println!(
        "two workers do {:.2} times what one does, for each second that they run",
        median(scaling)
    );
}

#[derive(Default)]
struct Measured {
    rates: Vec<f64>,
    /// Seconds of CPU time that Envoy took for each flow.
    cpu: Vec<f64>,
}

/// Runs mints, then their exchanges.
fn flows(load: &mut Load) {
    let minted = load.run(&vec![mint_request("u-1").to_bytes(); TURN]);
    let exchanges: Vec<_> = minted.iter().map(|reply| exchange_of(&reply.body)).collect();
    let exchanged = load.run(&exchanges);
    assert!(exchanged.iter().all(|reply| reply.status == 200));
}
