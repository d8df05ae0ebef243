//! `introspection` and `userinfo`: the filter's requests, the meaning of the answers, and how long
//! they are cached.

use std::collections::HashMap;
use std::thread::sleep;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{echoing_gateway, exchange_by, introspection, mint_with, userinfo};
use testkit::Findings;
use testkit::configuration::Configuration;
use testkit::envoy::Envoy;
use testkit::gateway::{in_front_of, mint_request, minted, now, raw_part};
use testkit::http::Answer;
use testkit::server::{Reply, Server};

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

fn start(configuration: &Configuration, service: &Server) -> Envoy {
    in_front_of(&[&echoing_gateway(), service], configuration).start()
}

/// Exchanges a fresh subject token with this actor token.
fn act(envoy: &Envoy, actor_token: &str) -> Answer {
    envoy.send(&exchange_by(&minted(&envoy.send(&mint_request("u-1"))), actor_token))
}

#[test]
fn an_introspection_request_follows_rfc_7662() {
    let service = Server::start("introspection");
    let token = "opaque-.~_+/==";
    knows(&service, &[(token, json!({"active": true, "scope": "impersonate", "client_id": "b"}))]);
    let (client_id, secret) = ("filter:with/colon", "s3cr:t +%&é\u{20ac}");
    let configuration = Configuration::default()
        .with(MINTERS, introspection(&service, "0s", json!(["impersonate"])))
        .with(&format!("{MINTERS}/client_id"), client_id)
        .with(&format!("{MINTERS}/client_secret"), json!({"inline_string": secret}));
    let envoy = start(&configuration, &service);
    let answer = envoy.send(&mint_with(token));
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

    let log = envoy.log();
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
    let service = Server::start("introspection");
    knows(&service, &cases.clone().map(|(token, answer, ..)| (token, answer)));
    let configuration = Configuration::default()
        .with(MINTERS, introspection(&service, "0s", json!(["impersonate"])));
    let envoy = start(&configuration, &service);
    let mut findings = Findings::default();
    for (token, _, status, error) in cases {
        let answer = envoy.send(&mint_with(token));
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
    let log = envoy.log();
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
    let service = Server::start("introspection");
    knows(&service, &cases.clone().map(|(token, answer, _)| (token, answer)));
    let configuration =
        Configuration::default().with(ACTORS, introspection(&service, "0s", json!([])));
    let envoy = start(&configuration, &service);
    let mut findings = Findings::default();
    for (token, _, status) in cases {
        let subject_token = minted(&envoy.send(&mint_request("u-1")));
        let answer = envoy.send(&exchange_by(&subject_token, token));
        findings.expect(token, &answer.status, &status);
        if status == 200 {
            let claims = raw_part(&answer.member("access_token"), 1);
            findings.expect(token, &claims["act"], &json!({"sub": "agent-1"}));
        } else {
            findings.expect(token, &answer.refusal().1, &"invalid_request".to_owned());
            let again = envoy.send(&exchange_by(&subject_token, "good"));
            findings.expect(format!("{token}: then with a good actor"), &again.status, &200);
        }
    }
}

#[test]
fn userinfo_proves_who_acts() {
    let service = Server::start("userinfo");
    service.answer(|asked| {
        let token = asked.header("authorization").unwrap().strip_prefix("Bearer ").unwrap();
        match token {
            "good" => Reply::json(&json!({"sub": "agent-1", "email": "a@example.com"})),
            "no-sub" => Reply::json(&json!({"email": "a@example.com"})),
            "empty-sub" => Reply::json(&json!({"sub": ""})),
            status => Reply::status(status.parse().unwrap()),
        }
    });
    let configuration =
        Configuration::default().with("/actor_tokens/userinfo", userinfo(&service, "0s"));
    let envoy = start(&configuration, &service);
    let mut findings = Findings::default();
    #[rustfmt::skip]
    let cases = [
        ("good", 200), ("empty-sub", 400), ("400", 400), ("401", 400), ("403", 400),
        ("no-sub", 503), ("204", 503), ("302", 503), ("404", 503), ("429", 503), ("500", 503),
    ];
    for (token, status) in cases {
        let answer = act(&envoy, token);
        findings.expect(token, &answer.status, &status);
        if status == 200 {
            let claims = raw_part(&answer.member("access_token"), 1);
            findings.expect(token, &claims["act"], &json!({"sub": "agent-1"}));
        }
    }
    let asked = &service.received()[0];
    assert_eq!((asked.method.as_str(), asked.target.as_str()), ("GET", "/oidc/me"));
    assert!(!envoy.log().contains("empty-sub"), "a token in the log");
}

#[test]
fn an_introspection_answer_is_cached_no_longer_than_configured() {
    let active = json!({"active": true, "scope": "impersonate openid", "sub": "agent-1"});
    let service = Server::start("introspection");
    knows(&service, &[("a", active.clone()), ("b", active.clone())]);
    let minters = |cache_duration| {
        let introspection = introspection(&service, cache_duration, json!(["impersonate"]));
        Configuration::default().with(MINTERS, introspection)
    };
    // The default, which is also the maximum: 10 s.
    let envoy = start(&minters("10s").without(&format!("{MINTERS}/cache_duration")), &service);
    let calls_of = |envoy: &Envoy, token: &str, count: usize, status: u16| {
        let before = service.calls();
        for _ in 0..count {
            assert_eq!(envoy.send(&mint_with(token)).status, status, "{token}");
        }
        service.calls() - before
    };
    assert_eq!(calls_of(&envoy, "a", 20, 201), 1);
    assert_eq!(calls_of(&envoy, "b", 20, 201), 1, "another token is another question");
    assert_eq!(calls_of(&envoy, "unknown", 20, 401), 1, "a refusal is remembered too");
    // A revocation takes effect within that time.
    let soon = json!({"active": true, "scope": "impersonate", "sub": "s", "exp": now() + 8});
    knows(&service, &[("b", active.clone()), ("soon", soon)]);
    assert_eq!(calls_of(&envoy, "a", 1, 201), 0);
    assert_eq!(calls_of(&envoy, "soon", 3, 201), 1);
    sleep(Duration::from_millis(8200));
    assert_eq!(envoy.send(&mint_with("soon")).status, 401, "past its own exp");
    sleep(Duration::from_millis(2200));
    assert_eq!(calls_of(&envoy, "a", 3, 401), 1);
    assert_eq!(calls_of(&envoy, "b", 3, 201), 1);
    drop(envoy);

    let envoy = start(&minters("0s"), &service);
    assert_eq!(calls_of(&envoy, "b", 5, 201), 5, "0s turns it off");
    knows(&service, &[]);
    assert_eq!(calls_of(&envoy, "b", 1, 401), 1);
}

#[test]
fn an_answer_of_userinfo_is_cached_but_a_failure_is_not() {
    let service = Server::start("userinfo");
    service.answer_always(Reply::json(&json!({"sub": "agent-1"})));
    let configuration =
        Configuration::default().with("/actor_tokens/userinfo", userinfo(&service, "6s"));
    let envoy = start(&configuration, &service);
    for _ in 0..5 {
        assert_eq!(act(&envoy, "a").status, 200);
    }
    assert_eq!(service.calls(), 1);
    service.answer_always(Reply::status(401));
    sleep(Duration::from_millis(6200));
    assert_eq!(act(&envoy, "a").status, 400);
    assert_eq!(act(&envoy, "a").status, 400);
    assert_eq!(service.calls(), 2);

    service.answer_always(Reply::status(500));
    for _ in 0..3 {
        assert_eq!(act(&envoy, "c").status, 503);
    }
    assert_eq!(service.calls(), 5);
    service.answer_always(Reply::json(&json!({"sub": "agent-1"})));
    assert_eq!(act(&envoy, "c").status, 200);
}

#[test]
fn a_jwt_of_a_known_issuer_is_never_introspected() {
    let service = Server::start("introspection");
    let configuration = Configuration::default()
        .with(MINTERS, introspection(&service, "0s", json!(["impersonate"])));
    let envoy = start(&configuration, &service);
    minted(&envoy.send(&mint_request("u-1")));
    // Malformed tokens are not introspected either: they would only make the provider work.
    for malformed in ["a b", "a\"b", "\u{e9}", "a,b", ""] {
        assert_eq!(envoy.send(&mint_with(malformed)).status, 401, "{malformed:?}");
    }
    assert_eq!(service.calls(), 0);
}
