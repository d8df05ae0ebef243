//! The callers and services of these targets, and their configurations.

use std::rc::Rc;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ed25519_dalek::{Signer as _, SigningKey};
use impersonation_core::fakes::{FakeHost, START, Sent};
use impersonation_core::oauth::TOKEN_EXCHANGE;
use impersonation_core::step::{Call, CallFailure, Reply};
use impersonation_issuer::issuer::Service;
use serde_json::{Value, json};

use crate::world::{Request, play};

pub(crate) const ISSUER: &str = "https://auth.example.com/oidc";
pub(crate) const API: &str = "https://auth.example.com/api";
pub(crate) const ORDERS: &str = "https://api.example.com/orders";

/// `portal` and its secret.
const BASIC: &[u8] = b"Basic cG9ydGFsOnNlY3JldA==";
const SECRET_SHA256: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
/// The filter's own key.
pub(crate) const OWN_KEY: [u8; 32] = [9; 32];
/// A token that the identity provider knows.
pub(crate) const OPAQUE: &[u8] = b"Bearer opaque";

/// The provider's key.
pub(crate) fn provider() -> SigningKey {
    SigningKey::from_bytes(&[7; 32])
}

pub(crate) fn b64(bytes: &[u8]) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

/// A JWT that the provider signed.
pub(crate) fn signed(header: &[u8], claims: &[u8]) -> String {
    let input = format!("{}.{}", b64(header), b64(claims));
    let signature = provider().sign(input.as_bytes());
    format!("{input}.{}", b64(&signature.to_bytes()))
}

/// A JWT that may mint, and that may serve as an actor token.
pub(crate) fn good_jwt() -> String {
    let claims = json!({
        "iss": ISSUER, "sub": "backend", "client_id": "backend", "aud": API,
        "exp": START.secs() + 600, "scope": "impersonate",
    });
    signed(br#"{"alg":"EdDSA","typ":"at+jwt"}"#, claims.to_string().as_bytes())
}

/// `local_jwks` with the provider's key.
pub(crate) fn provider_keys() -> Value {
    let key = b64(provider().verifying_key().as_bytes());
    let keys = json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "x": key}]});
    json!({"inline_string": keys.to_string()})
}

/// A configuration with these members besides.
fn configuration(members: &Value) -> Value {
    let own = SigningKey::from_bytes(&OWN_KEY);
    let own_jwk = json!({
        "kty": "OKP", "crv": "Ed25519", "x": b64(own.verifying_key().as_bytes()), "d": b64(&OWN_KEY),
    });
    let uri = |path: &str| json!({"uri": format!("https://auth.example.com{path}"), "cluster": "gateway", "timeout": "3s"});
    let jwt = json!({
        "issuer": ISSUER, "audiences": [API], "clock_skew": "60s",
        "local_jwks": provider_keys(),
    });
    let introspection = json!({
        "http_uri": uri("/introspection"), "client_id": "filter",
        "client_secret": {"inline_string": "introspection secret"}, "cache_duration": "0s",
    });
    let with = |value: &Value, more: Value| {
        let mut value = value.clone();
        value.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        value
    };
    let to_mint = json!({"required_scopes": ["impersonate"]});
    let to_oversee = json!({"required_scopes": ["support"], "audiences": [API]});
    let own = json!({
        "issuer": ISSUER,
        "signing_keys": [{"jwk": own_jwk, "kid": "filter-1"}],
        "subject_tokens": {
            "lifetime": "600s",
            "max_context_bytes": 4096,
            "protected_users": ["root", "admin-*"],
            "max_mints_per_caller": {"count": 1000, "per": "600s"},
            "authentication": {
                "jwt": [with(&jwt, to_mint.clone())],
                "introspection": with(&introspection, to_mint),
            },
        },
        "impersonations": {
            "authentication": {"introspection": with(&introspection, to_oversee)},
            "capacity": 8,
        },
        "store": {"shared_data": {"capacity": 4}},
        "actor_tokens": {"jwt": [jwt], "userinfo": {"http_uri": uri("/me"), "cache_duration": "0s"}},
        "clients": [
            {"client_id": "portal", "type": "traditional_web", "client_secret_sha256": [SECRET_SHA256]},
            {"client_id": "console", "type": "single_page", "resources": [ORDERS]},
            {"client_id": "desk", "type": "native", "actor_token_required": true},
        ],
        "resources": [{"indicator": ORDERS, "scopes": ["orders:read", "orders:write"]}],
        "identity_gateway": {"documents": "merge"},
    });
    with(&own, members.clone())
}

/// A service with these members in its configuration besides, but for those that are null.
pub(crate) fn service(members: &Value) -> Rc<Service> {
    let mut configuration = configuration(members);
    configuration.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    let bytes = configuration.to_string().into_bytes();
    let service = Service::configure(&bytes, &|_| None, START, None, None);
    Rc::new(service.unwrap_or_else(|error| panic!("{error}")))
}

/// A service with these members of `subject_tokens` besides.
pub(crate) fn service_minting(members: &Value) -> Rc<Service> {
    let mut subject_tokens = configuration(&json!({}))["subject_tokens"].take();
    subject_tokens.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    service(&json!({"subject_tokens": subject_tokens}))
}

/// An upstream that says yes to everything.
pub(crate) fn says_yes(call: &Call) -> Reply {
    let Call::Http(call) = call else { return Reply::Failed(CallFailure::NotSent) };
    let body = match &*call.path {
        "/introspection" => json!({
            "active": true, "client_id": "backend", "sub": "backend", "aud": API,
            "scope": "impersonate support impersonations:read impersonations:revoke",
        }),
        "/me" => json!({"sub": "agent-7"}),
        _ => json!({}),
    };
    Reply::Http { status: 200, json: true, body: body.to_string().into_bytes() }
}

pub(crate) const FORM: (&str, &[u8]) = ("content-type", b"application/x-www-form-urlencoded");
pub(crate) const JSON: (&str, &[u8]) = ("content-type", b"application/json");

pub(crate) fn mint<'a>(authorization: &'a [u8], body: &'a [u8]) -> Request<'a> {
    Request {
        method: "POST",
        path: b"/api/subject-tokens",
        headers: vec![JSON, ("authorization", authorization)],
        body,
        answer: None,
    }
}

pub(crate) fn exchange(body: &[u8]) -> Request<'_> {
    Request {
        method: "POST",
        path: b"/oidc/token",
        headers: vec![FORM, ("authorization", BASIC)],
        body,
        answer: None,
    }
}

/// The form that exchanges this token.
pub(crate) fn exchange_form(token: &str) -> String {
    form_urlencoded::Serializer::new(String::new())
        .append_pair("grant_type", TOKEN_EXCHANGE)
        .append_pair("subject_token", token)
        .append_pair("subject_token_type", "urn:ietf:params:oauth:token-type:access_token")
        .append_pair("resource", ORDERS)
        .append_pair("scope", "orders:read")
        .finish()
}

/// The subject token in the answer to a mint.
pub(crate) fn minted(answer: &Sent) -> String {
    assert_eq!(answer.status, 201, "{}", answer.body.escape_ascii());
    answer.json()["subjectToken"].as_str().unwrap().to_owned()
}

/// A host with one outstanding and one spent subject token, and the access token of the latter.
pub(crate) struct Begun {
    pub(crate) world: FakeHost,
    pub(crate) outstanding: String,
    pub(crate) spent: String,
    pub(crate) access_token: String,
}

impl Begun {
    pub(crate) fn new(service: &Rc<Service>) -> Self {
        let world = Rc::new(FakeHost::default());
        service.create_tables(&*world);
        let mint = || {
            let body = br#"{"userId":"user-42","context":{"ticketId":"T-1"}}"#;
            minted(&play(service, &world, &mint(OPAQUE, body), says_yes).unwrap())
        };
        let (outstanding, spent) = (mint(), mint());
        let form = exchange_form(&spent);
        let answer = play(service, &world, &exchange(form.as_bytes()), says_yes).unwrap();
        assert_eq!(answer.status, 200, "{}", answer.body.escape_ascii());
        let access_token = answer.json()["access_token"].as_str().unwrap().to_owned();
        Self { world: world.copy(), outstanding, spent, access_token }
    }

    /// Replaces the names of the tokens in an input by the tokens.
    pub(crate) fn name(&self, data: &[u8]) -> Vec<u8> {
        let names = [
            (&b"$OUTSTANDING"[..], &self.outstanding),
            (b"$SPENT", &self.spent),
            (b"$ACCESS", &self.access_token),
        ];
        let mut named = Vec::with_capacity(data.len());
        let mut rest = data;
        while let Some((first, others)) = rest.split_first() {
            match names.iter().find(|(name, _)| rest.starts_with(name)) {
                Some((name, token)) => {
                    named.extend_from_slice(token.as_bytes());
                    rest = &rest[name.len()..];
                }
                None => {
                    named.push(*first);
                    rest = others;
                }
            }
        }
        named
    }
}
