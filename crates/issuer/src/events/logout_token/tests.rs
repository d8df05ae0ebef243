//! The rules of OpenID Connect Back-Channel Logout 1.0 §2.6, one row each.

use serde_json::{Value, json};

use super::super::tests::*;
use super::*;
use crate::host::UnixTime;
use crate::statement::StatementError;
use testkit::keys::Key;

fn claims() -> Value {
    json!({
        "iss": SENDER, "aud": AUDIENCE, "iat": NOW, "exp": NOW + 120, "jti": "j-1",
        "sub": "agent-7", "sid": "s-1", "events": {LOGOUT: {}},
    })
}

const TYPE: Option<&str> = Some("logout+jwt");

fn verdict(setting: &Setting, claims: &Value) -> Result<ReceivedEvent, EventError> {
    setting.logout_token(&setting.sign(TYPE, claims))
}

#[test]
fn a_logout_token_ends_its_session_or_all_of_its_actor() {
    let setting = Setting::new();
    let event = verdict(&setting, &claims()).unwrap();
    let expected = ReceivedEvent {
        issuer: SENDER.to_owned(),
        jti: "j-1".to_owned(),
        kind: LOGOUT.to_owned(),
        at: UnixTime::from_secs(i64::try_from(NOW).unwrap()),
        person: Some("agent-7".to_owned()),
        meaning: Meaning::Ends(vec![session("s-1")]),
    };
    assert_eq!(event, expected);
    let ends = |ended: Revocation| Meaning::Ends(vec![ended]);
    #[rustfmt::skip]
    let cases = [
        ("sid alone",          without(claims(), "sub"),       ends(session("s-1"))),
        ("sub alone",          without(claims(), "sid"),       ends(actor("agent-7"))),
        ("an empty sid",       with(claims(), "sid", ""),      ends(actor("agent-7"))),
        ("another's sid",      with(claims(), "sid", "p:s-1"), Meaning::SubjectNotUnderstood),
        ("a sid of two lines", with(claims(), "sid", "a\nb"),  Meaning::SubjectNotUnderstood),
    ];
    for (case, claims, meaning) in cases {
        assert_eq!(verdict(&setting, &claims).map(|event| event.meaning), Ok(meaning), "{case}");
    }
    let prefixed = Setting::with_prefix("p:");
    let event = verdict(&prefixed, &without(claims(), "sid")).unwrap();
    assert_eq!(event.meaning, ends(actor("p:agent-7")));
}

#[test]
fn the_time_of_a_logout_is_its_iat_unless_that_lies_more_than_a_minute_ahead() {
    let setting = Setting::new();
    #[rustfmt::skip]
    let cases = [
        (NOW - 100, NOW - 100),
        (NOW,       NOW),
        (NOW + 60,  NOW + 60),
        (NOW + 61,  NOW),
    ];
    for (iat, at) in cases {
        let event = verdict(&setting, &with(claims(), "iat", iat)).unwrap();
        assert_eq!(event.at.secs(), at, "{iat}");
    }
}

#[test]
fn a_statement_that_breaks_a_rule_of_2_6_is_refused() {
    let setting = Setting::new();
    let malformed = |text: &'static str| Some(EventError::Malformed(text));
    let because = |error: StatementError| Some(EventError::Statement(error));
    let audience = || Some(EventError::Audience);
    let no_event = || malformed("events has no member for a back-channel logout");
    use StatementError::*;
    #[rustfmt::skip]
    let cases = [
        ("a good one",                 claims(),                                     None),
        ("another aud beside ours",    with(claims(), "aud", json!(["x", AUDIENCE])), None),
        ("the other audience",         with(claims(), "aud", "other"),               None),
        ("another event beside it",    with(claims(), "events", json!({LOGOUT: {}, "urn:x": {}})), None),
        ("a member in the event",      with(claims(), "events", json!({LOGOUT: {"x": 1}})), None),
        ("a claim that we ignore",     with(claims(), "trace_id", "x"),              None),
        ("expired within the skew",    with(claims(), "exp", NOW - 59),              None),
        ("no iss",                     without(claims(), "iss"),                     because(Issuer(String::new()))),
        ("another iss",                with(claims(), "iss", PARTNER),               because(Issuer(PARTNER.into()))),
        ("iss with a slash",           with(claims(), "iss", format!("{SENDER}/")),  because(Issuer(format!("{SENDER}/")))),
        ("no aud",                     without(claims(), "aud"),                     audience()),
        ("another aud",                with(claims(), "aud", "portal-2"),            audience()),
        ("an empty list of aud",       with(claims(), "aud", json!([])),             audience()),
        ("no iat",                     without(claims(), "iat"),                     malformed("no iat")),
        ("iat as text",                with(claims(), "iat", "now"),                 because(Claims)),
        ("no exp",                     without(claims(), "exp"),                     None),
        ("no exp, five minutes old",   with(without(claims(), "exp"), "iat", NOW - 300), None),
        ("no exp, older",              with(without(claims(), "exp"), "iat", NOW - 301), because(Expired)),
        ("no exp, a minute ahead",     with(without(claims(), "exp"), "iat", NOW + 60), None),
        ("no exp, further ahead",      with(without(claims(), "exp"), "iat", NOW + 61), because(NotYetValid)),
        ("no exp, not valid yet",      with(without(claims(), "exp"), "nbf", NOW + 61), because(NotYetValid)),
        ("neither exp nor iat",        without(without(claims(), "exp"), "iat"),     because(NoExpiry)),
        ("expired",                    with(claims(), "exp", NOW - 60),              because(Expired)),
        ("not valid yet",              with(claims(), "nbf", NOW + 61),              because(NotYetValid)),
        ("no jti",                     without(claims(), "jti"),                     malformed("no jti")),
        ("an empty jti",               with(claims(), "jti", ""),                    malformed("no jti")),
        ("neither sub nor sid",        without(without(claims(), "sub"), "sid"),     malformed("neither sub nor sid")),
        ("both empty",                 with(with(claims(), "sub", ""), "sid", ""),   malformed("neither sub nor sid")),
        ("sub, a number",              with(claims(), "sub", 7),                     because(Claims)),
        ("sid, a list",                with(claims(), "sid", json!(["s-1"])),        because(Claims)),
        ("no events",                  without(claims(), "events"),                  no_event()),
        ("events, null",               with(claims(), "events", json!(null)),        no_event()),
        ("events, a list",             with(claims(), "events", json!([LOGOUT])),    no_event()),
        ("events, text",               with(claims(), "events", LOGOUT),             no_event()),
        ("another event",              with(claims(), "events", json!({"urn:x": {}})), no_event()),
        ("the event, null",            with(claims(), "events", json!({LOGOUT: null})), no_event()),
        ("the event, true",            with(claims(), "events", json!({LOGOUT: true})), no_event()),
        ("a nonce",                    with(claims(), "nonce", "n"),                 malformed("a logout token has no nonce")),
        ("a nonce, null",              with(claims(), "nonce", json!(null)),         malformed("a logout token has no nonce")),
    ];
    for (case, claims, refused) in cases {
        assert_eq!(verdict(&setting, &claims).err(), refused, "{case}");
    }
}

/// RFC 8725 §3.11: no other kind of statement is a logout token, even if its claims would do.
#[test]
fn the_type_and_the_signature_must_be_those_of_a_logout_token() {
    let setting = Setting::new();
    #[rustfmt::skip]
    let cases = [
        (Some("logout+jwt"),             true),
        (Some("Logout+JWT"),             true),
        (Some("application/logout+jwt"), true),
        (Some("JWT"),                    true),
        (None,                           true),
        (Some("at+jwt"),                 false),
        (Some("secevent+jwt"),           false),
        (Some("id_token+jwt"),           false),
        (Some(""),                       false),
    ];
    for (r#type, accepted) in cases {
        let verdict = setting.logout_token(&setting.sign(r#type, &claims()));
        assert_eq!(verdict.is_ok(), accepted, "{type:?}: {verdict:?}");
    }
    let stranger = Key::generate(jsonwebtoken::Algorithm::EdDSA, "k");
    let forged = setting.sign_with(&stranger, TYPE, &claims());
    let refused = setting.logout_token(&forged).err();
    assert_eq!(refused, Some(StatementError::Signature.into()));
    let token = setting.sign(TYPE, &claims());
    let (signed, _) = token.rsplit_once('.').unwrap();
    for broken in [format!("{signed}."), signed.to_owned(), String::new(), "a.b.c".to_owned()] {
        assert!(setting.logout_token(&broken).is_err(), "{broken}");
    }
}
