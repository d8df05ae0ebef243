//! Sixteen callers want each of very many subject tokens, on four workers, while configurations
//! change and VMs crash. Exactly one of them gets an access token.
//!
//! A caller is answered 503 or 408 if a VM has just crashed, and may retry. The test checks that no
//! subject token yields two access tokens, that no subject token is "already used" for everybody,
//! and that the filter's own count of exchanges is the number of successes.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::json;
use testkit::bootstrap::{Bootstrap, Filter, Listener};
use testkit::client::{Answer, Client};
use testkit::configuration::Configuration;
use testkit::envoy::Envoy;
use testkit::gateway::{exchange_form, exchange_request, mint_request};
use testkit::over::Over;
use testkit::{Findings, RUNTIME};
use tokio::runtime;

use crate::crash::{crash, crashes, crashing_module};
use crate::from_environment;

const WORKERS: u32 = 4;
const RIVALS: usize = 16;
/// The tokens of one round. All callers present them in the same order, so that the workers meet at
/// each.
const AT_ONCE: usize = 64;
/// The tokens of one round that each caller mints.
const SHARE: usize = AT_ONCE / RIVALS;

const USED: &str = "the subject token was already used";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Told {
    HereItIs,
    Used,
    /// A VM has crashed: 503, or 408 for a request that it had half read.
    ComeBack,
    /// The connection broke.
    Nothing,
    Else(u16),
}

impl Told {
    fn of(answer: &Answer) -> Self {
        let description = answer.member("error_description");
        match (answer.status, description.as_deref()) {
            (0, _) => Self::Nothing,
            (200, _) if answer.member("access_token").is_some() => Self::HereItIs,
            (400, Some(USED)) => Self::Used,
            (408 | 503, _) => Self::ComeBack,
            (status, _) => Self::Else(status),
        }
    }
}

/// The outcome of one token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// One of the simultaneous callers got it.
    Won,
    /// VMs had crashed, and a caller who retried got it.
    WonByComingBack,
    /// The token is used, no caller has got the access token, and a connection broke.
    AnswerLost,
    /// Any other outcome: a fault.
    Wrong,
}

async fn judge(told: &[Told], come_back: impl Future<Output = Told>) -> Outcome {
    let count = |wanted| told.iter().filter(|one| **one == wanted).count();
    if told.iter().any(|one| matches!(one, Told::Else(_))) {
        return Outcome::Wrong;
    }
    match (count(Told::HereItIs), count(Told::Nothing)) {
        (1, _) => Outcome::Won,
        (0, lost) if lost + count(Told::ComeBack) > 0 => match come_back.await {
            Told::HereItIs => Outcome::WonByComingBack,
            Told::Used if lost > 0 => Outcome::AnswerLost,
            _ => Outcome::Wrong,
        },
        _ => Outcome::Wrong,
    }
}

/// Shows that `judge` finds each kind of fault.
#[test]
fn a_token_is_judged_by_every_answer() {
    use Told::{ComeBack, Else, HereItIs, Nothing, Used};
    #[rustfmt::skip]
    let cases = [
        (vec![Used, HereItIs, ComeBack, Nothing], Else(0),  Outcome::Won),
        (vec![HereItIs, HereItIs, Used],          Else(0),  Outcome::Wrong),
        (vec![HereItIs, Else(500)],               Else(0),  Outcome::Wrong),
        (vec![Used, Used],                        HereItIs, Outcome::Wrong),
        (vec![ComeBack, ComeBack],                HereItIs, Outcome::WonByComingBack),
        (vec![ComeBack, Used],                    Used,     Outcome::Wrong),
        (vec![Nothing, Used],                     Used,     Outcome::AnswerLost),
        (vec![Nothing, ComeBack],                 Else(400), Outcome::Wrong),
    ];
    for (told, at_last, outcome) in cases {
        let judged = RUNTIME.block_on(judge(&told, async { at_last }));
        assert_eq!(judged, outcome, "{told:?}");
    }
}

fn listener(configuration: &Configuration, module: &Path) -> Listener {
    let mut filter = Filter::from(configuration);
    filter.module = Some(module.to_owned());
    let listener = Listener::new("gateway").filter(filter).answer("/", "not ours");
    // A request that a crashing VM has half read hangs until this time is up.
    listener.keeps_connections().patience("1s").watched()
}

#[test]
fn each_token_is_exchanged_once_while_configurations_change_and_vms_crash() {
    let tokens = from_environment("RACE_TOKENS", 3000);
    // Enough disturbances of each kind, and far enough apart that all workers serve most of the
    // time.
    let disturbances = (tokens / 5000).clamp(4, 100);
    let module = crashing_module();
    // Fifteen of sixteen callers present a used token. With `on_replay: revoke` each would end the
    // impersonation, and most of the work would be in the table of revocations.
    let plain = Configuration::default().with("/subject_tokens/on_replay", "report");
    let configurations = [
        plain.clone(),
        plain.clone().with("/access_tokens/lifetime", "1800s"),
        plain.clone().with("/subject_tokens/max_context_bytes", 100),
        plain.clone().with("/resources/-", json!({"indicator": "urn:example:more"})),
    ];
    let listeners = configurations.map(|configuration| listener(&configuration, &module));
    let envoy =
        Bootstrap::default().listener(listeners[0].clone()).workers(WORKERS).drain_seconds(2);
    let envoy = envoy.start();
    // One log line for each request is not needed here.
    envoy.set_log_level("wasm", "error");

    let race = Race { envoy: &envoy, tokens, judged: AtomicUsize::new(0), over: Over::default() };
    let began = Instant::now();
    let (sheet, (crashed, changed)) = thread::scope(|scope| {
        let disturber = scope.spawn(|| race.disturb(disturbances, &listeners));
        let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let all = race.over.when_dropped();
        let sheet = runtime.block_on(race.run());
        drop(all);
        (sheet, disturber.join().unwrap())
    });
    let took = began.elapsed();

    let mut findings = Findings::default();
    println!("{tokens} tokens in {took:.0?}: {:?}", sheet.outcomes);
    println!("told: {:?}", sheet.told);
    println!("{crashed} crashes, {changed} configurations; as the filter has counted:");
    for (name, count) in envoy.metrics().into_iter().filter(|(_, count)| *count > 0) {
        println!("  {name}: {count}");
    }
    sheet.wrong.iter().for_each(|wrong| findings.add(wrong));
    let of = |outcome| sheet.outcomes.get(&outcome).copied().unwrap_or(0);
    let spent = of(Outcome::Won) + of(Outcome::WonByComingBack) + of(Outcome::AnswerLost);
    findings.expect("wrong", &of(Outcome::Wrong), &0);
    let counted = envoy.metric("impersonation_subject_tokens_exchanged_total");
    findings.expect("exchanges that the filter has counted", &counted, &Some(spent as u64));
    findings.expect("VMs crashed", &(crashes(&envoy) >= crashed), &true);
    findings.expect("the same process", &envoy.is_running(), &true);
}

/// The results so far.
#[derive(Default)]
struct Sheet {
    outcomes: BTreeMap<Outcome, usize>,
    told: BTreeMap<Told, usize>,
    /// The faults, token by token.
    wrong: Vec<String>,
}

struct Race<'e> {
    envoy: &'e Envoy,
    tokens: usize,
    /// The number of judged tokens.
    judged: AtomicUsize,
    over: Over,
}

impl Race<'_> {
    /// Mints tokens and has all callers exchange them, until there were enough.
    async fn run(&self) -> Sheet {
        let mut rivals: Vec<_> =
            (0..RIVALS).map(|_| Client::new(self.envoy.address("gateway"))).collect();
        let mut sheet = Sheet::default();
        while self.judged.load(Ordering::Relaxed) < self.tokens {
            let minted = join_all(rivals.iter_mut().map(mint_a_share)).await.concat();
            let tokens: Vec<_> = minted
                .into_iter()
                .filter_map(|minted| match minted {
                    Ok(token) => Some(token),
                    Err(wrong) => {
                        sheet.wrong.extend(wrong);
                        None
                    }
                })
                .collect();
            let requests: Vec<_> = tokens.iter().map(|token| exchange(token)).collect();
            let told = join_all(rivals.iter_mut().map(|rival| want_all(rival, &requests))).await;
            for (place, request) in requests.iter().enumerate() {
                let told: Vec<_> = told.iter().map(|told| told[place]).collect();
                let outcome = judge(&told, come_back(&mut rivals[0], request)).await;
                if outcome == Outcome::Wrong {
                    sheet.wrong.push(format!("{told:?}"));
                }
                *sheet.outcomes.entry(outcome).or_default() += 1;
                told.into_iter().for_each(|one| *sheet.told.entry(one).or_default() += 1);
            }
            self.judged.fetch_add(tokens.len(), Ordering::Relaxed);
        }
        sheet
    }

    /// Crashes VMs and changes the configuration in turn, `times` times, during the race. Returns
    /// the number of each.
    fn disturb(&self, times: usize, listeners: &[Listener]) -> (usize, usize) {
        let (mut crashed, mut changed) = (0, 0);
        for time in 0..times {
            let due = self.tokens * time / times;
            while self.judged.load(Ordering::Relaxed) < due && !self.over.is_over() {
                thread::sleep(Duration::from_millis(5));
            }
            if time % 2 == 0 {
                crash(self.envoy);
                crashed += 1;
            } else {
                changed += 1;
                self.envoy.update(listeners[changed % listeners.len()].clone()).unwrap();
            }
        }
        (crashed, changed)
    }
}

/// Mints a caller's share. Returns the tokens, and what is wrong with an answer without a token, if
/// anything.
async fn mint_a_share(rival: &mut Client) -> Vec<Result<String, Option<String>>> {
    let mint = mint_request("u-1").to_bytes();
    let mut minted = Vec::with_capacity(SHARE);
    for _ in 0..SHARE {
        let answer = rival.send(&mint).await;
        minted.push(match answer.status {
            201 => Ok(answer.member("subjectToken").unwrap()),
            0 | 408 | 503 => Err(None),
            status => Err(Some(format!("minting: {status} {}", answer.body.escape_ascii()))),
        });
    }
    minted
}

async fn want_all(rival: &mut Client, requests: &[Vec<u8>]) -> Vec<Told> {
    let mut told = Vec::with_capacity(requests.len());
    for request in requests {
        told.push(Told::of(&rival.send(request).await));
    }
    told
}

/// Returns the final answer about a token.
async fn come_back(rival: &mut Client, request: &[u8]) -> Told {
    let deadline = Instant::now() + Duration::from_secs(120);
    while Instant::now() < deadline {
        match Told::of(&rival.send(request).await) {
            Told::ComeBack | Told::Nothing => tokio::time::sleep(Duration::from_millis(20)).await,
            told => return told,
        }
    }
    Told::ComeBack
}

fn exchange(token: &str) -> Vec<u8> {
    exchange_request(&exchange_form(token)).to_bytes()
}
