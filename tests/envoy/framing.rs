//! Requests to the filter's own endpoints in every framing of HTTP: lengths, pieces, trailers, two
//! fields of one name, and HTTP/2.

use serde_json::json;

use testkit::gateway::{
    BEARER, Gateway, exchange_form, mint_body_request, mint_request, raw_exchange_request,
};
use testkit::http::Request;
use testkit::{Findings, http2};

const MINT: &str = "/api/subject-tokens";

#[test]
fn an_answer_says_its_length() {
    let gateway = Gateway::shared();
    let request = mint_body_request(&json!({"userId": "u-1", "context": {"ticketId": "T-1"}}));
    for answer in [gateway.send(&request), http2::send(gateway.address(), &request)] {
        assert_eq!(answer.status, 201, "{answer:?}");
        assert_eq!(answer.header("content-length"), Some(answer.body.len().to_string().as_str()));
    }
}

#[test]
fn a_mint_refuses_a_body_of_more_than_64_kib() {
    let gateway = Gateway::shared();
    let body = |length: usize| {
        let start = r#"{"userId":"u-1""#;
        format!("{start}{}}}", " ".repeat(length - start.len() - 1))
    };
    let request = Request::post(MINT).bearer(&BEARER).header("content-type", "application/json");
    let chunked = |body: String| {
        request.clone().pieces(body.into_bytes().chunks(10_000).map(Into::into).collect(), &[])
    };
    let mut findings = Findings::default();
    for (case, request, expected) in [
        ("as much as may be", request.clone().body(body(65_536)), (201, "-")),
        ("one byte more", request.clone().body(body(65_537)), (413, "invalid_request")),
        ("far too much", request.clone().body(body(900_000)), (413, "invalid_request")),
        ("as much as may be, chunked", chunked(body(65_536)), (201, "-")),
        ("one byte more, chunked", chunked(body(65_537)), (413, "invalid_request")),
    ] {
        let expected = (expected.0, expected.1.to_owned());
        findings.expect(case, &gateway.send(&request).refusal(), &expected);
        findings.expect(case, &http2::send(gateway.address(), &request).refusal(), &expected);
    }
}

/// Envoy joins the two into one field, which is not a bearer token: the filter need not choose one.
#[test]
fn two_authorization_fields_are_refused() {
    let gateway = Gateway::shared();
    let bearer = format!("Bearer {}", *BEARER);
    for other in [bearer.as_str(), "Bearer x", "Basic eDp5"] {
        let request = mint_request("u-1").header("authorization", other);
        for answer in [gateway.send(&request), http2::send(gateway.address(), &request)] {
            assert_eq!(answer.refusal(), (401, "invalid_token".into()), "{other}: {answer:?}");
        }
    }
}

#[test]
fn a_form_may_come_in_pieces() {
    let gateway = Gateway::shared();
    let request = |token: &str, size: usize, trailers: &[(&str, &str)]| {
        let body = exchange_form(token).encode().into_bytes();
        let pieces = body.chunks(size).map(Into::into).collect();
        raw_exchange_request("").pieces(pieces, trailers)
    };
    for size in [1, 7, 1000] {
        let answer = gateway.send(&request(&gateway.mint("u"), size, &[]));
        assert_eq!(answer.status, 200, "HTTP/1.1, pieces of {size}: {answer:?}");
        let answer = gateway.send(&request(&gateway.mint("u"), size, &[("x-last", "1")]));
        assert_eq!(answer.status, 200, "HTTP/1.1 with trailers, pieces of {size}: {answer:?}");
        let answer = http2::send(gateway.address(), &request(&gateway.mint("u"), size, &[]));
        assert_eq!(answer.status, 200, "HTTP/2, pieces of {size}: {answer:?}");
        let request = request(&gateway.mint("u"), size, &[("x-last", "1")]);
        let answer = http2::send(gateway.address(), &request);
        assert_eq!(answer.status, 200, "HTTP/2 with trailers, pieces of {size}: {answer:?}");
    }
}

#[test]
fn a_form_of_more_than_64_kib_is_refused_and_leaves_the_token_spendable() {
    let gateway = Gateway::shared();
    let token = gateway.mint("u-1");
    let padded = |length: usize| {
        let form = exchange_form(&token).encode() + "&padding=";
        let missing = length - form.len();
        form + &"x".repeat(missing)
    };
    let expected = (413, "invalid_request".to_owned());
    assert_eq!(gateway.send(&raw_exchange_request(&padded(65_537))).refusal(), expected);
    let chunks = padded(65_537).into_bytes().chunks(9_999).map(Into::into).collect();
    assert_eq!(gateway.send(&raw_exchange_request("").pieces(chunks, &[])).refusal(), expected);
    assert_eq!(gateway.send(&raw_exchange_request(&padded(65_536))).status, 200);
}
