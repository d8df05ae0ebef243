//! A blocking HTTP/1.1 client that sends exactly the given bytes and hides nothing of the answer.
//! The load generator uses it too, so the client does no needless work.

use std::fmt::{self, Write as _};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// A request as it goes on the wire. The client adds `host` and `content-length` if they are
/// missing.
#[derive(Clone, Debug)]
pub struct Request {
    pub method: String,
    pub target: String,
    pub headers: Vec<(String, Vec<u8>)>,
    pub body: Body,
}

#[derive(Clone, Debug)]
pub enum Body {
    None,
    Sized(Vec<u8>),
    /// Chunked in HTTP/1.1, DATA frames in HTTP/2, and then the trailers.
    Pieces {
        data: Vec<Vec<u8>>,
        trailers: Vec<(String, String)>,
    },
}

impl Request {
    pub fn new(method: &str, target: &str) -> Self {
        Self { method: method.into(), target: target.into(), headers: Vec::new(), body: Body::None }
    }

    pub fn get(target: &str) -> Self {
        Self::new("GET", target)
    }

    pub fn post(target: &str) -> Self {
        Self::new("POST", target)
    }

    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((name.into(), value.as_ref().to_vec()));
        self
    }

    pub fn bearer(self, token: &str) -> Self {
        self.header("authorization", format!("Bearer {token}"))
    }

    /// Basic credentials as in RFC 6749 §2.3.1: form-urlencoded, then base64.
    pub fn basic(self, id: &str, secret: &str) -> Self {
        let pair = format!("{}:{}", urlencode(id.as_bytes()), urlencode(secret.as_bytes()));
        self.header("authorization", format!("Basic {}", STANDARD.encode(pair)))
    }

    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = Body::Sized(body.into());
        self
    }

    pub fn json(self, body: &Value) -> Self {
        self.header("content-type", "application/json").body(body.to_string())
    }

    pub fn pieces(mut self, data: Vec<Vec<u8>>, trailers: &[(&str, &str)]) -> Self {
        let trailers =
            trailers.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        self.body = Body::Pieces { data, trailers };
        self
    }

    pub fn has(&self, name: &str) -> bool {
        self.headers.iter().any(|(have, _)| have.eq_ignore_ascii_case(name))
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = format!("{} {} HTTP/1.1\r\n", self.method, self.target).into_bytes();
        if !self.has("host") {
            out.extend_from_slice(b"host: gateway.test\r\n");
        }
        for (name, value) in &self.headers {
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b": ");
            out.extend_from_slice(value);
            out.extend_from_slice(b"\r\n");
        }
        match &self.body {
            Body::None => out.extend_from_slice(b"\r\n"),
            Body::Sized(body) => {
                if !self.has("content-length") {
                    out.extend_from_slice(format!("content-length: {}\r\n", body.len()).as_bytes());
                }
                out.extend_from_slice(b"\r\n");
                out.extend_from_slice(body);
            }
            Body::Pieces { data, trailers } => {
                out.extend_from_slice(b"transfer-encoding: chunked\r\n\r\n");
                for piece in data {
                    out.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
                    out.extend_from_slice(piece);
                    out.extend_from_slice(b"\r\n");
                }
                out.extend_from_slice(b"0\r\n");
                for (name, value) in trailers {
                    out.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
                }
                out.extend_from_slice(b"\r\n");
            }
        }
        out
    }
}

#[derive(Clone)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub trailers: Vec<(String, String)>,
}

impl Answer {
    /// The value of a header that may occur at most once.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(have, _)| have.eq_ignore_ascii_case(name));
        let first = values.next().map(|(_, value)| value.as_str());
        assert!(values.next().is_none(), "{name} comes twice: {self:?}");
        first
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    /// The string member `name` of a JSON body.
    pub fn member(&self, name: &str) -> String {
        match self.json().get(name) {
            Some(Value::String(text)) => text.clone(),
            _ => panic!("no string `{name}` in {self:?}"),
        }
    }

    /// The scheme and the parameters of `WWW-Authenticate`.
    pub fn challenge(&self) -> (String, Vec<(String, String)>) {
        let value =
            self.header("www-authenticate").unwrap_or_else(|| panic!("no challenge: {self:?}"));
        let (scheme, parameters) = value.split_once(' ').unwrap_or((value, ""));
        let parameter = |text: &str| {
            let (name, quoted) = text.split_once('=').unwrap_or_else(|| panic!("{value}"));
            let inner = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
            (name.into(), inner.unwrap_or_else(|| panic!("not quoted: {value}")).into())
        };
        (scheme.into(), parameters.split(", ").map(parameter).collect())
    }

    /// The status and the `error` of a refusal; `-` if the body has none.
    pub fn refusal(&self) -> (u16, String) {
        let error = serde_json::from_slice::<Value>(&self.body).ok();
        let error = error.as_ref().and_then(|body| body.get("error")).and_then(Value::as_str);
        (self.status, error.unwrap_or("-").into())
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.status)?;
        for (name, value) in self.headers.iter().chain(&self.trailers) {
            writeln!(f, "  {name}: {value}")?;
        }
        let text = self.text();
        write!(f, "  {}", text.chars().take(2000).collect::<String>())
    }
}

/// The time after which an answer counts as lost. No test proves that an answer is fast.
const PATIENCE: Duration = Duration::from_secs(60);

/// A connection that stays open for as many requests as the other side allows.
pub struct Connection {
    stream: TcpStream,
    unread: Vec<u8>,
}

impl Connection {
    pub fn open(address: SocketAddr) -> Self {
        Self::try_open(address).unwrap_or_else(|error| panic!("connecting to {address}: {error}"))
    }

    pub fn try_open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { stream, unread: Vec::new() })
    }

    pub fn send(&mut self, request: &Request) -> Answer {
        self.try_send(request).unwrap_or_else(|error| {
            panic!("{} {} got no answer: {error}", request.method, request.target)
        })
    }

    pub fn try_send(&mut self, request: &Request) -> io::Result<Answer> {
        self.write(&request.to_bytes())?;
        self.read_answer(&request.method)
    }

    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Ends the sending direction. The answer can still be read.
    pub fn finish(&mut self) -> io::Result<()> {
        self.stream.shutdown(std::net::Shutdown::Write)
    }

    /// Reads exactly `count` bytes after a `101 Switching Protocols`.
    pub fn read_raw(&mut self, count: usize) -> io::Result<Vec<u8>> {
        while self.unread.len() < count {
            self.fill()?;
        }
        Ok(self.unread.drain(..count).collect())
    }

    /// Reads the answer to a request with `method`, and skips any `100 Continue`.
    pub fn read_answer(&mut self, method: &str) -> io::Result<Answer> {
        loop {
            let answer = self.read_one_answer(method)?;
            if answer.status >= 200 || answer.status == 101 {
                return Ok(answer);
            }
        }
    }

    fn read_one_answer(&mut self, method: &str) -> io::Result<Answer> {
        let (head_length, mut answer) = loop {
            if let Some(parsed) = parse_head(&self.unread)? {
                break parsed;
            }
            self.fill()?;
        };
        self.unread.drain(..head_length);
        let bodiless =
            method == "HEAD" || answer.status < 200 || matches!(answer.status, 204 | 304);
        if bodiless {
            return Ok(answer);
        }
        if answer.header("transfer-encoding").is_some_and(|coding| coding.ends_with("chunked")) {
            self.read_chunks(&mut answer)?;
        } else if let Some(length) = answer.header("content-length") {
            let length = length.parse().map_err(|_| invalid("content-length"))?;
            answer.body = self.read_raw(length)?;
        } else {
            self.stream.read_to_end(&mut self.unread)?;
            answer.body = std::mem::take(&mut self.unread);
        }
        Ok(answer)
    }

    fn read_chunks(&mut self, answer: &mut Answer) -> io::Result<()> {
        loop {
            let line = self.read_line()?;
            let length = usize::from_str_radix(&line, 16).map_err(|_| invalid("chunk length"))?;
            if length == 0 {
                break;
            }
            answer.body.extend(self.read_raw(length)?);
            self.read_line()?;
        }
        loop {
            let line = self.read_line()?;
            match line.split_once(": ") {
                Some((name, value)) => answer.trailers.push((name.into(), value.into())),
                None => return Ok(()),
            }
        }
    }

    fn read_line(&mut self) -> io::Result<String> {
        loop {
            if let Some(end) = self.unread.windows(2).position(|pair| pair == b"\r\n") {
                let line = self.unread.drain(..end + 2).take(end).collect();
                return String::from_utf8(line).map_err(|_| invalid("line"));
            }
            self.fill()?;
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        let mut buffer = [0; 16 * 1024];
        match self.stream.read(&mut buffer)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            count => {
                self.unread.extend_from_slice(&buffer[..count]);
                Ok(())
            }
        }
    }
}

fn parse_head(bytes: &[u8]) -> io::Result<Option<(usize, Answer)>> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut head = httparse::Response::new(&mut headers);
    let parsed =
        head.parse(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    let httparse::Status::Complete(length) = parsed else { return Ok(None) };
    let headers = head
        .headers
        .iter()
        .map(|header| (header.name.into(), String::from_utf8_lossy(header.value).into_owned()))
        .collect();
    let status = head.code.ok_or_else(|| invalid("status"))?;
    Ok(Some((length, Answer { status, headers, body: Vec::new(), trailers: Vec::new() })))
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("malformed {what} in the answer"))
}

/// A form body. Parameters keep their order, and a name may occur twice.
#[derive(Clone, Debug, Default)]
pub struct Form(pub Vec<(String, String)>);

impl Form {
    /// Replaces the parameter, or adds it.
    pub fn set(mut self, name: &str, value: &str) -> Self {
        match self.0.iter_mut().find(|(have, _)| have == name) {
            Some((_, old)) => *old = value.into(),
            None => self.0.push((name.into(), value.into())),
        }
        self
    }

    pub fn add(mut self, name: &str, value: &str) -> Self {
        self.0.push((name.into(), value.into()));
        self
    }

    pub fn without(mut self, name: &str) -> Self {
        self.0.retain(|(have, _)| have != name);
        self
    }

    pub fn encode(&self) -> String {
        let pairs = self.0.iter();
        let pairs = pairs.map(|(name, value)| {
            format!("{}={}", urlencode(name.as_bytes()), urlencode(value.as_bytes()))
        });
        pairs.collect::<Vec<_>>().join("&")
    }
}

/// application/x-www-form-urlencoded, as the URL standard serializes it.
pub fn urlencode(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, &byte| {
        match byte {
            b' ' => out.push('+'),
            b'*' | b'-' | b'.' | b'_' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => {
                out.push(byte.into())
            }
            _ => write!(out, "%{byte:02X}").unwrap(),
        }
        out
    })
}
