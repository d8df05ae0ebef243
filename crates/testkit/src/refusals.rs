//! The refusals of exchanges and mints, each in one row of a table: the request, and what the
//! caller and the operator are told.
//!
//! The tables run natively, in a real Envoy, and once more there for the audit log.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::configuration::{
    CLIENT_SECRET, Configuration, MANAGEMENT, ORDERS, PAYMENTS, PROVIDER_KEY, sha256_hex,
};
use crate::gateway::{
    ACCESS_TOKEN, EXCHANGE_GRANT, actor_claims, backend_claims, exchange_form, raw_exchange_request,
};
use crate::http::{Form, Request};
use crate::keys::unsigned;

/// The status, the error code, and the operator's reason.
pub type Told = (u16, &'static str, &'static str);

/// Rows of a name, a function that makes a bad request from a good one, and the expected refusal
/// for the caller and the operator.
pub type Table<Make> = &'static [(&'static str, Make, Told)];

/// The configuration that the tables are written for.
pub fn configuration() -> Configuration {
    let secret = sha256_hex(&CLIENT_SECRET);
    let clients = [
        json!({"client_id": "desk", "type": "native", "actor_token_required": true}),
        json!({"client_id": "shop", "type": "single_page", "resources": [ORDERS]}),
        json!({"client_id": "api", "type": "machine_to_machine", "client_secret_sha256": [secret], "resources": []}),
    ];
    clients.into_iter().fold(Configuration::default(), |all, client| all.with("/clients/-", client))
}

/// A token request that would be granted. A row of a table spoils it.
#[derive(Clone)]
pub struct Exchange {
    pub form: Form,
    pub authorization: Option<String>,
    /// The time in seconds at which its actor tokens are valid.
    now: u64,
}

impl Exchange {
    pub fn new(subject_token: &str, now: u64) -> Self {
        Self { form: exchange_form(subject_token), authorization: None, now }
    }

    pub fn request(&self) -> Request {
        authorized(raw_exchange_request(&self.form.encode()), self.authorization.as_deref())
    }

    fn set(self, name: &str, value: &str) -> Self {
        Self { form: self.form.set(name, value), ..self }
    }

    fn add(self, name: &str, value: &str) -> Self {
        Self { form: self.form.add(name, value), ..self }
    }

    fn without(self, name: &str) -> Self {
        Self { form: self.form.without(name), ..self }
    }

    fn subject_token(self, change: impl FnOnce(&str) -> String) -> Self {
        let (_, token) = self.form.0.iter().find(|(name, _)| name == "subject_token").unwrap();
        let changed = change(token);
        self.set("subject_token", &changed)
    }

    fn authorization(self, value: impl Into<String>) -> Self {
        Self { authorization: Some(value.into()), ..self }
    }

    /// A request by the confidential client, with these credentials.
    fn portal(self, pair: impl AsRef<[u8]>) -> Self {
        let credentials = STANDARD.encode(pair);
        self.set("client_id", "support-portal").authorization(format!("Basic {credentials}"))
    }

    /// A request by the confidential client, with the right credentials.
    fn right_portal(self) -> Self {
        self.portal(format!("support-portal:{}", *CLIENT_SECRET))
    }

    fn actor(self, token: &str) -> Self {
        self.set("actor_token", token).set("actor_token_type", ACCESS_TOKEN)
    }

    /// A good actor token with one claim changed.
    fn actor_with(&self, name: &str, value: Value) -> String {
        let mut claims = at(actor_claims("agent-1"), self.now);
        claims[name] = value;
        PROVIDER_KEY.sign(&claims)
    }

    fn actor_token(&self) -> String {
        self.actor_with("iss", crate::configuration::ISSUER.into())
    }
}

fn authorized(request: Request, authorization: Option<&str>) -> Request {
    match authorization {
        Some(value) => request.header("authorization", value),
        None => request,
    }
}

/// Returns the claims with another time.
fn at(mut claims: Value, now: u64) -> Value {
    claims["iat"] = now.into();
    claims["exp"] = (now + 3600).into();
    claims
}

const CLIENT: Told = (401, "invalid_client", "client_authentication");
const TWO_WAYS: Told = (400, "invalid_request", "client_authentication");

const fn invalid(reason: &'static str) -> Told {
    (400, "invalid_request", reason)
}

const fn target(reason: &'static str) -> Told {
    (400, "invalid_target", reason)
}

const fn scope(reason: &'static str) -> Told {
    (400, "invalid_scope", reason)
}

/// Exchanges that are refused. The subject token stays unspent.
#[rustfmt::skip]
pub const EXCHANGES: Table<fn(Exchange) -> Exchange> = &[
    ("two clients",                      |it| it.add("client_id", "support-console"),              invalid("parameter_repeated")),
    ("two scope parameters",             |it| it.add("scope", "orders:write"),                     invalid("parameter_repeated")),
    ("the same scope twice",             |it| it.add("scope", "orders:read"),                      invalid("parameter_repeated")),
    ("the same grant twice",             |it| it.add("grant_type", EXCHANGE_GRANT),                invalid("parameter_repeated")),
    ("another grant besides",            |it| it.add("grant_type", "authorization_code"),          invalid("parameter_repeated")),
    ("two subject tokens",               |it| it.add("subject_token", "sub_AAAA"),                 invalid("parameter_repeated")),
    ("a subject token and nothing",      |it| it.add("subject_token", ""),                         invalid("parameter_repeated")),
    ("two subject token types",          |it| it.add("subject_token_type", ACCESS_TOKEN),          invalid("parameter_repeated")),
    ("two requested token types",        |it| it.add("requested_token_type", ACCESS_TOKEN).add("requested_token_type", ACCESS_TOKEN), invalid("parameter_repeated")),
    ("two actor tokens",                 |it| { let token = it.actor_token(); it.actor(&token).add("actor_token", &token) }, invalid("parameter_repeated")),
    ("two actor token types",            |it| { let token = it.actor_token(); it.actor(&token).add("actor_token_type", ACCESS_TOKEN) }, invalid("parameter_repeated")),
    ("an unknown parameter twice",       |it| it.add("x", "").add("x", ""),                        invalid("parameter_repeated")),
    ("two resources",                    |it| it.add("resource", PAYMENTS),                        target("several_resources")),
    ("the same resource twice",          |it| it.add("resource", ORDERS),                          target("several_resources")),

    ("no client",                        |it| it.without("client_id"),                             TWO_WAYS),
    ("empty client",                     |it| it.set("client_id", ""),                             TWO_WAYS),
    ("two ways to authenticate",         |it| it.right_portal().set("client_secret", &CLIENT_SECRET), TWO_WAYS),
    ("two ways, two clients",            |it| it.right_portal().set("client_id", "support-console").set("client_secret", "x"), TWO_WAYS),
    ("unknown client",                   |it| it.set("client_id", "nobody"),                       CLIENT),
    ("client in other letters",          |it| it.set("client_id", "Support-Console"),              CLIENT),
    ("client that looks like JSON",      |it| it.set("client_id", "\"},{"),                        CLIENT),
    ("confidential, no credentials",     |it| it.set("client_id", "support-portal"),               CLIENT),
    ("confidential, secret in the form", |it| it.set("client_id", "support-portal").set("client_secret", &CLIENT_SECRET), CLIENT),
    ("machine, no credentials",          |it| it.set("client_id", "support-robot"),                CLIENT),
    ("public, with a secret",            |it| it.portal("support-console:x").set("client_id", "support-console"), CLIENT),
    ("robot in the form",                |it| it.right_portal().set("client_id", "support-robot"), CLIENT),
    ("console in the form",              |it| it.right_portal().set("client_id", "support-console"), CLIENT),
    ("unknown client in the form",       |it| it.right_portal().set("client_id", "nobody"),        CLIENT),
    ("a wrong secret",                   |it| it.portal("support-portal:guess"),                   CLIENT),
    ("a wrong secret as long",           |it| it.portal(format!("support-portal:{}", "x".repeat(CLIENT_SECRET.len()))), CLIENT),
    ("half the secret",                  |it| it.portal(format!("support-portal:{}", &CLIENT_SECRET[..10])), CLIENT),
    ("more than the secret",             |it| it.portal(format!("support-portal:{}x", *CLIENT_SECRET)), CLIENT),
    ("an empty secret",                  |it| it.portal("support-portal:"),                        CLIENT),
    ("the hash of the secret",           |it| it.portal(format!("support-portal:{}", sha256_hex(&CLIENT_SECRET))), CLIENT),
    ("the secret in capitals",           |it| it.portal(format!("support-portal:{}", CLIENT_SECRET.to_uppercase())), CLIENT),
    ("a secret with a NUL",              |it| it.portal(format!("support-portal:{}\0", *CLIENT_SECRET)), CLIENT),
    ("a secret with half an escape",     |it| it.portal(format!("support-portal:{}%4", *CLIENT_SECRET)), CLIENT),
    ("credentials of an unknown client", |it| it.portal(format!("nobody:{}", *CLIENT_SECRET)),     CLIENT),
    ("credentials of an empty client",   |it| it.portal(format!(":{}", *CLIENT_SECRET)),           CLIENT),
    ("credentials without a colon",      |it| it.portal("support-portal"),                         CLIENT),
    ("only a colon",                     |it| it.portal(":"),                                      CLIENT),
    ("empty credentials",                |it| it.portal(""),                                       CLIENT),
    ("credentials that are not UTF-8",   |it| it.portal(b"support-portal:\xff\xfe"),               CLIENT),
    ("credentials that are not base64",  |it| it.portal("").authorization("Basic !!!!"),           CLIENT),
    ("credentials that are not encoded", |it| it.portal("").authorization(format!("Basic support-portal:{}", *CLIENT_SECRET)), CLIENT),
    ("Basic without credentials",        |it| it.portal("").authorization("Basic"),                CLIENT),
    ("another scheme",                   |it| it.portal("").authorization(format!("Bearer {}", *CLIENT_SECRET)), CLIENT),
    ("another scheme, public client",    |it| it.authorization("Bearer x"),                        CLIENT),
    ("client without resources",         |it| it.portal(format!("api:{}", *CLIENT_SECRET)).set("client_id", "api"), (400, "unauthorized_client", "client_without_resources")),

    ("no scope",                         |it| it.without("scope"),                                 invalid("parameter_missing")),
    ("empty scope",                      |it| it.set("scope", ""),                                 invalid("parameter_missing")),
    ("no subject token",                 |it| it.without("subject_token"),                         invalid("parameter_missing")),
    ("empty subject token",              |it| it.set("subject_token", ""),                         invalid("parameter_missing")),
    ("no subject token type",            |it| it.without("subject_token_type"),                    invalid("parameter_missing")),
    ("empty subject token type",         |it| it.set("subject_token_type", ""),                    invalid("parameter_missing")),
    ("subject token type jwt",           |it| it.set("subject_token_type", "urn:ietf:params:oauth:token-type:jwt"), invalid("subject_token_type")),
    ("subject token type id_token",      |it| it.set("subject_token_type", "urn:ietf:params:oauth:token-type:id_token"), invalid("subject_token_type")),
    ("subject token type in capitals",   |it| it.set("subject_token_type", &ACCESS_TOKEN.to_uppercase()), invalid("subject_token_type")),
    ("requested refresh token",          |it| it.set("requested_token_type", "urn:ietf:params:oauth:token-type:refresh_token"), invalid("requested_token_type")),
    ("requested id_token",               |it| it.set("requested_token_type", "urn:ietf:params:oauth:token-type:id_token"), invalid("requested_token_type")),
    ("two requested token types, empty", |it| it.set("requested_token_type", "").add("requested_token_type", ""), invalid("parameter_repeated")),

    ("foreign subject token",            |it| it.set("subject_token", "eyJhbGciOiJub25lIn0.e30."), invalid("subject_token_foreign")),
    ("short subject token",              |it| it.set("subject_token", "sub_AAAA"),                 invalid("subject_token_unknown")),
    ("a character more",                 |it| it.subject_token(|token| format!("{token}A")),       invalid("subject_token_unknown")),
    ("padded subject token",             |it| it.subject_token(|token| format!("{token}=")),       invalid("subject_token_unknown")),
    ("another slot",                     |it| it.subject_token(|token| token.replacen("sub_A", "sub_B", 1)), invalid("subject_token_unknown")),
    ("a guess in this slot",             |it| it.subject_token(|token| format!("{}{}", &token[..10], "A".repeat(42))), invalid("subject_token_unknown")),

    ("no resource",                      |it| it.without("resource"),                              target("resource_malformed")),
    ("empty resource",                   |it| it.set("resource", ""),                              target("resource_malformed")),
    ("a resource and an empty one",      |it| it.add("resource", ""),                              target("several_resources")),
    ("relative resource",                |it| it.set("resource", "/orders"),                       target("resource_malformed")),
    ("resource without a scheme",        |it| it.set("resource", "api.example.com/orders"),        target("resource_malformed")),
    ("resource with a fragment",         |it| it.set("resource", "https://api.example.com/orders#x"), target("resource_malformed")),
    ("resource with an empty fragment",  |it| it.set("resource", "https://api.example.com/orders#"), target("resource_malformed")),
    ("resource with a space before",     |it| it.set("resource", " https://api.example.com/orders"), target("resource_malformed")),
    ("resource with a line feed",        |it| it.set("resource", "https://x.example/\n{"),         target("resource_malformed")),
    ("unknown resource",                 |it| it.set("resource", "https://api.example.com/else"),  target("resource_refused")),
    ("resource with a slash more",       |it| it.set("resource", "https://api.example.com/orders/"), target("resource_refused")),
    ("resource in other letters",        |it| it.set("resource", "https://api.example.com/ORDERS"), target("resource_refused")),
    ("a resource of other clients",      |it| it.set("client_id", "shop").set("resource", PAYMENTS).set("scope", "payments:read"), target("resource_refused")),
    ("an audience",                      |it| it.set("audience", "orders"),                        target("audience_given")),
    ("an organization",                  |it| it.set("organization_id", "org-1"),                  target("organization_given")),
    ("an empty audience and another",    |it| it.set("audience", "").add("audience", "orders"),    target("audience_given")),
    ("an audience, no resource",         |it| it.without("resource").set("audience", ORDERS),      target("audience_given")),

    ("scope of another resource",        |it| it.set("scope", "payments:read"),                    scope("scope_empty")),
    ("scopes of no resource",            |it| it.set("scope", "admin openid"),                     scope("scope_empty")),
    ("scope in other letters",           |it| it.set("scope", "Orders:Read"),                      scope("scope_empty")),
    ("scopes with a comma",              |it| it.set("scope", "orders:read,orders:write"),         scope("scope_empty")),
    ("scopes with two spaces",           |it| it.set("scope", "orders:read  orders:write"),        scope("scope_malformed")),
    ("scope with a quote",               |it| it.set("scope", "orders:read \"x\""),                scope("scope_malformed")),
    ("scope with a backslash",           |it| it.set("scope", "orders:read \\"),                   scope("scope_malformed")),
    ("scope with a line feed",           |it| it.set("scope", "orders:read\nx"),                   scope("scope_malformed")),
    ("scope with a tab",                 |it| it.set("scope", "orders:read\torders:write"),        scope("scope_malformed")),
    ("scope that is not ASCII",          |it| it.set("scope", "orders:read ü"),                    scope("scope_malformed")),

    ("no actor where one is required",   |it| it.set("client_id", "desk"),                         invalid("actor_required")),
    ("actor token without its type",     |it| { let token = it.actor_token(); it.set("actor_token", &token) }, invalid("parameter_missing")),
    ("actor token type alone",           |it| it.set("actor_token_type", ACCESS_TOKEN),            invalid("actor_token_type")),
    ("actor token of another type",      |it| { let token = it.actor_token(); it.actor(&token).set("actor_token_type", "urn:ietf:params:oauth:token-type:id_token") }, invalid("actor_token_type")),
    ("opaque actor token called a JWT",  |it| it.actor("opaque").set("actor_token_type", "urn:ietf:params:oauth:token-type:jwt"), invalid("actor_token_type")),
    ("empty actor token, with its type", |it| it.actor(""),                                        invalid("actor_token_type")),
    ("actor token with an empty type",   |it| { let token = it.actor_token(); it.actor(&token).set("actor_token_type", "") }, invalid("parameter_missing")),
    ("empty actor token, if required",   |it| it.set("client_id", "desk").set("actor_token", "").set("actor_token_type", ""), invalid("actor_required")),
    ("opaque actor token",               |it| it.actor("opaque"),                                  invalid("actor_token")),
    ("actor token without openid",       |it| { let token = it.actor_with("scope", json!("profile")); it.actor(&token) }, invalid("actor_token")),
    ("actor token of another audience",  |it| { let token = it.actor_with("aud", json!(MANAGEMENT)); it.actor(&token) }, invalid("actor_token")),
    ("actor token of no subject",        |it| { let token = it.actor_with("sub", Value::Null); it.actor(&token) }, invalid("actor_token")),
];

/// Forms that are refused before their content is looked at, each made of a good form.
#[rustfmt::skip]
pub const FORMS: Table<fn(&str) -> String> = &[
    ("a stray percent",            |good| format!("{good}&x=%"),                               invalid("form_malformed")),
    ("half a percent escape",      |good| format!("{good}&x=%4"),                              invalid("form_malformed")),
    ("a percent of no number",     |good| format!("{good}&x=%zz"),                             invalid("form_malformed")),
    ("a value that is not UTF-8",  |good| format!("{good}&x=%ff%fe"),                          invalid("form_malformed")),
    ("in a parameter that counts", |good| good.replace("scope=orders", "scope=%C3%28orders"),  invalid("form_malformed")),
    ("65 parameters and more",     |good| (0..64).fold(good.to_owned(), |form, number| format!("{form}&x{number}")), invalid("form_malformed")),
    ("a form of 64 KiB and more",  |good| format!("{good}&x={}", "y".repeat(65_536)),          (413, "invalid_request", "body_too_long")),
];

/// A mint that would be granted. A row of a table spoils it.
pub struct Mint {
    pub authorization: Option<String>,
    pub content_type: &'static str,
    pub body: Vec<u8>,
}

impl Mint {
    pub fn new(now: u64) -> Self {
        let bearer = PROVIDER_KEY.sign(&at(backend_claims(), now));
        Self {
            authorization: Some(format!("Bearer {bearer}")),
            content_type: "application/json",
            body: br#"{"userId": "u-1"}"#.to_vec(),
        }
    }

    pub fn request(&self) -> Request {
        let request =
            Request::post("/api/subject-tokens").header("content-type", self.content_type);
        authorized(request.body(self.body.clone()), self.authorization.as_deref())
    }
}

/// A good bearer token with one claim changed. `Value::Null` removes the claim.
fn bearer(now: u64, name: &str, value: Value) -> Option<String> {
    let mut claims = at(backend_claims(), now);
    match value {
        Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
        value => claims[name] = value,
    }
    Some(format!("Bearer {}", PROVIDER_KEY.sign(&claims)))
}

const fn token(reason: &'static str) -> Told {
    (401, "invalid_token", reason)
}

/// Values of `Authorization` that no mint is granted with, at this time in seconds.
#[rustfmt::skip]
pub const BEARERS: Table<fn(u64) -> Option<String>> = &[
    ("no bearer",            |_| None,                                                        token("bearer_missing")),
    ("Basic",                |_| Some("Basic eA==".into()),                                   token("bearer_missing")),
    ("empty bearer",         |_| Some("Bearer ".into()),                                      token("bearer_missing")),
    ("opaque bearer",        |_| Some("Bearer opaque".into()),                                token("not_a_jwt")),
    ("no b64token",          |_| Some("Bearer a b".into()),                                   token("malformed")),
    ("more than 16 KiB",     |now| bearer(now, "x", json!("y".repeat(12_288))),               token("malformed")),
    ("more than 1024 values", |now| bearer(now, "x", json!(vec![1; 1024])),                  token("claims")),
    ("unknown issuer",       |now| bearer(now, "iss", json!("https://evil.example")),         token("issuer")),
    ("no issuer",            |now| bearer(now, "iss", Value::Null),                           token("issuer")),
    ("another audience",     |now| bearer(now, "aud", json!("https://x.example")),            token("audience")),
    ("no audience",          |now| bearer(now, "aud", Value::Null),                           token("audience")),
    ("expired",              |now| bearer(now, "exp", json!(now - 90)),                       token("expired")),
    ("not valid yet",        |now| bearer(now, "nbf", json!(now + 90)),                       token("not_yet_valid")),
    ("no expiry",            |now| bearer(now, "exp", Value::Null),                           token("no_expiry")),
    ("expiry not a number",  |now| bearer(now, "exp", json!("soon")),                         token("claims")),
    ("delegated",            |now| bearer(now, "act", json!({"sub": "x"})),                   token("delegated")),
    ("no subject, no client", |now| {
        let claims = json!({"iss": crate::configuration::ISSUER, "aud": MANAGEMENT, "exp": now + 9, "scope": "impersonate"});
        Some(format!("Bearer {}", PROVIDER_KEY.sign(&claims)))
    }, token("nobody")),
    ("another kid",          |now| {
        let header = json!({"alg": PROVIDER_KEY.alg, "kid": "x"});
        Some(format!("Bearer {}", PROVIDER_KEY.sign_with(&header, &at(backend_claims(), now))))
    }, token("no_key")),
    ("algorithm none",       |now| Some(format!("Bearer {}.", unsigned(&json!({"alg": "none"}), &at(backend_claims(), now)))), token("algorithm")),
    ("another's signature",  |now| {
        let (theirs, ours) = (bearer(now, "sub", json!("x"))?, bearer(now, "sub", json!("y"))?);
        Some(format!("{}.{}", theirs.rsplit_once('.')?.0, ours.rsplit_once('.')?.1))
    }, token("signature")),
    ("without the scope",    |now| bearer(now, "scope", json!("openid")),                     (403, "insufficient_scope", "insufficient_scope")),
];

/// Bodies of mints that are refused.
#[rustfmt::skip]
pub const BODIES: Table<fn() -> Vec<u8>> = &[
    ("empty",                    || b"".to_vec(),                                      invalid("body_malformed")),
    ("spaces",                   || b"  ".to_vec(),                                    invalid("body_malformed")),
    ("not JSON",                 || b"userId=u-1".to_vec(),                            invalid("body_malformed")),
    ("a name without quotes",    || b"{userId: 1}".to_vec(),                           invalid("body_malformed")),
    ("cut short",                || br#"{"userId": "u-1""#.to_vec(),                   invalid("body_malformed")),
    ("more after the end",       || br#"{"userId": "u-1"} {}"#.to_vec(),               invalid("body_malformed")),
    ("a trailing comma",         || br#"{"userId": "u-1",}"#.to_vec(),                 invalid("body_malformed")),
    ("not UTF-8",                || b"{\"userId\": \"u-\xff\"}".to_vec(),              invalid("body_malformed")),
    ("half a surrogate",         || br#"{"userId": "u-\ud800"}"#.to_vec(),             invalid("body_malformed")),
    ("a list",                   || br#"[{"userId": "u-1"}]"#.to_vec(),                invalid("body_malformed")),
    ("a list of values",         || br#"["u-1", {}]"#.to_vec(),                        invalid("body_malformed")),
    ("a string",                 || br#""u-1""#.to_vec(),                              invalid("body_malformed")),
    ("null",                     || b"null".to_vec(),                                  invalid("body_malformed")),
    ("userId twice",             || br#"{"userId": "u", "userId": "v"}"#.to_vec(),     invalid("body_malformed")),
    ("an unknown member",        || br#"{"userId": "u", "expiresin": 60}"#.to_vec(),   invalid("body_malformed")),
    ("deep lists",               || "[".repeat(12_000).into(),                         invalid("body_malformed")),
    ("deep objects",             || "{\"a\":".repeat(12_000).into(),                   invalid("body_malformed")),
    ("deep context",             || format!(r#"{{"userId": "u", "context": {{"a": {}"#, "[".repeat(12_000)).into(), invalid("body_malformed")),
    ("deep, and well-formed",    || format!(r#"{{"userId": "u", "context": {{"a": {}{}}}}}"#, "[".repeat(200), "]".repeat(200)).into(), invalid("body_malformed")),
    ("no member",                || b"{}".to_vec(),                                    invalid("user_id")),
    ("no userId",                || br#"{"context": {}}"#.to_vec(),                    invalid("user_id")),
    ("userId null",              || br#"{"userId": null}"#.to_vec(),                   invalid("user_id")),
    ("userId a number",          || br#"{"userId": 1}"#.to_vec(),                      invalid("user_id")),
    ("userId a list",            || br#"{"userId": ["u-1"]}"#.to_vec(),                invalid("user_id")),
    ("userId empty",             || br#"{"userId": ""}"#.to_vec(),                     invalid("user_id")),
    ("userId too long",          || format!(r#"{{"userId": "{}"}}"#, "u".repeat(256)).into(), invalid("user_id")),
    ("userId of 256 characters", || format!(r#"{{"userId": "{}"}}"#, "ü".repeat(256)).into(), invalid("user_id")),
    ("userId with a line feed",  || br#"{"userId": "u\n1"}"#.to_vec(),                 invalid("user_id")),
    ("userId with a NUL",        || br#"{"userId": "u\u00001"}"#.to_vec(),             invalid("user_id")),
    ("userId with DEL",          || br#"{"userId": "u\u007f1"}"#.to_vec(),             invalid("user_id")),
    ("userId with a C1 control", || br#"{"userId": "u\u00851"}"#.to_vec(),             invalid("user_id")),
    ("context null",             || br#"{"userId": "u-1", "context": null}"#.to_vec(), invalid("context")),
    ("context a string",         || br#"{"userId": "u-1", "context": "ticket"}"#.to_vec(), invalid("context")),
    ("context a list",           || br#"{"userId": "u-1", "context": []}"#.to_vec(),   invalid("context")),
    ("context too long",         || body_with_context(4097),                           (413, "invalid_request", "context_too_long")),
    ("body too long",            || vec![b' '; 65_537],                                (413, "invalid_request", "body_too_long")),
];

/// The body of a mint whose context has so many bytes as compact JSON.
pub fn body_with_context(length: usize) -> Vec<u8> {
    let filler = "x".repeat(length - json!({"a": ""}).to_string().len());
    json!({"userId": "u", "context": {"a": filler}}).to_string().into()
}
