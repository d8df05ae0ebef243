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

use serde_json::{Value, json};

use crate::world::World;
use testkit::configuration::{CLIENT_SECRET, Configuration};
use testkit::gateway::{exchange_request, raw_part};
use testkit::guarded::filter_configuration;
use testkit::http::{Answer, Request};
use testkit::impersonations::{Parties, introspection, list_request, revocation};
use testkit::{paths, wait_for};

/// A configuration in which operators list and end impersonations.
fn configuration() -> Configuration {
    let configuration = filter_configuration();
    if !in_etcd() {
        return configuration;
    }
    let in_etcd = configuration.with("/store", json!({"etcd": {"cluster": "etcd"}}));
    in_etcd.with("/paths", paths::keycloaks())
}

fn in_etcd() -> bool {
    module_path!().contains("in_etcd")
}

fn start() -> World {
    World::start(&configuration())
}

/// A live impersonation.
#[derive(Debug, Clone)]
struct Live {
    subject_token: String,
    access_token: String,
    claims: Value,
}

impl Live {
    fn id(&self) -> &str {
        self.claims["txn"].as_str().unwrap()
    }
}

/// Mints with these members. Returns the subject token and its id.
fn mint_with(world: &World, parties: &Parties, members: &Value) -> (String, String) {
    let answer = world.send(&parties.mint_request(members));
    assert_eq!(answer.status, 201, "{answer:?}");
    let id = answer.header("location").unwrap().rsplit('/').next().unwrap().to_owned();
    (answer.member("subjectToken"), id)
}

fn mint(world: &World, parties: &Parties) -> (String, String) {
    mint_with(world, parties, &json!({}))
}

fn exchange(world: &World, parties: &Parties, subject_token: &str) -> Answer {
    world.exchange(&parties.exchange_form(subject_token))
}

fn begin(world: &World, parties: &Parties) -> Live {
    let (subject_token, _) = mint(world, parties);
    let answer = exchange(world, parties, &subject_token);
    live(subject_token, &answer)
}

/// Begins an impersonation by a client that has a secret.
fn begin_by_portal(world: &World, parties: &Parties) -> Live {
    let (subject_token, _) = mint(world, parties);
    let form = parties.exchange_form(&subject_token).without("client_id");
    let request = exchange_request(&form).basic("support-portal", &CLIENT_SECRET);
    live(subject_token, &world.send(&request))
}

fn live(subject_token: String, answer: &Answer) -> Live {
    assert_eq!(answer.status, 200, "{answer:?}");
    let access_token = answer.member("access_token");
    let claims = raw_part(&access_token, 1);
    Live { subject_token, access_token, claims }
}

fn is_active(world: &World, live: &Live) -> bool {
    let answer = world.send(&introspection(&live.access_token));
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["active"].as_bool().unwrap()
}

/// Ends what `body` names, and lets the millisecond of the revocation pass.
fn revoke(world: &World, body: &Value) -> Value {
    let answer = world.send(&revocation(body));
    assert_eq!(answer.status, 201, "{answer:?}");
    world.advance(1);
    answer.json()
}

/// Returns the list for a query, which must fit into one page.
fn list(world: &World, query: &str) -> Vec<Value> {
    let answer = world.send(&list_request(query));
    assert_eq!(answer.status, 200, "{answer:?}");
    let body = answer.json();
    assert_eq!(body["cursor"], Value::Null, "{body}");
    body["impersonations"].as_array().unwrap().clone()
}

/// Asserts that this many revocations are kept. Revokes for some names that nobody has, too: tests
/// choose different numbers, so that the gauge is not that of another test.
fn assert_kept(world: &World, revocations: usize, nobodies: usize) {
    for number in 0..nobodies {
        revoke(world, &json!({"userId": format!("nobody-{number}")}));
    }
    wait_for("the revocations to be counted", || {
        world.advance(1);
        let kept = world.gauge("impersonation_revocations_kept");
        (kept == Some((revocations + nobodies) as u64)).then_some(())
    });
}

/// Returns the last line of the audit log, of this event.
fn event(world: &World, name: &str) -> Value {
    let line = world.last_event();
    assert_eq!(line["event"], name, "{line}");
    line
}

fn assert_not_found(answer: &Answer, case: &str) {
    assert_eq!(answer.refusal(), (404, "not_found".into()), "{case}: {answer:?}");
}

fn delete(path: &str) -> Request {
    Request::new("DELETE", path)
}
