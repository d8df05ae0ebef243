//! Compares two readers of one input: the filter in a real Envoy, and the software behind or beside
//! it.
//!
//! If two parsers disagree, an attacker can make one request mean two things: another grant to the
//! filter and an exchange to the gateway, or an opaque token to the filter and a JWT to the service
//! that the filter asks about it. So thousands of forms and tokens, correct and nearly correct
//! ones, go through the filter and through foreign code: npm `oidc-provider`, npm `jose`, PyJWT.
//! If one of these accepts an input, the filter must read it in the same way, or refuse it.
//!
//! The inputs follow from one number, which is printed; only keys and times differ.
//! `DIFFERENTIAL_SEED` sets the number, `DIFFERENTIAL_COUNT` sets how many inputs there are.
#![cfg(test)]
#![expect(
    clippy::arithmetic_side_effects,
    reason = "a test that overflows or slices wrongly fails, and that is all it does"
)]

mod forms;
mod tokens;

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use testkit::http::{Answer, Connection, Request};
use testkit::repository;

/// The seed of the inputs, and their number.
struct Plan {
    seed: u64,
    count: usize,
}

impl Plan {
    fn new() -> Self {
        let number = |name, default| {
            std::env::var(name).map_or(default, |value| value.parse().expect("a number"))
        };
        let seed = number("DIFFERENTIAL_SEED", 8693);
        let count = usize::try_from(number("DIFFERENTIAL_COUNT", 10_000)).unwrap();
        println!("DIFFERENTIAL_SEED={seed} DIFFERENTIAL_COUNT={count}");
        Self { seed, count }
    }

    /// Returns the inputs. Each has a seed of its own and can be made again alone.
    fn inputs<T>(&self, generate: impl Fn(&mut fastrand::Rng) -> T) -> Vec<T> {
        let one = |number: usize| {
            generate(&mut fastrand::Rng::with_seed(self.seed ^ (number as u64) << 32))
        };
        (0..self.count).map(one).collect()
    }
}

/// Returns a command that runs a script of `tests/js/gateway`, with its packages installed.
fn node(script: &str) -> Command {
    let modules = "tests/js/node_modules";
    let made = Command::new("make").current_dir(repository()).args(["--silent", modules]).output();
    let made = made.unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let mut command = Command::new("node");
    command.arg(repository().join("tests/js/gateway").join(script));
    command
}

/// A service with the gateway's reading of token requests.
struct Provider {
    address: SocketAddr,
    process: Child,
    /// The process ends with its standard input, which ends with the test, however the test ends.
    input: Option<ChildStdin>,
}

impl Provider {
    fn start() -> Self {
        let mut process = node("reads-exchanges.js")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let input = process.stdin.take();
        let mut port = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut port).unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], port.trim().parse().unwrap()));
        Self { address, process, input }
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.process.wait();
    }
}

/// Distributes the inputs to a few workers, each with its own state. Returns the outcomes in the
/// order of the inputs.
fn in_parallel<T: Sync, S, R: Send>(
    inputs: &[T],
    state: impl Fn() -> S + Sync,
    run: impl Fn(&mut S, usize, &T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut state = state();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(input) = inputs.get(number) else { break };
                    let outcome = run(&mut state, number, input);
                    outcomes.lock().unwrap().push((number, outcome));
                }
            });
        }
    });
    let mut outcomes = outcomes.into_inner().unwrap();
    outcomes.sort_by_key(|(number, _)| *number);
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

/// Sends one request after the other, on one connection as long as it stays open.
struct Client {
    address: SocketAddr,
    connection: Option<Connection>,
}

impl Client {
    const fn of(address: SocketAddr) -> Self {
        Self { address, connection: None }
    }

    /// Returns the answer. Returns `None` if the connection was closed on a body that is too long
    /// to be read.
    fn send(&mut self, request: &Request) -> Option<Answer> {
        let bytes = request.to_bytes();
        let long = bytes.len() > 48 * 1024;
        let kept = self.connection.take().filter(|_| !long);
        let mut connection = kept.unwrap_or_else(|| Connection::open(self.address));
        if let Err(error) = connection.write(&bytes) {
            assert!(long, "{error}: {request:?}");
        }
        let answer = connection.read_answer(&request.method);
        if let Err(error) = &answer {
            assert!(long, "{error}: {request:?}");
        }
        let answer = answer.ok()?;
        if !long && answer.header("connection") != Some("close") {
            self.connection = Some(connection);
        }
        Some(answer)
    }
}
