//! How fast and how large: the filter beside Envoy's own `direct_response`, beside a provider that has
//! the grant itself, and beside itself with more workers, more tokens, a script.
//!
//! The load is over loopback. Envoy has one worker and a core to itself, the load has another. What is
//! compared is measured in the same run, in short turns, so that a slow minute of the machine slows
//! both; `ratio` is the median over all turns.
//!
//! `CPU us` is what Envoy ran for each request, `busy` the share of the time that it ran. Where that is
//! well below 100 %, something else was the limit, and `ratio` flatters what comes closer to it: then
//! `CPU ratio`, the same of the time that Envoy ran, is the one to believe.
//!
//! `cargo bench --bench gateway` runs everything, and draws the charts in docs/;
//! `cargo bench --bench gateway -- exchange latency` some parts.
#![cfg(test)]
#![expect(clippy::arithmetic_side_effects, reason = "a benchmark that overflows fails, no more")]

mod chart;
mod cluster;
mod disabled;
mod ended;
mod exchange;
mod footprint;
mod guard;
mod lane;
mod latency;
mod load;
mod provider;
mod rules;
mod scale;
mod workers;

use std::thread;

type Part = (&'static str, fn());

const PARTS: [Part; 14] = [
    ("size", footprint::size),
    ("ready", footprint::ready),
    ("exchange", exchange::run),
    ("rules", rules::run),
    ("disabled", disabled::run),
    ("guard", guard::run),
    ("ended", ended::run),
    ("weight", ended::weight),
    ("workers", workers::run),
    ("cluster", cluster::run),
    ("latency", latency::run),
    ("provider", provider::run),
    ("scale", scale::run),
    ("memory", footprint::memory),
];

fn main() {
    let wanted: Vec<_> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    if let Some(unknown) = wanted.iter().find(|name| PARTS.iter().all(|(part, _)| part != name)) {
        let names = PARTS.map(|(name, _)| name).join(", ");
        eprintln!("there is no part {unknown}: choose among {names}");
        std::process::exit(2);
    }
    for (name, part) in PARTS {
        if wanted.is_empty() || wanted.iter().any(|one| one == name) {
            // On a thread of its own, so that it may choose a core for itself.
            thread::spawn(part).join().unwrap();
        }
    }
}
