//! How fast and how large: the filter beside Envoy's own `direct_response`, and its memory after a
//! million tokens.
//!
//! The load is closed-loop over loopback: each connection sends its next request when it has the
//! answer to the last. Envoy has one worker and a core to itself, the load has another. What is
//! compared is measured in the same run, in short turns, so that a slow minute of the machine slows
//! both; `ratio` is the median over all turns.
//!
//! `CPU us` is what Envoy ran for each request, `busy` the share of the time that it ran. Where that is
//! well below 100 %, something else was the limit, and `ratio` flatters what comes closer to it: then
//! `CPU ratio`, the same of the time that Envoy ran, is the one to believe.
//!
//! `cargo bench --bench gateway` runs everything, `cargo bench --bench gateway -- exchange` one part.
#![cfg(test)]
#![expect(clippy::arithmetic_side_effects, reason = "a benchmark that overflows fails, no more")]
#![expect(dead_code, reason = "the tests use more of their support than the benchmark does")]

#[path = "../../tests/support/mod.rs"]
mod support;

use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use jsonwebtoken::Algorithm;
use serde_json::{Value, json};
use support::configuration::Configuration;
use support::envoy::{Envoy, MODULE, Options};
use support::gateway::{Gateway, exchange_form, exchange_request, mint_request, minted};
use support::keys::Key;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::{self, Runtime};

type Part = (&'static str, fn());

const PARTS: [Part; 4] =
    [("size", size), ("ready", ready), ("exchange", exchange), ("memory", memory)];

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

fn size() {
    let bytes = std::fs::metadata(&*MODULE).unwrap().len();
    println!("module                          {:>8.2} MB", bytes as f64 / 1e6);
}

/// From the start of the process until `/ready` says so.
fn ready() {
    let median_of = |start: &dyn Fn() -> Envoy| {
        let times = (0..5).map(|_| {
            let started = Instant::now();
            let envoy = start();
            let elapsed = started.elapsed();
            drop(envoy);
            elapsed.as_secs_f64()
        });
        median(times.collect())
    };
    let with = median_of(&|| Gateway::start(&Configuration::default()).envoy);
    let without = median_of(&|| Envoy::start(None, &Options::default()).unwrap());
    println!("Envoy is ready after            {with:>8.2} s   ({without:.2} s without the filter)");
}

const CONNECTIONS: usize = 16;
const ROUNDS: usize = 15;
/// Requests in one turn of one lane, but for those of a slow key.
const TURN: usize = 4000;

/// Mints and exchanges per second, beside Envoy answering the same requests from its configuration.
fn exchange() {
    leave_envoy_alone();
    let keys = [(Algorithm::EdDSA, TURN), (Algorithm::ES256, TURN), (Algorithm::RS256, TURN / 20)]
        .map(|(alg, turn)| (Key::generate(alg, "k"), turn));
    let gateways: Vec<_> = keys.iter().map(|(key, _)| gateway_with(key)).collect();
    let envoy = &gateways[0].envoy;
    let mut direct_mint = Lane::new("direct_response to a mint", envoy, envoy.direct, 200);
    let mut direct_exchange = Lane::new("direct_response to an exchange", envoy, envoy.direct, 200);
    let mut lanes: Vec<_> = keys
        .iter()
        .zip(&gateways)
        .map(|((key, turn), Gateway { envoy })| {
            let mint = Lane::new("mint", envoy, envoy.gateway, 201);
            let exchange =
                Lane::new(&format!("exchange, {:?}", key.alg), envoy, envoy.gateway, 200);
            (mint, exchange, *turn)
        })
        .collect();

    let mints = vec![mint_request("u-1").to_bytes(); TURN];
    for round in 0..=ROUNDS {
        direct_mint.turn(&mints);
        for (number, (mint, exchange, turn)) in lanes.iter_mut().enumerate() {
            mint.turn(&mints[..*turn]);
            let form = |token: String| exchange_request(&exchange_form(&token)).to_bytes();
            let exchanges: Vec<_> = mint.tokens().map(form).collect();
            if number == 0 {
                direct_exchange.turn(&exchanges);
            }
            exchange.turn(&exchanges);
        }
        if round == 0 {
            // Connections, caches and the clock of the processor are warm now.
            [&mut direct_mint, &mut direct_exchange].into_iter().for_each(Lane::forget);
            for (mint, exchange, _) in &mut lanes {
                [mint, exchange].into_iter().for_each(Lane::forget);
            }
        }
    }

    println!("\none worker, {CONNECTIONS} connections, {ROUNDS} turns each");
    println!(
        "{:<32}{:>8}{:>9}{:>9}{:>8}{:>7}{:>8}{:>10}",
        "", "req/s", "p50 ms", "p99 ms", "CPU us", "busy", "ratio", "CPU ratio"
    );
    direct_mint.print(None);
    lanes[0].0.print(Some(&direct_mint));
    direct_exchange.print(None);
    for (_, exchange, _) in &lanes {
        exchange.print(Some(&direct_exchange));
    }
}

fn gateway_with(key: &Key) -> Gateway {
    let configuration =
        Configuration::default().with("/signing_keys/0", json!({"jwk": key.private_jwk()}));
    // Answers of the right size for the same requests, taken from the filter itself.
    let sample = Gateway::start(&configuration);
    let mint = sample.send(&mint_request("u-1"));
    let exchange = sample.exchange(&exchange_form(&minted(&mint)));
    let options = Options {
        core: envoy_core(),
        direct_responses: vec![("/api/", mint.text()), ("/oidc/", exchange.text())],
        ..Options::default()
    };
    Gateway::try_start(&configuration, &options).unwrap()
}

/// One kind of request to one address, measured in turns.
struct Lane<'a> {
    name: String,
    envoy: &'a Envoy,
    status: u16,
    load: Load,
    /// The bodies of the last turn's answers.
    bodies: Vec<Vec<u8>>,
    /// Requests per second, turn by turn.
    rates: Vec<f64>,
    /// Seconds, of every request of every turn.
    latencies: Vec<f64>,
    /// Seconds that the turns took, and how many of them Envoy was running.
    elapsed: f64,
    busy: f64,
}

impl<'a> Lane<'a> {
    fn new(name: &str, envoy: &'a Envoy, address: SocketAddr, status: u16) -> Self {
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

    fn turn(&mut self, requests: &[Vec<u8>]) {
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

    /// The subject tokens that the last turn minted.
    fn tokens(&self) -> impl Iterator<Item = String> {
        self.bodies.iter().map(|body| {
            let body: Value = serde_json::from_slice(body).unwrap();
            body["subjectToken"].as_str().unwrap().into()
        })
    }

    fn forget(&mut self) {
        self.rates.clear();
        self.latencies.clear();
        (self.elapsed, self.busy) = (0.0, 0.0);
    }

    fn print(&self, baseline: Option<&Self>) {
        let ratio = |of_rates: f64, of_cpu: f64| format!("{of_rates:>8.2}{of_cpu:>10.2}");
        let ratios = baseline.map_or(format!("{:>18}", ""), |baseline| {
            let turns = self.rates.iter().zip(&baseline.rates);
            ratio(
                median(turns.map(|(rate, base)| rate / base).collect()),
                baseline.cpu() / self.cpu(),
            )
        });
        println!(
            "{:<32}{:>8.0}{:>9.2}{:>9.2}{:>8.1}{:>6.0}%{ratios}",
            self.name,
            median(self.rates.clone()),
            quantile(&self.latencies, 0.5) * 1e3,
            quantile(&self.latencies, 0.99) * 1e3,
            self.cpu() * 1e6,
            self.busy / self.elapsed * 100.0,
        );
    }

    /// Seconds that Envoy ran for each request.
    fn cpu(&self) -> f64 {
        self.busy / self.latencies.len() as f64
    }
}

/// Connections that are all driven by the one thread that runs the benchmark: on a machine with two
/// cores, threads of their own would spend more on taking turns than on requests.
struct Load {
    runtime: Runtime,
    connections: Vec<(TcpStream, Vec<u8>)>,
}

struct Reply {
    status: u16,
    body: Vec<u8>,
    /// Seconds.
    latency: f64,
}

impl Load {
    fn new(address: SocketAddr) -> Self {
        let runtime = runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let connect = async || {
            let stream = TcpStream::connect(address).await.unwrap();
            stream.set_nodelay(true).unwrap();
            (stream, Vec::with_capacity(16 * 1024))
        };
        let connections = (0..CONNECTIONS).map(|_| runtime.block_on(connect())).collect();
        Self { runtime, connections }
    }

    /// Sends every request once, over whichever connection is free first.
    fn run(&mut self, requests: &[Vec<u8>]) -> Vec<Reply> {
        let next = Cell::new(0);
        let drive = async |(stream, buffer): &mut (TcpStream, Vec<u8>)| {
            let mut replies = Vec::with_capacity(requests.len() / CONNECTIONS + 1);
            while let Some(request) = requests.get(next.replace(next.get() + 1)) {
                let sent = Instant::now();
                stream.write_all(request).await.unwrap();
                let (status, body) = read_reply(stream, buffer).await;
                replies.push(Reply { status, body, latency: sent.elapsed().as_secs_f64() });
            }
            replies
        };
        let all: FuturesUnordered<_> = self.connections.iter_mut().map(drive).collect();
        self.runtime.block_on(all.concat())
    }
}

async fn read_reply(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> (u16, Vec<u8>) {
    buffer.clear();
    loop {
        assert_ne!(stream.read_buf(buffer).await.unwrap(), 0, "Envoy hung up");
        let mut headers = [httparse::EMPTY_HEADER; 32];
        let mut head = httparse::Response::new(&mut headers);
        if let httparse::Status::Complete(start) = head.parse(buffer).unwrap() {
            let length =
                head.headers.iter().find(|header| header.name == "content-length").unwrap().value;
            let length: usize = str::from_utf8(length).unwrap().parse().unwrap();
            if let Some(body) = buffer.get(start..start + length) {
                return (head.code.unwrap(), body.to_vec());
            }
        }
    }
}

/// Envoy's resident memory after many times more tokens than it has room for.
fn memory() {
    leave_envoy_alone();
    const CAPACITY: u64 = 10_000;
    const FIRST: u64 = 20_000;
    const ALL: u64 = 1_000_000;
    let configuration = Configuration::default()
        .with("/subject_tokens/store/shared_data/capacity", CAPACITY)
        .with("/subject_tokens/lifetime", "1s");
    let options = Options { core: envoy_core(), ..Options::default() };
    let gateway = Gateway::try_start(&configuration, &options).unwrap();
    let (minted, full) = (AtomicU64::new(0), AtomicU64::new(0));
    let mint_until = |count: u64| {
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut connection = gateway.connect();
                    let request = mint_request("u-1").to_bytes();
                    while minted.load(Ordering::Relaxed) < count {
                        connection.write(&request).unwrap();
                        match connection.read_answer("POST").unwrap().status {
                            201 => minted.fetch_add(1, Ordering::Relaxed),
                            503 => full.fetch_add(1, Ordering::Relaxed),
                            status => panic!("{status}"),
                        };
                    }
                });
            }
        });
        gateway.envoy.resident_bytes() as f64 / f64::from(1 << 20)
    };
    let before = mint_until(FIRST);
    let after = mint_until(ALL);
    println!(
        "\n{ALL} mints at capacity {CAPACITY}, lifetime 1 s ({} more refused: full)",
        full.into_inner()
    );
    println!("resident after the first {FIRST}  {before:>8.1} MiB");
    println!("resident after all              {after:>8.1} MiB, {:+.1} MiB", after - before);
}

/// Where Envoy runs, if there is another core for the load.
fn envoy_core() -> Option<usize> {
    thread::available_parallelism().is_ok_and(|cores| cores.get() > 1).then_some(0)
}

/// Keeps this thread, and those it starts, off Envoy's core.
fn leave_envoy_alone() {
    if envoy_core().is_some() {
        core_affinity::set_for_current(core_affinity::CoreId { id: 1 });
    }
}

fn median(values: Vec<f64>) -> f64 {
    quantile(&values, 0.5)
}

fn quantile(values: &[f64], at: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted[((sorted.len() - 1) as f64 * at).round() as usize]
}
