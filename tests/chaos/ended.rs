//! The leader of etcd fails while an impersonation is ended. Once the end was answered, an Envoy
//! that has not heard of it refuses the impersonation after `max_staleness` at the latest. The
//! watch of one Envoy is silent from the moment before.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use testkit::bootstrap::{Bootstrap, Cluster, Filter, Listener};
use testkit::envoy::Envoy;
use testkit::etcd::{self, Etcd};
use testkit::guarded::{
    API, Begun, Guarded, Parties, filter_configuration, guard_configuration, guarded_listener,
    operator,
};
use testkit::http::Request;
use testkit::network::{Machine, in_a_hub, three_machines};
use testkit::over::Over;
use testkit::relay::Relay;
use testkit::server::{Server, as_asked};
use testkit::wait_for;

use crate::faults::Fault;
use crate::leader::leader;

const MAX_STALENESS: Duration = Duration::from_secs(2);
/// The least number of requests that are sent to each Envoy after that.
const AFTER: usize = 50;

/// The time at which a request was sent, and its status.
type Outcome = (Instant, u16);

#[test]
fn an_ended_impersonation_passes_nowhere_for_longer_than_max_staleness() {
    let name = "ended::an_ended_impersonation_passes_nowhere_for_longer_than_max_staleness";
    in_a_hub(name, || {
        let machines = three_machines();
        let nodes = Etcd::start_on(&machines);
        let [one, other] = [true, false].map(|has_filter| start(etcd::cluster(&nodes), has_filter));
        let silenced = Silenced::start(&nodes);
        let envoys = [&one, &other, &silenced.guarded];
        let live = begin(&one);
        for fault in Fault::ALL {
            silenced.wait_until_it_watches(&one);
            let begun = begin(&one);
            for envoy in envoys {
                wait_for("the impersonation to pass", || {
                    (status(envoy, &begun) == 200).then_some(())
                });
            }
            silenced.watches.block();
            end_during(fault, &machines, &nodes, envoys, &begun);
            silenced.watches.unblock();
            for envoy in envoys {
                wait_for("the live impersonation to pass", || match status(envoy, &live) {
                    200 => Some(()),
                    503 => None,
                    status => panic!("{fault:?}: {status}"),
                });
                assert_eq!(status(envoy, &begun), 401, "{fault:?}");
            }
        }
    });
}

/// A guard whose watches a test can silence. Its questions go to etcd all the same.
struct Silenced {
    guarded: Guarded,
    watches: Relay,
    _proxy: Envoy,
}

impl Silenced {
    fn start(nodes: &[Etcd; 3]) -> Self {
        let watches = Relay::start(nodes[0].address);
        let watch = json!({
            "match": {"prefix": "/etcdserverpb.Watch/"},
            "route": {"cluster": "watches", "timeout": "0s"},
        });
        let proxy = Bootstrap::default()
            .listener(Listener::new("etcd").patience("0s").route(watch).route_to("etcd", "0s"))
            .cluster(Cluster::new("watches", watches.address).http2())
            .cluster(etcd::cluster(nodes))
            .start();
        let guarded = start(Cluster::new("etcd", proxy.address("etcd")).http2(), false);
        Self { guarded, watches, _proxy: proxy }
    }

    /// Waits until the guard believes its watch. It does not believe a watch that was silent before
    /// it has brought something.
    fn wait_until_it_watches(&self, other: &Guarded) {
        wait_for("a watch", || {
            let begun = begin(other);
            let end = Request::new("DELETE", &format!("/api/impersonations/{}", begun.id));
            other.send_to_filter(&end.bearer(&operator()));
            let watching = self.guarded.envoy.metric("impersonation_guard_watching");
            (watching == Some(1)).then_some(())
        });
    }
}

/// Starts an Envoy with the guard. One of them has the filter, too.
fn start(etcd: Cluster, has_filter: bool) -> Guarded {
    let store = json!({"etcd": {"cluster": "etcd"}});
    let members = json!({"store": store, "max_staleness": "2s"});
    let listener = guarded_listener(&guard_configuration(&members));
    let api = Server::start(API);
    api.answer(as_asked);
    let bootstrap = if has_filter {
        let filter = filter_configuration().with("/store", store);
        Guarded::bootstrap_with(listener, Filter::from(&filter), api.address)
    } else {
        Bootstrap::default()
            .listener(listener.watched())
            .cluster(Cluster::new(API, api.address).as_downstream())
    };
    Guarded { envoy: bootstrap.cluster(etcd).workers(2).start(), api }
}

/// Begins an impersonation as soon as the store answers.
fn begin(guarded: &Guarded) -> Begun {
    wait_for("an impersonation", || guarded.try_begin(&Parties::new()))
}

fn status(guarded: &Guarded, begun: &Begun) -> u16 {
    guarded.send_as(&begun.access_token, Request::get("/orders")).status
}

fn end_during(
    fault: Fault,
    machines: &[Machine; 3],
    nodes: &[Etcd; 3],
    envoys: [&Guarded; 3],
    begun: &Begun,
) {
    let (over, used) = (Over::default(), AtomicUsize::new(0));
    let path = format!("/api/impersonations/{}", begun.id);
    let end = Request::new("DELETE", &path).bearer(&operator());
    let (answered, outcomes) = thread::scope(|scope| {
        let (over, used) = (&over, &used);
        let all = over.when_dropped();
        let use_it = |envoy: &'_ Guarded| -> Vec<Outcome> {
            let mut outcomes = Vec::new();
            while !over.is_over() {
                outcomes.push((Instant::now(), status(envoy, begun)));
                used.fetch_add(usize::from(outcomes.len() == 1), Ordering::Relaxed);
                thread::sleep(Duration::from_millis(10));
            }
            outcomes
        };
        let uses = envoys.map(|envoy| scope.spawn(move || use_it(envoy)));
        wait_for("all to use it", || (used.load(Ordering::Relaxed) == 3).then_some(()));
        let leader = wait_for("a leader", || leader(nodes));
        fault.begin(&machines[leader], &nodes[leader]);
        let healing = scope.spawn(move || {
            thread::sleep(fault.duration());
            fault.end(&machines[leader], &nodes[leader]);
        });
        // An earlier attempt whose answer was lost may have ended it: then the answer is 404.
        wait_for("the end of it", || match envoys[0].send_to_filter(&end).status {
            204 | 404 => Some(()),
            503 => None,
            status => panic!("{fault:?}: {status}"),
        });
        let answered = Instant::now();
        healing.join().unwrap();
        // The requests from here on must be refused. Waits until enough were sent.
        thread::sleep((answered + MAX_STALENESS).saturating_duration_since(Instant::now()));
        thread::sleep(Duration::from_millis(10) * u32::try_from(AFTER).unwrap());
        drop(all);
        (answered, uses.map(|uses| uses.join().unwrap()))
    });
    let names = ["one", "the other", "the one with a silent watch"];
    for (envoy, outcomes) in names.into_iter().zip(outcomes) {
        let passed = outcomes.iter().filter(|(_, status)| *status == 200);
        let last = passed.map(|(sent, _)| *sent).max().unwrap();
        let heard = last.saturating_duration_since(answered);
        println!("{fault:?}: {envoy} let it pass until {heard:.2?} after the answer");
        let late = outcomes.iter().filter(|(sent, _)| *sent > answered + MAX_STALENESS).count();
        assert!(late > 0, "{fault:?}: {envoy} was asked");
        assert!(heard <= MAX_STALENESS, "{fault:?}: {envoy}: {heard:?}");
        // An impersonation that was refused once never passes again.
        let refused = outcomes.iter().skip_while(|(_, status)| *status != 401);
        assert!(refused.into_iter().all(|(_, status)| *status != 200), "{fault:?}: {envoy}");
        assert!(outcomes.iter().all(|(_, status)| [200, 401, 503].contains(status)), "{fault:?}");
    }
}
