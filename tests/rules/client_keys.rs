//! Client authentication by keys: assertions (RFC 7523 with draft-ietf-oauth-rfc7523bis), at each
//! endpoint that authenticates clients.

use jsonwebtoken::Algorithm;
use serde_json::{Value, json};

use crate::world::World;
use testkit::Findings;
use testkit::configuration::{CLIENT_SECRET, Configuration, ISSUER, ORDERS, jwks, sha256_hex};
use testkit::gateway::{exchange_form, exchange_request};
use testkit::holder::{ASSERTION_TYPE, Holder, assertion_claims, changed};
use testkit::http::{Answer, Form, Request};
use testkit::keys::Key;

fn configuration(holder: &Holder) -> Configuration {
    let client = |client_id: &str| {
        json!({
            "client_id": client_id, "type": "traditional_web", "authentication": "private_key_jwt",
            "local_jwks": jwks(&[&holder.key]),
        })
    };
    Configuration::default()
        .with("/clients/-", client("signer"))
        .with("/clients/-", client("other"))
}

fn with_assertion(form: Form, assertion: &str) -> Form {
    form.set("client_assertion_type", ASSERTION_TYPE).set("client_assertion", assertion)
}

fn post(world: &World, path: &str, form: &Form) -> Answer {
    let request = Request::post(path).header("content-type", "application/x-www-form-urlencoded");
    world.send(&request.body(form.encode()))
}

#[test]
fn an_assertion_authenticates_its_client_at_every_endpoint() {
    let holder = Holder::new(Algorithm::ES256);
    let world = World::start(&configuration(&holder));
    let assertion = || holder.assert(&assertion_claims("signer", ISSUER));
    let form = exchange_form(&world.mint()).without("client_id");
    let exchanged = world.exchange(&with_assertion(form, &assertion()));
    assert_eq!(exchanged.status, 200, "{exchanged:?}");
    let token = Form::default().set("token", &exchanged.member("access_token"));
    let named = with_assertion(token.clone(), &assertion()).set("client_id", "signer");
    let introspected = post(&world, "/oidc/token/introspection", &named);
    assert_eq!(introspected.json()["active"], json!(true), "{introspected:?}");
    let revoked =
        post(&world, "/oidc/token/revocation", &with_assertion(token.clone(), &assertion()));
    assert_eq!(revoked.status, 200, "{revoked:?}");
    let ended = post(&world, "/oidc/token/introspection", &with_assertion(token, &assertion()));
    assert_eq!(ended.json()["active"], json!(false), "{ended:?}");
}

/// RFC 6749 §2.3: a client may have several methods, and a request uses one.
#[test]
fn a_client_with_a_list_of_methods_uses_one_in_each_request() {
    let holder = Holder::new(Algorithm::ES256);
    let client = json!({
        "client_id": "several", "type": "traditional_web",
        "authentication": ["client_secret_basic", "private_key_jwt"],
        "client_secret_sha256": [sha256_hex(&CLIENT_SECRET)], "local_jwks": jwks(&[&holder.key]),
    });
    let by_form = json!({
        "client_id": "posts", "type": "traditional_web",
        "authentication": ["client_secret_basic", "client_secret_post"],
        "client_secret_sha256": [sha256_hex(&CLIENT_SECRET)],
    });
    let configuration =
        Configuration::default().with("/clients/-", client).with("/clients/-", by_form);
    let world = World::start(&configuration);
    let assertion = || holder.assert(&assertion_claims("several", ISSUER));
    let asked =
        |client: &str, token: &str| Form::default().set("token", token).set("client_id", client);
    let mut findings = Findings::default();
    for client in ["several", "posts"] {
        let exchange = || exchange_form(&world.mint()).set("client_id", client);
        let by_basic = |form: &Form, path: &str| {
            let request = Request::post(path)
                .header("content-type", "application/x-www-form-urlencoded")
                .body(form.encode());
            world.send(&request.basic(client, &CLIENT_SECRET))
        };
        let by_other = |form: Form| match client {
            "several" => with_assertion(form, &assertion()),
            _ => form.set("client_secret", &CLIENT_SECRET),
        };
        let basic = by_basic(&exchange(), "/oidc/token");
        findings.expect(format!("{client}, Basic"), &basic.status, &200);
        let other = world.exchange(&by_other(exchange()));
        findings.expect(format!("{client}, its other method"), &other.status, &200);
        if basic.status == 200 {
            let token = basic.member("access_token");
            let path = "/oidc/token/revocation";
            let revoked = post(&world, path, &by_other(asked(client, &token)));
            findings.expect(format!("{client}, revocation"), &revoked.status, &200);
            let told = by_basic(&asked(client, &token), "/oidc/token/introspection");
            findings.expect(format!("{client}, ended"), &told.json()["active"], &json!(false));
        }
        let twice = by_basic(&by_other(exchange()), "/oidc/token");
        findings.expect(
            format!("{client}, both at once"),
            &twice.refusal(),
            &(400, "invalid_request".into()),
        );
        let none = world.exchange(&exchange());
        findings.expect(
            format!("{client}, none"),
            &none.refusal(),
            &(401, "invalid_client".into()),
        );
    }
    let form = exchange_form(&world.mint()).set("client_id", "several");
    let answer = world.exchange(&form.set("client_secret", &CLIENT_SECRET));
    findings.expect(
        "a method that is not listed",
        &answer.refusal(),
        &(401, "invalid_client".into()),
    );
}

#[test]
fn each_rule_for_assertions_refuses_at_every_endpoint() {
    let (holder, stranger) = (Holder::new(Algorithm::ES256), Holder::new(Algorithm::ES256));
    let world = World::start(&configuration(&holder));
    let now = testkit::gateway::now();
    let claims = assertion_claims("signer", ISSUER);
    let with = |changes: Value| holder.assert(&changed(claims.clone(), &changes));
    let with_header = |header: Value| {
        let own = json!({"alg": holder.key.alg, "kid": holder.key.kid});
        holder.key.sign_with(&changed(own, &header), &claims)
    };
    let used = with(json!({}));
    let form = exchange_form(&world.mint()).without("client_id");
    assert_eq!(world.exchange(&with_assertion(form, &used)).status, 200);
    #[rustfmt::skip]
    let assertions = [
        ("used before",                  used),
        ("the same jti",                 with(json!({"iat": now - 1}))),
        ("no aud",                       with(json!({"jti": "1", "aud": null}))),
        ("another aud",                  with(json!({"jti": "1", "aud": "https://other.example.com"}))),
        ("the token endpoint as aud",    with(json!({"jti": "1", "aud": format!("{ISSUER}/token")}))),
        ("several aud",                  with(json!({"jti": "1", "aud": [ISSUER, "https://other.example.com"]}))),
        ("an empty list as aud",         with(json!({"jti": "1", "aud": []}))),
        ("another sub",                  with(json!({"jti": "1", "sub": "other"}))),
        ("no sub",                       with(json!({"jti": "1", "sub": null}))),
        ("no iss",                       with(json!({"jti": "1", "iss": null}))),
        ("an unknown client",            with(json!({"jti": "1", "iss": "nobody", "sub": "nobody"}))),
        ("a client with a secret",       with(json!({"jti": "1", "iss": "support-portal", "sub": "support-portal"}))),
        ("no exp",                       with(json!({"jti": "1", "exp": null}))),
        ("expired",                      with(json!({"jti": "1", "exp": now - 60}))),
        ("more than 5 minutes ahead",    with(json!({"jti": "1", "exp": now + 600}))),
        ("not valid yet",                with(json!({"jti": "1", "nbf": now + 120}))),
        ("made in the future",           with(json!({"jti": "1", "iat": now + 120}))),
        ("no jti",                       with(json!({"jti": null}))),
        ("an empty jti",                 with(json!({"jti": ""}))),
        ("an access token",              with_header(json!({"typ": "at+jwt"}))),
        ("a proof",                      with_header(json!({"typ": "dpop+jwt"}))),
        ("none",                         format!("{}.", testkit::keys::unsigned(&json!({"alg": "none"}), &claims))),
        ("an HMAC",                      format!("{}.AAAA", testkit::keys::unsigned(&json!({"alg": "HS256"}), &claims))),
        ("another key",                  stranger.assert(&changed(claims.clone(), &json!({"jti": "1"})))),
        ("no JWT",                       "an assertion".to_owned()),
    ];
    let mut findings = Findings::default();
    let subject_token = world.mint();
    let exchange = exchange_form(&subject_token).without("client_id");
    let asked = Form::default().set("token", &subject_token);
    for (case, assertion) in assertions {
        for (path, form) in [
            ("/oidc/token", &exchange),
            ("/oidc/token/introspection", &asked),
            ("/oidc/token/revocation", &asked),
        ] {
            let answer = post(&world, path, &with_assertion(form.clone(), &assertion));
            findings.expect(
                format!("{case}, {path}"),
                &answer.refusal(),
                &(401, "invalid_client".into()),
            );
        }
    }
    world.assert_spendable(&subject_token, "after bad assertions");
}

#[test]
fn a_request_uses_one_method_of_authentication() {
    let holder = Holder::new(Algorithm::ES256);
    let world = World::start(&configuration(&holder));
    let assertion = || holder.assert(&assertion_claims("signer", ISSUER));
    let token = world.mint();
    let form = exchange_form(&token).set("client_id", "signer");
    let asserted = with_assertion(form.clone(), &assertion());
    let refused = (400, "invalid_request".into());
    let basic = exchange_request(&asserted).basic("signer", &CLIENT_SECRET);
    assert_eq!(world.send(&basic).refusal(), refused, "Basic beside an assertion");
    let post = asserted.clone().set("client_secret", &CLIENT_SECRET);
    assert_eq!(world.exchange(&post).refusal(), refused, "a secret beside an assertion");
    let unauthorized = (401, "invalid_client".into());
    assert_eq!(world.exchange(&form).refusal(), unauthorized, "no assertion");
    let secret = exchange_request(&form).basic("signer", &CLIENT_SECRET);
    assert_eq!(world.send(&secret).refusal(), unauthorized, "a secret instead");
    let untyped = form.clone().set("client_assertion", &assertion());
    assert_eq!(world.exchange(&untyped).refusal(), unauthorized, "no type");
    let other = with_assertion(exchange_form(&token).set("client_id", "other"), &assertion());
    assert_eq!(world.exchange(&other).refusal(), unauthorized, "another client in the form");
    let public = with_assertion(exchange_form(&token), &assertion());
    assert_eq!(world.exchange(&public).refusal(), unauthorized, "a public client in the form");
    for typ in ["JWT", "client-authentication+jwt"] {
        let header = json!({"alg": holder.key.alg, "kid": holder.key.kid, "typ": typ});
        let typed = holder.key.sign_with(&header, &assertion_claims("signer", ISSUER));
        let form = exchange_form(&world.mint()).without("client_id");
        assert_eq!(world.exchange(&with_assertion(form, &typed)).status, 200, "{typ}");
    }
    let listed = changed(assertion_claims("signer", ISSUER), &json!({"aud": [ISSUER]}));
    let listed =
        with_assertion(exchange_form(&token).without("client_id"), &holder.assert(&listed));
    assert_eq!(world.exchange(&listed).status, 200, "a list of one audience");
}

/// FAPI 2.0 Security Profile, sections 5.3.2.1 and 5.4.1: what cannot be refused at load.
#[test]
fn the_profile_refuses_what_it_forbids_in_requests() {
    let holder = Holder::new(Algorithm::ES256);
    let es384 = Holder { key: Key::generate(Algorithm::ES384, "p384") };
    let rs256 = Holder { key: Key::generate(Algorithm::RS256, "rsa") };
    let keys: Vec<_> = [&holder, &es384, &rs256].iter().map(|holder| holder.jwk()).collect();
    let keys = json!({"inline_string": json!({"keys": keys}).to_string()});
    let client = json!({
        "client_id": "signer", "type": "traditional_web", "authentication": "private_key_jwt",
        "local_jwks": keys, "token_binding": "dpop",
    });
    let configuration =
        Configuration::default().with("/profile", "fapi2").with("/clients", json!([client])).with(
            "/resources",
            json!([
                {"indicator": ORDERS, "scopes": ["orders:read"], "token_binding": "any"},
            ]),
        );
    let world = World::start(&configuration);
    let token = world.mint();
    let form = exchange_form(&token).without("client_id");
    let send = |assertion: &str, proof: &str| {
        let form = with_assertion(form.clone(), assertion);
        world.send(&exchange_request(&form).header("DPoP", proof))
    };
    let claims = || assertion_claims("signer", ISSUER);
    let proof = |holder: &Holder| holder.proof("POST", "https://auth.example.com/oidc/token");
    let listed = changed(claims(), &json!({"aud": [ISSUER]}));
    let mut findings = Findings::default();
    for (case, assertion) in [
        ("a list as aud", holder.assert(&listed)),
        ("ES384", es384.assert(&claims())),
        ("RS256", rs256.assert(&claims())),
    ] {
        let answer = send(&assertion, &proof(&holder));
        findings.expect(case, &answer.refusal(), &(401, "invalid_client".into()));
    }
    let answer = send(&holder.assert(&claims()), &proof(&es384));
    findings.expect("a proof by ES384", &answer.refusal(), &(400, "invalid_dpop_proof".into()));
    let answer = send(&holder.assert(&claims()), &proof(&holder));
    findings.expect("what it allows", &answer.status, &200);
}
