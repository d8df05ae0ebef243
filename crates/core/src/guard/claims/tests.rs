//! Tests of the claims' decoder with metadata that another library encodes.

use std::collections::BTreeMap;

use proptest::prelude::*;
use prost::Message;
use serde_json::{Value as Json, json};

use super::*;
use crate::fakes::protobuf_struct;

const ISSUER: &str = "https://auth.example.com/oidc";

/// `envoy.config.core.v3.Metadata`.
#[derive(Message)]
struct Metadata {
    #[prost(btree_map = "string, message", tag = "1")]
    filter_metadata: BTreeMap<String, prost_types::Struct>,
    #[prost(btree_map = "string, message", tag = "2")]
    typed_filter_metadata: BTreeMap<String, prost_types::Any>,
}

/// Metadata in which `jwt_authn` left this, beside what other filters leave.
fn metadata(payloads: &Json) -> Vec<u8> {
    let other =
        json!({"access_token": {"iss": ISSUER, "txn": "other"}, "x": [null, 1, {"a": true}]});
    let typed = prost_types::Any { type_url: "type.googleapis.com/x".into(), value: vec![1, 2] };
    let metadata = Metadata {
        filter_metadata: BTreeMap::from([
            ("a.filter".to_owned(), protobuf_struct(&other)),
            ("envoy.filters.http.jwt_authn".to_owned(), protobuf_struct(payloads)),
            ("z.filter".to_owned(), protobuf_struct(&other)),
        ]),
        typed_filter_metadata: BTreeMap::from([("envoy.filters.http.jwt_authn".to_owned(), typed)]),
    };
    metadata.encode_to_vec()
}

fn full() -> Json {
    json!({
        "iss": ISSUER,
        "sub": "u-1",
        "aud": "https://api.example.com/orders",
        "client_id": "support-portal",
        "iat": 1_700_000_000,
        "exp": 1_700_003_600,
        "jti": "j-1",
        "scope": "orders:read orders:write",
        "txn": "t-1",
        "act": {"sub": "agent-7", "sid": "s-1", "acr": "phr", "auth_time": 1_699_999_900},
        "impersonation": {"ticket": null, "tags": ["a", {"b": 1.5}], "vip": true},
    })
}

fn with(claim: &str, to: Json) -> Json {
    let mut claims = full();
    claims[claim] = to;
    claims
}

fn without(claim: &str) -> Json {
    let mut claims = full();
    claims.as_object_mut().unwrap().remove(claim).unwrap();
    claims
}

fn read(claims: &Json) -> Result<(String, Option<String>), NoClaims> {
    let metadata = metadata(&json!({"access_token": claims, "header": {"alg": "EdDSA"}}));
    let claims = Claims::read(&metadata, "access_token", ISSUER)?;
    Ok((claims.id.to_owned(), claims.actor_id.map(str::to_owned)))
}

#[test]
fn claims_are_read_as_they_were_issued() {
    let metadata = metadata(&json!({"access_token": full()}));
    let claims = Claims::read(&metadata, "access_token", ISSUER).unwrap();
    let expected = Claims {
        id: "t-1",
        user_id: "u-1",
        actor_id: Some("agent-7"),
        session: Some("s-1"),
        signed_in_at: Some(UnixTime::from_millis(1_699_999_900_000)),
        client_id: "support-portal",
        resource: "https://api.example.com/orders",
        jti: "j-1",
        issued_at: 1_700_000_000,
        expires_at: UnixTime::from_millis(1_700_003_600_000),
        scope: Scope::Text("orders:read orders:write"),
        binding: Binding::None,
    };
    assert_eq!(claims, expected);
    assert!(claims.has_scope("orders:write"));
    assert!(!claims.has_scope("orders") && !claims.has_scope(""));
}

#[test]
fn a_binding_is_understood_whole_or_not_at_all() {
    let digest = crate::secret::Digest::from_bytes([1; 32]);
    let text = digest.to_base64url();
    let to = |key, certificate| Binding::To(Confirmation { key, certificate });
    #[rustfmt::skip]
    let cases = [
        ("a key",            json!({"jkt": text}),                     to(Some(digest), None)),
        ("a certificate",    json!({"x5t#S256": text}),                to(None, Some(digest))),
        ("both",             json!({"jkt": text, "x5t#S256": text}),   to(Some(digest), Some(digest))),
        ("nothing",          json!({}),                                Binding::NotUnderstood),
        ("null",             json!(null),                              Binding::NotUnderstood),
        ("a text",           json!(text),                              Binding::NotUnderstood),
        ("another method",   json!({"jkt": text, "kid": "a"}),         Binding::NotUnderstood),
        ("an empty key",     json!({"jkt": ""}),                       Binding::NotUnderstood),
        ("a number",         json!({"jkt": 1}),                        Binding::NotUnderstood),
        ("null for a key",   json!({"jkt": null}),                     Binding::NotUnderstood),
        ("a short key",      json!({"jkt": "AQEB"}),                   Binding::NotUnderstood),
    ];
    for (case, cnf, expected) in cases {
        let metadata = metadata(&json!({"access_token": with("cnf", cnf)}));
        let claims = Claims::read(&metadata, "access_token", ISSUER).unwrap();
        assert_eq!(claims.binding, expected, "{case}");
    }
}

/// Istio has `jwt_authn` split the scope.
#[test]
fn a_split_scope_is_the_same_scope() {
    let parted = with("scope", json!(["orders:read", "orders:write"]));
    let both = [parted, full()].map(|claims| metadata(&json!({"access_token": claims})));
    let [parted, whole] =
        both.each_ref().map(|bytes| Claims::read(bytes, "access_token", ISSUER).unwrap());
    assert_eq!(parted.scope.text(), whole.scope.text());
    for scope in ["orders:read", "orders:write", "orders", "", "orders:read orders:write"] {
        assert_eq!(parted.has_scope(scope), whole.has_scope(scope), "{scope}");
    }
}

#[test]
fn claims_that_the_filter_does_not_issue_are_refused() {
    let good = |actor: Option<&str>| Ok(("t-1".to_owned(), actor.map(str::to_owned)));
    let agent = good(Some("agent-7"));
    #[rustfmt::skip]
    let cases = [
        ("all of them",            full(),                                   agent.clone()),
        ("without an actor",       without("act"),                           good(None)),
        ("without a scope",        without("scope"),                         agent.clone()),
        ("an empty scope",         with("scope", json!("")),                 agent.clone()),
        ("a scope in a list",      with("scope", json!(["orders:read"])),    agent.clone()),
        ("an empty list",          with("scope", json!([])),                 agent.clone()),
        ("one that is null",       with("impersonation", json!(null)),       agent.clone()),
        ("an actor on an actor",   with("act", json!({"sub": "agent-7", "act": {"sub": "x"}})), agent),
        ("an actor without a session", with("act", json!({"sub": "agent-7"})), good(Some("agent-7"))),
        ("a sign-in as text",      with("act", json!({"sub": "agent-7", "auth_time": "1"})), Err(NoClaims::Malformed)),
        ("a null sign-in",         with("act", json!({"sub": "agent-7", "auth_time": null})), Err(NoClaims::Malformed)),
        ("an empty session",       with("act", json!({"sub": "agent-7", "sid": ""})), Err(NoClaims::Malformed)),
        ("a null session",         with("act", json!({"sub": "agent-7", "sid": null})), Err(NoClaims::Malformed)),
        ("a session of 7",         with("act", json!({"sub": "agent-7", "sid": 7})), Err(NoClaims::Malformed)),
        ("an actor without a name", with("act", json!({})),                  Err(NoClaims::Malformed)),
        ("an actor named null",    with("act", json!({"sub": null})),        Err(NoClaims::Malformed)),
        ("an actor named nothing", with("act", json!({"sub": ""})),          Err(NoClaims::Malformed)),
        ("an actor named 7",       with("act", json!({"sub": 7})),           Err(NoClaims::Malformed)),
        ("a null actor",           with("act", json!(null)),                 Err(NoClaims::Malformed)),
        ("a list of actors",       with("act", json!([{"sub": "agent-7"}])), Err(NoClaims::Malformed)),
        ("an actor as text",       with("act", json!("agent-7")),            Err(NoClaims::Malformed)),
        ("no txn",                 without("txn"),                           Err(NoClaims::Malformed)),
        ("a null txn",             with("txn", json!(null)),                 Err(NoClaims::Malformed)),
        ("an empty txn",           with("txn", json!("")),                   Err(NoClaims::Malformed)),
        ("a txn in a list",        with("txn", json!(["t-1"])),              Err(NoClaims::Malformed)),
        ("no user",                without("sub"),                           Err(NoClaims::Malformed)),
        ("a null user",            with("sub", json!(null)),                 Err(NoClaims::Malformed)),
        ("no client",              without("client_id"),                     Err(NoClaims::Malformed)),
        ("no audience",            without("aud"),                           Err(NoClaims::Malformed)),
        ("several audiences",      with("aud", json!(["a", "b"])),           Err(NoClaims::Malformed)),
        ("no jti",                 without("jti"),                           Err(NoClaims::Malformed)),
        ("no iat",                 without("iat"),                           Err(NoClaims::Malformed)),
        ("a null iat",             with("iat", json!(null)),                 Err(NoClaims::Malformed)),
        ("an iat as text",         with("iat", json!("1700000000")),         Err(NoClaims::Malformed)),
        ("an iat before the epoch", with("iat", json!(-1)),                  Err(NoClaims::Malformed)),
        ("an iat beyond counting", with("iat", json!(1e300)),                Err(NoClaims::Malformed)),
        ("no exp",                 without("exp"),                           Err(NoClaims::Malformed)),
        ("a null exp",             with("exp", json!(null)),                 Err(NoClaims::Malformed)),
        ("an exp as text",         with("exp", json!("1700003600")),         Err(NoClaims::Malformed)),
        ("a number in a list",     with("scope", json!(["orders:read", 7])), Err(NoClaims::Malformed)),
        ("an empty text in a list", with("scope", json!([""])),              Err(NoClaims::Malformed)),
        ("a null scope",           with("scope", json!(null)),               Err(NoClaims::Malformed)),
        ("a scope of two lines",   with("scope", json!("a\nb")),             Err(NoClaims::Malformed)),
        ("an actor of two lines",  with("act", json!({"sub": "agent-7\r\nx-admin: yes"})), Err(NoClaims::Malformed)),
        ("a user on a terminal",   with("sub", json!("u-1\u{7f}")),          Err(NoClaims::Malformed)),
        ("a txn with a control",   with("txn", json!("t\u{85}1")),           Err(NoClaims::Malformed)),
        ("no issuer",              without("iss"),                           Err(NoClaims::OtherIssuer)),
        ("a null issuer",          with("iss", json!(null)),                 Err(NoClaims::OtherIssuer)),
        ("another issuer",         with("iss", json!("https://auth.example.com/oidc/")), Err(NoClaims::OtherIssuer)),
        ("no object",              json!("t-1"),                             Err(NoClaims::Missing)),
        ("null",                   json!(null),                              Err(NoClaims::Missing)),
    ];
    for (case, claims, expected) in cases {
        assert_eq!(read(&claims), expected, "{case}");
    }
}

#[test]
fn metadata_without_a_payload_has_no_claims() {
    let none = Err(NoClaims::Missing);
    assert_eq!(Claims::read(&[], "access_token", ISSUER), none);
    let elsewhere = metadata(&json!({"other": full()}));
    assert_eq!(Claims::read(&elsewhere, "access_token", ISSUER), none);
    assert_eq!(Claims::read(&metadata(&json!({})), "access_token", ISSUER), none);
}

#[test]
fn truncated_metadata_never_yields_other_claims() {
    let whole = metadata(&json!({"access_token": full()}));
    let claims = Claims::read(&whole, "access_token", ISSUER).unwrap();
    for len in 0..whole.len() {
        if let Ok(read) = Claims::read(&whole[..len], "access_token", ISSUER) {
            assert_eq!(read, claims, "{len}");
        }
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes: Vec<u8>) {
        let _ = Claims::read(&bytes, "access_token", ISSUER);
    }

    #[test]
    fn no_changed_bytes_make_it_panic(changes: Vec<(prop::sample::Index, u8)>) {
        let mut bytes = metadata(&json!({"access_token": full()}));
        for (index, byte) in changes {
            let index = index.index(bytes.len());
            bytes[index] = byte;
        }
        let _ = Claims::read(&bytes, "access_token", ISSUER);
    }
}
