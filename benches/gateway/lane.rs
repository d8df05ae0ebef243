//! Sends one kind of request to one address, and measures it in turns.

use std::net::SocketAddr;
use std::time::Instant;

use serde_json::Value;

use crate::load::{Load, Reply, median, quantile};
use testkit::envoy::Envoy;
use testkit::gateway::{exchange_form, exchange_request};

pub(crate) struct Lane<'a> {
    pub name: String,
    envoy: &'a Envoy,
    status: u16,
    load: Load,
    /// The bodies of the last turn's answers.
    bodies: Vec<Vec<u8>>,
    /// Requests per second, turn by turn.
    rates: Vec<f64>,
    /// The latency in seconds of every request of every turn.
    latencies: Vec<f64>,
    /// The seconds that the turns took, and the seconds of CPU time that Envoy took in them.
    elapsed: f64,
    busy: f64,
}

impl<'a> Lane<'a> {
    pub(crate) fn new(name: &str, envoy: &'a Envoy, address: SocketAddr, status: u16) -> Self {
        Self {
            name: name.into(),
            envoy,
            status,
            load: Load::new(address),
            bodies: Vec::new(),
            rates: Vec::new(),
            latencies: Vec::new(),
            elapsed: 0.0,
            busy: 0.0,
        }
    }

    pub(crate) fn turn(&mut self, requests: &[Vec<u8>]) {
        let worked = self.envoy.cpu_time();
        let began = Instant::now();
        let answers = self.load.run(requests);
        let elapsed = began.elapsed().as_secs_f64();
        self.busy += (self.envoy.cpu_time() - worked).as_secs_f64();
        self.elapsed += elapsed;
        self.rates.push(requests.len() as f64 / elapsed);
        self.bodies.clear();
        for answer in answers {
            let Reply { status, body, latency } = answer;
            assert_eq!(status, self.status, "{}: {}", self.name, String::from_utf8_lossy(&body));
            self.latencies.push(latency);
            self.bodies.push(body);
        }
    }

    /// Returns the subject tokens that the last turn minted.
    pub(crate) fn subject_tokens(&self) -> Vec<String> {
        self.bodies.iter().map(|body| subject_token(body)).collect()
    }

    /// Returns an exchange of each subject token that the last turn minted.
    pub(crate) fn exchanges(&self) -> Vec<Vec<u8>> {
        self.bodies.iter().map(|body| exchange_of(body)).collect()
    }

    /// Drops the measurements so far: connections, caches and the processor's clock are warm from
    /// now on.
    pub(crate) fn forget(&mut self) {
        self.rates.clear();
        self.latencies.clear();
        (self.elapsed, self.busy) = (0.0, 0.0);
    }

    pub(crate) fn print_head() {
        println!(
            "{:<36}{:>8}{:>9}{:>9}{:>8}{:>7}{:>8}{:>10}",
            "", "req/s", "p50 ms", "p99 ms", "CPU us", "busy", "ratio", "CPU ratio"
        );
    }

    pub(crate) fn print(&self, baseline: Option<&Self>) {
        let ratios = baseline.map_or(String::new(), |baseline| {
            format!("{:>8.2}{:>10.2}", self.ratio(baseline), baseline.cpu() / self.cpu())
        });
        println!(
            "{:<36}{:>8.0}{:>9.2}{:>9.2}{:>8.1}{:>6.0}%{ratios}",
            self.name,
            self.rate(),
            quantile(&self.latencies, 0.5) * 1e3,
            quantile(&self.latencies, 0.99) * 1e3,
            self.cpu() * 1e6,
            self.busy / self.elapsed * 100.0,
        );
    }

    /// Returns the median of the requests per second.
    pub(crate) fn rate(&self) -> f64 {
        median(self.rates.clone())
    }

    /// Returns the rate divided by that of a baseline, whose turns alternate with the turns of this
    /// lane.
    pub(crate) fn ratio(&self, baseline: &Self) -> f64 {
        median(self.rates.iter().zip(&baseline.rates).map(|(rate, base)| rate / base).collect())
    }

    /// Returns the seconds of CPU time that Envoy took for each request.
    pub(crate) fn cpu(&self) -> f64 {
        self.busy / self.latencies.len() as f64
    }
}

/// Returns an exchange of the subject token that is in the answer to a mint.
pub(crate) fn exchange_of(minted: &[u8]) -> Vec<u8> {
    exchange_request(&exchange_form(&subject_token(minted))).to_bytes()
}

fn subject_token(minted: &[u8]) -> String {
    let minted: Value = serde_json::from_slice(minted).unwrap();
    minted["subjectToken"].as_str().unwrap().to_owned()
}
