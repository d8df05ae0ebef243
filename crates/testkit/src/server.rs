//! The server behind Envoy, as a test scripts it: an identity provider, an introspection endpoint,
//! or an API. Each server has its own port, so one can be down while the others work. It answers by
//! a rule, can change its fault from one request to the next, and remembers every request
//! unchanged.
//!
//! The server reads requests and writes answers byte by byte. So it remembers the bytes on the
//! wire, and can break off where an HTTP library could not. A library serves connections that begin
//! as HTTP/2, except for the faults.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::{Either, select};
use futures_util::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{oneshot, watch};

use crate::http::Answer;
use crate::http2::{header_map, pairs};
use crate::{RUNTIME, wait_for};

/// A fault of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The port accepts no connection, and open connections are closed.
    Refused,
    /// The server reads the request and never answers.
    Slow,
    /// The server sends the head and half of the body, and then nothing more.
    Stalled,
    /// The server sends the head and half of the body, and then resets the connection.
    ResetMidBody,
    /// 500, and an error page.
    ServerError,
    /// The right body, with the content type of a web page.
    WrongContentType,
    /// 5 MB with the content type of JSON.
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

    /// Returns true if a client notices the fault only by its timeout.
    pub fn takes_the_whole_timeout(self) -> bool {
        matches!(self, Self::Slow | Self::Stalled)
    }

    /// A name for URLs and clusters.
    pub fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

/// A received request.
#[derive(Clone, Debug)]
pub struct Received {
    /// The number of requests that the server got before this one.
    pub index: usize,
    pub at: Instant,
    pub version: String,
    pub method: String,
    pub target: String,
    pub headers: Vec<(String, Vec<u8>)>,
    pub body: Vec<u8>,
    pub trailers: Vec<(String, String)>,
}

impl Received {
    /// The value of a header that may occur at most once.
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

/// A complete answer. With trailers it is chunked. After status 101 the server returns every byte
/// that it gets.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, Vec<u8>)>,
    pub body: Vec<u8>,
    pub trailers: Vec<(String, String)>,
}

impl Reply {
    pub fn status(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: Vec::new(), trailers: Vec::new() }
    }

    pub fn json(value: &Value) -> Self {
        let body = value.to_string().into_bytes();
        Self { body, ..Self::status(200) }.header("content-type", "application/json")
    }

    /// Replaces the header, or adds it.
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers.retain(|(have, _)| have != name);
        self.and_header(name, value)
    }

    /// Adds the header, even if there is one of that name.
    pub fn and_header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((name.into(), value.as_ref().to_vec()));
        self
    }

    fn to_bytes(&self, method: &str) -> Vec<u8> {
        let mut out = format!("HTTP/1.1 {} x\r\n", self.status).into_bytes();
        for (name, value) in &self.headers {
            out.extend_from_slice(&[name.as_bytes(), b": ", value, b"\r\n"].concat());
        }
        let chunked = !self.trailers.is_empty() && method != "HEAD";
        let has_length = self.headers.iter().any(|(name, _)| name == "content-length");
        if chunked {
            out.extend_from_slice(b"transfer-encoding: chunked\r\n");
        } else if !has_length && !matches!(self.status, 101 | 204 | 304) {
            out.extend_from_slice(format!("content-length: {}\r\n", self.body.len()).as_bytes());
        }
        out.extend_from_slice(b"\r\n");
        if chunked {
            if !self.body.is_empty() {
                out.extend_from_slice(format!("{:x}\r\n", self.body.len()).as_bytes());
                out.extend_from_slice(&self.body);
                out.extend_from_slice(b"\r\n");
            }
            out.extend_from_slice(b"0\r\n");
            for (name, value) in &self.trailers {
                out.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
            }
            out.extend_from_slice(b"\r\n");
        } else if method != "HEAD" && !matches!(self.status, 101 | 204 | 304) {
            out.extend_from_slice(&self.body);
        }
        out
    }
}

type Rule = Arc<dyn Fn(&Received) -> Reply + Send + Sync>;

/// One server. It has the name of its Envoy cluster.
#[derive(Clone)]
pub struct Server {
    pub name: String,
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
    /// Counts the changes of `state.fault`, and wakes those who wait for a change. Every open
    /// connection holds a receiver.
    changed: Arc<watch::Sender<u64>>,
}

struct State {
    fault: Option<Fault>,
    rule: Rule,
    /// The next request over HTTP/1.1 sends to the first channel, and then waits for the second.
    held: Option<(oneshot::Sender<()>, oneshot::Receiver<()>)>,
    received: Vec<Received>,
    port: Port,
}

/// A request that a server has read and does not take until this is dropped.
pub struct Held {
    arrived: oneshot::Receiver<()>,
    _release: oneshot::Sender<()>,
}

impl Held {
    /// Waits for the request.
    pub fn wait(&mut self) {
        wait_for("the request to a server", || self.arrived.try_recv().ok());
    }
}

enum Port {
    Open(tokio::task::JoinHandle<()>),
    /// The port is bound, so that no other program gets it, but nothing listens.
    Closed(TcpSocket),
    Changing,
}

impl Server {
    /// Starts a server that echoes each request.
    pub fn start(name: &str) -> Self {
        let _inside = RUNTIME.enter();
        let socket = bind("127.0.0.1:0".parse().unwrap());
        let server = Self {
            name: name.into(),
            address: socket.local_addr().unwrap(),
            state: Arc::new(Mutex::new(State {
                fault: None,
                rule: Arc::new(echo),
                held: None,
                received: Vec::new(),
                port: Port::Changing,
            })),
            changed: Arc::new(watch::channel(0).0),
        };
        server.state.lock().unwrap().port = server.open(socket);
        server
    }

    /// Sets the rule by which the server answers while it has no fault.
    pub fn answer(&self, rule: impl Fn(&Received) -> Reply + Send + Sync + 'static) {
        self.state.lock().unwrap().rule = Arc::new(rule);
    }

    /// Sets one answer for every request.
    pub fn answer_always(&self, reply: Reply) {
        self.answer(move |_| reply.clone());
    }

    /// Holds the next request over HTTP/1.1 back.
    pub fn hold(&self) -> Held {
        let ((sends, arrived), (release, waits)) = (oneshot::channel(), oneshot::channel());
        self.state.lock().unwrap().held = Some((sends, waits));
        Held { arrived, _release: release }
    }

    pub fn fail(&self, fault: Fault) {
        self.set(Some(fault));
    }

    pub fn heal(&self) {
        self.set(None);
    }

    /// Forgets fault, rule and requests.
    pub fn reset(&self) {
        self.heal();
        self.answer(echo);
        self.state.lock().unwrap().received.clear();
    }

    /// Takes a request that did not come over the network. Returns the fault, and the answer if
    /// there is no fault.
    pub fn play(&self, received: Received) -> (Option<Fault>, Reply) {
        self.take(received, &mut self.changed.subscribe())
    }

    /// Returns all requests since the start.
    pub fn received(&self) -> Vec<Received> {
        self.state.lock().unwrap().received.clone()
    }

    /// Returns the request that led to this answer of [`as_asked`]; `None` if the server did not
    /// answer.
    pub fn received_for(&self, answer: &Answer) -> Option<Received> {
        let index: usize = answer.header(INDEX)?.parse().unwrap();
        Some(self.state.lock().unwrap().received[index].clone())
    }

    /// Returns the number of requests.
    pub fn calls(&self) -> usize {
        self.state.lock().unwrap().received.len()
    }

    /// Returns the last request.
    pub fn last(&self) -> Received {
        self.received().pop().unwrap_or_else(|| panic!("nobody asked {}", self.name))
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
                // An aborted task may still run. The port is free when the task has ended.
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
        // The state is still locked, so that no one sees the new fault before the count: see
        // `take`.
        self.changed.send_modify(|count| *count += 1);
    }

    fn open(&self, socket: TcpSocket) -> Port {
        let listener = socket.listen(1024).unwrap();
        let server = self.clone();
        Port::Open(RUNTIME.spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else { continue };
                let server = server.clone();
                tokio::spawn(async move {
                    // Envoy may drop a connection at any time: not an event.
                    let _ = server.serve(stream).await;
                });
            }
        }))
    }

    async fn serve(&self, stream: TcpStream) -> io::Result<()> {
        let mut changed = self.changed.subscribe();
        let http2 = {
            let begins = pin!(begins_as_http2(&stream));
            match select(begins, pin!(refused(self, &mut changed))).await {
                Either::Left((http2, _)) => http2?,
                Either::Right(_) => return Ok(()),
            }
        };
        if http2 {
            return self.serve_http2(stream, changed).await;
        }
        self.serve_http1(stream, changed).await
    }

    /// Notes a request. Returns its fault, and the answer if there is no fault. Marks the current
    /// count of changes as seen: a connection may not have noticed yet the change that brought this
    /// fault.
    fn take(
        &self,
        mut received: Received,
        changed: &mut watch::Receiver<u64>,
    ) -> (Option<Fault>, Reply) {
        let (fault, rule) = {
            let mut state = self.state.lock().unwrap();
            changed.mark_unchanged();
            received.index = state.received.len();
            state.received.push(received.clone());
            (state.fault, Arc::clone(&state.rule))
        };
        let reply = rule(&received);
        match fault {
            Some(Fault::ServerError) => {
                let mut page = Reply::status(500).header("content-type", "text/html");
                page.body = b"<h1>Internal Server Error</h1>".to_vec();
                (fault, page)
            }
            Some(Fault::WrongContentType) => (fault, reply.header("content-type", "text/html")),
            Some(Fault::Junk) => {
                (fault, Reply { body: vec![b'['; 5 << 20], ..Reply::json(&Value::Null) })
            }
            Some(Fault::Empty) => (fault, Reply { body: Vec::new(), ..Reply::json(&Value::Null) }),
            fault => (fault, reply),
        }
    }

    async fn serve_http1(
        &self,
        mut stream: TcpStream,
        mut changed: watch::Receiver<u64>,
    ) -> io::Result<()> {
        let mut unread = Vec::new();
        loop {
            let received = {
                let request = pin!(read_request(&mut stream, &mut unread));
                match select(request, pin!(refused(self, &mut changed))).await {
                    Either::Left((received, _)) => received?,
                    Either::Right(_) => return Ok(()),
                }
            };
            let method = received.method.clone();
            let held = self.state.lock().unwrap().held.take();
            if let Some((arrived, released)) = held {
                let _ = arrived.send(());
                // The channel closes when the test lets the request go.
                let _ = released.await;
            }
            let (fault, reply) = self.take(received, &mut changed);
            let whole = reply.to_bytes(&method);
            let half = whole.len().saturating_sub(reply.body.len().div_ceil(2));
            match fault {
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
                _ => stream.write_all(&whole).await?,
            }
            if reply.status == 101 {
                stream.write_all(&unread).await?;
                return send_back(stream).await;
            }
        }
    }

    async fn serve_http2(
        &self,
        stream: TcpStream,
        mut changed: watch::Receiver<u64>,
    ) -> io::Result<()> {
        let server = self.clone();
        let service =
            hyper::service::service_fn(move |request| server.clone().answer_http2(request));
        let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(stream), service);
        select(pin!(connection), pin!(refused(self, &mut changed))).await;
        Ok(())
    }

    async fn answer_http2(self, request: hyper::Request<Incoming>) -> io::Result<Http2Response> {
        let mut changed = self.changed.subscribe();
        let (head, body) = request.into_parts();
        let body = body.collect().await.map_err(io::Error::other)?;
        let headers = head.headers.iter();
        let received = Received {
            index: 0,
            at: Instant::now(),
            version: format!("{:?}", head.version),
            method: head.method.to_string(),
            target: head.uri.path_and_query().map(ToString::to_string).unwrap_or_default(),
            headers: headers
                .map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()))
                .collect(),
            trailers: body.trailers().map(pairs).unwrap_or_default(),
            body: body.to_bytes().to_vec(),
        };
        let (fault, reply) = self.take(received, &mut changed);
        let mut response = hyper::Response::builder().status(reply.status);
        for (name, value) in &reply.headers {
            response = response.header(name, value.as_slice());
        }
        let bodiless = head.method == hyper::Method::HEAD || matches!(reply.status, 204 | 304);
        if reply.trailers.is_empty() && !matches!(reply.status, 204 | 304) {
            response = response.header("content-length", reply.body.len());
        }
        let half = Bytes::copy_from_slice(&reply.body[..reply.body.len() / 2]);
        let begun = stream::iter([Ok(Frame::data(half))]);
        let body = match fault {
            Some(Fault::Refused) => return Err(io::ErrorKind::ConnectionRefused.into()),
            Some(Fault::Slow) => {
                let _ = changed.changed().await;
                return Err(io::ErrorKind::TimedOut.into());
            }
            Some(Fault::Stalled) => {
                BodyExt::boxed_unsync(StreamBody::new(begun.chain(stream::once(async move {
                    let _ = changed.changed().await;
                    Err(io::ErrorKind::TimedOut.into())
                }))))
            }
            Some(Fault::ResetMidBody) => {
                BodyExt::boxed_unsync(StreamBody::new(begun.chain(stream::once(async {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    Err(io::ErrorKind::ConnectionReset.into())
                }))))
            }
            _ if bodiless => {
                http_body_util::Empty::new().map_err(|never| match never {}).boxed_unsync()
            }
            _ => {
                let mut frames = Vec::new();
                if !reply.body.is_empty() {
                    frames.push(Ok(Frame::data(Bytes::from(reply.body))));
                }
                if !reply.trailers.is_empty() {
                    frames.push(Ok(Frame::trailers(header_map(&reply.trailers))));
                }
                StreamBody::new(stream::iter(frames)).boxed_unsync()
            }
        };
        response.body(body).map_err(io::Error::other)
    }
}

type Http2Response = hyper::Response<UnsyncBoxBody<Bytes, io::Error>>;

/// Returns true if the client begins with the HTTP/2 preface. Consumes no bytes of the connection.
async fn begins_as_http2(stream: &TcpStream) -> io::Result<bool> {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0";
    let mut beginning = [0; PREFACE.len()];
    loop {
        let count = stream.peek(&mut beginning).await?;
        let differs = beginning[..count] != PREFACE[..count];
        if count == 0 || count == PREFACE.len() || differs {
            return Ok(count > 0 && !differs);
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Binds a port. For a moment the port may belong to another program's connection.
fn bind(address: SocketAddr) -> TcpSocket {
    wait_for(&format!("{address} to be free"), || {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(address).ok().map(|()| socket)
    })
}

/// Answers with the request: its method and target, and its body.
fn echo(received: &Received) -> Reply {
    let echoed = Reply { body: received.body.clone(), ..Reply::status(200) };
    echoed.header("x-echo", format!("{} {}", received.method, received.target))
}

/// The response header that tells which request an answer belongs to.
const INDEX: &str = "x-upstream-record";

/// Answers as the request's own headers ask, so that a test sees every change on the way. Without
/// such headers it answers with the request's body.
pub fn as_asked(received: &Received) -> Reply {
    let reply = Reply::status(200)
        .header(INDEX, received.index.to_string())
        .header("x-upstream", "yes")
        .header("set-cookie", "a=1")
        .and_header("set-cookie", b"b=\xff\xfe");
    if let Some(protocol) = received.header("upgrade") {
        let reply = reply.header("connection", "upgrade").header("upgrade", protocol);
        return Reply { status: 101, ..reply };
    }
    let status = received.header("x-answer-status").map_or(200, |status| status.parse().unwrap());
    let body = match received.header("x-answer-bytes") {
        Some(count) => pattern(count.parse().unwrap()),
        None => received.body.clone(),
    };
    let reply = Reply { status, body, ..reply };
    if received.header("x-answer-trailers").is_none() {
        return reply;
    }
    let trailers = vec![("x-upstream-trailer".to_owned(), "at the end".to_owned())];
    Reply { trailers, ..reply.header("trailer", "x-upstream-trailer") }
}

/// Bytes that differ from place to place, so that a test sees a lost, repeated or moved piece.
pub fn pattern(count: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(count as u64);
    (0..count).map(|_| random.u8(..)).collect()
}

async fn send_back(mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = [0; 4096];
    while let count @ 1.. = stream.read(&mut buffer).await? {
        stream.write_all(&buffer[..count]).await?;
    }
    Ok(())
}

async fn refused(server: &Server, changed: &mut watch::Receiver<u64>) {
    loop {
        changed.borrow_and_update();
        if server.state.lock().unwrap().fault == Some(Fault::Refused) {
            return;
        }
        if changed.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Sends nothing until the fault changes or the client gives up.
async fn wait_for_change(
    stream: &mut TcpStream,
    changed: &mut watch::Receiver<u64>,
) -> io::Result<()> {
    let mut ignored = [0; 64];
    select(pin!(changed.changed()), pin!(stream.read(&mut ignored))).await;
    Ok(())
}

async fn read_request(stream: &mut TcpStream, unread: &mut Vec<u8>) -> io::Result<Received> {
    let (head, mut received) = loop {
        if let Some(parsed) = parse_head(unread) {
            break parsed;
        }
        fill(stream, unread).await?;
    };
    unread.drain(..head);
    match (received.header("transfer-encoding"), received.header("content-length")) {
        (Some(coding), _) => {
            assert_eq!(coding, "chunked", "not read by this server: {received:?}");
            read_chunks(stream, unread, &mut received).await?;
        }
        (None, Some(length)) => {
            received.body = read_exactly(stream, unread, length.parse().unwrap()).await?;
        }
        (None, None) => {}
    }
    Ok(received)
}

async fn read_chunks(
    stream: &mut TcpStream,
    unread: &mut Vec<u8>,
    received: &mut Received,
) -> io::Result<()> {
    loop {
        let line = read_line(stream, unread).await?;
        let length = usize::from_str_radix(&line, 16).map_err(io::Error::other)?;
        if length == 0 {
            break;
        }
        received.body.extend(read_exactly(stream, unread, length).await?);
        read_line(stream, unread).await?;
    }
    loop {
        let line = read_line(stream, unread).await?;
        match line.split_once(':') {
            Some((name, value)) => received.trailers.push((name.into(), value.trim().into())),
            None => return Ok(()),
        }
    }
}

async fn read_line(stream: &mut TcpStream, unread: &mut Vec<u8>) -> io::Result<String> {
    loop {
        if let Some(end) = unread.windows(2).position(|pair| pair == b"\r\n") {
            let line = unread.drain(..end + 2).take(end).collect();
            return String::from_utf8(line).map_err(io::Error::other);
        }
        fill(stream, unread).await?;
    }
}

async fn read_exactly(
    stream: &mut TcpStream,
    unread: &mut Vec<u8>,
    count: usize,
) -> io::Result<Vec<u8>> {
    while unread.len() < count {
        fill(stream, unread).await?;
    }
    Ok(unread.drain(..count).collect())
}

fn parse_head(bytes: &[u8]) -> Option<(usize, Received)> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut head = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(length) = head.parse(bytes).unwrap() else { return None };
    let headers = head.headers.iter().map(|header| (header.name.into(), header.value.to_vec()));
    let received = Received {
        index: 0,
        at: Instant::now(),
        version: format!("HTTP/1.{}", head.version.unwrap()),
        method: head.method.unwrap().into(),
        target: head.path.unwrap().into(),
        headers: headers.collect(),
        body: Vec::new(),
        trailers: Vec::new(),
    };
    Some((length, received))
}

async fn fill(stream: &mut TcpStream, unread: &mut Vec<u8>) -> io::Result<()> {
    match stream.read_buf(unread).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}
