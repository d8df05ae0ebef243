//! Measures the filter's speed and size: beside Envoy's own `direct_response`, beside a provider
//! that has the grant itself, and beside the filter with more workers, more tokens, or a script.
//!
//! The load runs over loopback. Envoy has one worker and a core to itself; the load has another
//! core. Things that are compared are measured in the same run, in short turns, so that a slow
//! minute of the machine slows both. `ratio` is the median over all turns.
//!
//! `CPU us` is the CPU time that Envoy took for each request, `busy` the share of the time in which
//! it ran. If `busy` is well below 100 %, something else was the limit, and `ratio` flatters the
//! lane that is closer to that limit. Then read `CPU ratio`, which compares the CPU times.
//!
//! `cargo bench --bench gateway` runs all parts and draws the charts in docs/;
//! `cargo bench --bench gateway -- exchange latency` runs two of them.
#![cfg(test)]
#![expect(clippy::arithmetic_side_effects, reason = "a benchmark that overflows fails, no more")]

mod approvals;
mod before;
mod chart;
mod cluster;
mod disabled;
mod ended;
mod events;
mod exchange;
mod footprint;
mod guard;
mod kill;
mod lane;
mod latency;
mod load;
mod proofs;
mod provider;
mod rules;
mod scale;
mod strangers;
mod workers;

use std::thread;

type Part = (&'static str, fn());

const PARTS: [Part; 23] = [
    ("size", footprint::size),
    ("ready", footprint::ready),
    ("exchange", exchange::run),
    ("rules", rules::run),
    ("approvals", approvals::run),
    ("waiting", approvals::weight),
    ("nobody", approvals::nobody),
    ("disabled", disabled::run),
    ("guard", guard::run),
    ("proofs", proofs::run),
    ("strangers", strangers::run),
    ("ended", ended::run),
    ("weight", ended::weight),
    ("events", events::run),
    ("step_up", events::step_up),
    ("kill", kill::run),
    ("workers", workers::run),
    ("cluster", cluster::run),
    ("latency", latency::run),
    ("provider", provider::run),
    ("scale", scale::run),
    ("memory", footprint::memory),
    ("before", before::run),
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
            // A part runs on a thread of its own, so that it may choose its core.
            thread::spawn(part).join().unwrap();
        }
    }
}
