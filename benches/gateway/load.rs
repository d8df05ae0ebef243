//! The load, the cores of the load and of Envoy, and the statistics.

use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::LazyLock;
use std::thread;
use std::time::Instant;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use testkit::open_loop::{self, OpenLoop, Traffic};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::{self, Runtime};

/// The number of connections of a [`Load`], unless it sets another.
pub(crate) const CONNECTIONS: usize = 16;

/// A closed loop: each connection sends its next request when it has the answer to the last. One
/// thread drives all connections: on a machine with two cores, one thread for each would spend more
/// time on switching than on requests.
pub(crate) struct Load {
    address: SocketAddr,
    runtime: Runtime,
    connections: Vec<(TcpStream, Vec<u8>)>,
}

pub(crate) struct Reply {
    pub status: u16,
    pub body: Vec<u8>,
    /// The latency in seconds.
    pub latency: f64,
}

impl Load {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self::with_connections(address, CONNECTIONS)
    }

    /// Opens a load with this number of connections.
    pub(crate) fn with_connections(address: SocketAddr, connections: usize) -> Self {
        let runtime = runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let connect = async || (connect(address).await, Vec::with_capacity(16 * 1024));
        let connections = (0..connections).map(|_| runtime.block_on(connect())).collect();
        Self { address, runtime, connections }
    }

    /// Sends every request once, over the first free connection. Envoy closes a connection if it
    /// answers before it has the whole request: the next request then has a connection of its own.
    pub(crate) fn run(&mut self, requests: &[Vec<u8>]) -> Vec<Reply> {
        let next = Cell::new(0);
        let drive = async |(stream, buffer): &mut (TcpStream, Vec<u8>)| {
            let mut replies = Vec::new();
            while let Some(request) = requests.get(next.replace(next.get() + 1)) {
                let sent = Instant::now();
                let all_sent = stream.write_all(request).await.is_ok();
                let (status, body, closes) = read_reply(stream, buffer).await;
                replies.push(Reply { status, body, latency: sent.elapsed().as_secs_f64() });
                if closes || !all_sent {
                    *stream = connect(self.address).await;
                }
            }
            replies
        };
        let all: FuturesUnordered<_> = self.connections.iter_mut().map(drive).collect();
        self.runtime.block_on(all.concat())
    }
}

async fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

async fn read_reply(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> (u16, Vec<u8>, bool) {
    buffer.clear();
    loop {
        assert_ne!(stream.read_buf(buffer).await.unwrap(), 0, "the server hung up");
        if let Some(reply) = parse(buffer) {
            return reply;
        }
    }
}

/// Returns the status and the body of an answer once it is complete, and whether the server closes
/// the connection after it.
fn parse(buffer: &[u8]) -> Option<(u16, Vec<u8>, bool)> {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut head = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(start) = head.parse(buffer).unwrap() else { return None };
    let value = |name: &str| {
        let header = head.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name))?;
        str::from_utf8(header.value).ok()
    };
    let length: usize = value("content-length").unwrap().parse().unwrap();
    let closes = value("connection") == Some("close");
    let body = buffer.get(start..start + length)?;
    Some((head.code.unwrap(), body.to_vec(), closes))
}

/// Sends every request once, `rate` per second. Returns the latencies in seconds.
pub(crate) fn at_rate(
    load: &mut OpenLoop,
    requests: &[Vec<u8>],
    rate: f64,
    status: u16,
) -> Vec<f64> {
    let mut turn = Turn { requests, status, latencies: Vec::with_capacity(requests.len()) };
    load.run(requests.len(), rate, &mut turn);
    turn.latencies
}

struct Turn<'r> {
    requests: &'r [Vec<u8>],
    status: u16,
    latencies: Vec<f64>,
}

impl Traffic for Turn<'_> {
    fn request(&mut self, number: usize) -> Vec<u8> {
        self.requests[number].clone()
    }

    fn replied(&mut self, _number: usize, reply: open_loop::Reply) {
        assert_eq!(reply.status, self.status, "{}", reply.body.escape_ascii());
        self.latencies.push(reply.latency.as_secs_f64());
    }
}

/// Returns Envoy's core, if there is another core for the load. The result is kept: a thread that
/// is bound to one core sees no other core, and an Envoy that it starts would share that core.
pub(crate) fn envoy_core() -> Option<usize> {
    static CORE: LazyLock<Option<usize>> = LazyLock::new(|| {
        thread::available_parallelism().is_ok_and(|cores| cores.get() > 1).then_some(0)
    });
    *CORE
}

/// Keeps this thread and the threads it starts off Envoy's core.
pub(crate) fn leave_envoy_alone() {
    if envoy_core().is_some() {
        core_affinity::set_for_current(core_affinity::CoreId { id: 1 });
    }
}

pub(crate) fn median(values: Vec<f64>) -> f64 {
    quantile(&values, 0.5)
}

pub(crate) fn quantile(values: &[f64], at: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted[((sorted.len() - 1) as f64 * at).round() as usize]
}
