//! The rules of the store, and a scenario that is checked against them.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashSet};
use std::time::{Duration, Instant};

use impersonation_core::fakes::EnvoyMap;
use impersonation_core::host::UnixTime;
use impersonation_core::state::local::SlotTable;
use impersonation_core::state::store::{Choice, Found};

use super::explorer::{Actor, Answer, Explorer, Progress, Value, Violation, World, fingerprint};
use super::worker::{
    Direct, Event, Fault, Op, Refusal, Token, Worker, find, kind_and_number, mint, mint_for_review,
    spend,
};

/// A time after the expiry of every token of a scenario.
const AFTER_ALL: UnixTime = UnixTime::from_millis(1_000_000_000);

/// The number of slots on a page of hints.
const PAGE: u32 = 256;

/// A table, its content, and the actors that use it at the same time.
pub(super) struct Scenario {
    capacity: u32,
    /// The tokens that are minted before the actors start, from slot 0 on.
    tokens: Vec<Token>,
    shared_data: EnvoyMap<Value>,
    /// For each actor, the slot at which its search begins, and its operation.
    actors: Vec<(u32, Vec<Op>)>,
    times: Vec<UnixTime>,
    calls_fail: bool,
    fault: Option<Fault>,
    /// A table for looking tokens up.
    table: SlotTable,
}

/// The possible results of a scenario's actors, each as one line.
pub(super) type Ends = BTreeSet<String>;

/// Longer than the lifetime of every token of these tests.
pub(super) const LIFETIME: Duration = Duration::from_secs(24 * 3600);

fn table(capacity: u32) -> SlotTable {
    SlotTable::new("https://auth.example.com/oidc\n", capacity, LIFETIME)
}

pub(super) fn at(millis: u64) -> UnixTime {
    UnixTime::from_millis(millis)
}

impl Scenario {
    /// A table with tokens in its first slots, one for each of these times of expiry.
    pub(super) fn new(capacity: u32, expiries: &[u64]) -> Self {
        let host = Direct::new(&EnvoyMap::default(), at(0));
        let table = table(capacity);
        let tokens =
            expiries.iter().map(|expiry| mint(&host, &table, at(*expiry)).unwrap()).collect();
        Self {
            capacity,
            tokens,
            shared_data: host.into_shared_data(),
            actors: Vec::new(),
            times: vec![at(1000)],
            calls_fail: false,
            fault: None,
            table,
        }
    }

    /// Adds a token to the table that this number of people must approve.
    pub(super) fn for_review(mut self, expiry: u64, approvals: u8) -> Self {
        let host = Direct::new(&self.shared_data, at(0));
        let token = mint_for_review(&host, &self.table, at(expiry), approvals).unwrap();
        self.tokens.push(token);
        self.shared_data = host.into_shared_data();
        self
    }

    /// Adds an actor that approves a token of the table, as the person with this name.
    pub(super) fn approver(self, token: usize, name: &'static str) -> Self {
        let op = Op::Decide(self.tokens[token].clone(), name, Choice::Approve);
        self.actor(0, [op])
    }

    /// Adds an actor that denies a token of the table.
    pub(super) fn denier(self, token: usize) -> Self {
        let op = Op::Decide(self.tokens[token].clone(), "mallory", Choice::Deny);
        self.actor(0, [op])
    }

    /// Adds an actor whose search for a free slot begins at `hand`.
    pub(super) fn actor(mut self, hand: u32, ops: impl Into<Vec<Op>>) -> Self {
        self.actors.push((hand, ops.into()));
        self
    }

    /// Adds an actor that spends a token of the table.
    pub(super) fn spender(self, token: usize) -> Self {
        let op = Op::Spend(self.tokens[token].clone());
        self.actor(0, [op])
    }

    /// Adds an actor that takes back a token of the table.
    pub(super) fn canceller(self, token: usize) -> Self {
        let op = Op::Cancel(self.tokens[token].clone());
        self.actor(0, [op])
    }

    /// Adds an actor that mints a token with a long lifetime.
    pub(super) fn minter(self, hand: u32) -> Self {
        self.actor(hand, [Op::Mint(at(600_000))])
    }

    /// Moves the clock on between any two calls.
    pub(super) fn clock(self, millis: &[u64]) -> Self {
        Self { times: millis.iter().map(|millis| at(*millis)).collect(), ..self }
    }

    pub(super) fn calls_fail(self) -> Self {
        Self { calls_fail: true, ..self }
    }

    pub(super) fn broken(self, fault: Fault) -> Self {
        Self { fault: Some(fault), ..self }
    }

    /// Visits every world of the scenario, checks the rules in each, and returns the possible
    /// results.
    pub(super) fn explore(&self, name: &str) -> Result<Ends, Violation> {
        let started = Instant::now();
        let ends = RefCell::new(Ends::new());
        let explored = self.explorer(&ends).explore(self.shared_data.clone())?;
        println!(
            "{:>14} interleavings, {:>7} worlds, {:>6} ms: {name}",
            explored.interleavings,
            explored.worlds,
            started.elapsed().as_millis(),
        );
        Ok(ends.take())
    }

    /// Follows one schedule. `choose` picks every step among so many.
    pub(super) fn walk(&self, choose: impl FnMut(usize) -> usize) -> Result<(), Violation> {
        self.explorer(&RefCell::default()).walk(self.shared_data.clone(), choose)
    }

    fn explorer<'s>(&'s self, ends: &'s RefCell<Ends>) -> Explorer<'s, Event> {
        let outlived = RefCell::default();
        let actors =
            self.actors.iter().enumerate().map(|(index, (hand, ops))| -> Actor<'_, Event> {
                Box::new(move |stage| {
                    let worker = Worker::new(stage, index as u8, *hand, self.fault);
                    worker.run(&table(self.capacity), ops);
                })
            });
        Explorer {
            actors: actors.collect(),
            times: self.times.clone(),
            calls_fail: self.calls_fail,
            check: Box::new(move |world| {
                if world.actors.iter().all(|actor| actor.finished) {
                    ends.borrow_mut().insert(how_it_ended(world));
                }
                self.check(world, &outlived)
            }),
        }
    }

    /// Checks the rules that hold in every world, even if no actor in it moves again.
    fn check(&self, world: &World<Event>, outlived: &RefCell<HashSet<u128>>) -> Result<(), String> {
        self.check_events(world)?;
        let live = self.check_tokens(world)?;
        self.check_size(world)?;
        let dead = world.actors.iter().filter(|actor| is_in_trouble(actor)).count();
        // Most worlds differ only in the knowledge of the actors, so the same follows from them.
        let live_texts: Vec<_> = live.iter().map(|token| &token.text).collect();
        let aftermath = fingerprint((&world.shared_data, world.now.millis(), live_texts, dead));
        if outlived.borrow().contains(&aftermath) {
            return Ok(());
        }
        self.check_aftermath(world, &live, dead)?;
        outlived.borrow_mut().insert(aftermath);
        Ok(())
    }

    /// Checks that no actor was told something false.
    fn check_events(&self, world: &World<Event>) -> Result<(), String> {
        let mut spent: Vec<&Token> = Vec::new();
        let mut taken: Vec<&Token> = Vec::new();
        for actor in &world.actors {
            for event in &actor.events {
                match event {
                    Event::Spent(token) if spent.contains(&token) => {
                        return Err("a token is spent twice".to_owned());
                    }
                    Event::Spent(token) => {
                        spent.push(token);
                        if actor.began.is_some_and(|began| began >= token.expires_at) {
                            return Err("a token is spent that had expired before".to_owned());
                        }
                    }
                    Event::Taken(token) if taken.contains(&token) => {
                        return Err("a token is taken back twice".to_owned());
                    }
                    Event::Taken(token) => taken.push(token),
                    Event::Refused(refusal, writes) if *writes > 0 => {
                        return Err(format!(
                            "a request refused with {refusal:?} changed something"
                        ));
                    }
                    _ => {}
                }
            }
        }
        if spent.iter().any(|token| taken.contains(token)) {
            return Err("a token is spent and taken back".to_owned());
        }
        for token in spent.iter().chain(&taken).filter(|token| token.approvals > 0) {
            let decisions = Decisions::of(world, token);
            if spent.contains(token) && decisions.approvers.len() < token.approvals.into() {
                return Err("a token is spent before its last approval".to_owned());
            }
            if spent.contains(token) && decisions.is_denied {
                return Err("a token is spent and denied".to_owned());
            }
        }
        for token in &self.tokens {
            let decisions = Decisions::of(world, token);
            if decisions.is_denied && decisions.approvers.len() >= token.approvals.into() {
                return Err("a token is approved and denied".to_owned());
            }
            if decisions.approvers.len() > token.approvals.into() {
                return Err("a token has more approvals than it needs".to_owned());
            }
        }
        let told = world.actors.iter().flat_map(|actor| &actor.events);
        let mut untaken = told
            .filter(|event| matches!(event, Event::TakenBack(token) if !taken.contains(&token)));
        if untaken.next().is_some() {
            return Err("somebody is told of a token that nobody took back".to_owned());
        }
        let won = world.actors.iter().flat_map(|actor| &actor.events);
        let unspent_win =
            won.filter(|event| matches!(event, Event::Won(token) if !spent.contains(&token)));
        match unspent_win.count() {
            0 => Ok(()),
            _ => Err("somebody won who spent nothing".to_owned()),
        }
    }

    /// Checks that exactly the tokens that were minted, not spent and not expired can be spent.
    /// Returns them.
    fn check_tokens(&self, world: &World<Event>) -> Result<Vec<Token>, String> {
        let events = || world.actors.iter().flat_map(|actor| &actor.events);
        let minted = events().filter_map(|event| match event {
            Event::Minted(token) => Some(token),
            _ => None,
        });
        let host = Direct::new(&world.shared_data, world.now);
        let mut live = Vec::new();
        for token in self.tokens.iter().chain(minted) {
            let spent = events()
                .any(|event| matches!(event, Event::Spent(it) | Event::Taken(it) if it == token));
            let decisions = Decisions::of(world, token);
            let approved = decisions.approvers.len() >= token.approvals.into();
            let good = !spent && world.now < token.expires_at && approved && !decisions.is_denied;
            let found = find(&host, &self.table, token).unwrap();
            match (good, found) {
                (true, Found::Outstanding(_)) => live.push(token.clone()),
                (true, found) => return Err(format!("an outstanding token is lost: {found:?}")),
                (false, Found::Outstanding(_)) => {
                    return Err("a token can be spent that is spent or has expired".to_owned());
                }
                (false, _) => {}
            }
        }
        Ok(live)
    }

    /// Checks that every key is one that a table of this capacity has.
    fn check_size(&self, world: &World<Event>) -> Result<(), String> {
        for (key, _) in world.shared_data.entries() {
            let room = match kind_and_number(key) {
                ('s', number) => number < self.capacity,
                ('p', number) => number < self.capacity.div_ceil(PAGE),
                ('w', number) => number < 256,
                ('u', number) => number < 1024,
                _ => false,
            };
            if !room {
                return Err(format!("there is a key {key} beyond the capacity"));
            }
        }
        Ok(())
    }

    /// The actors that have not finished are dead. Checks that the rest of the table still works,
    /// except for at most one slot for each dead actor, and that in the end the whole table works.
    fn check_aftermath(
        &self,
        world: &World<Event>,
        live: &[Token],
        dead: usize,
    ) -> Result<(), String> {
        let host = Direct::new(&world.shared_data, world.now);
        let new = self.fill(&host);
        // A token with a review keeps its slot until it is spent or expires.
        let events = || world.actors.iter().flat_map(|actor| &actor.events);
        let is_spent =
            |token: &Token| events().any(|event| matches!(event, Event::Spent(it) if it == token));
        let kept = self.tokens.iter().filter(|token| {
            let reviewed = token.approvals > 0 && world.now < token.expires_at;
            reviewed && !live.contains(token) && !is_spent(token)
        });
        let used = live.len() + new.len() + kept.count();
        let capacity = self.capacity as usize;
        if used > capacity {
            return Err(format!("{used} tokens are outstanding at a capacity of {capacity}"));
        }
        if used + dead < capacity {
            return Err(format!("only {used} of {capacity} slots can be used"));
        }
        for token in live.iter().chain(&new) {
            if spend(&host, &self.table, token) != Ok(()) {
                return Err("an outstanding token cannot be spent".to_owned());
            }
            if spend(&host, &self.table, token) != Err(Refusal::AlreadySpent) {
                return Err("a token can be spent twice".to_owned());
            }
        }

        let host = Direct::new(&world.shared_data, AFTER_ALL);
        let reached = self.fill(&host).len();
        if reached != capacity {
            return Err(format!("{reached} of {capacity} slots can be used when all has expired"));
        }
        Ok(())
    }

    fn fill(&self, host: &Direct) -> Vec<Token> {
        let table = table(self.capacity);
        let until = AFTER_ALL.after(std::time::Duration::from_secs(600));
        std::iter::from_fn(|| mint(host, &table, until).ok()).collect()
    }
}

/// Returns true if an actor may have left work undone: it began and did not finish, or one of its
/// calls failed.
fn is_in_trouble(actor: &Progress<Event>) -> bool {
    let failed = actor.past.iter().any(|(_, answer)| matches!(answer, Answer::Failed));
    failed || !actor.finished && !actor.past.is_empty()
}

/// The decisions about a token that took effect.
struct Decisions {
    approvers: BTreeSet<&'static str>,
    is_denied: bool,
}

impl Decisions {
    fn of(world: &World<Event>, token: &Token) -> Self {
        let events = world.actors.iter().flat_map(|actor| &actor.events);
        let mut decisions = Self { approvers: BTreeSet::new(), is_denied: false };
        for event in events {
            match event {
                Event::Decided(it, name, Choice::Approve) if it == token => {
                    decisions.approvers.insert(*name);
                }
                Event::Decided(it, _, Choice::Deny) if it == token => decisions.is_denied = true,
                _ => {}
            }
        }
        decisions
    }
}

fn how_it_ended(world: &World<Event>) -> String {
    let actors = world.actors.iter().map(|actor| {
        let events = actor.events.iter().filter_map(|event| match event {
            Event::Minted(_) => Some("minted"),
            Event::Spent(_) | Event::Taken(_) | Event::Decided(..) => None,
            Event::Counted => Some("counted"),
            Event::Refused(Refusal::Waiting, _) => Some("waiting"),
            Event::Refused(Refusal::Denied, _) => Some("denied"),
            Event::Refused(Refusal::Decided, _) => Some("decided"),
            Event::TakenBack(_) => Some("taken back"),
            Event::Won(_) => Some("won"),
            Event::Refused(Refusal::Full, _) => Some("full"),
            Event::Refused(Refusal::Unknown, _) => Some("unknown"),
            Event::Refused(Refusal::Expired, _) => Some("expired"),
            Event::Refused(Refusal::AlreadySpent, _) => Some("already spent"),
            Event::Refused(Refusal::Cancelled, _) => Some("cancelled"),
            Event::Refused(Refusal::HostFailed, _) => Some("host failed"),
        });
        events.collect::<Vec<_>>().join(" then ")
    });
    actors.collect::<Vec<_>>().join(" | ")
}
