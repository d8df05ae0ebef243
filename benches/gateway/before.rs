//! Compares the modules with those of another version, in turns within one run: an exchange, a
//! mint, and a request of an impersonation that the guard lets through.

use std::path::{Path, PathBuf};

use jsonwebtoken::Algorithm;

use crate::exchange::{mint_with_context, with_key_and_module};
use crate::guard::{guarded_by, start};
use crate::lane::Lane;
use crate::load::leave_envoy_alone;
use testkit::configuration::Configuration;
use testkit::gateway::Gateway;
use testkit::guarded::{claims, token};
use testkit::http::Request;

/// The folder with the two modules of the other version, by the names that `make build` gives them.
const FOLDER: &str = "BEFORE";

const ROUNDS: usize = 41;
const TURN: usize = 3000;

pub(crate) fn run() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else {
        println!(
            "\nbefore: left out, as {FOLDER} names no folder with the modules of another version"
        );
        return;
    };
    leave_envoy_alone();
    filters(&folder.join("impersonation_filter.wasm"));
    guards(&folder.join("impersonation_guard.wasm"));
}

fn filters(before: &Path) {
    let configuration = Configuration::default();
    let gateways = [Some(before.to_owned()), None]
        .map(|module| with_key_and_module(Algorithm::ES256, &configuration, module));
    let [before, after] = &gateways;
    let mut mints = [lane("mint, before", before, 201), lane("mint, after", after, 201)];
    let mut exchanges =
        [lane("exchange, before", before, 200), lane("exchange, after", after, 200)];
    let requests = vec![mint_with_context().to_bytes(); TURN];
    for round in 0..=ROUNDS {
        // Each comes first in every second round.
        let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        for version in order {
            mints[version].turn(&requests);
            let spent = mints[version].exchanges();
            exchanges[version].turn(&spent);
        }
        if round == 0 {
            mints.iter_mut().chain(&mut exchanges).for_each(Lane::forget);
        }
    }
    println!("\nbefore and after, one worker each, {ROUNDS} turns each");
    Lane::print_head();
    for [before, after] in [&mints, &exchanges] {
        before.print(None);
        after.print(Some(before));
    }
}

fn lane<'a>(name: &str, gateway: &'a Gateway, status: u16) -> Lane<'a> {
    Lane::new(name, &gateway.envoy, gateway.envoy.address("gateway"), status)
}

fn guards(before: &Path) {
    // Two versions may write shared data in two formats, so each has an Envoy.
    let envoys = [Some(before.to_owned()), None]
        .map(|module| start(|bootstrap| bootstrap.listener(guarded_by("guarded", module.clone()))));
    let mut lanes = [0, 1].map(|version| {
        let name = ["an impersonation, before", "an impersonation, after"][version];
        Lane::new(name, &envoys[version], envoys[version].address("guarded"), 200)
    });
    let requests = vec![Request::get("/orders/7").bearer(&token(&claims())).to_bytes(); TURN];
    for round in 0..=ROUNDS {
        let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        for version in order {
            lanes[version].turn(&requests);
        }
        if round == 0 {
            lanes.iter_mut().for_each(Lane::forget);
        }
    }
    lanes[0].print(None);
    lanes[1].print(Some(&lanes[0]));
}
