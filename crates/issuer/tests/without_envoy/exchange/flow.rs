//! Claims that another library has verified, and a configuration that changes.

use jsonwebtoken::jwk::JwkSet;
use jsonwebtoken::{DecodingKey, Validation};
use serde_json::{Value, json};

use super::setting::{ExchangeForm, ISSUER, ORDERS, PAYMENTS, SIGNING_KEY, configuration};
use crate::driver::{Answer, Gateway, Request};

/// The claims of the access token in an answer, verified with the keys that the gateway publishes.
pub(super) fn claims(gateway: &Gateway, answer: &Answer) -> Value {
    assert_eq!(answer.status, 200, "{answer:?}");
    let token = answer.text("access_token");
    let jwks = Request {
        method: "GET",
        path: "/oidc/jwks".to_owned(),
        headers: Vec::new(),
        body: Vec::new(),
    };
    let jwks: JwkSet = serde_json::from_value(gateway.send(&jwks).body).unwrap();
    let header = jsonwebtoken::decode_header(token).unwrap();
    assert_eq!(header.typ.as_deref(), Some("at+jwt"));
    let key = jwks.find(&header.kid.unwrap()).unwrap();
    let mut validation = Validation::new(header.alg);
    // The clock of the test stands still; the library's clock does not.
    validation.validate_exp = false;
    validation.set_issuer(&[ISSUER]);
    validation.set_audience(&[ORDERS, PAYMENTS]);
    jsonwebtoken::decode(token, &DecodingKey::from_jwk(key).unwrap(), &validation).unwrap().claims
}

#[test]
fn an_outstanding_token_outlives_a_changed_configuration() {
    let before = Gateway::usual();
    let subject_token = before.mint();
    let mut changed = configuration();
    changed["signing_keys"] = json!([
        {"jwk": SIGNING_KEY.under(SIGNING_KEY.alg, "filter-2").private_jwk()},
        {"jwk": SIGNING_KEY.public_jwk()},
    ]);
    changed["subject_tokens"]["lifetime"] = json!("30s");
    let after = Gateway::in_world(&before.world, &changed);
    after.assert_spendable(&subject_token, "after the change");
    let answer = before.exchange(&ExchangeForm::new(&subject_token));
    assert_eq!(answer.reason(), "subject_token_spent", "in a worker that has not changed yet");
}
