//! The end of an impersonation: the parties that may end it, and the lines in the audit log.

use std::time::Duration;

use testkit::http::Form;

use super::setting::{ExchangeForm, backend_token};
use crate::driver::{Answer, Gateway, Request};

/// The public client of these tests revokes a token.
fn revoke(gateway: &Gateway, token: &str) -> Answer {
    let form = Form::default().set("client_id", "console").set("token", token);
    gateway.send(&Request {
        method: "POST",
        path: "/oidc/token/revocation".into(),
        headers: vec![("content-type", "application/x-www-form-urlencoded".into())],
        body: form.encode().into(),
    })
}

/// The caller of these tests takes a token back.
fn cancel(gateway: &Gateway, id: &str) -> Answer {
    gateway.send(&Request {
        method: "DELETE",
        path: format!("/api/subject-tokens/{id}"),
        headers: vec![("authorization", format!("Bearer {}", backend_token()))],
        body: Vec::new(),
    })
}

/// The table of revocations as it is stored; `None` as long as it is the table that a service
/// begins with.
fn table(gateway: &Gateway) -> Option<Vec<u8>> {
    let stored = gateway.world.stored();
    stored.into_iter().find(|(key, _)| key.ends_with("rt")).map(|(_, table)| table)
}

/// A subject token, its access token, and the id of both.
type Begun = (String, String, String);

/// A way to end an impersonation, and the status of the answer.
type Way = fn(&Gateway, &Begun) -> u16;

fn begin(gateway: &Gateway) -> Begun {
    let subject_token = gateway.mint();
    let answer = gateway.exchange(&ExchangeForm::new(&subject_token));
    assert_eq!(answer.status, 200, "{answer:?}");
    let id = answer.event["subject_token_id"].as_str().unwrap().to_owned();
    (subject_token, answer.text("access_token").to_owned(), id)
}

#[test]
fn an_impersonation_that_has_ended_is_not_logged_again() {
    let gateway = Gateway::usual();
    gateway.tick();
    let ways: [Way; 4] = [
        |gateway, (_, access_token, _)| revoke(gateway, access_token).status,
        |gateway, (subject_token, ..)| revoke(gateway, subject_token).status,
        |gateway, (.., id)| cancel(gateway, id).status,
        |gateway, (subject_token, ..)| gateway.exchange(&ExchangeForm::new(subject_token)).status,
    ];
    for (first, end) in ways.into_iter().enumerate() {
        let begun = begin(&gateway);
        gateway.world.advance(Duration::from_millis(5));
        let before = table(&gateway);
        end(&gateway, &begun);
        let ended = table(&gateway);
        assert_ne!(before, ended, "{first}");
        for time in 0..100 {
            gateway.world.advance(Duration::from_millis(1));
            let status = ways[time % ways.len()](&gateway, &begun);
            assert!([200, 204, 400].contains(&status), "{first}: {status}");
        }
        assert!(ended == table(&gateway), "{first}: it was written again");
    }
}

#[test]
fn an_unused_subject_token_is_taken_back_without_a_revocation() {
    let gateway = Gateway::usual();
    gateway.tick();
    let before = table(&gateway);
    let (one, other) = (gateway.mint(), gateway.mint());
    assert_eq!(revoke(&gateway, &one).status, 200);
    let refused = gateway.exchange(&ExchangeForm::new(&one));
    assert_eq!((refused.status, refused.reason()), (400, "revoked"));
    let id = refused.event["subject_token_id"].as_str().unwrap();
    for _ in 0..3 {
        assert_eq!(cancel(&gateway, id).status, 204);
    }
    assert!(before == table(&gateway));
    gateway.assert_spendable(&other, "another");
}

#[test]
fn an_expired_token_is_not_revoked() {
    let gateway = Gateway::usual();
    let (subject_token, access_token, _) = begin(&gateway);
    gateway.world.advance(Duration::from_secs(3600));
    gateway.tick();
    let before = table(&gateway);
    let answer = revoke(&gateway, &access_token);
    assert_eq!(
        (answer.status, &answer.event["event"]),
        (200, &"impersonation.revocation_ignored".into())
    );
    assert!(before == table(&gateway));
    // A subject token does not say when the access token expires. Only after the longest life is
    // its end certain.
    gateway.world.advance(Duration::from_secs(24 * 3600));
    assert_eq!(revoke(&gateway, &subject_token).status, 200);
    assert!(before == table(&gateway));
}

/// A token that was taken back while the clock was ahead stays taken back when the clock is right
/// again.
#[test]
fn a_token_that_seems_to_have_expired_is_taken_back_all_the_same() {
    let gateway = Gateway::usual();
    let token = gateway.mint();
    gateway.world.advance(Duration::from_secs(5400));
    assert_eq!(revoke(&gateway, &token).status, 200);
    gateway.world.set_back(Duration::from_secs(5400));
    let refused = gateway.exchange(&ExchangeForm::new(&token));
    assert_eq!((refused.status, refused.reason()), (400, "revoked"));
}
