//! An exchange that is granted: its answer, its access token, and its line in the audit log.

use jsonwebtoken::jwk::JwkSet;
use jsonwebtoken::{DecodingKey, Validation};
use serde_json::{Value, json};

use super::setting::{
    ACCESS_TOKEN, ExchangeForm, ISSUER, NOW, ORDERS, PAYMENTS, SIGNING_KEY, configuration,
    mint_form,
};
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

fn members(value: &Value) -> Vec<&str> {
    let mut members: Vec<_> = value.as_object().unwrap().keys().map(String::as_str).collect();
    members.sort_unstable();
    members
}

#[test]
fn a_backend_gets_a_subject_token() {
    let gateway = Gateway::usual();
    let answer = gateway.send(&mint_form().request());
    assert_eq!(answer.status, 201);
    assert_eq!(members(&answer.body), ["expiresIn", "subjectToken"]);
    assert_eq!(answer.body["expiresIn"], 600);
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let id = answer.event["subject_token_id"].as_str().unwrap();
    assert_eq!(
        answer.event,
        json!({
            "event": "subject_token.created", "request_id": "mint-1", "subject_token_id": id,
            "user_id": "user-42", "caller": "backend", "context": {"ticketId": "T-1"},
        })
    );
    assert_eq!(answer.explanation, "");
}

#[test]
fn a_client_exchanges_it_for_an_access_token() {
    let gateway = Gateway::usual();
    let minted = gateway.send(&mint_form().request());
    let form = ExchangeForm::new(minted.text("subjectToken"));
    let answer = gateway.exchange(&form.set("scope", "orders:write admin orders:read"));

    assert_eq!(answer.status, 200);
    assert_eq!(
        members(&answer.body),
        ["access_token", "expires_in", "issued_token_type", "scope", "token_type"]
    );
    assert_eq!(answer.text("issued_token_type"), ACCESS_TOKEN);
    assert_eq!(answer.text("token_type"), "Bearer");
    assert_eq!(answer.text("scope"), "orders:write orders:read");
    assert_eq!(answer.body["expires_in"], 3600);
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert_eq!(answer.header("pragma"), Some("no-cache"));

    let claims = claims(&gateway, &answer);
    let jti = claims["jti"].as_str().unwrap();
    assert_eq!(
        claims,
        json!({
            "iss": ISSUER, "sub": "user-42", "aud": ORDERS, "client_id": "console",
            "iat": NOW, "exp": NOW + 3600, "jti": jti, "scope": "orders:write orders:read",
            "txn": minted.event["subject_token_id"],
        })
    );
    assert_eq!(
        answer.event,
        json!({
            "event": "token_exchange.succeeded", "request_id": "exchange-1",
            "subject_token_id": minted.event["subject_token_id"], "user_id": "user-42",
            "client_id": "console", "caller": "backend", "resource": ORDERS,
            "scope": "orders:write orders:read", "jti": jti, "context": {"ticketId": "T-1"},
        })
    );
    assert_eq!(answer.explanation, "");
}

#[test]
fn the_context_stays_out_of_the_log_unless_it_is_wanted_there() {
    let mut configuration = configuration();
    configuration["audit"]["context"] = json!(false);
    let gateway = Gateway::new(&configuration);
    let minted = gateway.send(&mint_form().request());
    assert_eq!(minted.event.get("context"), None);
    let answer = gateway.exchange(&ExchangeForm::new(minted.text("subjectToken")));
    assert_eq!(answer.event.get("context"), None);
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
