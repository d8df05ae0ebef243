//! Two people: approvals, the user's consent and break glass, at the endpoints of the filter.

mod decisions;
pub(crate) mod hooks;
mod mints;
mod waiting;

use serde_json::{Value, json};

use crate::world::World;
use testkit::configuration::{Configuration, ISSUER, PROVIDER_KEY, jwks};
use testkit::gateway::{
    BEARER, exchange_form, exchange_request, mint_body_request, now, store_in_etcd,
};
use testkit::http::{Answer, Form, Request};

/// An answer, and the last line of the audit log.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) status: u16,
    answer: Answer,
    /// The JSON in the answer.
    body: Value,
    pub(crate) event: Value,
}

impl Told {
    fn header(&self, name: &str) -> Option<&str> {
        self.answer.header(name)
    }

    /// Returns a text member that the answer must have.
    pub(crate) fn text(&self, member: &str) -> &str {
        self.body[member].as_str().unwrap_or_else(|| panic!("no {member} in {self:?}"))
    }

    /// Returns the reason of the refusal.
    fn reason(&self) -> &str {
        self.event["reason"].as_str().unwrap_or("")
    }
}

impl World {
    fn told(&self, request: &Request) -> Told {
        self.told_of(self.send(request))
    }

    /// Sends a request as [`World::send_while`] does.
    pub(crate) fn told_while<T>(
        &self,
        request: &Request,
        cluster: &str,
        meanwhile: impl FnOnce() -> T,
    ) -> (Told, T) {
        let (answer, then) = self.send_while(request, cluster, meanwhile);
        (self.told_of(answer), then)
    }

    fn told_of(&self, answer: Answer) -> Told {
        let body = serde_json::from_slice(&answer.body).unwrap_or(Value::Null);
        let event = self.audit().pop().unwrap_or(Value::Null);
        Told { status: answer.status, answer, body, event }
    }
}

/// The usual configuration, with these approvals.
fn with_approvals(approvals: &Value) -> Configuration {
    let people = json!({
        "issuer": ISSUER, "audiences": ["people"], "local_jwks": jwks(&[&PROVIDER_KEY]),
    });
    let mut section = json!({
        "authentication": {"jwt": [people]}, "break_glass": {"required_context": ["incident"]},
    });
    section.as_object_mut().unwrap().extend(approvals.as_object().unwrap().clone());
    Configuration::default()
        .with("/approvals", section)
        .with("/store/shared_data/capacity", 40)
        .with("/audit", json!({"context": true}))
}

fn approving(required: u8) -> World {
    World::start(&with_approvals(&json!({"required": required})))
}

/// A world with its state in shared data, and one with the same configuration and its state in
/// etcd.
fn in_both_stores(configuration: &Configuration) -> [(&'static str, World); 2] {
    let local = configuration.clone().with("/store/shared_data/capacity", 8000);
    let in_etcd = configuration.clone().with("/store", store_in_etcd());
    [("shared data", World::start(&local)), ("etcd", World::start(&in_etcd))]
}

/// The access token of a person who may approve.
pub(crate) fn approver(name: &str) -> String {
    PROVIDER_KEY.sign(&person_claims(name, "openid impersonations:approve"))
}

/// The access token of a person who may not.
fn user(name: &str) -> String {
    PROVIDER_KEY.sign(&person_claims(name, "openid"))
}

fn person_claims(name: &str, scope: &str) -> Value {
    json!({
        "iss": ISSUER, "sub": name, "client_id": "console", "aud": "people", "iat": now(),
        "exp": now() + 7200, "scope": scope,
    })
}

fn with(mut claims: Value, name: &str, value: impl Into<Value>) -> Value {
    claims[name] = value.into();
    claims
}

fn mint_request(bounds: &Value) -> Request {
    let mut body = json!({"userId": "user-42", "context": {"ticketId": "T-1"}});
    body.as_object_mut().unwrap().extend(bounds.as_object().unwrap().clone());
    mint_body_request(&body)
}

fn mint(world: &World, bounds: &Value) -> Told {
    world.told(&mint_request(bounds))
}

/// A mint for `user-42` with this access token.
fn mint_by(token: &str) -> Request {
    Request::post("/api/subject-tokens").bearer(token).json(&json!({"userId": "user-42"}))
}

/// Mints a token, and returns it with its id.
pub(crate) fn minted(world: &World, bounds: &Value) -> (String, String) {
    let answer = world.send(&mint_request(bounds));
    assert_eq!(answer.status, 201, "{answer:?}");
    let id = answer.header("location").unwrap().rsplit_once('/').unwrap().1.to_owned();
    (answer.member("subjectToken"), id)
}

fn ask(method: &str, path: &str, token: &str, body: &str) -> Request {
    let request = Request::new(method, path).bearer(token);
    request.header("content-type", "application/json").body(body)
}

pub(crate) fn decide(world: &World, token: &str, id: &str, decision: &str) -> Told {
    let body = json!({"decision": decision}).to_string();
    world.told(&ask("POST", &format!("/api/approvals/{id}"), token, &body))
}

fn list(world: &World, token: &str) -> Told {
    world.told(&ask("GET", "/api/approvals", token, ""))
}

fn state(world: &World, id: &str) -> String {
    let answer = world.told(&ask("GET", &format!("/api/subject-tokens/{id}"), &BEARER, ""));
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.text("state").to_owned()
}

fn told_exchange(world: &World, form: &Form) -> Told {
    world.told(&exchange_request(form))
}

pub(crate) fn exchange(world: &World, token: &str) -> Told {
    told_exchange(world, &exchange_form(token))
}

pub(crate) fn assert_refused(told: &Told, case: &str, status: u16, error: &str, reason: &str) {
    let refused = (told.status, told.text("error"), told.reason());
    assert_eq!(refused, (status, error, reason), "{case}: {told:?}");
}

fn assert_waits(world: &World, token: &str) {
    let told = exchange(world, token);
    assert_refused(&told, "waits", 400, "authorization_pending", "undecided");
    assert_eq!(told.event["user_id"], "user-42");
}
