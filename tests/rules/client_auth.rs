//! Client authentication: RFC 6749 §2.3 for clients with a secret, `client_id` alone for public
//! clients.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::flow::claims_of;
use crate::world::World;
use testkit::Findings;
use testkit::configuration::{CLIENT_SECRET, Configuration, ORDERS, PAYMENTS, sha256_hex};
use testkit::gateway::{exchange_form, exchange_request};
use testkit::http::{Answer, Form, Request, urlencode};

#[test]
fn each_type_of_client_authenticates_in_its_own_way() {
    let world = World::start(&Configuration::default());
    let mut findings = Findings::default();
    for (client, confidential) in [
        ("support-console", false),
        ("support-app", false),
        ("support-portal", true),
        ("support-robot", true),
    ] {
        let token = world.mint();
        let request = exchange_request(&exchange_form(&token).set("client_id", client));
        let answer = world.send(&request);
        if confidential {
            findings.expect(
                format!("{client} without Basic"),
                &answer.refusal(),
                &(401, "invalid_client".into()),
            );
            let answer = world.send(&request.basic(client, &CLIENT_SECRET));
            expect_client(&mut findings, &format!("{client}, both"), &answer, client);
            let only_basic = exchange_request(&exchange_form(&world.mint()).without("client_id"));
            let answer = world.send(&only_basic.basic(client, &CLIENT_SECRET));
            expect_client(&mut findings, &format!("{client}, Basic alone"), &answer, client);
        } else {
            expect_client(&mut findings, client, &answer, client);
        }
    }
}

fn expect_client(findings: &mut Findings, case: &str, answer: &Answer, client: &str) {
    findings.expect(case, &answer.status, &200);
    if answer.status == 200 {
        findings.expect(case, &claims_of(answer)["client_id"], &json!(client));
    }
}

#[test]
fn the_basic_scheme_is_case_insensitive() {
    let world = World::start(&Configuration::default());
    let pair = STANDARD.encode(format!("support-portal:{}", *CLIENT_SECRET));
    for scheme in ["basic", "BASIC"] {
        let form = exchange_form(&world.mint()).without("client_id");
        let request = exchange_request(&form).header("authorization", format!("{scheme} {pair}"));
        assert_eq!(world.send(&request).status, 200, "{scheme}");
    }
}

#[test]
fn ids_and_secrets_of_any_characters_are_read_form_urlencoded() {
    let (id, secret) = ("portal: a+b%2F&=", "s:e c+r%et/=&ü");
    let client = json!({
        "client_id": id,
        "type": "traditional_web",
        "client_secret_sha256": [sha256_hex(secret)],
    });
    let world = World::start(&Configuration::default().with("/clients/-", client));
    let token = world.mint();
    let form = exchange_form(&token).set("client_id", id);
    let plain = STANDARD.encode(format!("{id}:{secret}"));
    let answer =
        world.send(&exchange_request(&form).header("authorization", format!("Basic {plain}")));
    assert_ne!(answer.status, 200, "an unescaped colon in the id must not be accepted: {answer:?}");
    let answer = world.send(&exchange_request(&form).basic(id, secret));
    let mut findings = Findings::default();
    expect_client(&mut findings, "urlencoded", &answer, id);
}

/// RFC 6749 §2.3.1 form-urlencodes both halves of Basic's pair. Many clients send it as it is (RFC
/// 7617 §2).
#[test]
fn a_secret_of_any_characters_is_read_as_it_is_or_form_urlencoded() {
    #[rustfmt::skip]
    let secrets = ["a+b", "100%sure", "50%25", "padded==", "a:b:c", "x&y=z", "two words", "clé-é", "+%=:& é"];
    let clients = secrets.iter().enumerate().map(|(number, secret)| {
        json!({"client_id": format!("client {number}+"), "type": "traditional_web", "client_secret_sha256": [sha256_hex(secret)]})
    });
    let configuration = clients.fold(Configuration::default(), |configuration, client| {
        configuration.with("/clients/-", client)
    });
    let world = World::start(&configuration);
    let token = world.mint();
    let mut findings = Findings::default();
    let encoded = |text: &str| urlencode(text.as_bytes());
    for (number, secret) in secrets.iter().enumerate() {
        let id = format!("client {number}+");
        let send = |token: &str, form_id: Option<&str>, pair: String| {
            let form = exchange_form(token).without("client_id");
            let form = form_id.into_iter().fold(form, |form, id| form.set("client_id", id));
            let pair = format!("Basic {}", STANDARD.encode(pair));
            world.send(&exchange_request(&form).header("authorization", pair))
        };
        for (reading, pair) in [
            ("as it is", format!("{id}:{secret}")),
            ("urlencoded", format!("{}:{}", encoded(&id), encoded(secret))),
        ] {
            for form_id in [None, Some(&*id)] {
                let answer = send(&world.mint(), form_id, pair.clone());
                let case = format!("{secret} {reading}, client_id {form_id:?} in the form");
                expect_client(&mut findings, &case, &answer, &id);
            }
            let twice = format!("{}:{}", encoded(&encoded(&id)), encoded(&encoded(secret)));
            #[rustfmt::skip]
            let refused = [
                ("another in the form", Some("support-portal"), pair.clone()),
                ("and more",            None,                   format!("{pair}x")),
                ("encoded twice",       None,                   twice),
            ];
            for (case, form_id, pair) in refused {
                let refusal = send(&token, form_id, pair).refusal();
                let case = format!("{secret} {reading}, {case}");
                findings.expect(case, &refusal, &(401, "invalid_client".into()));
            }
        }
    }
    world.assert_spendable(&token, "after wrong credentials");
}

#[test]
fn a_secret_is_rotated_while_the_old_one_still_works() {
    let client = |secrets: &[&str]| {
        let hashes: Vec<_> = secrets.iter().map(|secret| sha256_hex(secret)).collect();
        let client = json!({"client_id": "rotating", "type": "traditional_web", "client_secret_sha256": hashes});
        Configuration::default().with("/clients/-", client)
    };
    let world = World::start(&client(&["old-secret"]));
    let status = |secret: &str| {
        let form = exchange_form(&world.mint()).without("client_id");
        world.send(&exchange_request(&form).basic("rotating", secret)).status
    };
    assert_eq!((status("old-secret"), status("new-secret")), (200, 401));
    world.update(&client(&["old-secret", "new-secret"])).unwrap();
    assert_eq!((status("old-secret"), status("new-secret"), status("third")), (200, 200, 401));
    world.update(&client(&["new-secret"])).unwrap();
    assert_eq!((status("old-secret"), status("new-secret")), (401, 200));
}

#[test]
fn a_client_may_be_restricted_to_some_resources() {
    let client = json!({"client_id": "only-orders", "type": "single_page", "resources": [ORDERS]});
    let world = World::start(&Configuration::default().with("/clients/-", client));
    let token = world.mint();
    let form = exchange_form(&token).set("client_id", "only-orders");
    let elsewhere = form.clone().set("resource", PAYMENTS).set("scope", "payments:read");
    assert_eq!(world.exchange(&elsewhere).refusal(), (400, "invalid_target".into()));
    assert_eq!(world.exchange(&form).status, 200);
}

/// A filter with the client `poster`, which sends its secret in the form.
fn with_poster() -> World {
    let client = json!({
        "client_id": "poster",
        "type": "traditional_web",
        "authentication": "client_secret_post",
        "client_secret_sha256": [sha256_hex(&CLIENT_SECRET)],
    });
    World::start(&Configuration::default().with("/clients/-", client))
}

#[test]
fn a_client_may_be_configured_to_send_its_secret_in_the_form_to_every_endpoint() {
    let world = with_poster();
    let mut findings = Findings::default();
    let token = world.mint();
    let exchange = exchange_form(&token).set("client_id", "poster");
    let with_secret = |form: Form, secret: &str| form.set("client_secret", secret);
    let unauthenticated = (401, "invalid_client".to_owned());
    let form_request = |path: &str, form: &Form| {
        let form = form.encode();
        Request::post(path).header("content-type", "application/x-www-form-urlencoded").body(form)
    };

    let refused = [
        ("no secret", exchange_request(&exchange)),
        ("a wrong one", exchange_request(&with_secret(exchange.clone(), "wrong"))),
        ("an empty one", exchange_request(&with_secret(exchange.clone(), ""))),
        ("by Basic", exchange_request(&exchange).basic("poster", &CLIENT_SECRET)),
        (
            "in the form, and configured for Basic",
            exchange_request(
                &with_secret(exchange.clone(), &CLIENT_SECRET).set("client_id", "support-portal"),
            ),
        ),
    ];
    for (case, request) in refused {
        let answer = world.send(&request);
        findings.expect(case, &answer.refusal(), &unauthenticated);
        let told = answer.member("error_description");
        findings.expect(
            case,
            &(told.contains("Basic") && told.contains("client_secret_post")),
            &true,
        );
    }
    let by_form = with_secret(exchange, &CLIENT_SECRET);
    let in_two_ways = world.send(&exchange_request(&by_form).basic("poster", &CLIENT_SECRET));
    findings.expect("in two ways", &in_two_ways.refusal(), &(400, "invalid_request".into()));

    let answer = world.exchange(&by_form);
    expect_client(&mut findings, "the right secret", &answer, "poster");
    let access_token = answer.member("access_token");
    for (path, body) in [("/oidc/token/introspection", true), ("/oidc/token/revocation", false)] {
        let form = Form::default().set("token", &access_token).set("client_id", "poster");
        for (case, request) in [
            ("wrong", form_request(path, &with_secret(form.clone(), "wrong"))),
            ("by Basic", form_request(path, &form).basic("poster", &CLIENT_SECRET)),
        ] {
            findings.expect(
                format!("{path}, {case}"),
                &world.send(&request).refusal(),
                &unauthenticated,
            );
        }
        let right = with_secret(form, &CLIENT_SECRET);
        let answer = world.send(&form_request(path, &right).basic("poster", &CLIENT_SECRET));
        findings.expect(
            format!("{path}, in two ways"),
            &answer.refusal(),
            &(400, "invalid_request".into()),
        );
        let answer = world.send(&form_request(path, &right));
        findings.expect(path, &answer.status, &200);
        if body {
            findings.expect(path, &answer.json()["active"], &json!(true));
        }
    }
}

/// A client that is an API: RFC 7662 requires it to authenticate for introspection. It can do
/// nothing else.
#[test]
fn a_client_without_resources_can_only_introspect() {
    let client = json!({
        "client_id": "orders-api",
        "type": "machine_to_machine",
        "client_secret_sha256": [sha256_hex(&CLIENT_SECRET)],
        "resources": [],
    });
    let world = World::start(&Configuration::default().with("/clients/-", client));
    let by_the_api = |path: &str, token: &str| {
        let request = Request::post(path)
            .header("content-type", "application/x-www-form-urlencoded")
            .body(Form::default().set("token", token).encode());
        world.send(&request.basic("orders-api", &CLIENT_SECRET))
    };
    let (introspection, revocation) = ("/oidc/token/introspection", "/oidc/token/revocation");

    let outstanding = world.mint();
    let form = exchange_form(&outstanding).set("client_id", "orders-api");
    let answer = world.send(&exchange_request(&form).basic("orders-api", &CLIENT_SECRET));
    assert_eq!(answer.refusal(), (400, "unauthorized_client".into()));
    assert_eq!(by_the_api(revocation, &outstanding).status, 200);
    world.assert_spendable(&outstanding, "after a client that may not exchange it");

    let granted = world.exchange(&exchange_form(&world.mint()));
    let access_token = granted.member("access_token");
    assert_eq!(by_the_api(revocation, &access_token).status, 200);
    let answer = by_the_api(introspection, &access_token);
    assert_eq!((answer.status, &answer.json()["active"]), (200, &json!(true)), "{answer:?}");
}

/// A stranger that tries names, secrets and ways to send them always gets the same answer, byte for
/// byte, whether a client exists or not.
#[test]
fn a_stranger_learns_nothing_of_how_a_client_authenticates() {
    let world = with_poster();
    let token = world.mint();
    let named = |client: &str| exchange_form(&token).set("client_id", client);
    let by_basic =
        |client: &str, secret: &str| exchange_request(&named(client)).basic(client, secret);
    let in_form =
        |client: &str, secret: &str| exchange_request(&named(client).set("client_secret", secret));
    let cases = [
        by_basic("nobody", "guess"),
        in_form("nobody", "guess"),
        exchange_request(&named("nobody")),
        by_basic("support-portal", "guess"),
        in_form("support-portal", &CLIENT_SECRET),
        in_form("support-portal", "guess"),
        exchange_request(&named("support-portal")),
        by_basic("poster", &CLIENT_SECRET),
        in_form("poster", "guess"),
        exchange_request(&named("poster")),
        in_form("support-console", "guess"),
    ];
    let answers = cases.map(|request| {
        let mut answer = world.send(&request);
        assert_eq!(world.last_event()["reason"], "client_authentication", "{request:?}");
        answer.headers.retain(|(name, _)| name != "date");
        (answer.refusal(), answer.text(), answer.headers)
    });
    assert_eq!(answers[0].0, (401, "invalid_client".into()));
    for (number, answer) in answers.iter().enumerate() {
        assert_eq!(answer, &answers[0], "case {number}");
    }
    assert_eq!(world.send(&in_form("poster", &CLIENT_SECRET)).status, 200);
}
