//! All of etcd is gone: mint and exchange soon answer 503, other requests pass, and nothing needs a
//! restart.

use std::time::{Duration, Instant};

use futures_util::future::join_all;

use testkit::client::Client;
use testkit::etcd::Etcd;
use testkit::gateway::{Gateway, exchange_form, exchange_request, mint_request};
use testkit::http::Request;
use testkit::network::{Link, Machine, in_a_hub, three_machines};
use testkit::{RUNTIME, wait_for};

use crate::Length;
use crate::leader::{Latencies, two_gateways};

/// Requests per second: mints and exchanges alternate.
const RATE: u64 = 200;
/// The time within which each request must be answered.
const BOUND: Duration = Duration::from_secs(2);
/// How much more memory an Envoy may have afterwards, for its additional connections.
const ROOM: u64 = 20 << 20;

/// The way in which all nodes are gone.
#[derive(Clone, Copy, Debug)]
enum Gone {
    Killed,
    Stopped,
    CutOff,
}

impl Gone {
    fn begin(self, machine: &Machine, node: &Etcd) {
        match self {
            Self::Killed => node.kill(),
            Self::Stopped => node.stop(),
            Self::CutOff => machine.cut(Link::Clients),
        }
    }

    fn end(self, machine: &Machine, node: &Etcd) {
        match self {
            Self::Killed => node.launch(),
            Self::Stopped => node.go_on(),
            Self::CutOff => machine.join(Link::Clients),
        }
    }
}

#[test]
fn without_etcd_every_request_is_told_to_retry_and_memory_stays_flat() {
    in_a_hub("gone::without_etcd_every_request_is_told_to_retry_and_memory_stays_flat", || {
        let length = Length::wanted();
        let machines = three_machines();
        let nodes = Etcd::start_on(&machines);
        let [gateway, _other] = two_gateways(&nodes);
        // The warm-up opens connections and fills buffers and caches before memory is measured.
        let warm = RUNTIME.block_on(load(&gateway, &mint_at_last(&gateway), 5));
        assert!(warm.iter().any(|(status, ..)| *status == 201));

        for gone in [Gone::Killed, Gone::Stopped, Gone::CutOff] {
            let token = mint_at_last(&gateway);
            let before = gateway.envoy.resident_bytes();
            let all = || machines.iter().zip(&nodes);
            all().for_each(|(machine, node)| gone.begin(machine, node));
            let answers = RUNTIME.block_on(load(&gateway, &token, length.gone_seconds));
            let count = answers.len();
            let wrong: Vec<_> = answers.iter().filter(|(_, unavailable, _)| !unavailable).collect();
            assert!(
                wrong.is_empty(),
                "{gone:?}: {} of {count}, such as {:?}",
                wrong.len(),
                wrong[0]
            );
            let took = Latencies::of(answers.iter().map(|(_, _, took)| *took).collect());

            for _ in 0..10 {
                let keys = gateway.send(&Request::get("/oidc/jwks"));
                assert_eq!(keys.status, 200, "{gone:?}");
                let passing = gateway.send(&Request::get("/anything"));
                assert!(gateway.passed_on(&passing), "{gone:?}: {passing:?}");
            }
            let grown = gateway.envoy.resident_bytes().saturating_sub(before);
            assert!(grown < ROOM, "{gone:?}: {grown} bytes more after {count} requests");

            all().for_each(|(machine, node)| gone.end(machine, node));
            let back = Instant::now();
            mint_at_last(&gateway);
            // No exchange has spent the token: a request that was not answered proves nothing.
            wait_for("the token from before", || {
                let answer = gateway.exchange(&exchange_form(&token));
                assert!([200, 503].contains(&answer.status), "{gone:?}: {answer:?}");
                (answer.status == 200).then_some(())
            });
            println!(
                "all gone, {gone:?}: {count} requests at {RATE}/s, 503 after {took}; {:.1} MiB more; back after {:.2?}",
                grown as f64 / f64::from(1 << 20),
                back.elapsed()
            );
            if length.holds_times {
                assert!(took.max <= BOUND, "{gone:?}: {took}");
            }
            assert!(gateway.envoy.is_running());
        }
    });
}

/// Mints a token as soon as the store answers.
fn mint_at_last(gateway: &Gateway) -> String {
    wait_for("a mint", || {
        let answer = gateway.send(&mint_request("u-1"));
        (answer.status == 201).then(|| answer.member("subjectToken"))
    })
}

/// Sends requests at a constant rate without waiting for answers. Returns for each its status,
/// whether it has a valid Retry-After, and the time it took.
async fn load(gateway: &Gateway, token: &str, seconds: u64) -> Vec<(u16, bool, Duration)> {
    let mint = mint_request("u-1").to_bytes();
    let exchange = exchange_request(&exchange_form(token)).to_bytes();
    let began = Instant::now();
    let requests = (0..RATE * seconds).map(|number| {
        let request = if number % 2 == 0 { mint.clone() } else { exchange.clone() };
        let (due, address) = (
            began + Duration::from_secs(1) * u32::try_from(number).unwrap() / RATE as u32,
            gateway.address(),
        );
        RUNTIME.spawn(async move {
            tokio::time::sleep_until(due.into()).await;
            let answer = Client::new(address).send(&request).await;
            (answer.status, answer.is_unavailable(), answer.took)
        })
    });
    join_all(requests).await.into_iter().map(Result::unwrap).collect()
}
