//! A required hook was told of a decision that the store did not take. The other rules of approvals
//! are in `tests/rules/approvals`.

use serde_json::{Value, json};

use testkit::bootstrap::Cluster;
use testkit::configuration::{Configuration, ISSUER, PROVIDER_KEY, jwks};
use testkit::etcd::Etcd;
use testkit::gateway::{Gateway, Options, mint_body_request, now};
use testkit::http::Request;
use testkit::server::{Reply, Server};
use testkit::wait_for;

#[test]
fn a_decision_that_the_store_did_not_take_is_taken_back() {
    let (hook, etcd) = (Server::start("hooks"), Etcd::start());
    let people = json!({
        "issuer": ISSUER, "name_prefix": "", "audiences": ["people"],
        "local_jwks": jwks(&[&PROVIDER_KEY]),
    });
    let uri = json!({"uri": "http://hook.example/told", "cluster": "hooks", "timeout": "60s"});
    let secret = json!({"inline_string": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"});
    let configuration = Configuration::default()
        .with("/approvals", json!({"authentication": {"jwt": [people]}, "required": 1}))
        .with(
            "/notifications",
            json!([{
                "http_uri": uri, "required": true, "events": ["approval.given"], "secret": secret,
            }]),
        )
        .with("/store", json!({"etcd": {"cluster": "etcd"}}));
    let clusters = vec![
        Cluster::new("hooks", hook.address),
        Cluster::new("etcd", etcd.address).with("connect_timeout", "0.25s").http2(),
    ];
    let options = Options { clusters, ..Options::default() };
    let gateway = Gateway::try_start(&configuration, &options).unwrap();
    let answer = gateway.send(&mint_body_request(&json!({"userId": "u-1"})));
    let id = answer.header("location").unwrap().rsplit_once('/').unwrap().1;
    let dana = PROVIDER_KEY.sign(&json!({
        "iss": ISSUER, "sub": "dana", "client_id": "console", "aud": "people", "iat": now(),
        "exp": now() + 7200, "scope": "impersonations:approve",
    }));
    let decision = Request::post(&format!("/api/approvals/{id}"))
        .bearer(&dana)
        .json(&json!({"decision": "approve"}));

    hook.answer_always(Reply::status(204));
    let mut held = hook.hold();
    let mut connection = gateway.connect();
    connection.write(&decision.to_bytes()).unwrap();
    held.wait();
    etcd.kill();
    drop(held);
    let answer = connection.read_answer("POST").unwrap();
    assert_eq!(answer.refusal(), (503, "temporarily_unavailable".into()), "{answer:?}");
    let told = wait_for("the retraction", || {
        let told = hook.received().into_iter();
        let told: Vec<Value> =
            told.map(|asked| serde_json::from_slice(&asked.body).unwrap()).collect();
        (told.len() == 2).then_some(told)
    });
    assert_eq!(
        (&told[0]["type"], &told[1]["type"]),
        (&json!("approval.given.v1"), &json!("approval.not_given.v1"))
    );
    assert_eq!(told[0]["data"]["decisionId"], told[1]["data"]["decisionId"]);
}
