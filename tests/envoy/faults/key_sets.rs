//! `remote_jwks`: when and how often key sets are fetched, which requests they serve, and the
//! effect of a change of keys.

use std::sync::{Mutex, mpsc};
use std::thread::sleep;
use std::time::Duration;

use jsonwebtoken::Algorithm;
use serde_json::json;

use super::{echoing_gateway, expect_unavailable};
use testkit::bootstrap::Bootstrap;
use testkit::envoy::Envoy;
use testkit::gateway::in_front_of;
use testkit::http::{Answer, Connection, Request};
use testkit::keys::Key;
use testkit::server::{Fault, Reply};
use testkit::services::Issuer;
use testkit::{Findings, wait_for};

/// The least time between two fetches that tokens can cause.
const INTERVAL: Duration = Duration::from_secs(5);
/// The seconds after which a token can cause a fetch again.
const AN_INTERVAL: i64 = 6;

fn start(issuer: &Issuer, cache_duration: &str, workers: u32) -> Envoy {
    with_keys(issuer, in_front(issuer, cache_duration, workers))
}

/// Starts an Envoy with a clock of its own.
fn start_with_clock(issuer: &Issuer, workers: u32) -> Envoy {
    with_keys(issuer, in_front(issuer, "300s", workers).with_clock())
}

fn in_front(issuer: &Issuer, cache_duration: &str, workers: u32) -> Bootstrap {
    let configuration = issuer.only_minters(cache_duration);
    in_front_of(&[&echoing_gateway(), &issuer.service], &configuration).workers(workers)
}

fn with_keys(issuer: &Issuer, bootstrap: Bootstrap) -> Envoy {
    let envoy = bootstrap.start();
    wait_for("the first fetch", || (issuer.service.calls() > 0).then_some(()));
    wait_for("the first key set", || {
        (envoy.send(&issuer.mint(&issuer.key)).status == 201).then_some(())
    });
    envoy
}

fn new_key(kid: &str) -> Key {
    Key::generate(Algorithm::EdDSA, kid)
}

/// Workers that did not know of each other's fetch would all begin one at the same moment. While
/// there are no keys at all, one fetch may follow another after a second.
fn expect_one_fetch_at_a_time(issuer: &Issuer) {
    let gaps = gaps(issuer);
    assert!(gaps.iter().all(|gap| *gap > Duration::from_millis(500)), "{gaps:?}");
}

/// Returns the times between one fetch and the next.
fn gaps(issuer: &Issuer) -> Vec<Duration> {
    let asked = issuer.service.received();
    asked.windows(2).map(|pair| pair[1].at - pair[0].at).collect()
}

#[test]
fn key_sets_are_fetched_at_the_start_and_again_before_they_expire() {
    for (cache_duration, limit) in [("8s", 8), ("4s", 4)] {
        let issuer = Issuer::start("keys");
        let configuration = issuer.only_minters(cache_duration);
        let services = [&echoing_gateway(), &issuer.service];
        let envoy = in_front_of(&services, &configuration).start();
        // No request has arrived yet.
        wait_for("two refreshes", || (issuer.service.calls() >= 3).then_some(()));
        let gaps = gaps(&issuer);
        let least = Duration::from_secs(limit) / 2;
        // The filter checks once a second, and a busy machine may be late.
        let most = Duration::from_secs(limit) + Duration::from_secs(2);
        assert!(
            gaps.iter().all(|gap| (least..most).contains(gap)),
            "cache_duration {cache_duration}: fetched after {gaps:?}"
        );
        assert_eq!(issuer.service.last().target, "/jwks");
        assert_eq!(issuer.service.last().method, "GET");
        assert_eq!(envoy.send(&issuer.mint(&issuer.key)).status, 201);
        let age = envoy.metric("impersonation_key_set_age_seconds").unwrap();
        assert!(age <= limit + 2, "{age} s old");
    }
}

#[test]
fn an_unknown_kid_causes_a_fetch_at_once_but_at_most_every_five_seconds() {
    let issuer = Issuer::start("keys");
    let envoy = start_with_clock(&issuer, 1);
    let fetched = issuer.service.calls();
    envoy.clock().set(AN_INTERVAL);
    assert_eq!(issuer.service.calls(), fetched, "no request has asked for keys");
    // The very request that brings the unknown key is answered.
    let rotated = new_key("rotated");
    issuer.publish(&[&issuer.key, &rotated]);
    assert_eq!(envoy.send(&issuer.mint(&rotated)).status, 201);
    assert_eq!(issuer.service.calls(), fetched + 1);

    // Tokens with invented kids cause at most one fetch in five seconds.
    let mut connection = envoy.connect();
    let mut sent = 0;
    wait_for("two more fetches", || {
        let stranger = new_key(&format!("invented-{sent}"));
        let answer = connection.send(&issuer.mint(&stranger));
        assert_eq!(answer.refusal(), (401, "invalid_token".into()), "{answer:?}");
        assert_eq!(connection.send(&issuer.mint(&issuer.key)).status, 201);
        sent += 1;
        sleep(Duration::from_millis(20));
        (issuer.service.calls() >= fetched + 3).then_some(())
    });
    // Envoy's clock and the test's are the same; a little time is lost on the way.
    let least = INTERVAL - Duration::from_secs(1);
    let gaps = gaps(&issuer).split_off(fetched);
    assert!(gaps.iter().all(|gap| *gap >= least), "{gaps:?} with {sent} invented kids");
}

#[test]
fn a_refresh_that_fails_keeps_the_last_good_keys() {
    let issuer = Issuer::start("keys");
    let envoy = start(&issuer, "1s", 1);
    let mut findings = Findings::default();
    for fault in [Fault::Refused, Fault::ServerError, Fault::Empty] {
        let failures = envoy.failures("jwks");
        issuer.service.fail(fault);
        wait_for("two refreshes to fail", || {
            let answer = envoy.send(&issuer.mint(&issuer.key));
            findings.expect(format!("{fault:?}"), &answer.status, &201);
            sleep(Duration::from_millis(100));
            (envoy.failures("jwks") >= failures + 2).then_some(())
        });
        issuer.service.heal();
    }
}

/// An issuer whose keys were stolen withdraws them all.
#[test]
fn an_emptied_key_set_withdraws_all_keys() {
    let issuer = Issuer::start("keys");
    let envoy = start(&issuer, "1s", 1);
    issuer.publish(&[]);
    wait_for("the keys to be withdrawn", || {
        let answer = envoy.send(&issuer.mint(&issuer.key));
        (answer.status == 401).then_some(())
    });
    issuer.publish(&[&issuer.key]);
    wait_for("a new key", || {
        let answer = envoy.send(&issuer.mint(&issuer.key));
        (answer.status == 201).then_some(())
    });
}

/// A caller must not be able to prevent a fetch by hanging up: a fetch that a stranger's token
/// caused goes on, and serves everybody.
#[test]
fn a_caller_who_hangs_up_does_not_stop_the_fetch_of_keys() {
    let issuer = Issuer::start("keys");
    let envoy = start_with_clock(&issuer, 1);
    envoy.clock().set(AN_INTERVAL);
    let rotated = new_key("rotated");
    let (release, held) = mpsc::channel::<()>();
    let (held, keys) = (Mutex::new(held), json!({"keys": [rotated.public_jwk()]}));
    issuer.service.answer(move |_| {
        let _ = held.lock().unwrap().recv();
        Reply::json(&keys)
    });
    let asked = issuer.service.calls();
    let mut stranger = envoy.connect();
    let request = issuer.mint(&new_key("invented"));
    stranger.write(&request.to_bytes()).unwrap();
    wait_for("the stranger's fetch", || (issuer.service.calls() > asked).then_some(()));
    drop(stranger);
    wait_for("Envoy to see the stranger gone", || {
        (envoy.stat("http.gateway.downstream_cx_destroy_remote_active_rq") > 0).then_some(())
    });
    drop(release);
    wait_for("the new key", || {
        let answer = envoy.send(&issuer.mint(&rotated));
        (answer.status == 201).then_some(())
    });
    assert_eq!(issuer.service.calls(), asked + 1, "the stranger's fetch brought it");
    let log = envoy.log();
    let line = log.lines().find(|line| line.contains("\"caller_gone\":true"));
    assert!(line.is_some_and(|line| line.contains("\"reason\":\"no_key\"")), "{log}");
}

#[test]
fn one_bad_key_does_not_spoil_the_others() {
    let issuer = Issuer::start("keys");
    let good = issuer.key.public_jwk();
    let with = |name: &str, value: serde_json::Value| {
        let mut jwk = new_key("bad").public_jwk();
        jwk[name] = value;
        jwk
    };
    let bad = json!([
        null, 7, "key", [], {}, {"kty": "unheard-of"}, {"kty": "oct", "k": "AAAA", "kid": "bad"},
        with("x", json!("AAAA")), with("x", json!("not base64!")), with("x", json!(7)),
        with("crv", json!("Ed448")), with("kty", json!("RSA")), with("alg", json!("none")),
        with("alg", json!(7)), with("kid", json!(7)), with("use", json!("enc")),
        with("key_ops", json!("verify")),
        {"kty": "RSA", "n": "AQAB", "e": "AQAB", "kid": "short"},
        {"kty": "EC", "crv": "P-256", "x": "AAAA", "y": "AAAA", "kid": "off the curve"},
    ]);
    let mut keys = bad.as_array().unwrap().clone();
    let middle = keys.len() / 2;
    keys.insert(middle, good);
    issuer.service.answer_always(Reply::json(&json!({"keys": keys, "more": {"a": 1}})));
    let envoy = start(&issuer, "300s", 1);
    assert_eq!(envoy.failures("jwks"), 0);
    // The log says which key is bad.
    let log = envoy.log();
    assert!(log.contains("key set: keys["), "{log}");
}

#[test]
fn keys_that_one_worker_fetched_serve_every_worker() {
    let issuer = Issuer::start("keys");
    let configuration = issuer.only_minters("300s");
    let services = [&echoing_gateway(), &issuer.service];
    let envoy = in_front_of(&services, &configuration).workers(4).start();
    let answered = format!("cluster.{}.upstream_rq_200", issuer.service.name);
    wait_for("the first fetch", || (envoy.stat(&answered) > 0).then_some(()));
    sleep(Duration::from_millis(200));
    // A worker that has not fetched the keys itself must not refuse a caller.
    for connection in &mut envoy.connect_to_every_worker() {
        let answer = connection.send(&issuer.mint(&issuer.key));
        assert_eq!(answer.status, 201, "{answer:?}");
    }
    expect_one_fetch_at_a_time(&issuer);
    assert_eq!(envoy.failures("jwks"), 0, "{}", envoy.log());
}

#[test]
fn one_fetch_serves_all_workers() {
    let issuer = Issuer::start("keys");
    let envoy = start_with_clock(&issuer, 4);
    let mut connections = envoy.connect_to_every_worker();
    wait_for("every worker to have the keys", || {
        let mint = issuer.mint(&issuer.key);
        connections.iter_mut().all(|connection| connection.send(&mint).status == 201).then_some(())
    });
    expect_one_fetch_at_a_time(&issuer);
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
    wait_for("every worker to have the new keys", || {
        connections.iter_mut().all(|connection| connection.send(&mint).status == 201).then_some(())
    });
    assert_eq!(issuer.service.calls(), fetched + 1);
}

/// Returns something if this request mints over every connection.
fn all_mint(connections: &mut [Connection], request: &Request) -> Option<()> {
    connections.iter_mut().all(|connection| connection.send(request).status == 201).then_some(())
}

#[test]
fn a_key_comes_and_goes_on_every_worker() {
    let issuer = Issuer::start("keys");
    let envoy = start(&issuer, "6s", 4);
    let mut connections = envoy.connect_to_every_worker();
    let by_old = issuer.mint(&issuer.key);
    // Every worker verifies this token once, and so remembers that it is good.
    wait_for("every worker to have the keys", || all_mint(&mut connections, &by_old));

    let rotated = new_key("rotated");
    issuer.publish(&[&rotated]);
    let by_new = issuer.mint(&rotated);
    wait_for("every worker to know the new key", || all_mint(&mut connections, &by_new));
    for connection in &mut connections {
        let answer = connection.send(&by_old);
        assert_eq!(answer.refusal(), (401, "invalid_token".into()), "{answer:?}");
    }
}

#[test]
fn a_withdrawn_key_stops_working_even_for_remembered_tokens() {
    let issuer = Issuer::start("keys");
    let other = new_key("other");
    issuer.publish(&[&issuer.key, &other]);
    let envoy = start(&issuer, "4s", 4);
    let mut connections = envoy.connect_to_every_worker();
    let by_old = issuer.mint(&issuer.key);
    wait_for("every worker to have the keys", || all_mint(&mut connections, &by_old));
    let calls = issuer.service.calls();
    issuer.publish(&[&other]);
    // Only this token is sent: no unknown kid causes an earlier fetch.
    wait_for("a refresh", || {
        for connection in &mut connections {
            connection.send(&by_old);
        }
        (issuer.service.calls() > calls).then_some(())
    });
    // Each worker checks once a second for keys that another has fetched.
    wait_for("every worker to have the refreshed keys", || {
        let refused = |connection: &mut Connection| {
            let refusal = connection.send(&by_old).refusal();
            assert!(
                refusal == (201, "-".into()) || refusal == (401, "invalid_token".into()),
                "{refusal:?}"
            );
            refusal.0 == 401
        };
        connections.iter_mut().all(refused).then_some(())
    });
    let answer = envoy.send(&issuer.mint(&other));
    assert_eq!(answer.status, 201, "{answer:?}");
}
