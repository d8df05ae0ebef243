//! The gateway's key set and discovery document with ours added, and the gateway's answers that are
//! not documents: a key set with our keys alone would lock out all users of the gateway wherever it
//! is cached.

use jsonwebtoken::Algorithm;
use serde_json::{Value, json};

use crate::world::World;
use testkit::Findings;
use testkit::configuration::{ISSUER, SIGNING_KEY};
use testkit::documents::{
    DISCOVERY, JWKS, answers_that_are_no_documents, has_documents, kids, merging,
};
use testkit::gateway::{EXCHANGE_GRANT, IDENTITY_GATEWAY};
use testkit::http::Request;
use testkit::keys::Key;
use testkit::server::Reply;

fn start() -> World {
    World::start(&merging())
}

#[test]
fn the_key_set_has_the_gateways_keys_and_ours() {
    let world = start();
    let gateway = world.upstream(IDENTITY_GATEWAY);
    let (theirs, _) = has_documents(gateway);
    let answer = world.send(&Request::get(JWKS));
    assert_eq!(answer.status, 200, "{answer:?}");
    let merged = answer.json();
    assert_eq!(kids(&merged), ["theirs", "gateway-1"]);
    // Every other member keeps its value and place, even unknown ones.
    let mut expected = theirs;
    let ours = merged["keys"].as_array().unwrap().last().unwrap().clone();
    expected["keys"].as_array_mut().unwrap().push(ours.clone());
    assert_eq!(answer.text(), expected.to_string());
    for (name, value) in SIGNING_KEY.public_jwk().as_object().unwrap() {
        assert_eq!(&ours[name], value, "{name}");
    }
    for secret in SIGNING_KEY.secrets() {
        assert!(!answer.text().contains(&secret));
    }
    assert_eq!(answer.header("x-theirs"), Some("kept"));
    assert_eq!(answer.header("cache-control"), Some("public, max-age=60"));
    // These header fields describe the gateway's bytes.
    assert_ne!(answer.header("etag"), Some("\"theirs\""));
    assert_eq!(answer.header("last-modified"), None);
}

#[test]
fn the_discovery_document_is_the_gateways_with_our_grant_and_endpoints_added() {
    let world = start();
    let gateway = world.upstream(IDENTITY_GATEWAY);
    let (_, mut expected) = has_documents(gateway);
    let answer = world.send(&Request::get(DISCOVERY));
    assert_eq!(answer.status, 200, "{answer:?}");
    expected["grant_types_supported"].as_array_mut().unwrap().push(json!(EXCHANGE_GRANT));
    let methods = json!(["client_secret_basic", "none"]);
    for (member, value) in [
        ("token_endpoint_auth_methods_supported", methods.clone()),
        ("revocation_endpoint", json!("https://auth.example.com/oidc/token/revocation")),
        ("revocation_endpoint_auth_methods_supported", methods),
        ("introspection_endpoint", json!("https://auth.example.com/oidc/token/introspection")),
        ("introspection_endpoint_auth_methods_supported", json!(["client_secret_basic"])),
    ] {
        expected[member] = value;
    }
    assert_eq!(answer.text(), expected.to_string());
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.header("x-theirs"), Some("kept"));
}

#[test]
fn our_key_replaces_the_gateways_of_the_same_kid_and_the_log_says_so() {
    let world = start();
    let gateway = world.upstream(IDENTITY_GATEWAY);
    let theirs = |kid: &str| Key::generate(Algorithm::ES256, kid).public_jwk();
    gateway.answer_always(Reply::json(&json!({
        "keys": [theirs("one"), theirs("gateway-1"), theirs("two")],
    })));
    assert_eq!(world.counted("impersonation_key_collisions_total"), 0);
    let merged = world.send(&Request::get(JWKS)).json();
    assert_eq!(kids(&merged), ["one", "two", "gateway-1"]);
    assert_eq!(merged["keys"][2]["x"], SIGNING_KEY.public_jwk()["x"]);
    assert_eq!(world.counted("impersonation_key_collisions_total"), 1);
    let log = world.log();
    let line = log.lines().find(|line| line.contains("kid"));
    assert!(line.is_some_and(|line| line.contains("one of our keys")), "{log}");
}

#[test]
fn the_entity_tag_is_ours_and_changes_with_the_document() {
    let world = start();
    let gateway = world.upstream(IDENTITY_GATEWAY);
    has_documents(gateway);
    for target in [JWKS, DISCOVERY] {
        let first = world.send(&Request::get(target));
        let etag = first.header("etag").unwrap().to_owned();
        for known in [etag.clone(), format!("W/{etag}"), format!("\"x\", {etag}"), "*".into()] {
            let again = world.send(&Request::get(target).header("if-none-match", &known));
            assert_eq!(again.status, 304, "{target} {known}: {again:?}");
            assert_eq!(again.header("etag"), Some(etag.as_str()), "{target}");
            assert_eq!(again.header("cache-control"), Some("public, max-age=60"), "{target}");
            assert!(again.body.is_empty(), "{target}");
            let length = again.header("content-length").map(|length| length.parse().unwrap());
            assert!(length.is_none_or(|length: usize| length == first.body.len()), "{again:?}");
        }
        // The gateway's own tag is not the tag of the merged document, and its dates do not apply
        // to it.
        for (name, value) in [
            ("if-none-match", "\"theirs\""),
            ("if-modified-since", "Wed, 21 Oct 2099 07:28:00 GMT"),
            ("range", "bytes=0-10"),
        ] {
            let answer = world.send(&Request::get(target).header(name, value));
            assert_eq!((answer.status, &answer.body), (200, &first.body), "{target} {name}");
            assert_eq!(gateway.last().header(name), None, "{target}: passed on");
        }
    }
    let before = world.send(&Request::get(JWKS));
    let etag = before.header("etag").unwrap().to_owned();
    gateway.answer_always(Reply::json(&json!({"keys": []})));
    let after = world.send(&Request::get(JWKS).header("if-none-match", &etag));
    assert_eq!(after.status, 200, "another key set under the same tag: {after:?}");
    assert_ne!(after.header("etag"), Some(etag.as_str()));
}

#[test]
fn the_gateway_is_asked_for_its_whole_document_as_it_is() {
    let world = start();
    let gateway = world.upstream(IDENTITY_GATEWAY);
    has_documents(gateway);
    for method in ["GET", "HEAD"] {
        let request = Request::new(method, JWKS).header("if-none-match", "\"a\"");
        world.send(&request.header("accept-encoding", "gzip"));
        let asked = gateway.last();
        assert_eq!(asked.method, "GET", "{method}");
        assert_eq!(asked.header("accept-encoding"), Some("identity"), "{method}");
        assert_eq!(asked.header("if-none-match"), None, "{method}");
    }
}

#[test]
fn the_gateway_answers_other_methods() {
    let world = start();
    let gateway = world.upstream(IDENTITY_GATEWAY);
    has_documents(gateway);
    for target in [JWKS, DISCOVERY] {
        for method in ["OPTIONS", "POST"] {
            let request = Request::new(method, target)
                .header("if-none-match", "\"theirs\"")
                .header("accept-encoding", "gzip");
            let answer = world.send(&request);
            assert_eq!(answer.header("etag"), Some("\"theirs\""), "{method} {target}");
            assert_eq!(answer.header("x-theirs"), Some("kept"), "{method} {target}");
            let asked = gateway.last();
            assert_eq!((asked.method.as_str(), asked.target.as_str()), (method, target));
            assert_eq!(asked.header("if-none-match"), Some("\"theirs\""), "{method} {target}");
            assert_eq!(asked.header("accept-encoding"), Some("gzip"), "{method} {target}");
            assert!(!answer.text().contains("gateway-1"), "{method} {target}");
        }
    }
}

#[test]
fn an_answer_that_is_no_document_reaches_the_caller_unchanged() {
    let world = start();
    let gateway = world.upstream(IDENTITY_GATEWAY);
    let mut findings = Findings::default();
    for target in [JWKS, DISCOVERY] {
        for (name, reply) in answers_that_are_no_documents() {
            let case = format!("{target}: {name}");
            gateway.answer_always(reply.clone());
            let answer = world.send(&Request::get(target));
            findings.expect(format!("{case}: status"), &answer.status, &reply.status);
            findings.expect(format!("{case}: body"), &answer.body, &reply.body);
            for (name, value) in &reply.headers {
                let kept = answer.header(name).map(str::as_bytes);
                findings.expect(format!("{case}: {name}"), &kept, &Some(value.as_slice()));
            }
        }
    }
}

/// The gateway's discovery document after the filter has merged into it.
fn merged(world: &World, document: &Value) -> Value {
    world.upstream(IDENTITY_GATEWAY).answer_always(Reply::json(document));
    world.send(&Request::get(DISCOVERY)).json()
}

#[test]
fn discovery_has_our_methods_beside_the_gateways() {
    let theirs = json!({
        "issuer": ISSUER,
        "token_endpoint_auth_methods_supported": ["client_secret_basic", "private_key_jwt"],
        "id_token_signing_alg_values_supported": ["RS256"],
    });
    let ours = merged(&start(), &theirs);
    let methods = json!(["client_secret_basic", "private_key_jwt", "none"]);
    assert_eq!(ours["token_endpoint_auth_methods_supported"], methods);
    let grants = json!(["authorization_code", "implicit", EXCHANGE_GRANT]);
    assert_eq!(ours["grant_types_supported"], grants);
    assert_eq!(ours["id_token_signing_alg_values_supported"], json!(["RS256"]));
}

/// A caller with a token of the gateway needs the gateway's path, and the operator must be told.
#[test]
fn an_endpoint_that_the_gateway_has_elsewhere_stays_its_own_and_the_operator_is_told_once() {
    let world = start();
    let theirs = json!({
        "issuer": ISSUER,
        "revocation_endpoint": "https://auth.example.com/revoke",
        "introspection_endpoint": "https://auth.example.com/oidc/token/introspection",
    });
    for _ in 0..2 {
        let merged = merged(&world, &theirs);
        assert_eq!(merged["revocation_endpoint"], theirs["revocation_endpoint"]);
        assert_eq!(merged.get("revocation_endpoint_auth_methods_supported"), None);
        assert_eq!(merged["introspection_endpoint"], theirs["introspection_endpoint"]);
        // Only the gateway knows how clients authenticate there, because its metadata does not say.
        assert_eq!(merged.get("introspection_endpoint_auth_methods_supported"), None);
    }
    assert_eq!(world.log().matches("at another path").count(), 1);
}

#[test]
fn the_document_of_another_issuer_gets_no_endpoints_of_ours() {
    let strange = merged(&start(), &json!({"issuer": "https://evil.example/oidc"}));
    let names: Vec<_> = strange.as_object().unwrap().keys().collect();
    assert_eq!(names, ["issuer", "grant_types_supported"]);
}
