//! Impersonations that end while many workers act at once, with both stores, and with their
//! process. The other rules are in `tests/rules/impersonations`.

use std::sync::Barrier;
use std::thread;

use serde_json::{Value, json};

use testkit::bootstrap::Cluster;
use testkit::etcd::Etcd;
use testkit::gateway::{Gateway, Options, raw_part};
use testkit::guarded::filter_configuration;
use testkit::impersonations::{Parties, introspection, revocation};

/// The number of impersonations that one caller or one client can end before further ends cover all
/// of its own.
const SHARE: usize = 1024;

/// Starts a gateway with four workers for each store.
fn with_each_store() -> [(Gateway, Option<Etcd>); 2] {
    [None, Some(Etcd::start())].map(|etcd| {
        let etcd_cluster = |etcd: &Etcd| Cluster::new("etcd", etcd.address).http2();
        let clusters = etcd.iter().map(etcd_cluster).collect();
        let options = Options { concurrency: 4, clusters, ..Options::default() };
        let store = etcd.iter().map(|_| json!({"etcd": {"cluster": "etcd"}}));
        let configuration = store.fold(filter_configuration(), |configuration, store| {
            configuration.with("/store", store)
        });
        (Gateway::try_start(&configuration, &options).unwrap(), etcd)
    })
}

/// Begins an impersonation. Returns its access token and its id.
fn begin(gateway: &Gateway, parties: &Parties) -> (String, String) {
    let minted = gateway.send(&parties.mint_request(&json!({})));
    assert_eq!(minted.status, 201, "{minted:?}");
    let answer = gateway.exchange(&parties.exchange_form(&minted.member("subjectToken")));
    assert_eq!(answer.status, 200, "{answer:?}");
    let access_token = answer.member("access_token");
    let id = raw_part(&access_token, 1)["txn"].as_str().unwrap().to_owned();
    (access_token, id)
}

fn is_active(gateway: &Gateway, access_token: &str) -> bool {
    gateway.send(&introspection(access_token)).json()["active"] == true
}

/// A caller with the scope `impersonate` alone, or a client, ends only its own impersonations,
/// however many it cancels.
#[test]
fn a_caller_who_cancels_more_than_its_share_ends_only_its_own() {
    const AT_ONCE: usize = 4;
    for (gateway, _etcd) in &with_each_store() {
        let (hostile, others) = (Parties::new(), Parties::new());
        let ((goes_on, _), (early, _)) = (begin(gateway, &others), begin(gateway, &hostile));
        let cancel = |id: &str| {
            let answer = gateway.send(&hostile.cancellation(id));
            assert_eq!(answer.status, 204, "{answer:?}");
        };
        thread::scope(|scope| {
            for _ in 0..AT_ONCE {
                scope.spawn(|| {
                    for _ in 0..(SHARE + 200) / AT_ONCE {
                        cancel(&begin(gateway, &hostile).1);
                        let minted = gateway.send(&hostile.mint_request(&json!({})));
                        cancel(minted.header("location").unwrap().rsplit('/').next().unwrap());
                    }
                });
            }
        });
        let (last, id) = begin(gateway, &hostile);
        cancel(&id);
        assert!(is_active(gateway, &goes_on), "another caller's");
        assert!(!is_active(gateway, &last));
        assert!(!is_active(gateway, &early), "its own, from before");
        let metric = |name: &str| gateway.envoy.metric(name).unwrap();
        assert!(metric("impersonation_revocation_shares_exceeded_total") >= 1);
        assert_eq!(metric("impersonation_revocations_overflowed_total"), 0);
        assert!(gateway.envoy.log().contains("has used up its share"));
        for parties in [&others, &hostile] {
            assert!(is_active(gateway, &begin(gateway, parties).0), "new impersonations");
        }
    }
}

#[test]
fn none_of_400_simultaneous_revocations_is_lost() {
    const RIVALS: usize = 16;
    const EACH: usize = 25;
    for (gateway, _etcd) in &with_each_store() {
        let all: Vec<Vec<_>> = (0..RIVALS)
            .map(|_| {
                let parties = (0..EACH).map(|_| Parties::new());
                parties.map(|parties| (begin(gateway, &parties).0, parties)).collect()
            })
            .collect();
        let start = Barrier::new(RIVALS);
        thread::scope(|scope| {
            for chunk in &all {
                let start = &start;
                scope.spawn(move || {
                    let mut connection = gateway.connect();
                    start.wait();
                    for (_, parties) in chunk {
                        let answer = connection.send(&revocation(&json!({"userId": parties.user})));
                        assert_eq!(answer.status, 201, "{answer:?}");
                    }
                });
            }
        });
        // Every worker is asked.
        let mut connections = gateway.envoy.connect_to_every_worker();
        for (access_token, _) in all.iter().flatten() {
            for connection in &mut connections {
                let answer: Value = connection.send(&introspection(access_token)).json();
                assert_eq!(answer, json!({"active": false}));
            }
        }
    }
}

/// Shared data is lost with the process: revocations are unknown then, so no earlier impersonation
/// is live.
#[test]
fn a_restart_ends_every_impersonation_from_before() {
    let start = || Gateway::start(&filter_configuration());
    let (live, _) = begin(&start(), &Parties::new());
    let after = start();
    assert!(!is_active(&after, &live));
    let (anew, _) = begin(&after, &Parties::new());
    assert!(is_active(&after, &anew));
}
