//! Every error that an endpoint can answer with: its status, code and headers, and its line in the
//! audit log. The subject token stays unspent.

use std::time::Duration;

use jsonwebtoken::Algorithm;
use serde_json::{Value, json};

use super::setting::{
    CLIENT_SECRET, ExchangeForm, MintForm, NOW, ORDERS, PROVIDER_KEY, SIGNING_KEY, actor_claims,
    actor_token, backend_claims, configuration, configured, mint_form, with, without,
};
use crate::driver::{Answer, Gateway, Request};
use testkit::keys::Key;
use testkit::refusals::{self, Exchange, Mint};

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

/// A gateway with the configuration of the tables.
struct Tables(Gateway);

impl Tables {
    fn new() -> Self {
        Self(Gateway::new(&refusals::configuration().0))
    }

    fn mint(&self, mint: Mint) -> Answer {
        let Mint { authorization, content_type, body } = mint;
        self.0.send(&MintForm { authorization, content_type, body }.request())
    }

    fn exchange(&self, exchange: Exchange) -> Answer {
        let Exchange { form: parameters, authorization, .. } = exchange;
        self.0.exchange(&ExchangeForm { parameters, authorization })
    }

    /// A token request that would be granted.
    fn good(&self) -> Exchange {
        Exchange::new(self.mint(Mint::new(NOW)).text("subjectToken"), NOW)
    }
}

#[test]
fn a_refused_exchange_is_told_why_and_costs_no_token() {
    let tables = Tables::new();
    for (case, spoil, (status, error, reason)) in refusals::EXCHANGES {
        let good = tables.good();
        let answer = tables.exchange(spoil(good.clone()));
        assert_refused(&answer, case, *status, error, reason);
        assert_eq!(answer.event["event"], "token_exchange.refused", "{case}");
        if *status == 401 {
            let challenge = answer.header("www-authenticate").unwrap();
            assert!(challenge.starts_with("Basic realm=\""), "{case}: {challenge}");
        }
        assert_eq!(tables.exchange(good).status, 200, "{case}: the token was lost");
    }
}

/// A stranger that tries names, secrets and ways to send them always gets the same answer, byte for
/// byte, whether a client exists or not.
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
    let tables = Tables::new();
    let good = tables.good();
    for (case, spoil, (status, error, reason)) in refusals::FORMS {
        let body = spoil(&good.form.encode());
        let answer = tables.0.send(&ExchangeForm::new("").request_with_body(body));
        assert_refused(&answer, case, *status, error, reason);
    }
    assert_eq!(tables.exchange(good).status, 200, "the token was lost");
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

#[test]
fn a_refused_mint_is_told_why() {
    let tables = Tables::new();
    for (case, authorization, (status, error, reason)) in refusals::BEARERS {
        let answer = tables.mint(Mint { authorization: authorization(NOW), ..Mint::new(NOW) });
        assert_refused(&answer, case, *status, error, reason);
        assert_eq!(answer.event["event"], "subject_token.refused", "{case}");
        let challenge = answer.header("www-authenticate").unwrap();
        assert!(challenge.starts_with("Bearer realm=\""), "{case}: {challenge}");
        let has_error = *reason != "bearer_missing";
        assert_eq!(challenge.contains("error="), has_error, "{case}: {challenge}");
        let names_the_scope = challenge.contains("scope=\"impersonate\"");
        assert_eq!(names_the_scope, *status == 403, "{case}: {challenge}");
    }
    for (case, body, (status, error, reason)) in refusals::BODIES {
        let answer = tables.mint(Mint { body: body(), ..Mint::new(NOW) });
        assert_refused(&answer, case, *status, error, reason);
        assert_eq!(answer.event["caller"], "support-backend", "{case}");
    }
    let long_user = json!({"userId": "ü".repeat(255)}).to_string().into();
    for body in [long_user, refusals::body_with_context(4096)] {
        assert_eq!(tables.mint(Mint { body, ..Mint::new(NOW) }).status, 201);
    }
    let text = tables.mint(Mint { content_type: "text/plain", ..Mint::new(NOW) });
    assert_refused(&text, "text", 415, "invalid_request", "content_type");
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

#[test]
fn users_cannot_impersonate_themselves() {
    let gateway = Gateway::usual();
    let subject_token = gateway.mint();
    let own = PROVIDER_KEY.sign(&with(actor_claims(), "sub", "user-42"));
    let answer = gateway.exchange(&ExchangeForm::new(&subject_token).actor(&own));
    assert_refused(&answer, "the user", 400, "invalid_request", "actor_is_user");
    assert_eq!(answer.event["actor_id"], "user-42");
    gateway.assert_spendable(&subject_token, "after its own user acted");
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
