//! The leader of etcd fails while many callers want each token: no token is exchanged twice, and
//! none is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::{self, join_all};
use serde_json::{Value, json};

use testkit::client::{Answer, Client};
use testkit::configuration::Configuration;
use testkit::etcd::{self, Etcd};
use testkit::gateway::{Gateway, Options};
use testkit::http::Request;
use testkit::network::{Machine, in_a_hub, three_machines};
use testkit::over::Over;
use testkit::{RUNTIME, wait_for, wait_for_enough};

use crate::Length;
use crate::contest::{Contenders, Contest, Step, Told};
use crate::faults::Fault;
use crate::watch::Timeline;

const CONTENDERS: usize = 16;
/// The tokens that are contended for at the same time.
const CONTESTS: usize = 12;
/// The callers who mint and exchange one token after the other, which shows when the endpoints
/// work.
const PROBES: usize = 8;

/// The bounds of docs/many-envoys.md: three attempts of 400 ms to look up, and 3.5 s for the spend;
/// four attempts of 400 ms to mint.
const EXCHANGE_BOUND: Duration = Duration::from_millis(1200 + 3500);
const MINT_BOUND: Duration = Duration::from_millis(1600);
/// The additional time for Envoy and the load, which share two cores with etcd.
const ALLOWANCE: Duration = Duration::from_millis(800);
/// The time within which both endpoints work again after a majority is back.
const RECOVERY_BOUND: Duration = Duration::from_secs(2);

/// Starts two Envoys that store tokens in these nodes.
pub(crate) fn two_gateways(nodes: &[Etcd; 3]) -> [Gateway; 2] {
    gateways(nodes, &Configuration::default())
}

/// Starts two Envoys with this configuration that store tokens in these nodes.
pub(crate) fn gateways(nodes: &[Etcd; 3], configuration: &Configuration) -> [Gateway; 2] {
    let configuration = configuration.clone().with("/store", json!({"etcd": {"cluster": "etcd"}}));
    [(); 2].map(|()| {
        let clusters = vec![etcd::cluster(nodes)];
        Gateway::try_start(&configuration, &Options { clusters, ..Options::default() }).unwrap()
    })
}

#[test]
fn no_token_is_exchanged_twice_or_lost_while_leaders_fail() {
    in_a_hub("leader::no_token_is_exchanged_twice_or_lost_while_leaders_fail", || {
        let machines = three_machines();
        let nodes = Etcd::start_on(&machines);
        let gateways = two_gateways(&nodes);
        run(&machines, &nodes, &gateways, Length::wanted());
    });
}

fn run(machines: &[Machine; 3], nodes: &[Etcd; 3], gateways: &[Gateway; 2], length: Length) {
    let (timeline, tally) = (Timeline::new(), Tally::default());
    let began = Instant::now();
    let faults = under_load(nodes, gateways, &timeline, &tally, || {
        inflict(machines, nodes, &timeline, (length.faults, length.tokens), &tally.contests)
    });
    let until = Instant::now();
    report(nodes, gateways, &timeline, tally, &faults, (began, until), length);
}

/// Runs `act` while many callers want each token.
pub(crate) fn under_load<T>(
    nodes: &[Etcd; 3],
    gateways: &[Gateway; 2],
    timeline: &Timeline,
    tally: &Tally,
    act: impl FnOnce() -> T,
) -> T {
    let envoys = [gateways[0].address(), gateways[1].address()];
    let over = Over::default();
    std::thread::scope(|scope| {
        let load = scope.spawn(|| RUNTIME.block_on(load(&envoys, nodes, timeline, tally, &over)));
        let all = over.when_dropped();
        let done = act();
        drop(all);
        load.join().unwrap();
        done
    })
}

/// The answers and their counts, without times.
#[derive(Default)]
pub(crate) struct Tally {
    /// The number of contests.
    contests: AtomicUsize,
    finished: Mutex<Vec<Contest>>,
    statuses: Mutex<BTreeMap<(&'static str, u16), usize>>,
    /// The latencies of mints, then of exchanges.
    latencies: [Mutex<Vec<Duration>>; 2],
    /// The number of answers 503 without Retry-After.
    bare: AtomicUsize,
}

impl Tally {
    fn note(&self, step: Step, answer: &Answer) {
        let (kind, name) = match step {
            Step::Mint(_) => (0, "mint"),
            Step::Exchange(_) => (1, "exchange"),
        };
        *self.statuses.lock().unwrap().entry((name, answer.status)).or_insert(0) += 1;
        self.latencies[kind].lock().unwrap().push(answer.took);
        if answer.status == 503 && !answer.is_unavailable() {
            self.bare.fetch_add(1, Ordering::Relaxed);
        }
    }
}

async fn load(
    envoys: &[SocketAddr; 2],
    nodes: &[Etcd; 3],
    timeline: &Timeline,
    tally: &Tally,
    over: &Over,
) {
    let note = |step, answer: &Answer| {
        timeline.note(step, answer);
        tally.note(step, answer);
    };
    let contend = async |contenders: usize, pause: Duration| {
        let mut everybody = Contenders::new(envoys, contenders);
        while !over.is_over() {
            if let Some(contest) = everybody.contest(&note).await {
                tally.contests.fetch_add(usize::from(contenders > 1), Ordering::Relaxed);
                tally.finished.lock().unwrap().push(contest);
            }
            tokio::time::sleep(pause).await;
        }
    };
    let contests = join_all((0..CONTESTS).map(|_| contend(CONTENDERS, Duration::ZERO)));
    let probes = join_all((0..PROBES).map(|number| {
        // Each probe uses one Envoy only: the other Envoy working proves nothing for this one.
        let envoy = envoys[number % 2];
        probe(number % 2, envoy, timeline, tally, over)
    }));
    let watches =
        join_all(nodes.iter().enumerate().map(|(node, etcd)| timeline.watch(node, etcd.health)));
    let all = future::join(contests, probes);
    // Some contests go on until they have an answer, which may never come after a failure.
    let others = future::select(Box::pin(watches), Box::pin(over.has_failed()));
    future::select(Box::pin(all), others).await;
}

/// Mints and exchanges through one Envoy, one token after the other.
async fn probe(number: usize, envoy: SocketAddr, timeline: &Timeline, tally: &Tally, over: &Over) {
    let note = |step: Step, answer: &Answer| {
        let step = match step {
            Step::Mint(_) => Step::Mint(number),
            Step::Exchange(_) => Step::Exchange(number),
        };
        timeline.note(step, answer);
        tally.note(step, answer);
    };
    let mut alone = Contenders::new(&[envoy; 2], 1);
    while !over.is_over() {
        if let Some(contest) = alone.contest(&note).await {
            tally.finished.lock().unwrap().push(contest);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Makes the leader fail until there were enough faults, and waits for enough contests.
pub(crate) fn inflict(
    machines: &[Machine; 3],
    nodes: &[Etcd; 3],
    timeline: &Timeline,
    (faults, wanted): (usize, usize),
    contests: &AtomicUsize,
) -> Vec<(Instant, Fault)> {
    let mut inflicted = Vec::new();
    let mut kinds = Vec::new();
    let settle = |since: Instant| {
        wait_for("both endpoints of both Envoys", || {
            (timeline.majority_since().is_some() && timeline.all_succeeded_since(since))
                .then_some(())
        });
    };
    settle(Instant::now());
    while inflicted.len() < faults {
        // Each kind of fault occurs equally often, in random order.
        let kind = kinds.pop().unwrap_or_else(|| {
            kinds = Fault::ALL.to_vec();
            fastrand::shuffle(&mut kinds);
            kinds.pop().unwrap()
        });
        let leader = wait_for("a leader", || leader(nodes));
        let at = Instant::now();
        kind.begin(&machines[leader], &nodes[leader]);
        inflicted.push((at, kind));
        std::thread::sleep(kind.duration());
        kind.end(&machines[leader], &nodes[leader]);
        settle(Instant::now());
        std::thread::sleep(Duration::from_millis(fastrand::u64(300..1000)));
    }
    let faults = inflicted.len();
    wait_for_enough(&format!("{wanted} tokens to be contended for, after {faults} faults"), || {
        let contests = contests.load(Ordering::Relaxed);
        (contests, contests >= wanted)
    });
    settle(Instant::now());
    inflicted
}

/// Returns the index of the node that says that it leads.
pub(crate) fn leader(nodes: &[Etcd; 3]) -> Option<usize> {
    nodes.iter().position(|node| {
        let request = Request::get("/metrics").header("connection", "close").to_bytes();
        let ask =
            async { Client::new(node.health).send_within(&request, Duration::from_secs(1)).await };
        let answer = RUNTIME.block_on(ask);
        String::from_utf8_lossy(&answer.body).lines().any(|line| line == "etcd_server_is_leader 1")
    })
}

/// Facts from the logs of both Envoys.
#[derive(Default)]
struct Written {
    /// The ids of the tokens whose spend has an unknown outcome.
    unknown: BTreeSet<String>,
    /// The number of refusals for each reason.
    refusals: BTreeMap<String, usize>,
}

fn written(gateways: &[Gateway; 2]) -> Written {
    let mut written = Written::default();
    for gateway in gateways {
        for line in gateway.envoy.log().lines() {
            // Most lines are about tokens that were already used, and tell nothing new.
            if !line.contains("\"store_failed\"") && !line.contains("\"spend_unknown\"") {
                continue;
            }
            let Some((_, rest)) = line.split_once("{\"event\"") else { continue };
            let event: Value = serde_json::from_str(&format!("{{\"event\"{rest}")).unwrap();
            let reason = event["reason"].as_str().unwrap().to_owned();
            if reason == "spend_unknown" {
                written.unknown.insert(event["subject_token_id"].as_str().unwrap().into());
            }
            *written.refusals.entry(reason).or_insert(0) += 1;
        }
    }
    written
}

/// The ids of the tokens whose spend has an unknown outcome, by the logs of both Envoys.
pub(crate) fn unknown_spends(gateways: &[Gateway; 2]) -> BTreeSet<String> {
    written(gateways).unknown
}

/// The number of times that the record of each token was written, by the last part of its key.
pub(crate) fn records(nodes: &[Etcd; 3]) -> BTreeMap<String, u64> {
    let records = nodes[0].versions().into_iter();
    let records = records.filter(|(key, _)| key.starts_with("/impersonation/tokens/"));
    records.map(|(key, times)| (key.rsplit('/').next().unwrap().to_owned(), times)).collect()
}

fn report(
    nodes: &[Etcd; 3],
    gateways: &[Gateway; 2],
    timeline: &Timeline,
    tally: Tally,
    faults: &[(Instant, Fault)],
    (began, until): (Instant, Instant),
    length: Length,
) {
    let written = written(gateways);
    let records = records(nodes);
    let finished = tally.finished.into_inner().unwrap();
    let (mut wrong, mut told, mut spent_unknown) = (Vec::new(), BTreeMap::new(), 0);
    for contest in &finished {
        let name = etcd::record_name(&contest.token);
        let times = records.get(&name).copied().unwrap_or(0);
        let unknown = written.unknown.contains(&etcd::audited_id(&contest.token));
        if let Err(rule) = contest.judge(times, unknown) {
            wrong.push(format!("{rule}: {:?}, at last {:?}", contest.told, contest.at_last));
        }
        let wins = contest
            .told
            .iter()
            .chain(&contest.at_last)
            .filter(|told| **told == Told::HereItIs)
            .count();
        spent_unknown += usize::from(wins == 0);
        for one in &contest.told {
            *told.entry(one.clone()).or_insert(0_usize) += 1;
        }
    }
    let mut kinds = BTreeMap::new();
    faults.iter().for_each(|(_, kind)| *kinds.entry(kind).or_insert(0_usize) += 1);
    let moments: Vec<_> = faults.iter().map(|(at, _)| *at).collect();
    let recoveries = timeline.recoveries(&moments, until);
    let [mints, exchanges] =
        tally.latencies.map(|latencies| Latencies::of(latencies.into_inner().unwrap()));

    let contests = tally.contests.into_inner();
    println!("\nchaos: {:.0} s", (until - began).as_secs_f64());
    println!(
        "  tokens      {} contended for by {CONTENDERS}, {} more by one",
        contests,
        finished.len() - contests
    );
    println!("  faults      {}: {kinds:?}", faults.len());
    println!("  answers     {:?}", tally.statuses.into_inner().unwrap());
    println!("  refusals of the store  {:?}", written.refusals);
    println!("  spent by an attempt that was told to come back  {spent_unknown}");
    println!("  mints       {mints}");
    println!("  exchanges   {exchanges}");
    println!("  both endpoints back after a majority  {}", Latencies::of(recoveries.clone()));
    for kind in Fault::ALL {
        let of_kind = faults.iter().zip(&recoveries).filter(|((_, one), _)| *one == kind);
        println!("    {kind:?}  {}", Latencies::of(of_kind.map(|(_, took)| *took).collect()));
    }
    let (silence, series) = timeline.longest_silence(until);
    println!("  longest without a success while a majority is well  {silence:.2?}, {series}");

    assert!(
        wrong.is_empty(),
        "{} tokens, such as {:#?}",
        wrong.len(),
        &wrong[..wrong.len().min(5)]
    );
    assert_eq!(tally.bare.into_inner(), 0, "answers of 503 that do not ask to come back");
    assert!(contests >= length.tokens && faults.len() >= length.faults);
    assert!(records.len() >= finished.len());
    assert!(told[&Told::HereItIs] > 0 && told[&Told::Used] > 0, "{told:?}");
    if length.holds_times {
        assert!(mints.max <= MINT_BOUND + ALLOWANCE, "a mint took {:?}", mints.max);
        assert!(
            exchanges.max <= EXCHANGE_BOUND + ALLOWANCE,
            "an exchange took {:?}",
            exchanges.max
        );
        let longest = recoveries.iter().max().unwrap();
        assert!(*longest <= RECOVERY_BOUND, "{longest:?} after a majority was back");
        assert!(silence <= RECOVERY_BOUND, "{series}: none for {silence:?} beside a majority");
    }
}

/// The distribution of latencies.
pub(crate) struct Latencies {
    p50: Duration,
    p99: Duration,
    pub max: Duration,
}

impl Latencies {
    pub(crate) fn of(mut all: Vec<Duration>) -> Self {
        all.sort_unstable();
        let at = |percent: usize| {
            all.get(all.len().saturating_sub(1) * percent / 100).copied().unwrap_or_default()
        };
        Self { p50: at(50), p99: at(99), max: at(100) }
    }
}

impl std::fmt::Display for Latencies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { p50, p99, max } = self;
        write!(f, "p50 {p50:.2?}, p99 {p99:.2?}, at most {max:.2?}")
    }
}
