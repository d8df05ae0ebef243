//! Measures the time of an exchange and the memory for each token while many tokens are
//! outstanding.

use crate::lane::Lane;
use crate::load::{Load, envoy_core, leave_envoy_alone};
use testkit::configuration::Configuration;
use testkit::gateway::{Gateway, Options, mint_request};

const OUTSTANDING: [usize; 3] = [10, 10_000, 1_000_000];
const ROUNDS: usize = 10;
const TURN: usize = 2000;

pub(crate) fn run() {
    leave_envoy_alone();
    let configuration = Configuration::default()
        .with("/subject_tokens/lifetime", "3600s")
        .with("/store/shared_data/capacity", 1_100_000);
    let gateways = OUTSTANDING.map(|outstanding| {
        let options = Options { core: envoy_core(), ..Options::default() };
        let gateway = Gateway::try_start(&configuration, &options).unwrap();
        let mint = mint_request("u-1").to_bytes();
        let mut load = Load::new(gateway.address());
        // The warm-up allocates buffers and stacks before the memory is measured.
        let warm = OUTSTANDING[0];
        load.run(&vec![mint.clone(); warm]);
        let before = gateway.envoy.resident_bytes();
        let mut left = outstanding - warm;
        while left > 0 {
            let batch = left.min(10_000);
            let replies = load.run(&vec![mint.clone(); batch]);
            assert!(replies.iter().all(|reply| reply.status == 201));
            left -= batch;
        }
        let grown = gateway.envoy.resident_bytes().saturating_sub(before);
        (gateway, grown as f64 / outstanding as f64)
    });
    let mut lanes = gateways.each_ref().map(|(Gateway { envoy, .. }, _)| {
        let exchange = Lane::new("", envoy, envoy.address("gateway"), 200);
        (Lane::new("mint", envoy, envoy.address("gateway"), 201), exchange)
    });
    let mints = vec![mint_request("u-1").to_bytes(); TURN];
    for round in 0..=ROUNDS {
        for (mint, exchange) in &mut lanes {
            mint.turn(&mints);
            let exchanges = mint.exchanges();
            exchange.turn(&exchanges);
            if round == 0 {
                exchange.forget();
            }
        }
    }
    println!("\nexchanges beside many outstanding tokens, {ROUNDS} turns each");
    println!("{:<36}{:>8}{:>8}{:>14}", "outstanding", "req/s", "CPU us", "time beside 10");
    for ((_, exchange), outstanding) in lanes.iter().zip(OUTSTANDING) {
        let (rate, cpu) = (exchange.rate(), exchange.cpu() * 1e6);
        let times = lanes[0].1.ratio(exchange);
        println!("{outstanding:<36}{rate:>8.0}{cpu:>8.1}{times:>14.2}");
    }
    let (_, bytes) = &gateways[OUTSTANDING.len() - 1];
    println!("an outstanding token takes {bytes:.0} bytes of Envoy's memory");
}
