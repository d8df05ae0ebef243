//! Required hooks: whatever they were told and then has no effect is taken back.

use std::sync::{Arc, Mutex, mpsc};

use serde_json::{Value, json};

use super::{configuration, decision, minted, take_back};
use testkit::bootstrap::Cluster;
use testkit::configuration::Configuration;
use testkit::etcd::Etcd;
use testkit::gateway::{Gateway, Options};
use testkit::http::{Connection, Request};
use testkit::server::{Fault, Reply, Server};
use testkit::wait_for;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// The cluster of a second hook: a server that these tests do not use otherwise.
const OTHER: &str = "users";

/// A configuration with required hooks at these clusters, which are told of one kind of decision.
fn hooked(clusters: &[&str], event: &str) -> Configuration {
    let hook = |cluster: &&str| {
        let uri = json!({"uri": "http://hook.example/told", "cluster": cluster, "timeout": "60s"});
        json!({
            "http_uri": uri, "required": true, "events": [event],
            "secret": {"inline_string": SECRET},
        })
    };
    configuration().with("/notifications", clusters.iter().map(hook).collect::<Value>())
}

/// The events of one type that a hook was told.
fn told(hook: &Server, name: &str) -> Vec<Value> {
    let events = hook.received().into_iter().map(|asked| serde_json::from_slice(&asked.body));
    let events = events.map(Result::<Value, _>::unwrap);
    events.filter(|event| event["type"] == json!(format!("{name}.v1"))).collect()
}

/// Asserts that the hook and the audit log have one decision of `dana`, taken back by `name`.
fn assert_taken_back(gateway: &Gateway, hook: &Server, of: &str, name: &str, case: &str) {
    let events = wait_for(name, || Some(told(hook, name)).filter(|events| !events.is_empty()));
    let [not_given] = &events[..] else { panic!("{case}: {events:?}") };
    // Each try of a notice has one id.
    let given = &told(hook, of)[0];
    assert_eq!(not_given["data"]["decisionId"], given["data"]["decisionId"], "{case}");
    assert_eq!(given["data"]["decisionId"].as_str().unwrap().len(), 32, "{case}");
    assert_ne!(not_given["id"], given["id"], "{case}");
    assert_eq!(not_given["subject"], given["subject"], "{case}");
    assert_eq!(not_given["data"]["decidedBy"], "dana", "{case}");
    assert_eq!(not_given["data"]["state"], "pending", "{case}");
    let line = wait_for("the audit", || {
        let log = gateway.envoy.log();
        let line = log.lines().find(|line| line.contains(&format!("\"event\":\"{name}\"")));
        line.map(str::to_owned)
    });
    let id = given["data"]["decisionId"].as_str().unwrap();
    assert!(line.contains(&format!("\"decision_id\":\"{id}\"")), "{case}: {line}");
}

#[test]
fn a_decision_that_comes_too_late_is_taken_back() {
    type Way = fn(&str) -> Request;
    let cases: [(&str, &str, &str, Way, u16); 4] = [
        ("approve", "approval.given", "approval.not_given", |id| decision("eli", id, "deny"), 409),
        ("approve", "approval.given", "approval.not_given", take_back, 404),
        (
            "deny",
            "approval.denied",
            "approval.not_denied",
            |id| decision("eli", id, "approve"),
            409,
        ),
        ("deny", "approval.denied", "approval.not_denied", take_back, 404),
    ];
    for (choice, given, not_given, way, status) in cases {
        let case = format!("{choice}, {status}");
        let gateway = Gateway::lent(&hooked(&["hooks"], given));
        let hook = gateway.server("hooks");
        let (id, _) = minted(&gateway, &json!({"approvals": 1}));
        let (address, meanwhile) = (gateway.address(), way(&id));
        let once = Mutex::new(Some(meanwhile));
        hook.answer(move |_| {
            if let Some(meanwhile) = once.lock().unwrap().take() {
                let answer = Connection::open(address).send(&meanwhile);
                assert!(answer.status < 300, "{answer:?}");
            }
            Reply::status(204)
        });
        let answer = gateway.send(&decision("dana", &id, choice));
        assert_eq!(answer.status, status, "{case}: {answer:?}");
        assert_taken_back(&gateway, hook, given, not_given, &case);
    }
}

#[test]
fn a_decision_that_counts_is_told_once_and_not_taken_back() {
    let gateway = Gateway::lent(&hooked(&["hooks"], "approval.given"));
    let hook = gateway.server("hooks");
    hook.answer_always(Reply::status(204));
    let (first, _) = minted(&gateway, &json!({"approvals": 1}));
    assert_eq!(gateway.send(&decision("dana", &first, "approve")).status, 200);
    // The hook gets what waits for it in order: a later retraction comes behind an earlier one.
    let (last, _) = minted(&gateway, &json!({"approvals": 1}));
    let (address, once) = (gateway.address(), Mutex::new(Some(take_back(&last))));
    hook.answer(move |_| {
        if let Some(taken) = once.lock().unwrap().take() {
            assert_eq!(Connection::open(address).send(&taken).status, 204);
        }
        Reply::status(204)
    });
    assert_eq!(gateway.send(&decision("dana", &last, "approve")).status, 404);
    let events = wait_for("the retraction", || {
        Some(told(hook, "approval.not_given")).filter(|events| !events.is_empty())
    });
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(events[0]["subject"], json!(last));
    assert_eq!(told(hook, "approval.given").len(), 2);
}

#[test]
fn a_decision_that_another_hook_could_not_be_told_is_taken_back() {
    let gateway = Gateway::lent(&hooked(&["hooks", OTHER], "approval.given"));
    let [hook, other] = ["hooks", OTHER].map(|name| gateway.server(name));
    hook.answer_always(Reply::status(204));
    other.fail(Fault::ServerError);
    let (id, _) = minted(&gateway, &json!({"approvals": 1}));
    let answer = gateway.send(&decision("dana", &id, "approve"));
    assert_eq!(answer.refusal(), (503, "temporarily_unavailable".into()), "{answer:?}");
    let names = ("approval.given", "approval.not_given");
    assert_taken_back(&gateway, hook, names.0, names.1, "another hook");
    // The other hook may have been told, too: only its answer is known to be wrong.
    other.heal();
    wait_for("the other", || (!told(other, names.1).is_empty()).then_some(()));
}

#[test]
fn a_decision_that_the_store_did_not_take_is_taken_back() {
    let (hook, etcd) = (Server::start("hooks"), Arc::new(Etcd::start()));
    let configuration = hooked(&["hooks"], "approval.given");
    let configuration = configuration.with("/store", json!({"etcd": {"cluster": "etcd"}}));
    let clusters = vec![
        Cluster::new("hooks", hook.address),
        Cluster::new("etcd", etcd.address).with("connect_timeout", "0.25s").http2(),
    ];
    let options = Options { clusters, ..Options::default() };
    let gateway = Gateway::try_start(&configuration, &options).unwrap();
    let (id, _) = minted(&gateway, &json!({"approvals": 1}));
    let down = Arc::clone(&etcd);
    hook.answer(move |_| {
        down.kill();
        Reply::status(204)
    });
    let answer = gateway.send(&decision("dana", &id, "approve"));
    assert_eq!(answer.refusal(), (503, "temporarily_unavailable".into()), "{answer:?}");
    hook.answer_always(Reply::status(204));
    let names = ("approval.given", "approval.not_given");
    assert_taken_back(&gateway, &hook, names.0, names.1, "no store");
}

#[test]
fn a_decision_whose_person_has_left_is_taken_back() {
    let gateway = Gateway::lent(&hooked(&["hooks"], "approval.given"));
    let hook = gateway.server("hooks");
    let (id, _) = minted(&gateway, &json!({"approvals": 1}));
    let (release, held) = mpsc::channel::<()>();
    let held = Mutex::new(held);
    hook.answer(move |_| {
        let _ = held.lock().unwrap().recv();
        Reply::status(204)
    });
    let mut connection = gateway.connect();
    connection.write(&decision("dana", &id, "approve").to_bytes()).unwrap();
    wait_for("the hook", || (hook.calls() > 0).then_some(()));
    gateway.envoy.hang_up(connection);
    drop(release);
    assert_taken_back(&gateway, hook, "approval.given", "approval.not_given", "gone");
    // The person decides again, and it counts.
    assert_eq!(gateway.send(&decision("dana", &id, "approve")).status, 200);
}
