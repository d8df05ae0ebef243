//! Logout tokens: each rule of OpenID Connect Back-Channel Logout 1.0 §2.4 to §2.6, the answer, and
//! what ended.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jsonwebtoken::Algorithm;
use serde_json::{Value, json};

use super::{Findings, Live, World, actor_token, audited, changed, exchange, mint, start};
use testkit::configuration::PROVIDER_KEY;
use testkit::events::{LOGOUT, PORTAL, logout_claims, logout_request, sign};
use testkit::gateway::now;
use testkit::keys::{Key, unsigned};

/// Brings a logout token. Returns the status, and the error code of a refusal.
fn log_out(world: &World, token: &str) -> (u16, String) {
    let answer = world.send(&logout_request(token));
    let cache = answer.header("cache-control").map(str::to_owned);
    assert_eq!(cache.as_deref(), Some("no-store"), "§2.8: {answer:?}");
    match answer.status {
        200 => (200, String::new()),
        status => (status, answer.member("error")),
    }
}

fn expect(
    world: &World,
    findings: &mut Findings,
    case: &str,
    token: impl FnOnce(&Live) -> String,
    ends: bool,
) {
    let live = Live::begin(world);
    let told = log_out(world, &token(&live));
    let is_valid = ends || case.starts_with("good");
    let expected = if is_valid { (200, "") } else { (400, "invalid_request") };
    findings.expect(case, &(told.0, &*told.1), &expected);
    findings.expect(format!("{case}: it has ended"), &live.has_ended(world), &ends);
}

/// A change of the claims of a good logout token.
type Row = (&'static str, fn(&Live) -> Value, bool);

#[test]
fn each_rule_about_claims_is_kept_and_an_invalid_logout_token_ends_nothing() {
    let world = start();
    #[rustfmt::skip]
    let rows: [Row; 46] = [
        // §2.4: the claims. A row that is good and ends nothing names somebody else.
        ("by sid",                       |_| json!({}),                                              true),
        ("by sub",                       |live| json!({"sid": null, "sub": live.actor}),             true),
        ("by sid, beside sub",           |live| json!({"sub": live.actor}),                          true),
        ("by sid, beside another's sub", |_| json!({"sub": "another"}),                              true),
        ("good, another sid",            |live| json!({"sid": "another", "sub": live.actor}),        false),
        ("good, another sub",            |_| json!({"sid": null, "sub": "another"}),                 false),
        ("good, the user's sub",         |live| json!({"sid": null, "sub": live.user}),              false),
        ("good, the sid as sub",         |live| json!({"sid": null, "sub": live.sid}),               false),
        ("aud in a list",                |_| json!({"aud": ["x", PORTAL]}),                          true),
        ("an unknown claim",             |_| json!({"x": {"nonce": 1}}),                             true),
        ("a second event",               |_| json!({"events": {LOGOUT: {}, "urn:x": {}}}),           true),
        ("members in the event",         |_| json!({"events": {LOGOUT: {"x": 1}}}),                  true),
        ("expired within the skew",      |_| json!({"exp": now() - 30}),                             true),
        ("exp missing",                  |_| json!({"exp": null}),                                   true),
        ("good, exp missing, iat of four minutes ago", |_| json!({"exp": null, "iat": now() - 240}), false),
        ("nbf within the skew",          |_| json!({"nbf": now() + 30}),                             true),
        ("iat with a fraction",          |_| json!({"iat": now() as f64 + 0.25}),                    true),
        ("iat of an hour ago, before the sign-in", |_| json!({"iat": now() - 3600}),                 false),
        // §2.6: what is validated, in its order.
        ("iss missing",                  |_| json!({"iss": null}),                                   false),
        ("iss of another",               |_| json!({"iss": "https://other.example.com"}),            false),
        ("iss with a slash more",        |_| json!({"iss": format!("{}/", testkit::configuration::ISSUER)}), false),
        ("iss not a string",             |_| json!({"iss": 7}),                                      false),
        ("aud missing",                  |_| json!({"aud": null}),                                   false),
        ("aud of another",               |_| json!({"aud": "other"}),                                false),
        ("aud empty",                    |_| json!({"aud": []}),                                     false),
        ("aud a prefix",                 |_| json!({"aud": "support"}),                              false),
        ("aud of security events",       |_| json!({"aud": testkit::events::RECEIVER}),              false),
        ("iat missing",                  |_| json!({"iat": null}),                                   false),
        ("iat a string",                 |_| json!({"iat": now().to_string()}),                      false),
        ("exp missing, iat of six minutes ago", |_| json!({"exp": null, "iat": now() - 360}),        false),
        ("exp missing, iat ahead",       |_| json!({"exp": null, "iat": now() + 600}),               false),
        ("exp over",                     |_| json!({"exp": now() - 120}),                            false),
        ("exp a string",                 |_| json!({"exp": (now() + 120).to_string()}),              false),
        ("nbf ahead",                    |_| json!({"nbf": now() + 600}),                            false),
        ("neither sub nor sid",          |_| json!({"sid": null}),                                   false),
        ("sid not a string",             |_| json!({"sid": 7}),                                      false),
        ("sid empty",                    |_| json!({"sid": ""}),                                     false),
        ("events missing",               |_| json!({"events": null}),                                false),
        ("events not an object",         |_| json!({"events": [LOGOUT]}),                            false),
        ("events a string",              |_| json!({"events": LOGOUT}),                              false),
        ("events without the logout",    |_| json!({"events": {"urn:x": {}}}),                       false),
        ("the logout not an object",     |_| json!({"events": {LOGOUT: true}}),                      false),
        ("a nonce",                      |_| json!({"nonce": "n"}),                                  false),
        ("a nonce that is null",         |_| json!({"nonce": "null"}),                               false),
        ("jti missing",                  |_| json!({"jti": null}),                                   false),
        ("jti empty",                    |_| json!({"jti": ""}),                                     false),
    ];
    let mut findings = Findings::default();
    for (case, changes, ends) in rows {
        // Valid, and about somebody else or too early: nothing of this impersonation ends.
        let case = if case.starts_with("iat of an hour ago") { "good, an hour ago" } else { case };
        let token =
            |live: &Live| sign("logout+jwt", &changed(logout_claims(&live.sid), &changes(live)));
        expect(&world, &mut findings, case, token, ends);
    }
}

#[test]
fn each_rule_about_type_and_signature_is_kept() {
    let world = start();
    let other = Key::generate(Algorithm::RS256, &PROVIDER_KEY.kid);
    let ec = Key::generate(Algorithm::ES256, &PROVIDER_KEY.kid);
    let header = |changes: &Value| {
        let good = json!({"alg": PROVIDER_KEY.alg, "kid": PROVIDER_KEY.kid, "typ": "logout+jwt"});
        changed(good, changes)
    };
    let good = |changes: Value| {
        let header = header(&changes);
        move |live: &Live| PROVIDER_KEY.sign_with(&header, &logout_claims(&live.sid))
    };
    let mut findings = Findings::default();
    for typ in ["logout+jwt", "application/logout+jwt", "LOGOUT+JWT", "JWT", "jwt"] {
        expect(&world, &mut findings, &format!("typ {typ}"), good(json!({"typ": typ})), true);
    }
    expect(&world, &mut findings, "no typ", good(json!({"typ": null})), true);
    for typ in ["at+jwt", "secevent+jwt", "dpop+jwt", "", "logout"] {
        expect(&world, &mut findings, &format!("typ {typ:?}"), good(json!({"typ": typ})), false);
    }
    expect(&world, &mut findings, "crit", good(json!({"crit": ["x"], "x": 1})), false);
    expect(&world, &mut findings, "another kid", good(json!({"kid": "other"})), false);
    expect(&world, &mut findings, "alg of the header", good(json!({"alg": "PS256"})), false);
    let signed = |key: &Key, live: &Live| {
        key.sign_with(&header(&json!({"alg": key.alg})), &logout_claims(&live.sid))
    };
    expect(&world, &mut findings, "another's key", |live| signed(&other, live), false);
    expect(&world, &mut findings, "another kind of key", |live| signed(&ec, live), false);
    let none = |live: &Live| {
        format!("{}.", unsigned(&header(&json!({"alg": "none"})), &logout_claims(&live.sid)))
    };
    expect(&world, &mut findings, "alg none", none, false);
    // RFC 8725 §2.1: the public key as the secret of an HMAC.
    let hmac = |live: &Live| {
        let input = unsigned(&header(&json!({"alg": "HS256"})), &logout_claims(&live.sid));
        let key =
            hmac::Key::new(hmac::HMAC_SHA256, PROVIDER_KEY.public_jwk().to_string().as_bytes());
        let tag = hmac::sign(&key, input.as_bytes());
        format!("{input}.{}", BASE64_URL_SAFE_NO_PAD.encode(tag))
    };
    expect(&world, &mut findings, "HS256", hmac, false);
    let token = |live: &Live| sign("logout+jwt", &logout_claims(&live.sid));
    let cut = |live: &Live| token(live).rsplit_once('.').unwrap().0.to_owned();
    expect(&world, &mut findings, "two parts", cut, false);
    expect(
        &world,
        &mut findings,
        "five parts, as if encrypted",
        |live| format!("{}.x.y", token(live)),
        false,
    );
    let forged = |live: &Live| {
        let (_, signature) =
            token(live).rsplit_once('.').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
        let input = unsigned(&header(&json!({})), &logout_claims(&live.sid));
        format!("{input}.{signature}")
    };
    expect(&world, &mut findings, "another's signature", forged, false);
    expect(&world, &mut findings, "a space behind it", |live| format!("{} ", token(live)), false);
}

/// §2.6 (8): each `jti` counts once. A logout ends what began until it, and the next sign-in is
/// good at once.
#[test]
fn a_repeated_logout_is_answered_as_the_first_and_ends_nothing_of_the_next_sign_in() {
    let world = start();
    let live = Live::begin(&world);
    let mut claims = logout_claims(&live.sid);
    let logout_at = now() - 5;
    claims["iat"] = json!(logout_at);
    let jti = claims["jti"].as_str().unwrap().to_owned();
    let logout = sign("logout+jwt", &claims);
    assert_eq!(log_out(&world, &logout), (200, String::new()));
    assert!(live.has_ended(&world));
    let line = audited(&world, &jti);
    assert_eq!(
        (&line["event"], &line["outcome"]),
        (&json!("impersonations.ended"), &json!("ended"))
    );
    assert_eq!((&line["session"], &line["event_type"]), (&json!(live.sid), &json!(LOGOUT)));
    world.advance(1);
    let old = exchange(
        &world,
        &mint(&world, &live.user),
        &actor_token(&live.actor, &live.sid, logout_at),
    );
    assert_eq!(
        old.refusal(),
        (400, "invalid_request".into()),
        "issued in the second of the logout"
    );
    let next = exchange(
        &world,
        &mint(&world, &live.user),
        &actor_token(&live.actor, &live.sid, logout_at + 1),
    );
    assert_eq!(next.status, 200, "{next:?}");
    let next = Live { access_token: next.member("access_token"), ..live };
    for _ in 0..3 {
        assert_eq!(log_out(&world, &logout), (200, String::new()));
    }
    // The same logout in a token of its own, as after the memory of ids has turned over.
    claims["jti"] = json!(testkit::events::unique_jti());
    assert_eq!(log_out(&world, &sign("logout+jwt", &claims)), (200, String::new()));
    assert!(!next.has_ended(&world));
}

/// The presenter of a good actor token is told to sign in again, and not why.
#[test]
fn an_actor_token_from_before_a_logout_is_refused_with_the_advice_to_sign_in_again() {
    let world = start();
    let live = Live::begin(&world);
    assert_eq!(log_out(&world, &sign("logout+jwt", &logout_claims(&live.sid))).0, 200);
    let before =
        exchange(&world, &mint(&world, "u-1"), &actor_token(&live.actor, &live.sid, now() - 10));
    assert_eq!(before.refusal(), (400, "invalid_request".into()));
    let told = before.member("error_description");
    assert!(told.contains("sign in again") && told.contains("new actor token"), "{told}");
    let unsigned = exchange(&world, &mint(&world, "u-1"), "a.b.c").member("error_description");
    assert!(!unsigned.contains("sign in again"), "{unsigned}");
}
