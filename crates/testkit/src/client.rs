//! One connection of a load that accepts every outcome: an answer, or none.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The time after which an answer counts as lost. No answer that comes takes so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// The outcome of a request.
pub struct Answer {
    /// The status; zero if there was no answer.
    pub status: u16,
    pub body: Vec<u8>,
    pub retry_after: bool,
    pub took: Duration,
}

impl Answer {
    /// Returns a string member of the JSON body.
    pub fn member(&self, name: &str) -> Option<String> {
        let body: Value = serde_json::from_slice(&self.body).ok()?;
        Some(body.get(name)?.as_str()?.to_owned())
    }

    /// Returns true if the answer is a 503 that asks the caller to come back, as in the contract.
    pub fn is_unavailable(&self) -> bool {
        self.status == 503
            && self.retry_after
            && self.member("error").as_deref() == Some("temporarily_unavailable")
    }
}

/// A connection that is opened when it is needed.
pub struct Client {
    address: SocketAddr,
    stream: Option<TcpStream>,
}

impl Client {
    pub fn new(address: SocketAddr) -> Self {
        Self { address, stream: None }
    }

    /// Sends a request exactly as given.
    pub async fn send(&mut self, request: &[u8]) -> Answer {
        self.send_within(request, PATIENCE).await
    }

    /// Sends a request, and gives up after `patience`.
    pub async fn send_within(&mut self, request: &[u8], patience: Duration) -> Answer {
        let began = Instant::now();
        let none =
            || Answer { status: 0, body: Vec::new(), retry_after: false, took: began.elapsed() };
        let exchange = async {
            let mut stream = match self.stream.take() {
                Some(stream) => stream,
                None => {
                    let stream = TcpStream::connect(self.address).await.ok()?;
                    stream.set_nodelay(true).ok()?;
                    stream
                }
            };
            stream.write_all(request).await.ok()?;
            let mut buffer = Vec::with_capacity(4096);
            loop {
                if stream.read_buf(&mut buffer).await.ok()? == 0 {
                    return None;
                }
                if let Some((mut answer, stays)) = parse(&buffer) {
                    // Envoy closes a connection of HTTP/1.1 after some of its own answers.
                    self.stream = stays.then_some(stream);
                    answer.took = began.elapsed();
                    return Some(answer);
                }
            }
        };
        timeout(patience, exchange).await.ok().flatten().unwrap_or_else(none)
    }
}

/// Returns a complete answer, and whether the connection stays open.
fn parse(buffer: &[u8]) -> Option<(Answer, bool)> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut head = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(start) = head.parse(buffer).ok()? else { return None };
    let header = |name: &str| {
        let found = head.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
        found.map(|header| str::from_utf8(header.value).unwrap())
    };
    let body = match header("content-length") {
        Some(length) => buffer.get(start..start + length.parse::<usize>().unwrap())?,
        // Go's metrics come in chunks, and the last of them are enough.
        None if buffer.ends_with(b"0\r\n\r\n") => &buffer[start..],
        None => return None,
    };
    let stays = header("connection") != Some("close");
    let retry_after = header("retry-after").is_some();
    let answer =
        Answer { status: head.code?, body: body.to_vec(), retry_after, took: Duration::ZERO };
    Some((answer, stays))
}
