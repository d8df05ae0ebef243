//! The facts that all refusals have in common, and an alarm in full.

use serde_json::json;

use super::setting::{ExchangeForm, NOW, actor_token};
use crate::driver::{Answer, Gateway};

/// Asserts the facts that every refusal has in common.
pub(super) fn assert_refused(answer: &Answer, case: &str, status: u16, error: &str, reason: &str) {
    assert_eq!(
        (answer.status, answer.text("error"), answer.reason()),
        (status, error, reason),
        "{case}: {answer:?}"
    );
    assert_eq!(answer.body.as_object().unwrap().len(), 2, "{case}");
    let description = answer.text("error_description");
    let fit = |byte: u8| matches!(byte, b' '..=b'~') && !b"\"\\".contains(&byte);
    assert!(!description.is_empty() && description.bytes().all(fit), "{case}: {description}");
    assert_eq!(answer.header("content-type"), Some("application/json"), "{case}");
    assert_eq!(answer.header("cache-control"), Some("no-store"), "{case}");
    assert_eq!(answer.header("retry-after").is_some(), matches!(status, 429 | 503), "{case}");
    let challenged = matches!(status, 401 | 403) && error != "access_denied";
    assert_eq!(answer.header("www-authenticate").is_some(), challenged, "{case}");
    assert_eq!(answer.event["error"], error, "{case}");
    assert!(!answer.explanation.is_empty(), "{case}: nothing for the operator");
    assert!(!answer.explanation.contains('\n'), "{case}: {:?}", answer.explanation);
}

#[test]
fn a_spent_token_is_told_to_its_holder_and_raises_an_alarm() {
    let gateway = Gateway::usual();
    let subject_token = gateway.mint();
    let first = gateway.exchange(&ExchangeForm::new(&subject_token).actor(&actor_token()));
    assert_eq!(first.status, 200);
    let second = gateway.exchange(&ExchangeForm::new(&subject_token).portal());
    assert_refused(&second, "replay", 400, "invalid_request", "subject_token_spent");
    assert_eq!(second.text("error_description"), "the subject token was already used");
    assert_eq!(second.event["subject_token_id"], first.event["subject_token_id"]);
    assert_eq!(
        second.alarm.unwrap(),
        json!({
            "alarm": "subject_token.replayed",
            "subject_token_id": first.event["subject_token_id"],
            "mint": {"caller": "backend", "request_id": "mint-1", "at_millis": NOW * 1000},
            "first_exchange": {
                "client_id": "console", "actor_id": "agent-7", "request_id": "exchange-1",
                "jti": first.event["jti"], "at_millis": NOW * 1000,
            },
            "second_client_id": "portal",
            "second_request_id": "exchange-1",
            "revoked": true,
        })
    );
}
