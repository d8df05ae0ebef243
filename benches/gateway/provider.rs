//! Measures whole flows, one mint and one exchange, beside npm `oidc-provider` with the same grant
//! in memory: one process against one worker, each on the same core, both signing with ES256.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use jsonwebtoken::Algorithm;
use serde_json::Value;

use crate::chart::{self, Bar};
use crate::exchange::{mint_with_context, with_key};
use crate::lane::exchange_of;
use crate::load::{Load, envoy_core, leave_envoy_alone, median};
use testkit::configuration::Configuration;
use testkit::gateway::Gateway;
use testkit::process::{Ending, Process};

const ROUNDS: usize = 15;
const TURN: usize = 1000;

pub(crate) fn run() {
    leave_envoy_alone();
    let Gateway { envoy, .. } = with_key(Algorithm::ES256, &Configuration::default());
    let provider = Provider::start();
    let mint = mint_with_context();
    let mut for_provider = mint.clone();
    for_provider.headers.retain(|(name, _)| name != "authorization");
    let for_provider = for_provider.bearer(&provider.bearer).to_bytes();
    let mut both = [
        (Load::new(envoy.address("gateway")), vec![mint.to_bytes(); TURN], Vec::new()),
        (Load::new(provider.address), vec![for_provider; TURN], Vec::new()),
    ];
    for round in 0..=ROUNDS {
        for (load, mints, rates) in &mut both {
            let began = Instant::now();
            let minted = load.run(mints);
            let minting = began.elapsed();
            let exchanges: Vec<_> = minted.iter().map(|reply| exchange_of(&reply.body)).collect();
            let began = Instant::now();
            let exchanged = load.run(&exchanges);
            let elapsed = minting + began.elapsed();
            for reply in exchanged {
                assert_eq!(reply.status, 200, "{}", String::from_utf8_lossy(&reply.body));
            }
            // The first turns warm up the compiler of the provider.
            if round > 0 {
                rates.push(TURN as f64 / elapsed.as_secs_f64());
            }
        }
    }
    let [(_, _, ours), (_, _, theirs)] = both;
    let ratio = median(ours.iter().zip(&theirs).map(|(ours, theirs)| ours / theirs).collect());
    let (ours, theirs) = (median(ours), median(theirs));
    println!("\nwhole flows, {ROUNDS} turns each");
    println!("{:<36}{:>9}", "", "flows/s");
    println!("{:<36}{ours:>9.0}", "the filter, one worker");
    println!("{:<36}{theirs:>9.0}", "oidc-provider, one process");
    println!("ratio {ratio:.1}");
    let bars = [
        Bar::of_the_filter("filter, one worker", ours),
        Bar::of_the_baseline("oidc-provider, one process", theirs),
    ];
    chart::draw("flows", "Whole flows per second: one mint, one exchange, ES256", 0, &bars);
}

struct Provider {
    _process: Process,
    address: SocketAddr,
    bearer: String,
}

impl Provider {
    fn start() -> Self {
        let script =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/js/gateway/with-exchange.js");
        let mut command = match envoy_core() {
            Some(core) => {
                let mut command = Command::new("taskset");
                command.args(["--cpu-list", &core.to_string(), "node"]);
                command
            }
            None => Command::new("node"),
        };
        let command = command.arg(script).env("NODE_ENV", "production").stdout(Stdio::piped());
        // Both write their log to a file.
        let log = Path::new(env!("CARGO_TARGET_TMPDIR")).join("provider.log");
        let command = command.stderr(File::create(log).unwrap());
        let mut process = Process::spawn(command, Ending::Killed);
        // Warnings about the settings come first.
        let lines = BufReader::new(process.pipes().stdout.take().unwrap()).lines();
        let ready: Option<Value> =
            lines.map(Result::unwrap).find_map(|line| serde_json::from_str(&line).ok());
        let ready = ready.expect("the provider's port and token");
        let port = ready["port"].as_u64().and_then(|port| port.try_into().ok()).unwrap();
        let bearer = ready["bearer"].as_str().unwrap().to_owned();
        Self { _process: process, address: SocketAddr::from(([127, 0, 0, 1], port)), bearer }
    }
}
