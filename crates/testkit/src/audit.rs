//! The audit as an operator reads it: the events in the log, the filter state in the access log,
//! and the counters.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::Findings;
use crate::bootstrap::Listener;
use crate::configuration::{CLIENT_SECRET, SIGNING_KEY};
use crate::keys::{has_jwt, unsigned};

pub const CREATED: &str = "subject_token.created";
pub const MINT_REFUSED: &str = "subject_token.refused";
pub const EXCHANGED: &str = "token_exchange.succeeded";
pub const EXCHANGE_REFUSED: &str = "token_exchange.refused";

/// The filter state for access logs.
pub const FILTER_STATE: [&str; 11] = [
    "event",
    "subject_token_id",
    "user_id",
    "actor_id",
    "client_id",
    "caller",
    "resource",
    "scope",
    "jti",
    "error",
    "reason",
];

/// Adds an access log that prints the filter state and the header fields of the filter's own
/// answers.
pub fn with_access_log(listener: Listener) -> Listener {
    let state = FILTER_STATE.map(|name| {
        (name.to_owned(), json!(format!("%FILTER_STATE(wasm.impersonation.{name}:PLAIN)%")))
    });
    listener.access_log(json!({
        "request_id": "%REQ(X-REQUEST-ID)%",
        "path": "%REQ(:PATH)%",
        "status": "%RESPONSE_CODE%",
        "details": "%RESPONSE_CODE_DETAILS%",
        "flags": "%RESPONSE_FLAGS%",
        "pragma": "%RESP(PRAGMA)%",
        "upstream": "%UPSTREAM_HOST%",
        "impersonation": Map::from_iter(state),
    }))
}

/// Checks that the counters of outcomes equal the numbers of events, and that there are no other
/// counters.
pub fn counters_add_up(findings: &mut Findings, metrics: &[(String, u64)], events: &[Value]) {
    let mut expected = BTreeMap::from([
        ("impersonation_subject_tokens_created_total".to_owned(), 0),
        ("impersonation_subject_tokens_exchanged_total".to_owned(), 0),
    ]);
    for event in events {
        let text = |member: &str| event[member].as_str().unwrap_or_default();
        let refusal = |endpoint: &str| {
            let (error, reason) = (text("error"), text("reason"));
            format!(
                "impersonation_refusals_total.endpoint.{endpoint}.error.{error}.reason.{reason}"
            )
        };
        let counter = match text("event") {
            CREATED => "impersonation_subject_tokens_created_total".to_owned(),
            EXCHANGED => "impersonation_subject_tokens_exchanged_total".to_owned(),
            MINT_REFUSED => refusal("subject_tokens"),
            EXCHANGE_REFUSED => refusal("token"),
            other => panic!("no event of ours: {other}"),
        };
        *expected.entry(counter).or_insert(0) += 1;
    }
    let outcome = |name: &str| {
        ["_created_total", "_exchanged_total"].iter().any(|end| name.ends_with(end))
            || name.starts_with("impersonation_refusals_total")
    };
    // A lent Envoy has the counters of other tests, too.
    let counted = metrics
        .iter()
        .filter(|(name, count)| outcome(name) && (*count > 0 || expected.contains_key(name)));
    let counted: BTreeMap<_, _> = counted.cloned().collect();
    findings.expect("counters and events", &counted, &expected);

    let of = |reason: &str| events.iter().filter(|event| event["reason"] == reason).count() as u64;
    let metric = |name: &str| {
        let found = metrics.iter().find(|(have, _)| have == name);
        found.map_or(0, |(_, value)| *value)
    };
    let replayed = metric("impersonation_subject_tokens_replayed_total");
    findings.expect("replays", &replayed, &of("subject_token_spent"));
    findings.expect("full", &metric("impersonation_store_full_total"), &of("store_full"));
}

/// Checks that the log contains no secret of this run.
pub fn tells_no_secret(log: &str, tokens: &[&str]) {
    let token = unsigned(&json!({"alg": "ES256"}), &json!({}));
    assert!(has_jwt(&format!("a line with {token:.20}")), "what this looks for");
    assert!(!has_jwt(log), "a JWT in the log");
    let random_parts = tokens.iter().map(|token| token[12..].to_owned());
    for secret in
        SIGNING_KEY.secrets().into_iter().chain(random_parts).chain([CLIENT_SECRET.clone()])
    {
        assert!(!log.contains(&secret), "a secret in the log: {secret}");
    }
}
