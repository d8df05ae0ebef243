//! Every error that an endpoint can answer with: status, code and headers, one line in the
//! audit log, and a subject token that is worth as much as before.

use std::time::Duration;

use jsonwebtoken::Algorithm;
use serde_json::{Value, json};

use super::setting::{
    ACCESS_TOKEN, CLIENT_SECRET, ExchangeForm, ISSUER, MANAGEMENT, MintForm, NOW, ORDERS, PAYMENTS,
    PROVIDER_KEY, SIGNING_KEY, actor_claims, actor_token, backend_claims, configuration,
    configured, mint_form, with, without,
};
use crate::driver::{Answer, Gateway, Request};
use testkit::keys::Key;

/// What is true of every refusal.
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

type Spoil = fn(ExchangeForm) -> ExchangeForm;

#[test]
fn a_refused_exchange_is_told_why_and_costs_no_token() {
    #[rustfmt::skip]
    let cases: [(&str, Spoil, u16, &str, &str); 51] = [
        ("parameter given twice",       |form| form.add("scope", "orders:read"),                        400, "invalid_request", "parameter_repeated"),
        ("grant type given twice",      |form| form.add("grant_type", "password"),                      400, "invalid_request", "parameter_repeated"),
        ("subject token given twice",   |form| form.add("subject_token", "x"),                          400, "invalid_request", "parameter_repeated"),
        ("unknown parameter twice",     |form| form.add("x", "").add("x", ""),                          400, "invalid_request", "parameter_repeated"),
        ("two resources",               |form| form.add("resource", PAYMENTS),                          400, "invalid_target",  "several_resources"),
        ("no client",                   |form| form.without("client_id"),                               400, "invalid_request", "client_authentication"),
        ("empty client",                |form| form.set("client_id", ""),                               400, "invalid_request", "client_authentication"),
        ("two ways to authenticate",    |form| form.portal().set("client_secret", CLIENT_SECRET),       400, "invalid_request", "client_authentication"),
        ("two ways, two clients",       |form| form.portal().set("client_id", "console").set("client_secret", "x"), 400, "invalid_request", "client_authentication"),
        ("client without resources",    |form| form.basic("api", CLIENT_SECRET).set("client_id", "api"), 400, "unauthorized_client", "client_without_resources"),
        ("unknown client",              |form| form.set("client_id", "nobody"),                         401, "invalid_client",  "client_authentication"),
        ("confidential, no secret",     |form| form.set("client_id", "portal"),                         401, "invalid_client",  "client_authentication"),
        ("confidential, form secret",   |form| form.set("client_id", "portal").set("client_secret", CLIENT_SECRET), 401, "invalid_client", "client_authentication"),
        ("wrong secret",                |form| form.portal().basic("portal", "guess"),                  401, "invalid_client",  "client_authentication"),
        ("another client in the form",  |form| form.portal().set("client_id", "console"),               401, "invalid_client",  "client_authentication"),
        ("public, with a secret",       |form| form.basic("console", "x"),                              401, "invalid_client",  "client_authentication"),
        ("not Basic",                   |form| ExchangeForm { authorization: Some("Bearer x".into()), ..form }, 401, "invalid_client", "client_authentication"),
        ("Basic without base64",        |form| ExchangeForm { authorization: Some("Basic ###".into()), ..form }, 401, "invalid_client", "client_authentication"),
        ("no scope",                    |form| form.without("scope"),                                   400, "invalid_request", "parameter_missing"),
        ("empty scope",                 |form| form.set("scope", ""),                                   400, "invalid_request", "parameter_empty"),
        ("no subject token",            |form| form.without("subject_token"),                           400, "invalid_request", "parameter_missing"),
        ("empty subject token",         |form| form.set("subject_token", ""),                           400, "invalid_request", "parameter_empty"),
        ("no subject token type",       |form| form.without("subject_token_type"),                      400, "invalid_request", "parameter_missing"),
        ("empty subject token type",    |form| form.set("subject_token_type", ""),                      400, "invalid_request", "parameter_empty"),
        ("ID token as subject",         |form| form.set("subject_token_type", "urn:ietf:params:oauth:token-type:id_token"), 400, "invalid_request", "subject_token_type"),
        ("refresh token wanted",        |form| form.set("requested_token_type", "urn:ietf:params:oauth:token-type:refresh_token"), 400, "invalid_request", "requested_token_type"),
        ("empty requested type",        |form| form.set("requested_token_type", ""),                    400, "invalid_request", "parameter_empty"),
        ("foreign subject token",       |form| form.set("subject_token", "eyJhbGciOiJub25lIn0.e30."),   400, "invalid_request", "subject_token_foreign"),
        ("short subject token",         |form| form.set("subject_token", "sub_AAAA"),                   400, "invalid_request", "subject_token_unknown"),
        ("subject token, one more",     |form| { let longer = format!("{}A", form.subject_token()); form.set("subject_token", &longer) }, 400, "invalid_request", "subject_token_unknown"),
        ("subject token, padded",       |form| { let padded = format!("{}=", form.subject_token()); form.set("subject_token", &padded) }, 400, "invalid_request", "subject_token_unknown"),
        ("another slot",                |form| { let moved = form.subject_token().replacen("sub_A", "sub_B", 1); form.set("subject_token", &moved) }, 400, "invalid_request", "subject_token_unknown"),
        ("a guess in this slot",        |form| { let guess = format!("{}{}", &form.subject_token().get(..10).unwrap(), "A".repeat(42)); form.set("subject_token", &guess) }, 400, "invalid_request", "subject_token_unknown"),
        ("no resource",                 |form| form.without("resource"),                                400, "invalid_target",  "resource_malformed"),
        ("relative resource",           |form| form.set("resource", "/orders"),                         400, "invalid_target",  "resource_malformed"),
        ("resource with a fragment",    |form| form.set("resource", "https://api.example.com/orders#a"), 400, "invalid_target", "resource_malformed"),
        ("unknown resource",            |form| form.set("resource", "https://api.example.com/orders/"), 400, "invalid_target",  "resource_refused"),
        ("a resource of others",        |form| form.set("resource", PAYMENTS).set("scope", "payments:read"), 400, "invalid_target", "resource_refused"),
        ("audience",                    |form| form.set("audience", "api"),                             400, "invalid_target",  "audience_given"),
        ("scope with two spaces",       |form| form.set("scope", "orders:read  orders:write"),          400, "invalid_scope",   "scope_malformed"),
        ("scope with a quote",          |form| form.set("scope", "orders:read\""),                      400, "invalid_scope",   "scope_malformed"),
        ("no scope of the resource",    |form| form.set("scope", "admin openid"),                       400, "invalid_scope",   "scope_empty"),
        ("actor required",              |form| form.set("client_id", "desk"),                           400, "invalid_request", "actor_required"),
        ("actor without type",          |form| form.set("actor_token", &actor_token()),                 400, "invalid_request", "parameter_missing"),
        ("type without actor",          |form| form.set("actor_token_type", ACCESS_TOKEN),              400, "invalid_request", "actor_token_type"),
        ("actor's type unknown",        |form| form.set("actor_token", &actor_token()).set("actor_token_type", "urn:x"), 400, "invalid_request", "actor_token_type"),
        ("empty actor",                 |form| form.actor(""),                                          400, "invalid_request", "parameter_empty"),
        ("opaque actor",                |form| form.actor("opaque"),                                    400, "invalid_request", "actor_token"),
        ("actor without openid",        |form| form.actor(&sign(with(actor_claims(), "scope", "profile"))), 400, "invalid_request", "actor_token"),
        ("actor of another audience",   |form| form.actor(&sign(with(actor_claims(), "aud", MANAGEMENT))), 400, "invalid_request", "actor_token"),
        ("actor without a name",        |form| form.actor(&sign(with(actor_claims(), "sub", Value::Null))), 400, "invalid_request", "actor_token"),
    ];
    let gateway = Gateway::usual();
    for (case, spoil, status, error, reason) in cases {
        let subject_token = gateway.mint();
        let answer = gateway.exchange(&spoil(ExchangeForm::new(&subject_token)));
        assert_refused(&answer, case, status, error, reason);
        assert_eq!(answer.event["event"], "token_exchange.refused", "{case}");
        if status == 401 {
            let challenge = answer.header("www-authenticate").unwrap();
            assert!(challenge.starts_with("Basic realm=\""), "{case}: {challenge}");
        }
        gateway.assert_spendable(&subject_token, case);
    }
}

/// A stranger who tries names, secrets and ways to send them is answered the same, byte for byte, whatever there is.
#[test]
fn a_stranger_learns_nothing_of_how_a_client_authenticates() {
    let in_form = |client, secret| {
        move |form: ExchangeForm| form.set("client_id", client).set("client_secret", secret)
    };
    type Try = Box<dyn Fn(ExchangeForm) -> ExchangeForm>;
    #[rustfmt::skip]
    let cases: [(&str, Try); 11] = [
        ("unknown, by Basic",          Box::new(|form| form.set("client_id", "nobody").basic("nobody", "guess"))),
        ("unknown, in the form",       Box::new(in_form("nobody", "guess"))),
        ("unknown, no secret",         Box::new(|form| form.set("client_id", "nobody"))),
        ("Basic's, by Basic, wrong",   Box::new(|form| form.set("client_id", "portal").basic("portal", "guess"))),
        ("Basic's, in the form",       Box::new(in_form("portal", CLIENT_SECRET))),
        ("Basic's, in the form, wrong", Box::new(in_form("portal", "guess"))),
        ("Basic's, no secret",         Box::new(|form| form.set("client_id", "portal"))),
        ("the form's, by Basic",       Box::new(|form| form.set("client_id", "poster").basic("poster", CLIENT_SECRET))),
        ("the form's, wrong",          Box::new(in_form("poster", "guess"))),
        ("the form's, no secret",      Box::new(|form| form.set("client_id", "poster"))),
        ("public, with a secret",      Box::new(in_form("console", "guess"))),
    ];
    let gateway = Gateway::usual();
    let subject_token = gateway.mint();
    let answers = cases.map(|(case, spoil)| {
        let answer = gateway.exchange(&spoil(ExchangeForm::new(&subject_token)));
        assert_refused(&answer, case, 401, "invalid_client", "client_authentication");
        (case, answer.body, answer.headers)
    });
    let [(_, body, headers), ..] = &answers;
    for (case, other_body, other_headers) in &answers {
        assert_eq!((other_body, other_headers), (body, headers), "{case}");
    }
    let told = body["error_description"].as_str().unwrap();
    assert!(told.contains("Basic") && told.contains("client_secret_post"), "{told}");
    let by_form = in_form("poster", CLIENT_SECRET)(ExchangeForm::new(&subject_token));
    assert_eq!(gateway.exchange(&by_form).status, 200);
}

#[test]
fn a_client_that_leaves_scope_out_is_told_that_it_is_required() {
    let gateway = Gateway::usual();
    let subject_token = gateway.mint();
    for form in [
        ExchangeForm::new(&subject_token).without("scope"),
        ExchangeForm::new(&subject_token).set("scope", ""),
    ] {
        let answer = gateway.exchange(&form);
        let told = answer.text("error_description");
        assert!(told.contains("needs scope"), "{told}");
        assert!(!told.contains("orders"), "{told}");
    }
}

fn sign(claims: Value) -> String {
    PROVIDER_KEY.sign(&claims)
}

#[test]
fn a_form_that_cannot_be_read_is_refused_and_costs_no_token() {
    let gateway = Gateway::usual();
    let subject_token = gateway.mint();
    let form = ExchangeForm::new(&subject_token);
    let good = String::from_utf8(form.request().body).unwrap();
    #[rustfmt::skip]
    let cases = [
        ("stray percent",  format!("{good}&x=%"),                  400, "form_malformed"),
        ("half an escape", format!("{good}&x=%2"),                 400, "form_malformed"),
        ("no hex",         format!("{good}&x=%gg"),                400, "form_malformed"),
        ("not UTF-8",      format!("{good}&x=%ff"),                400, "form_malformed"),
        ("too long",       format!("{good}&x={}", "y".repeat(65_536)), 413, "body_too_long"),
    ];
    for (case, body, status, reason) in cases {
        let answer = gateway.send(&form.request_with_body(body));
        assert_refused(&answer, case, status, "invalid_request", reason);
    }
    gateway.assert_spendable(&subject_token, "after all of them");
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

#[test]
fn no_other_refusal_raises_an_alarm() {
    let gateway = Gateway::usual();
    let form = ExchangeForm::new(&gateway.mint());
    for form in [form.clone().set("subject_token", "sub_x"), form.set("scope", "nothing")] {
        assert_eq!(gateway.exchange(&form).alarm, None);
    }
}

type SpoilMint = fn(MintForm) -> MintForm;

#[test]
fn a_refused_mint_is_told_why() {
    let long_user = |length: usize| json!({"userId": "ü".repeat(length)}).to_string();
    let context = |length: usize| {
        let filler = length - json!({"a": ""}).to_string().len();
        json!({"userId": "u", "context": {"a": "x".repeat(filler)}}).to_string()
    };
    #[rustfmt::skip]
    let callers: [(&str, SpoilMint, u16, &str, &str); 17] = [
        ("no bearer",        |form| MintForm { authorization: None, ..form },                        401, "invalid_token", "bearer_missing"),
        ("Basic",            |form| MintForm { authorization: Some("Basic eA==".into()), ..form },   401, "invalid_token", "bearer_missing"),
        ("empty bearer",     |form| form.bearer(""),                                                 401, "invalid_token", "bearer_missing"),
        ("opaque",           |form| form.bearer("opaque"),                                           401, "invalid_token", "not_a_jwt"),
        ("no b64token",      |form| form.bearer("a b"),                                              401, "invalid_token", "malformed"),
        ("unknown issuer",   |form| form.bearer(&sign(with(backend_claims(), "iss", "https://evil.example"))), 401, "invalid_token", "issuer"),
        ("no issuer",        |form| form.bearer(&sign(with(backend_claims(), "iss", Value::Null))),  401, "invalid_token", "issuer"),
        ("other audience",   |form| form.bearer(&sign(with(backend_claims(), "aud", "https://x.example"))), 401, "invalid_token", "audience"),
        ("expired",          |form| form.bearer(&sign(with(backend_claims(), "exp", NOW - 61))),     401, "invalid_token", "expired"),
        ("not valid yet",    |form| form.bearer(&sign(with(backend_claims(), "nbf", NOW + 61))),     401, "invalid_token", "not_yet_valid"),
        ("no expiry",        |form| form.bearer(&sign(without(backend_claims(), "exp"))),            401, "invalid_token", "no_expiry"),
        ("expiry no number", |form| form.bearer(&sign(with(backend_claims(), "exp", "soon"))),       401, "invalid_token", "claims"),
        ("delegated",        |form| form.bearer(&sign(with(backend_claims(), "act", json!({"sub": "x"})))), 401, "invalid_token", "delegated"),
        ("nobody",           |form| form.bearer(&sign(json!({"iss": ISSUER, "aud": MANAGEMENT, "exp": NOW + 9, "scope": "impersonate"}))), 401, "invalid_token", "nobody"),
        ("another kid",      |form| form.bearer(&PROVIDER_KEY.sign_with(&json!({"alg": "EdDSA", "kid": "x"}), &backend_claims())), 401, "invalid_token", "no_key"),
        ("algorithm none",   |form| form.bearer(&format!("{}.", testkit::keys::unsigned(&json!({"alg": "none"}), &backend_claims()))), 401, "invalid_token", "algorithm"),
        ("lacks the scope",  |form| form.bearer(&sign(with(backend_claims(), "scope", "openid"))),   403, "insufficient_scope", "insufficient_scope"),
    ];
    #[rustfmt::skip]
    let bodies: [(&str, Vec<u8>, u16, &str); 20] = [
        ("empty",              b"".to_vec(),                                     400, "body_malformed"),
        ("no JSON",            b"{userId: 1}".to_vec(),                          400, "body_malformed"),
        ("not UTF-8",          b"{\"userId\": \"\xff\"}".to_vec(),               400, "body_malformed"),
        ("a list",             b"[\"user-42\", {}]".to_vec(),                    400, "body_malformed"),
        ("a string",           b"\"user-42\"".to_vec(),                          400, "body_malformed"),
        ("something behind",   b"{\"userId\": \"u\"} x".to_vec(),                400, "body_malformed"),
        ("userId twice",       b"{\"userId\": \"u\", \"userId\": \"v\"}".to_vec(), 400, "body_malformed"),
        ("deeper than deep",   format!("{{\"userId\": \"u\", \"context\": {{\"a\": {}{}}}}}", "[".repeat(200), "]".repeat(200)).into(), 400, "body_malformed"),
        ("no userId",          b"{}".to_vec(),                                   400, "user_id"),
        ("userId null",        b"{\"userId\": null}".to_vec(),                   400, "user_id"),
        ("userId a number",    b"{\"userId\": 42}".to_vec(),                     400, "user_id"),
        ("empty userId",       b"{\"userId\": \"\"}".to_vec(),                   400, "user_id"),
        ("long userId",        long_user(256).into(),                            400, "user_id"),
        ("control character",  b"{\"userId\": \"a\\u0000b\"}".to_vec(),          400, "user_id"),
        ("C1 control",         b"{\"userId\": \"a\\u0085b\"}".to_vec(),          400, "user_id"),
        ("context null",       b"{\"userId\": \"u\", \"context\": null}".to_vec(), 400, "context"),
        ("context a list",     b"{\"userId\": \"u\", \"context\": []}".to_vec(), 400, "context"),
        ("context a string",   b"{\"userId\": \"u\", \"context\": \"{}\"}".to_vec(), 400, "context"),
        ("context too long",   context(4097).into(),                             413, "context_too_long"),
        ("body too long",      vec![b' '; 65_537],                               413, "body_too_long"),
    ];
    let gateway = Gateway::usual();
    for (case, spoil, status, error, reason) in callers {
        let answer = gateway.send(&spoil(mint_form()).request());
        assert_refused(&answer, case, status, error, reason);
        assert_eq!(answer.event["event"], "subject_token.refused", "{case}");
        let challenge = answer.header("www-authenticate").unwrap();
        assert!(challenge.starts_with("Bearer realm=\""), "{case}: {challenge}");
        assert_eq!(challenge.contains("error="), reason != "bearer_missing", "{case}: {challenge}");
        assert_eq!(
            challenge.contains("scope=\"impersonate\""),
            status == 403,
            "{case}: {challenge}"
        );
    }
    for (case, body, status, reason) in bodies {
        let answer = gateway.send(&mint_form().body(body).request());
        assert_refused(&answer, case, status, "invalid_request", reason);
        assert_eq!(answer.event["caller"], "backend", "{case}");
    }
    for body in [long_user(255), context(4096)] {
        assert_eq!(gateway.send(&mint_form().body(body).request()).status, 201);
    }
    let text = MintForm { content_type: "text/plain", ..mint_form() };
    assert_refused(&gateway.send(&text.request()), "text", 415, "invalid_request", "content_type");
}

#[test]
fn another_method_is_told_which_one_is_right() {
    let gateway = Gateway::usual();
    for method in ["GET", "HEAD", "PUT", "DELETE", "PATCH"] {
        let answer = gateway.send(&Request { method, ..mint_form().request() });
        assert_refused(&answer, method, 405, "invalid_request", "method_not_allowed");
        assert_eq!(answer.header("allow"), Some("POST"), "{method}");
    }
}

#[test]
fn a_full_store_says_so_and_harms_nobody() {
    let gateway = Gateway::usual();
    let outstanding: Vec<_> = (0..4).map(|_| gateway.mint()).collect();
    let answer = gateway.send(&mint_form().request());
    assert_refused(&answer, "full", 503, "temporarily_unavailable", "store_full");
    for subject_token in &outstanding {
        gateway.assert_spendable(subject_token, "after the store was full");
    }
    gateway.mint();
}

#[test]
fn an_actor_may_be_required_of_everybody_and_none_accepted() {
    let required = Gateway::new(&configured("/actor_tokens/required", json!(true)));
    let subject_token = required.mint();
    let form = ExchangeForm::new(&subject_token);
    let answer = required.exchange(&form);
    assert_refused(&answer, "required", 400, "invalid_request", "actor_required");
    assert_eq!(required.exchange(&form.actor(&actor_token())).status, 200);

    let mut configuration = configuration();
    configuration["actor_tokens"] = json!({});
    configuration["clients"].as_array_mut().unwrap().retain(|client| client["client_id"] != "desk");
    let none = Gateway::new(&configuration);
    let subject_token = none.mint();
    let answer = none.exchange(&ExchangeForm::new(&subject_token).actor(&actor_token()));
    assert_refused(&answer, "not accepted", 400, "invalid_request", "actors_not_accepted");
    none.assert_spendable(&subject_token, "without the actor");
}

/// Signed by us it is in the issuer's name, and without an `act` claim it looks like the user's own token.
/// Whoever could use it as such would act as somebody else, accountable to nobody.
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

        // The gateway is not asked either: it knows our keys, and would say yes.
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

#[test]
fn nobody_impersonates_themselves() {
    let gateway = Gateway::usual();
    let subject_token = gateway.mint();
    let own = PROVIDER_KEY.sign(&with(actor_claims(), "sub", "user-42"));
    let answer = gateway.exchange(&ExchangeForm::new(&subject_token).actor(&own));
    assert_refused(&answer, "the user", 400, "invalid_request", "actor_is_user");
    assert_eq!(answer.event["actor_id"], "user-42");
    gateway.assert_spendable(&subject_token, "after its own user acted");
}

/// What is behind 64 KiB of padding nobody has looked at.
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
fn a_mint_says_where_its_token_is_and_knows_every_member() {
    let gateway = Gateway::usual();
    let answer = gateway.send(&mint_form().request());
    let id = answer.event["subject_token_id"].as_str().unwrap().to_owned();
    assert_eq!(answer.header("location"), Some(&*format!("/api/subject-tokens/{id}")));
    for body in [json!({"userId": "u", "expiresin": 60}), json!({"userId": "u", "user_id": "u"})] {
        let answer = gateway.send(&mint_form().body(body.to_string()).request());
        assert_refused(&answer, "misspelt", 400, "invalid_request", "body_malformed");
    }
}

#[test]
fn an_expired_token_is_written_down_with_whom_it_was_for() {
    let gateway = Gateway::usual();
    let form = ExchangeForm::new(&gateway.mint());
    gateway.world.advance(Duration::from_secs(600));
    let answer = gateway.exchange(&form);
    assert_refused(&answer, "expired", 400, "invalid_request", "subject_token_expired");
    assert_eq!(
        (&answer.event["user_id"], &answer.event["caller"]),
        (&json!("user-42"), &json!("backend"))
    );
}

#[test]
fn what_is_not_ours_goes_on() {
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
