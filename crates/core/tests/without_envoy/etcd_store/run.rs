//! Actors that share one etcd, and every order in which their calls can arrive, fail or get lost.

use std::rc::Rc;
use std::time::Duration;

use impersonation_core::fakes::{self, Etcd, FakeHost, another_envoy, play_in_etcd as play};
use impersonation_core::host::Host;
use impersonation_core::policy::Bounds;
use impersonation_core::secret::Secret;
use impersonation_core::state::etcd::{RecordKeys, Server};
use impersonation_core::state::impersonations::LiveImpersonation;
use impersonation_core::state::remote::Beside;
use impersonation_core::state::storage::{List, Store};
use impersonation_core::state::store::{
    Cancelled, Choice, Exchange, Found, Grant, Mint, NotDecided, NotSpent, Person, Review,
    SubjectToken,
};
use impersonation_core::step::{Call, Context, GrpcCall, GrpcStatus, Reply, Step, Task};

pub(crate) const LIFETIME: Duration = Duration::from_secs(600);

/// The longest life of an access token.
const AFTERLIFE: Duration = Duration::from_secs(3600);

/// The outcome of an exchange, a mint, or of taking a token back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Won,
    AlreadySpent,
    /// The token had been taken back.
    WasCancelled,
    /// The token waits for a decision.
    Waits,
    /// Somebody has denied the token.
    WasDenied,
    /// The decision counts.
    Counted,
    /// The decision came too late.
    TooLate,
    /// 503: the decision does not count.
    NotDecided,
    /// 503: perhaps the decision counts.
    DecisionUnknown,
    /// The token is now taken back.
    TakenBack,
    /// 503: perhaps the token is taken back.
    CancelUnknown,
    Expired,
    NoSuchToken,
    /// 503: nothing was written.
    Failed,
    /// 503: perhaps the token is spent.
    SpendUnknown,
    Minted(String),
}

/// The store in shared data that the service had before etcd.
pub(crate) fn shared_data() -> Rc<Store> {
    Rc::new(Store::shared_data("tenant", 10, LIFETIME))
}

/// The keys that seal records, as if they were derived from signing keys.
pub(crate) fn record_keys(keys: &[u8]) -> RecordKeys {
    RecordKeys::new(keys.iter().map(|key| Secret::new([*key; 16])).collect())
}

/// One Envoy's store.
pub(crate) fn store() -> Rc<Store> {
    store_with(&[1])
}

/// One Envoy's store, with other signing keys.
pub(crate) fn store_with(keys: &[u8]) -> Rc<Store> {
    Rc::new(Store::etcd(&server(keys), "tenant", LIFETIME, AFTERLIFE))
}

fn server(keys: &[u8]) -> Rc<Server> {
    fakes::etcd_server(record_keys(keys))
}

/// Exchanges a token for an access token with this lifetime, and lists the impersonation.
pub(crate) fn spend_for(
    world: &Rc<FakeHost>,
    token: &str,
    lives: Duration,
    answer: impl FnMut(&GrpcCall) -> Result<Vec<u8>, u32>,
) -> Outcome {
    let server = server(&[1]);
    let store = Rc::new(Store::etcd(&server, "tenant", LIFETIME, lives));
    let entry = LiveImpersonation {
        id: "id".into(),
        user_id: "user-42".into(),
        actor_id: None,
        client_id: "console".into(),
        caller: "backend".into(),
        resource: "urn:r".into(),
        session: None,
        scope: String::new(),
        jti: String::new(),
        context: Vec::new(),
        issued_at_millis: world.now().millis(),
        expires_at_millis: world.now().after(lives).millis(),
    };
    let beside = List::etcd(&server, "tenant").beside(&entry).unwrap();
    assert!(beside.is_some());
    let (host, token) = (Rc::clone(world) as Rc<dyn Host>, token.to_owned());
    play(Task::start(host, None, |context| spend(store, context, token, beside)), answer)
}

pub(crate) async fn spend(
    store: Rc<Store>,
    context: Context,
    token: String,
    beside: Option<Beside>,
) -> Outcome {
    let token = SubjectToken::parse(&token).unwrap();
    let found = match store.find(&context, &token, &token.digest()).await {
        Ok(Found::Outstanding(found)) => found,
        Ok(Found::Spent(..)) => return Outcome::AlreadySpent,
        Ok(Found::Cancelled(_)) => return Outcome::WasCancelled,
        Ok(Found::Waiting(..)) => return Outcome::Waits,
        Ok(Found::Denied(..)) => return Outcome::WasDenied,
        Ok(Found::Expired(..)) => return Outcome::Expired,
        Ok(Found::Unknown) => return Outcome::NoSuchToken,
        Err(_) => return Outcome::Failed,
    };
    let exchange = Exchange {
        client_id: "console".into(),
        actor_id: None,
        request_id: String::new(),
        jti: String::new(),
        at_millis: context.host().now().millis(),
    };
    match store.spend(&context, found, exchange, beside).await {
        Ok(()) => Outcome::Won,
        Err(NotSpent::Already(_)) => Outcome::AlreadySpent,
        Err(NotSpent::Cancelled) => Outcome::WasCancelled,
        Err(NotSpent::Expired) => Outcome::Expired,
        Err(NotSpent::Forgotten) => Outcome::NoSuchToken,
        Err(NotSpent::Store(_)) => Outcome::Failed,
        Err(NotSpent::Unknown(_)) => Outcome::SpendUnknown,
    }
}

pub(crate) async fn mint(store: Rc<Store>, context: Context) -> Outcome {
    let now = context.host().now();
    let mint = Mint {
        caller: "backend".into(),
        request_id: String::new(),
        at_millis: now.millis(),
        bounds: Bounds::default(),
    };
    let grant = Grant { user_id: "user-42".into(), context: "{}".into() };
    match store.mint(&context, mint, grant, now.after(LIFETIME)).await {
        Ok((token, _)) => Outcome::Minted(token.reveal()),
        Err(_) => Outcome::Failed,
    }
}

async fn mint_for_review(store: Rc<Store>, context: Context, approvals: u8) -> Outcome {
    let now = context.host().now();
    let mint = Mint {
        caller: "backend".into(),
        request_id: String::new(),
        at_millis: now.millis(),
        bounds: Bounds::default(),
    };
    let grant = Grant { user_id: "user-42".into(), context: "{}".into() };
    let review = Review::needing(approvals, false, None);
    match store.mint_for_review(&context, mint, grant, review, now.after(LIFETIME)).await {
        Ok((token, _)) => Outcome::Minted(token.reveal()),
        Err(_) => Outcome::Failed,
    }
}

/// Begins to mint a token that this number of people must approve.
pub(crate) fn begin_mint_for_review(
    world: &Rc<FakeHost>,
    store: &Rc<Store>,
    approvals: u8,
) -> Step<Outcome> {
    let (host, store) = (Rc::clone(world) as Rc<dyn Host>, Rc::clone(store));
    Task::start(host, None, move |context| mint_for_review(store, context, approvals))
}

async fn decide(
    store: Rc<Store>,
    context: Context,
    token: String,
    name: String,
    choice: Choice,
) -> Outcome {
    let token = SubjectToken::parse(&token).unwrap();
    let id = token.id(&token.digest());
    let person = Person { name: &name, client_id: Some("console"), may_approve: true };
    let mut outcome = Outcome::NoSuchToken;
    let decided = store
        .decide(&context, &id, |known| {
            let choice = known.with(&person, choice, context.host().now());
            outcome = if choice.is_ok() { Outcome::Counted } else { Outcome::TooLate };
            choice.ok().flatten()
        })
        .await;
    match decided {
        Ok(_) => outcome,
        Err(NotDecided::Store(_)) => Outcome::NotDecided,
        Err(NotDecided::Unknown(_)) => Outcome::DecisionUnknown,
    }
}

/// Begins to approve or to deny a token.
pub(crate) fn begin_decision(
    world: &Rc<FakeHost>,
    token: &str,
    name: &str,
    choice: Choice,
) -> Step<Outcome> {
    let (host, store) = (Rc::clone(world) as Rc<dyn Host>, store());
    let (token, name) = (token.to_owned(), name.to_owned());
    Task::start(host, None, move |context| decide(store, context, token, name, choice))
}

async fn cancel(store: Rc<Store>, context: Context, token: String) -> Outcome {
    let token = SubjectToken::parse(&token).unwrap();
    let digest = token.digest();
    match store.cancel(&context, &token.id(&digest), |found, _| found.matches(&digest)).await {
        Ok(Cancelled::Yes(_)) => Outcome::TakenBack,
        Ok(Cancelled::Spent(..)) => Outcome::AlreadySpent,
        Ok(Cancelled::NotTheirs) => Outcome::NoSuchToken,
        Err(_) => Outcome::CancelUnknown,
    }
}

/// Begins to take a token back.
pub(crate) fn begin_cancel(world: &Rc<FakeHost>, store: &Rc<Store>, token: &str) -> Step<Outcome> {
    let (host, store, token) =
        (Rc::clone(world) as Rc<dyn Host>, Rc::clone(store), token.to_owned());
    Task::start(host, None, |context| cancel(store, context, token))
}

/// Begins a mint, or the exchange of a token.
pub(crate) fn begin(world: &Rc<FakeHost>, store: &Rc<Store>, token: Option<&str>) -> Step<Outcome> {
    let (host, store) = (Rc::clone(world) as Rc<dyn Host>, Rc::clone(store));
    match token.map(str::to_owned) {
        Some(token) => Task::start(host, None, |context| spend(store, context, token, None)),
        None => Task::start(host, None, |context| mint(store, context)),
    }
}

pub(crate) fn reply(answer: Result<Vec<u8>, u32>) -> Reply {
    Reply::Grpc(answer.map_err(GrpcStatus))
}

/// `UNAVAILABLE`: perhaps the write took effect.
pub(crate) const LOST: u32 = 14;

/// The actors of a search, and the faults that may happen.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Scenario {
    pub spenders: usize,
    pub minters: usize,
    pub cancellers: usize,
    /// The number of people who approve; all of them must.
    pub approvers: u8,
    /// The number of people who deny.
    pub deniers: u8,
    /// The number of calls that get lost, lose their answer, or arrive late.
    pub faults: usize,
    /// Time passes until the tokens expire, once.
    pub expires: bool,
    /// All leases are lost, once.
    pub loses_leases: bool,
    /// etcd compacts its history, once.
    pub compacts: bool,
    /// Deliberate mistakes in the store that the search must find.
    pub compares_nothing: bool,
    pub lies: bool,
}

/// A schedule, as the numbers of its choices.
struct Choices {
    script: Vec<usize>,
    taken: Vec<(usize, usize)>,
}

impl Choices {
    fn next(&mut self, of: usize) -> usize {
        let choice = self.script.get(self.taken.len()).copied().unwrap_or(0);
        self.taken.push((choice, of));
        choice
    }

    /// The schedule after this one; `None` after the last.
    fn following(&self) -> Option<Vec<usize>> {
        let last = self.taken.iter().rposition(|(choice, of)| choice + 1 < *of)?;
        let mut script: Vec<_> = self.taken[..=last].iter().map(|(choice, _)| *choice).collect();
        script[last] += 1;
        Some(script)
    }
}

enum Action {
    Answer(usize),
    /// The call never arrives.
    LoseRequest(usize),
    /// The call is performed, and its answer gets lost.
    LoseAnswer(usize),
    /// The call arrives after its sender gave up on it.
    Delay(usize),
    Arrive(usize),
    Expire,
    LoseLeases,
    Compact,
}

impl Scenario {
    /// Plays every schedule. Returns their number, or the rule that one of them breaks.
    pub(crate) fn explore(&self) -> Result<usize, String> {
        let (mut script, mut count) = (Vec::new(), 0);
        loop {
            let mut choices = Choices { script, taken: Vec::new() };
            self.play(&mut choices).map_err(|rule| format!("{rule}: {:?}", choices.taken))?;
            count += 1;
            match choices.following() {
                Some(next) => script = next,
                None => return Ok(count),
            }
        }
    }

    fn play(&self, choices: &mut Choices) -> Result<(), String> {
        let world = another_envoy();
        let mut etcd = Etcd::default();
        let has_review = self.approvers + self.deniers > 0;
        let mint = match has_review {
            true => begin_mint_for_review(&world, &store(), self.approvers.max(1)),
            false => begin(&world, &store(), None),
        };
        let minted = play(mint, |call| etcd.answer(call));
        let Outcome::Minted(token) = minted else { panic!("{minted:?}") };
        etcd.compares_nothing = self.compares_nothing;
        if self.minters > 0 {
            // The mints must grant a new lease.
            world.now.set(world.now.get().after(Duration::from_secs(60)));
        }

        let begun =
            (0..self.spenders).map(|_| Some(&*token)).chain((0..self.minters).map(|_| None));
        // Each mint goes through an Envoy of its own.
        let mut steps: Vec<_> = begun.map(|token| Some(begin(&world, &store(), token))).collect();
        let cancels = (0..self.cancellers).map(|_| Some(begin_cancel(&world, &store(), &token)));
        steps.extend(cancels);
        let people = [(Choice::Approve, self.approvers), (Choice::Deny, self.deniers)];
        for (choice, count) in people {
            let decides =
                |index| begin_decision(&world, &token, &format!("{choice:?}-{index}"), choice);
            steps.extend((0..count).map(|index| Some(decides(index))));
        }
        let (mut faults, mut late) = (self.faults, Vec::new());
        let (mut expires, mut loses_leases) = (self.expires, self.loses_leases);
        let mut compacts = self.compacts;
        loop {
            let mut actions = Vec::new();
            // A call about an Envoy's own lease does not concern the other Envoys, so the order of
            // such calls makes no difference.
            let makes_a_lease = steps.iter().position(is_about_a_lease);
            for (index, step) in steps.iter().enumerate() {
                let Some(Step::Call(Call::Grpc(call), _)) = step else { continue };
                if makes_a_lease.is_some_and(|maker| maker != index) {
                    continue;
                }
                actions.push(Action::Answer(index));
                if faults > 0 {
                    actions.push(Action::LoseRequest(index));
                }
                // A look-up changes nothing, so it does not matter where it gets lost.
                if faults > 0 && call.metadata.is_empty() {
                    actions.push(Action::LoseAnswer(index));
                    actions.push(Action::Delay(index));
                }
            }
            if actions.is_empty() {
                break;
            }
            actions.extend(loses_leases.then_some(Action::LoseLeases));
            if makes_a_lease.is_none() {
                actions.extend((0..late.len()).map(Action::Arrive));
                actions.extend(expires.then_some(Action::Expire));
                actions.extend(compacts.then_some(Action::Compact));
            }
            let action = &actions[choices.next(actions.len())];
            let (index, answer) = match action {
                Action::Expire => {
                    world.now.set(world.now.get().after(LIFETIME));
                    expires = false;
                    continue;
                }
                Action::LoseLeases => {
                    etcd.lose_leases();
                    loses_leases = false;
                    continue;
                }
                Action::Compact => {
                    etcd.compact();
                    compacts = false;
                    continue;
                }
                Action::Arrive(index) => {
                    let _ = etcd.answer(&late.remove(*index));
                    continue;
                }
                Action::Answer(index) => (*index, etcd.answer(called(&steps[*index]))),
                Action::LoseRequest(index) => (*index, Err(self.lost(&mut faults))),
                Action::LoseAnswer(index) => {
                    let _ = etcd.answer(called(&steps[*index]));
                    (*index, Err(self.lost(&mut faults)))
                }
                Action::Delay(index) => {
                    late.push(called(&steps[*index]).clone());
                    (*index, Err(self.lost(&mut faults)))
                }
            };
            let Some(Step::Call(_, task)) = steps[index].take() else { panic!("it has ended") };
            steps[index] = Some(task.resume(reply(answer)));
        }
        let outcomes = steps.into_iter().map(|step| match step {
            Some(Step::Done(outcome)) => outcome,
            _ => panic!("it has not ended"),
        });
        let outcomes: Vec<_> = outcomes.collect();
        for call in late {
            if choices.next(2) == 1 {
                let _ = etcd.answer(&call);
            }
        }
        let is_gone = (self.expires && !expires) || (self.loses_leases && !loses_leases);
        let again = play(begin(&world, &store(), Some(&token)), |call| etcd.answer(call));
        if has_review {
            return self.judge_review(&outcomes, &again);
        }
        // The later exchange is no part of the race, and the write that takes a token back is no
        // spend.
        let replaced = etcd.replaced - usize::from(again == Outcome::Won);
        let spent = replaced - usize::from(again == Outcome::WasCancelled);
        judge(&outcomes, spent, &again, is_gone)?;
        for outcome in &outcomes {
            if let Outcome::Minted(token) = outcome {
                let later = play(begin(&world, &store(), Some(token)), |call| etcd.answer(call));
                if later != Outcome::Won && !is_gone {
                    return Err(format!("a token that was handed out is lost: {later:?}"));
                }
            }
        }
        Ok(())
    }

    /// Checks the results of a race for a token with a review against the rules. `again` is the
    /// answer to a later exchange.
    fn judge_review(&self, outcomes: &[Outcome], again: &Outcome) -> Result<(), String> {
        let count = |wanted: Outcome| outcomes.iter().filter(|outcome| **outcome == wanted).count();
        let (won, unknown) = (count(Outcome::Won), count(Outcome::SpendUnknown));
        let decisions = outcomes.len() - self.spenders - self.cancellers;
        let decided = outcomes.split_at(outcomes.len() - decisions).1;
        let (approvals, denials) = decided.split_at(self.approvers.into());
        let counted = |outcomes: &[Outcome]| {
            outcomes.iter().filter(|outcome| **outcome == Outcome::Counted).count()
        };
        let perhaps = |outcomes: &[Outcome]| {
            let is =
                |outcome: &&Outcome| matches!(outcome, Outcome::Counted | Outcome::DecisionUnknown);
            outcomes.iter().filter(is).count()
        };
        let spent = won + usize::from(unknown > 0 && *again == Outcome::AlreadySpent);
        if won > 1 || won > 0 && *again != Outcome::AlreadySpent {
            return Err(format!("won {won} times, and afterwards {again:?}"));
        }
        if spent > 0 && (counted(denials) > 0 || perhaps(approvals) < self.approvers.into()) {
            return Err("a token is spent that was denied, or was not approved".into());
        }
        if counted(denials) > 0 && counted(approvals) >= self.approvers.max(1).into() {
            return Err("a token is approved and denied".into());
        }
        let cancelled = count(Outcome::TakenBack) + count(Outcome::WasCancelled) > 0;
        let expected = match again {
            Outcome::Won => perhaps(approvals) >= usize::from(self.approvers.max(1)),
            Outcome::AlreadySpent => spent > 0,
            Outcome::WasDenied => perhaps(denials) > 0,
            Outcome::WasCancelled => cancelled || count(Outcome::CancelUnknown) > 0,
            Outcome::Waits => {
                counted(approvals) < self.approvers.max(1).into() && counted(denials) == 0
            }
            _ => false,
        };
        if expected { Ok(()) } else { Err(format!("{outcomes:?}, and afterwards {again:?}")) }
    }

    fn lost(&self, faults: &mut usize) -> u32 {
        *faults -= 1;
        // This status says that nothing was done.
        if self.lies { 12 } else { LOST }
    }
}

/// Returns true if an Envoy is about to grant or read a lease.
fn is_about_a_lease(step: &Option<Step<Outcome>>) -> bool {
    let Some(Step::Call(Call::Grpc(call), _)) = step else { return false };
    let anchor = b"/leases/";
    call.service == "etcdserverpb.Lease"
        || call.message.windows(anchor.len()).any(|window| window == anchor)
}

fn called(step: &Option<Step<Outcome>>) -> &GrpcCall {
    match step {
        Some(Step::Call(Call::Grpc(call), _)) => call,
        _ => panic!("nothing is called"),
    }
}

/// Checks the results of a race for one token against the rules. `spent` is how often the token was
/// spent, `again` is the answer to a later exchange, and `is_gone` is true if the token expired or
/// lost its lease.
fn judge(outcomes: &[Outcome], spent: usize, again: &Outcome, is_gone: bool) -> Result<(), String> {
    let count = |wanted: Outcome| outcomes.iter().filter(|outcome| **outcome == wanted).count();
    let won = count(Outcome::Won);
    if won > 1 || spent > 1 {
        return Err("a token is spent twice".into());
    }
    if won > spent {
        return Err("an exchange is answered that spent nothing".into());
    }
    if spent > won && count(Outcome::SpendUnknown) == 0 {
        return Err("a token is spent while everybody is told no".into());
    }
    if count(Outcome::AlreadySpent) > 0 && spent == 0 {
        return Err("a token is said to be used that is not".into());
    }
    if !is_gone && count(Outcome::Expired) + count(Outcome::NoSuchToken) > 0 {
        return Err("a token is said to have expired that has not".into());
    }
    let taken_back = *again == Outcome::WasCancelled;
    if count(Outcome::TakenBack) + count(Outcome::WasCancelled) > 0 && !taken_back {
        return Err("a token is said to be taken back that is not".into());
    }
    match again {
        Outcome::WasCancelled if spent == 0 => Ok(()),
        Outcome::Won if spent == 0 && !is_gone => Ok(()),
        Outcome::AlreadySpent if spent == 1 => Ok(()),
        Outcome::Expired | Outcome::NoSuchToken if is_gone => Ok(()),
        other => Err(format!("spent {spent} times, and afterwards {other:?}")),
    }
}
