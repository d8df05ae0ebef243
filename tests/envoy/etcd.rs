//! Two Envoys and one etcd: a token that one Envoy minted can be exchanged in the other, once,
//! whatever happens to etcd.

pub(crate) mod access;
mod moving;
mod nonsense;
mod tampered;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Barrier, LazyLock, mpsc};
use std::thread;

use jsonwebtoken::Algorithm;
use serde_json::{Value, json};

use testkit::bootstrap::Cluster;
use testkit::configuration::Configuration;
use testkit::etcd::Etcd;
use testkit::gateway::{
    Gateway, Options, exchange_form, exchange_request, mint_request, raw_part, with_actor,
};
use testkit::holder::{Holder, changed, proof_claims};
use testkit::http::{Answer, Request};
use testkit::wait_for;

fn configuration() -> Configuration {
    Configuration::default().with("/store", json!({"etcd": {"cluster": "etcd"}}))
}

fn cluster(address: SocketAddr) -> Cluster {
    Cluster::new("etcd", address).with("connect_timeout", "0.25s").http2()
}

/// Starts an Envoy whose cluster `etcd` is at this address.
fn gateway_at(address: SocketAddr, configuration: &Configuration) -> Gateway {
    let options = Options { clusters: vec![cluster(address)], clock: true, ..Options::default() };
    Gateway::try_start(configuration, &options).unwrap()
}

/// Starts two Envoys whose only connection is etcd.
fn two_gateways(etcd: &Etcd) -> [Gateway; 2] {
    [(); 2].map(|()| gateway_at(etcd.address, &configuration()))
}

/// A well-formed token that this etcd does not have. The filter does not ask etcd about malformed
/// ones.
fn genuine_token() -> String {
    static MINTED: LazyLock<String> = LazyLock::new(|| {
        let etcd = Etcd::start();
        gateway_at(etcd.address, &configuration()).mint("u-1")
    });
    MINTED.clone()
}

/// Returns the audit events.
fn events(gateway: &Gateway) -> Vec<Value> {
    let log = gateway.envoy.log();
    let events = log.lines().filter_map(|line| line.find("{\"event\"").map(|at| &line[at..]));
    events.map(|event| serde_json::from_str(event).unwrap()).collect()
}

/// Returns the operator's log lines about the store.
fn complaints(gateway: &Gateway) -> Vec<String> {
    let log = gateway.envoy.log();
    log.lines().filter(|line| line.contains("the store, cluster")).map(str::to_owned).collect()
}

fn assert_unavailable(answer: &Answer, case: &str) {
    assert_eq!(answer.refusal(), (503, "temporarily_unavailable".into()), "{case}: {answer:?}");
    assert_eq!(answer.header("retry-after"), Some("1"), "{case}");
}

/// Checks that mint and exchange answer 503 several times, and that the log names the reason once.
fn assert_both_unavailable(gateway: &Gateway, token: &str, because: &str) {
    let before = complaints(gateway).len();
    for _ in 0..5 {
        assert_unavailable(&gateway.send(&mint_request("u-1")), because);
        assert_unavailable(&gateway.exchange(&exchange_form(token)), because);
    }
    let lines = complaints(gateway).split_off(before);
    assert_eq!(lines.len(), 1, "{because}: {lines:?}");
    assert!(lines[0].contains(because), "{because}: {lines:?}");
}

/// RFC 9449 §8: no Envoy has to tell the others.
#[test]
fn a_nonce_of_one_envoy_is_good_at_every_worker_of_another() {
    let etcd = Etcd::start();
    let configuration = configuration().with("/dpop/nonce", "required");
    let clusters = || vec![cluster(etcd.address)];
    let options = || Options { clusters: clusters(), concurrency: 2, ..Options::default() };
    let [one, other] = [(); 2].map(|()| Gateway::try_start(&configuration, &options()).unwrap());
    let holder = Holder::new(Algorithm::ES256);
    let ask = |token: &str, nonce: Option<&str>| {
        let claims = proof_claims("POST", "https://auth.example.com/oidc/token");
        let proof = holder.sign(&changed(claims, &json!({"nonce": nonce})));
        exchange_request(&exchange_form(token)).header("DPoP", proof)
    };
    let refused = one.send(&ask(&one.mint("u-1"), None));
    assert_eq!(refused.refusal(), (400, "use_dpop_nonce".into()), "{refused:?}");
    let nonce = refused.header("dpop-nonce").expect("a nonce");
    for connection in &mut other.envoy.connect_to_every_worker() {
        let answer = connection.send(&ask(&one.mint("u-1"), Some(nonce)));
        assert_eq!(answer.status, 200, "{answer:?}");
    }
}

#[test]
fn another_envoy_exchanges_a_minted_token_once() {
    let etcd = Etcd::start();
    let [one, other] = two_gateways(&etcd);
    let outstanding = |count| {
        wait_for("both Envoys to count outstanding tokens", || {
            let gauge = |gateway: &Gateway| {
                gateway.envoy.metric("impersonation_subject_tokens_outstanding")
            };
            [&one, &other].map(gauge).iter().all(|gauge| *gauge == Some(count)).then_some(())
        });
    };
    outstanding(0);
    let token = one.mint("u-1");
    outstanding(1);
    // 256 random bits, and the revision of etcd at the mint.
    assert_eq!(token.len(), "sub_".len() + 75, "{token}");
    let answer = other.exchange(&exchange_form(&token));
    assert_eq!(answer.status, 200, "{answer:?}");
    let claims = raw_part(&answer.member("access_token"), 1);
    assert_eq!(claims["sub"], "u-1");
    outstanding(0);
    for gateway in [&one, &other] {
        gateway.assert_spent(&token, "presented again");
    }
    let spent = events(&one).pop().unwrap();
    assert_eq!(spent["reason"], "subject_token_spent");
    assert_eq!(claims["txn"], spent["subject_token_id"]);
    assert!(
        one.envoy.log().contains("\"alarm\""),
        "a replay through the other Envoy raises an alarm, too"
    );

    let held = etcd.ctl(&["get", "", "--from-key"]);
    assert_eq!(etcd.tokens().len(), 1);
    let secret = token.trim_start_matches("sub_").as_bytes();
    assert!(!held.windows(secret.len()).any(|window| window == secret), "the token is stored");
    let leases = String::from_utf8(etcd.ctl(&["lease", "list"])).unwrap();
    // The second Envoy may have heard that the first has ended the impersonation, or may end it
    // again.
    assert!(
        ["found 2 leases", "found 3 leases"].iter().any(|found| leases.contains(found)),
        "one lease for the token, one for the revocation after its replay: {leases}"
    );
}

#[test]
fn exactly_one_of_many_contenders_through_two_envoys_succeeds() {
    const CONTENDERS: usize = 16;
    const TOKENS: usize = 25;
    let etcd = Etcd::start();
    let gateways = two_gateways(&etcd);
    let tokens: Vec<_> = (0..TOKENS).map(|turn| gateways[turn % 2].mint("u-1")).collect();
    let start = Barrier::new(CONTENDERS);
    let statuses: Vec<Vec<u16>> = thread::scope(|scope| {
        let (tokens, start) = (&tokens, &start);
        let contender = |gateway: &Gateway| {
            let exchange = |token: &String| {
                start.wait();
                // A panic here would leave the other threads waiting, so no answer is an outcome,
                // too.
                let mut connection = gateway.connect();
                let answer = connection.try_send(&exchange_request(&exchange_form(token)));
                answer.map_or(0, |answer| answer.status)
            };
            tokens.iter().map(exchange).collect::<Vec<_>>()
        };
        let contenders: Vec<_> = (0..CONTENDERS)
            .map(|index| {
                let gateway = &gateways[index % 2];
                scope.spawn(move || contender(gateway))
            })
            .collect();
        contenders.into_iter().map(|contender| contender.join().unwrap()).collect()
    });
    for token in 0..TOKENS {
        let mut outcomes = BTreeMap::new();
        for contender in &statuses {
            *outcomes.entry(contender[token]).or_insert(0) += 1;
        }
        assert_eq!(outcomes.get(&200), Some(&1), "token {token}: {outcomes:?}");
        // On a busy machine some contenders are answered 503. No other status may occur.
        assert!(outcomes.keys().all(|status| [200, 400, 503].contains(status)), "{outcomes:?}");
    }
}

#[test]
fn an_expired_token_is_refused_by_every_envoy() {
    let etcd = Etcd::start();
    let [one, other] = two_gateways(&etcd);
    let token = one.mint("u-1");
    for gateway in [&one, &other] {
        gateway.envoy.clock().set(601);
        let answer = gateway.exchange(&exchange_form(&token));
        assert_eq!(answer.refusal(), (400, "invalid_request".into()));
        assert_eq!(events(gateway).pop().unwrap()["reason"], "subject_token_expired");
    }
}

/// Starts a userinfo endpoint that answers only when it is told to. Reports each request first.
fn slow_userinfo() -> (SocketAddr, mpsc::Receiver<()>, mpsc::Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let ((asked, on_asked), (answer, on_answer)) = (mpsc::channel(), mpsc::channel());
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        asked.send(()).unwrap();
        let _ = on_answer.recv();
        let body = r#"{"sub":"agent-7"}"#;
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length";
        let _ = write!(stream, "{head}: {}\r\n\r\n{body}", body.len());
    });
    (address, on_asked, answer)
}

#[test]
fn a_spend_continues_and_is_audited_after_its_caller_hangs_up() {
    let etcd = Etcd::start();
    let (userinfo, asked, answer) = slow_userinfo();
    let configuration = configuration().without("/actor_tokens").with(
        "/actor_tokens/userinfo/http_uri",
        json!({"uri": "http://auth.example.com/me", "cluster": "userinfo", "timeout": "60s"}),
    );
    let clusters = vec![cluster(etcd.address), Cluster::new("userinfo", userinfo)];
    let options = Options { clusters, ..Options::default() };
    let gateway = Gateway::try_start(&configuration, &options).unwrap();
    let token = gateway.mint("u-1");

    let form = with_actor(exchange_form(&token), "opaque");
    let mut connection = gateway.connect();
    connection.write(&exchange_request(&form).to_bytes()).unwrap();
    asked.recv().unwrap();
    // The token has been looked up; only the spend is left.
    etcd.stop();
    answer.send(()).unwrap();
    let envoy = &gateway.envoy;
    wait_for("the spend to be under way", || {
        (envoy.stat("cluster.etcd.upstream_rq_active") == 1).then_some(())
    });
    drop(connection);
    wait_for("Envoy to see that the caller has left", || {
        (envoy.stat("http.gateway.downstream_rq_active") == 0).then_some(())
    });
    etcd.go_on();
    let event = wait_for("the outcome to be written down", || {
        events(&gateway).into_iter().find(|event| event["caller_gone"] == true)
    });
    assert_eq!(event["event"], "token_exchange.succeeded", "{event}");
    assert_eq!(event["actor_id"], "agent-7");
    gateway.assert_spent(&token, "spent, although its caller is gone");
    assert_eq!(events(&gateway).pop().unwrap()["reason"], "subject_token_spent");
}

#[test]
fn without_etcd_mint_and_exchange_ask_to_retry_and_other_requests_pass() {
    let etcd = Etcd::start();
    let gateway = gateway_at(etcd.address, &configuration());
    let token = gateway.mint("u-1");
    for gone in ["killed", "stopped"] {
        if gone == "killed" {
            etcd.kill()
        } else {
            etcd.stop()
        }
        for turn in 0..4 {
            assert_unavailable(&gateway.send(&mint_request("u-1")), gone);
            assert_unavailable(&gateway.exchange(&exchange_form(&token)), gone);
            let keys = gateway.send(&Request::get("/oidc/jwks"));
            assert_eq!(keys.status, 200, "{gone} {turn}");
            let passing = gateway.send(&Request::get("/anything"));
            assert!(gateway.passed_on(&passing), "{gone} {turn}");
        }
        assert_eq!(events(&gateway).pop().unwrap()["reason"], "store_failed");
        if gone == "killed" {
            etcd.restart()
        } else {
            etcd.go_on()
        }
        wait_for("the store to be back", || {
            (gateway.send(&mint_request("u-1")).status == 201).then_some(())
        });
    }
    gateway.assert_spendable(&token, "minted before, and through two outages");
    // Each kind of failure was logged once for all requests.
    let mut lines = complaints(&gateway);
    let all = lines.len();
    assert!((1..=3).contains(&all), "{lines:?}");
    lines.dedup();
    assert_eq!(lines.len(), all, "{lines:?}");
    let failed = gateway.envoy.stat("wasmcustom.impersonation_store_errors_total.kind.unreachable");
    assert!(failed > 3, "{failed}");
}

#[test]
fn a_failure_of_etcd_is_logged_once_and_not_for_each_request() {
    let etcd = Etcd::start();
    let gateway = gateway_at(etcd.address, &configuration());
    let token = gateway.mint("u-1");
    let broken = gateway.mint("u-2");
    let first = etcd.tokens();
    gateway.assert_spendable(&token, "before anything went wrong");
    let token = gateway.mint("u-1");

    // The records belong to another version of the filter, or to another program.
    for key in first {
        etcd.ctl(&["put", &key, "c 0123456789 0123456789 0123456789"]);
    }
    for _ in 0..5 {
        assert_unavailable(&gateway.exchange(&exchange_form(&broken)), "unknown record");
    }
    let lines = complaints(&gateway);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("written or put back by somebody else"), "{lines:?}");
    assert!(!lines[0].contains(&broken), "{lines:?}");

    etcd.ctl(&["user", "add", "root:secret"]);
    etcd.ctl(&["user", "grant-role", "root", "root"]);
    etcd.ctl(&["auth", "enable"]);
    assert_both_unavailable(&gateway, &token, "etcd refuses the call: gRPC status 3");
    etcd.ctl(&["--user", "root:secret", "auth", "disable"]);
    gateway.assert_spendable(&token, "once it is allowed again");
}

#[test]
fn another_service_on_the_port_is_not_taken_for_etcd() {
    // The other service speaks HTTP/2 and answers everything with 200.
    let other = Gateway::start(&Configuration::default());
    let gateway = gateway_at(other.envoy.address("bare"), &configuration());
    let token = genuine_token();
    let answer = gateway.exchange(&exchange_form(&token));
    assert_unavailable(&answer, "exchange");
    assert_unavailable(&gateway.send(&mint_request("u-1")), "mint");
    for _ in 0..5 {
        assert_unavailable(&gateway.exchange(&exchange_form(&token)), "exchange");
    }
    let lines = complaints(&gateway);
    assert_eq!(lines.len(), 1, "{lines:?}");
}

#[test]
fn a_missing_cluster_counts_as_an_unreachable_store() {
    let configuration = Configuration::default().with("/store", json!({"etcd": {"cluster": "no"}}));
    let gateway = Gateway::start(&configuration);
    assert_both_unavailable(&gateway, &genuine_token(), "was not sent");
    // A token of a slot table, or an invented one, was never in etcd: the filter need not ask.
    for length in [48, 75] {
        let answer = gateway.exchange(&exchange_form(&format!("sub_{}", "A".repeat(length))));
        assert_eq!(answer.refusal(), (400, "invalid_request".into()), "{length}");
    }
}
