//! The two documents before a gateway, as a stream sees them: the request to the gateway, the use
//! of its answer, and the stand-in when the gateway fails.

use std::time::Duration;

use impersonation_core::step::{CallFailure, Reply};
use impersonation_issuer::stream::{Flow, Stream};
use serde_json::{Value, json};

use super::setting::{ISSUER, PROVIDER_KEY, configured};
use crate::driver::{FakeStream, Gateway, Request, Sent};

const DISCOVERY: &str = "/oidc/.well-known/openid-configuration";

const KINDS: [(&str, &str); 2] = [("/oidc/jwks", "keys"), (DISCOVERY, "grant_types_supported")];

fn merging() -> Value {
    configured("/identity_gateway", json!({"documents": "merge", "cluster": "gateway"}))
}

fn gateway() -> Gateway {
    Gateway::new(&merging())
}

/// Makes the filter fetch the documents. The gateway answers every path with this one.
fn fetch(gateway: &Gateway, document: &[u8]) {
    for _ in KINDS {
        let body = document.to_vec();
        gateway.upstream(move |_| Reply::Http { status: 200, json: true, body: body.clone() });
    }
    gateway.tick();
}

fn asked(gateway: &Gateway, method: &'static str, path: &str) -> (Stream, FakeStream) {
    let headers =
        vec![("if-none-match", "\"a\"".to_owned()), ("accept-encoding", "gzip".to_owned())];
    let request = Request { method, path: path.to_owned(), headers, body: Vec::new() };
    let (mut stream, shown) = (gateway.stream(), request.shown());
    assert_eq!(stream.on_request_headers(&shown, true), Flow::Continue);
    (stream, shown)
}

/// The gateway's answer: status, content type, body.
type Theirs<'a> = (u16, &'a str, &'a [u8]);

fn document() -> Vec<u8> {
    json!({"keys": [PROVIDER_KEY.public_jwk()], "issuer": ISSUER}).to_string().into_bytes()
}

/// The filter's answer; `None` if the gateway's answer goes on as it is.
fn answered(
    gateway: &Gateway,
    method: &'static str,
    path: &str,
    (status, content_type, body): Theirs<'_>,
) -> Option<Sent> {
    let (mut stream, shown) = asked(gateway, method, path);
    let before = vec![
        (":status".to_owned(), status.to_string().into_bytes()),
        ("content-type".to_owned(), content_type.as_bytes().to_vec()),
        ("content-length".to_owned(), body.len().to_string().into_bytes()),
        ("etag".to_owned(), b"\"theirs\"".to_vec()),
        ("vary".to_owned(), b"origin".to_vec()),
    ];
    let flow = stream.read_response(&shown, before.clone(), body);
    assert!(!stream.on_end(&shown));
    if let Some(answer) = shown.answered.take() {
        assert_eq!(flow, Flow::Pause);
        return Some(answer);
    }
    assert_eq!(flow, Flow::Continue);
    let (headers, now) = (shown.response_headers.take(), shown.response_body.take());
    if headers == before && now == body {
        return None;
    }
    let status = header(&headers, ":status").unwrap().parse().unwrap();
    Some(Sent { status, headers, body: now })
}

fn header<'h>(headers: &'h [(String, Vec<u8>)], name: &str) -> Option<&'h str> {
    let found = headers.iter().find(|(known, _)| known == name);
    found.map(|(_, value)| str::from_utf8(value).unwrap())
}

/// Everything that is not 200 with JSON of the right kind.
fn failures() -> Vec<(&'static str, Theirs<'static>)> {
    vec![
        ("unavailable", (503, "text/plain", b"no healthy upstream")),
        ("unavailable, in JSON", (503, "application/json", b"{\"keys\": []}")),
        ("too many requests", (429, "application/json", b"{}")),
        ("not found", (404, "text/html", b"<html>")),
        ("no body", (200, "application/json", b"")),
        ("a page", (200, "text/html", b"{\"keys\": []}")),
        ("no JSON", (200, "application/json", b"{\"keys\": [")),
        ("another JSON", (200, "application/json", b"[]")),
        ("another kind", (200, "application/json", b"{\"keys\": 1, \"grant_types_supported\": 1}")),
    ]
}

#[test]
fn what_the_filter_has_fetched_stands_in_for_an_hour_at_every_worker() {
    for (path, member) in KINDS {
        for (case, theirs) in failures() {
            for method in ["GET", "HEAD"] {
                let first = gateway();
                let body = document();
                fetch(&first, &body);
                let good = (200, "application/json", &*body);
                let merged = answered(&first, "GET", path, good).unwrap().body;
                let second = Gateway::in_world(&first.world, &merging());
                first.world.advance(Duration::from_secs(3599));
                let Sent { status, headers, body } =
                    answered(&second, method, path, theirs).unwrap();
                assert_eq!((status, &body), (200, &merged), "{case}: {method} {path}: {member}");
                assert_eq!(header(&headers, "cache-control"), Some("max-age=60"), "{case}");
                assert_eq!(header(&headers, "vary"), None, "{case}: nothing of the failure");
                first.world.advance(Duration::from_secs(1));
                let late = answered(&second, "GET", path, theirs);
                assert_eq!(late, None, "{case}: {path}: after an hour");
            }
        }
    }
}

#[test]
fn a_document_is_fetched_once_a_minute_for_all_workers() {
    let first = gateway();
    let second = Gateway::in_world(&first.world, &merging());
    let body = document();
    for (after, fetches) in [(0, 2), (59, 2), (1, 4), (59, 4), (1, 6)] {
        first.world.advance(Duration::from_secs(after));
        for _ in KINDS {
            let body = body.clone();
            first.upstream(move |_| Reply::Http { status: 200, json: true, body: body.clone() });
        }
        first.tick();
        second.tick();
        assert_eq!(first.calls.borrow().len(), fetches, "after {after} s");
        first.forget_upstreams();
    }
    assert!(second.calls.borrow().is_empty());
}

#[test]
fn a_fetch_that_envoy_did_not_send_is_repeated_after_seconds() {
    let gateway = gateway();
    for _ in KINDS {
        gateway.upstream(|_| Reply::Failed(CallFailure::NotSent));
    }
    gateway.tick();
    gateway.world.advance(Duration::from_secs(4));
    gateway.tick();
    gateway.world.advance(Duration::from_secs(1));
    fetch(&gateway, &document());
    let failed = (503, "text/plain", b"x".as_slice());
    assert!(answered(&gateway, "GET", "/oidc/jwks", failed).is_some());
}
