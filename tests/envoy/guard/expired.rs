//! An access token is worth nothing from its `exp` on, and until then it is in the list of live
//! impersonations. Envoy's `jwt_authn` lets an expired token pass for another minute.

use serde_json::json;

use testkit::configuration::CLIENT_SECRET;
use testkit::gateway::{now, raw_part};
use testkit::guarded::{
    Begun, Guarded, Parties, claims_with, connect, filter_configuration, guard_configuration,
    guarded_listener, operator_with, ordinary_token, token,
};
use testkit::http::{Form, Request};
use testkit::lent::Lent;
use testkit::streaming::Http2;
use testkit::wait_for;

use super::streams::{assert_goes_on, drain, to_streams};

/// Lends an API whose answers do not end, behind a guard in this mode.
fn streaming(mode: &str) -> Lent<Guarded> {
    let listener = guarded_listener(&guard_configuration(&json!({"mode": mode})));
    Guarded::lent_with(listener.edited(to_streams), &filter_configuration())
}

fn is_listed(guarded: &Guarded, begun: &Begun) -> bool {
    let request = Request::get("/api/impersonations").bearer(&operator_with("impersonations:read"));
    let answer = guarded.send_to_filter(&request);
    assert_eq!(answer.status, 200, "{answer:?}");
    let list = answer.json();
    list["impersonations"].as_array().unwrap().iter().any(|row| row["id"] == begun.id.as_str())
}

fn is_active(guarded: &Guarded, begun: &Begun) -> bool {
    let form = Form::default().set("token", &begun.access_token).encode();
    let request = Request::post("/oidc/token/introspection")
        .header("content-type", "application/x-www-form-urlencoded")
        .basic("support-robot", &CLIENT_SECRET)
        .body(form);
    guarded.send_to_filter(&request).json()["active"] == true
}

#[test]
fn a_token_is_refused_from_its_expiry_on_and_listed_until_then() {
    let listener = guarded_listener(&guard_configuration(&json!({})));
    let filter = filter_configuration().with("/access_tokens/lifetime", "60s");
    let guarded = Guarded::lent_with(listener, &filter);
    let begun = guarded.begin(&Parties::new());
    let read = || Request::get("/orders").bearer(&begun.access_token);
    assert_eq!(guarded.send(&read()).status, 200);
    let expiry = raw_part(&begun.access_token, 1)["exp"].as_i64().unwrap();
    guarded.envoy.clock().set(expiry - 1 - i64::try_from(now()).unwrap());
    // Whatever the moment: a token that is not listed is refused, and one that is refused is not
    // listed.
    let refused = wait_for("the expiry", || {
        let is_live = is_listed(&guarded, &begun) && is_active(&guarded, &begun);
        let answer = guarded.send(&read());
        assert!(is_live || answer.status == 401, "no row for a token that is accepted");
        if answer.status == 200 {
            return None;
        }
        assert!(!is_listed(&guarded, &begun) && !is_active(&guarded, &begun), "a row too many");
        Some(answer)
    });
    assert_eq!(refused.refusal(), (401, "invalid_token".into()));
    assert_eq!(refused.json()["error_description"], "the access token has expired");
    assert!(!guarded.reached(&refused));
    assert_eq!(guarded.envoy.metric("impersonation_guard_refusals_total.reason.expired"), Some(1));
    assert!(guarded.envoy.log().contains("\"reason\":\"expired\""));
    // jwt_authn alone lets it pass.
    assert_eq!(connect(&guarded.envoy, "bare").send(&read()).status, 200);
}

#[test]
fn an_open_stream_ends_when_its_token_expires_and_others_continue() {
    let Guarded { envoy, .. } = &*streaming("enforce");
    // One stream expires later than the other, and the third one when nobody looks.
    let expiring = |seconds: u64| token(&claims_with(&json!({"exp": now() + seconds})));
    let mut connection = Http2::connect(envoy.address("guarded"));
    let mut open = |token: &str| connection.open(&Request::get("/events").bearer(token));
    let (mut later, mut first) = (open(&expiring(1200)), open(&expiring(600)));
    let mut others = [
        ("one that lasts", open(&token(&claims_with(&json!({}))))),
        ("an ordinary user's", open(&ordinary_token())),
    ];
    for (ahead, gone) in [(610, &mut first), (1210, &mut later)] {
        envoy.clock().set(ahead);
        drain(|| gone.more().is_some());
    }
    for (case, stream) in &mut others {
        assert_goes_on(stream, case);
    }
    assert_eq!(envoy.metric("impersonation_guard_streams_ended_total"), Some(2));
    let line = "\"reason\":\"expired_while_open\"";
    wait_for("the audit log", || (envoy.log().matches(line).count() == 2).then_some(()));
}

#[test]
fn a_report_counts_what_has_expired_and_ends_nothing() {
    let Guarded { envoy, .. } = &*streaming("report");
    let token = token(&claims_with(&json!({"exp": now() + 600})));
    let mut connection = Http2::connect(envoy.address("guarded"));
    let mut open = || connection.open(&Request::get("/events").bearer(&token));
    let before = open();
    envoy.clock().set(610);
    let after = open();
    assert_eq!((before.status, after.status), (200, 200));
    let reported =
        |reason: &str| envoy.metric(&format!("impersonation_guard_reported_total.reason.{reason}"));
    wait_for("the open stream to be counted", || {
        (reported("expired_while_open") == Some(1)).then_some(())
    });
    assert_eq!(reported("expired"), Some(1));
    for (case, mut stream) in [("before", before), ("after", after)] {
        assert_goes_on(&mut stream, case);
    }
    assert_eq!(reported("expired_while_open"), Some(1));
}
