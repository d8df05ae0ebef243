//! Two Envoys: an impersonation that is ended through one has ended in the other.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Instant;

use serde_json::json;

use super::super::ended::{KINDS, OF_ONE, REQUESTS};
use super::super::streams::{assert_goes_on, drain};
use super::{
    api, assert_ordinary_users_go_on, end, shared, start, start_without_filter, status,
    wait_until_it_has_ended, wait_until_it_passes, without_filter,
};
use testkit::etcd::Etcd;
use testkit::guarded::{Begun, Parties};
use testkit::http::{Connection, Request};
use testkit::streaming::{self, Http2};
use testkit::wait_for;

/// A guard stands beside the APIs; the filter is in another Envoy.
#[test]
fn an_impersonation_ended_in_one_envoy_soon_ends_in_a_guard_elsewhere_for_good() {
    let etcd = Etcd::start();
    let one = start(&etcd, &json!({}));
    let other = start_without_filter(&etcd, &json!({}));
    for (index, (kind, end)) in KINDS.into_iter().enumerate() {
        let (parties, others) = (Parties::new(), Parties::new());
        let (begun, goes_on) = (one.begin(&parties), one.begin(&others));
        wait_until_it_passes(&other, &begun);
        end(&one, &parties, &begun);
        let answered = Instant::now();
        wait_until_it_has_ended(&other, &begun);
        println!("{kind}: refused by the other Envoy after {:?}", answered.elapsed());

        let connections = other.envoy.connect_to_every_worker();
        let request = Request::get("/orders").bearer(&begun.access_token);
        let (sent, passed) = (AtomicU32::new(0), AtomicU32::new(0));
        let load = |mut connection: Connection| {
            while sent.fetch_add(1, Ordering::SeqCst) < *REQUESTS {
                let refused = connection.send(&request).status == 401;
                passed.fetch_add(u32::from(!refused), Ordering::SeqCst);
            }
        };
        thread::scope(|scope| {
            for connection in connections {
                scope.spawn(|| load(connection));
            }
        });
        assert_eq!(passed.into_inner(), 0, "{kind}: of {} requests", *REQUESTS);
        for envoy in [&one, &other] {
            let expected = if index < OF_ONE { 200 } else { 401 };
            assert_eq!(status(envoy, &goes_on), expected, "{kind}: another's");
            assert_ordinary_users_go_on(envoy);
        }
    }
    // An impersonation that begins after all of that is live in both.
    let begun = one.begin(&Parties::new());
    for envoy in [&one, &other] {
        assert_eq!(status(envoy, &begun), 200);
    }
}

#[test]
fn none_of_400_simultaneous_revocations_through_two_envoys_is_lost() {
    const REVOCATIONS: usize = 400;
    const AT_ONCE: usize = 16;
    let (etcd, one) = shared();
    let other = start(etcd, &json!({}));
    let envoys = [one, &other];
    let begin = |index: usize| envoys[index % 2].begin(&Parties::new());
    let live = begin(0);
    let all: Vec<Begun> = thread::scope(|scope| {
        let some = |first: usize| (first..REVOCATIONS).step_by(AT_ONCE).map(begin).collect();
        let threads: Vec<_> =
            (0..AT_ONCE).map(|first| scope.spawn(move || -> Vec<_> { some(first) })).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(all.len(), REVOCATIONS);
    let first = std::sync::Barrier::new(AT_ONCE);
    thread::scope(|scope| {
        let (all, first) = (&all, &first);
        for start in 0..AT_ONCE {
            scope.spawn(move || {
                first.wait();
                for begun in all.iter().skip(start).step_by(AT_ONCE) {
                    end(envoys[start % 2], begun);
                }
            });
        }
    });
    for begun in &all {
        for envoy in envoys {
            wait_until_it_has_ended(envoy, begun);
        }
    }
    for envoy in envoys {
        assert_eq!(status(envoy, &live), 200);
    }
}

#[test]
fn open_streams_in_the_other_envoy_end_too_and_those_of_others_continue() {
    let (etcd, one) = shared();
    // One guard stands before an API whose answers do not end, one before an API that takes
    // WebSockets.
    let sockets = api();
    let envoys = [streaming::start(), sockets.address]
        .map(|api| without_filter(etcd, &json!({"default": "allow"}), api).start());
    let [streaming, upgrading] = envoys.each_ref();
    let [ended, live] = [(); 2].map(|()| one.begin(&Parties::new()));

    let mut connection = wait_for("an answer that goes on", || {
        let mut connection = Http2::connect(streaming.address("guarded"));
        let open = connection.open(&Request::get("/events").bearer(&live.access_token));
        (open.status == 200).then_some(connection)
    });
    let mut open = |token: &str| {
        let open = connection.open(&Request::get("/events").bearer(token));
        assert_eq!(open.status, 200);
        open
    };
    let (mut gone, mut goes_on) = (open(&ended.access_token), open(&live.access_token));
    let over_http_1 = |token: &str| {
        let mut connection = streaming.connect();
        connection.write(&Request::get("/events").bearer(token).to_bytes()).unwrap();
        connection.read_raw(200).unwrap();
        connection
    };
    let mut events = [&ended, &live].map(|begun| over_http_1(&begun.access_token));
    let upgrade = |token: &str| {
        let request =
            Request::get("/live").header("connection", "Upgrade").header("upgrade", "websocket");
        wait_for("the upgrade", || {
            let mut connection = upgrading.connect();
            let status = connection.send(&request.clone().bearer(token)).status;
            (status == 101).then_some(connection)
        })
    };
    let mut web_sockets = [&ended, &live].map(|begun| upgrade(&begun.access_token));
    let more = |connection: &mut Connection| connection.read_raw(10).is_ok();
    let echoes = |connection: &mut Connection| {
        connection.write(b"ping").is_ok()
            && connection.read_raw(4).is_ok_and(|bytes| bytes == b"ping")
    };
    assert!(web_sockets.iter_mut().all(echoes) && events.iter_mut().all(more));

    end(one, &ended);
    let answered = Instant::now();
    drain(|| gone.more().is_some());
    drain(|| more(&mut events[0]));
    drain(|| echoes(&mut web_sockets[0]));
    println!("open streams ended after {:?}", answered.elapsed());
    assert_goes_on(&mut goes_on, "another's, on the same connection");
    assert!(more(&mut events[1]) && echoes(&mut web_sockets[1]));
    for envoy in &envoys {
        assert!(envoy.metric("impersonation_guard_streams_ended_total") >= Some(1));
    }
}
