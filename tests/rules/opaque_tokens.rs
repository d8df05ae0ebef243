//! `introspection` and `userinfo`: the filter's requests, the meaning of the answers, and how long
//! they are cached.

use std::collections::HashMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::world::World;
use testkit::Findings;
use testkit::configuration::Configuration;
use testkit::gateway::{exchange_by, mint_by, now, raw_part};
use testkit::http::Answer;
use testkit::server::{Reply, Server};
use testkit::services::{introspection, userinfo};

const MINTERS: &str = "/subject_tokens/authentication/introspection";
const ACTORS: &str = "/actor_tokens/introspection";

/// Sets the introspection answer of each token; all others are not active.
fn knows(service: &Server, tokens: &[(&str, Value)]) {
    let tokens: HashMap<String, Value> =
        tokens.iter().map(|(token, answer)| ((*token).into(), answer.clone())).collect();
    service.answer(move |asked| {
        let token = asked.parameter("token").unwrap();
        Reply::json(tokens.get(&token).unwrap_or(&json!({"active": false})))
    });
}

/// Exchanges a fresh subject token with this actor token.
fn act(world: &World, actor_token: &str) -> Answer {
    world.send(&exchange_by(&world.mint(), actor_token))
}

#[test]
fn an_introspection_request_follows_rfc_7662() {
    let token = "opaque-.~_+/==";
    let (client_id, secret) = ("filter:with/colon", "s3cr:t +%&é\u{20ac}");
    let configuration = Configuration::default()
        .with(MINTERS, introspection("0s", json!(["impersonate"])))
        .with(&format!("{MINTERS}/client_id"), client_id)
        .with(&format!("{MINTERS}/client_secret"), json!({"inline_string": secret}));
    let world = World::start(&configuration);
    let service = world.upstream("introspection");
    knows(service, &[(token, json!({"active": true, "scope": "impersonate", "client_id": "b"}))]);
    let answer = world.send(&mint_by(token, "u-1"));
    assert_eq!(answer.status, 201, "{answer:?}");

    let asked = service.last();
    assert_eq!(
        (asked.method.as_str(), asked.target.as_str()),
        ("POST", "/oidc/token/introspection")
    );
    assert_eq!(asked.header("content-type"), Some("application/x-www-form-urlencoded"));
    assert_eq!(asked.header("host"), Some("introspection.example.com"));
    assert_eq!(asked.parameter("token").as_deref(), Some(token));
    assert_eq!(asked.parameter("token_type_hint").as_deref(), Some("access_token"));
    // RFC 6749 §2.3.1: each half is form-urlencoded, then both are base64.
    let credentials = "filter%3Awith%2Fcolon:s3cr%3At+%2B%25%26%C3%A9%E2%82%AC";
    let expected = format!("Basic {}", STANDARD.encode(credentials));
    assert_eq!(asked.header("authorization"), Some(expected.as_str()));

    let log = world.log();
    for secret in [token, secret, &STANDARD.encode(credentials)] {
        assert!(!log.contains(secret), "{secret:?} in {log}");
    }
}

#[test]
fn introspection_decides_who_may_mint() {
    let active = |members: Value| {
        let mut answer =
            json!({"active": true, "scope": "impersonate", "client_id": "backend", "sub": "s"});
        answer.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        answer
    };
    let past = now() - 10;
    let future = now() + 3600;
    #[rustfmt::skip]
    let cases = [
        ("good",           active(json!({"exp": future})),                     201, ""),
        ("unlimited",      active(json!({})),                                  201, ""),
        ("more-scopes",    active(json!({"scope": "a impersonate b"})),        201, ""),
        ("scopes-in-a-list", active(json!({"scope": ["a", "impersonate"]})),   201, ""),
        ("named-by-sub",   active(json!({"client_id": null})),                 201, ""),
        ("unknown-claims", active(json!({"aud": {"x": 1}, "ext": 7})),         201, ""),
        ("inactive",       json!({"active": false}),                           401, "invalid_token"),
        ("inactive-scope", active(json!({"active": false})),                   401, "invalid_token"),
        ("expired",        active(json!({"exp": past})),                       401, "invalid_token"),
        ("not-yet",        active(json!({"nbf": future})),                     401, "invalid_token"),
        ("delegated",      active(json!({"act": {"sub": "agent-1"}})),         401, "invalid_token"),
        ("nobody",         active(json!({"client_id": null, "sub": null})),    401, "invalid_token"),
        ("no-scope",       active(json!({"scope": null})),                     403, "insufficient_scope"),
        ("other-scope",    active(json!({"scope": "impersonate2 openid"})),    403, "insufficient_scope"),
        ("other-scopes",   active(json!({"scope": ["a impersonate"]})),        403, "insufficient_scope"),
        ("half-scope",     active(json!({"scope": "Impersonate"})),            403, "insufficient_scope"),
        // An answer without a valid introspection response says nothing about the token.
        ("no-verdict",     json!({"scope": "impersonate", "client_id": "b"}),  503, "temporarily_unavailable"),
        ("verdict-string", active(json!({"active": "true"})),                  503, "temporarily_unavailable"),
        ("type-number",    active(json!({"token_type": 7})),                   503, "temporarily_unavailable"),
        ("a-list",         json!([active(json!({}))]),                         503, "temporarily_unavailable"),
    ];
    let configuration =
        Configuration::default().with(MINTERS, introspection("0s", json!(["impersonate"])));
    let world = World::start(&configuration);
    let service = world.upstream("introspection");
    knows(service, &cases.clone().map(|(token, answer, ..)| (token, answer)));
    let mut findings = Findings::default();
    for (token, _, status, error) in cases {
        let answer = world.send(&mint_by(token, "u-1"));
        findings.expect(token, &answer.status, &status);
        if status == 201 {
            continue;
        }
        findings.expect(format!("{token}: error"), &answer.refusal().1, &error.to_owned());
        match status {
            401 | 403 => {
                let (scheme, parameters) = answer.challenge();
                findings.expect(format!("{token}: challenge"), &scheme, &"Bearer".to_owned());
                let said = parameters.contains(&("error".into(), error.into()));
                findings.expect(format!("{token}: error in {parameters:?}"), &said, &true);
            }
            _ => findings.expect(token, &answer.header("retry-after").is_some(), &true),
        }
    }
    let log = world.log();
    assert!(log.contains("insufficient_scope"), "the refusals are logged");
    assert!(!log.contains("named-by-sub"), "a token in the log: {log}");
}

#[test]
fn introspection_decides_who_may_act() {
    let past = now() - 10;
    #[rustfmt::skip]
    let cases = [
        ("good",       json!({"active": true, "scope": "openid", "sub": "agent-1"}),               200),
        ("more",       json!({"active": true, "scope": "email openid x", "sub": "agent-1"}),       200),
        ("no-openid",  json!({"active": true, "scope": "email", "sub": "agent-1"}),                400),
        ("no-scope",   json!({"active": true, "sub": "agent-1"}),                                  400),
        ("no-sub",     json!({"active": true, "scope": "openid", "client_id": "console"}),         400),
        ("delegated",  json!({"active": true, "scope": "openid", "sub": "a", "act": {"sub": "b"}}), 400),
        ("expired",    json!({"active": true, "scope": "openid", "sub": "agent-1", "exp": past}),  400),
        ("inactive",   json!({"active": false}),                                                   400),
    ];
    let configuration = Configuration::default().with(ACTORS, introspection("0s", json!([])));
    let world = World::start(&configuration);
    let service = world.upstream("introspection");
    knows(service, &cases.clone().map(|(token, answer, _)| (token, answer)));
    let mut findings = Findings::default();
    for (token, _, status) in cases {
        let subject_token = world.mint();
        let answer = world.send(&exchange_by(&subject_token, token));
        findings.expect(token, &answer.status, &status);
        if status == 200 {
            let claims = raw_part(&answer.member("access_token"), 1);
            findings.expect(token, &claims["act"], &json!({"sub": "agent-1"}));
        } else {
            findings.expect(token, &answer.refusal().1, &"invalid_request".to_owned());
            let again = world.send(&exchange_by(&subject_token, "good"));
            findings.expect(format!("{token}: then with a good actor"), &again.status, &200);
        }
    }
}

#[test]
fn userinfo_proves_who_acts() {
    let configuration = Configuration::default().with("/actor_tokens/userinfo", userinfo("0s"));
    let world = World::start(&configuration);
    let service = world.upstream("userinfo");
    service.answer(|asked| {
        let token = asked.header("authorization").unwrap().strip_prefix("Bearer ").unwrap();
        match token {
            "good" => Reply::json(&json!({"sub": "agent-1", "email": "a@example.com"})),
            "no-sub" => Reply::json(&json!({"email": "a@example.com"})),
            "empty-sub" => Reply::json(&json!({"sub": ""})),
            status => Reply::status(status.parse().unwrap()),
        }
    });
    let mut findings = Findings::default();
    #[rustfmt::skip]
    let cases = [
        ("good", 200), ("empty-sub", 400), ("400", 400), ("401", 400), ("403", 400),
        ("no-sub", 503), ("204", 503), ("302", 503), ("404", 503), ("429", 503), ("500", 503),
    ];
    for (token, status) in cases {
        let answer = act(&world, token);
        findings.expect(token, &answer.status, &status);
        if status == 200 {
            let claims = raw_part(&answer.member("access_token"), 1);
            findings.expect(token, &claims["act"], &json!({"sub": "agent-1"}));
        }
    }
    let asked = &service.received()[0];
    assert_eq!((asked.method.as_str(), asked.target.as_str()), ("GET", "/oidc/me"));
    assert!(!world.log().contains("empty-sub"), "a token in the log");
}

#[test]
fn an_introspection_answer_is_cached_no_longer_than_configured() {
    let active = json!({"active": true, "scope": "impersonate openid", "sub": "agent-1"});
    let minters = |cache_duration| {
        let introspection = introspection(cache_duration, json!(["impersonate"]));
        Configuration::default().with(MINTERS, introspection)
    };
    // The default, which is also the maximum: 10 s.
    let world = World::start(&minters("10s").without(&format!("{MINTERS}/cache_duration")));
    let service = world.upstream("introspection");
    knows(service, &[("a", active.clone()), ("b", active.clone())]);
    let calls_of = |world: &World, token: &str, count: usize, status: u16| {
        let before = service.calls();
        for _ in 0..count {
            assert_eq!(world.send(&mint_by(token, "u-1")).status, status, "{token}");
        }
        service.calls() - before
    };
    assert_eq!(calls_of(&world, "a", 20, 201), 1);
    assert_eq!(calls_of(&world, "b", 20, 201), 1, "another token is another question");
    assert_eq!(calls_of(&world, "unknown", 20, 401), 1, "a refusal is remembered too");
    // A revocation takes effect within that time.
    let soon = json!({"active": true, "scope": "impersonate", "sub": "s", "exp": now() + 8});
    knows(service, &[("b", active.clone()), ("soon", soon)]);
    assert_eq!(calls_of(&world, "a", 1, 201), 0);
    assert_eq!(calls_of(&world, "soon", 3, 201), 1);
    world.advance(9);
    assert_eq!(world.send(&mint_by("soon", "u-1")).status, 401, "past its own exp");
    world.advance(2);
    assert_eq!(calls_of(&world, "a", 3, 401), 1);
    assert_eq!(calls_of(&world, "b", 3, 201), 1);

    world.update(&minters("0s")).unwrap();
    assert_eq!(calls_of(&world, "b", 5, 201), 5, "0s turns it off");
    knows(service, &[]);
    assert_eq!(calls_of(&world, "b", 1, 401), 1);
}

#[test]
fn an_answer_of_userinfo_is_cached_but_a_failure_is_not() {
    let configuration = Configuration::default().with("/actor_tokens/userinfo", userinfo("6s"));
    let world = World::start(&configuration);
    let service = world.upstream("userinfo");
    service.answer_always(Reply::json(&json!({"sub": "agent-1"})));
    for _ in 0..5 {
        assert_eq!(act(&world, "a").status, 200);
    }
    assert_eq!(service.calls(), 1);
    service.answer_always(Reply::status(401));
    world.advance(7);
    assert_eq!(act(&world, "a").status, 400);
    assert_eq!(act(&world, "a").status, 400);
    assert_eq!(service.calls(), 2);

    service.answer_always(Reply::status(500));
    for _ in 0..3 {
        assert_eq!(act(&world, "c").status, 503);
    }
    assert_eq!(service.calls(), 5);
    service.answer_always(Reply::json(&json!({"sub": "agent-1"})));
    assert_eq!(act(&world, "c").status, 200);
}

#[test]
fn a_jwt_of_a_known_issuer_is_never_introspected() {
    let configuration =
        Configuration::default().with(MINTERS, introspection("0s", json!(["impersonate"])));
    let world = World::start(&configuration);
    let service = world.upstream("introspection");
    world.mint();
    // Malformed tokens are not introspected either: they would only make the provider work.
    for malformed in ["a b", "a\"b", "\u{e9}", "a,b", ""] {
        assert_eq!(world.send(&mint_by(malformed, "u-1")).status, 401, "{malformed:?}");
    }
    assert_eq!(service.calls(), 0);
}

#[test]
fn an_issuer_that_gives_no_answer_says_nothing_about_a_token() {
    let good = json!({"active": true, "sub": "agent-1", "scope": "openid"});
    let json = |body: &[u8]| Reply { body: body.to_vec(), ..Reply::json(&Value::Null) };
    #[rustfmt::skip]
    let useless = [
        ("an error",     Reply { status: 500, ..Reply::json(&good) }),
        ("a timeout",    Reply { status: 504, ..Reply::json(&good) }),
        ("a redirect",   Reply { status: 302, ..Reply::json(&good) }),
        ("a page",       Reply::json(&good).header("content-type", "text/html")),
        ("no JSON",      json(b"{")),
        ("not UTF-8 in a member that nobody reads", json(b"{\"active\":true,\"sub\":\"a\",\"x\":\"\xff\"}")),
        ("another JSON", json(b"[]")),
        // A JSON list can have its values in the order in which a parser expects the members of an
        // object.
        ("a name in a list",  json(b"[\"agent-1\"]")),
        ("members in a list", json(b"[true, \"impersonate openid\", \"client\", \"agent-1\"]")),
    ];
    let mut findings = Findings::default();
    for (name, settings) in
        [("introspection", introspection("10s", json!([]))), ("userinfo", userinfo("10s"))]
    {
        let configuration =
            Configuration::default().with(&format!("/actor_tokens/{name}"), settings);
        let world = World::start(&configuration);
        for (number, (case, reply)) in useless.iter().enumerate() {
            let case = format!("{name}, {case}");
            let exchange = exchange_by(&world.mint(), &format!("opaque-{number}"));
            world.upstream(name).answer_always(reply.clone());
            let answer = world.send(&exchange);
            findings.expect(&case, &answer.refusal(), &(503, "temporarily_unavailable".into()));
            findings.expect(&case, &world.last_event()["reason"], &json!("callout_failed"));
            findings.expect(&case, &world.failures(name), &(number as u64 + 1));
            // The next request asks the service again at once: a failure is not remembered.
            world.upstream(name).answer_always(Reply::json(&good));
            findings.expect(format!("{case}, again"), &world.send(&exchange).status, &200);
        }
    }
}
