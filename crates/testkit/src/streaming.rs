//! A server whose answers never end, and a client that keeps several of them open on one
//! connection.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::combinators::{BoxBody, UnsyncBoxBody};
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::Request;
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};

use crate::RUNTIME;

/// The period at which each answer sends its next part.
const PERIOD: Duration = Duration::from_millis(20);

/// Requests below this path are never answered.
pub const SILENT: &str = "/silent";

/// Answers every request with an event every few milliseconds, over HTTP/1.1 and HTTP/2, until the
/// client stops reading.
pub fn start() -> SocketAddr {
    let listener = RUNTIME.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    RUNTIME.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let service = hyper::service::service_fn(answer);
                let server = auto::Builder::new(TokioExecutor::new());
                // Envoy may drop a connection at any time: not an event.
                let _ = server.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    address
}

async fn answer(
    request: Request<Incoming>,
) -> Result<hyper::Response<UnsyncBoxBody<Bytes, Infallible>>, Infallible> {
    if request.uri().path().starts_with(SILENT) {
        return std::future::pending().await;
    }
    let content_type = request.headers().get("content-type").cloned();
    let content_type = content_type.unwrap_or_else(|| "text/event-stream".parse().unwrap());
    let events = stream::unfold(0_u64, |count| async move {
        tokio::time::sleep(PERIOD).await;
        Some((Ok(Frame::data(Bytes::from(format!("data: {count}\n\n")))), count + 1))
    });
    let response = hyper::Response::builder().header("content-type", content_type);
    Ok(response.body(StreamBody::new(events).boxed_unsync()).unwrap())
}

/// One connection over HTTP/2.
pub struct Http2(SendRequest<BoxBody<Bytes, Infallible>>);

impl Http2 {
    pub fn connect(address: SocketAddr) -> Self {
        RUNTIME.block_on(async {
            let stream = TcpStream::connect(address).await.unwrap();
            let (sender, connection) =
                hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                    .await
                    .unwrap();
            tokio::spawn(connection);
            Self(sender)
        })
    }

    /// Sends a request, and returns when its answer has begun.
    pub fn open(&mut self, request: &crate::http::Request) -> Open {
        let mut message = Request::builder()
            .method(request.method.as_str())
            .uri(format!("http://gateway.test{}", request.target));
        for (name, value) in &request.headers {
            message = message.header(name, value.as_slice());
        }
        let message = message.body(Empty::new().boxed()).unwrap();
        let answer = RUNTIME.block_on(self.0.send_request(message)).unwrap();
        Open { status: answer.status().as_u16(), body: answer.into_body() }
    }
}

/// An answer that has not ended.
pub struct Open {
    pub status: u16,
    body: Incoming,
}

impl Open {
    /// Returns the next piece; `None` if the stream has ended or was reset.
    pub fn more(&mut self) -> Option<Bytes> {
        RUNTIME.block_on(async { self.body.frame().await?.ok()?.into_data().ok() })
    }
}
