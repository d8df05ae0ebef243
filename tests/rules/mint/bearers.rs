//! The bearer that a mint presents: which one may mint.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey};
use serde_json::{Value, json};

use super::MINT;
use crate::rules::flow::describes;
use crate::world::World;
use testkit::Findings;
use testkit::configuration::{Configuration, ISSUER, MANAGEMENT, PROVIDER_KEY, jwks};
use testkit::gateway::{BEARER, backend_claims, now};
use testkit::http::{Answer, Request};
use testkit::keys::{Key, unsigned};
use testkit::refusals::{self, Mint};

/// One provider with a key for each algorithm, and a second one with other rules.
struct Providers {
    world: World,
    keys: Vec<Key>,
    other: Key,
}

impl Providers {
    fn start() -> Self {
        let rsa = &*PROVIDER_KEY;
        let keys = vec![
            rsa.under(Algorithm::RS256, "k-RS256"),
            rsa.under(Algorithm::RS384, "k-RS384"),
            rsa.under(Algorithm::RS512, "k-RS512"),
            rsa.under(Algorithm::PS256, "k-PS256"),
            Key::generate(Algorithm::ES256, "k-ES256"),
            Key::generate(Algorithm::ES384, "k-ES384"),
            Key::generate(Algorithm::EdDSA, "k-EdDSA"),
        ];
        let other = Key::generate(Algorithm::ES256, "other-1");
        let configuration = Configuration::default()
            .with(
                "/subject_tokens/authentication/jwt/0/local_jwks",
                jwks(&keys.iter().collect::<Vec<_>>()),
            )
            .with(
                "/subject_tokens/authentication/jwt/-",
                json!({
                    "issuer": "https://ci.example.com/",
                    "name_prefix": "ci:",
                    "audiences": ["urn:one", "urn:two"],
                    "required_scopes": ["impersonate", "support"],
                    "clock_skew": "0s",
                    "local_jwks": jwks(&[&other]),
                }),
            );
        let world = World::start(&configuration);
        Self { world, keys, other }
    }

    fn key(&self, alg: Algorithm) -> &Key {
        self.keys.iter().find(|key| key.alg == alg).unwrap()
    }

    fn mint(&self, bearer: &str) -> Answer {
        let request = Request::post(MINT).bearer(bearer).json(&json!({"userId": "u-1"}));
        self.world.send(&request)
    }
}

fn other_claims() -> Value {
    let mut claims = backend_claims();
    claims["iss"] = json!("https://ci.example.com/");
    claims["aud"] = json!("urn:two");
    claims["scope"] = json!("support impersonate");
    claims
}

/// Returns the claims of a good token with one of them changed. `Value::Null` leaves it out.
fn claims(name: &str, value: Value) -> Value {
    let mut claims = backend_claims();
    claims[name] = value;
    if claims[name].is_null() {
        claims.as_object_mut().unwrap().remove(name);
    }
    claims
}

#[test]
fn a_backend_may_sign_with_any_of_seven_algorithms() {
    let providers = Providers::start();
    let mut findings = Findings::default();
    for key in &providers.keys {
        // Each bearer is sent twice, because a verified one may be remembered.
        for time in ["first", "second"] {
            let bearer = key.sign(&backend_claims());
            findings.expect(
                format!("{:?}, {time}", key.alg),
                &providers.mint(&bearer).status,
                &201,
            );
        }
    }
}

#[test]
fn a_bearer_may_have_every_shape_that_the_rfcs_allow() {
    let providers = Providers::start();
    let key = providers.key(Algorithm::ES256);
    let now = now();
    #[rustfmt::skip]
    let cases = [
        ("audience in a list",           key.sign(&claims("aud", json!(["urn:else", MANAGEMENT])))),
        ("more scopes than needed",      key.sign(&claims("scope", json!("openid impersonate email")))),
        ("scope as a list",              key.sign(&claims("scope", json!(["openid", "impersonate"])))),
        ("scope as a list, and scp",     key.sign(&with(claims("scope", json!(["openid"])), "scp", json!(["impersonate"])))),
        ("scp as a string",              key.sign(&scp(json!("openid impersonate")))),
        ("scp as a list",                key.sign(&scp(json!(["openid", "impersonate"])))),
        ("expired within the skew",      key.sign(&claims("exp", json!(now - 30)))),
        ("not yet valid, within it",     key.sign(&claims("nbf", json!(now + 30)))),
        ("fractions of a second",        key.sign(&claims("exp", json!((now + 100) as f64 + 0.5)))),
        ("no typ",                       key.sign_with(&json!({"alg": "ES256", "kid": key.kid}), &backend_claims())),
        ("typ JWT",                      key.sign_with(&json!({"alg": "ES256", "kid": key.kid, "typ": "JWT"}), &backend_claims())),
        ("unknown header members",       key.sign_with(&json!({"alg": "ES256", "kid": key.kid, "x": {"y": [1]}}), &backend_claims())),
        ("unknown claims",               key.sign(&claims("realm_access", json!({"roles": ["a"]})))),
        ("a second issuer, by its rules", providers.other.sign(&other_claims())),
    ];
    let mut findings = Findings::default();
    for (case, bearer) in cases {
        findings.expect(case, &providers.mint(&bearer).status, &201);
    }
}

/// A token whose scopes are in `scp`.
fn scp(value: Value) -> Value {
    let mut claims = claims("scope", Value::Null);
    claims["scp"] = value;
    claims
}

#[test]
fn the_bearer_scheme_is_case_insensitive() {
    let world = World::start(&Configuration::default());
    for scheme in ["bearer", "BEARER"] {
        let request = Request::post(MINT)
            .header("authorization", format!("{scheme} {}", *BEARER))
            .json(&json!({"userId": "u-1"}));
        assert_eq!(world.send(&request).status, 201, "{scheme}");
    }
}

#[test]
fn a_bearer_that_proves_nothing_is_refused() {
    let providers = Providers::start();
    let [rsa, ec, ed] =
        [Algorithm::RS256, Algorithm::ES256, Algorithm::EdDSA].map(|alg| providers.key(alg));
    let good = ec.sign(&backend_claims());
    let (head, rest) = good.split_once('.').unwrap();
    let (payload, signature) = rest.split_once('.').unwrap();
    let stranger = Key::generate(Algorithm::ES256, &ec.kid);
    let now = now();
    let with_header = |header: Value| ec.sign_with(&header, &backend_claims());
    let hmac = |secret: &[u8]| {
        let input =
            unsigned(&json!({"alg": "HS256", "typ": "JWT", "kid": rsa.kid}), &backend_claims());
        let key = EncodingKey::from_secret(secret);
        let mac = jsonwebtoken::crypto::sign(input.as_bytes(), &key, Algorithm::HS256).unwrap();
        format!("{input}.{mac}")
    };
    let modulus = rsa.public_jwk()["n"].as_str().unwrap().to_owned();
    let jwk = rsa.public_jwk().to_string();
    let mut raw = URL_SAFE_NO_PAD.decode(signature).unwrap();
    raw[10] ^= 1;
    let bent = URL_SAFE_NO_PAD.encode(&raw);
    let other_payload = URL_SAFE_NO_PAD.encode(claims("sub", json!("someone-else")).to_string());
    let zeros = URL_SAFE_NO_PAD.encode([0; 64]);

    #[rustfmt::skip]
    let cases = [
        ("alg none, a signature",         format!("{}.{signature}", unsigned(&json!({"alg": "none", "kid": ec.kid}), &backend_claims()))),
        ("alg None",                      format!("{}.", unsigned(&json!({"alg": "None", "kid": ec.kid}), &backend_claims()))),
        ("alg missing",                   with_header(json!({"kid": ec.kid}))),
        ("alg unknown",                   with_header(json!({"alg": "ES257", "kid": ec.kid}))),
        ("alg not a string",              with_header(json!({"alg": 7, "kid": ec.kid}))),
        ("HMAC with the modulus",         hmac(modulus.as_bytes())),
        ("HMAC with the raw modulus",     hmac(&URL_SAFE_NO_PAD.decode(&modulus).unwrap())),
        ("HMAC with the public key",      hmac(jwk.as_bytes())),
        ("HMAC with nothing",             hmac(b"")),
        ("another algorithm's key",       ec.sign_with(&json!({"alg": "ES256", "kid": rsa.kid}), &backend_claims())),
        ("RS256 by a key for RS512",      rsa.sign_with(&json!({"alg": "RS256", "kid": "k-RS512"}), &backend_claims())),
        ("PS256 said, RS256 meant",       rsa.sign_with(&json!({"alg": "PS256", "kid": "k-PS256"}), &backend_claims())),
        ("EdDSA said, ES256 meant",       ec.sign_with(&json!({"alg": "EdDSA", "kid": ed.kid}), &backend_claims())),
        ("kid not a string",              with_header(json!({"alg": "ES256", "kid": 1}))),
        ("a stranger's key",              stranger.sign(&backend_claims())),
        ("a key in the header",           stranger.sign_with(&json!({"alg": "ES256", "jwk": stranger.public_jwk()}), &backend_claims())),
        ("a key behind a link",           stranger.sign_with(&json!({"alg": "ES256", "jku": "https://evil.example/", "kid": ec.kid}), &backend_claims())),
        ("crit",                          with_header(json!({"alg": "ES256", "kid": ec.kid, "crit": ["exp"], "exp": 1}))),
        ("crit, empty",                   with_header(json!({"alg": "ES256", "kid": ec.kid, "crit": []}))),
        ("b64 false",                     with_header(json!({"alg": "ES256", "kid": ec.kid, "crit": ["b64"], "b64": false}))),
        ("expiry not a number",           ec.sign(&claims("exp", json!((now + 100).to_string())))),
        ("expiry negative",               ec.sign(&claims("exp", json!(-1)))),
        ("nbf not a number",              ec.sign(&claims("nbf", json!("now")))),
        ("an issuer with a slash more",   ec.sign(&claims("iss", json!(format!("{ISSUER}/"))))),
        ("issuers in a list",             ec.sign(&claims("iss", json!([ISSUER])))),
        ("other audiences",               ec.sign(&claims("aud", json!(["a", "b"])))),
        ("an audience that starts alike", ec.sign(&claims("aud", json!(format!("{MANAGEMENT}/v2"))))),
        ("audience of a wrong type",      ec.sign(&claims("aud", json!({MANAGEMENT: true})))),
        ("the other issuer's name",       ec.sign(&other_claims())),
        ("the other issuer's key",        providers.other.sign(&backend_claims())),
        ("the other issuer's audience",   providers.other.sign(&with(other_claims(), "aud", MANAGEMENT))),
        ("the other issuer's skew",       providers.other.sign(&with(other_claims(), "exp", now - 5))),
        ("claims exchanged",              format!("{head}.{other_payload}.{signature}")),
        ("claims not an object",          ec.sign(&json!([1, 2]))),
        ("claims not JSON",               format!("{head}.{}.{signature}", URL_SAFE_NO_PAD.encode("hello"))),
        ("one bit of the signature",      format!("{head}.{payload}.{bent}")),
        ("signature of zeros",            format!("{head}.{payload}.{zeros}")),
        ("signature cut short",           format!("{head}.{payload}.{}", &signature[..40])),
        ("signature empty",               format!("{head}.{payload}.")),
        ("two parts",                     format!("{head}.{payload}")),
        ("four parts",                    format!("{good}.{signature}")),
        ("five parts",                    format!("{head}.{payload}.{payload}.{payload}.{signature}")),
        ("dots",                          "..".into()),
        ("not base64",                    format!("{head}.{payload}!.{signature}")),
        ("padded base64",                 format!("{head}.{payload}.{signature}==")),
        ("a subject token",               providers.world.send(&Request::post(MINT).bearer(&good).json(&json!({"userId": "u"}))).member("subjectToken")),
    ];
    let mut findings = Findings::default();
    for (case, bearer) in cases {
        let answer = providers.mint(&bearer);
        findings.expect(case, &answer.refusal(), &(401, "invalid_token".into()));
        if answer.status == 401 {
            let (scheme, parameters) = answer.challenge();
            findings.expect(case, &scheme.as_str(), &"Bearer");
            findings.expect(
                case,
                &parameters.first().map(|(name, _)| name.as_str()),
                &Some("realm"),
            );
            let error = parameters
                .iter()
                .find(|(name, _)| name == "error")
                .map(|(_, value)| value.as_str());
            findings.expect(case, &error, &Some("invalid_token"));
        }
        if !bearer.is_empty() && answer.text().contains(&bearer) {
            findings.add(format!("{case}: the bearer comes back in {answer:?}"));
        }
    }
    assert_eq!(providers.mint(&good).status, 201, "the token that the wrong ones were made from");
}

fn with(mut claims: Value, name: &str, value: impl Into<Value>) -> Value {
    claims[name] = value.into();
    claims
}

#[test]
fn a_remembered_bearer_still_expires() {
    let providers = Providers::start();
    // The second issuer allows no clock skew.
    let bearer = providers.other.sign(&with(other_claims(), "exp", now() + 5));
    assert_eq!(providers.mint(&bearer).status, 201);
    providers.world.advance(6);
    assert_eq!(providers.mint(&bearer).refusal(), (401, "invalid_token".into()));
}

#[test]
fn a_request_without_a_bearer_gets_a_challenge_without_an_error_code() {
    let world = World::start(&Configuration::default());
    #[rustfmt::skip]
    let cases = [
        ("no header",       Request::post(MINT)),
        ("Basic",           Request::post(MINT).basic("support-backend", "x")),
        ("another scheme",  Request::post(MINT).header("authorization", "DPoP abc")),
        ("token in a form", Request::post(&format!("{MINT}?access_token={}", *BEARER))),
    ];
    let mut findings = Findings::default();
    for (case, request) in cases {
        let answer = world.send(&request.json(&json!({"userId": "u-1"})));
        findings.expect(case, &answer.refusal(), &(401, "invalid_token".into()));
        let (scheme, parameters) = answer.challenge();
        let names: Vec<_> = parameters.iter().map(|(name, _)| name.as_str()).collect();
        findings.expect(case, &(scheme.as_str(), names), &("Bearer", vec!["realm"]));
    }
}

#[test]
fn a_bearer_without_the_scope_is_told_which_one_it_lacks() {
    let providers = Providers::start();
    let key = providers.key(Algorithm::ES256);
    #[rustfmt::skip]
    let cases = [
        ("no scope at all",          key.sign(&claims("scope", Value::Null))),
        ("empty scope",              key.sign(&claims("scope", json!("")))),
        ("other scopes",             key.sign(&claims("scope", json!("openid email")))),
        ("a scope that starts alike", key.sign(&claims("scope", json!("impersonate:all")))),
        ("a scope that ends alike",  key.sign(&claims("scope", json!("no-impersonate")))),
        ("another case",             key.sign(&claims("scope", json!("Impersonate")))),
        ("scp without it",           key.sign(&scp(json!(["openid"])))),
        ("a list without it",        key.sign(&claims("scope", json!(["openid"])))),
        ("words in an item",         key.sign(&claims("scope", json!(["openid impersonate"])))),
    ];
    let mut findings = Findings::default();
    for (case, bearer) in &cases {
        insufficient(&mut findings, case, &providers.mint(bearer), "impersonate");
    }
    let half = providers.other.sign(&with(other_claims(), "scope", "impersonate"));
    insufficient(&mut findings, "one of two scopes", &providers.mint(&half), "impersonate support");
}

fn insufficient(findings: &mut Findings, case: &str, answer: &Answer, scope: &str) {
    findings.expect(case, &answer.refusal(), &(403, "insufficient_scope".into()));
    if answer.status == 403 {
        let (scheme, parameters) = answer.challenge();
        findings.expect(case, &scheme.as_str(), &"Bearer");
        for (name, value) in [("error", "insufficient_scope"), ("scope", scope)] {
            let wanted = (name.to_owned(), value.to_owned());
            if !parameters.contains(&wanted) {
                findings.add(format!("{case}: no {wanted:?} in {parameters:?}"));
            }
        }
    }
}

#[test]
fn refuses_a_bearer_that_is_not_for_minting() {
    let world = World::start(&Configuration::default());
    let mut findings = Findings::default();
    for &(case, authorization, (status, error, reason)) in refusals::BEARERS {
        let mint = Mint { authorization: authorization(now()), ..Mint::new(now()) };
        let answer = world.send(&mint.request());
        findings.expect(case, &answer.refusal(), &(status, error.into()));
        describes(&mut findings, case, &answer);
        let event = world.last_event();
        findings.expect(case, &event["event"], &json!("subject_token.refused"));
        findings.expect(case, &event["reason"], &json!(reason));
    }
}
