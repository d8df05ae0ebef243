//! The key set and the discovery document that the filter serves alone (`documents: none`). Any JWT
//! library verifies tokens that any configured key has signed.

use jsonwebtoken::Algorithm;
use jsonwebtoken::jwk::{Jwk, ThumbprintHash};
use serde_json::{Value, json};

use testkit::Findings;
use testkit::bootstrap::Filter;
use testkit::configuration::{Configuration, ISSUER, SIGNING_KEY, sha256_hex};
use testkit::gateway::{EXCHANGE_GRANT, Gateway, exchange_form, verify};
use testkit::http::Request;
use testkit::keys::Key;

const JWKS: &str = "/oidc/jwks";
const DISCOVERY: &str = "/oidc/.well-known/openid-configuration";

fn key_set(gateway: &Gateway) -> Value {
    let answer = gateway.send(&Request::get(JWKS));
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

#[test]
fn the_key_set_has_public_keys_and_nothing_private() {
    let gateway = Gateway::shared();
    let answer = gateway.send(&Request::get(JWKS));
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(!gateway.passed_on(&answer));
    let content_type = answer.header("content-type").unwrap();
    assert!(
        ["application/json", "application/jwk-set+json"].contains(&content_type),
        "{content_type}"
    );
    let expected = SIGNING_KEY.public_jwk();
    let keys = &answer.json()["keys"];
    assert_eq!(keys.as_array().unwrap().len(), 1);
    for name in ["kty", "crv", "x", "kid", "alg"] {
        assert_eq!(keys[0][name], expected[name], "{name}");
    }
    assert_eq!(keys[0]["use"], "sig");
    for secret in SIGNING_KEY.secrets() {
        assert!(!answer.text().contains(&secret), "a private key in {answer:?}");
    }
}

#[test]
fn the_discovery_document_announces_the_grant() {
    let gateway = Gateway::shared();
    let answer = gateway.send(&Request::get(DISCOVERY));
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert!(!gateway.passed_on(&answer));
    let document = answer.json();
    assert_eq!(document["issuer"], ISSUER);
    let grants = document["grant_types_supported"].as_array().unwrap();
    assert!(grants.contains(&json!(EXCHANGE_GRANT)), "{document}");
    for (member, path) in [("token_endpoint", "/oidc/token"), ("jwks_uri", JWKS)] {
        let address = document[member].as_str().unwrap_or_default();
        assert_eq!(address, format!("https://auth.example.com{path}"), "{member}");
    }
}

#[test]
fn the_discovery_document_announces_only_what_is_configured() {
    let public = json!([{"client_id": "support-console", "type": "single_page"}]);
    let post = json!([{
        "client_id": "support-portal",
        "type": "traditional_web",
        "authentication": "client_secret_post",
        "client_secret_sha256": [sha256_hex("secret")],
    }]);
    let mut several = post.clone();
    several[0]["authentication"] = json!(["client_secret_post", "client_secret_basic"]);
    let address = |path: &str| json!(format!("https://auth.example.com/oidc/token/{path}"));
    let gateway = Gateway::lent(&Configuration::default());
    let document = || gateway.send(&Request::get(DISCOVERY)).json();
    for (clients, methods, of_the_confidential) in [
        (None, json!(["client_secret_basic", "none"]), json!(["client_secret_basic"])),
        (Some(&post), json!(["client_secret_post"]), json!(["client_secret_post"])),
        (
            Some(&several),
            json!(["client_secret_basic", "client_secret_post"]),
            json!(["client_secret_basic", "client_secret_post"]),
        ),
        (Some(&public), json!(["none"]), Value::Null),
    ] {
        if let Some(clients) = clients {
            let configuration = Configuration::default().with("/clients", clients.clone());
            gateway.update(&configuration).unwrap();
        }
        let document = document();
        let case = format!("{clients:?}: {document}");
        for endpoint in ["token", "revocation"] {
            let member = format!("{endpoint}_endpoint_auth_methods_supported");
            assert_eq!(document[member], methods, "{case}");
        }
        assert_eq!(document["revocation_endpoint"], address("revocation"), "{case}");
        let member = "introspection_endpoint_auth_methods_supported";
        assert_eq!(document[member], of_the_confidential, "{case}");
        let introspection =
            if of_the_confidential.is_null() { Value::Null } else { address("introspection") };
        assert_eq!(document["introspection_endpoint"], introspection, "{case}");
    }
}

#[test]
fn documents_answer_get_and_ignore_the_query() {
    let gateway = Gateway::shared();
    for path in [JWKS, DISCOVERY] {
        let plain = gateway.send(&Request::get(path));
        let queried = gateway.send(&Request::get(&format!("{path}?fresh=1")));
        assert_eq!((queried.status, &queried.body), (200, &plain.body), "{path}");
        let head = gateway.send(&Request::new("HEAD", path));
        assert_eq!(head.status, 200, "{path}: {head:?}");
        for name in ["content-type", "content-length", "cache-control", "etag"] {
            assert_eq!(head.header(name), plain.header(name), "{path}: {name}");
        }
        for method in ["POST", "PUT", "OPTIONS"] {
            let answer = gateway.send(&Request::new(method, path).body(""));
            assert!(gateway.passed_on(&answer), "{method} {path}: {answer:?}");
        }
    }
}

#[test]
fn another_library_verifies_tokens_of_every_kind_of_key() {
    let gateway = Gateway::lent(&Configuration::default());
    let rsa = Key::generate(Algorithm::RS256, "rsa-1");
    let keys = [
        Key::generate(Algorithm::EdDSA, "ed-1"),
        Key::generate(Algorithm::ES256, "es256-1"),
        Key::generate(Algorithm::ES384, "es384-1"),
        rsa.under(Algorithm::PS256, "ps-1"),
        rsa,
    ];
    let mut findings = Findings::default();
    for key in &keys {
        let jwk = key.private_jwk();
        let mut unnamed = jwk.clone();
        unnamed.as_object_mut().unwrap().remove("kid");
        let variable = json!({"environment_variable": "KEY"});
        let mut cases = vec![
            ("jwk", json!({"jwk": jwk}), String::new(), Some(&key.kid)),
            ("jwk without a kid", json!({"jwk": unnamed}), String::new(), None),
            ("JWK in a variable", variable.clone(), jwk.to_string(), Some(&key.kid)),
        ];
        // A PEM of an RSA key cannot name PS256.
        if key.alg != Algorithm::PS256 {
            cases.push(("pem", json!({"pem": key.pem()}), String::new(), None));
            cases.push(("PEM in a variable", variable, key.pem().into(), None));
        }
        for (form, member, value, kid) in cases {
            let case = format!("{:?} as {form}", key.alg);
            let configuration = Configuration::default().with("/signing_keys", json!([member]));
            let filter =
                Filter { environment: vec![("KEY".into(), value)], ..Filter::from(&configuration) };
            if let Err(log) = gateway.update(&filter) {
                findings.add(format!("{case}: refused: {log}"));
                continue;
            }
            let jwks = key_set(&gateway);
            let published: Jwk = serde_json::from_value(jwks["keys"][0].clone()).unwrap();
            let kid = match kid {
                Some(kid) => kid.clone(),
                None => published.thumbprint(ThumbprintHash::SHA256).unwrap(),
            };
            findings.expect(&case, &jwks["keys"][0]["kid"], &json!(kid));
            findings.expect(&case, &jwks["keys"][0]["alg"], &json!(key.alg));
            let answer = gateway.exchange(&exchange_form(&gateway.mint("u-1")));
            let (header, claims) = verify(&answer.member("access_token"), &jwks);
            findings.expect(&case, &header, &json!({"alg": key.alg, "typ": "at+jwt", "kid": kid}));
            findings.expect(&case, &claims["sub"], &json!("u-1"));
            for secret in key.secrets() {
                if jwks.to_string().contains(&secret) {
                    findings.add(format!("{case}: a private key in {jwks}"));
                }
            }
        }
    }
}

#[test]
fn the_first_key_signs_and_all_are_published() {
    let [old, new] = ["old", "new"].map(|kid| Key::generate(Algorithm::ES256, kid));
    let signing = |keys: &[&Key]| {
        let keys: Vec<_> = keys.iter().map(|key| json!({"jwk": key.private_jwk()})).collect();
        Configuration::default().with("/signing_keys", keys)
    };
    let gateway = Gateway::lent(&signing(&[&old, &new]));
    let token = |gateway: &Gateway| {
        gateway.exchange(&exchange_form(&gateway.mint("u-1"))).member("access_token")
    };
    let kids = |gateway: &Gateway| {
        let jwks = key_set(gateway);
        let keys = jwks["keys"].as_array().unwrap();
        keys.iter().map(|key| key["kid"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let by_old = token(&gateway);
    assert_eq!(verify(&by_old, &key_set(&gateway)).0["kid"], "old");
    assert_eq!(kids(&gateway), ["old", "new"]);
    // Rotation: a verifier with the key set from before or after verifies the tokens of both keys.
    gateway.update(&signing(&[&new, &old])).unwrap();
    let by_new = token(&gateway);
    assert_eq!(verify(&by_new, &key_set(&gateway)).0["kid"], "new");
    verify(&by_old, &key_set(&gateway));
    gateway.update(&signing(&[&new])).unwrap();
    assert_eq!(kids(&gateway), ["new"]);
}
