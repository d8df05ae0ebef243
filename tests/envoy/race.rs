//! Many workers, one subject token: one of all simultaneous requests gets an access token.

use std::collections::BTreeMap;
use std::sync::Barrier;
use std::thread;

use crate::support::configuration::Configuration;
use crate::support::envoy::Options;
use crate::support::gateway::{
    Gateway, exchange_form, exchange_request, mint_request, minted, raw_part,
};
use crate::support::http::Connection;
use crate::support::wait_for;

#[test]
fn of_simultaneous_exchanges_exactly_one_succeeds() {
    const TOKENS: usize = 200;
    const RIVALS: usize = 32;
    let options = Options { concurrency: 4, ..Options::default() };
    let gateway = Gateway::try_start(&Configuration::default(), &options).unwrap();
    let tokens: Vec<_> = (0..TOKENS).map(|_| gateway.mint("u-1")).collect();
    let requests: Vec<_> =
        tokens.iter().map(|token| exchange_request(&exchange_form(token)).to_bytes()).collect();
    let start = Barrier::new(RIVALS);

    let mut connections: Vec<_> = (0..RIVALS).map(|_| gateway.connect()).collect();
    // It is a race only if several workers run in it.
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
                // A panic here would leave the others waiting: no answer is an outcome, too.
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
fn minting_workers_never_give_out_one_token_twice() {
    const CAPACITY: usize = 400;
    const BACKENDS: usize = 8;
    let options = Options { concurrency: 4, ..Options::default() };
    let configuration =
        Configuration::default().with("/subject_tokens/store/shared_data/capacity", CAPACITY);
    let gateway = Gateway::try_start(&configuration, &options).unwrap();
    // All the room there is, taken by all workers at once: two that took the same slot would show.
    let users: Vec<(String, String)> = thread::scope(|scope| {
        let backends: Vec<_> = (0..BACKENDS)
            .map(|backend| {
                let gateway = &gateway;
                scope.spawn(move || {
                    let mut connection = gateway.connect();
                    let mint = |number: usize| {
                        let user = format!("u-{backend}-{number}");
                        let request = mint_request(&user);
                        (user, minted(&connection.send(&request)))
                    };
                    (0..CAPACITY / BACKENDS).map(mint).collect::<Vec<_>>()
                })
            })
            .collect();
        backends.into_iter().flat_map(|backend| backend.join().unwrap()).collect()
    });
    for (user, token) in users {
        let answer = gateway.exchange(&exchange_form(&token));
        assert_eq!(answer.status, 200, "{user}: {answer:?}");
        let claims = raw_part(&answer.member("access_token"), 1);
        assert_eq!(claims["sub"], user.as_str(), "a token for someone else");
    }
}
