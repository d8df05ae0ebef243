//! Many workers, one subject token: one of all simultaneous requests gets an access token.

use std::collections::BTreeMap;
use std::sync::Barrier;
use std::thread;

use testkit::configuration::Configuration;
use testkit::gateway::{
    Gateway, Options, exchange_form, exchange_request, mint_request, minted, raw_part,
};
use testkit::http::Connection;
use testkit::wait_for;

#[test]
fn exactly_one_of_simultaneous_exchanges_succeeds() {
    const TOKENS: usize = 200;
    const RIVALS: usize = 32;
    let options = Options { concurrency: 4, ..Options::default() };
    let gateway = Gateway::try_start(&Configuration::default(), &options).unwrap();
    let tokens: Vec<_> = (0..TOKENS).map(|_| gateway.mint("u-1")).collect();
    let requests: Vec<_> =
        tokens.iter().map(|token| exchange_request(&exchange_form(token)).to_bytes()).collect();
    let start = Barrier::new(RIVALS);

    let mut connections: Vec<_> = (0..RIVALS).map(|_| gateway.connect()).collect();
    // The test is a race only if several workers take part.
    wait_for("the workers to take the connections", || {
        let open = gateway.envoy.connections_by_worker();
        (open.iter().sum::<u64>() == RIVALS as u64).then(|| {
            assert!(open.iter().filter(|&&count| count > 0).count() >= 2, "{open:?}");
        })
    });

    let statuses: Vec<Vec<u16>> = thread::scope(|scope| {
        let (gateway, start, requests) = (&gateway, &start, &requests);
        let rival = |mut connection: Connection| {
            let exchange = |request: &Vec<u8>| {
                start.wait();
                // A panic here would leave the other threads waiting, so no answer is an outcome,
                // too.
                let answer =
                    connection.write(request).and_then(|()| connection.read_answer("POST"));
                // Envoy closes an HTTP/1.1 connection after a local reply of 400.
                if answer.as_ref().is_ok_and(|answer| answer.header("connection") == Some("close"))
                {
                    connection = gateway.connect();
                }
                answer.map_or(0, |answer| answer.status)
            };
            requests.iter().map(exchange).collect::<Vec<_>>()
        };
        let rivals: Vec<_> = connections
            .drain(..)
            .map(|connection| scope.spawn(move || rival(connection)))
            .collect();
        rivals.into_iter().map(|rival| rival.join().unwrap()).collect()
    });

    for token in 0..TOKENS {
        let mut outcomes = BTreeMap::new();
        for rival in &statuses {
            *outcomes.entry(rival[token]).or_insert(0) += 1;
        }
        assert_eq!(outcomes, BTreeMap::from([(200, 1), (400, RIVALS - 1)]), "token {token}");
    }
}

#[test]
fn simultaneous_mints_fill_every_slot_and_share_none() {
    const ROOM: usize = 8;
    const ROUNDS: usize = 300;
    let options = Options { concurrency: 4, ..Options::default() };
    let configuration = Configuration::default().with("/store/shared_data/capacity", ROOM);
    let gateway = Gateway::try_start(&configuration, &options).unwrap();
    let start = Barrier::new(ROOM);
    // Each round fills the whole store at once. Two mints that took one slot would show, and so
    // would a mint that found no slot although one was free.
    thread::scope(|scope| {
        for backend in 0..ROOM {
            let (gateway, start) = (&gateway, &start);
            scope.spawn(move || {
                let (mut connection, mut client) = (gateway.connect(), gateway.connect());
                let user = format!("u-{backend}");
                let request = mint_request(&user);
                let mut outcomes = BTreeMap::new();
                for _ in 0..ROUNDS {
                    start.wait();
                    let minted = connection.send(&request);
                    start.wait();
                    // A panic here would leave the other threads waiting: outcomes are counted now
                    // and judged later.
                    let outcome = match minted.status {
                        201 => {
                            let token = minted.member("subjectToken");
                            let answer = client.send(&exchange_request(&exchange_form(&token)));
                            if answer.header("connection") == Some("close") {
                                client = gateway.connect();
                            }
                            let ours = answer.status == 200
                                && raw_part(&answer.member("access_token"), 1)["sub"]
                                    == user.as_str();
                            if ours { "ours" } else { "lost or another's" }
                        }
                        _ => "not minted",
                    };
                    *outcomes.entry(outcome).or_insert(0) += 1;
                }
                assert_eq!(outcomes, BTreeMap::from([("ours", ROUNDS)]));
            });
        }
    });
}

#[test]
fn a_busy_store_loses_no_slot() {
    const ROOM: usize = 16;
    let options = Options { concurrency: 4, ..Options::default() };
    let configuration = Configuration::default().with("/store/shared_data/capacity", ROOM);
    let gateway = Gateway::try_start(&configuration, &options).unwrap();
    // One worker mints a token and another spends it, at once.
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let (mut backend, mut client) = (gateway.connect(), gateway.connect());
                for _ in 0..200 {
                    let token = minted(&backend.send(&mint_request("u-1")));
                    let answer = client.send(&exchange_request(&exchange_form(&token)));
                    assert_eq!(answer.status, 200, "{answer:?}");
                }
            });
        }
    });
    let tokens: Vec<_> = (0..ROOM).map(|_| gateway.mint("u-1")).collect();
    assert_eq!(gateway.send(&mint_request("u-late")).status, 503);
    for token in &tokens {
        gateway.assert_spendable(token, "minted after the storm");
    }
}

/// The record of a token and the time of the filter's begin are those of the process. Envoy ends a
/// connection that is used again after the clock was set back, so each has one request.
#[test]
fn every_worker_knows_the_tokens_from_before_the_clock_was_set() {
    const HOUR: i64 = 3600;
    let options = Options { concurrency: 2, clock: true, ..Options::default() };
    let configuration = Configuration::default().with("/store/shared_data/capacity", 4);
    let gateway = Gateway::try_start(&configuration, &options).unwrap();
    let mint_all = || [(); 4].map(|()| gateway.mint("u-1"));
    let assert_expired = |tokens: [String; 4]| {
        for token in &tokens {
            for connection in &mut gateway.envoy.connect_to_every_worker() {
                let answer = connection.send(&exchange_request(&exchange_form(token)));
                assert_eq!(answer.refusal(), (400, "invalid_request".into()), "{answer:?}");
                assert!(answer.text().contains("has expired"), "{answer:?}");
            }
        }
    };
    let tokens = mint_all();
    gateway.envoy.clock().set(-HOUR);
    assert_expired(tokens);
    let tokens = mint_all();
    gateway.envoy.clock().set(0);
    assert_expired(tokens);
    gateway.assert_every_worker_serves("after the clock was set");
}
