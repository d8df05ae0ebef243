//! Mixed traffic at a constant rate on two workers, for a long time, with new configurations and
//! now and then a VM that crashes: Envoy does not grow, keeps nothing that is over, and stays fast.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::bootstrap::{Bootstrap, Filter, Listener};
use testkit::configuration::Configuration;
use testkit::envoy::Envoy;
use testkit::gateway::{
    IDENTITY_GATEWAY, exchange_form, exchange_request, http_uri, mint_body_request, portal_request,
    with_actor,
};
use testkit::http::Request;
use testkit::open_loop::{OpenLoop, Reply, Traffic};
use testkit::over::Over;
use testkit::report::Counted;
use testkit::server::{self, Server};
use testkit::{Findings, repository, wait_for};

use crate::crash::{crash, crashes, crashing_module};
use crate::from_environment;

/// Requests per second: a few per cent of a worker, so that a busy machine keeps up.
const RATE: f64 = 200.0;
const CONNECTIONS: usize = 16;
/// In runs of this length or longer, values that become constant have had time to do so.
const LONG: Duration = Duration::from_secs(300);
/// Requests may fail for this long after a crash or a new configuration: Envoy makes a new VM after
/// a second, and closes the connections of a replaced listener after two.
const AFTERMATH: Duration = Duration::from_secs(10);

/// The time for which one used token is presented again and again: less than the time until its
/// slot is reused.
const REPLAYED_FOR: Duration = Duration::from_secs(2);

/// The kinds of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Kind {
    Mint,
    MintByOpaqueToken,
    Exchange,
    ExchangeWithActor,
    Replay,
    MalformedForm,
    UnknownBearer,
    Document,
    PassingThrough,
}

/// The order of requests, repeated: as many mints as exchanges.
const MIX: [Kind; 13] = {
    use Kind::*;
    [
        Mint,
        Exchange,
        MintByOpaqueToken,
        ExchangeWithActor,
        Mint,
        Exchange,
        Replay,
        Mint,
        Exchange,
        Document,
        MalformedForm,
        UnknownBearer,
        PassingThrough,
    ]
};

impl Kind {
    const fn expected(self) -> u16 {
        match self {
            Self::Mint | Self::MintByOpaqueToken => 201,
            Self::Exchange | Self::ExchangeWithActor | Self::Document | Self::PassingThrough => 200,
            Self::Replay | Self::MalformedForm => 400,
            Self::UnknownBearer => 401,
        }
    }
}

#[test]
fn envoy_keeps_its_size_and_speed_under_long_traffic() {
    let length = Duration::from_secs(from_environment("SOAK_SECONDS", 40) as u64);
    let services = Services::start();
    let module = crashing_module();
    let listener = |number: usize| {
        let mut filter = Filter::from(&services.configuration(number));
        filter.module = Some(module.clone());
        let listener = Listener::new("gateway").filter(filter).route_to(IDENTITY_GATEWAY, "5s");
        listener.keeps_connections().patience("5s").watched()
    };
    let bootstrap = Bootstrap::default().listener(listener(0)).workers(2).drain_seconds(2);
    let envoy = bootstrap.servers(&services.all()).start();
    // Envoy holds the sockets twice from the second configuration of a listener on, and never more
    // often.
    envoy.update(listener(1)).unwrap();
    let idle = wait_for("the first listener to go", || {
        Some(Held::by(&envoy))
            .filter(|held| held.gauges[DRAINING] + held.gauges[CONNECTIONS_OPEN] == 0)
    });
    // In a long run, one log line for each request would only fill the disk.
    if length >= LONG {
        envoy.set_log_level("wasm", "error");
    }

    let soak = Soak { envoy: &envoy, disturbed: Mutex::default(), over: Over::default() };
    let mut mix = Mix::new(&soak);
    let began = Instant::now();
    let (samples, (crashed, changed)) = thread::scope(|scope| {
        let sampler = scope.spawn(|| soak.sample(length));
        let disturber = scope.spawn(|| soak.disturb(length, listener));
        let all = soak.over.when_dropped();
        let mut load = OpenLoop::new(envoy.address("gateway"), CONNECTIONS);
        load.run((RATE * length.as_secs_f64()) as usize, RATE, &mut mix);
        drop(all);
        (sampler.join().unwrap(), disturber.join().unwrap())
    });

    let mut findings = Findings::default();
    println!("{:.0?}, {crashed} crashes, {changed} configurations", began.elapsed());
    println!("answers: {:?}", mix.answers);
    println!("failed within {AFTERMATH:?} of a crash or a configuration: {:?}", mix.excused);
    mix.wrong.iter().for_each(|wrong| findings.add(wrong));
    findings.expect("VMs crashed", &(crashes(&envoy) >= crashed), &true);
    findings.expect("the same process", &envoy.is_running(), &true);

    let quarter = |number: usize| {
        let size = samples.len() / 4;
        &samples[number * size..(number + 1) * size]
    };
    let resident = [1, 2, 3].map(|number| median(quarter(number), |one| one.resident as f64));
    let p99 = [1, 2, 3].map(|number| quantile(mix.within(length, number), 0.99));
    println!(
        "resident memory, medians of the last three quarters: {:.1?} MiB",
        resident.map(|bytes| bytes / 1_048_576.0)
    );
    println!("p99 of successful requests, the same: {p99:.2?} ms");
    println!(
        "file descriptors, the same: {:?}",
        [1, 2, 3].map(|number| median(quarter(number), |one| one.files as f64))
    );
    if length >= LONG {
        findings.expect(
            "resident memory in the second half",
            &(resident[2] <= resident[1] * 1.02),
            &true,
        );
        // The machine itself can account for half a millisecond.
        findings.expect("p99", &(p99[2] <= p99[0] * 1.5 + 0.5), &true);
    }
    for (before, after) in quarter(2).iter().zip(quarter(3)) {
        for (name, count) in &before.counters {
            findings.expect(
                format!("{name} is stuck at {count}"),
                &(after.counters[name] > *count),
                &true,
            );
        }
    }
    if length < LONG {
        // Crashes and new configurations lose no line and no count, and neither twice.
        let (reported, counted) = (Counted::by_report(&envoy), Counted::by_metrics(&envoy));
        findings.expect("report and metrics", &reported, &counted);
        findings.expect("replays", &(reported.replays > 0), &true);
    }
    // Envoy gives back everything that it held for the traffic.
    let mut held = Held::by(&envoy);
    let patience = Instant::now() + Duration::from_secs(60);
    while !held.is_no_more_than(&idle) && Instant::now() < patience {
        thread::sleep(Duration::from_millis(100));
        held = Held::by(&envoy);
    }
    if !held.is_no_more_than(&idle) {
        findings.add(format!("an idle Envoy holds {held:?}, and held {idle:?}"));
    }
}

/// The services that the filter asks.
struct Services {
    gateway: Server,
    introspection: Server,
    userinfo: Server,
}

impl Services {
    fn start() -> Self {
        let start = |name: &str, answer: Value| {
            let server = Server::start(name);
            server.answer_always(server::Reply::json(&answer));
            server
        };
        let minter = json!({"active": true, "scope": "impersonate", "client_id": "backend"});
        Self {
            gateway: start(IDENTITY_GATEWAY, json!({"keys": []})),
            introspection: start("introspection", minter),
            userinfo: start("userinfo", json!({"sub": "agent-1"})),
        }
    }

    fn all(&self) -> [&Server; 3] {
        [&self.gateway, &self.introspection, &self.userinfo]
    }

    /// Returns a new configuration for each number. Things that are kept for the lifetime of a
    /// token soon reach their largest size: the store holds fewer tokens than are minted in a
    /// quarter of the run, and access tokens live for two minutes.
    fn configuration(&self, number: usize) -> Configuration {
        let script = fs::read_to_string(repository().join("docs/claims/impersonation.js")).unwrap();
        Configuration::default()
            .with("/store/shared_data/capacity", 8192)
            .with("/access_tokens/lifetime", format!("{}s", 120 - number % 60))
            .with(
                "/subject_tokens/authentication/introspection",
                json!({
                    "http_uri": http_uri(&self.introspection, "/oidc/token/introspection", "3s"),
                    "client_id": "impersonation-filter",
                    "client_secret": {"inline_string": "introspection-secret"},
                    "required_scopes": ["impersonate"],
                    "cache_duration": "0s",
                }),
            )
            .with(
                "/actor_tokens/userinfo",
                json!({
                    "http_uri": http_uri(&self.userinfo, "/oidc/me", "3s"), "cache_duration": "0s",
                }),
            )
            .with(
                "/custom_claims",
                json!({"script": script, "environment_variables": {"REGION": "eu"}}),
            )
            .with("/identity_gateway", json!({"documents": "merge"}))
    }
}

const DRAINING: &str = "listener_manager.total_listeners_draining";
const CONNECTIONS_OPEN: &str = "http.gateway.downstream_cx_active";

/// Resources that Envoy holds while it is idle.
#[derive(Debug, PartialEq)]
struct Held {
    /// Gauges of Envoy's statistics: VMs, requests, connections, draining listeners.
    gauges: BTreeMap<String, u64>,
    /// The number of file descriptors of each kind, without connections to services: those stay
    /// open for the next call.
    files: BTreeMap<String, usize>,
}

impl Held {
    /// Returns true if nothing has grown. Ignores a connection to the admin interface, which may be
    /// open at either time.
    fn is_no_more_than(&self, before: &Self) -> bool {
        let files = self.files.iter();
        let more = |(kind, count): (&String, &usize)| {
            *count > before.files.get(kind).copied().unwrap_or(0) + usize::from(kind == "socket")
        };
        self.gauges == before.gauges && !files.into_iter().any(more)
    }

    fn by(envoy: &Envoy) -> Self {
        let gauges = envoy.admin(
            "/stats?filter=^(wasm.envoy.wasm.runtime.v8.active|http.gateway.downstream_(rq|cx)_active|\
             listener_manager.total_listeners_draining|cluster.*upstream_rq_active)$",
        );
        let gauges = gauges.lines().map(|line| line.rsplit_once(": ").unwrap());
        let gauges =
            gauges.map(|(name, value)| (name.to_owned(), value.parse().unwrap())).collect();
        let mut files = files(envoy);
        let upstream = envoy.admin("/stats?filter=^cluster.*upstream_cx_active$");
        for line in upstream.lines() {
            let open: usize = line.rsplit_once(": ").unwrap().1.parse().unwrap();
            *files.get_mut("socket").unwrap() -= open;
        }
        Self { gauges, files }
    }
}

/// Returns the number of open file descriptors, by kind or by file name.
fn files(envoy: &Envoy) -> BTreeMap<String, usize> {
    let open = fs::read_dir(format!("/proc/{}/fd", envoy.pid())).unwrap();
    let mut files = BTreeMap::new();
    for file in open.filter_map(|file| fs::read_link(file.ok()?.path()).ok()) {
        let name = file.to_string_lossy();
        let kind = name.split_once(":[").map_or(&*name, |(kind, _)| kind);
        *files.entry(kind.to_owned()).or_default() += 1;
    }
    files
}

struct Sample {
    resident: u64,
    files: usize,
    /// Counters that grow as long as there is traffic.
    counters: BTreeMap<String, u64>,
}

struct Soak<'e> {
    envoy: &'e Envoy,
    /// The time of the last disturbance.
    disturbed: Mutex<Option<Instant>>,
    over: Over,
}

impl Soak<'_> {
    /// Samples Envoy's state a hundred times.
    fn sample(&self, length: Duration) -> Vec<Sample> {
        let mut samples = Vec::new();
        while !self.over.is_over() {
            let counters = self.envoy.metrics().into_iter();
            let counters = counters.filter(|(name, _)| {
                let counted = name.strip_prefix("impersonation_subject_tokens_");
                matches!(counted, Some("created_total" | "exchanged_total" | "replayed_total"))
            });
            samples.push(Sample {
                resident: self.envoy.resident_bytes(),
                files: files(self.envoy).values().sum(),
                counters: counters.collect(),
            });
            thread::sleep(length / 100);
        }
        samples
    }

    /// Changes the configuration each minute or four times, with a crash between two changes.
    /// Returns the number of crashes and of changes.
    fn disturb(&self, length: Duration, listener: impl Fn(usize) -> Listener) -> (usize, usize) {
        let every = (length / 8).min(Duration::from_secs(30));
        let (mut crashed, mut changed) = (0, 0);
        let mut due = Instant::now() + every;
        while !self.over.is_over() {
            thread::sleep(Duration::from_millis(20));
            if Instant::now() < due {
                continue;
            }
            due += every;
            let note = || *self.disturbed.lock().unwrap() = Some(Instant::now());
            note();
            if changed > crashed {
                crash(self.envoy);
                crashed += 1;
            } else {
                changed += 1;
                self.envoy.update(listener(changed + 1)).unwrap();
            }
            note();
        }
        (crashed, changed)
    }

    fn may_fail(&self) -> bool {
        self.disturbed.lock().unwrap().is_some_and(|disturbed| disturbed.elapsed() < AFTERMATH)
    }
}

/// The traffic, and its results.
struct Mix<'s> {
    soak: &'s Soak<'s>,
    began: Instant,
    asked: HashMap<usize, (Kind, Option<String>)>,
    /// Subject tokens that have not been exchanged yet.
    outstanding: VecDeque<String>,
    /// A used token and since when it is replayed.
    used: Option<(String, Instant)>,
    answers: BTreeMap<(Kind, u16), usize>,
    excused: BTreeMap<(Kind, u16), usize>,
    wrong: Vec<String>,
    /// For each success: the time of the request, and its latency.
    latencies: Vec<(Duration, Duration)>,
}

impl<'s> Mix<'s> {
    fn new(soak: &'s Soak<'s>) -> Self {
        Self {
            soak,
            began: Instant::now(),
            asked: HashMap::new(),
            outstanding: VecDeque::new(),
            used: None,
            answers: BTreeMap::new(),
            excused: BTreeMap::new(),
            wrong: Vec::new(),
            latencies: Vec::new(),
        }
    }

    /// Returns the latencies of one quarter of the run, in milliseconds.
    fn within(&self, length: Duration, quarter: u32) -> Vec<f64> {
        let quarter = length / 4 * quarter..length / 4 * (quarter + 1);
        let within = self.latencies.iter().filter(|(at, _)| quarter.contains(at));
        within.map(|(_, took)| took.as_secs_f64() * 1e3).collect()
    }
}

impl Traffic for Mix<'_> {
    fn request(&mut self, number: usize) -> Vec<u8> {
        let mut kind = MIX[number % MIX.len()];
        let token = match kind {
            Kind::Exchange | Kind::ExchangeWithActor => self.outstanding.pop_front(),
            Kind::Replay => self.used.as_ref().map(|(token, _)| token.clone()),
            _ => None,
        };
        if token.is_none()
            && matches!(kind, Kind::Exchange | Kind::ExchangeWithActor | Kind::Replay)
        {
            kind = Kind::Mint;
        }
        let body = json!({
            "userId": "u-1", "context": {"ticketId": "T-1", "reason": "soak", "supportEngineerId": "eng-42"},
        });
        let named = token.as_deref().unwrap_or_default();
        let request = match kind {
            Kind::Mint => mint_body_request(&body),
            Kind::MintByOpaqueToken => {
                Request::post("/api/subject-tokens").bearer(&format!("opaque-{number}")).json(&body)
            }
            Kind::Exchange => portal_request(named),
            Kind::ExchangeWithActor => {
                exchange_request(&with_actor(exchange_form(named), &format!("opaque-{number}")))
            }
            Kind::Replay => exchange_request(&exchange_form(named)),
            Kind::MalformedForm => exchange_request(&exchange_form("sub_").add("scope", "again")),
            Kind::UnknownBearer => Request::post("/api/subject-tokens").bearer("a.b.c").json(&body),
            Kind::Document => Request::get("/oidc/jwks"),
            Kind::PassingThrough => Request::get(&format!("/anything/{number}")),
        };
        self.asked.insert(number, (kind, token));
        request.to_bytes()
    }

    fn replied(&mut self, number: usize, reply: Reply) {
        let (kind, token) = self.asked.remove(&number).unwrap();
        *self.answers.entry((kind, reply.status)).or_default() += 1;
        if reply.status != kind.expected() {
            if self.soak.may_fail() && matches!(reply.status, 0 | 408 | 503 | 504) {
                *self.excused.entry((kind, reply.status)).or_default() += 1;
            } else {
                self.wrong.push(format!(
                    "{kind:?}: {} {}",
                    reply.status,
                    reply.body.escape_ascii()
                ));
            }
            return;
        }
        self.latencies.push((self.began.elapsed(), reply.latency));
        match kind {
            Kind::Mint | Kind::MintByOpaqueToken => {
                let body: Value = serde_json::from_slice(&reply.body).unwrap();
                self.outstanding.push_back(body["subjectToken"].as_str().unwrap().to_owned());
            }
            Kind::Exchange | Kind::ExchangeWithActor
                if self.used.as_ref().is_none_or(|(_, since)| since.elapsed() > REPLAYED_FOR) =>
            {
                self.used = token.map(|token| (token, Instant::now()));
            }
            _ => {}
        }
    }
}

fn median(samples: &[Sample], value: impl Fn(&Sample) -> f64) -> f64 {
    quantile(samples.iter().map(value).collect(), 0.5)
}

fn quantile(mut values: Vec<f64>, at: f64) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * at).round() as usize]
}
