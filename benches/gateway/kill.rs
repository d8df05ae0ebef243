//! Measures how a kill scales: how soon an ended impersonation is refused, in the Envoy that ended
//! it and in others, and what many Envoys that wait for such news cost etcd.
//!
//! Everything shares all cores, as on a small machine: three nodes of etcd, the Envoys, the load.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::load::quantile;
use testkit::askers::{Askers, arrivals};
use testkit::bootstrap::{Bootstrap, Cluster, Filter, Listener};
use testkit::etcd::{self, Etcd};
use testkit::guarded::{
    API, Begun, Guarded, Parties, connect, filter_configuration, guard_configuration,
    guarded_listener, operator,
};
use testkit::http::{Connection, Request};
use testkit::server::{Server, as_asked};
use testkit::wait_for;

/// The number of kills for each Envoy that is looked at.
const KILLS: usize = 200;

/// The time between two requests of the client that looks when it is refused.
const STEP: Duration = Duration::from_micros(500);

/// The numbers of watches, one for each Envoy.
const WATCHES: [usize; 4] = [0, 2_000, 5_000, 10_000];

/// The watches on one connection.
const ON_ONE: usize = 50;

/// The Envoys that the goal is about, and the seconds between two questions of each.
const ENVOYS: f64 = 10_000.0;
const EACH: f64 = 3.25;

pub(crate) fn run() {
    latency();
    capacity();
}

fn latency() {
    let nodes = Etcd::start_three();
    // This proxy refuses watches: a guard behind it asks four times a second.
    let refusing = Listener::new("etcd")
        .route(json!({
            "match": {"prefix": "/etcdserverpb.Watch/"}, "direct_response": {"status": 503},
        }))
        .route_to("etcd", "0s");
    let proxy = Bootstrap::default().listener(refusing).cluster(etcd::cluster(&nodes)).start();
    let through = Cluster::new("etcd", proxy.address("etcd")).http2();
    let here = start(etcd::cluster(&nodes), true);
    let watches = start(etcd::cluster(&nodes), false);
    let asks = start(through, false);
    let targets =
        [("the same Envoy", &here), ("another, it watches", &watches), ("another, it asks", &asks)];
    for (_, target) in targets {
        wait_for("the guard to know", || {
            let begun = here.try_begin(&Parties::new())?;
            (status(&mut target.envoy.connect(), &begun) == 200).then_some(())
        });
    }
    wait_for("a watch", || {
        (watches.envoy.metric("impersonation_guard_watching") == Some(1)).then_some(())
    });
    println!("\nfrom a kill to the first refused request, {KILLS} kills each, in ms");
    println!("{:<24}{:>26}{:>26}", "", "after it was sent", "after it was answered");
    println!("{:<24}{:>13}{:>13}{:>13}{:>13}", "", "p50", "p99", "p50", "p99");
    let mut since = targets.map(|_| (Vec::new(), Vec::new()));
    for _ in 0..KILLS {
        for ((_, target), since) in targets.iter().zip(&mut since) {
            let (sent, answered) = kill(&here, target);
            since.0.push(sent);
            since.1.push(answered);
        }
    }
    for ((name, _), (sent, answered)) in targets.iter().zip(&since) {
        let [sent50, sent99] = [0.5, 0.99].map(|at| quantile(sent, at) * 1e3);
        let [answered50, answered99] = [0.5, 0.99].map(|at| quantile(answered, at) * 1e3);
        println!("{name:<24}{sent50:>13.1}{sent99:>13.1}{answered50:>13.1}{answered99:>13.1}");
    }
}

/// Starts an Envoy with the guard, and with the filter or without it.
fn start(etcd: Cluster, has_filter: bool) -> Guarded {
    let store = json!({"etcd": {"cluster": "etcd"}});
    let listener = guarded_listener(&guard_configuration(&json!({"store": store})));
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

fn status(connection: &mut Connection, begun: &Begun) -> u16 {
    connection.send(&Request::get("/orders").bearer(&begun.access_token)).status
}

/// Ends an impersonation through one Envoy. Returns the seconds until another refuses it: after the
/// request was sent, and after it was answered.
fn kill(through: &Guarded, target: &Guarded) -> (f64, f64) {
    let begun = through.begin(&Parties::new());
    let mut uses = target.envoy.connect();
    wait_for("the impersonation to pass", || (status(&mut uses, &begun) == 200).then_some(()));
    let mut ends = connect(&through.envoy, "gateway");
    let path = format!("/api/impersonations/{}", begun.id);
    let end = Request::new("DELETE", &path).bearer(&operator());
    // At no particular time between two questions.
    thread::sleep(Duration::from_millis(fastrand::u64(0..250)));
    thread::scope(|scope| {
        let refused = scope.spawn(move || {
            while status(&mut uses, &begun) == 200 {
                thread::sleep(STEP);
            }
            Instant::now()
        });
        let sent = Instant::now();
        assert_eq!(ends.send(&end).status, 204);
        let answered = Instant::now();
        let refused = refused.join().unwrap();
        let since = |then| refused.saturating_duration_since(then).as_secs_f64();
        (since(sent), since(answered))
    })
}

fn capacity() {
    const KEY: &str = "/impersonation/revocations/AAAAAAAAAAAA.last";
    const PREFIX: &str = "/impersonation/revocations/AAAAAAAAAAAA";
    const NEWS: &str = "/impersonation/revocations/AAAAAAAAAAAA/news";
    const TIME: Duration = Duration::from_secs(5);
    let nodes = Etcd::start_three();
    let addresses: Vec<SocketAddr> = nodes.iter().map(|node| node.address).collect();
    let needed = ENVOYS / EACH;
    let polled = ENVOYS * 4.0;
    println!(
        "\nthree nodes of etcd beside the load; {ENVOYS:.0} Envoys ask {needed:.0} times a second, and without watches {polled:.0}"
    );
    println!(
        "{:>9}{:>12}{:>11}{:>12}{:>24}{:>32}",
        "watches",
        "reads/s",
        "the share",
        "without",
        "reads at that rate, ms",
        "news to all watches, ms"
    );
    println!(
        "{:>9}{:>12}{:>11}{:>12}{:>12}{:>12}{:>12}{:>10}{:>10}",
        "", "at most", "", "", "p50", "p99", "p50", "p99", "last"
    );
    for count in WATCHES {
        let askers = Askers::connect(&addresses, 12);
        askers.put(KEY, b"");
        let holders = Askers::connect(&addresses, count.div_ceil(ON_ONE).max(1));
        let mut news = holders.watch(PREFIX, count);
        let read = askers.read_without_pause(KEY, 96, TIME);
        let most = read as f64 / TIME.as_secs_f64();
        let latencies = askers.read_at_rate(KEY, needed, TIME);
        let [read50, read99] = [0.5, 0.99].map(|at| quantile(&latencies, at) * 1e3);
        // The news comes while the others ask.
        let times: Vec<f64> = thread::scope(|scope| {
            let others = scope.spawn(|| askers.read_at_rate(KEY, needed, TIME));
            let mut times = Vec::new();
            for _ in 0..5 {
                thread::sleep(Duration::from_millis(500));
                let sent = Instant::now();
                holders.put(NEWS, b"some hundred bytes of a revocation: a user, an actor, a time, an owner, an event");
                times.extend(arrivals(&mut news, count, sent));
            }
            others.join().unwrap();
            times
        });
        print!(
            "{count:>9}{most:>12.0}{:>10.0}%{:>11.0}%{read50:>12.1}{read99:>12.1}",
            needed / most * 100.0,
            polled / most * 100.0
        );
        if times.is_empty() {
            println!();
        } else {
            let [news50, news99, last] = [0.5, 0.99, 1.0].map(|at| quantile(&times, at) * 1e3);
            println!("{news50:>12.1}{news99:>10.1}{last:>10.1}");
        }
    }
}
