//! Guard and filter keep revocations in etcd: an impersonation that one Envoy ends has ended in all
//! of them. Without etcd the guard cannot know what has ended, so no impersonation passes.

mod access;
mod lasting;
mod outage;
mod pair;
mod volume;
mod watched;
mod wrong_clocks;

use std::net::SocketAddr;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::ended::delete;
use testkit::bootstrap::{Bootstrap, Cluster, Filter};
use testkit::etcd::Etcd;
use testkit::guarded::{
    API, Begun, Guarded, Parties, claims_with, filter_configuration, guard_configuration,
    guarded_listener, operator, ordinary_token, token,
};
use testkit::http::{Answer, Request};
use testkit::server::{Server, as_asked};
use testkit::wait_for;

/// The store of both the guard and the filter.
fn store() -> Value {
    json!({"etcd": {"cluster": "etcd"}})
}

fn cluster(etcd: &Etcd) -> Cluster {
    Cluster::new("etcd", etcd.address).with("connect_timeout", "0.25s").http2()
}

/// The guard's configuration, with these members added.
fn configuration(members: &Value) -> Value {
    let mut configuration = guard_configuration(members);
    configuration["store"] = store();
    configuration
}

/// An access token that a filter with etcd issues: its `jti` ends in a revision.
fn token_of_etcd() -> String {
    let jti = [&[7; 28][..], &[0; 2], &1_u64.to_be_bytes()].concat();
    token(&claims_with(&json!({"jti": URL_SAFE_NO_PAD.encode(jti)})))
}

/// A guard before that API, without the filter.
fn without_filter(etcd: &Etcd, members: &Value, api: SocketAddr) -> Bootstrap {
    with_cluster(cluster(etcd), members, api)
}

/// A guard before that API, without the filter. This cluster reaches etcd.
fn with_cluster(etcd: Cluster, members: &Value, api: SocketAddr) -> Bootstrap {
    Bootstrap::default()
        .listener(guarded_listener(&configuration(members)).watched())
        .cluster(Cluster::new(API, api).as_downstream())
        .cluster(etcd)
        .workers(2)
}

/// Starts a guard before an API that answers, without the filter.
fn start_without_filter(etcd: &Etcd, members: &Value) -> Guarded {
    let api = api();
    Guarded { envoy: without_filter(etcd, members, api.address).start(), api }
}

/// Starts guard and filter before an API that answers.
fn start(etcd: &Etcd, members: &Value) -> Guarded {
    start_by(etcd, members, |bootstrap| bootstrap)
}

/// Starts guard and filter in an Envoy with a clock that can be set.
fn start_with_clock(etcd: &Etcd, members: &Value) -> Guarded {
    start_by(etcd, members, Bootstrap::with_clock)
}

fn start_by(etcd: &Etcd, members: &Value, change: fn(Bootstrap) -> Bootstrap) -> Guarded {
    let api = api();
    let filter = Filter::from(&filter_configuration().with("/store", store()));
    let listener = guarded_listener(&configuration(members));
    let bootstrap = Guarded::bootstrap_with(listener, filter, api.address).cluster(cluster(etcd));
    let guarded = Guarded { envoy: change(bootstrap.workers(2)).start(), api };
    wait_until_it_passes(&guarded, &guarded.begin(&Parties::new()));
    guarded
}

fn api() -> Server {
    let api = Server::start(API);
    api.answer(as_asked);
    api
}

/// One etcd and one Envoy with the filter, for all tests that leave etcd alone and end only their
/// own impersonations.
fn shared() -> &'static (Etcd, Guarded) {
    static SHARED: LazyLock<(Etcd, Guarded)> = LazyLock::new(|| {
        let etcd = Etcd::start();
        let guarded = start(&etcd, &json!({}));
        (etcd, guarded)
    });
    &SHARED
}

/// Ends an impersonation by its id.
fn end(guarded: &Guarded, begun: &Begun) {
    delete(guarded, &format!("/api/impersonations/{}", begun.id), &operator());
}

fn get(guarded: &Guarded, begun: &Begun) -> Answer {
    guarded.send_as(&begun.access_token, Request::get("/orders"))
}

fn status(guarded: &Guarded, begun: &Begun) -> u16 {
    get(guarded, begun).status
}

/// Waits until the impersonation passes. The only other answer allowed is "not known yet".
fn wait_until_it_passes(guarded: &Guarded, begun: &Begun) {
    wait_for("the impersonation to pass", || match status(guarded, begun) {
        200 => Some(()),
        503 => None,
        status => panic!("{status}"),
    });
}

/// Waits until the impersonation is refused because it has ended. Until then it must pass.
fn wait_until_it_has_ended(guarded: &Guarded, begun: &Begun) {
    wait_for("the revocation to arrive", || match status(guarded, begun) {
        401 => Some(()),
        200 => None,
        status => panic!("{status}"),
    });
}

fn assert_ordinary_users_go_on(guarded: &Guarded) {
    let answer = guarded.send_as(&ordinary_token(), Request::post("/orders").body("x"));
    assert_eq!(answer.status, 200, "{answer:?}");
}
