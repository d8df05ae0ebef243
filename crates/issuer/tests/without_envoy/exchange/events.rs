//! Logout tokens and security events that shared data cannot keep, and senders whose clocks are
//! wrong.

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
    Gateway::new(&receiver())
}

fn receiver() -> Value {
    let mut configuration = configuration();
    // A refused exchange leaves its subject token in the store.
    configuration["store"]["shared_data"]["capacity"] = json!(256);
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
    configuration
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

/// Whichever call to shared data fails: an event that was answered has ended what it names, and one
/// that was not is good when it comes again.
#[test]
fn an_event_that_cannot_be_kept_is_refused_and_good_when_it_comes_again() {
    type Tell = fn(&Gateway, &str) -> Answer;
    let logout = sign("logout+jwt", &logout_claims("j", NOW + 1));
    let event = sign("secevent+jwt", &event_claims("j", NOW + 1));
    let kinds: [(Tell, String, u16); 2] = [(log_out, logout, 200), (push, event, 202)];
    for (tell, event, status) in kinds {
        let mut refused = 0;
        for answered in 0.. {
            let gateway = receiving();
            let begun = exchange(&gateway, NOW).text("access_token").to_owned();
            gateway.world.advance(Duration::from_secs(1));
            gateway.world.fail_shared_data(answered);
            let answer = tell(&gateway, &event);
            let has_failed = gateway.world.heal();
            if answer.status != status {
                let error = (answer.status, answer.header("retry-after"));
                assert_eq!(error, (503, Some("1")), "{answered}: {answer:?}");
                refused += 1;
                let again = tell(&gateway, &event);
                assert_eq!(again.status, status, "{answered}: {again:?}");
            }
            assert!(!introspects_as_live(&gateway, &begun), "{answered}");
            // Only an event that was not kept as a whole may end more than until its arrival.
            gateway.world.advance(Duration::from_secs(1));
            let new = exchange(&gateway, NOW + 2);
            assert!(introspects_as_live(&gateway, new.text("access_token")), "{answered}");
            if !has_failed {
                break;
            }
        }
        assert!(refused >= 3, "{refused}");
    }
}

/// The sender's clock and the filter's are apart by a minute, either way. Tokens of the identity
/// gateway have its clock, as its events do.
#[test]
fn nothing_lives_on_while_the_clocks_are_apart_by_a_minute() {
    const BASE: u64 = NOW + 600;
    for apart in [-60_i64, -59, -1, 0, 1, 59, 60] {
        let by_sender = |time: u64| time.checked_add_signed(apart).unwrap();
        type Tell = fn(&Gateway, &str) -> Answer;
        type Claims = fn(&str, u64) -> Value;
        let kinds: [(Tell, Claims, &str); 2] =
            [(log_out, logout_claims, "logout+jwt"), (push, event_claims, "secevent+jwt")];
        for (tell, claims, r#type) in kinds {
            let gateway = receiving();
            gateway.tick();
            gateway.world.advance(Duration::from_secs(600));
            // The sign-in, the impersonation, the logout and its arrival are a second apart.
            let begun = exchange(&gateway, by_sender(BASE - 1));
            assert_eq!(begun.status, 200, "{apart}: {begun:?}");
            gateway.world.advance(Duration::from_secs(1));
            let event = sign(r#type, &claims("j", by_sender(BASE + 1)));
            gateway.world.advance(Duration::from_secs(1));
            let told = tell(&gateway, &event);
            assert_eq!(told.event["outcome"], "ended", "{apart}: {told:?}");
            assert!(!introspects_as_live(&gateway, begun.text("access_token")), "{apart}");
            // For two minutes, no older actor token begins another.
            for _ in 0..25 {
                let old = exchange(&gateway, by_sender(BASE + 1));
                assert_eq!((old.status, old.reason()), (400, "actor_has_left"), "{apart}: {old:?}");
                gateway.world.advance(Duration::from_millis(5));
                let new = exchange(&gateway, by_sender(BASE + 2));
                assert_eq!(new.status, 200, "{apart}: the next sign-in: {new:?}");
                assert!(introspects_as_live(&gateway, new.text("access_token")), "{apart}");
                gateway.world.advance(Duration::from_secs(5));
            }
        }
    }
}
