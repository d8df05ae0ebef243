//! Outcomes of events of both kinds: what they end besides live impersonations, how often they are
//! counted, and what becomes of an event that cannot be verified yet.

use serde_json::{Value, json};

use super::{Findings, Live, World, actor_token, changed, exchange, start};
use testkit::configuration::{ISSUER, PROVIDER_KEY};
use testkit::events::{
    CAEP, RISC, SSF, event_claims, event_request, logout_claims, logout_request, receiving,
    session_revoked, sign,
};
use testkit::gateway::{key_set, mint_body_request, minted, now};
use testkit::guarded::filter_configuration;
use testkit::http::Request;
use testkit::impersonations::unique;
use testkit::server::{Fault, Reply};
use testkit::services::http_uri_of;
use testkit::wait_for;

/// The request that ends the work of an actor, by a logout and by an event, with its good status,
/// its kind in metrics, and the member of a refusal that has the error.
type Kind = (fn(&Live) -> Request, u16, &'static str, &'static str);

const KINDS: [Kind; 2] = [
    (|live| logout_request(&sign("logout+jwt", &logout_claims(&live.sid))), 200, "logout", "error"),
    (|live| event_request(&session_revoked(&live.actor)), 202, "security_event", "err"),
];

#[test]
fn an_event_counts_once_and_the_next_sign_in_is_good() {
    for (tell, status, kind, _) in KINDS {
        let world = start();
        let live = Live::begin(&world);
        let event = tell(&live);
        world.advance(2);
        for repeated in [false, true, true] {
            assert_eq!(world.send(&event).status, status, "{kind}");
            let line = world.last_event();
            let expected = if repeated { "repeated" } else { "ended" };
            assert_eq!((&line["outcome"], &line["sender"]), (&json!(expected), &json!(ISSUER)));
        }
        assert!(live.has_ended(&world), "{kind}");
        let new = Live::begin_after(&world, now() + 2);
        assert_eq!(world.send(&event).status, status, "{kind}");
        assert!(!new.has_ended(&world), "{kind}");
        for (outcome, expected) in [("ended", 1), ("repeated", 3), ("verification", 0)] {
            let name =
                format!("impersonation_sender_events_total.kind.{kind}.sender.0.outcome.{outcome}");
            assert_eq!(world.counted(&name), expected, "{kind}: {outcome}");
        }
    }
}

/// The sender gets 503 and tries again: the event was not remembered.
#[test]
fn an_event_whose_keys_are_out_of_reach_is_good_when_it_comes_again() {
    let keys = json!({"http_uri": http_uri_of("keys", "/jwks"), "cache_duration": "300s"});
    let lists = ["back_channel_logout", "security_events"];
    let configuration = lists.iter().fold(receiving(filter_configuration()), |all, list| {
        let sender = format!("/impersonations/{list}/0");
        all.without(&format!("{sender}/local_jwks"))
            .with(&format!("{sender}/remote_jwks"), keys.clone())
    });
    for (tell, status, kind, member) in KINDS {
        let world = World::start(&configuration);
        let live = Live::begin(&world);
        let event = tell(&live);
        for fault in [Fault::Refused, Fault::Stalled] {
            world.upstream("keys").fail(fault);
            let answer = world.send(&event);
            assert_eq!(answer.status, 503, "{kind}: {answer:?}");
            assert_eq!(answer.member(member), "temporarily_unavailable", "{kind}");
            assert_eq!(answer.header("retry-after"), Some("1"), "{kind}");
            assert_eq!(world.last_event()["event"], "security_event.refused", "{kind}");
            assert!(!live.has_ended(&world), "{kind}");
            world.advance(5);
        }
        world.upstream("keys").heal();
        world.upstream("keys").answer(|_| Reply::json(&key_set(&PROVIDER_KEY)));
        wait_for("the event to be taken", || {
            world.advance(5);
            (world.send(&event).status == status).then_some(())
        });
        assert_eq!(world.last_event()["outcome"], "ended", "{kind}");
        assert!(live.has_ended(&world), "{kind}");
    }
}

/// A subject token that is bound to no actor is good for the next sign-in of any actor.
#[test]
fn an_event_ends_the_subject_tokens_of_its_actor_and_those_of_an_account_that_is_gone() {
    const SESSION: &str = "session-revoked";
    const DISABLED: &str = "account-disabled";
    let by_logout =
        |claims: Value| logout_request(&sign("logout+jwt", &changed(logout_claims("x"), &claims)));
    let about = |kind: &str, name: &str| {
        event_request(&sign("secevent+jwt", &event_claims(kind, &json!({}), name)))
    };
    let world = start();
    let mut findings = Findings::default();
    #[rustfmt::skip]
    let cases = [
        ("a logout of the actor",           "sub", "actor", true,  true),
        ("a logout of the actor",           "sub", "actor", false, false),
        ("a logout of another",             "sub", "other", true,  false),
        ("a logout of a session",           "sid", "sid",   true,  false),
        ("a revoked session of the actor",  SESSION, "actor", true,  true),
        ("a revoked session of the user",   SESSION, "user",  false, false),
        ("the user's account is disabled",  DISABLED, "user",  false, true),
        ("the actor's account is disabled", DISABLED, "actor", true,  true),
        ("the actor's account is disabled", DISABLED, "actor", false, false),
    ];
    for (case, way, who, is_bound, ends) in cases {
        let [user, actor, sid] = ["user", "agent", "session"].map(unique);
        let name = match who {
            "user" => &user,
            "actor" => &actor,
            "sid" => &sid,
            _ => &unique("other"),
        };
        let event = match way {
            "sub" => by_logout(json!({"sid": null, "sub": name})),
            "sid" => by_logout(json!({"sid": name})),
            SESSION => about(&format!("{CAEP}{SESSION}"), name),
            kind => about(&format!("{RISC}{kind}"), name),
        };
        let mut body = json!({"userId": user});
        if is_bound {
            body["actorId"] = json!(actor);
        }
        let mint = || minted(&world.send(&mint_body_request(&body)));
        let outstanding = mint();
        world.advance(2);
        assert!(world.send(&event).status < 300, "{case}");
        world.advance(2);
        let actor_token = actor_token(&actor, &sid, now() + 4);
        let answer = exchange(&world, &outstanding, &actor_token);
        let reason = world.last_event()["reason"].clone();
        let expected = if ends { (400, json!("revoked")) } else { (200, Value::Null) };
        findings.expect(format!("{case}, bound: {is_bound}"), &(answer.status, reason), &expected);
        let answer = exchange(&world, &mint(), &actor_token);
        findings.expect(format!("{case}: a new one"), &answer.status, &200);
        world.advance(-4);
    }
}

#[test]
fn an_event_about_the_stream_ends_nothing_and_a_stopped_stream_is_counted() {
    let world = start();
    let live = Live::begin(&world);
    #[rustfmt::skip]
    let cases = [
        ("verification",   json!({"state": "x"}),          "verification",   0),
        ("verification",   json!({}),                      "verification",   0),
        ("stream-updated", json!({"status": "enabled"}),   "stream_updated", 0),
        ("stream-updated", json!({"status": "paused"}),    "stream_updated", 1),
        ("stream-updated", json!({"status": "disabled"}),  "stream_updated", 1),
    ];
    let stopped = || world.counted("impersonation_event_streams_stopped_total");
    for (name, event, outcome, stops) in cases {
        let claims = event_claims(&format!("{SSF}{name}"), &event, "");
        let event = sign("secevent+jwt", &changed(claims, &json!({"sub_id": null})));
        let before = stopped();
        for outcome in [outcome, "repeated"] {
            assert_eq!(world.send(&event_request(&event)).status, 202, "{name}");
            let line = world.last_event();
            assert_eq!(
                (&line["event"], &line["outcome"]),
                (&json!("security_event.received"), &json!(outcome))
            );
        }
        assert_eq!(stopped() - before, stops, "{name}: once");
    }
    assert!(!live.has_ended(&world));
}
