//! Impersonations can be seen and ended: by the minter, by an entitled operator, by the client, and
//! by a replay that shows that a token is in two hands.
//!
//! All of it holds for both stores, and at all configured paths: this module is compiled twice. The
//! second time it is `impersonations_in_etcd`, whose endpoints have the paths of Keycloak.

mod cancel;
mod lasting;
mod list;
mod replay;
mod revoke;
mod tokens;

use std::ops::Deref;
use std::sync::LazyLock;

use serde_json::{Value, json};

use testkit::bootstrap::Cluster;
use testkit::configuration::{
    CLIENT_SECRET, Configuration, ISSUER, MANAGEMENT, PROVIDER_KEY, jwks,
};
use testkit::etcd::Etcd;
use testkit::gateway::{
    Gateway, Options, actor_claims, backend_claims, exchange_form, exchange_request,
    mint_body_request, raw_part, with_actor,
};
use testkit::http::{Answer, Form, Request};
use testkit::{paths, wait_for};

const LIST: &str = "/api/impersonations";
const REVOCATIONS: &str = "/api/impersonations/revocations";

/// A configuration in which operators list and end impersonations.
pub(crate) fn configuration() -> Configuration {
    let configuration = Configuration::default().with(
        "/impersonations/authentication/jwt",
        json!([{"issuer": ISSUER, "audiences": [MANAGEMENT], "local_jwks": jwks(&[&PROVIDER_KEY])}]),
    );
    if in_etcd() {
        let in_etcd = configuration.with("/store", json!({"etcd": {"cluster": "etcd"}}));
        in_etcd.with("/paths", paths::keycloaks())
    } else {
        configuration
    }
}

fn in_etcd() -> bool {
    module_path!().contains("in_etcd")
}

/// Returns the target at which the gateway receives a request to this path.
fn sent_to(path: &str) -> String {
    if in_etcd() { paths::moved(path) } else { path.to_owned() }
}

/// A gateway, with an etcd of its own if it needs one.
pub(crate) struct Started {
    // Fields are dropped in order: Envoy ends before its store.
    gateway: Gateway,
    _etcd: Option<Etcd>,
}

impl Deref for Started {
    type Target = Gateway;

    fn deref(&self) -> &Gateway {
        &self.gateway
    }
}

/// One gateway with two workers, for every test that ends only its own impersonations.
fn gateway() -> &'static Gateway {
    static SHARED: LazyLock<Started> = LazyLock::new(|| start(&configuration()));
    &SHARED
}

/// Starts a gateway with two workers.
pub(crate) fn start(configuration: &Configuration) -> Started {
    start_with_workers(2, configuration)
}

fn start_with_workers(concurrency: u32, configuration: &Configuration) -> Started {
    let etcd = in_etcd().then(Etcd::start);
    let clusters = etcd.iter().map(|etcd| Cluster::new("etcd", etcd.address).http2()).collect();
    let options = Options { concurrency, clusters, ..Options::default() };
    let mut gateway = Gateway::try_start(configuration, &options).unwrap();
    if in_etcd() {
        gateway.envoy.move_requests();
    }
    Started { gateway, _etcd: etcd }
}

/// An operator's access token with this scope.
fn operator(scope: &str) -> String {
    let mut claims = backend_claims();
    claims["sub"] = json!("operator-1");
    claims["client_id"] = json!("operations");
    claims["scope"] = json!(scope);
    PROVIDER_KEY.sign(&claims)
}

/// The access token of the backend with this name.
fn backend(name: &str) -> String {
    let mut claims = backend_claims();
    claims["sub"] = json!(name);
    claims["client_id"] = json!(name);
    PROVIDER_KEY.sign(&claims)
}

/// Returns a name that no other test has.
fn unique(name: &str) -> String {
    format!("{name}-{:016x}", fastrand::u64(..))
}

fn delete(path: &str) -> Request {
    Request::new("DELETE", path)
}

fn revocation(body: &Value) -> Request {
    Request::post(REVOCATIONS).bearer(&operator("impersonations:revoke")).json(body)
}

/// Ends what `body` names, and waits until the millisecond of the revocation is over.
fn revoke(gateway: &Gateway, body: &Value) {
    let answer = gateway.send(&revocation(body));
    assert_eq!(answer.status, 201, "{answer:?}");
    std::thread::sleep(std::time::Duration::from_millis(2));
}

/// A live impersonation.
#[derive(Debug, Clone)]
pub(crate) struct Live {
    subject_token: String,
    pub(crate) access_token: String,
    claims: Value,
}

impl Live {
    fn id(&self) -> &str {
        self.claims["txn"].as_str().unwrap()
    }
}

/// The parties of one impersonation.
#[derive(Debug, Clone)]
pub(crate) struct Parties {
    user: String,
    actor: String,
    caller: String,
}

impl Parties {
    pub(crate) fn new() -> Self {
        Self { user: unique("user"), actor: unique("agent"), caller: unique("backend") }
    }

    fn mint(&self, gateway: &Gateway) -> (String, String) {
        self.mint_with(gateway, &json!({}))
    }

    fn mint_with(&self, gateway: &Gateway, members: &Value) -> (String, String) {
        let mut body = json!({"userId": self.user});
        body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        let request = mint_body_request(&body);
        let answer = gateway.send(
            &Request {
                headers: request
                    .headers
                    .iter()
                    .filter(|(name, _)| name != "authorization")
                    .cloned()
                    .collect(),
                ..request
            }
            .bearer(&backend(&self.caller)),
        );
        assert_eq!(answer.status, 201, "{answer:?}");
        let id = answer.header("location").unwrap().rsplit('/').next().unwrap().to_owned();
        (answer.member("subjectToken"), id)
    }

    fn form(&self, subject_token: &str) -> Form {
        with_actor(exchange_form(subject_token), &PROVIDER_KEY.sign(&actor_claims(&self.actor)))
    }

    fn exchange(&self, gateway: &Gateway, subject_token: &str) -> Answer {
        gateway.exchange(&self.form(subject_token))
    }

    pub(crate) fn begin(&self, gateway: &Gateway) -> Live {
        let (subject_token, id) = self.mint(gateway);
        let answer = self.exchange(gateway, &subject_token);
        assert_eq!(answer.status, 200, "{answer:?}");
        let access_token = answer.member("access_token");
        let claims = raw_part(&access_token, 1);
        assert_eq!(claims["txn"], id);
        Live { subject_token, access_token, claims }
    }

    /// Begins an impersonation by a client that has a secret.
    fn begin_by_portal(&self, gateway: &Gateway) -> Live {
        let (subject_token, _) = self.mint(gateway);
        let form = self.form(&subject_token).without("client_id");
        let answer = gateway.send(&exchange_request(&form).basic("support-portal", &CLIENT_SECRET));
        assert_eq!(answer.status, 200, "{answer:?}");
        let access_token = answer.member("access_token");
        let claims = raw_part(&access_token, 1);
        Live { subject_token, access_token, claims }
    }
}

fn form_request(path: &str, form: &Form) -> Request {
    Request::post(path)
        .header("content-type", "application/x-www-form-urlencoded")
        .body(form.encode())
}

/// Introspection of a token, by a client that has a secret.
fn introspection(token: &str) -> Request {
    form_request("/oidc/token/introspection", &Form::default().set("token", token))
        .basic("support-robot", &CLIENT_SECRET)
}

pub(crate) fn is_active(gateway: &Gateway, token: &str) -> bool {
    let answer = gateway.send(&introspection(token));
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["active"].as_bool().unwrap()
}

/// Returns the list for a query, which must fit into one page.
fn list(gateway: &Gateway, query: &str) -> Vec<Value> {
    let answer = list_answer(gateway, query);
    assert_eq!(answer.status, 200, "{answer:?}");
    let body = answer.json();
    assert_eq!(body["cursor"], Value::Null, "{body}");
    body["impersonations"].as_array().unwrap().clone()
}

pub(crate) fn list_answer(gateway: &Gateway, query: &str) -> Answer {
    let request = Request::get(&format!("{LIST}{query}"));
    gateway.send(&request.bearer(&operator("impersonations:read")))
}

/// Returns the audit line with these members.
fn event(gateway: &Gateway, event: &str, member: &str, value: &str) -> Value {
    wait_for(&format!("{event} of {value}"), || {
        gateway.envoy.log().lines().find_map(|line| {
            let line: Value = serde_json::from_str(&line[line.find("{\"event\"")?..])
                .or_else(|_| {
                    let from = &line[line.find("{\"event\"").unwrap()..];
                    serde_json::Deserializer::from_str(from).into_iter().next().unwrap()
                })
                .ok()?;
            (line["event"] == event && line[member] == value).then_some(line)
        })
    })
}

fn assert_not_found(answer: &Answer, case: &str) {
    assert_eq!(answer.refusal(), (404, "not_found".into()), "{case}: {answer:?}");
}
