//! Refusals that need more than one worker or one configuration, and an alarm in full.

use jsonwebtoken::Algorithm;
use serde_json::{Value, json};

use super::setting::{
    ExchangeForm, NOW, ORDERS, PROVIDER_KEY, SIGNING_KEY, actor_claims, actor_token,
    backend_claims, configuration, configured, mint_form, with, without,
};
use crate::driver::{Answer, Gateway, Request};
use testkit::keys::Key;

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

fn sign(claims: Value) -> String {
    PROVIDER_KEY.sign(&claims)
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

/// A token that the filter signed is in the issuer's name, and without an `act` claim it looks like
/// the user's own token. A caller that used it as such would act as another user without being
/// accountable.
#[test]
fn an_impersonation_neither_mints_nor_acts_even_if_it_names_no_actor() {
    let retired = Key::generate(Algorithm::ES256, "filter-0");
    let mut configuration = configuration();
    let all = [PROVIDER_KEY.public_jwk(), SIGNING_KEY.public_jwk(), retired.public_jwk()];
    let jwks = json!({"inline_string": json!({"keys": all}).to_string()});
    for issuer in ["/subject_tokens/authentication/jwt/0", "/actor_tokens/jwt/0"] {
        let issuer = configuration.pointer_mut(issuer).unwrap();
        issuer["audiences"] = json!([ORDERS]);
        issuer["local_jwks"] = jwks.clone();
    }
    configuration["signing_keys"] =
        json!([{"jwk": SIGNING_KEY.private_jwk()}, {"jwk": retired.public_jwk()}]);
    configuration["resources"][0]["scopes"] = json!(["openid", "impersonate"]);
    let gateway = Gateway::new(&configuration);
    let backend = with(backend_claims(), "aud", ORDERS);
    let mint = |bearer: &str| gateway.send(&mint_form().bearer(bearer).request());

    let subject_token = mint(&sign(backend.clone())).text("subjectToken").to_owned();
    let form = ExchangeForm::new(&subject_token).set("scope", "openid impersonate");
    let impersonation = gateway.exchange(&form).text("access_token").to_owned();
    let subject_token = mint(&sign(backend.clone())).text("subjectToken").to_owned();
    let form = form.set("subject_token", &subject_token);
    for (case, token) in [
        ("as it was issued", impersonation.clone()),
        ("by a key that signed before", retired.sign(&backend)),
        ("with custom claims", SIGNING_KEY.sign(&with(backend.clone(), "azp", json!({})))),
        ("for a client alone", SIGNING_KEY.sign(&without(backend.clone(), "sub"))),
    ] {
        let reason = if case == "with custom claims" { "claims" } else { "delegated" };
        for _ in ["fresh", "again"] {
            assert_refused(&mint(&token), case, 401, "invalid_token", reason);
        }
        let answer = gateway.exchange(&form.clone().actor(&token));
        assert_refused(&answer, case, 400, "invalid_request", "actor_token");

        // The filter does not ask the gateway either: the gateway knows the filter's keys, and
        // would accept the token.
        let asked = json!({"uri": "https://auth.example.com/oidc/me", "cluster": "gateway"});
        let mut configuration = configuration.clone();
        configuration["actor_tokens"] = json!({"userinfo": {"http_uri": asked}});
        let other = Gateway::in_world(&gateway.world, &configuration);
        let answer = other.exchange(&form.clone().actor(&token));
        assert_refused(&answer, case, 400, "invalid_request", "actor_token");
    }
    let own = sign(with(actor_claims(), "aud", ORDERS));
    let answer = gateway.exchange(&form.actor(&own));
    assert_eq!(answer.status, 200, "who proves it some other way: {answer:?}");
}

/// The filter does not read the part of a form behind 64 KiB of padding.
#[test]
fn a_form_that_is_too_long_to_be_read_does_not_go_on() {
    let padded = |form: &ExchangeForm| {
        let request = form.request();
        let body = [b"x=".as_slice(), &b"y".repeat(64 * 1024), b"&", &request.body].concat();
        Request { body, ..request }
    };
    let refuses = Gateway::usual();
    let passes = Gateway::new(&configured("/foreign_subject_tokens", json!("pass_through")));
    for (case, gateway) in [("refuse", &refuses), ("pass_through", &passes)] {
        let form = ExchangeForm::new(&gateway.mint());
        let answer = gateway.try_send(&padded(&form));
        if case == "refuse" {
            assert_refused(&answer.unwrap(), case, 413, "invalid_request", "body_too_long");
        } else {
            assert!(answer.is_none(), "{case}: nobody can say whose it is");
        }
    }
}

#[test]
fn requests_that_are_not_for_the_filter_go_on() {
    let gateway = Gateway::usual();
    let pass_through = Gateway::new(&configured("/foreign_subject_tokens", json!("pass_through")));
    let form = ExchangeForm::new("eyJhbGciOiJub25lIn0.e30.");
    assert!(pass_through.try_send(&form.request()).is_none());
    assert!(gateway.try_send(&form.request()).is_some());
    let subject_token = gateway.mint();
    let good = ExchangeForm::new(&subject_token).request();
    let escaped = String::from_utf8(good.body.clone()).unwrap();
    let escaped =
        escaped.replace("grant_type", "grant%5Ftype").replace("subject_token", "subject%5ftoken");
    let answer = pass_through.try_send(&Request { body: escaped.into(), ..good });
    assert_eq!(answer.unwrap().reason(), "subject_token_unknown", "names can be escaped too");
    for grant in ["authorization_code", "refresh_token", "client_credentials", ""] {
        assert!(gateway.try_send(&form.clone().set("grant_type", grant).request()).is_none());
    }
    assert!(gateway.try_send(&form.clone().without("grant_type").request()).is_none());
    let json =
        Request { headers: vec![("content-type", "application/json".into())], ..form.request() };
    assert!(gateway.try_send(&json).is_none());
    for (method, path) in [
        ("GET", "/oidc/token"),
        ("OPTIONS", "/api/subject-tokens"),
        ("POST", "/oidc/tokens"),
        ("POST", "/"),
    ] {
        let request = Request { method, path: path.into(), ..form.request() };
        assert!(gateway.try_send(&request).is_none(), "{method} {path}");
    }
}
