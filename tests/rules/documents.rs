//! The key set and the discovery document that the filter serves alone (`documents: none`). Any JWT
//! library verifies tokens that any configured key has signed.

use jsonwebtoken::Algorithm;
use jsonwebtoken::jwk::{Jwk, ThumbprintHash};
use serde_json::{Value, json};

use crate::world::World;
use testkit::Findings;
use testkit::configuration::{Configuration, ISSUER, SIGNING_KEY, sha256_hex};
use testkit::gateway::{EXCHANGE_GRANT, exchange_form, verify};
use testkit::http::Request;
use testkit::keys::Key;

const JWKS: &str = "/oidc/jwks";
const DISCOVERY: &str = "/oidc/.well-known/openid-configuration";

fn key_set(world: &World) -> Value {
    let answer = world.send(&Request::get(JWKS));
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

#[test]
fn the_key_set_has_public_keys_and_nothing_private() {
    let world = World::start(&Configuration::default());
    let answer = world.send(&Request::get(JWKS));
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(!world.passed_on(&answer));
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
    let world = World::start(&Configuration::default());
    let answer = world.send(&Request::get(DISCOVERY));
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert!(!world.passed_on(&answer));
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
    let world = World::start(&Configuration::default());
    let document = || world.send(&Request::get(DISCOVERY)).json();
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
            world.update(&configuration).unwrap();
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
    let world = World::start(&Configuration::default());
    for path in [JWKS, DISCOVERY] {
        let plain = world.send(&Request::get(path));
        let queried = world.send(&Request::get(&format!("{path}?fresh=1")));
        assert_eq!((queried.status, &queried.body), (200, &plain.body), "{path}");
        let head = world.send(&Request::new("HEAD", path));
        assert_eq!(head.status, 200, "{path}: {head:?}");
        for name in ["content-type", "content-length", "cache-control", "etag"] {
            assert_eq!(head.header(name), plain.header(name), "{path}: {name}");
        }
        for method in ["POST", "PUT", "OPTIONS"] {
            let answer = world.send(&Request::new(method, path).body(""));
            assert!(world.passed_on(&answer), "{method} {path}: {answer:?}");
        }
    }
}

#[test]
fn another_library_verifies_tokens_of_every_kind_of_key() {
    let world = World::start(&Configuration::default());
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
        let mut cases = vec![
            ("jwk", json!({"jwk": jwk}), Some(&key.kid)),
            ("jwk without a kid", json!({"jwk": unnamed}), None),
        ];
        // A PEM of an RSA key cannot name PS256.
        if key.alg == Algorithm::PS256 {
            let pem = json!({"pem": key.pem(), "alg": key.alg, "kid": key.kid});
            cases.push(("pem with its algorithm", pem, Some(&key.kid)));
        } else {
            cases.push(("pem", json!({"pem": key.pem()}), None));
        }
        for (form, member, kid) in cases {
            let case = format!("{:?} as {form}", key.alg);
            let configuration = Configuration::default().with("/signing_keys", json!([member]));
            if let Err(log) = world.update(&configuration) {
                findings.add(format!("{case}: refused: {log}"));
                continue;
            }
            let jwks = key_set(&world);
            let published: Jwk = serde_json::from_value(jwks["keys"][0].clone()).unwrap();
            let kid = match kid {
                Some(kid) => kid.clone(),
                None => published.thumbprint(ThumbprintHash::SHA256).unwrap(),
            };
            findings.expect(&case, &jwks["keys"][0]["kid"], &json!(kid));
            findings.expect(&case, &jwks["keys"][0]["alg"], &json!(key.alg));
            let answer = world.exchange(&exchange_form(&world.mint()));
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
    let world = World::start(&signing(&[&old, &new]));
    let token =
        |world: &World| world.exchange(&exchange_form(&world.mint())).member("access_token");
    let kids = |world: &World| {
        let jwks = key_set(world);
        let keys = jwks["keys"].as_array().unwrap();
        keys.iter().map(|key| key["kid"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let by_old = token(&world);
    assert_eq!(verify(&by_old, &key_set(&world)).0["kid"], "old");
    assert_eq!(kids(&world), ["old", "new"]);
    // Rotation: a verifier with the key set from before or after verifies the tokens of both keys.
    world.update(&signing(&[&new, &old])).unwrap();
    let by_new = token(&world);
    assert_eq!(verify(&by_new, &key_set(&world)).0["kid"], "new");
    verify(&by_old, &key_set(&world));
    world.update(&signing(&[&new])).unwrap();
    assert_eq!(kids(&world), ["new"]);
}
