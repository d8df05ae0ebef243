//! A load at a constant rate, as from many independent callers. A request is due at its time,
//! whether or not earlier requests were answered, and its latency counts from then. A request that
//! waits for a connection keeps waiting, so a stall of the server shows in the latencies.
//!
//! The load uses one thread and a fixed set of connections, as a gateway's callers do. A load that
//! opened more connections when it falls behind would measure how connections are opened.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::Timespec;

/// An answer, or none.
#[derive(Debug)]
pub struct Reply {
    /// Zero if the connection broke.
    pub status: u16,
    pub body: Vec<u8>,
    /// The time since the request was due.
    pub latency: Duration,
}

/// The source of the requests, and the receiver of their answers.
pub trait Traffic {
    /// Returns the request that is due now, as it goes on the wire.
    fn request(&mut self, number: usize) -> Vec<u8>;
    fn replied(&mut self, number: usize, reply: Reply);
}

pub struct OpenLoop {
    address: SocketAddr,
    epoll: OwnedFd,
    connections: Vec<Connection>,
}

struct Connection {
    stream: Option<TcpStream>,
    buffer: Vec<u8>,
    /// The number of the request whose answer comes next.
    asked: Option<(usize, Instant)>,
}

impl OpenLoop {
    pub fn new(address: SocketAddr, connections: usize) -> Self {
        // Otherwise the kernel may wake this thread 50 µs after a request was due.
        rustix::thread::set_current_timer_slack(NonZeroU64::new(1)).unwrap();
        let connection = || Connection { stream: None, buffer: Vec::new(), asked: None };
        Self {
            address,
            epoll: epoll::create(CreateFlags::CLOEXEC).unwrap(),
            connections: (0..connections).map(|_| connection()).collect(),
        }
    }

    /// Sends `count` requests, `rate` of them a second, and waits for the last answer.
    pub fn run(&mut self, count: usize, rate: f64, traffic: &mut impl Traffic) {
        for place in 0..self.connections.len() {
            self.open(place);
        }
        let mut idle: VecDeque<_> = (0..self.connections.len()).collect();
        let (mut sent, mut replied) = (0, 0);
        let mut events = Vec::with_capacity(self.connections.len());
        let began = Instant::now();
        let due = |number: usize| began + Duration::from_secs_f64(number as f64 / rate);
        while replied < count {
            while sent < count && due(sent) <= Instant::now() {
                let Some(place) = idle.pop_front() else { break };
                self.send(place, &traffic.request(sent), (sent, due(sent)));
                sent += 1;
            }
            // If a connection is idle, wait no longer than until the next request is due.
            let next = (sent < count && !idle.is_empty()).then(|| due(sent));
            let patience = next.map(|next| next.saturating_duration_since(Instant::now()));
            self.wait(&mut events, patience);
            for event in events.drain(..) {
                let place = usize::try_from(event.data.u64()).unwrap();
                if let Some((number, reply)) = self.read(place) {
                    replied += 1;
                    idle.push_back(place);
                    traffic.replied(number, reply);
                }
            }
        }
    }

    fn wait(&self, events: &mut Vec<epoll::Event>, patience: Option<Duration>) {
        let patience = patience.map(|patience| Timespec::try_from(patience).unwrap());
        events.reserve(self.connections.len());
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), patience.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => panic!("{error}"),
        }
    }

    fn open(&mut self, place: usize) {
        let connection = &mut self.connections[place];
        if connection.stream.is_some() {
            return;
        }
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_nonblocking(true).unwrap();
        epoll::add(&self.epoll, &stream, EventData::new_u64(place as u64), EventFlags::IN).unwrap();
        connection.stream = Some(stream);
        connection.buffer.clear();
    }

    fn send(&mut self, place: usize, request: &[u8], asked: (usize, Instant)) {
        self.open(place);
        let connection = &mut self.connections[place];
        connection.asked = Some(asked);
        // If the write fails, the connection has ended, and the next read shows it.
        let _ = connection.stream.as_mut().unwrap().write_all(request);
    }

    /// Returns the answer if it is complete.
    fn read(&mut self, place: usize) -> Option<(usize, Reply)> {
        let connection = &mut self.connections[place];
        let mut chunk = [0; 16 * 1024];
        let read = connection.stream.as_mut()?.read(&mut chunk);
        let answer = match read {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
            Ok(0) | Err(_) => Some((0, Vec::new(), true)),
            Ok(count) => {
                connection.buffer.extend_from_slice(&chunk[..count]);
                parse(&connection.buffer)
            }
        };
        let (status, body, closes) = answer?;
        connection.buffer.clear();
        if closes {
            // Closing the last descriptor removes the connection from the epoll.
            connection.stream = None;
        }
        // Envoy may close an idle connection. The next request opens it again.
        let (number, due) = connection.asked.take()?;
        Some((number, Reply { status, body, latency: due.elapsed() }))
    }
}

/// Returns status and body of a complete answer, and whether the connection ends with it.
fn parse(buffer: &[u8]) -> Option<(u16, Vec<u8>, bool)> {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut head = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(start) = head.parse(buffer).unwrap() else { return None };
    let named = |name: &str| {
        let found = head.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
        found.map(|header| str::from_utf8(header.value).unwrap())
    };
    let length: usize = named("content-length").map_or(0, |length| length.parse().unwrap());
    let body = buffer.get(start..start + length)?.to_vec();
    Some((head.code.unwrap(), body, named("connection") == Some("close")))
}
