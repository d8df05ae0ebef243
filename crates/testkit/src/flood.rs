//! Requests over HTTP/2 that no client should send: many at once, reset in the middle of a body, in
//! very small pieces, with trailers, or abandoned with the whole connection.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use h2::Reason;
use h2::client::SendRequest;
use tokio::net::TcpStream;
use tokio::runtime;
use tokio::time::timeout;

use crate::http::{Body, Request};
use crate::http2::header_map;

/// A way to send a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    Whole,
    /// The body in pieces of a few bytes, between pieces of other requests.
    InPieces,
    WithTrailers,
    /// A reset after half of the body.
    Reset,
    /// A reset after the headers.
    ResetAtOnce,
    /// Half of the body, and then nothing until the connection ends.
    Abandoned,
}

impl Fate {
    /// Returns true if the request must get an answer, unless the connection ends.
    const fn is_complete(self) -> bool {
        matches!(self, Self::Whole | Self::InPieces | Self::WithTrailers)
    }
}

/// The number of answers by status; `None` counts requests without an answer.
pub type Outcomes = BTreeMap<(Fate, Option<u16>), usize>;

/// The number of streams that are open at once on one connection.
const AT_ONCE: usize = 50;
/// The number of requests after which a connection is dropped with all its open streams.
const A_CONNECTION: usize = 400;
/// The time after which an answer counts as lost.
const PATIENCE: Duration = Duration::from_secs(60);

/// Sends all requests, over one connection after the other.
pub fn flood(address: SocketAddr, shots: impl Iterator<Item = (Request, Fate)>) -> Outcomes {
    let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut shots = shots.peekable();
        let mut outcomes = Outcomes::new();
        while shots.peek().is_some() {
            let stream = TcpStream::connect(address).await.unwrap();
            let (sender, connection) = h2::client::handshake(stream).await.unwrap();
            let connection = tokio::spawn(connection);
            let mut open = FuturesUnordered::new();
            let mut sent = 0;
            let mut note = |(fate, status): (Fate, Option<u16>)| {
                *outcomes.entry((fate, status)).or_default() += 1;
                // Envoy ends the connection after the worst requests.
                status.is_none() && fate.is_complete()
            };
            let mut ended = false;
            while sent < A_CONNECTION && !ended {
                let Some((request, fate)) = shots.next() else { break };
                sent += 1;
                if open.len() == AT_ONCE {
                    ended = open.next().await.is_some_and(&mut note);
                }
                let sender = sender.clone();
                open.push(async move { (fate, fire(sender, &request, fate).await) });
            }
            while let Some(outcome) = open.next().await {
                note(outcome);
            }
            connection.abort();
        }
        outcomes
    })
}

/// Returns the status; `None` if Envoy ended the connection, or if the test awaits no answer.
async fn fire(sender: SendRequest<Bytes>, request: &Request, fate: Fate) -> Option<u16> {
    let mut message = hyper::Request::builder()
        .method(request.method.as_str())
        .uri(format!("http://gateway.test{}", request.target));
    for (name, value) in &request.headers {
        message = message.header(name, value.as_slice());
    }
    // The library cannot express some requests. The client for HTTP/1.1 sends those.
    let message = message.body(()).ok()?;
    let body = match &request.body {
        Body::None => Vec::new(),
        Body::Sized(body) => body.clone(),
        Body::Pieces { data, .. } => data.concat(),
    };
    let half = body.len() / 2;
    let mut sender = sender.ready().await.ok()?;
    let (response, mut stream) = sender.send_request(message, false).ok()?;
    let sent = match fate {
        Fate::Whole => stream.send_data(body.into(), true),
        Fate::InPieces => {
            for piece in body.chunks(body.len() / 50 + 1) {
                let _ = stream.send_data(Bytes::copy_from_slice(piece), false);
                tokio::task::yield_now().await;
            }
            stream.send_data(Bytes::new(), true)
        }
        Fate::WithTrailers => {
            let _ = stream.send_data(body.into(), false);
            stream.send_trailers(header_map(&[("x-last".into(), "1".into())]))
        }
        Fate::Reset | Fate::ResetAtOnce => {
            if fate == Fate::Reset {
                let _ = stream.send_data(Bytes::copy_from_slice(&body[..half]), false);
                tokio::task::yield_now().await;
            }
            stream.send_reset(Reason::CANCEL);
            return None;
        }
        Fate::Abandoned => {
            let _ = stream.send_data(Bytes::copy_from_slice(&body[..half]), false);
            tokio::task::yield_now().await;
            // Envoy refuses the request before the rest arrives, or never.
            let early = timeout(Duration::from_millis(1), response).await.ok()?;
            return Some(early.ok()?.status().as_u16());
        }
    };
    sent.ok()?;
    let answer = timeout(PATIENCE, response).await.expect("an answer").ok()?;
    let status = answer.status().as_u16();
    let mut body = answer.into_body();
    while let Some(Ok(data)) = body.data().await {
        let _ = body.flow_control().release_capacity(data.len());
    }
    Some(status)
}
