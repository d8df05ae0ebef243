//! Envoy turns an answer to a gRPC request into a gRPC one with status 200. The filter does not
//! speak gRPC, and a caller who reads only the status must not take a refusal for a token.

use std::net::SocketAddr;

use testkit::configuration::CLIENT_SECRET;
use testkit::gateway::{BEARER, Gateway, exchange_form, mint_request};
use testkit::http::{Answer, Connection, Request};
use testkit::{Findings, http2};

/// Content types that Envoy takes for gRPC, and similar ones.
const TYPES: [&str; 7] = [
    "application/grpc",
    "application/grpc+proto",
    "application/grpc+json",
    "application/grpc;charset=utf-8",
    "application/grpc-web",
    "application/grpc-web+proto",
    "Application/GRPC",
];

#[test]
fn an_answer_keeps_its_status_when_the_request_says_that_it_is_grpc() {
    let gateway = Gateway::shared();
    let body = r#"{"userId":"u-1"}"#;
    let mint = || Request::post("/api/subject-tokens").body(body);
    let no_body = |method: &str, path: &str| Request::new(method, path);
    #[rustfmt::skip]
    let cases = [
        ("a mint",                        mint().bearer(&BEARER),                              415),
        ("a mint without a body",         no_body("POST", "/api/subject-tokens").bearer(&BEARER), 415),
        ("a mint with trailers",          mint().bearer(&BEARER).pieces(vec![body.into()], &[("x-last", "1")]), 415),
        ("a mint without a bearer",       mint(),                                              401),
        ("a mint with a bad bearer",      mint().bearer("x.y.z"),                              401),
        ("a mint with too long a body",   mint().bearer(&BEARER).body(vec![b'a'; 100_000]),    415),
        ("another method",                no_body("PUT", "/api/subject-tokens").body(body),    405),
        ("another method without a body", no_body("GET", "/api/subject-tokens"),               405),
        // Envoy would send the document as a header: half an answer would be worse than none.
        ("the key set",                   no_body("GET", "/oidc/jwks"),                        415),
        ("discovery",                     no_body("GET", "/oidc/.well-known/openid-configuration"), 415),
    ];
    let mut findings = Findings::default();
    for r#type in TYPES {
        for (case, request, status) in cases.clone() {
            // Requests that Envoy does not take for gRPC are answered as usual.
            let grpc = r#type == "application/grpc" || r#type.starts_with("application/grpc+");
            let status = if request.target.starts_with("/oidc") && !grpc { 200 } else { status };
            for te in [false, true] {
                let request = request.clone().header("content-type", r#type);
                let request = if te { request.header("te", "trailers") } else { request };
                for (protocol, answer) in both(gateway, &request) {
                    let case = format!("{case}, {type}, {protocol}, te: {te}");
                    findings.expect(&case, &answer.status, &status);
                    findings.expect(&case, &answer.header("grpc-status"), &None);
                    findings.expect(&case, &answer.header("grpc-message"), &None);
                    if status == 401 {
                        findings.expect(&case, &answer.challenge().0.as_str(), &"Bearer");
                    }
                }
            }
        }
    }
}

/// The request is not a form, so it is not an exchange.
#[test]
fn an_exchange_that_says_it_is_grpc_goes_on_to_the_gateway() {
    let gateway = Gateway::shared();
    let token = gateway.mint("u-1");
    let form = exchange_form(&token).without("client_id").encode();
    for r#type in ["application/grpc", "application/grpc+proto"] {
        let request = Request::post("/oidc/token").header("content-type", r#type);
        let request = request.basic("support-portal", &CLIENT_SECRET).body(form.as_str());
        for (protocol, answer) in both(gateway, &request) {
            assert!(gateway.passed_on(&answer), "{type}, {protocol}: {answer:?}");
        }
    }
    gateway.assert_spendable(&token, "after gRPC");
}

/// The next request on the connection is answered as usual.
#[test]
fn a_connection_serves_further_requests_after_grpc() {
    let gateway = Gateway::shared();
    let mut connection = gateway.connect();
    let refused = Request::post("/api/subject-tokens").header("content-type", "application/grpc");
    assert_eq!(connection.send(&refused.bearer(&BEARER).body("x")).status, 415);
    assert_eq!(connection.send(&mint_request("u-1")).status, 201);
}

fn both(gateway: &Gateway, request: &Request) -> [(&'static str, Answer); 2] {
    let address: SocketAddr = gateway.address();
    [
        ("HTTP/1.1", Connection::open(address).send(request)),
        ("HTTP/2", http2::send(address, request)),
    ]
}
