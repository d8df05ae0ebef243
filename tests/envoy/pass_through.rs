//! Requests that the filter does not handle pass unchanged. "Unchanged" means: the same as on a
//! listener of the same Envoy without the filter.

use std::net::SocketAddr;

use serde_json::json;

use testkit::configuration::{CLIENT_SECRET, Configuration};
use testkit::gateway::{
    EXCHANGE_GRANT, Gateway, Options, exchange_form, exchange_request, mint_request,
    raw_exchange_request,
};
use testkit::http::{Answer, Connection, Form, Request};
use testkit::server::{Received, pattern};
use testkit::{Findings, http2};

/// Sends a request over HTTP/1.1 or HTTP/2.
type Send = fn(SocketAddr, &Request) -> Answer;

const PROTOCOLS: [(&str, Send); 2] = [
    ("HTTP/1.1", |address, request| Connection::open(address).send(request)),
    ("HTTP/2", http2::send),
];

/// Sends the request with the filter and without, and compares what the upstream and the caller
/// saw.
pub(crate) fn compare(findings: &mut Findings, gateway: &Gateway, case: &str, request: &Request) {
    for (protocol, send) in PROTOCOLS {
        let case = format!("{case}, {protocol}");
        let [filtered, bare] = [gateway.address(), gateway.envoy.address("bare")].map(|address| {
            let answer = send(address, request);
            (gateway.upstream.received_for(&answer).map(lasting), lasting_answer(answer))
        });
        if filtered.0.is_none() {
            findings.add(format!("{case}: never reached the upstream: {:?}", filtered.1));
        } else if filtered != bare {
            let shorten = |text: String| text.chars().take(3000).collect::<String>();
            findings.add(format!(
                "{case}: with the filter {}\nwithout {}",
                shorten(format!("{filtered:?}")),
                shorten(format!("{bare:?}"))
            ));
        }
    }
}

type Message = (String, String, String, Vec<(String, Vec<u8>)>, Vec<u8>, Vec<(String, String)>);

/// Removes the fields that differ from one request to the next anyway.
fn lasting(received: Received) -> Message {
    let Received { version, method, target, mut headers, body, trailers, .. } = received;
    headers.retain(|(name, _)| name != "x-request-id");
    (version, method, target, headers, body, trailers)
}

type Outcome = (u16, Vec<(String, String)>, Vec<u8>, Vec<(String, String)>);

fn lasting_answer(mut answer: Answer) -> Outcome {
    let fleeting = ["date", "x-envoy-upstream-service-time", "x-upstream-record"];
    answer.headers.retain(|(name, _)| !fleeting.contains(&name.as_str()));
    (answer.status, answer.headers, answer.body, answer.trailers)
}

/// Requests to the token endpoint, and to paths like it, that are not the filter's.
pub(crate) fn requests_of_others() -> impl Iterator<Item = (&'static str, Request)> {
    let form = |grant: &str| Form::default().set("grant_type", grant).set("code", "a b&c").encode();
    let typed = |content_type: &str, body: &[u8]| {
        Request::post("/oidc/token").header("content-type", content_type).body(body)
    };
    let mixed = b"--x\r\ncontent-disposition: form-data; name=\"grant_type\"\r\n\r\nclient_credentials\r\n--x--";
    #[rustfmt::skip]
    let requests = [
        ("authorization code",       raw_exchange_request(&form("authorization_code"))),
        ("refresh token",            raw_exchange_request(&form("refresh_token"))),
        ("client credentials, Basic", raw_exchange_request(&form("client_credentials")).basic("support-portal", &CLIENT_SECRET)),
        ("a wrong Basic",            raw_exchange_request(&form("client_credentials")).basic("nobody", "x")),
        ("a grant that starts alike", raw_exchange_request(&form(&format!("{EXCHANGE_GRANT}2")))),
        ("a grant in capitals",      raw_exchange_request(&form(&EXCHANGE_GRANT.to_uppercase()))),
        ("no grant",                 raw_exchange_request("scope=a")),
        ("an empty grant",           raw_exchange_request("grant_type=")),
        ("another grant, malformed", raw_exchange_request("grant_type=password&password=%zz%")),
        ("another grant, not UTF-8", raw_exchange_request("grant_type=password&password=%ff%fe")),
        ("an empty form",            raw_exchange_request("")),
        ("spaces and cases",         raw_exchange_request("grant_type=authorization%5Fcode&a=+%20&A=%7e~")),
        ("JSON",                     typed("application/json", json!({"grant_type": EXCHANGE_GRANT}).to_string().as_bytes())),
        ("multipart",                typed("multipart/form-data; boundary=x", mixed)),
        ("an exchange as plain text", typed("text/plain", exchange_form("sub_AAAA").encode().as_bytes())),
        ("bytes",                    typed("application/octet-stream", &pattern(5000))),
        ("no content type",          Request::post("/oidc/token").body(form("password"))),
        ("no body",                  Request::post("/oidc/token")),
        ("GET",                      Request::get("/oidc/token?grant_type=a")),
        ("OPTIONS",                  Request::new("OPTIONS", "/oidc/token").header("origin", "https://a.example")),
        ("a path with a slash more", Request::post("/oidc/token/").header("content-type", "application/x-www-form-urlencoded").body(exchange_form("sub_AAAA").encode())),
        ("introspection",            Request::post("/oidc/token/introspection").header("content-type", "application/x-www-form-urlencoded").body("token=opaque")),
    ];
    requests.into_iter()
}

#[test]
fn other_requests_to_the_token_endpoint_reach_the_identity_gateway_unchanged() {
    let mut findings = Findings::default();
    for (case, request) in requests_of_others() {
        compare(&mut findings, Gateway::shared(), case, &request);
    }
}

#[test]
fn requests_to_other_paths_are_unchanged() {
    let gateway = Gateway::shared();
    #[rustfmt::skip]
    let cases = [
        ("GET",                      Request::get("/orders?a=b&c=%20d")),
        ("HEAD",                     Request::new("HEAD", "/orders").header("x-answer-bytes", "1000")),
        ("PUT",                      Request::new("PUT", "/orders/1").body("x")),
        ("PATCH",                    Request::new("PATCH", "/orders/1").body("x")),
        ("DELETE",                   Request::new("DELETE", "/orders/1")),
        ("a form elsewhere",         Request::post("/orders").header("content-type", "application/x-www-form-urlencoded").body(exchange_form("sub_AAAA").encode())),
        ("an odd path",              Request::get("/a/../b//c/./%2e%2E/;d=e?f=/oidc/token")),
        ("headers of odd bytes",     Request::get("/x").header("x-latin", b"caf\xe9 \x80\xff").header("x-tab", "a\tb")),
        ("an empty header",          Request::get("/x").header("x-empty", "")),
        ("a header twice",           Request::get("/x").header("x-twice", "1").header("x-twice", "2").header("cookie", "a=1; b=2")),
        ("a bearer of its own",      Request::get("/x").bearer("whatever")),
        ("an error from upstream",   Request::get("/x").header("x-answer-status", "503").header("x-answer-bytes", "10")),
        ("no content",               Request::get("/x").header("x-answer-status", "204")),
        ("not modified",             Request::get("/x").header("x-answer-status", "304")),
        ("an empty answer",          Request::get("/x").header("x-answer-bytes", "0")),
        ("a large answer",           Request::get("/x").header("x-answer-bytes", "3000000")),
        ("trailers in the answer",   Request::post("/x").header("te", "trailers").header("x-answer-trailers", "1").body("abc")),
        ("a large body",             Request::post("/x").body(pattern(3_000_000))),
        ("pieces",                   Request::post("/x").pieces(vec![b"a".to_vec(), pattern(70_000), b"b".to_vec()], &[])),
        ("pieces and trailers",      Request::post("/x").pieces(vec![pattern(10), pattern(200_000)], &[("x-last", "1"), ("x-later", "2")])),
    ];
    let mut findings = Findings::default();
    for (case, request) in cases {
        compare(&mut findings, gateway, case, &request);
    }
}

#[test]
fn bodies_of_other_kinds_pass_the_token_endpoint_at_any_size() {
    let gateway = Gateway::shared();
    let request = Request::post("/oidc/token").header("content-type", "application/octet-stream");
    let pieces = || vec![pattern(1), pattern(1_000_000), pattern(2_000_000)];
    let form = Form::default().set("grant_type", "password").set("password", "&=%+ü");
    let form_pieces = form.encode().into_bytes().chunks(5).map(Into::into).collect::<Vec<_>>();
    #[rustfmt::skip]
    let cases = [
        ("3 MB",                      request.clone().body(pattern(3_000_000))),
        ("3 MB in pieces",            request.clone().pieces(pieces(), &[])),
        ("3 MB and trailers",         request.clone().pieces(pieces(), &[("x-last", "1")])),
        ("3 MB and back",             request.clone().header("x-answer-trailers", "1").header("te", "trailers").pieces(pieces(), &[])),
        ("trailers alone",            request.clone().pieces(vec![], &[("x-last", "1")])),
        ("a form in pieces",          raw_exchange_request("").pieces(form_pieces.clone(), &[])),
        ("a form and trailers",       raw_exchange_request("").pieces(form_pieces, &[("x-last", "1")])),
        ("a form of trailers alone",  raw_exchange_request("").pieces(vec![], &[("x-last", "1")])),
        ("a form of 60 KiB",          raw_exchange_request(&form.set("more", &"x".repeat(60_000)).encode())),
    ];
    let mut findings = Findings::default();
    for (case, request) in cases {
        compare(&mut findings, gateway, case, &request);
    }
}

#[test]
fn foreign_subject_tokens_pass_if_configured() {
    let configuration = Configuration::default().with("/foreign_subject_tokens", "pass_through");
    let gateway = Gateway::start(&configuration);
    let mut findings = Findings::default();
    for (case, token) in [
        ("opaque", "0123456789abcdef"),
        ("a JWT", "eyJhbGciOiJub25lIn0.e30."),
        ("odd", "tok_a b&c=ü"),
    ] {
        compare(&mut findings, &gateway, case, &exchange_request(&exchange_form(token)));
        let by_stranger = exchange_request(&exchange_form(token).set("client_id", "nobody"));
        compare(
            &mut findings,
            &gateway,
            &format!("{case}, a client of the gateway's"),
            &by_stranger,
        );
        let otherwise = exchange_form(token)
            .without("resource")
            .set("audience", "a")
            .set("subject_token_type", "urn:ietf:params:oauth:token-type:id_token");
        compare(
            &mut findings,
            &gateway,
            &format!("{case}, parameters of its own"),
            &exchange_request(&otherwise),
        );
    }
    // Our own subject tokens are still ours, even unknown ones.
    let answer = gateway.exchange(&exchange_form("sub_AAAA"));
    assert_eq!(answer.refusal(), (400, "invalid_request".into()));
    assert!(!gateway.passed_on(&answer));
    gateway.assert_serves("beside foreign tokens");
}

#[test]
fn an_upgraded_connection_passes_bytes_both_ways() {
    let gateway = Gateway::shared();
    for path in ["/socket", "/oidc/token"] {
        let mut connection = gateway.connect();
        let upgrade = Request::get(path)
            .header("connection", "upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
        let answer = connection.send(&upgrade);
        assert_eq!(answer.status, 101, "{path}: {answer:?}");
        for message in [pattern(10), pattern(100_000)] {
            connection.write(&message).unwrap();
            assert_eq!(connection.read_raw(message.len()).unwrap(), message, "{path}");
        }
    }
}

#[test]
fn a_client_that_expects_100_continue_gets_it() {
    let gateway = Gateway::shared();
    let body = exchange_form(&gateway.mint("u-1")).encode();
    let head = format!(
        "POST /oidc/token HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: {}\r\n\
         content-type: application/x-www-form-urlencoded\r\n\r\n",
        body.len()
    );
    let mut connection = gateway.connect();
    connection.write(head.as_bytes()).unwrap();
    assert_eq!(connection.read_raw(25).unwrap(), b"HTTP/1.1 100 Continue\r\n\r\n");
    connection.write(body.as_bytes()).unwrap();
    assert_eq!(connection.read_answer("POST").unwrap().status, 200);
}

/// The filter is disabled as on routes of envoy.yaml that do not need it.
#[test]
fn a_disabled_filter_lets_even_its_own_requests_pass() {
    let options = Options { disabled: true, ..Options::default() };
    let gateway = Gateway::try_start(&Configuration::default(), &options).unwrap();
    let exchange = exchange_request(&exchange_form(&gateway.mint("u-1")));
    for request in [mint_request("u-1"), exchange, Request::get("/oidc/jwks")] {
        let answer = Connection::open(gateway.envoy.address("disabled")).send(&request);
        assert!(gateway.passed_on(&answer), "{request:?}: {answer:?}");
    }
}

/// A subject token may follow after 64 KiB of padding, which the filter does not read.
#[test]
fn a_form_that_is_too_long_to_be_read_is_not_passed_on() {
    let gateway = Gateway::shared();
    let token = gateway.mint("u-1");
    let grant = "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Atoken-exchange";
    for rest in [format!("{grant}&subject_token={token}"), "grant_type=password".to_owned()] {
        let body = format!("padding={}&{rest}", "x".repeat(64 * 1024));
        for request in [
            raw_exchange_request(&body),
            raw_exchange_request(&body)
                .pieces(body.as_bytes().chunks(10_000).map(Into::into).collect(), &[]),
        ] {
            let answer = gateway.send(&request);
            assert_eq!(answer.refusal(), (413, "invalid_request".into()), "{answer:?}");
            assert!(!gateway.passed_on(&answer));
        }
    }
    gateway.assert_spendable(&token, "after it was padded");
}
