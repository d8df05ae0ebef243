//! Security events: each rule of RFC 8417 §2.2, of RFC 8935 and of CAEP's interoperability profile,
//! the answer, and what ended.

use jsonwebtoken::Algorithm;
use serde_json::{Value, json};

use super::{Findings, Live, World, actor_token, audited, changed, exchange, mint, start};
use testkit::configuration::{ISSUER, PROVIDER_KEY};
use testkit::events::{CAEP, RECEIVER, RISC, SSF, event_claims, event_request, sign};
use testkit::gateway::now;
use testkit::keys::{Key, unsigned};

/// Brings an event. Returns the status, and the error code of a refusal.
fn push(world: &World, token: &str) -> (u16, String) {
    let answer = world.send(&event_request(token));
    match answer.status {
        202 => {
            assert!(answer.body.is_empty(), "RFC 8935 §2.2: {answer:?}");
            (202, String::new())
        }
        status => {
            let members: Vec<_> = answer.json().as_object().unwrap().keys().cloned().collect();
            assert_eq!(members, ["err", "description"], "RFC 8935 §2.3: {answer:?}");
            assert_eq!(answer.header("content-type"), Some("application/json"), "{answer:?}");
            (status, answer.member("err"))
        }
    }
}

fn expect(
    world: &World,
    findings: &mut Findings,
    case: &str,
    token: &str,
    live: &Live,
    err: &str,
    ends: bool,
) {
    let told = push(world, token);
    let status = if err.is_empty() { 202 } else { 400 };
    findings.expect(case, &(told.0, &*told.1), &(status, err));
    findings.expect(format!("{case}: it has ended"), &live.has_ended(world), &ends);
}

/// A change of the claims of a good event, the error, and true if the impersonation ends.
type Row = (&'static str, fn(&Live) -> Value, &'static str, bool);

#[test]
fn each_rule_about_claims_is_kept_and_an_invalid_event_ends_nothing() {
    let world = start();
    const KIND: &str = "https://schemas.openid.net/secevent/caep/event-type/session-revoked";
    const INVALID: &str = "invalid_request";
    const ISSUER_ERROR: &str = "invalid_issuer";
    const AUDIENCE: &str = "invalid_audience";
    #[rustfmt::skip]
    let rows: [Row; 40] = [
        // RFC 8417 §2.2, and what transmitters must not send and receivers do not look at.
        ("a good one",                |_| json!({}),                                             "", true),
        ("aud in a list",             |_| json!({"aud": ["x", RECEIVER]}),                       "", true),
        ("a txn",                     |_| json!({"txn": "t-1"}),                                 "", true),
        ("an unknown claim",          |_| json!({"x": 1}),                                       "", true),
        ("sub of another",            |_| json!({"sub": "another"}),                             "", true),
        ("exp in the past",           |_| json!({"exp": 1}),                                     "", true),
        ("a nonce",                   |_| json!({"nonce": "n"}),                                 "", true),
        ("toe",                       |_| json!({"toe": now() - 5}),                             "", true),
        ("toe before the sign-in",    |_| json!({"toe": now() - 3600}),                          "", false),
        ("event_timestamp before toe", |_| json!({"toe": 1, "events": {KIND: {"event_timestamp": now()}}}), "", true),
        ("event_timestamp of an hour ago", |_| json!({"events": {KIND: {"event_timestamp": now() - 3600}}}), "", false),
        ("event_timestamp ahead",     |_| json!({"events": {KIND: {"event_timestamp": now() + 3600}}}), "", true),
        ("unknown members of the event", |_| json!({"events": {KIND: {"reason_admin": {"en": "x"}, "initiating_entity": "policy"}}}), "", true),
        ("iss missing",               |_| json!({"iss": null}),                                  ISSUER_ERROR, false),
        ("iss of another",            |_| json!({"iss": "https://other.example.com"}),           ISSUER_ERROR, false),
        ("iss with a slash more",     |_| json!({"iss": format!("{ISSUER}/")}),                  ISSUER_ERROR, false),
        ("aud missing",               |_| json!({"aud": null}),                                  AUDIENCE, false),
        ("aud of another",            |_| json!({"aud": "https://other.example.com"}),           AUDIENCE, false),
        ("aud empty",                 |_| json!({"aud": []}),                                    AUDIENCE, false),
        ("aud of logout tokens",      |_| json!({"aud": testkit::events::PORTAL}),               AUDIENCE, false),
        ("iat missing",               |_| json!({"iat": null}),                                  INVALID, false),
        ("iat a string",              |_| json!({"iat": "1"}),                                   INVALID, false),
        ("jti missing",               |_| json!({"jti": null}),                                  INVALID, false),
        ("jti empty",                 |_| json!({"jti": ""}),                                    INVALID, false),
        ("jti a number",              |_| json!({"jti": 7}),                                     INVALID, false),
        ("events missing",            |_| json!({"events": null}),                               INVALID, false),
        ("events empty",              |_| json!({"events": {}}),                                 INVALID, false),
        ("events a list",             |_| json!({"events": [KIND]}),                             INVALID, false),
        ("two events",                |_| json!({"events": {KIND: {}, "urn:x": {}}}),            INVALID, false),
        ("the event not an object",   |_| json!({"events": {KIND: true}}),                       INVALID, false),
        ("event_timestamp a string",  |_| json!({"events": {KIND: {"event_timestamp": "1"}}}),   INVALID, false),
        ("no subject",                |_| json!({"sub_id": null}),                               INVALID, false),
        // RFC 9493: subjects.
        ("opaque",                    |live| json!({"sub_id": {"format": "opaque", "id": live.actor}}), "", true),
        ("the subject in the event",  |live| json!({"sub_id": null, "events": {KIND: {"subject": {"format": "opaque", "id": live.actor}}}}), "", true),
        ("complex, user and session", |live| json!({"sub_id": {"format": "complex", "user": {"format": "opaque", "id": live.actor}, "session": {"format": "opaque", "id": live.sid}, "device": {"format": "opaque", "id": "d"}}}), "", true),
        ("complex, session",          |live| json!({"sub_id": {"format": "complex", "session": {"format": "opaque", "id": live.sid}}}), "", true),
        ("complex, another session",  |live| json!({"sub_id": {"format": "complex", "user": {"format": "opaque", "id": live.actor}, "session": {"format": "opaque", "id": "another"}}}), "", false),
        ("of another issuer",         |live| json!({"sub_id": {"format": "iss_sub", "iss": "https://other.example.com", "sub": live.actor}}), "", false),
        ("a format that is not understood", |_| json!({"sub_id": {"format": "phone_number", "phone_number": "+1"}}), "", false),
        ("of the user",               |live| json!({"sub_id": {"format": "opaque", "id": live.user}}), "", false),
    ];
    let mut findings = Findings::default();
    for (case, changes, err, ends) in rows {
        let live = Live::begin(&world);
        let claims = changed(event_claims(KIND, &json!({}), &live.actor), &changes(&live));
        expect(&world, &mut findings, case, &sign("secevent+jwt", &claims), &live, err, ends);
    }
}

#[test]
fn each_rule_about_type_and_signature_is_kept() {
    let world = start();
    let kind = format!("{CAEP}session-revoked");
    let other = Key::generate(Algorithm::RS256, &PROVIDER_KEY.kid);
    let header = |changes: &Value| {
        changed(
            json!({"alg": PROVIDER_KEY.alg, "kid": PROVIDER_KEY.kid, "typ": "secevent+jwt"}),
            changes,
        )
    };
    let mut findings = Findings::default();
    #[rustfmt::skip]
    let rows = [
        (json!({}),                                "", true),
        (json!({"typ": "application/secevent+jwt"}), "", true),
        (json!({"typ": null}),                     "invalid_request", false),
        (json!({"typ": "JWT"}),                    "invalid_request", false),
        (json!({"typ": "at+jwt"}),                 "invalid_request", false),
        (json!({"typ": "logout+jwt"}),             "invalid_request", false),
        (json!({"crit": ["x"], "x": 1}),           "invalid_request", false),
        (json!({"kid": "other"}),                  "invalid_key",     false),
        (json!({"alg": "PS256"}),                  "invalid_key",     false),
        (json!({"alg": "HS256"}),                  "invalid_key",     false),
    ];
    for (changes, err, ends) in rows {
        let live = Live::begin(&world);
        let claims = event_claims(&kind, &json!({}), &live.actor);
        let token = PROVIDER_KEY.sign_with(&header(&changes), &claims);
        expect(&world, &mut findings, &changes.to_string(), &token, &live, err, ends);
    }
    let live = Live::begin(&world);
    let claims = event_claims(&kind, &json!({}), &live.actor);
    let token = other.sign_with(&header(&json!({})), &claims);
    expect(&world, &mut findings, "another's key", &token, &live, "invalid_key", false);
    let token = format!("{}.", unsigned(&header(&json!({"alg": "none"})), &claims));
    expect(&world, &mut findings, "alg none", &token, &live, "invalid_key", false);
    for token in ["", "x", "a.b.c", "..", "[]"] {
        expect(
            &world,
            &mut findings,
            &format!("{token:?}"),
            token,
            &live,
            "invalid_request",
            false,
        );
    }
}

/// The impersonations that each kind of event ends: an impersonation by its subject, and one of its
/// subject.
#[test]
fn each_kind_of_event_ends_what_the_documentation_says() {
    let world = start();
    #[rustfmt::skip]
    let rows = [
        (format!("{CAEP}session-revoked"),                        json!({}),                                   true,  false),
        (format!("{CAEP}credential-change"),                      json!({"change_type": "revoke"}),            true,  false),
        (format!("{CAEP}credential-change"),                      json!({"change_type": "delete"}),            true,  false),
        (format!("{CAEP}credential-change"),                      json!({"change_type": "create"}),            false, false),
        (format!("{CAEP}credential-change"),                      json!({"change_type": "update"}),            false, false),
        (format!("{CAEP}device-compliance-change"),               json!({"current_status": "not-compliant"}),  true,  false),
        (format!("{CAEP}device-compliance-change"),               json!({"current_status": "compliant"}),      false, false),
        (format!("{CAEP}assurance-level-change"),                 json!({"change_direction": "decrease"}),     true,  false),
        (format!("{CAEP}assurance-level-change"),                 json!({"change_direction": "increase"}),     false, false),
        (format!("{CAEP}token-claims-change"),                    json!({"claims": {}}),                       false, false),
        (format!("{RISC}account-disabled"),                       json!({"reason": "hijacking"}),              true,  true),
        (format!("{RISC}account-purged"),                         json!({}),                                   true,  true),
        (format!("{RISC}account-credential-change-required"),     json!({}),                                   true,  true),
        (format!("{RISC}credential-compromise"),                  json!({"credential_type": "password"}),      true,  true),
        (format!("{RISC}account-enabled"),                        json!({}),                                   false, false),
        (format!("{SSF}verification"),                            json!({"state": "x"}),                       false, false),
        (format!("{SSF}stream-updated"),                          json!({"status": "enabled"}),                false, false),
        ("urn:example:other".to_owned(),                          json!({}),                                   false, false),
    ];
    let mut findings = Findings::default();
    for (kind, event, ends_actor, ends_user) in rows {
        let case = format!("{kind} {event}");
        let [by_them, of_them] = [Live::begin(&world), Live::begin(&world)];
        let as_actor = event_claims(&kind, &event, &by_them.actor);
        let jti = as_actor["jti"].as_str().unwrap().to_owned();
        expect(
            &world,
            &mut findings,
            &case,
            &sign("secevent+jwt", &as_actor),
            &by_them,
            "",
            ends_actor,
        );
        let line = audited(&world, &jti);
        let expected = if ends_actor { "impersonations.ended" } else { "security_event.received" };
        findings.expect(format!("{case}: audit"), &line["event"], &json!(expected));
        findings.expect(format!("{case}: audit"), &line["event_type"], &json!(kind));
        let as_user = sign("secevent+jwt", &event_claims(&kind, &event, &of_them.user));
        let case = format!("{case} of the user");
        expect(&world, &mut findings, &case, &as_user, &of_them, "", ends_user);
    }
}

/// The event was on its way for an hour, and an actor token of the session that was over has begun
/// an impersonation since.
#[test]
fn a_late_event_ends_what_an_older_actor_token_has_begun() {
    let world = start();
    let (user, actor) = ("user-of-late-events", "agent-of-late-events");
    let event_at = now() - 1800;
    let begin = |issued_at| {
        let answer =
            exchange(&world, &mint(&world, user), &actor_token(actor, "s-late", issued_at));
        assert_eq!(answer.status, 200, "{answer:?}");
        let name = String::new;
        Live {
            user: name(),
            actor: name(),
            sid: name(),
            access_token: answer.member("access_token"),
        }
    };
    let [old, at_once, new] = [event_at - 1800, event_at, event_at + 1].map(begin);
    let event = json!({"event_timestamp": event_at});
    let claims = event_claims(&format!("{CAEP}session-revoked"), &event, actor);
    assert_eq!(push(&world, &sign("secevent+jwt", &claims)), (202, String::new()));
    assert!(old.has_ended(&world) && at_once.has_ended(&world) && !new.has_ended(&world));
    let refused = exchange(&world, &mint(&world, user), &actor_token(actor, "s-late", event_at));
    assert_eq!(refused.refusal(), (400, "invalid_request".into()));
}
