//! A client for HTTP/2 without TLS. Only HTTP/2 has DATA without a length, and trailers on every
//! message.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, StreamBody, combinators::BoxBody};
use hyper::body::Frame;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper_util::rt::{TokioExecutor, TokioIo};

use crate::RUNTIME;
use crate::http::{Answer, Body, Request};

/// Sends one request over a connection of its own.
pub fn send(address: SocketAddr, request: &Request) -> Answer {
    RUNTIME.block_on(async {
        tokio::time::timeout(Duration::from_secs(60), exchange(address, request))
            .await
            .unwrap_or_else(|_| panic!("no answer over HTTP/2: {request:?}"))
    })
}

async fn exchange(address: SocketAddr, request: &Request) -> Answer {
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(connection);

    let mut message = hyper::Request::builder()
        .method(request.method.as_str())
        .uri(format!("http://gateway.test{}", request.target));
    for (name, value) in &request.headers {
        message = message.header(name, value.as_slice());
    }
    let message = message.body(frames(&request.body)).unwrap();
    let answer = sender.send_request(message).await.unwrap();
    let status = answer.status().as_u16();
    let headers = pairs(answer.headers());
    let body = answer.into_body().collect().await.unwrap();
    let trailers = body.trailers().map(pairs).unwrap_or_default();
    Answer { status, headers, body: body.to_bytes().to_vec(), trailers }
}

fn frames(body: &Body) -> BoxBody<Bytes, Infallible> {
    let (data, trailers): (&[Vec<u8>], &[(String, String)]) = match body {
        Body::None => (&[], &[]),
        Body::Sized(body) => (std::slice::from_ref(body), &[]),
        Body::Pieces { data, trailers } => (data, trailers),
    };
    if data.is_empty() && trailers.is_empty() {
        return http_body_util::Empty::new().boxed();
    }
    let mut frames: Vec<_> =
        data.iter().map(|piece| Frame::data(Bytes::from(piece.clone()))).collect();
    if !trailers.is_empty() {
        frames.push(Frame::trailers(header_map(trailers)));
    }
    StreamBody::new(futures_util::stream::iter(frames.into_iter().map(Ok))).boxed()
}

pub fn header_map(pairs: &[(String, String)]) -> HeaderMap {
    pairs
        .iter()
        .map(|(name, value)| {
            (name.parse::<HeaderName>().unwrap(), value.parse::<HeaderValue>().unwrap())
        })
        .collect()
}

pub fn pairs(headers: &HeaderMap) -> Vec<(String, String)> {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect()
}
