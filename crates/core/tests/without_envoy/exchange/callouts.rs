//! The services that the filter asks during a request: the calls, the meaning of their answers, and
//! that a failure is never a verdict about a token.

use std::time::Duration;

use impersonation_core::metrics;
use impersonation_core::step::{CallFailure, Reply};
use impersonation_core::upstream::Upstream;
use jsonwebtoken::Algorithm;
use serde_json::{Value, json};

use super::setting::{
    ExchangeForm, INTROSPECTION_SECRET, NOW, PROVIDER_KEY, backend_claims, configuration,
    configured, mint_form,
};
use crate::driver::{Answer, Gateway};
use testkit::keys::Key;

pub(super) fn reply(status: u16, body: &Value) -> Reply {
    Reply::Http { status, json: true, body: body.to_string().into_bytes() }
}

pub(super) fn http_uri(path: &str) -> Value {
    json!({"uri": format!("https://auth.example.com{path}"), "cluster": "gateway"})
}

fn introspection() -> Value {
    json!({
        "http_uri": http_uri("/introspection"),
        "client_id": "filter",
        "client_secret": {"inline_string": INTROSPECTION_SECRET},
        "required_scopes": ["openid"],
    })
}

/// The replies that do not count as answers.
fn useless() -> Vec<(&'static str, Reply)> {
    let html = Reply::Http { status: 200, json: false, body: b"<html>".to_vec() };
    vec![
        ("not sent", Reply::Failed(CallFailure::NotSent)),
        ("cut off", Reply::Failed(CallFailure::CutOff)),
        ("an error", reply(500, &json!({}))),
        ("a timeout", reply(504, &json!({}))),
        ("a redirect", reply(302, &json!({}))),
        ("a page", html),
        ("no JSON", Reply::Http { status: 200, json: true, body: b"{".to_vec() }),
        (
            "not UTF-8 in a member that nobody reads",
            Reply::Http {
                status: 200,
                json: true,
                body: b"{\"active\":true,\"sub\":\"a\",\"x\":\"\xff\"}".to_vec(),
            },
        ),
        ("another JSON", reply(200, &json!([]))),
    ]
}

fn assert_unavailable(gateway: &Gateway, answer: &Answer, upstream: Upstream, case: &str) {
    assert_eq!((answer.status, answer.reason()), (503, "callout_failed"), "{case}: {answer:?}");
    assert_eq!(answer.text("error"), "temporarily_unavailable", "{case}");
    let failed = metrics::callout_failed(upstream.name());
    assert_eq!(*gateway.world.counted.borrow(), [failed], "{case}");
    assert_eq!(gateway.world.warnings.borrow().len(), 1, "{case}");
}

#[test]
fn an_opaque_actor_token_is_asked_about() {
    let gateway = Gateway::new(&configured("/actor_tokens/introspection", introspection()));
    let subject_token = gateway.mint();
    gateway.upstream(|_| {
        reply(200, &json!({"active": true, "sub": "agent-8", "scope": "a openid", "exp": NOW + 5}))
    });
    let answer = gateway.exchange(&ExchangeForm::new(&subject_token).actor("opaque/token+=="));
    assert_eq!(answer.event["actor_id"], "agent-8", "{answer:?}");
    let calls = gateway.calls.borrow();
    let call = calls.first().unwrap();
    assert_eq!((call.method, &*call.path), ("POST", "/introspection"));
    assert_eq!(
        String::from_utf8(call.body.clone()).unwrap(),
        "token=opaque%2Ftoken%2B%3D%3D&token_type_hint=access_token"
    );
    let basic = "Basic ZmlsdGVyOmludHJvc3BlY3Rpb24rYmF0dGVyeStzdGFwbGU=".to_owned();
    assert!(call.headers.contains(&("authorization", basic)), "{:?}", call.headers);
}

#[test]
fn an_issuer_that_vouches_for_nothing_costs_no_token() {
    let good = json!({"active": true, "sub": "agent-8", "scope": "openid"});
    let changed = |name: &str, value: Value| {
        let mut answer = good.clone();
        answer[name] = value;
        answer
    };
    #[rustfmt::skip]
    let cases = [
        ("inactive",      json!({"active": false})),
        ("without openid", changed("scope", json!("profile"))),
        ("expired",       changed("exp", json!(NOW))),
        ("not yet valid", changed("nbf", json!(NOW + 1))),
        ("delegated",     changed("act", json!({"sub": "x"}))),
        ("nameless",      changed("sub", json!(""))),
    ];
    for (case, verdict) in cases {
        let gateway = Gateway::new(&configured("/actor_tokens/introspection", introspection()));
        let subject_token = gateway.mint();
        gateway.upstream(move |_| reply(200, &verdict));
        let answer = gateway.exchange(&ExchangeForm::new(&subject_token).actor("opaque"));
        assert_eq!((answer.status, answer.reason()), (400, "actor_token"), "{case}: {answer:?}");
        assert!(gateway.world.counted.borrow().is_empty(), "{case}");
        gateway.assert_spendable(&subject_token, case);
    }
}

#[test]
fn an_issuer_that_gives_no_answer_says_nothing_about_a_token() {
    for (upstream, member, settings) in [
        (Upstream::Introspection, "introspection", introspection()),
        (Upstream::Userinfo, "userinfo", json!({"http_uri": http_uri("/me")})),
    ] {
        for (case, failure) in useless() {
            let gateway =
                Gateway::new(&configured(&format!("/actor_tokens/{member}"), settings.clone()));
            let subject_token = gateway.mint();
            let form = ExchangeForm::new(&subject_token).actor("opaque");
            gateway.upstream(move |_| failure.clone());
            assert_unavailable(&gateway, &gateway.exchange(&form), upstream, case);
            // The next request asks the service again at once: a failure is not remembered.
            gateway
                .upstream(|_| reply(200, &json!({"active": true, "sub": "a", "scope": "openid"})));
            assert_eq!(gateway.exchange(&form).status, 200, "{case}");
        }
    }
}

#[test]
fn an_answer_is_remembered_for_a_moment_and_for_its_own_token_only() {
    let gateway = Gateway::new(&configured("/actor_tokens/introspection", introspection()));
    let form = |gateway: &Gateway| ExchangeForm::new(&gateway.mint());
    let active = || json!({"active": true, "sub": "agent-8", "scope": "openid"});
    gateway.upstream(move |_| reply(200, &active()));
    for _ in 0..2 {
        assert_eq!(gateway.exchange(&form(&gateway).actor("opaque")).status, 200);
        gateway.world.advance(Duration::from_millis(4999));
    }
    gateway.upstream(|_| reply(200, &json!({"active": false})));
    assert_eq!(gateway.exchange(&form(&gateway).actor("other")).status, 400);
    gateway.world.advance(Duration::from_millis(2));
    gateway.upstream(|_| reply(200, &json!({"active": false})));
    assert_eq!(gateway.exchange(&form(&gateway).actor("opaque")).status, 400, "asked again");
    assert_eq!(gateway.calls.borrow().len(), 3);
}

#[test]
fn userinfo_proves_a_user() {
    let userinfo = json!({"http_uri": http_uri("/me")});
    for (status, body, granted) in [
        (200, json!({"sub": "agent-9"}), 200),
        (200, json!({"sub": ""}), 400),
        (401, json!({"error": "invalid_token"}), 400),
        (403, json!({"error": "insufficient_scope"}), 400),
    ] {
        let gateway = Gateway::new(&configured("/actor_tokens/userinfo", userinfo.clone()));
        let subject_token = gateway.mint();
        let case = format!("{status} {body}");
        gateway.upstream(move |call| {
            assert_eq!((call.method, &*call.path), ("GET", "/me"));
            assert!(call.headers.contains(&("authorization", "Bearer opaque".to_owned())));
            reply(status, &body)
        });
        let answer = gateway.exchange(&ExchangeForm::new(&subject_token).actor("opaque"));
        assert_eq!(answer.status, granted, "{case}: {answer:?}");
    }
}

#[test]
fn a_user_is_looked_up_on_behalf_of_the_caller() {
    let lookup = json!({"http_uri": http_uri("/api/users/{userId}?fields=id")});
    for (status, minted, error) in [
        (200, 201, None),
        (204, 201, None),
        (404, 404, Some("user_not_found")),
        (401, 403, Some("insufficient_scope")),
        (403, 403, Some("insufficient_scope")),
        (500, 503, Some("temporarily_unavailable")),
        (302, 503, Some("temporarily_unavailable")),
    ] {
        let gateway = Gateway::new(&configured("/subject_tokens/user_lookup", lookup.clone()));
        let form = mint_form().body(json!({"userId": "a/b?c#ü %2f"}).to_string());
        let authorization = form.authorization.clone().unwrap();
        gateway.upstream(move |call| {
            assert_eq!(call.path, "/api/users/a%2Fb%3Fc%23%C3%BC%20%252f?fields=id");
            assert!(call.headers.contains(&("authorization", authorization.clone())));
            reply(status, &json!({}))
        });
        let answer = gateway.send(&form.request());
        assert_eq!(answer.status, minted, "{status}: {answer:?}");
        assert_eq!(answer.body["error"].as_str(), error, "{status}");
        assert_eq!(gateway.world.stored().is_empty(), minted != 201, "{status}");
    }
    // A page that says "not found", or that asks for a password, does not say that the user exists.
    for body in ["<html>", "{}", "not found"] {
        let gateway = Gateway::new(&configured("/subject_tokens/user_lookup", lookup.clone()));
        gateway.upstream(|_| Reply::Http { status: 200, json: false, body: body.into() });
        let answer = gateway.send(&mint_form().request());
        assert_eq!((answer.status, answer.reason()), (503, "callout_failed"), "{body}");
    }
    for user_id in [".", ".."] {
        let gateway = Gateway::new(&configured("/subject_tokens/user_lookup", lookup.clone()));
        let form = mint_form().body(json!({"userId": user_id}).to_string());
        assert_eq!(gateway.send(&form.request()).status, 404, "{user_id} is asked about");
    }
}

/// The keys of the backend's issuer are fetched from that issuer.
pub(super) fn with_remote_keys() -> Value {
    let mut configuration = configuration();
    let issuer = configuration.pointer_mut("/subject_tokens/authentication/jwt/0").unwrap();
    issuer.as_object_mut().unwrap().remove("local_jwks");
    issuer["remote_jwks"] = json!({"http_uri": http_uri("/oidc/jwks"), "cache_duration": "300s"});
    configuration
}

pub(super) fn key_set(keys: &[&Key]) -> Reply {
    let keys: Vec<_> = keys.iter().map(|key| key.public_jwk()).collect();
    reply(200, &json!({"keys": keys}))
}

#[test]
fn before_there_are_keys_nothing_is_verified_and_nobody_is_refused_for_good() {
    let gateway = Gateway::new(&with_remote_keys());
    for (case, failure) in useless() {
        let sent = failure != Reply::Failed(CallFailure::NotSent);
        gateway.upstream(move |_| failure.clone());
        let answer = gateway.send(&mint_form().request());
        assert_eq!((answer.status, answer.reason()), (503, "callout_failed"), "{case}");
        // An upstream that did not answer is not asked again for a second.
        if sent {
            assert_eq!(gateway.send(&mint_form().request()).status, 503, "{case}");
            gateway.world.advance(Duration::from_secs(1));
        }
    }
    assert_eq!(gateway.calls.borrow().len(), useless().len());
    gateway.upstream(|_| key_set(&[&PROVIDER_KEY]));
    assert_eq!(gateway.send(&mint_form().request()).status, 201);
}

#[test]
fn one_worker_fetches_for_all() {
    let first = Gateway::new(&with_remote_keys());
    first.upstream(|_| key_set(&[&PROVIDER_KEY]));
    first.tick();
    let second = Gateway::in_world(&first.world, &with_remote_keys());
    second.tick();
    assert_eq!(second.send(&mint_form().request()).status, 201);
    assert!(second.calls.borrow().is_empty());
}

#[test]
fn a_new_key_is_fetched_when_a_token_names_it_and_an_invented_one_not_too_often() {
    let gateway = Gateway::new(&with_remote_keys());
    gateway.upstream(|_| key_set(&[&PROVIDER_KEY]));
    gateway.tick();
    gateway.world.advance(Duration::from_secs(10));

    let new = Key::generate(Algorithm::ES256, "provider-2");
    let rotated = mint_form().bearer(&new.sign(&backend_claims()));
    let keys = key_set(&[&PROVIDER_KEY, &new]);
    gateway.upstream(move |_| keys.clone());
    assert_eq!(gateway.send(&rotated.request()).status, 201);

    let invented = Key::generate(Algorithm::ES256, "invented");
    for _ in 0..3 {
        let form = mint_form().bearer(&invented.sign(&backend_claims()));
        assert_eq!(gateway.send(&form.request()).reason(), "no_key");
    }
    assert_eq!(gateway.calls.borrow().len(), 2, "one for the start, one for the new key");
}

#[test]
fn a_key_that_is_withdrawn_verifies_nothing_any_more() {
    let gateway = Gateway::new(&with_remote_keys());
    gateway.upstream(|_| key_set(&[&PROVIDER_KEY]));
    gateway.tick();
    assert_eq!(gateway.send(&mint_form().request()).status, 201);

    let new = Key::generate(Algorithm::ES256, "provider-2");
    let keys = key_set(&[&new]);
    gateway.upstream(move |_| keys.clone());
    gateway.world.advance(Duration::from_secs(300));
    gateway.tick();
    gateway.world.advance(Duration::from_secs(1));
    let answer = gateway.send(&mint_form().request());
    assert_eq!((answer.status, answer.reason()), (401, "no_key"), "remembered: {answer:?}");
}

#[test]
fn the_last_good_keys_stay_when_a_fetch_fails() {
    for (case, failure) in useless() {
        let gateway = Gateway::new(&with_remote_keys());
        gateway.upstream(|_| key_set(&[&PROVIDER_KEY]));
        gateway.tick();
        gateway.upstream(move |_| failure.clone());
        gateway.world.advance(Duration::from_secs(300));
        gateway.tick();
        assert_eq!(gateway.calls.borrow().len(), 2, "{case}");
        assert_eq!(gateway.send(&mint_form().request()).status, 201, "{case}");
    }
}

/// A JSON list can have its values in the order in which a parser expects the members of an object.
#[test]
fn a_list_is_no_answer_about_a_token() {
    let lists = [json!(["agent-1"]), json!([true, "impersonate openid", "client", "agent-1"])];
    for list in lists {
        let gateway = Gateway::new(&configured("/actor_tokens/introspection", introspection()));
        let form = ExchangeForm::new(&gateway.mint()).actor("opaque");
        let answer = list.clone();
        gateway.upstream(move |_| reply(200, &answer));
        let answer = gateway.exchange(&form);
        assert_unavailable(&gateway, &answer, Upstream::Introspection, &list.to_string());
    }
}
