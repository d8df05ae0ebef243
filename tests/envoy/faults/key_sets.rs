//! `remote_jwks` with several workers, and with callers who hang up.

use std::time::Duration;

use jsonwebtoken::Algorithm;

use super::{echoing_gateway, expect_unavailable};
use testkit::envoy::Envoy;
use testkit::gateway::in_front_of;
use testkit::http::{Answer, Connection, Request};
use testkit::keys::Key;
use testkit::services::Issuer;
use testkit::{Findings, wait_for};

/// The seconds after which a token can cause a fetch again.
const AN_INTERVAL: i64 = 6;

/// Starts four workers, and waits until one of them has the keys.
fn start(issuer: &Issuer) -> (Envoy, Vec<Connection>) {
    let services = [&echoing_gateway(), &issuer.service];
    let bootstrap = in_front_of(&services, &issuer.only_minters("300s")).workers(4);
    let envoy = bootstrap.with_clock().start();
    let mut connections = envoy.connect_to_every_worker();
    wait_for("the first key set", || {
        (connections[0].send(&issuer.mint(&issuer.key)).status == 201).then_some(())
    });
    (envoy, connections)
}

fn new_key(kid: &str) -> Key {
    Key::generate(Algorithm::EdDSA, kid)
}

/// Returns something if this request mints over every connection.
fn all_mint(connections: &mut [Connection], request: &Request) -> Option<()> {
    connections.iter_mut().all(|connection| connection.send(request).status == 201).then_some(())
}

#[test]
fn one_fetch_serves_all_workers() {
    let issuer = Issuer::start("keys");
    let (envoy, mut connections) = start(&issuer);
    // A worker that has not fetched the keys itself must not refuse a caller.
    for connection in &mut connections {
        let answer = connection.send(&issuer.mint(&issuer.key));
        assert_eq!(answer.status, 201, "{answer:?}");
    }
    // Workers that did not know of each other's fetch would all begin one at the same moment. While
    // there are no keys at all, one fetch may follow another after a second.
    let asked = issuer.service.received();
    let gaps: Vec<_> = asked.windows(2).map(|pair| pair[1].at - pair[0].at).collect();
    assert!(gaps.iter().all(|gap| *gap > Duration::from_millis(500)), "{gaps:?}");
    assert_eq!(envoy.failures("jwks"), 0, "{}", envoy.log());
    let fetched = issuer.service.calls();

    envoy.clock().set(AN_INTERVAL);
    let rotated = new_key("rotated");
    issuer.publish(&[&rotated]);
    let mint = issuer.mint(&rotated);
    for connection in &mut connections {
        connection.write(&mint.to_bytes()).unwrap();
    }
    let answers: Vec<Answer> =
        connections.iter_mut().map(|connection| connection.read_answer("POST").unwrap()).collect();
    // A caller who arrives during the one fetch is asked to retry.
    let mut findings = Findings::default();
    for answer in answers.iter().filter(|answer| answer.status != 201) {
        expect_unavailable(&mut findings, "a worker that waits for another's fetch", answer);
    }
    assert!(answers.iter().any(|answer| answer.status == 201), "{answers:?}");
    wait_for("every worker to have the new keys", || all_mint(&mut connections, &mint));
    assert_eq!(issuer.service.calls(), fetched + 1);
}

#[test]
fn a_withdrawn_key_stops_working_on_every_worker_even_for_remembered_tokens() {
    let issuer = Issuer::start("keys");
    let (envoy, mut connections) = start(&issuer);
    // Every worker verifies this token once, and so remembers that it is good.
    let by_old = issuer.mint(&issuer.key);
    wait_for("every worker to have the keys", || all_mint(&mut connections, &by_old));
    let rotated = new_key("rotated");
    issuer.publish(&[&rotated]);
    // Only this token is sent: no unknown kid causes a fetch. Each worker looks once a second for
    // keys that another has fetched.
    envoy.clock().set(290);
    wait_for("every worker to have the refreshed keys", || {
        let refused = |connection: &mut Connection| {
            let refusal = connection.send(&by_old).refusal();
            let expected = [(201, "-".into()), (401, "invalid_token".into())];
            assert!(expected.contains(&refusal), "{refusal:?}");
            refusal.0 == 401
        };
        connections.iter_mut().all(refused).then_some(())
    });
    let by_new = issuer.mint(&rotated);
    wait_for("every worker to know the new key", || all_mint(&mut connections, &by_new));
}
