//! The impersonation flow as its three parties see it: a backend that mints, a support client that
//! exchanges, and the APIs that verify what comes out.

use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::configuration::{
    CLIENT_SECRET, Configuration, ISSUER, MANAGEMENT, ORDERS, PROVIDER_KEY, SUPPORT,
};
use crate::envoy::{Envoy, Exit, Filter, Options, Plugin};
use crate::http::{Answer, Connection, Form, Request};
use crate::keys::Key;

pub const EXCHANGE_GRANT: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
pub const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";

/// An Envoy that serves the impersonation flow.
pub struct Gateway {
    pub envoy: Envoy,
}

impl Gateway {
    /// One gateway with the default configuration and two workers, for every test that changes
    /// nothing about it.
    pub fn shared() -> &'static Self {
        static SHARED: LazyLock<Gateway> = LazyLock::new(|| {
            let options = Options { concurrency: 2, ..Options::default() };
            Gateway::try_start(&Configuration::default(), &options).unwrap()
        });
        &SHARED
    }

    pub fn start(configuration: &Configuration) -> Self {
        Self::try_start(configuration, &Options::default()).unwrap()
    }

    pub fn try_start(configuration: &Configuration, options: &Options) -> Result<Self, Exit> {
        let filter = Filter::from(configuration);
        Ok(Self { envoy: Envoy::start(Some(&filter), options)? })
    }

    pub fn update(&self, configuration: &Configuration) -> Result<(), String> {
        self.envoy.update(&Filter::from(configuration))
    }

    pub fn connect(&self) -> Connection {
        Connection::open(self.envoy.gateway)
    }

    /// Sends a request over a connection of its own.
    pub fn send(&self, request: &Request) -> Answer {
        self.connect().send(request)
    }

    /// A subject token for `user`.
    pub fn mint(&self, user: &str) -> String {
        minted(&self.send(&mint_request(user)))
    }

    pub fn exchange(&self, form: &Form) -> Answer {
        self.send(&exchange_request(form))
    }

    /// The whole flow for `user`, with what is right everywhere; says so if it does not work.
    pub fn assert_serves(&self, case: &str) {
        let answer = self.exchange(&exchange_form(&self.mint("u-after")));
        assert_eq!(answer.status, 200, "{case}: the flow no longer works: {answer:?}");
    }

    /// Does the whole flow on every worker: on many connections, until each worker has had one.
    pub fn assert_every_worker_serves(&self, case: &str) {
        for connection in &mut self.envoy.connect_to_every_worker() {
            let token = minted(&connection.send(&mint_request("u-after")));
            let answer = connection.send(&exchange_request(&exchange_form(&token)));
            assert_eq!(answer.status, 200, "{case}: {answer:?}");
        }
    }

    /// The token of a refused request is worth what it was: the right request still gets its answer.
    pub fn assert_spendable(&self, subject_token: &str, case: &str) {
        let answer = self.exchange(&exchange_form(subject_token));
        assert_eq!(answer.status, 200, "{case}: the subject token is spent: {answer:?}");
    }

    pub fn assert_spent(&self, subject_token: &str, case: &str) {
        let answer = self.exchange(&exchange_form(subject_token));
        assert_eq!(answer.refusal(), (400, "invalid_request".into()), "{case}: {answer:?}");
    }

    /// Whether the upstream saw the request that this is the answer to.
    pub fn passed_on(&self, answer: &Answer) -> bool {
        self.envoy.upstream.received(answer).is_some()
    }
}

impl From<&Configuration> for Filter {
    fn from(configuration: &Configuration) -> Self {
        Plugin::Struct(configuration.0.clone()).into()
    }
}

/// The subject token in an answer that must be a success.
pub fn minted(answer: &Answer) -> String {
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.member("subjectToken")
}

pub fn mint_request(user: &str) -> Request {
    mint_body_request(&json!({"userId": user}))
}

pub fn mint_body_request(body: &Value) -> Request {
    Request::post("/api/subject-tokens").bearer(&BEARER).json(body)
}

/// A valid machine-to-machine token of the integrator's backend.
pub static BEARER: LazyLock<String> = LazyLock::new(|| PROVIDER_KEY.sign(&backend_claims()));

pub fn backend_claims() -> Value {
    json!({
        "iss": ISSUER,
        "sub": "support-backend",
        "client_id": "support-backend",
        "aud": MANAGEMENT,
        "scope": "impersonate",
        "iat": now(),
        "exp": now() + 3600,
        "jti": fastrand::u64(..).to_string(),
    })
}

/// What the acting user's access token says.
pub fn actor_claims(actor: &str) -> Value {
    json!({
        "iss": ISSUER,
        "sub": actor,
        "client_id": "support-console",
        "aud": SUPPORT,
        "scope": "openid profile",
        "iat": now(),
        "exp": now() + 3600,
    })
}

/// A request of the public client `support-console` for `orders:read` at the orders API.
pub fn exchange_form(subject_token: &str) -> Form {
    Form::default()
        .set("grant_type", EXCHANGE_GRANT)
        .set("client_id", "support-console")
        .set("scope", "orders:read")
        .set("subject_token", subject_token)
        .set("subject_token_type", ACCESS_TOKEN)
        .set("resource", ORDERS)
}

pub fn with_actor(form: Form, actor_token: &str) -> Form {
    form.set("actor_token", actor_token).set("actor_token_type", ACCESS_TOKEN)
}

pub fn exchange_request(form: &Form) -> Request {
    raw_exchange_request(&form.encode())
}

pub fn raw_exchange_request(body: &str) -> Request {
    Request::post("/oidc/token")
        .header("content-type", "application/x-www-form-urlencoded")
        .body(body)
}

/// The same exchange by the confidential client `support-portal`.
pub fn portal_request(subject_token: &str) -> Request {
    exchange_request(&exchange_form(subject_token).without("client_id"))
        .basic("support-portal", &CLIENT_SECRET)
}

/// Header and claims of an access token, its signature verified with the public key that `jwks` has
/// for it.
pub fn verify(access_token: &str, jwks: &Value) -> (Value, Value) {
    let jwks: jsonwebtoken::jwk::JwkSet = serde_json::from_value(jwks.clone()).unwrap();
    let header = jsonwebtoken::decode_header(access_token).unwrap();
    let key = jwks.find(header.kid.as_deref().unwrap()).expect("the token's kid in the key set");
    let mut validation = jsonwebtoken::Validation::new(header.alg);
    validation.set_issuer(&[ISSUER]);
    validation.validate_aud = false;
    let key = jsonwebtoken::DecodingKey::from_jwk(key).unwrap();
    let claims = jsonwebtoken::decode::<Value>(access_token, &key, &validation)
        .unwrap_or_else(|error| panic!("{error}: {access_token}"));
    (raw_part(access_token, 0), claims.claims)
}

/// The header (0) or the claims (1) of a JWT, whatever its signature is worth.
pub fn raw_part(jwt: &str, index: usize) -> Value {
    use base64::Engine;
    let part = jwt.split('.').nth(index).unwrap();
    serde_json::from_slice(&base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(part).unwrap())
        .unwrap()
}

/// A key set with the public half of `key`, for [`verify`].
pub fn key_set(key: &Key) -> Value {
    json!({"keys": [key.public_jwk()]})
}

pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}
