//! Another program writes to the filter's keys in etcd.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use testkit::etcd::Etcd;
use testkit::gateway::{Gateway, exchange_form};
use testkit::guarded::{filter_configuration, operator_with};
use testkit::http::Request;
use testkit::wait_for;

use super::{assert_unavailable, complaints, configuration, gateway_at};

/// A key as etcd stores it.
struct Stored {
    key: String,
    value: Vec<u8>,
    lease: Value,
}

fn stored(etcd: &Etcd, kind: &str) -> Stored {
    let folder = format!("/impersonation/{kind}/");
    let found: Value =
        serde_json::from_slice(&etcd.ctl(&["get", "--prefix", &folder, "-w", "json"])).unwrap();
    let [kv] = &found["kvs"].as_array().unwrap()[..] else { panic!("one key: {found}") };
    let value = BASE64_STANDARD.decode(kv["value"].as_str().unwrap()).unwrap();
    Stored { key: kv["key"].as_str().unwrap().to_owned(), value, lease: kv["lease"].clone() }
}

fn put(etcd: &Etcd, Stored { key, value, lease }: &Stored) {
    let value = BASE64_STANDARD.encode(value);
    etcd.api("/v3/kv/put", &json!({"key": key, "value": value, "lease": lease.to_string()}));
}

fn delete(etcd: &Etcd, stored: &Stored) {
    etcd.api("/v3/kv/deleterange", &json!({"key": stored.key}));
}

/// Returns the same record for another user, whose name has the same length.
fn forged(stored: &Stored) -> Stored {
    let at = stored.value.windows(3).position(|window| window == b"u-1").unwrap();
    let mut value = stored.value.clone();
    value[at..at + 3].copy_from_slice(b"u-9");
    Stored { key: stored.key.clone(), value, lease: stored.lease.clone() }
}

fn assert_told_of(gateway: &Gateway) {
    let lines = complaints(gateway);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("written or put back by somebody else"), "{lines:?}");
    let counter = "wasmcustom.impersonation_store_errors_total.kind.unauthentic";
    assert!(gateway.envoy.stat(counter) > 0);
}

#[test]
fn a_forged_record_is_not_exchanged() {
    let etcd = Etcd::start();
    let gateway = gateway_at(etcd.address, &configuration());
    let token = gateway.mint("u-1");
    let genuine = stored(&etcd, "tokens");
    for again in [false, true] {
        if again {
            delete(&etcd, &genuine);
        }
        put(&etcd, &forged(&genuine));
        assert_unavailable(&gateway.exchange(&exchange_form(&token)), "a forged record");
    }
    assert_told_of(&gateway);
}

#[test]
fn a_spent_token_that_is_put_back_in_etcd_is_not_exchanged_again() {
    let etcd = Etcd::start();
    let gateway = gateway_at(etcd.address, &configuration());
    let token = gateway.mint("u-1");
    let outstanding = stored(&etcd, "tokens");
    gateway.assert_spendable(&token, "as it was minted");
    put(&etcd, &outstanding);
    assert_unavailable(&gateway.exchange(&exchange_form(&token)), "put back");
    delete(&etcd, &outstanding);
    put(&etcd, &outstanding);
    assert_unavailable(&gateway.exchange(&exchange_form(&token)), "deleted and put back");
    // Another Envoy has not heard of the change.
    let other = gateway_at(etcd.address, &configuration());
    assert_unavailable(&other.exchange(&exchange_form(&token)), "through another");
    assert_told_of(&gateway);
}

#[test]
fn the_list_hides_forged_entries_and_says_that_it_may_be_incomplete() {
    let etcd = Etcd::start();
    let store = json!({"etcd": {"cluster": "etcd"}});
    let gateway = gateway_at(etcd.address, &filter_configuration().with("/store", store));
    gateway.assert_spendable(&gateway.mint("u-1"), "so that there is one");
    let list = || {
        let request = Request::get("/api/impersonations");
        let answer = gateway.send(&request.bearer(&operator_with("impersonations:read")));
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    };
    let before = list();
    assert_eq!(
        (&before["complete"], &before["impersonations"][0]["userId"]),
        (&json!(true), &json!("u-1"))
    );
    put(&etcd, &forged(&stored(&etcd, "impersonations")));
    let after = list();
    assert_eq!((&after["complete"], &after["impersonations"]), (&json!(false), &json!([])));
    wait_for("the log to say so", || (!complaints(&gateway).is_empty()).then_some(()));
    assert_told_of(&gateway);
}
