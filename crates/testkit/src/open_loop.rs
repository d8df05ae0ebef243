//! A load at a constant rate, as from a crowd that does not know of each other: a request is due at
//! its time, whether or not others were answered, and its latency counts from then. What waits for
//! a connection waits in it, so that no stall is left out because nobody asked during it.
//!
//! One thread and a fixed set of connections, as a gateway's callers keep theirs: who opens more
//! when it falls behind measures how connections are opened.

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
    /// Zero where the connection broke.
    pub status: u16,
    pub body: Vec<u8>,
    /// Since the request was due.
    pub latency: Duration,
}

/// The requests to send, and the handling of their answers.
pub trait Traffic {
    /// The request that is due now, as it goes on the wire.
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
    /// The number of the request that is answered next.
    asked: Option<(usize, Instant)>,
}

impl OpenLoop {
    pub fn new(address: SocketAddr, connections: usize) -> Self {
        // Otherwise the kernel may wake this thread 50 us after a request was due.
        rustix::thread::set_current_timer_slack(NonZeroU64::new(1)).unwrap();
        let connection = || Connection { stream: None, buffer: Vec::new(), asked: None };
        Self {
            address,
            epoll: epoll::create(CreateFlags::CLOEXEC).unwrap(),
            connections: (0..connections).map(|_| connection()).collect(),
        }
    }

    /// Sends so many requests, `rate` of them a second, and waits for the last answer.
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
            // Until the next is due, if there is a connection for it.
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

    /// The answer, if it is complete.
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
            // It leaves the epoll with its last descriptor.
            connection.stream = None;
        }
        // Envoy may close an idle one: nobody has asked, and it is opened again for whoever asks
        // next.
        let (number, due) = connection.asked.take()?;
        Some((number, Reply { status, body, latency: due.elapsed() }))
    }
}

/// Status and body of an answer, once it is complete, and whether the connection ends with it.
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
