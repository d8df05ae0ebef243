//! The steps that most rules begin with.

use serde_json::Value;

use crate::world::World;
use testkit::Findings;
use testkit::configuration::SIGNING_KEY;
use testkit::gateway::{
    IDENTITY_GATEWAY, exchange_form, exchange_request, key_set, mint_request, minted, verify,
};
use testkit::http::{Answer, Form};

/// Returns the claims of the access token in an answer, which must be 200. The filter's signature
/// is verified.
pub(crate) fn claims_of(answer: &Answer) -> Value {
    assert_eq!(answer.status, 200, "{answer:?}");
    verify(&answer.member("access_token"), &key_set(&SIGNING_KEY)).1
}

/// Checks the facts that all refusals have in common. Their description is fit for a header, a
/// terminal and a log line.
pub(crate) fn describes(findings: &mut Findings, case: &str, answer: &Answer) {
    let body = serde_json::from_slice::<Value>(&answer.body).unwrap_or_default();
    let text = body.get("error_description").and_then(Value::as_str).unwrap_or_default();
    let fit = |byte: u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
    if text.is_empty() || !text.bytes().all(fit) {
        findings.add(format!("{case}: no good description in {answer:?}"));
    }
    findings.expect(case, &body.as_object().map(serde_json::Map::len), &Some(2));
    let can_retry = matches!(answer.status, 429 | 503);
    findings.expect(case, &answer.header("retry-after").is_some(), &can_retry);
    let challenged = matches!(answer.status, 401 | 403) && answer.refusal().1 != "access_denied";
    findings.expect(case, &answer.header("www-authenticate").is_some(), &challenged);
    findings.expect(case, &answer.header("content-type"), &Some("application/json"));
    findings.expect(case, &answer.header("cache-control"), &Some("no-store"));
}

impl World {
    /// Mints a subject token for `u-1`.
    pub(crate) fn mint(&self) -> String {
        minted(&self.send(&mint_request("u-1")))
    }

    pub(crate) fn mint_for(&self, user: &str) -> String {
        minted(&self.send(&mint_request(user)))
    }

    pub(crate) fn exchange(&self, form: &Form) -> Answer {
        self.send(&exchange_request(form))
    }

    pub(crate) fn assert_spent(&self, subject_token: &str, case: &str) {
        let answer = self.exchange(&exchange_form(subject_token));
        assert_eq!(answer.refusal(), (400, "invalid_request".into()), "{case}: {answer:?}");
    }

    /// Asserts that a refused request left the token unspent: the correct request still gets its
    /// access token.
    pub(crate) fn assert_spendable(&self, subject_token: &str, case: &str) {
        let answer = self.exchange(&exchange_form(subject_token));
        assert_eq!(answer.status, 200, "{case}: the subject token is spent: {answer:?}");
    }

    /// Returns true if the identity gateway got the request of this answer.
    pub(crate) fn passed_on(&self, answer: &Answer) -> bool {
        self.upstream(IDENTITY_GATEWAY).received_for(answer).is_some()
    }

    /// Returns the number of failed calls of a kind.
    pub(crate) fn failures(&self, upstream: &str) -> u64 {
        self.counted(&format!("impersonation_callout_failures_total.upstream.{upstream}"))
    }

    /// Returns the last line of the audit log.
    pub(crate) fn last_event(&self) -> Value {
        self.audit().pop().expect("a line in the audit log")
    }
}
