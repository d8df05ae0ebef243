//! `POST {base}/api/subject-tokens`: the request and the answer, who may mint, and whom.

mod bearers;
mod order;
mod rules;

use std::collections::HashSet;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;

use super::flow::describes;
use crate::world::World;
use testkit::Findings;
use testkit::configuration::Configuration;
use testkit::gateway::{
    BEARER, exchange_form, mint_body_request, mint_request, minted, now, raw_part,
};
use testkit::http::Request;
use testkit::refusals::{self, Mint};

const MINT: &str = "/api/subject-tokens";

#[test]
fn answers_201_with_a_fresh_token_and_its_lifetime() {
    let world = World::start(&Configuration::default());
    let request = mint_body_request(&json!({"userId": "u-1", "context": {"ticketId": "T-1"}}));
    let answer = world.send(&request);
    assert_eq!(answer.status, 201, "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert!(!world.passed_on(&answer));
    let body = answer.json();
    let members: Vec<_> = body.as_object().unwrap().keys().collect();
    assert_eq!(members, ["subjectToken", "expiresIn"]);
    assert_eq!(body["expiresIn"], 600);
}

#[test]
fn a_subject_token_is_opaque_and_unique() {
    let world = World::start(&Configuration::default());
    let mut seen = HashSet::new();
    for _ in 0..500 {
        let token = minted(&world.send(&mint_request("anna@example.com")));
        let secret = token.strip_prefix("sub_").unwrap_or_else(|| panic!("{token}"));
        // 256 bits are 43 characters of base64.
        assert!(secret.len() >= 43 && token.len() <= 100, "{token}");
        let bytes = URL_SAFE_NO_PAD.decode(secret).unwrap();
        assert!(bytes.len() >= 32 && !bytes.windows(4).any(|four| four == b"anna"), "{token}");
        assert!(seen.insert(token), "the same token twice");
    }
}

#[test]
fn the_answer_says_the_configured_lifetime() {
    let configuration = Configuration::default().with("/subject_tokens/lifetime", "10m");
    let world = World::start(&configuration);
    assert_eq!(world.send(&mint_request("u-1")).json()["expiresIn"], 600);
    world.update(&configuration.with("/subject_tokens/lifetime", "45s")).unwrap();
    assert_eq!(world.send(&mint_request("u-1")).json()["expiresIn"], 45);
}

#[test]
fn a_mint_accepts_any_valid_user_and_context() {
    let world = World::start(&Configuration::default());
    #[rustfmt::skip]
    let cases = [
        ("no context",              json!({"userId": "u-1"})),
        ("empty context",           json!({"userId": "u-1", "context": {}})),
        ("any context",             json!({"userId": "u-1", "context": {"a": [1, null, {"b": 1.5e300}], "": "ü\u{1F600}\u{0}"}})),
        ("the shortest user",       json!({"userId": "u"})),
        ("the longest user",        json!({"userId": "u".repeat(255)})),
        ("255 characters, not bytes", json!({"userId": "ü".repeat(255)})),
        ("a user of any alphabet",  json!({"userId": "auth0|５ \"\\/ 用户@example.com"})),
    ];
    let mut findings = Findings::default();
    for (case, body) in cases {
        findings.expect(case, &world.send(&mint_body_request(&body)).status, &201);
    }
}

/// A misspelt limit must not make a token without that limit.
#[test]
fn a_mint_refuses_an_unknown_member() {
    let world = World::start(&Configuration::default());
    for name in ["user_id", "UserId", "lifetime", "expires_in", "", "__proto__"] {
        let answer = world.send(&mint_body_request(&json!({"userId": "u-1", name: null})));
        assert_eq!(answer.refusal(), (400, "invalid_request".into()), "{name:?}: {answer:?}");
    }
}

#[test]
fn the_location_of_a_mint_has_the_txn_of_the_access_token() {
    let world = World::start(&Configuration::default());
    let answer = world.send(&mint_request("u-1"));
    let id = answer.header("location").unwrap().strip_prefix("/api/subject-tokens/").unwrap();
    let exchanged = world.exchange(&exchange_form(&minted(&answer)));
    assert_eq!(exchanged.status, 200, "{exchanged:?}");
    assert_eq!(raw_part(&exchanged.member("access_token"), 1)["txn"], id);
}

#[test]
fn a_mint_refuses_a_body_that_names_no_user() {
    let world = World::start(&Configuration::default());
    let mut findings = Findings::default();
    for &(case, body, (status, error, reason)) in refusals::BODIES {
        let answer = world.send(&Mint { body: body(), ..Mint::new(now()) }.request());
        findings.expect(case, &answer.refusal(), &(status, error.into()));
        describes(&mut findings, case, &answer);
        let event = world.last_event();
        findings.expect(case, &event["event"], &json!("subject_token.refused"));
        findings.expect(case, &event["reason"], &json!(reason));
        findings.expect(case, &event["caller"], &json!("support-backend"));
    }
}

#[test]
fn a_mint_accepts_json_only() {
    let world = World::start(&Configuration::default());
    let send = |content_type: Option<&str>| {
        let request = Request::post(MINT).bearer(&BEARER).body(r#"{"userId":"u-1"}"#);
        let request = match content_type {
            Some(value) => request.header("content-type", value),
            None => request,
        };
        world.send(&request)
    };
    let mut findings = Findings::default();
    for good in [
        "application/json",
        "Application/JSON",
        "application/json; charset=utf-8",
        "application/json;charset=UTF-8",
    ] {
        findings.expect(good, &send(Some(good)).status, &201);
    }
    for wrong in [
        None,
        Some("text/plain"),
        Some("application/x-www-form-urlencoded"),
        Some("application/jsonp"),
        Some("x-application/json"),
        Some(""),
    ] {
        let answer = send(wrong);
        findings.expect(format!("{wrong:?}"), &answer.refusal(), &(415, "invalid_request".into()));
        describes(&mut findings, "415", &answer);
    }
}

#[test]
fn the_mint_endpoint_allows_only_post() {
    let world = World::start(&Configuration::default());
    let mut findings = Findings::default();
    for method in ["GET", "HEAD", "PUT", "PATCH", "DELETE"] {
        let answer =
            world.send(&Request::new(method, MINT).bearer(&BEARER).json(&json!({"userId": "u"})));
        findings.expect(method, &(answer.status, answer.header("allow")), &(405, Some("POST")));
        findings.expect(method, &world.passed_on(&answer), &false);
    }
    // A preflight request is for Envoy's cors filter, or for the world.
    let answer =
        world.send(&Request::new("OPTIONS", MINT).header("origin", "https://support.example.com"));
    assert!(world.passed_on(&answer), "{answer:?}");
}

#[test]
fn the_length_of_a_context_is_that_of_its_compact_json() {
    let world = World::start(&Configuration::default());
    // {"k":"…"} has 8 characters around the value.
    let compact = |length: usize| format!(r#"{{"k":"{}"}}"#, "x".repeat(length - 8));
    let spaced = format!("{{ {} \"k\" :\n \"{}\" }}", " ".repeat(5000), "x".repeat(4096 - 8));
    let mut findings = Findings::default();
    for (case, context, expected) in [
        ("as long as may be", compact(4096), (201, "-")),
        ("one byte more", compact(4097), (413, "invalid_request")),
        ("spaces do not count", spaced, (201, "-")),
        ("bytes do", format!(r#"{{"k":"{}"}}"#, "ü".repeat(2045)), (413, "invalid_request")),
    ] {
        let body = format!(r#"{{"userId":"u-1","context":{context}}}"#);
        let request =
            Request::post(MINT).bearer(&BEARER).header("content-type", "application/json");
        let refusal = world.send(&request.body(body)).refusal();
        findings.expect(case, &refusal, &(expected.0, expected.1.to_owned()));
    }
}

#[test]
fn the_query_is_ignored_and_a_similar_path_is_not_ours() {
    let world = World::start(&Configuration::default());
    let send = |path: &str| {
        world.send(&Request::post(path).bearer(&BEARER).json(&json!({"userId": "u-1"})))
    };
    let mut findings = Findings::default();
    for path in ["/api/subject-tokens?", "/api/subject-tokens?trace=1"] {
        findings.expect(path, &send(path).status, &201);
    }
    for path in [
        "/api/subject-tokens/",
        "/api/subject-tokens/1/2",
        "/api/subject-tokens2",
        "/api/subject-token",
        "/API/subject-tokens",
        "/tenant/api/subject-tokens",
        "//api/subject-tokens",
        "/api/subject-tokens%3F",
        "/api//subject-tokens",
        "/?/api/subject-tokens",
    ] {
        let answer = send(path);
        findings.expect(path, &world.passed_on(&answer), &true);
    }
}
