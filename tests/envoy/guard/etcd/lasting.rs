//! A revocation outlives a new Envoy, a crash of a VM, and a new configuration.

use std::path::PathBuf;

use serde_json::json;

use super::{
    api, assert_ordinary_users_go_on, cluster, configuration, end, shared, start,
    start_without_filter, status, wait_until_it_has_ended, wait_until_it_passes,
};
use testkit::artifacts::GUARD;
use testkit::bootstrap::{Bootstrap, Cluster};
use testkit::etcd::Etcd;
use testkit::guarded::{
    API, Guarded, Parties, api_listener, for_impersonations, guard, guarded_listener,
};
use testkit::http::Request;
use testkit::trap::{springing_it, with_trap, with_trap_for_many_headers};
use testkit::wait_for;

#[test]
fn an_envoy_that_starts_anew_refuses_only_what_was_revoked() {
    let (etcd, before) = shared();
    let [ended, live] = [(); 2].map(|()| before.begin(&Parties::new()));
    end(before, &ended);
    let after = start(etcd, &json!({}));
    wait_until_it_passes(&after, &live);
    assert_eq!(status(&after, &ended), 401);
    // It can end an impersonation that another Envoy has begun.
    end(&after, &live);
    assert_eq!(status(&after, &live), 401);
}

#[test]
fn a_new_guard_configuration_keeps_revocations_and_live_impersonations() {
    let (etcd, one) = shared();
    let other = start_without_filter(etcd, &json!({}));
    let [ended, live] = [(); 2].map(|()| one.begin(&Parties::new()));
    wait_until_it_passes(&other, &ended);
    end(one, &ended);
    wait_until_it_has_ended(&other, &ended);
    for default in ["allow", "read_only"] {
        let configuration = configuration(&json!({"default": default}));
        other.envoy.update(guarded_listener(&configuration)).unwrap();
        // Both VMs have the same table: the new one knows at once what the old one knew.
        assert_eq!((status(&other, &ended), status(&other, &live)), (401, 200), "{default}");
        let later = one.begin(&Parties::new());
        assert_eq!(status(&other, &later), 200, "{default}");
        end(one, &later);
        wait_until_it_has_ended(&other, &later);
    }
}

/// Starts an Envoy without the filter, whose guard is this module.
fn start_module(etcd: &Etcd, module: PathBuf) -> Guarded {
    let mut filter = guard(&configuration(&json!({})));
    filter.module = Some(module);
    let listener = api_listener("guarded", [for_impersonations(filter)]);
    let api = api();
    let bootstrap = Bootstrap::default()
        .listener(listener.watched())
        .cluster(Cluster::new(API, api.address).as_downstream())
        .cluster(cluster(etcd))
        .workers(2);
    Guarded { envoy: bootstrap.start(), api }
}

fn crashes(guarded: &Guarded) -> usize {
    guarded.envoy.log().matches("RuntimeError: unreachable").count()
}

/// One VM of each Envoy asks etcd for all its VMs.
#[test]
fn another_vm_asks_etcd_if_the_one_that_asked_has_crashed() {
    let (etcd, one) = shared();
    // The VM that asks etcd crashes on the answer.
    let other = start_module(etcd, with_trap(&GUARD, "proxy_on_grpc_receive"));
    let [ended, live] = [(); 2].map(|()| one.begin(&Parties::new()));
    wait_for("the VM that asks to crash", || (crashes(&other) > 0).then_some(()));
    assert_eq!(status(&other, &live), 503, "the guard does not know what was revoked");
    assert_ordinary_users_go_on(&other);
    // A crashed VM still has the turn.
    other.envoy.update(guarded_listener(&configuration(&json!({})))).unwrap();
    wait_until_it_passes(&other, &ended);
    end(one, &ended);
    wait_until_it_has_ended(&other, &ended);
    assert_eq!(status(&other, &live), 200);
}

#[test]
fn crashes_of_all_workers_keep_revocations_and_live_impersonations() {
    let (etcd, one) = shared();
    let other = start_module(etcd, with_trap_for_many_headers(&GUARD));
    let live = one.begin(&Parties::new());
    wait_until_it_passes(&other, &live);
    for round in 1..=2 {
        let ended = one.begin(&Parties::new());
        wait_until_it_passes(&other, &ended);
        for connection in &mut other.envoy.connect_to_every_worker() {
            let request = Request::get("/orders").bearer(&live.access_token);
            wait_for("the worker", || (connection.send(&request).status == 200).then_some(()));
            assert_eq!(connection.send(&springing_it(request)).status, 503, "{round}");
        }
        end(one, &ended);
        // 503 while a VM is made anew.
        wait_for("the revocation to arrive", || (status(&other, &ended) == 401).then_some(()));
        for connection in &mut other.envoy.connect_to_every_worker() {
            let request = Request::get("/orders").bearer(&ended.access_token);
            let status = connection.send(&request).status;
            assert!(matches!(status, 401 | 503), "{round}: {status}");
        }
        wait_until_it_passes(&other, &live);
        assert!(crashes(&other) >= 2 * round, "{round}");
    }
}
