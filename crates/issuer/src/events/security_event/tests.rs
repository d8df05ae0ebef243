//! The rules of RFC 8417 §2.2, of CAEP's interoperability profile and of RFC 9493, one row each.

use serde_json::{Value, json};

use super::super::tests::*;
use super::*;
use crate::state::revocations::Revocation;
use crate::statement::StatementError;

const TYPE: Option<&str> = Some("secevent+jwt");
const REVOKED: &str = "https://schemas.openid.net/secevent/caep/event-type/session-revoked";

fn agent() -> Value {
    json!({"format": "iss_sub", "iss": SENDER, "sub": "agent-7"})
}

fn claims_of(kind: &str, event: &Value) -> Value {
    json!({
        "iss": SENDER, "aud": AUDIENCE, "iat": NOW, "jti": "j-1", "sub_id": agent(),
        "events": {kind: event},
    })
}

fn claims() -> Value {
    claims_of(REVOKED, &json!({"event_timestamp": NOW - 10}))
}

fn verdict(setting: &Setting, claims: &Value) -> Result<ReceivedEvent, EventError> {
    setting.security_event(&setting.sign(TYPE, claims))
}

fn meaning(setting: &Setting, claims: &Value) -> Result<Meaning, EventError> {
    verdict(setting, claims).map(|event| event.meaning)
}

fn ends(ended: impl Into<Vec<Revocation>>) -> Result<Meaning, EventError> {
    Ok(Meaning::Ends(ended.into()))
}

#[test]
fn each_kind_of_event_ends_what_the_contract_says() {
    let setting = Setting::new();
    let all_of_actor = || ends([actor("agent-7")]);
    let account = || ends([actor("agent-7"), user("agent-7")]);
    let nothing = || Ok(Meaning::Nothing);
    let malformed = || Err(EventError::Malformed("the event lacks a member that it needs"));
    let updated = |status: &str| Ok(Meaning::StreamUpdated { status: status.to_owned() });
    let verification =
        |state: Option<&str>| Ok(Meaning::Verification { state: state.map(str::to_owned) });
    #[rustfmt::skip]
    let cases = [
        (CAEP, "session-revoked",          json!({}),                                    all_of_actor()),
        (CAEP, "session-revoked",          json!({"reason_admin": {"en": "x"}}),         all_of_actor()),
        (CAEP, "credential-change",        json!({"change_type": "revoke"}),             all_of_actor()),
        (CAEP, "credential-change",        json!({"change_type": "delete"}),             all_of_actor()),
        (CAEP, "credential-change",        json!({"change_type": "create"}),             nothing()),
        (CAEP, "credential-change",        json!({"change_type": "update"}),             nothing()),
        (CAEP, "credential-change",        json!({}),                                    malformed()),
        (CAEP, "device-compliance-change", json!({"current_status": "not-compliant"}),   all_of_actor()),
        (CAEP, "device-compliance-change", json!({"current_status": "compliant"}),       nothing()),
        (CAEP, "device-compliance-change", json!({}),                                    malformed()),
        (CAEP, "assurance-level-change",   json!({"change_direction": "decrease"}),      all_of_actor()),
        (CAEP, "assurance-level-change",   json!({"current_level": "nist-aal1"}),        all_of_actor()),
        (CAEP, "assurance-level-change",   json!({"change_direction": "increase"}),      nothing()),
        (CAEP, "token-claims-change",      json!({"claims": {"role": "x"}}),             nothing()),
        (CAEP, "session-established",      json!({}),                                    nothing()),
        (RISC, "account-disabled",         json!({"reason": "hijacking"}),               account()),
        (RISC, "account-purged",           json!({}),                                    account()),
        (RISC, "account-credential-change-required", json!({}),                          account()),
        (RISC, "credential-compromise",    json!({"credential_type": "password"}),       account()),
        (RISC, "account-enabled",          json!({}),                                    nothing()),
        (RISC, "identifier-changed",       json!({"new-value": "x"}),                    nothing()),
        (SSF,  "verification",             json!({"state": "abc"}),                      verification(Some("abc"))),
        (SSF,  "verification",             json!({}),                                    verification(None)),
        (SSF,  "stream-updated",           json!({"status": "paused"}),                  updated("paused")),
        (SSF,  "stream-updated",           json!({}),                                    malformed()),
        (SSF,  "other",                    json!({}),                                    nothing()),
        ("urn:", "example",                json!({}),                                    nothing()),
        ("",   "session-revoked",          json!({}),                                    nothing()),
    ];
    for (profile, name, event, expected) in cases {
        let claims = claims_of(&format!("{profile}{name}"), &event);
        assert_eq!(meaning(&setting, &claims), expected, "{name}: {event}");
    }
}

#[test]
fn a_receiver_asks_for_each_type_that_can_end_something_and_for_no_other() {
    let setting = Setting::new();
    let event = json!({
        "change_type": "revoke", "current_status": "not-compliant", "change_direction": "decrease",
        "status": "enabled",
    });
    let ends = |kind: &str| {
        let meaning = meaning(&setting, &claims_of(kind, &event));
        matches!(meaning, Ok(Meaning::Ends(_)))
    };
    for kind in EVENT_TYPES {
        assert!(ends(kind), "{kind}");
    }
    let others = ["session-established", "session-presented", "token-claims-change"];
    let others = others.map(|name| format!("{CAEP}{name}")).into_iter().chain(
        ["account-enabled", "identifier-changed", "opt-out"].map(|name| format!("{RISC}{name}")),
    );
    let of_the_stream = ["verification", "stream-updated"].map(|name| format!("{SSF}{name}"));
    for kind in others.chain(of_the_stream) {
        assert!(!ends(&kind), "{kind}");
    }
}

#[test]
fn a_subject_is_named_with_the_prefix_of_its_issuer() {
    let setting = Setting::with_prefix("own:");
    let not_understood = || Ok(Meaning::SubjectNotUnderstood);
    let of_issuer =
        |issuer: &str, name: &str| json!({"format": "iss_sub", "iss": issuer, "sub": name});
    let opaque = |id: &str| json!({"format": "opaque", "id": id});
    let complex = |members: Value| {
        let mut subject = members;
        subject["format"] = json!("complex");
        subject
    };
    let both = Revocation { session: Some("own:s-1".to_owned()), ..actor("agent-7") };
    #[rustfmt::skip]
    let cases = [
        ("an issuer of actors",        of_issuer(SENDER, "agent-7"),               ends([actor("agent-7")])),
        ("the partner",                of_issuer(PARTNER, "agent-7"),              ends([actor("p:agent-7")])),
        ("an unknown issuer",          of_issuer("https://x.example", "agent-7"),  not_understood()),
        ("a name of the partner's",    of_issuer(SENDER, "p:agent-7"),             not_understood()),
        ("opaque",                     opaque("agent-7"),                          ends([actor("own:agent-7")])),
        ("email",                      json!({"format": "email", "email": "a@x.example"}), ends([actor("own:a@x.example")])),
        ("an empty name",              opaque(""),                                 not_understood()),
        ("a name of two lines",        opaque("a\nb"),                             not_understood()),
        ("no iss",                     json!({"format": "iss_sub", "sub": "agent-7"}), not_understood()),
        ("no sub",                     json!({"format": "iss_sub", "iss": SENDER}), not_understood()),
        ("a phone number",             json!({"format": "phone_number", "phone_number": "+1"}), not_understood()),
        ("account",                    json!({"format": "account", "uri": "acct:a@x.example"}), not_understood()),
        ("aliases",                    json!({"format": "aliases", "identifiers": [opaque("a")]}), not_understood()),
        ("no format",                  json!({"iss": SENDER, "sub": "agent-7"}),   not_understood()),
        ("text",                       json!("agent-7"),                           not_understood()),
        ("null",                       json!(null),                                Err(EventError::Malformed("no sub_id"))),
        ("user",                       complex(json!({"user": of_issuer(SENDER, "agent-7")})), ends([actor("agent-7")])),
        ("session",                    complex(json!({"session": opaque("s-1")})), ends([session("own:s-1")])),
        ("user and session",           complex(json!({"user": of_issuer(SENDER, "agent-7"), "session": opaque("s-1")})), ends([both])),
        ("user and all sessions",      complex(json!({"user": of_issuer(SENDER, "agent-7"), "session": opaque("ALL")})), ends([actor("agent-7")])),
        ("all sessions of nobody",     complex(json!({"session": opaque("ALL")})), not_understood()),
        ("user and device",            complex(json!({"user": of_issuer(SENDER, "agent-7"), "device": opaque("d")})), ends([actor("agent-7")])),
        ("user and an unread session", complex(json!({"user": of_issuer(SENDER, "agent-7"), "session": 7})), not_understood()),
        ("device",                     complex(json!({"device": opaque("d")})),    not_understood()),
        ("tenant",                     complex(json!({"tenant": opaque("t")})),    not_understood()),
        ("complex in complex",         complex(json!({"user": complex(json!({"user": opaque("a")}))})), not_understood()),
    ];
    for (case, subject, expected) in cases {
        let claims = with(claims(), "sub_id", subject);
        assert_eq!(meaning(&setting, &claims), expected, "{case}");
    }
    let in_event = |subject: Value| {
        without(with(claims(), "events", json!({REVOKED: {"subject": subject}})), "sub_id")
    };
    assert_eq!(meaning(&setting, &in_event(agent())), ends([actor("agent-7")]), "in the event");
}

/// An account that is closed is closed in every session.
#[test]
fn an_account_event_ends_every_session_of_the_account() {
    let setting = Setting::new();
    let opaque = |id: &str| json!({"format": "opaque", "id": id});
    let subject = json!({"format": "complex", "user": opaque("agent-7"), "session": opaque("s-1")});
    let claims = claims_of(&format!("{RISC}account-disabled"), &json!({}));
    let claims = with(claims, "sub_id", subject);
    assert_eq!(meaning(&setting, &claims), ends([actor("agent-7"), user("agent-7")]));
    let subject = json!({"format": "complex", "session": opaque("s-1")});
    let claims = with(claims, "sub_id", subject);
    assert_eq!(meaning(&setting, &claims), ends([session("s-1")]));
}

#[test]
fn the_time_is_that_of_the_event_and_never_lies_ahead_of_its_senders_clock() {
    let setting = Setting::new();
    let timed = |event: Value| claims_of(REVOKED, &event);
    #[rustfmt::skip]
    let cases = [
        ("event_timestamp",        timed(json!({"event_timestamp": NOW - 10})),                     NOW - 10),
        ("before toe",             with(timed(json!({"event_timestamp": NOW - 10})), "toe", NOW - 20), NOW - 10),
        ("toe",                    with(timed(json!({})), "toe", NOW - 20),                         NOW - 20),
        ("iat",                    with(timed(json!({})), "iat", NOW - 30),                         NOW - 30),
        ("ahead",                  timed(json!({"event_timestamp": NOW + 10})),                     NOW),
        ("ahead, on a clock ahead", with(timed(json!({"event_timestamp": NOW + 90})), "iat", NOW + 50), NOW + 50),
        ("on a clock ahead",       with(timed(json!({"event_timestamp": NOW + 40})), "iat", NOW + 50), NOW + 40),
        ("on a clock far ahead",   with(timed(json!({"event_timestamp": NOW + 40})), "iat", NOW + 61), NOW),
        ("in milliseconds",        timed(json!({"event_timestamp": NOW * 1000})),                   NOW),
        ("before the epoch",       timed(json!({"event_timestamp": -1})),                           0),
    ];
    for (case, claims, at) in cases {
        assert_eq!(verdict(&setting, &claims).unwrap().at.secs(), at, "{case}");
    }
    let half = timed(json!({"event_timestamp": 1_789_999_999.5}));
    assert_eq!(verdict(&setting, &half).unwrap().at.millis(), 1_789_999_999_500);
}

#[test]
fn a_statement_that_breaks_a_rule_is_refused_with_the_code_of_rfc_8935() {
    let setting = Setting::new();
    let two = json!({REVOKED: {}, "urn:example:other": {}});
    #[rustfmt::skip]
    let cases = [
        ("a good one",             claims(),                                  None),
        ("aud in a list",          with(claims(), "aud", json!([AUDIENCE])),  None),
        ("sub, which is ignored",  with(claims(), "sub", "agent-8"),          None),
        ("an old exp, likewise",   with(claims(), "exp", NOW - 1000),         None),
        ("txn",                    with(claims(), "txn", "t"),                None),
        ("no iss",                 without(claims(), "iss"),                  Some("invalid_issuer")),
        ("another iss",            with(claims(), "iss", PARTNER),            Some("invalid_issuer")),
        ("no aud",                 without(claims(), "aud"),                  Some("invalid_audience")),
        ("another aud",            with(claims(), "aud", "x"),                Some("invalid_audience")),
        ("no iat",                 without(claims(), "iat"),                  Some("invalid_request")),
        ("iat as text",            with(claims(), "iat", "x"),                Some("invalid_request")),
        ("no jti",                 without(claims(), "jti"),                  Some("invalid_request")),
        ("an empty jti",           with(claims(), "jti", ""),                 Some("invalid_request")),
        ("jti, a number",          with(claims(), "jti", 7),                  Some("invalid_request")),
        ("no events",              without(claims(), "events"),               Some("invalid_request")),
        ("no event",               with(claims(), "events", json!({})),       Some("invalid_request")),
        ("two events",             with(claims(), "events", two),             Some("invalid_request")),
        ("events, a list",         with(claims(), "events", json!([REVOKED])), Some("invalid_request")),
        ("the event, null",        with(claims(), "events", json!({REVOKED: null})), Some("invalid_request")),
        ("no subject",             without(claims(), "sub_id"),               Some("invalid_request")),
        ("a time as text",         claims_of(REVOKED, &json!({"event_timestamp": "x"})), Some("invalid_request")),
        ("toe as text",            with(claims(), "toe", "x"),                Some("invalid_request")),
    ];
    for (case, claims, code) in cases {
        let refused = verdict(&setting, &claims).err();
        assert_eq!(refused.as_ref().map(EventError::code), code, "{case}: {refused:?}");
    }
}

#[test]
fn the_type_and_the_signature_must_be_those_of_a_security_event() {
    let setting = Setting::new();
    #[rustfmt::skip]
    let cases = [
        (Some("secevent+jwt"),             None),
        (Some("SecEvent+JWT"),             None),
        (Some("application/secevent+jwt"), None),
        (None,                             Some("invalid_request")),
        (Some("JWT"),                      Some("invalid_request")),
        (Some("logout+jwt"),               Some("invalid_request")),
        (Some("at+jwt"),                   Some("invalid_request")),
    ];
    for (r#type, code) in cases {
        let refused = setting.security_event(&setting.sign(r#type, &claims())).err();
        assert_eq!(refused.as_ref().map(EventError::code), code, "{type:?}");
    }
    let stranger = testkit::keys::Key::generate(jsonwebtoken::Algorithm::EdDSA, "k");
    let refused = setting.security_event(&setting.sign_with(&stranger, TYPE, &claims())).err();
    assert_eq!(refused, Some(StatementError::Signature.into()));
    assert_eq!(refused.unwrap().code(), "invalid_key");
}
