//! Time, to the millisecond: the begin and the end of a token, and an exchange during which its
//! token expires.

use std::rc::Rc;
use std::time::Duration;

use impersonation_core::step::Reply;
use serde_json::{Value, json};

use super::setting::{
    ExchangeForm, NOW, PROVIDER_KEY, actor_claims, backend_claims, configuration, configured,
    mint_form, with,
};
use crate::driver::{FakeHost, Gateway};
use testkit::configuration::jwks;
use testkit::gateway::raw_part;

const LIFETIME: Duration = Duration::from_secs(600);
const INSTANT: Duration = Duration::from_millis(1);

#[test]
fn a_subject_token_ends_to_the_millisecond() {
    let gateway = Gateway::usual();
    // The time is not a full second, where rounding would not show.
    gateway.world.advance(Duration::from_millis(337));
    let [early, late] = [gateway.mint(), gateway.mint()];
    gateway.world.advance(LIFETIME - INSTANT);
    gateway.assert_spendable(&early, "a millisecond before its end");
    gateway.world.advance(INSTANT);
    let answer = gateway.exchange(&ExchangeForm::new(&late));
    assert_eq!((answer.status, answer.text("error")), (400, "invalid_request"));
    assert_eq!(answer.text("error_description"), "the subject token has expired");
    assert_eq!(answer.reason(), "subject_token_expired");
}

#[test]
fn a_slot_is_used_again_once_its_token_has_expired() {
    let gateway = Gateway::usual();
    let first: Vec<_> = (0..4).map(|_| gateway.mint()).collect();
    gateway.world.advance(LIFETIME - INSTANT);
    assert_eq!(gateway.send(&mint_form().request()).reason(), "store_full");
    gateway.world.advance(INSTANT);
    let second: Vec<_> = (0..4).map(|_| gateway.mint()).collect();
    for subject_token in &first {
        let answer = gateway.exchange(&ExchangeForm::new(subject_token));
        assert_eq!(answer.reason(), "subject_token_unknown");
    }
    for subject_token in &second {
        gateway.assert_spendable(subject_token, "in a slot that was used before");
    }
}

/// The filter asks about the actor while the subject token expires.
#[test]
fn an_exchange_that_takes_too_long_is_refused() {
    for (waits, status) in [(LIFETIME - INSTANT, 200), (LIFETIME, 400)] {
        let gateway = Gateway::new(&configured(
            "/actor_tokens/userinfo",
            json!({"http_uri": {"uri": "https://auth.example.com/oidc/me", "cluster": "gateway"}}),
        ));
        let subject_token = gateway.mint();
        let world = Rc::clone(&gateway.world);
        gateway.upstream(move |_| {
            world.advance(waits);
            let body = json!({"sub": "agent-7"}).to_string().into_bytes();
            Reply::Http { status: 200, json: true, body }
        });
        let answer = gateway.exchange(&ExchangeForm::new(&subject_token).actor("opaque"));
        assert_eq!(answer.status, status, "{answer:?}");
        if status == 200 {
            // The access token is issued when it is signed, not when the request arrives.
            assert_eq!(raw_part(answer.text("access_token"), 1)["iat"], NOW + 599);
        } else {
            assert_eq!(answer.reason(), "subject_token_expired");
        }
    }
}

#[test]
fn a_presented_token_is_good_within_the_skew_of_its_issuers_clock() {
    #[rustfmt::skip]
    let cases: [(&str, u64, u64, bool); 6] = [
        ("exp", NOW,       59_999, true),
        ("exp", NOW,       60_000, false),
        ("exp", NOW - 60,       0, false),
        ("nbf", NOW + 60,       0, true),
        ("nbf", NOW + 61,     999, false),
        ("nbf", NOW + 61,    1000, true),
    ];
    for (claim, value, wait, good) in cases {
        let case = format!("{claim} {value}, {wait} ms later");
        let gateway = Gateway::usual();
        let sign = |claims: Value| PROVIDER_KEY.sign(&with(claims, claim, value));
        let mint = mint_form().bearer(&sign(backend_claims()));
        let form = ExchangeForm::new(&gateway.mint()).actor(&sign(actor_claims()));
        gateway.world.advance(Duration::from_millis(wait));
        assert_eq!(gateway.send(&mint.request()).status, if good { 201 } else { 401 }, "{case}");
        assert_eq!(gateway.exchange(&form).status, if good { 200 } else { 400 }, "{case}");
    }
}

// A clock that is set back or forward. A record that was written in the future does not tell its
// age.

#[test]
fn subject_tokens_from_before_the_clock_was_set_back_have_expired() {
    // Everything that was issued before the filter began has ended, so this filter began a while
    // ago.
    let world = Rc::<FakeHost>::default();
    world.set_back(Duration::from_secs(2 * 3600));
    let gateway = Gateway::in_world(&world, &configuration());
    world.advance(Duration::from_secs(2 * 3600));
    let token = gateway.mint();
    gateway.world.set_back(Duration::from_secs(5));
    gateway.assert_spendable(&token, "as clocks are corrected all the time");

    let tokens: Vec<_> = (0..4).map(|_| gateway.mint()).collect();
    gateway.world.set_back(Duration::from_secs(3600));
    for token in &tokens {
        let answer = gateway.exchange(&ExchangeForm::new(token));
        assert_eq!((answer.status, answer.reason()), (400, "subject_token_expired"));
    }
    for _ in 0..4 {
        gateway.assert_spendable(&gateway.mint(), "in the slot of one that has expired");
    }
}

#[test]
fn keys_that_cannot_be_refreshed_count_for_as_long_as_the_operator_says() {
    for (max_stale, after, status) in [
        (None, 86_399, 201),
        (None, 86_400, 503),
        (Some("600s"), 600, 503),
        (Some("0s"), 864_000, 201),
    ] {
        let mut configuration = configuration();
        let jwt = &mut configuration["subject_tokens"]["authentication"]["jwt"][0];
        jwt.as_object_mut().unwrap().remove("local_jwks");
        let http_uri = json!({"uri": "https://auth.example.com/oidc/jwks", "cluster": "gateway"});
        jwt["remote_jwks"] = json!({"http_uri": http_uri, "cache_duration": "300s"});
        if let Some(max_stale) = max_stale {
            jwt["remote_jwks"]["max_stale"] = max_stale.into();
        }
        let gateway = Gateway::new(&configuration);
        let body = jwks(&[&PROVIDER_KEY])["inline_string"].as_str().unwrap().as_bytes().to_vec();
        gateway.upstream(move |_| Reply::Http { status: 200, json: true, body: body.clone() });
        gateway.tick();
        gateway.world.advance(Duration::from_secs(after));
        let bearer = PROVIDER_KEY.sign(&with(backend_claims(), "exp", NOW + 1_000_000));
        if status == 503 {
            // The request makes the filter try once more.
            gateway.upstream(|_| Reply::Http { status: 500, json: false, body: Vec::new() });
        }
        let answer = gateway.send(&mint_form().bearer(&bearer).request());
        assert_eq!(answer.status, status, "{max_stale:?} after {after} s: {answer:?}");
    }
}

#[test]
fn an_answer_about_an_opaque_token_is_not_remembered_over_a_clock_that_was_set_back() {
    let gateway = Gateway::new(&configured(
        "/actor_tokens/userinfo",
        json!({"http_uri": {"uri": "https://auth.example.com/oidc/me", "cluster": "gateway"}}),
    ));
    let says = |status: u16| {
        move |_: &_| Reply::Http {
            status,
            json: true,
            body: json!({"sub": "agent-7"}).to_string().into_bytes(),
        }
    };
    gateway.upstream(says(200));
    let form = |gateway: &Gateway| ExchangeForm::new(&gateway.mint()).actor("opaque");
    assert_eq!(gateway.exchange(&form(&gateway)).status, 200);
    assert_eq!(gateway.exchange(&form(&gateway)).status, 200, "remembered");
    gateway.world.set_back(Duration::from_secs(60));
    gateway.upstream(says(401));
    assert_eq!(gateway.exchange(&form(&gateway)).reason(), "actor_token", "asked about again");
}
