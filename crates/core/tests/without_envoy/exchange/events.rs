//! Impersonations that end by themselves: logout tokens and security events at their endpoints, and
//! the actor tokens and subject tokens that they end.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::configuration::{jwks, sha256_hex};
use testkit::http::Form;

use impersonation_core::metrics;
use impersonation_core::step::{CallFailure, Reply};

use super::callouts::{http_uri, key_set};
use super::setting::{
    ExchangeForm, MintForm, NOW, PROVIDER_KEY, actor_claims, configuration, with,
};
use crate::driver::{Answer, Gateway, Request};

const LOGOUT: &str = "http://schemas.openid.net/event/backchannel-logout";
const REVOKED: &str = "https://schemas.openid.net/secevent/caep/event-type/session-revoked";
const AUTHORIZATION: &str = "Bearer of the transmitter";

const DISABLED: &str = "https://schemas.openid.net/secevent/risc/event-type/account-disabled";
const SSF: &str = "https://schemas.openid.net/secevent/ssf/event-type/";

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

#[test]
fn another_method_is_refused_in_the_form_of_its_endpoint() {
    let gateway = receiving();
    let cases = [("/oidc/backchannel-logout", "error"), ("/api/security-events", "err")];
    for (path, member) in cases {
        for method in ["GET", "HEAD", "PUT", "DELETE", "PATCH"] {
            let request = Request { method, path: path.to_owned(), headers: vec![], body: vec![] };
            let answer = gateway.send(&request);
            assert_eq!((answer.status, answer.header("allow")), (405, Some("POST")), "{answer:?}");
            assert_eq!(answer.text(member), "invalid_request", "{method} {path}");
            assert_eq!(answer.body.as_object().unwrap().len(), 2, "{method} {path}");
        }
    }
}

/// The sender gets 503 and tries again: the event was not remembered.
#[test]
fn an_event_whose_keys_are_out_of_reach_is_good_when_it_comes_again() {
    let mut configuration = receiver();
    for list in ["back_channel_logout", "security_events"] {
        let sender = &mut configuration["impersonations"][list][0];
        sender.as_object_mut().unwrap().remove("local_jwks");
        sender["remote_jwks"] = json!({"http_uri": http_uri("/jwks"), "cache_duration": "300s"});
    }
    type Tell = fn(&Gateway, &str) -> Answer;
    let logout = sign("logout+jwt", &logout_claims("j", NOW + 1));
    let event = sign("secevent+jwt", &event_claims("j", NOW + 1));
    let kinds: [(Tell, String, u16, &str); 2] =
        [(log_out, logout, 200, "error"), (push, event, 202, "err")];
    for (tell, event, status, member) in kinds {
        let gateway = Gateway::new(&configuration);
        let begun = exchange(&gateway, NOW).text("access_token").to_owned();
        gateway.world.advance(Duration::from_secs(1));
        for failure in [CallFailure::NotSent, CallFailure::CutOff] {
            gateway.upstream(move |_| Reply::Failed(failure));
            let answer = tell(&gateway, &event);
            let error = (answer.status, answer.text(member), answer.header("retry-after"));
            assert_eq!(error, (503, "temporarily_unavailable", Some("1")), "{answer:?}");
            assert_eq!(answer.event["event"], "security_event.refused");
            assert!(introspects_as_live(&gateway, &begun));
            gateway.world.advance(Duration::from_secs(5));
        }
        gateway.upstream(|_| key_set(&[&PROVIDER_KEY]));
        let answer = tell(&gateway, &event);
        assert_eq!((answer.status, &answer.event["outcome"]), (status, &"ended".into()));
        assert!(!introspects_as_live(&gateway, &begun));
    }
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

fn mint(gateway: &Gateway, body: &Value) -> String {
    let answer = gateway.send(&MintForm::new(body).request());
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.text("subjectToken").to_owned()
}

/// A subject token that is bound to no actor is good for the next sign-in of any actor.
#[test]
fn an_event_ends_the_subject_tokens_of_its_actor_and_those_of_an_account_that_is_gone() {
    let about = |kind: &str, sub: &str| {
        let subject = json!({"format": "iss_sub", "iss": actor_claims()["iss"], "sub": sub});
        let claims = with(event_claims("j", NOW + 1), "sub_id", subject);
        sign("secevent+jwt", &with(claims, "events", json!({kind: {}})))
    };
    let logout = |changes: &[(&str, Value)]| {
        let claims = without_sid(logout_claims("j", NOW + 1));
        let claims =
            changes.iter().fold(claims, |claims, (name, value)| with(claims, name, value.clone()));
        sign("logout+jwt", &claims)
    };
    let (bound, unbound) =
        (json!({"userId": "user-42", "actorId": "agent-7"}), json!({"userId": "user-42"}));
    type Tell = fn(&Gateway, &str) -> Answer;
    #[rustfmt::skip]
    let cases: [(&str, Tell, String, &Value, bool); 9] = [
        ("a logout of the actor",             log_out, logout(&[("sub", json!("agent-7"))]),  &bound,   true),
        ("a logout of the actor",             log_out, logout(&[("sub", json!("agent-7"))]),  &unbound, false),
        ("a logout of another",               log_out, logout(&[("sub", json!("agent-8"))]),  &bound,   false),
        ("a logout of a session",             log_out, logout(&[("sid", json!("s-1"))]),      &bound,   false),
        ("a revoked session of the actor",    push,    about(REVOKED, "agent-7"),             &bound,   true),
        ("a revoked session of the user",     push,    about(REVOKED, "user-42"),             &unbound, false),
        ("the user's account is disabled",    push,    about(DISABLED, "user-42"),            &unbound, true),
        ("the actor's account is disabled",   push,    about(DISABLED, "agent-7"),            &bound,   true),
        ("the actor's account is disabled",   push,    about(DISABLED, "agent-7"),            &unbound, false),
    ];
    for (case, tell, event, body, ends) in cases {
        let gateway = receiving();
        gateway.tick();
        let outstanding = mint(&gateway, body);
        gateway.world.advance(Duration::from_secs(1));
        let told = tell(&gateway, &event);
        assert!(told.status < 300, "{case}: {told:?}");
        gateway.world.advance(Duration::from_secs(1));
        let actor = PROVIDER_KEY.sign(&with(actor_claims(), "iat", NOW + 2));
        let form = |token: &str| ExchangeForm::new(token).portal().actor(&actor);
        let answer = gateway.exchange(&form(&outstanding));
        let expected = if ends { (400, "revoked") } else { (200, "") };
        assert_eq!((answer.status, answer.reason()), expected, "{case}, {body}: {answer:?}");
        let answer = gateway.exchange(&form(&mint(&gateway, body)));
        assert_eq!(answer.status, 200, "{case}, {body}: a new one: {answer:?}");
    }
}

fn without_sid(mut claims: Value) -> Value {
    claims.as_object_mut().unwrap().remove("sid");
    claims
}

/// The event was on its way for an hour. In the meantime an actor token of the session that was
/// over has begun an impersonation.
#[test]
fn a_late_event_ends_what_an_older_actor_token_has_begun() {
    let gateway = receiving();
    gateway.tick();
    gateway.world.advance(Duration::from_secs(1800));
    let [old, new] = [NOW, NOW + 1700].map(|issued_at| {
        let answer = exchange(&gateway, issued_at);
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.text("access_token").to_owned()
    });
    gateway.world.advance(Duration::from_secs(1700));
    let told = push(&gateway, &sign("secevent+jwt", &event_claims("j", NOW + 100)));
    assert_eq!(told.event["outcome"], "ended", "{told:?}");
    assert!(!introspects_as_live(&gateway, &old));
    assert!(introspects_as_live(&gateway, &new), "of the next sign-in");
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

#[test]
fn an_event_about_the_stream_ends_nothing_and_a_stopped_stream_is_counted() {
    let about = |name: &str, event: Value| {
        let claims = with(event_claims(&format!("{name}{event}"), NOW + 1), "sub_id", Value::Null);
        let kind = format!("{SSF}{name}");
        sign("secevent+jwt", &with(claims, "events", json!({kind: event})))
    };
    #[rustfmt::skip]
    let cases = [
        (about("verification", json!({"state": "x"})),           "verification",   false),
        (about("verification", json!({})),                       "verification",   false),
        (about("stream-updated", json!({"status": "enabled"})),  "stream_updated", false),
        (about("stream-updated", json!({"status": "paused"})),   "stream_updated", true),
        (about("stream-updated", json!({"status": "disabled"})), "stream_updated", true),
    ];
    for (event, outcome, stopped) in cases {
        let gateway = receiving();
        let begun = exchange(&gateway, NOW).text("access_token").to_owned();
        gateway.world.advance(Duration::from_secs(1));
        for repeated in [false, true] {
            let told = push(&gateway, &event);
            let expected = if repeated { "repeated" } else { outcome };
            assert_eq!((told.status, &told.event["outcome"]), (202, &expected.into()), "{told:?}");
            assert_eq!(told.event["event"], "security_event.received");
        }
        let counted = gateway.world.counted.borrow();
        let stops = counted.iter().filter(|name| *name == metrics::EVENT_STREAMS_STOPPED).count();
        assert_eq!(stops, usize::from(stopped), "once: {outcome}");
        drop(counted);
        assert!(introspects_as_live(&gateway, &begun));
    }
}

/// What ended, and by which event, is in the audit log and in an access log.
#[test]
fn the_audit_says_what_ended_and_by_which_event() {
    let gateway = receiving();
    exchange(&gateway, NOW);
    gateway.world.advance(Duration::from_secs(1));
    let told = log_out(&gateway, &sign("logout+jwt", &logout_claims("j-1", NOW + 1)));
    let event = &told.event;
    assert_eq!(event["event"], "impersonations.ended");
    assert_eq!(event["sender"], actor_claims()["iss"]);
    assert_eq!(event["event_id"], "j-1");
    assert_eq!(event["event_type"], LOGOUT);
    assert_eq!(event["session"], "s-1");
    assert_eq!(event["outcome"], "ended");
}
