//! etcd sends the guard new revocations, and the guard asks etcd now and then. A proxy between them
//! parts the two, so that a test can block the one and not the other.

use serde_json::json;

use super::{
    api, assert_ordinary_users_go_on, end, shared, status, wait_until_it_has_ended,
    wait_until_it_passes, with_cluster,
};
use testkit::bootstrap::{Bootstrap, Cluster, Listener};
use testkit::envoy::Envoy;
use testkit::etcd::Etcd;
use testkit::guarded::{Guarded, Parties};
use testkit::relay::Relay;
use testkit::wait_for;

/// 1 if the guard has a watch and believes it.
const WATCHING: &str = "impersonation_guard_watching";

/// A proxy before etcd, with a way for watches and one for everything else.
struct Parted {
    proxy: Envoy,
    watches: Relay,
    questions: Relay,
}

impl Parted {
    fn start(etcd: &Etcd) -> Self {
        let [watches, questions] = [(); 2].map(|()| Relay::start(etcd.address));
        let watch = json!({
            "match": {"prefix": "/etcdserverpb.Watch/"},
            "route": {"cluster": "watches", "timeout": "0s"},
        });
        // A watch may be silent for as long as it likes.
        let listener =
            Listener::new("etcd").patience("0s").route(watch).route_to("questions", "0s");
        let proxy = Bootstrap::default()
            .listener(listener)
            .cluster(Cluster::new("watches", watches.address).http2())
            .cluster(Cluster::new("questions", questions.address).http2())
            .start();
        Self { proxy, watches, questions }
    }

    /// Starts a guard before an API that answers. It reaches etcd through the proxy.
    fn guard(&self, max_staleness: &str) -> Guarded {
        let etcd = Cluster::new("etcd", self.proxy.address("etcd")).http2();
        let (api, members) = (api(), json!({"max_staleness": max_staleness}));
        Guarded { envoy: with_cluster(etcd, &members, api.address).with_clock().start(), api }
    }
}

fn wait_until_it_watches(guarded: &Guarded) {
    wait_for("a watch", || (guarded.envoy.metric(WATCHING) == Some(1)).then_some(()));
}

#[test]
fn a_watch_tells_what_has_ended_and_only_an_answer_keeps_the_guard_open() {
    let (etcd, one) = shared();
    let parted = Parted::start(etcd);
    let [patient, strict] = ["1h", "10m"].map(|max_staleness| parted.guard(max_staleness));
    let [first, second, hidden, last, live] = [(); 5].map(|()| one.begin(&Parties::new()));
    for guarded in [&patient, &strict] {
        wait_until_it_watches(guarded);
        wait_until_it_passes(guarded, &live);
    }

    // No question is answered from here on. The watch brings the news, and confirms nothing.
    parted.questions.block();
    strict.envoy.clock().set(601);
    wait_for("the strict guard to close", || match status(&strict, &live) {
        503 => Some(()),
        200 => None,
        status => panic!("{status}"),
    });
    end(one, &first);
    wait_until_it_has_ended(&patient, &first);
    assert_eq!(status(&patient, &live), 200);
    assert_eq!([&first, &live].map(|begun| status(&strict, begun)), [503, 503]);
    assert_ordinary_users_go_on(&strict);
    parted.questions.unblock();
    wait_until_it_passes(&strict, &live);
    assert_eq!(status(&strict, &first), 401);

    drop(strict);

    // A watch that is cut off is opened again, and brings what comes next.
    let watches = || parted.proxy.stat("cluster.watches.upstream_rq_total");
    let before = watches();
    parted.watches.cut();
    wait_for("a new watch", || (watches() > before).then_some(()));
    wait_until_it_watches(&patient);
    parted.questions.block();
    end(one, &second);
    wait_until_it_has_ended(&patient, &second);
    parted.questions.unblock();

    // A silent watch hides an end until the next question. It is not believed after that.
    parted.watches.block();
    end(one, &hidden);
    wait_until_it_has_ended(&patient, &hidden);
    wait_for("the watch to be given up", || {
        (patient.envoy.metric(WATCHING) == Some(0)).then_some(())
    });
    end(one, &last);
    wait_until_it_has_ended(&patient, &last);
    parted.watches.unblock();
    // A watch is believed again when it has brought something.
    wait_for("a watch that speaks", || {
        end(one, &one.begin(&Parties::new()));
        (patient.envoy.metric(WATCHING) == Some(1)).then_some(())
    });
    let ended = [&first, &second, &hidden, &last].map(|begun| status(&patient, begun));
    assert_eq!(ended, [401; 4]);
    assert_eq!(status(&patient, &live), 200);
}
