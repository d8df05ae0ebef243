//! Measures the cost of the filter on a route where it is in the chain, but disabled.

use crate::lane::Lane;
use crate::load::{envoy_core, leave_envoy_alone};
use testkit::bootstrap::VERSION_PATH;
use testkit::configuration::Configuration;
use testkit::gateway::{Gateway, Options};
use testkit::http::Request;

const ROUNDS: usize = 30;
const TURN: usize = 5000;

pub(crate) fn run() {
    leave_envoy_alone();
    let options = Options { core: envoy_core(), disabled: true, ..Options::default() };
    let Gateway { envoy, .. } = Gateway::try_start(&Configuration::default(), &options).unwrap();
    let mut without = Lane::new("direct_response, no filter", &envoy, envoy.address("bare"), 200);
    let address = envoy.address("disabled");
    let mut with = Lane::new("direct_response, filter disabled", &envoy, address, 200);
    let requests = vec![Request::get(VERSION_PATH).to_bytes(); TURN];
    for round in 0..=ROUNDS {
        without.turn(&requests);
        with.turn(&requests);
        if round == 0 {
            [&mut without, &mut with].into_iter().for_each(Lane::forget);
        }
    }
    println!("\na route where the filter is not enabled, {ROUNDS} turns each");
    Lane::print_head();
    without.print(None);
    with.print(Some(&without));
}
