//! The leader of etcd fails while people approve and deny tokens and callers exchange them, all at
//! once and through both Envoys: no exchange succeeds before the last approval, none after a
//! denial, and one at most.
//!
//! Every request is noted with the moments before it was sent and after it was answered. An answer
//! 503 means that the outcome is unknown, and the request is sent again. A person who repeats a
//! decision is told if it counts.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::{self, join_all};
use serde_json::json;

use testkit::RUNTIME;
use testkit::client::{Answer, Client};
use testkit::configuration::{Configuration, ISSUER, PROVIDER_KEY, jwks};
use testkit::etcd::{self, Etcd};
use testkit::gateway::{Gateway, backend_claims, exchange_form, exchange_request, now};
use testkit::http::Request;
use testkit::network::{Machine, in_a_hub, three_machines};
use testkit::over::Over;

use crate::Length;
use crate::contest::{BACK_AFTER, Step};
use crate::leader::{gateways, inflict, records, unknown_spends};
use crate::watch::Timeline;

/// The tokens that are contested at the same time.
const CONTESTS: usize = 12;
/// The callers who present one token.
const PRESENTERS: usize = 6;
/// The callers that mint. A mint without an answer leaves a token that nobody decides about, and
/// each caller holds only a thousand of them.
const CALLERS: usize = 64;
/// The two who approve, and the one who denies every second token.
const PEOPLE: [&str; 3] = ["dana", "eli", "fay"];
/// The pause before a caller presents a waiting token again.
const PAUSE: Duration = Duration::from_millis(5);
/// The longest pause before a person decides, so that decisions and exchanges meet in many orders.
const HESITATION: u64 = 40;

#[test]
fn no_token_is_exchanged_before_its_last_approval_or_after_a_denial_while_leaders_fail() {
    let name =
        "no_token_is_exchanged_before_its_last_approval_or_after_a_denial_while_leaders_fail";
    in_a_hub(&format!("approvals::{name}"), || {
        let machines = three_machines();
        let nodes = Etcd::start_on(&machines);
        let people = json!({"authentication": {"jwt": [{
            "issuer": ISSUER, "name_prefix": "", "audiences": ["people"],
            "local_jwks": jwks(&[&PROVIDER_KEY]),
        }]}});
        let configuration = Configuration::default().with("/approvals", people);
        run(&machines, &nodes, &gateways(&nodes, &configuration), Length::wanted());
    });
}

fn run(machines: &[Machine; 3], nodes: &[Etcd; 3], gateways: &[Gateway; 2], length: Length) {
    let (faults, tokens) = (length.faults.div_ceil(2), 2 * length.tokens);
    let (timeline, tally, over) = (Timeline::new(), Tally::default(), Over::default());
    let envoys = [gateways[0].address(), gateways[1].address()];
    let began = Instant::now();
    let inflicted = std::thread::scope(|scope| {
        let (timeline, tally, over) = (&timeline, &tally, &over);
        let load =
            scope.spawn(move || RUNTIME.block_on(load(&envoys, nodes, timeline, tally, over)));
        let all = over.when_dropped();
        let inflicted = inflict(machines, nodes, timeline, (faults, tokens), &tally.contests);
        drop(all);
        load.join().unwrap();
        inflicted
    });
    let took = began.elapsed();

    let (records, unknown) = (records(nodes), unknown_spends(gateways));
    let histories = tally.finished.into_inner().unwrap();
    let (mut wrong, mut outcomes) = (Vec::new(), BTreeMap::new());
    for (token, history) in &histories {
        let written = records.get(&etcd::record_name(token)).copied().unwrap_or(0);
        match history.judge(written, unknown.contains(&etcd::audited_id(token))) {
            Ok(outcome) => *outcomes.entry(outcome).or_insert(0_usize) += 1,
            Err(rule) => wrong.push(format!("{rule}: {history:?}, written {written} times")),
        }
    }
    let presented = histories.iter().map(|(_, history)| history.presented.len()).sum::<usize>();
    println!("\nchaos with approvals: {:.0} s", took.as_secs_f64());
    println!("  tokens      {} contested, presented {presented} times", histories.len());
    println!("  faults      {}", inflicted.len());
    println!("  answers     {:?}", tally.statuses.into_inner().unwrap());
    println!("  outcomes    {outcomes:?}");
    assert!(
        wrong.is_empty(),
        "{} tokens, such as {:#?}",
        wrong.len(),
        &wrong[..wrong.len().min(3)]
    );
    assert!(histories.len() >= tokens, "{}", histories.len());
    for outcome in [Outcome::Denied, Outcome::Exchanged] {
        assert!(outcomes.contains_key(&outcome), "no token was {outcome:?}: {outcomes:?}");
    }
}

#[derive(Default)]
struct Tally {
    /// The number of contests that have ended.
    contests: AtomicUsize,
    /// The tokens, and what happened to them.
    finished: Mutex<Vec<(String, History)>>,
    statuses: Mutex<BTreeMap<(&'static str, u16), usize>>,
    /// The number of the next moment.
    moment: AtomicU64,
}

impl Tally {
    fn now(&self) -> u64 {
        self.moment.fetch_add(1, Ordering::SeqCst)
    }

    fn count(&self, name: &'static str, answer: &Answer) {
        *self.statuses.lock().unwrap().entry((name, answer.status)).or_insert(0) += 1;
    }
}

/// A request: the moment before it was sent, the moment after its answer, and the answer.
#[derive(Clone, Debug)]
struct Asked<T> {
    from: u64,
    until: u64,
    told: T,
}

/// The kinds of answers to a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Decided {
    /// 200: the decision counts, and this is the state now.
    State(String),
    /// 409: others have decided.
    TooLate,
    /// 503: the decision may count.
    ComeBack,
    /// Any other answer.
    Else(String),
}

/// The kinds of answers to an exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Told {
    HereItIs,
    /// 400 `authorization_pending`
    Waits,
    /// 400 `access_denied`
    Denied,
    /// 400: the subject token was already used.
    Used,
    /// 503: the caller shall retry.
    ComeBack,
    Else(String),
}

impl Decided {
    fn of(answer: &Answer) -> Self {
        match answer.status {
            200 => Self::State(answer.member("state").unwrap_or_default()),
            409 => Self::TooLate,
            _ if answer.is_unavailable() => Self::ComeBack,
            _ => Self::Else(shown(answer)),
        }
    }
}

impl Told {
    fn of(answer: &Answer) -> Self {
        let error = answer.member("error").unwrap_or_default();
        let described = answer.member("error_description").unwrap_or_default();
        match (answer.status, &*error) {
            (200, _) if answer.member("access_token").is_some() => Self::HereItIs,
            (400, "authorization_pending") => Self::Waits,
            (400, "access_denied") => Self::Denied,
            (400, _) if described == "the subject token was already used" => Self::Used,
            _ if answer.is_unavailable() => Self::ComeBack,
            _ => Self::Else(shown(answer)),
        }
    }
}

fn shown(answer: &Answer) -> String {
    format!("{} {}", answer.status, String::from_utf8_lossy(&answer.body))
}

/// Contests tokens until the test is over.
async fn load(
    envoys: &[SocketAddr; 2],
    nodes: &[Etcd; 3],
    timeline: &Timeline,
    tally: &Tally,
    over: &Over,
) {
    let callers: Vec<_> = (0..CALLERS).map(caller).collect();
    let approvers = PEOPLE.map(approver);
    let contests = join_all((0..CONTESTS).map(async |number| {
        let mut people = Parties::new(envoys);
        let mut index = number;
        while !over.is_over() {
            index += 1;
            let caller = &callers[fastrand::usize(..CALLERS)];
            let denies = index % 2 == 0;
            if let Some(contest) = people.contest(caller, &approvers, denies, timeline, tally).await
            {
                tally.finished.lock().unwrap().push(contest);
                tally.contests.fetch_add(1, Ordering::Relaxed);
            }
        }
    }));
    let watches =
        join_all(nodes.iter().enumerate().map(|(node, etcd)| timeline.watch(node, etcd.health)));
    // Some contests go on until they have an answer, which may never come after a failure.
    let others = future::select(Box::pin(watches), Box::pin(over.has_failed()));
    future::select(Box::pin(contests), others).await;
}

/// The access token of a caller that mints.
fn caller(number: usize) -> String {
    let name = format!("backend-{number}");
    let mut claims = backend_claims();
    (claims["sub"], claims["client_id"]) = (json!(name), json!(name));
    PROVIDER_KEY.sign(&claims)
}

/// The access token of a person who approves.
fn approver(name: &str) -> String {
    PROVIDER_KEY.sign(&json!({
        "iss": ISSUER, "sub": name, "client_id": "console", "aud": "people", "iat": now(),
        "exp": now() + 7200, "scope": "impersonations:approve",
    }))
}

/// Connections for all who take part in a contest, through both Envoys in turn.
struct Parties {
    backends: [Client; 2],
    people: [Client; 3],
    presenters: [Client; PRESENTERS],
}

impl Parties {
    fn new(envoys: &[SocketAddr; 2]) -> Self {
        Self {
            backends: envoys.map(Client::new),
            people: std::array::from_fn(|index| Client::new(envoys[index % 2])),
            presenters: std::array::from_fn(|index| Client::new(envoys[index % 2])),
        }
    }

    /// Mints a token, and has all decide about it and present it at once. Returns `None` if the
    /// mint was refused.
    async fn contest(
        &mut self,
        caller: &str,
        approvers: &[String; 3],
        denies: bool,
        timeline: &Timeline,
        tally: &Tally,
    ) -> Option<(String, History)> {
        let envoy = fastrand::usize(..2);
        let body = json!({"userId": "u-1", "approvals": 2});
        let mint = Request::post("/api/subject-tokens").bearer(caller).json(&body).to_bytes();
        let minted = self.backends[envoy].send(&mint).await;
        timeline.note(Step::Mint(envoy), &minted);
        tally.count("mint", &minted);
        let Some(token) = minted.member("subjectToken").filter(|_| minted.status == 201) else {
            tokio::time::sleep(BACK_AFTER).await;
            return None;
        };

        let path = format!("/api/approvals/{}", etcd::audited_id(&token));
        let decision = |person: usize| {
            let decision = if person == 2 { "deny" } else { "approve" };
            let request = Request::post(&path).bearer(&approvers[person]);
            request.json(&json!({"decision": decision})).to_bytes()
        };
        let exchange = exchange_request(&exchange_form(&token)).to_bytes();
        let are_decided = Cell::new(false);
        let present = async |envoy: usize, client: &mut Client| {
            let from = tally.now();
            let answer = client.send(&exchange).await;
            timeline.note(Step::Exchange(envoy), &answer);
            tally.count("exchange", &answer);
            Asked { from, until: tally.now(), told: Told::of(&answer) }
        };
        let decide = async |(person, client): (usize, &mut Client)| {
            if person == 2 && !denies {
                return Vec::new();
            }
            tokio::time::sleep(Duration::from_millis(fastrand::u64(..HESITATION))).await;
            let request = decision(person);
            let mut tries = Vec::new();
            loop {
                let from = tally.now();
                let answer = client.send(&request).await;
                tally.count("decision", &answer);
                let told = Decided::of(&answer);
                tries.push(Asked { from, until: tally.now(), told: told.clone() });
                if told != Decided::ComeBack {
                    return tries;
                }
                tokio::time::sleep(BACK_AFTER).await;
            }
        };
        let decides = async {
            let decided = join_all(self.people.iter_mut().enumerate().map(decide)).await;
            are_decided.set(true);
            decided
        };
        let presents = self.presenters.iter_mut().enumerate().map(async |(index, client)| {
            let mut presented = Vec::new();
            loop {
                let asked = present(index % 2, client).await;
                let told = asked.told.clone();
                presented.push(asked);
                if are_decided.get() || !matches!(told, Told::Waits | Told::ComeBack) {
                    return presented;
                }
                tokio::time::sleep(PAUSE).await;
            }
        });
        let (decided, presented) = future::join(decides, join_all(presents)).await;
        let mut presented = presented.concat();
        // The last answer is a definite one.
        loop {
            let index = fastrand::usize(..PRESENTERS);
            let asked = present(index % 2, &mut self.presenters[index]).await;
            let is_last = asked.told != Told::ComeBack;
            presented.push(asked);
            if is_last {
                break;
            }
            tokio::time::sleep(BACK_AFTER).await;
        }
        let [one, other, denial] = <[_; 3]>::try_from(decided).unwrap();
        Some((token, History { approvals: [one, other], denial, presented }))
    }
}

/// Everything that was asked about one token that two people must approve.
#[derive(Debug)]
struct History {
    approvals: [Vec<Asked<Decided>>; 2],
    /// Empty if nobody denies.
    denial: Vec<Asked<Decided>>,
    /// The exchanges. The last one came after all others, and has a definite answer.
    presented: Vec<Asked<Told>>,
}

/// The end of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Denied,
    Exchanged,
    /// The token was spent by an exchange whose answer was 503.
    SpentUnknown,
}

/// Returns true if the last answer says that the decision counts.
fn counts(tries: &[Asked<Decided>]) -> bool {
    matches!(tries.last(), Some(Asked { told: Decided::State(_), .. }))
}

impl History {
    /// Returns the end of the token, or the rule that was broken. `written` is the number of times
    /// that etcd says the record was written: by the mint, each decision, and the spend. `unknown`
    /// is true if an Envoy's log says that the outcome of a spend is unknown.
    fn judge(&self, written: u64, unknown: bool) -> Result<Outcome, String> {
        let decisions = || self.approvals.iter().chain([&self.denial]).flatten();
        if let Some(asked) = decisions().find(|asked| matches!(asked.told, Decided::Else(_))) {
            return Err(format!("somebody who decides was told {:?}", asked.told));
        }
        if let Some(asked) = self.presented.iter().find(|asked| matches!(asked.told, Told::Else(_)))
        {
            return Err(format!("a caller was told {:?}", asked.told));
        }
        let approved = self.approvals.iter().filter(|tries| counts(tries)).count();
        let denied = counts(&self.denial);
        match (approved, denied) {
            (2, true) => return Err("it is approved and denied".into()),
            (0 | 1, false) => return Err("an approval does not count, and nobody denied".into()),
            _ => {}
        }
        // The decision of somebody who was told "too late" may have counted before a denial, if its
        // answer was lost.
        let perhaps = self.approvals.iter().filter(|tries| {
            !counts(tries) && tries.iter().any(|asked| asked.told == Decided::ComeBack)
        });
        let perhaps = perhaps.count() as u64;

        let told = |told: Told| self.presented.iter().filter(move |asked| asked.told == told);
        let wins: Vec<_> = told(Told::HereItIs).collect();
        if wins.len() > 1 {
            return Err("it is exchanged twice".into());
        }
        let first = |tries: &[Asked<Decided>]| tries.first().map_or(u64::MAX, |asked| asked.from);
        let last = |tries: &[Asked<Decided>]| tries.last().map_or(u64::MAX, |asked| asked.until);
        let not_before = self.approvals.iter().map(|tries| first(tries)).max().unwrap();
        let at_the_latest = self.approvals.iter().map(|tries| last(tries)).max().unwrap();
        let spent = wins.len() as u64 + u64::from(wins.is_empty() && told(Told::Used).count() > 0);
        if denied && spent > 0 {
            return Err("it is exchanged and denied".into());
        }
        if wins
            .iter()
            .chain(&told(Told::Used).collect::<Vec<_>>())
            .any(|asked| asked.until < not_before)
        {
            return Err("it is exchanged before its last approval".into());
        }
        if told(Told::Denied).any(|asked| asked.until < first(&self.denial)) {
            return Err("a caller was told of a denial before there was one".into());
        }
        let settled = if denied { last(&self.denial) } else { at_the_latest };
        if told(Told::Waits).any(|asked| asked.from > settled) {
            return Err("it waits after everything is decided".into());
        }
        let at_last = &self.presented.last().unwrap().told;
        let outcome = match (denied, spent, at_last) {
            (true, 0, Told::Denied) => Outcome::Denied,
            (false, 1, Told::HereItIs | Told::Used) if !wins.is_empty() => Outcome::Exchanged,
            (false, 1, Told::Used) if unknown && told(Told::ComeBack).count() > 0 => {
                Outcome::SpentUnknown
            }
            (_, _, told) => {
                return Err(format!(
                    "the last answer is {told:?}, denied: {denied}, spent: {spent}"
                ));
            }
        };
        let least = 1 + approved as u64 + u64::from(denied) + spent;
        if !(least..=least + perhaps).contains(&written) {
            return Err(format!(
                "it should have been written {least} times, {perhaps} more perhaps"
            ));
        }
        Ok(outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked<T>((from, until, told): (u64, u64, T)) -> Asked<T> {
        Asked { from, until, told }
    }

    fn state(state: &str) -> Decided {
        Decided::State(state.into())
    }

    /// Shows that `judge` finds each kind of fault.
    #[test]
    fn a_history_is_judged_by_every_answer_and_by_etcds_own_record() {
        use Told::{ComeBack, Denied, HereItIs, Used, Waits};
        let pending = || vec![(10, 11, state("pending"))];
        let approved = || vec![(12, 15, state("approved"))];
        let late = || vec![(12, 15, Decided::TooLate)];
        let lost = || vec![(10, 11, Decided::ComeBack), (16, 17, Decided::TooLate)];
        let denies = || vec![(12, 14, state("denied"))];
        let nobody = Vec::new;
        let end = |told| (30, 31, told);
        #[rustfmt::skip]
        let cases = [
            (pending(), approved(), nobody(), vec![(1, 2, Waits), (13, 14, HereItIs), end(Used)],    4, false, Ok(Outcome::Exchanged)),
            (pending(), approved(), nobody(), vec![(1, 2, Waits), end(HereItIs)],                    4, false, Ok(Outcome::Exchanged)),
            (pending(), approved(), nobody(), vec![(16, 17, ComeBack), end(Used)],                   4, true,  Ok(Outcome::SpentUnknown)),
            (pending(), late(),     denies(), vec![(1, 2, Waits), end(Denied)],                      3, false, Ok(Outcome::Denied)),
            (lost(),    late(),     denies(), vec![(1, 2, Waits), end(Denied)],                      2, false, Ok(Outcome::Denied)),
            (lost(),    late(),     denies(), vec![(1, 2, Waits), end(Denied)],                      3, false, Ok(Outcome::Denied)),
            (pending(), approved(), nobody(), vec![(13, 14, HereItIs), end(HereItIs)],               4, false, Err("it is exchanged twice")),
            (pending(), approved(), nobody(), vec![(8, 11, HereItIs), end(Used)],                    4, false, Err("it is exchanged before its last approval")),
            (pending(), approved(), nobody(), vec![(8, 11, Used), end(Used)],                        4, true,  Err("it is exchanged before its last approval")),
            (pending(), approved(), nobody(), vec![(16, 17, Waits), end(HereItIs)],                  4, false, Err("it waits after everything is decided")),
            (pending(), approved(), denies(), vec![end(Denied)],                                     4, false, Err("it is approved and denied")),
            (pending(), late(),     nobody(), vec![end(Waits)],                                      2, false, Err("an approval does not count, and nobody denied")),
            (pending(), late(),     denies(), vec![(13, 14, HereItIs), end(Denied)],                 3, false, Err("it is exchanged and denied")),
            (pending(), late(),     denies(), vec![(15, 16, Waits), end(Denied)],                    3, false, Err("it waits after everything is decided")),
            (pending(), late(),     denies(), vec![(5, 6, Denied), end(Denied)],                     3, false, Err("a caller was told of a denial before there was one")),
            (pending(), late(),     denies(), vec![end(Used)],                                       3, false, Err("it is exchanged and denied")),
            (pending(), approved(), nobody(), vec![end(Used)],                                       4, false, Err("the last answer is Used, denied: false, spent: 1")),
            (pending(), approved(), nobody(), vec![end(Denied)],                                     3, false, Err("a caller was told of a denial before there was one")),
            (pending(), approved(), nobody(), vec![(16, 17, ComeBack)],                              3, false, Err("the last answer is ComeBack, denied: false, spent: 0")),
            (pending(), approved(), nobody(), vec![end(HereItIs)],                                   5, false, Err("it should have been written 4 times, 0 more perhaps")),
            (pending(), approved(), nobody(), vec![end(HereItIs)],                                   3, false, Err("it should have been written 4 times, 0 more perhaps")),
            (lost(),    late(),     denies(), vec![end(Denied)],                                     4, false, Err("it should have been written 2 times, 1 more perhaps")),
            (pending(), approved(), nobody(), vec![end(Told::Else("500".into()))],                   4, false, Err("a caller was told Else(\"500\")")),
            (pending(), vec![(12, 13, Decided::Else("404".into()))], nobody(), vec![end(Waits)],     2, false, Err("somebody who decides was told Else(\"404\")")),
        ];
        for (number, (one, other, denial, presented, written, unknown, expected)) in
            cases.into_iter().enumerate()
        {
            let all = |tries: Vec<_>| tries.into_iter().map(asked).collect::<Vec<_>>();
            let presented = presented.into_iter().map(asked).collect();
            let history =
                History { approvals: [all(one), all(other)], denial: all(denial), presented };
            let judged = history.judge(written, unknown);
            assert_eq!(judged, expected.map_err(str::to_owned), "{number}: {history:?}");
        }
    }
}
