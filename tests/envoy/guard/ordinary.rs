//! Ordinary users: the guard changes nothing in their requests and responses. "Unchanged" means:
//! the same as on a listener of the same Envoy without the guard.

use std::net::SocketAddr;

use serde_json::json;

use testkit::guarded::{ACTOR_HEADER, Guarded, ID_HEADER, claims_with, ordinary_token, token};
use testkit::http::{Answer, Connection, Request};
use testkit::server::{Received, pattern};
use testkit::{Findings, http2, wait_for};

/// The request at the API: version, method, target, headers, body, trailers.
type Message = (String, String, String, Vec<(String, Vec<u8>)>, Vec<u8>, Vec<(String, String)>);

/// The answer at the caller.
type Outcome = (u16, Vec<(String, String)>, Vec<u8>, Vec<(String, String)>);

/// Removes the fields that differ from one request to the next anyway.
fn lasting(received: Received) -> Message {
    let Received { version, method, target, mut headers, body, trailers, .. } = received;
    headers.retain(|(name, _)| name != "x-request-id");
    (version, method, target, headers, body, trailers)
}

fn lasting_answer(mut answer: Answer) -> Outcome {
    let fleeting = ["date", "x-envoy-upstream-service-time", "x-upstream-record"];
    answer.headers.retain(|(name, _)| !fleeting.contains(&name.as_str()));
    (answer.status, answer.headers, answer.body, answer.trailers)
}

fn compare(findings: &mut Findings, guarded: &Guarded, request: &Request) {
    type Send = fn(SocketAddr, &Request) -> Answer;
    let protocols: [Send; 2] =
        [|address, request| Connection::open(address).send(request), http2::send];
    for send in protocols {
        let [with, without] = ["guarded", "bare"].map(|listener| {
            let answer = send(guarded.envoy.address(listener), request);
            (guarded.api.received_for(&answer).map(lasting), lasting_answer(answer))
        });
        if with.0.is_none() {
            findings.add(format!("never reached the API: {request:?}: {:?}", with.1));
        }
        findings.expect(format!("{} {}", request.method, request.target), &with, &without);
    }
}

/// Makes a random request, which also chooses its answer.
fn any_request(random: &mut fastrand::Rng, token: &str) -> Request {
    let methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"];
    let pieces = [
        "orders",
        "a%2Fb",
        "..",
        ".",
        "",
        ";a=b",
        "%2e%2e",
        "caf%C3%A9",
        "a+b",
        "Account",
        "password",
        "~x",
    ];
    let segments: Vec<_> =
        (0..random.usize(1..6)).map(|_| random.choice(pieces).unwrap()).collect();
    let mut target = format!("/{}", segments.join("/"));
    if random.bool() {
        target += random.choice(["?", "?a=b", "?_method=DELETE", "?a=%zz&b", "?x=/../"]).unwrap();
    }
    let mut request = Request::new(random.choice(methods).unwrap(), &target).bearer(token);
    let headers: [(&str, &[u8]); 12] = [
        ("x-http-method-override", b"DELETE"),
        ("x-original-url", b"/account"),
        ("x-latin", b"caf\xe9 \x80"),
        ("x-empty", b""),
        ("x-twice", b"1"),
        ("x-twice", b"2"),
        ("cookie", b"a=1; b=2"),
        ("content-type", b"application/grpc"),
        ("accept", b"text/event-stream"),
        (ID_HEADER, b"forged"),
        (ACTOR_HEADER, b"forged"),
        ("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    ];
    for (name, value) in headers {
        if random.u8(..4) == 0 {
            request = request.header(name, value);
        }
    }
    if random.bool() {
        let status = random.choice(["200", "204", "304", "404", "503"]).unwrap();
        request = request.header("x-answer-status", status);
    }
    if random.bool() {
        request = request.header("x-answer-bytes", random.usize(0..200_000).to_string());
    }
    match random.u8(..4) {
        0 => request.body(pattern(random.usize(0..200_000))),
        1 => {
            let pieces =
                (0..random.usize(1..5)).map(|_| pattern(random.usize(1..50_000))).collect();
            request.pieces(pieces, &[("x-last", "1")])
        }
        _ => request,
    }
}

/// Checks the access log, which has this many lines: the guard leaves its decision there.
fn assert_none_entered_the_guard(guarded: &Guarded, requests: usize) {
    let lines = wait_for("the access log", || {
        Some(guarded.envoy.access_log()).filter(|lines| lines.len() == requests)
    });
    let entered: Vec<_> = lines.iter().filter(|line| !line["guard"].is_null()).collect();
    assert!(entered.is_empty(), "{entered:?}");
}

#[test]
fn an_ordinary_users_requests_and_responses_are_unchanged() {
    let guarded = Guarded::lent(
        &json!({"default": "deny", "rules": [{"path_prefix": "/", "action": "deny"}]}),
    );
    let token = ordinary_token();
    // Each run uses another seed; GUARD_SEED repeats one.
    let seed = std::env::var("GUARD_SEED")
        .map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    println!("GUARD_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut findings = Findings::default();
    for _ in 0..150 {
        compare(&mut findings, &guarded, &any_request(&mut random, &token));
    }
    // By two protocols, with and without the guard.
    assert_none_entered_the_guard(&guarded, 4 * 150);
}

#[test]
fn an_ordinary_users_upgrade_passes() {
    let guarded = Guarded::lent(&json!({"default": "deny"}));
    let request = Request::get("/live")
        .bearer(&ordinary_token())
        .header("connection", "Upgrade")
        .header("upgrade", "websocket");
    let mut connection = guarded.envoy.connect();
    assert_eq!(connection.send(&request).status, 101);
    connection.write(b"ping").unwrap();
    assert_eq!(connection.read_raw(4).unwrap(), b"ping");
}

#[test]
fn a_caller_without_a_token_gets_the_answer_of_jwt_authn() {
    let guarded = Guarded::lent(&json!({}));
    for request in [Request::get("/orders"), Request::get("/orders").bearer("a.b.c")] {
        let [with, without] = ["guarded", "bare"].map(|listener| {
            lasting_answer(Connection::open(guarded.envoy.address(listener)).send(&request))
        });
        assert_eq!(with.0, 401);
        assert_eq!(with, without);
    }
}

/// A token with an `act` and without `txn` is not one of this filter: see `docs/guard.md`.
#[test]
fn the_guard_ignores_a_token_without_txn() {
    let guarded = Guarded::lent(&json!({"default": "deny"}));
    for token in [ordinary_token(), token(&claims_with(&json!({"txn": null})))] {
        let answer = guarded.send_as(&token, Request::post("/orders").body("x"));
        assert_eq!(answer.status, 200);
    }
    assert_none_entered_the_guard(&guarded, 2);
}
