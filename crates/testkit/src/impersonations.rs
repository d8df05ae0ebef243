//! Impersonations as their parties see them: requests that begin them, show them and end them.

use serde_json::{Value, json};

use crate::configuration::{CLIENT_SECRET, PROVIDER_KEY};
use crate::gateway::{actor_claims, backend_claims, exchange_form, with_actor};
use crate::http::{Form, Request};

pub const LIST: &str = "/api/impersonations";
pub const REVOCATIONS: &str = "/api/impersonations/revocations";
pub const REVOCATION: &str = "/oidc/token/revocation";
pub const INTROSPECTION: &str = "/oidc/token/introspection";

/// Returns a name that no other test has.
pub fn unique(name: &str) -> String {
    format!("{name}-{:016x}", fastrand::u64(..))
}

/// The access token of the backend with this name.
pub fn backend(name: &str) -> String {
    let mut claims = backend_claims();
    claims["sub"] = json!(name);
    claims["client_id"] = json!(name);
    PROVIDER_KEY.sign(&claims)
}

/// The access token of an operator who may end impersonations.
pub fn operator() -> String {
    operator_with("impersonations:revoke")
}

/// The access token of an operator with this scope.
pub fn operator_with(scope: &str) -> String {
    let mut claims = backend_claims();
    claims["sub"] = json!("operator-1");
    claims["client_id"] = json!("operations");
    claims["scope"] = json!(scope);
    PROVIDER_KEY.sign(&claims)
}

/// The user, the actor and the caller of an impersonation.
#[derive(Clone, Debug)]
pub struct Parties {
    pub user: String,
    pub actor: String,
    pub caller: String,
}

impl Parties {
    /// Names that no other test uses.
    pub fn new() -> Self {
        Self { user: unique("user"), actor: unique("agent"), caller: unique("backend") }
    }

    /// The caller mints with these members.
    pub fn mint_request(&self, members: &Value) -> Request {
        let mut body = json!({"userId": self.user});
        body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        Request::post("/api/subject-tokens").bearer(&backend(&self.caller)).json(&body)
    }

    /// The actor exchanges, by the public client `support-console`.
    pub fn exchange_form(&self, subject_token: &str) -> Form {
        with_actor(exchange_form(subject_token), &PROVIDER_KEY.sign(&actor_claims(&self.actor)))
    }

    /// The caller takes back what it minted.
    pub fn cancellation(&self, id: &str) -> Request {
        let path = format!("/api/subject-tokens/{id}");
        Request::new("DELETE", &path).bearer(&backend(&self.caller))
    }
}

impl Default for Parties {
    fn default() -> Self {
        Self::new()
    }
}

pub fn form_request(path: &str, form: &Form) -> Request {
    Request::post(path)
        .header("content-type", "application/x-www-form-urlencoded")
        .body(form.encode())
}

/// Introspection of a token, by a client that has a secret.
pub fn introspection(token: &str) -> Request {
    form_request(INTROSPECTION, &Form::default().set("token", token))
        .basic("support-robot", &CLIENT_SECRET)
}

/// An operator ends what `body` names.
pub fn revocation(body: &Value) -> Request {
    Request::post(REVOCATIONS).bearer(&operator_with("impersonations:revoke")).json(body)
}

/// An operator ends one impersonation.
pub fn end_by_id(id: &str) -> Request {
    let request = Request::new("DELETE", &format!("{LIST}/{id}"));
    request.bearer(&operator_with("impersonations:revoke"))
}

/// An operator reads the list.
pub fn list_request(query: &str) -> Request {
    Request::get(&format!("{LIST}{query}")).bearer(&operator_with("impersonations:read"))
}
