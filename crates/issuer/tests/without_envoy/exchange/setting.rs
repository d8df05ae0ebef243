//! The configuration of these tests, and the requests that their callers send.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jsonwebtoken::Algorithm;
use serde_json::{Value, json};

use crate::driver::{Answer, Gateway, Request, START};
use testkit::configuration::{Configuration, jwks, sha256_hex};
pub(super) use testkit::configuration::{ISSUER, MANAGEMENT, ORDERS, SUPPORT};
pub(super) use testkit::gateway::{ACCESS_TOKEN, EXCHANGE_GRANT};
use testkit::http::{Form, urlencode};
use testkit::keys::Key;

/// The secret of `portal`. It has characters that the form encoding changes.
pub(super) const CLIENT_SECRET: &str = "correct horse: battery+staple%";
pub(super) const INTROSPECTION_SECRET: &str = "introspection battery staple";

/// The key that the filter signs with.
pub(super) static SIGNING_KEY: LazyLock<Key> =
    LazyLock::new(|| Key::generate(Algorithm::EdDSA, "filter-1"));
/// The key that the identity provider signs with.
pub(super) static PROVIDER_KEY: LazyLock<Key> =
    LazyLock::new(|| Key::generate(Algorithm::EdDSA, "provider-1"));

/// The start of every test, as a `NumericDate`.
pub(super) const NOW: u64 = START.secs();

/// The usual configuration.
pub(super) fn configuration() -> Value {
    let secret = sha256_hex(CLIENT_SECRET);
    let clients = json!([
        {"client_id": "portal", "type": "traditional_web", "client_secret_sha256": [secret]},
        {"client_id": "console", "type": "single_page", "resources": [ORDERS]},
        {"client_id": "desk", "type": "native", "actor_token_required": true},
        {"client_id": "poster", "type": "traditional_web", "authentication": "client_secret_post", "client_secret_sha256": [secret]},
        {"client_id": "api", "type": "machine_to_machine", "client_secret_sha256": [secret], "resources": []},
    ]);
    let Configuration(configuration) = Configuration::default()
        .with("/signing_keys", json!([{"jwk": SIGNING_KEY.private_jwk()}]))
        .with("/subject_tokens/authentication/jwt/0/local_jwks", jwks(&[&PROVIDER_KEY]))
        .with("/actor_tokens/jwt/0/local_jwks", jwks(&[&PROVIDER_KEY]))
        .with("/store/shared_data/capacity", 4)
        .with("/clients", clients)
        .with("/audit", json!({"context": true}));
    configuration
}

/// The usual configuration, with the member at a JSON pointer set to `value`.
pub(super) fn configured(pointer: &str, value: Value) -> Value {
    let mut configuration = configuration();
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    configuration.pointer_mut(parent).unwrap()[name] = value;
    configuration
}

/// The claims of a good machine-to-machine token.
pub(super) fn backend_claims() -> Value {
    json!({
        "iss": ISSUER, "sub": "backend", "client_id": "backend", "aud": MANAGEMENT,
        "iat": NOW, "exp": NOW + 3600, "scope": "impersonate",
    })
}

/// The claims of a good actor token.
pub(super) fn actor_claims() -> Value {
    json!({
        "iss": ISSUER, "sub": "agent-7", "client_id": "desk", "aud": SUPPORT,
        "iat": NOW, "exp": NOW + 3600, "scope": "openid profile",
    })
}

pub(super) fn with(mut claims: Value, name: &str, value: impl Into<Value>) -> Value {
    claims[name] = value.into();
    claims
}

pub(super) fn without(mut claims: Value, name: &str) -> Value {
    claims.as_object_mut().unwrap().remove(name);
    claims
}

pub(super) fn backend_token() -> String {
    PROVIDER_KEY.sign(&backend_claims())
}

pub(super) fn actor_token() -> String {
    PROVIDER_KEY.sign(&actor_claims())
}

/// A request for a subject token.
#[derive(Clone)]
pub(super) struct MintForm {
    pub authorization: Option<String>,
    pub content_type: &'static str,
    pub body: Vec<u8>,
}

impl MintForm {
    pub(super) fn new(body: &Value) -> Self {
        Self {
            authorization: Some(format!("Bearer {}", backend_token())),
            content_type: "application/json",
            body: body.to_string().into_bytes(),
        }
    }

    pub(super) fn bearer(self, token: &str) -> Self {
        Self { authorization: Some(format!("Bearer {token}")), ..self }
    }

    pub(super) fn body(self, body: impl Into<Vec<u8>>) -> Self {
        Self { body: body.into(), ..self }
    }

    pub(super) fn request(&self) -> Request {
        let mut headers =
            vec![("x-request-id", "mint-1".to_owned()), ("content-type", self.content_type.into())];
        headers.extend(self.authorization.clone().map(|value| ("authorization", value)));
        let path = "/api/subject-tokens".to_owned();
        Request { method: "POST", path, headers, body: self.body.clone() }
    }
}

/// The usual mint request of the backend.
pub(super) fn mint_form() -> MintForm {
    MintForm::new(&json!({"userId": "user-42", "context": {"ticketId": "T-1"}}))
}

/// A request to exchange a subject token.
#[derive(Debug, Clone)]
pub(crate) struct ExchangeForm {
    pub parameters: Form,
    pub authorization: Option<String>,
}

impl ExchangeForm {
    /// A request by a public client and without an actor, which is granted.
    pub(crate) fn new(subject_token: &str) -> Self {
        let parameters = Form::default()
            .set("grant_type", EXCHANGE_GRANT)
            .set("client_id", "console")
            .set("scope", "orders:read")
            .set("subject_token", subject_token)
            .set("subject_token_type", ACCESS_TOKEN)
            .set("resource", ORDERS);
        Self { parameters, authorization: None }
    }

    /// Sets a parameter, or adds it.
    pub(crate) fn set(self, name: &str, value: &str) -> Self {
        Self { parameters: self.parameters.set(name, value), ..self }
    }

    /// Adds a parameter, even if there is one of that name.
    pub(crate) fn add(self, name: &str, value: &str) -> Self {
        Self { parameters: self.parameters.add(name, value), ..self }
    }

    pub(crate) fn without(self, name: &str) -> Self {
        Self { parameters: self.parameters.without(name), ..self }
    }

    pub(crate) fn subject_token(&self) -> &str {
        let named = self.parameters.0.iter().find(|(name, _)| name == "subject_token");
        named.map_or("", |(_, value)| value)
    }

    pub(crate) fn actor(self, token: &str) -> Self {
        self.set("actor_token", token).set("actor_token_type", ACCESS_TOKEN)
    }

    /// Makes the request one by the confidential client.
    pub(crate) fn portal(self) -> Self {
        self.basic("portal", CLIENT_SECRET).set("client_id", "portal")
    }

    pub(crate) fn basic(mut self, client_id: &str, secret: &str) -> Self {
        let encode = |text: &str| urlencode(text.as_bytes());
        let credentials = format!("{}:{}", encode(client_id), encode(secret));
        self.authorization = Some(format!("Basic {}", BASE64_STANDARD.encode(credentials)));
        self
    }

    pub(crate) fn request(&self) -> Request {
        self.request_with_body(self.parameters.encode())
    }

    pub(crate) fn request_with_body(&self, body: impl Into<Vec<u8>>) -> Request {
        let mut headers = vec![
            ("x-request-id", "exchange-1".to_owned()),
            ("content-type", "application/x-www-form-urlencoded".to_owned()),
        ];
        headers.extend(self.authorization.clone().map(|value| ("authorization", value)));
        let path = "/oidc/token".to_owned();
        Request { method: "POST", path, headers, body: body.into() }
    }
}

impl Gateway {
    /// A gateway with the usual configuration.
    pub(crate) fn usual() -> Self {
        Self::new(&configuration())
    }

    /// A fresh subject token for `user-42`.
    pub(crate) fn mint(&self) -> String {
        let answer = self.send(&mint_form().request());
        assert_eq!(answer.status, 201, "{answer:?}");
        answer.text("subjectToken").to_owned()
    }

    pub(crate) fn exchange(&self, form: &ExchangeForm) -> Answer {
        self.send(&form.request())
    }

    /// Spends a token, and asserts that it was not spent before.
    pub(crate) fn assert_spendable(&self, subject_token: &str, case: &str) {
        let answer = self.exchange(&ExchangeForm::new(subject_token));
        assert_eq!(answer.status, 200, "{case}: the token was lost: {answer:?}");
    }
}
