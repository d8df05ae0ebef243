//! Two Envoys with one etcd: a session is the same at both, whichever of them a connection reaches.

use serde_json::{Value, json};

use super::{DOMAIN, Session, filter, leave_out_the_version, verifying_listener};
use testkit::bootstrap::{Cluster, Filter};
use testkit::etcd::Etcd;
use testkit::guarded::{API, Guarded};
use testkit::impersonations::end_by_id;
use testkit::server::{Server, as_asked};
use testkit::wait_for;

fn store() -> Value {
    json!({"etcd": {"cluster": "etcd"}})
}

fn start(etcd: &Etcd) -> Guarded {
    let members = json!({"browser_session": {"domain": DOMAIN}, "store": store()});
    let filter = filter().with("/store", store());
    let listener = verifying_listener(&members, &filter).route_to(API, "0s");
    let api = Server::start(API);
    api.answer(as_asked);
    let listener = listener.edited(leave_out_the_version);
    let bootstrap = Guarded::bootstrap_with(listener, Filter::from(&filter), api.address);
    let reached = Cluster::new("etcd", etcd.address).with("connect_timeout", "0.25s").http2();
    Guarded { envoy: bootstrap.cluster(reached).workers(2).start(), api }
}

/// Waits until the session lives there. Until then nobody may know what has ended.
fn wait_until_it_lives(guarded: &Guarded, session: &Session) {
    for path in ["/orders", "/.impersonation/me"] {
        wait_for("the session to live", || {
            match guarded.send(&session.request("GET", path)).status {
                200 => Some(()),
                503 => None,
                status => panic!("{path}: {status}"),
            }
        });
    }
}

/// Waits until the session has ended there. Until then it must live.
fn wait_until_it_has_ended(guarded: &Guarded, session: &Session) {
    for path in ["/orders", "/.impersonation/me"] {
        wait_for("the end of the session", || {
            match guarded.send(&session.request("GET", path)).status {
                401 => Some(()),
                200 => None,
                status => panic!("{path}: {status}"),
            }
        });
    }
}

#[test]
fn a_session_begun_at_one_envoy_lives_at_the_other_and_ends_there() {
    let etcd = Etcd::start();
    let (one, other) = (start(&etcd), start(&etcd));
    let sessions = [(); 4].map(|()| Session::begin(&one));
    for session in &sessions {
        wait_until_it_lives(&one, session);
        wait_until_it_lives(&other, session);
    }
    let [by_banner, by_operator, twice, goes_on] = &sessions;

    let ended = other.send(&by_banner.request("POST", "/.impersonation/end"));
    assert_eq!(ended.status, 200, "{ended:?}");
    assert_eq!(one.send_to_filter(&end_by_id(&by_operator.id)).status, 204);
    // The subject token comes again at the Envoy that has not seen it: nobody knows who has it.
    let again = other.send(&twice.begin);
    assert_eq!((again.status, again.header("set-cookie")), (400, None), "{again:?}");
    for session in [by_banner, by_operator, twice] {
        for envoy in [&one, &other] {
            wait_until_it_has_ended(envoy, session);
        }
    }
    for envoy in [&one, &other] {
        wait_until_it_lives(envoy, goes_on);
    }
}
