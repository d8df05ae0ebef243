//! An identity provider that fails on purpose. Each of its services has a port of its own, so that one
//! can be dead while the others live, and does what it is told, from one request to the next.
//!
//! It reads requests and writes answers by the byte: what it remembers is what was on the wire, and it
//! can break off where an HTTP library would not let it.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::{Either, select};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::watch;

use crate::{RUNTIME, wait_for};

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nobody listens on the port, and connections that were open are closed.
    Refused,
    /// The request is read, and nothing is ever answered.
    Slow,
    /// The answer's head and half of its body come, and then nothing more.
    Stalled,
    /// The same, and then the connection is reset.
    ResetMidBody,
    /// 500, and an error page.
    ServerError,
    /// The right body, said to be a web page.
    WrongContentType,
    /// 5 MB that are said to be JSON.
    Junk,
    /// 200 without a body.
    Empty,
}

impl Fault {
    pub const ALL: [Self; 8] = [
        Self::Refused,
        Self::Slow,
        Self::Stalled,
        Self::ResetMidBody,
        Self::ServerError,
        Self::WrongContentType,
        Self::Junk,
        Self::Empty,
    ];

    /// Whether whoever asks learns of it only by waiting.
    pub fn takes_the_whole_timeout(self) -> bool {
        matches!(self, Self::Slow | Self::Stalled)
    }

    /// A name for URLs and clusters.
    pub fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Asked {
    pub at: Instant,
    pub method: String,
    pub target: String,
    pub headers: Vec<(String, Vec<u8>)>,
    pub body: Vec<u8>,
}

impl Asked {
    /// The value of a header that may come once at the most.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(have, _)| have.eq_ignore_ascii_case(name));
        let first = values.next().map(|(_, value)| str::from_utf8(value).unwrap());
        assert!(values.next().is_none(), "{name} comes twice: {self:?}");
        first
    }

    /// A parameter of a form body.
    pub fn parameter(&self, name: &str) -> Option<String> {
        let body = str::from_utf8(&self.body).unwrap();
        let value = body.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))?;
        let mut bytes = value.bytes();
        let mut decoded = Vec::new();
        while let Some(byte) = bytes.next() {
            decoded.push(match byte {
                b'+' => b' ',
                b'%' => {
                    let digits = [bytes.next().unwrap(), bytes.next().unwrap()];
                    u8::from_str_radix(str::from_utf8(&digits).unwrap(), 16).unwrap()
                }
                byte => byte,
            });
        }
        Some(String::from_utf8(decoded).unwrap())
    }
}

/// An answer, whole.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn status(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: Vec::new() }
    }

    pub fn json(value: &Value) -> Self {
        let body = value.to_string().into_bytes();
        Self { body, ..Self::status(200) }.header("content-type", "application/json")
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(have, _)| have != name);
        self.headers.push((name.into(), value.into()));
        self
    }

    fn to_bytes(&self, method: &str) -> Vec<u8> {
        let mut out = format!("HTTP/1.1 {} x\r\n", self.status);
        for (name, value) in &self.headers {
            out += &format!("{name}: {value}\r\n");
        }
        if self.status != 304 && !self.headers.iter().any(|(name, _)| name == "content-length") {
            out += &format!("content-length: {}\r\n", self.body.len());
        }
        out += "\r\n";
        let mut out = out.into_bytes();
        if method != "HEAD" {
            out.extend_from_slice(&self.body);
        }
        out
    }
}

type Answers = Arc<dyn Fn(&Asked) -> Reply + Send + Sync>;

/// One service of the provider, by the name of its Envoy cluster.
#[derive(Clone)]
pub struct Service {
    pub name: String,
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
    /// Counts the changes of `state.fault`: who waits for one learns of it here. Every open connection
    /// holds a receiver.
    changed: Arc<watch::Sender<u64>>,
}

struct State {
    fault: Option<Fault>,
    answers: Answers,
    asked: Vec<Asked>,
    port: Port,
}

enum Port {
    Open(tokio::task::JoinHandle<()>),
    /// Bound, so that nobody else gets it, but nobody listens.
    Closed(TcpSocket),
    Changing,
}

impl Service {
    /// Starts one that echoes what it is asked.
    pub fn start(name: &str) -> Self {
        let _inside = RUNTIME.enter();
        let socket = bind("127.0.0.1:0".parse().unwrap());
        let service = Self {
            name: name.into(),
            address: socket.local_addr().unwrap(),
            state: Arc::new(Mutex::new(State {
                fault: None,
                answers: Arc::new(echo),
                asked: Vec::new(),
                port: Port::Changing,
            })),
            changed: Arc::new(watch::channel(0).0),
        };
        service.state.lock().unwrap().port = service.open(socket);
        service
    }

    /// How it answers while nothing is wrong.
    pub fn answer(&self, answers: impl Fn(&Asked) -> Reply + Send + Sync + 'static) {
        self.state.lock().unwrap().answers = Arc::new(answers);
    }

    /// The same for every request.
    pub fn answer_always(&self, reply: Reply) {
        self.answer(move |_| reply.clone());
    }

    pub fn fail(&self, fault: Fault) {
        self.set(Some(fault));
    }

    pub fn heal(&self) {
        self.set(None);
    }

    /// All requests since the beginning.
    pub fn asked(&self) -> Vec<Asked> {
        self.state.lock().unwrap().asked.clone()
    }

    /// How many there were.
    pub fn calls(&self) -> usize {
        self.state.lock().unwrap().asked.len()
    }

    /// The last one.
    pub fn last(&self) -> Asked {
        self.asked().pop().unwrap_or_else(|| panic!("nobody asked {}", self.name))
    }

    fn set(&self, fault: Option<Fault>) {
        let _inside = RUNTIME.enter();
        let mut state = self.state.lock().unwrap();
        state.fault = fault;
        let port = std::mem::replace(&mut state.port, Port::Changing);
        state.port = match (port, fault) {
            (Port::Open(listener), Some(Fault::Refused)) => {
                listener.abort();
                drop(state);
                // Aborted is not ended yet: the port is free when it has.
                while !listener.is_finished() {
                    std::thread::sleep(Duration::from_millis(1));
                }
                let closed = Port::Closed(bind(self.address));
                self.changed.send_modify(|count| *count += 1);
                while self.changed.receiver_count() > 0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
                self.state.lock().unwrap().port = closed;
                return;
            }
            (Port::Closed(socket), fault) if fault != Some(Fault::Refused) => self.open(socket),
            (port, _) => port,
        };
        drop(state);
        self.changed.send_modify(|count| *count += 1);
    }

    fn open(&self, socket: TcpSocket) -> Port {
        let listener = socket.listen(1024).unwrap();
        let service = self.clone();
        Port::Open(RUNTIME.spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else { continue };
                let service = service.clone();
                tokio::spawn(async move {
                    // Envoy may drop a connection at any time: not an event.
                    let _ = service.serve(stream).await;
                });
            }
        }))
    }

    async fn serve(&self, mut stream: TcpStream) -> io::Result<()> {
        let mut changed = self.changed.subscribe();
        let mut unread = Vec::new();
        loop {
            let asked = {
                let request = pin!(read_request(&mut stream, &mut unread));
                match select(request, pin!(refused(self, &mut changed))).await {
                    Either::Left((asked, _)) => asked?,
                    Either::Right(_) => return Ok(()),
                }
            };
            let (fault, answers) = {
                let mut state = self.state.lock().unwrap();
                state.asked.push(asked.clone());
                (state.fault, Arc::clone(&state.answers))
            };
            let reply = answers(&asked);
            let whole = reply.to_bytes(&asked.method);
            let half = whole.len().saturating_sub(reply.body.len().div_ceil(2));
            match fault {
                None => stream.write_all(&whole).await?,
                Some(Fault::Refused) => return Ok(()),
                Some(Fault::Slow) => return wait_for_change(&mut stream, &mut changed).await,
                Some(Fault::Stalled) => {
                    stream.write_all(&whole[..half]).await?;
                    return wait_for_change(&mut stream, &mut changed).await;
                }
                Some(Fault::ResetMidBody) => {
                    stream.write_all(&whole[..half]).await?;
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    stream.set_zero_linger()?;
                    return Ok(());
                }
                Some(Fault::ServerError) => {
                    let mut page = Reply::status(500).header("content-type", "text/html");
                    page.body = b"<h1>Internal Server Error</h1>".to_vec();
                    stream.write_all(&page.to_bytes(&asked.method)).await?;
                }
                Some(Fault::WrongContentType) => {
                    let page = reply.header("content-type", "text/html");
                    stream.write_all(&page.to_bytes(&asked.method)).await?;
                }
                Some(Fault::Junk) => {
                    let mut junk = Reply::json(&Value::Null);
                    junk.body = vec![b'['; 5 << 20];
                    stream.write_all(&junk.to_bytes(&asked.method)).await?;
                }
                Some(Fault::Empty) => {
                    let mut empty = Reply::json(&Value::Null);
                    empty.body.clear();
                    stream.write_all(&empty.to_bytes(&asked.method)).await?;
                }
            }
        }
    }
}

/// Binds a port, which for a moment can be that of somebody else's connection.
fn bind(address: SocketAddr) -> TcpSocket {
    wait_for(&format!("{address} to be free"), || {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(address).ok().map(|()| socket)
    })
}

/// Answers with the request: its method and target, and its body.
fn echo(asked: &Asked) -> Reply {
    let echoed = Reply { body: asked.body.clone(), ..Reply::status(200) };
    echoed.header("x-echo", &format!("{} {}", asked.method, asked.target))
}

async fn refused(service: &Service, changed: &mut watch::Receiver<u64>) {
    loop {
        changed.borrow_and_update();
        if service.state.lock().unwrap().fault == Some(Fault::Refused) {
            return;
        }
        if changed.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Says nothing until another fault is wanted or the other side gives up.
async fn wait_for_change(
    stream: &mut TcpStream,
    changed: &mut watch::Receiver<u64>,
) -> io::Result<()> {
    let mut ignored = [0; 64];
    select(pin!(changed.changed()), pin!(stream.read(&mut ignored))).await;
    Ok(())
}

async fn read_request(stream: &mut TcpStream, unread: &mut Vec<u8>) -> io::Result<Asked> {
    let (head, mut asked) = loop {
        if let Some(parsed) = parse_head(unread) {
            break parsed;
        }
        fill(stream, unread).await?;
    };
    unread.drain(..head);
    let length = asked.header("content-length").map_or(0, |length| length.parse().unwrap());
    assert!(asked.header("transfer-encoding").is_none(), "not read by this fake: {asked:?}");
    while unread.len() < length {
        fill(stream, unread).await?;
    }
    asked.body = unread.drain(..length).collect();
    Ok(asked)
}

fn parse_head(bytes: &[u8]) -> Option<(usize, Asked)> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut head = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(length) = head.parse(bytes).unwrap() else { return None };
    let headers = head.headers.iter().map(|header| (header.name.into(), header.value.to_vec()));
    let asked = Asked {
        at: Instant::now(),
        method: head.method.unwrap().into(),
        target: head.path.unwrap().into(),
        headers: headers.collect(),
        body: Vec::new(),
    };
    Some((length, asked))
}

async fn fill(stream: &mut TcpStream, unread: &mut Vec<u8>) -> io::Result<()> {
    match stream.read_buf(unread).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}
