//! Time, to the millisecond: when a token begins, when it ends, and what an exchange does that is overtaken
//! by the end.

use std::rc::Rc;
use std::time::Duration;

use impersonation_core::step::Reply;
use serde_json::{Value, json};

use crate::flow::claims;
use crate::setting::{
    ExchangeForm, NOW, PROVIDER_KEY, actor_claims, backend_claims, configured, mint_form, with,
};
use crate::world::Gateway;

const LIFETIME: Duration = Duration::from_secs(600);
const INSTANT: Duration = Duration::from_millis(1);

#[test]
fn a_subject_token_ends_to_the_millisecond() {
    let gateway = Gateway::usual();
    // Not on a full second, where rounding would hide.
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

/// The actor is asked about while the subject token's time runs out.
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
            // Issued when it was signed, not when the request came.
            assert_eq!(claims(&gateway, &answer)["iat"], NOW + 599);
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

/// A token that was verified is not verified again; it expires all the same.
#[test]
fn a_remembered_token_ends_when_it_ends() {
    let gateway = Gateway::usual();
    let mint = mint_form().bearer(&PROVIDER_KEY.sign(&with(backend_claims(), "exp", NOW + 1)));
    assert_eq!(gateway.send(&mint.request()).status, 201);
    gateway.world.advance(Duration::from_millis(60_999));
    assert_eq!(gateway.send(&mint.request()).status, 201);
    gateway.world.advance(INSTANT);
    assert_eq!(gateway.send(&mint.request()).reason(), "expired");
}

#[test]
fn expires_in_and_exp_say_the_same() {
    let gateway = Gateway::usual();
    gateway.world.advance(Duration::from_millis(999));
    let answer = gateway.exchange(&ExchangeForm::new(&gateway.mint()));
    let claims = claims(&gateway, &answer);
    assert_eq!(claims["iat"], NOW);
    assert_eq!(claims["exp"], NOW + answer.body["expires_in"].as_u64().unwrap());
}
