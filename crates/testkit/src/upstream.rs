//! The server behind Envoy. It remembers every request just as it arrived and answers with what the
//! request's own headers ask for, so that a test can tell whether anything was changed on the way.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{HeaderMap, HeaderValue};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::RUNTIME;
use crate::http::Answer;
use crate::http2::pairs;

/// The response header that says which record belongs to an answer.
const RECORD: &str = "x-upstream-record";

/// A request as the upstream saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    pub version: String,
    pub method: String,
    pub target: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub trailers: Vec<(String, String)>,
}

#[derive(Clone)]
pub struct Upstream {
    pub address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
}

impl Upstream {
    pub fn start() -> Self {
        let received = Arc::new(Mutex::new(Vec::new()));
        let listener = RUNTIME.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let upstream = Self { address: listener.local_addr().unwrap(), received };
        let served = upstream.clone();
        RUNTIME.spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let upstream = served.clone();
                let service = hyper::service::service_fn(move |request| {
                    let upstream = upstream.clone();
                    async move { Ok::<_, Infallible>(upstream.answer(request).await) }
                });
                tokio::spawn(async move {
                    // Envoy may drop a connection at any time: not an event.
                    let _ = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new())
                        .serve_connection_with_upgrades(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        upstream
    }

    /// The request that this answer is the answer to; `None` if the upstream did not answer.
    pub fn received(&self, answer: &Answer) -> Option<Received> {
        let record: usize = answer.header(RECORD)?.parse().unwrap();
        Some(self.received.lock().unwrap()[record].clone())
    }

    fn record(&self, received: Received) -> usize {
        let mut all = self.received.lock().unwrap();
        all.push(received);
        all.len() - 1
    }

    async fn answer(
        &self,
        mut request: hyper::Request<Incoming>,
    ) -> hyper::Response<BoxBody<Bytes, Infallible>> {
        let upgrade = request.headers().get("upgrade").cloned();
        let upgraded = upgrade.as_ref().map(|_| hyper::upgrade::on(&mut request));
        let (head, body) = request.into_parts();
        let collected = match upgraded {
            Some(_) => None,
            // A client that gives up mid-body gets no answer, whatever is made of this.
            None => body.collect().await.ok(),
        };
        let trailers =
            collected.as_ref().and_then(|body| body.trailers().map(pairs)).unwrap_or_default();
        let body = collected.map(|body| body.to_bytes().to_vec()).unwrap_or_default();
        let record = self.record(Received {
            version: format!("{:?}", head.version),
            method: head.method.to_string(),
            target: head.uri.path_and_query().map(ToString::to_string).unwrap_or_default(),
            headers: pairs(&head.headers),
            body: body.clone(),
            trailers,
        });

        let response = hyper::Response::builder()
            .header(RECORD, record)
            .header("x-upstream", "yes")
            .header("set-cookie", "a=1")
            .header("set-cookie", HeaderValue::from_bytes(b"b=\xff\xfe").unwrap());
        if let Some((protocol, upgraded)) = upgrade.zip(upgraded) {
            tokio::spawn(echo(upgraded));
            return response
                .status(101)
                .header("connection", "upgrade")
                .header("upgrade", protocol)
                .body(http_body_util::Empty::new().boxed())
                .unwrap();
        }
        let asked = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
        let response = response.status(asked("x-answer-status").unwrap_or("200"));
        let body = match asked("x-answer-bytes") {
            Some(count) => pattern(count.parse().unwrap()),
            None => body,
        };
        if head.method == hyper::Method::HEAD {
            let length = response.header("content-length", body.len());
            return length.body(http_body_util::Empty::new().boxed()).unwrap();
        }
        if asked("x-answer-trailers").is_none() {
            return response.body(http_body_util::Full::new(Bytes::from(body)).boxed()).unwrap();
        }
        let mut trailers = HeaderMap::new();
        trailers.insert("x-upstream-trailer", HeaderValue::from_static("at the end"));
        let frames = [Frame::data(Bytes::from(body)), Frame::trailers(trailers)];
        response
            .header("trailer", "x-upstream-trailer")
            .body(StreamBody::new(futures_util::stream::iter(frames.map(Ok))).boxed())
            .unwrap()
    }
}

/// Bytes that differ from place to place, so that a lost, doubled or moved piece shows.
pub fn pattern(count: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(count as u64);
    (0..count).map(|_| random.u8(..)).collect()
}

async fn echo(upgraded: hyper::upgrade::OnUpgrade) {
    let Ok(upgraded) = upgraded.await else { return };
    let mut stream = TokioIo::new(upgraded);
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        if stream.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}
