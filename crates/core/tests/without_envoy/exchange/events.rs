//! Impersonations that end by themselves: logout tokens and security events at their endpoints, and
//! the actor tokens and subject tokens that they end.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::configuration::{jwks, sha256_hex};
use testkit::http::Form;

use super::setting::{ExchangeForm, NOW, PROVIDER_KEY, actor_claims, configuration, with};
use crate::driver::{Answer, Gateway, Request};

const LOGOUT: &str = "http://schemas.openid.net/event/backchannel-logout";
const REVOKED: &str = "https://schemas.openid.net/secevent/caep/event-type/session-revoked";
const AUTHORIZATION: &str = "Bearer of the transmitter";

fn receiving() -> Gateway {
    let mut configuration = configuration();
    let keys = jwks(&[&PROVIDER_KEY]);
    let issuer = configuration["actor_tokens"]["jwt"][0]["issuer"].clone();
    configuration["impersonations"] = json!({
        "authentication":
            {"jwt": [{"issuer": issuer, "audiences": ["operators"], "local_jwks": keys}]},
        "back_channel_logout": [{"issuer": issuer, "audiences": ["portal"], "local_jwks": keys}],
        "security_events": [{
            "issuer": issuer, "audiences": ["us"], "local_jwks": keys,
            "authorization_sha256": [sha256_hex(AUTHORIZATION)],
        }],
    });
    Gateway::new(&configuration)
}

fn sign(r#type: &str, claims: &Value) -> String {
    let header = json!({"alg": PROVIDER_KEY.alg, "kid": PROVIDER_KEY.kid, "typ": r#type});
    PROVIDER_KEY.sign_with(&header, claims)
}

fn logout_claims(jti: &str, at: u64) -> Value {
    json!({
        "iss": actor_claims()["iss"], "aud": "portal", "iat": at, "exp": at + 120, "jti": jti,
        "sid": "s-1", "events": {LOGOUT: {}},
    })
}

fn event_claims(jti: &str, at: u64) -> Value {
    json!({
        "iss": actor_claims()["iss"], "aud": "us", "iat": at, "jti": jti,
        "sub_id": {"format": "iss_sub", "iss": actor_claims()["iss"], "sub": "agent-7"},
        "events": {REVOKED: {}},
    })
}

fn post(
    gateway: &Gateway,
    path: &str,
    r#type: &'static str,
    authorization: &str,
    body: String,
) -> Answer {
    gateway.send(&Request {
        method: "POST",
        path: path.to_owned(),
        headers: vec![("content-type", r#type.into()), ("authorization", authorization.into())],
        body: body.into(),
    })
}

fn log_out(gateway: &Gateway, token: &str) -> Answer {
    let body = Form::default().set("logout_token", token).encode();
    post(gateway, "/oidc/backchannel-logout", "application/x-www-form-urlencoded", "", body)
}

fn push(gateway: &Gateway, token: &str) -> Answer {
    let (path, r#type) = ("/api/security-events", "application/secevent+jwt");
    post(gateway, path, r#type, AUTHORIZATION, token.to_owned())
}

/// Exchanges with an actor token that was issued at that time.
fn exchange(gateway: &Gateway, issued_at: u64) -> Answer {
    let actor = with(with(actor_claims(), "sid", "s-1"), "iat", issued_at);
    gateway.exchange(&ExchangeForm::new(&gateway.mint()).portal().actor(&PROVIDER_KEY.sign(&actor)))
}

fn introspects_as_live(gateway: &Gateway, access_token: &str) -> bool {
    let mut form = ExchangeForm::new("").portal();
    form.parameters.0.retain(|(name, _)| name == "client_id");
    let form = form.set("token", access_token);
    let request = Request { path: "/oidc/token/introspection".to_owned(), ..form.request() };
    gateway.send(&request).body["active"] == true
}

#[test]
fn an_event_ends_the_impersonations_of_its_actor_once_and_the_next_sign_in_is_good() {
    type Tell = fn(&Gateway, &str) -> Answer;
    type Claims = fn(&str, u64) -> Value;
    let kinds: [(&str, u16, Tell, Claims, &str, &str); 2] = [
        ("a logout", 200, log_out, logout_claims, "logout+jwt", "logout"),
        ("an event", 202, push, event_claims, "secevent+jwt", "security_event"),
    ];
    for (case, status, tell, claims, r#type, kind) in kinds {
        let gateway = receiving();
        gateway.tick();
        gateway.world.advance(Duration::from_secs(10));
        let begun = exchange(&gateway, NOW);
        assert_eq!(begun.status, 200, "{case}: {begun:?}");
        let begun = begun.text("access_token").to_owned();
        assert!(introspects_as_live(&gateway, &begun), "{case}");
        gateway.world.advance(Duration::from_secs(1));
        let event = sign(r#type, &claims("j-1", NOW + 11));
        let told = tell(&gateway, &event);
        assert_eq!(
            (told.status, &told.event["event"]),
            (status, &"impersonations.ended".into()),
            "{case}: {told:?}"
        );
        assert!(!introspects_as_live(&gateway, &begun), "{case}");
        gateway.world.advance(Duration::from_millis(5));
        let old = exchange(&gateway, NOW + 11);
        assert_eq!((old.status, old.reason()), (400, "actor_has_left"), "{case}");
        let new = exchange(&gateway, NOW + 12);
        assert_eq!(new.status, 200, "{case}: {new:?}");
        gateway.world.advance(Duration::from_secs(1));
        for _ in 0..2 {
            let again = tell(&gateway, &event);
            assert_eq!(
                (again.status, &again.event["outcome"]),
                (status, &"repeated".into()),
                "{case}"
            );
        }
        assert!(introspects_as_live(&gateway, new.text("access_token")), "{case}");
        for (outcome, expected) in [("ended", 1), ("repeated", 2), ("verification", 0)] {
            let name =
                format!("impersonation_sender_events_total.kind.{kind}.sender.0.outcome.{outcome}");
            let counted = gateway.world.counted.borrow();
            let counted = counted.iter().filter(|counted| **counted == name).count();
            assert_eq!(counted, expected, "{case}: {outcome}");
        }
    }
}

/// RFC 8725 §3.11: each kind of statement at each endpoint.
#[test]
fn no_kind_of_statement_passes_for_another() {
    let gateway = receiving();
    let access_token = PROVIDER_KEY.sign(&actor_claims());
    let (logout, event) = (logout_claims("j", NOW), event_claims("j", NOW));
    for token in [&access_token, &sign("secevent+jwt", &event), &sign("at+jwt", &logout)] {
        let answer = log_out(&gateway, token);
        assert_eq!((answer.status, answer.text("error")), (400, "invalid_request"), "{answer:?}");
    }
    for token in [&access_token, &sign("logout+jwt", &logout), &sign("JWT", &event)] {
        let answer = push(&gateway, token);
        assert_eq!((answer.status, answer.text("err")), (400, "invalid_request"), "{answer:?}");
    }
    let with_events = with(actor_claims(), "events", json!({LOGOUT: {}}));
    for token in [sign("logout+jwt", &logout), sign("JWT", &with_events)] {
        let form = ExchangeForm::new(&gateway.mint()).portal().actor(&token);
        let answer = gateway.exchange(&form);
        assert_eq!((answer.status, answer.reason()), (400, "actor_token"), "{answer:?}");
    }
}

#[test]
fn a_request_that_is_no_event_is_refused_as_the_specification_says() {
    let gateway = receiving();
    let good = || sign("secevent+jwt", &event_claims("j", NOW));
    let event = |r#type: &'static str, authorization: &str, body: String| {
        post(&gateway, "/api/security-events", r#type, authorization, body)
    };
    const TYPE: &str = "application/secevent+jwt";
    #[rustfmt::skip]
    let cases = [
        ("another content type", event("application/jwt", AUTHORIZATION, good()), 415, "invalid_request"),
        ("no authorization",     event(TYPE, "", good()),                          401, "authentication_failed"),
        ("a wrong one",          event(TYPE, "Bearer x", good()),                  401, "authentication_failed"),
        ("too long",             event(TYPE, AUTHORIZATION, "x".repeat(65 * 1024)), 413, "invalid_request"),
        ("no JWT",               event(TYPE, AUTHORIZATION, "x".to_owned()),       400, "invalid_request"),
        ("nothing",              event(TYPE, AUTHORIZATION, String::new()),        400, "invalid_request"),
    ];
    for (case, answer, status, err) in cases {
        assert_eq!((answer.status, answer.text("err")), (status, err), "{case}: {answer:?}");
        assert_eq!(answer.event["event"], "security_event.refused", "{case}");
    }
    let path = "/oidc/backchannel-logout";
    let form = Form::default().set("logout_token", &good()).encode();
    let json = post(&gateway, path, "application/json", "", form);
    assert_eq!(json.status, 415);
    let empty = post(&gateway, path, "application/x-www-form-urlencoded", "", String::new());
    assert_eq!((empty.status, empty.reason()), (400, "parameter_missing"));
}
