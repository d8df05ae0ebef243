//! The actors, each a worker with a table of its own, and the faults that a store could have.

use std::cell::{Cell, RefCell};

use impersonation_core::fakes::EnvoyMap;
use impersonation_core::host::{Expected, Host, HostFailure, SharedData, Swap, UnixTime, Version};
use impersonation_core::policy::Bounds;
use impersonation_core::state::local::SlotTable;
use impersonation_core::state::store::{
    Cancelled, Choice, Exchange, Found, Grant, Mint, NotSpent, NotStored, Person, Review,
    SubjectToken,
};

use super::explorer::{Stage, Value};

/// A token as its holder has it, and its expiry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    pub text: String,
    pub expires_at: UnixTime,
    /// The number of people who must approve.
    pub approvals: u8,
}

/// An operation of an actor on the table.
#[derive(Debug, Clone)]
pub(super) enum Op {
    /// Mint a token with this expiry.
    Mint(UnixTime),
    /// Look a token up, and spend it if it is outstanding.
    Spend(Token),
    /// Look up and spend the token that this actor minted last, if it minted one.
    SpendOwn,
    /// Take a token back.
    Cancel(Token),
    /// Approve or deny a token, as the person with this name.
    Decide(Token, &'static str, Choice),
}

/// The outcome of an operation, or of its first write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Event {
    Minted(Token),
    /// The first write of a spend took effect. From here on the token is spent.
    Spent(Token),
    /// The spend has ended, and its caller was told that it succeeded.
    Won(Token),
    /// The write that takes a token back took effect.
    Taken(Token),
    /// The caller was told that the token is taken back, and no exchange has spent it.
    TakenBack(Token),
    /// The write of a decision took effect.
    Decided(Token, &'static str, Choice),
    /// A person was told that their decision counts.
    Counted,
    /// The operation failed, after this number of writes.
    Refused(Refusal, usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    Full,
    Unknown,
    Expired,
    AlreadySpent,
    Cancelled,
    /// The token waits for a decision.
    Waiting,
    /// Somebody denied the token.
    Denied,
    /// The decision came too late.
    Decided,
    HostFailed,
}

/// A way in which a store could be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// Writes without naming a version.
    Overwrites,
    /// Creates a key without checking that it is missing.
    CreatesOverOthers,
    /// Reads the expected version when it writes, not when it decides.
    ReadsVersionAgain,
    /// Compares and writes in two calls, not in one.
    ComparesThenWrites,
    /// Continues after a lost compare-and-set as if it had won.
    IgnoresLosses,
    /// Does not change the hint of a spent token.
    KeepsHints,
    /// Takes every token for unexpired.
    IgnoresTime,
}

/// A host without a schedule, which performs every call at once. It serves the steps before and
/// after a search.
pub(super) struct Direct {
    shared_data: RefCell<EnvoyMap<Value>>,
    now: UnixTime,
    draws: Cell<u64>,
}

impl Direct {
    pub(super) fn new(shared_data: &EnvoyMap<Value>, now: UnixTime) -> Self {
        Self { shared_data: RefCell::new(shared_data.clone()), now, draws: Cell::new(0) }
    }

    pub(super) fn into_shared_data(self) -> EnvoyMap<Value> {
        self.shared_data.into_inner()
    }
}

impl SharedData for Direct {
    fn get(&self, key: &str) -> Result<Option<(Vec<u8>, Version)>, HostFailure> {
        let found = self.shared_data.borrow().get(key);
        Ok(found.map(|(value, version)| (value.bytes().to_vec(), version)))
    }

    fn compare_and_set(
        &self,
        key: &str,
        value: &[u8],
        expected: Expected,
    ) -> Result<Swap, HostFailure> {
        Ok(self.shared_data.borrow_mut().compare_and_set(key, Value::new(value), expected))
    }
}

impl Host for Direct {
    fn now(&self) -> UnixTime {
        self.now
    }

    fn random(&self, buffer: &mut [u8]) -> Result<(), HostFailure> {
        draw(buffer, 0, 0xff, &self.draws);
        Ok(())
    }
}

/// One worker on the stage.
pub(super) struct Worker<'w> {
    pub stage: &'w Stage<'w, Event>,
    pub name: u8,
    /// The slot at which the worker begins to search for a free one.
    pub hand: u32,
    pub fault: Option<Fault>,
    /// The event to note when its first write takes effect.
    first_write: RefCell<Option<Event>>,
    has_spent: Cell<bool>,
    draws: Cell<u64>,
}

impl<'w> Worker<'w> {
    pub(super) fn new(
        stage: &'w Stage<'w, Event>,
        name: u8,
        hand: u32,
        fault: Option<Fault>,
    ) -> Self {
        let (first_write, has_spent) = (RefCell::new(None), Cell::new(false));
        Self { stage, name, hand, fault, first_write, has_spent, draws: Cell::new(0) }
    }

    /// Does the operation of an actor.
    pub(super) fn run(&self, table: &SlotTable, ops: &[Op]) {
        let mut own = None;
        for op in ops {
            let writes_before = self.stage.writes();
            let done = match (op, &own) {
                (Op::Mint(expires_at), _) => mint(self, table, *expires_at).map(|token| {
                    own = Some(token.clone());
                    Event::Minted(token)
                }),
                (Op::Spend(token), _) | (Op::SpendOwn, Some(token)) => {
                    *self.first_write.borrow_mut() = Some(Event::Spent(token.clone()));
                    spend(self, table, token).map(|()| Event::Won(token.clone()))
                }
                (Op::SpendOwn, None) => return,
                (Op::Cancel(token), _) => {
                    *self.first_write.borrow_mut() = Some(Event::Taken(token.clone()));
                    cancel(self, table, token).map(|()| Event::TakenBack(token.clone()))
                }
                (Op::Decide(token, name, choice), _) => {
                    let event = Event::Decided(token.clone(), name, *choice);
                    *self.first_write.borrow_mut() = Some(event);
                    decide(self, table, token, name, *choice).map(|()| Event::Counted)
                }
            };
            self.first_write.take();
            self.has_spent.set(false);
            let writes = self.stage.writes() - writes_before;
            self.stage.note(done.unwrap_or_else(|refusal| Event::Refused(refusal, writes)));
        }
    }

    fn swap(&self, key: &str, value: &[u8], expected: Expected) -> Result<Swap, HostFailure> {
        match (self.fault, expected) {
            (Some(Fault::Overwrites), _) | (Some(Fault::CreatesOverOthers), Expected::Absent) => {
                self.stage.overwrite(key, value)
            }
            (Some(Fault::ReadsVersionAgain), _) => {
                let current = self.stage.get(key)?;
                let expected = current.map_or(Expected::Absent, |(_, now)| Expected::Version(now));
                self.stage.compare_and_set(key, value, expected)
            }
            (Some(Fault::ComparesThenWrites), _) => {
                let current = self.stage.get(key)?;
                let current = current.map_or(Expected::Absent, |(_, now)| Expected::Version(now));
                if current == expected { self.stage.overwrite(key, value) } else { Ok(Swap::Lost) }
            }
            (Some(Fault::IgnoresLosses), _) => {
                let _ = self.stage.compare_and_set(key, value, expected)?;
                Ok(Swap::Done)
            }
            (Some(Fault::KeepsHints), _) if is_page(key) && self.has_spent.get() => Ok(Swap::Done),
            _ => self.stage.compare_and_set(key, value, expected),
        }
    }
}

impl SharedData for Worker<'_> {
    fn get(&self, key: &str) -> Result<Option<(Vec<u8>, Version)>, HostFailure> {
        self.stage.get(key)
    }

    fn compare_and_set(
        &self,
        key: &str,
        value: &[u8],
        expected: Expected,
    ) -> Result<Swap, HostFailure> {
        let swap = self.swap(key, value, expected)?;
        if swap == Swap::Done
            && let Some(event) = self.first_write.take()
        {
            self.has_spent.set(true);
            self.stage.note(event);
        }
        Ok(swap)
    }
}

impl Host for Worker<'_> {
    fn now(&self) -> UnixTime {
        match self.fault {
            Some(Fault::IgnoresTime) => UnixTime::default(),
            _ => self.stage.now(),
        }
    }

    fn random(&self, buffer: &mut [u8]) -> Result<(), HostFailure> {
        draw(buffer, self.hand, self.name, &self.draws);
        Ok(())
    }
}

/// Random numbers that are the same in each run: four bytes are the hand; more bytes are a nonce,
/// and no two nonces are equal.
fn draw(buffer: &mut [u8], hand: u32, name: u8, draws: &Cell<u64>) {
    if let Ok(buffer) = <&mut [u8; 4]>::try_from(&mut *buffer) {
        *buffer = hand.to_be_bytes();
    } else {
        draws.set(draws.get() + 1);
        buffer[0] = name;
        buffer[1..9].copy_from_slice(&draws.get().to_be_bytes());
    }
}

/// The namespace has twelve characters. The kind of the key and a number follow it.
pub(super) fn kind_and_number(key: &str) -> (char, u32) {
    let mut rest = key.chars().skip(12);
    (rest.next().unwrap(), rest.collect::<String>().parse().unwrap())
}

fn is_page(key: &str) -> bool {
    kind_and_number(key).0 == 'p'
}

/// The demands of each mint of the model.
fn asked_for() -> (Mint, Grant) {
    let mint = Mint {
        caller: "backend".into(),
        request_id: "mint".into(),
        at_millis: 0,
        bounds: Bounds::default(),
    };
    let grant = Grant { user_id: "user-42".into(), context: "{}".into() };
    (mint, grant)
}

pub(super) fn mint(
    host: &dyn Host,
    table: &SlotTable,
    expires_at: UnixTime,
) -> Result<Token, Refusal> {
    let (mint, grant) = asked_for();
    match table.mint(host, mint, grant, expires_at) {
        Ok((token, _)) => Ok(Token { text: token.reveal(), expires_at, approvals: 0 }),
        Err(NotStored::Full | NotStored::HoldsTooMany) => Err(Refusal::Full),
        Err(NotStored::Host(_) | NotStored::Remote(_)) => Err(Refusal::HostFailed),
    }
}

/// Mints a token that this number of people must approve.
pub(super) fn mint_for_review(
    host: &dyn Host,
    table: &SlotTable,
    expires_at: UnixTime,
    approvals: u8,
) -> Result<Token, NotStored> {
    let (mint, grant) = asked_for();
    let review = Review::needing(approvals, false, None);
    let (token, _) = table.mint_for_review(host, mint, grant, review, expires_at)?;
    Ok(Token { text: token.reveal(), expires_at, approvals })
}

pub(super) fn decide(
    host: &dyn Host,
    table: &SlotTable,
    token: &Token,
    name: &str,
    choice: Choice,
) -> Result<(), Refusal> {
    let token = SubjectToken::parse(&token.text).unwrap();
    let id = token.id(&token.digest());
    let person = Person { name, client_id: Some("console"), may_approve: true };
    let mut counted = Err(Refusal::Unknown);
    let decided = table.decide(host, &id, |known| match known.with(&person, choice, host.now()) {
        Ok(review) => {
            counted = Ok(());
            review
        }
        Err(_) => {
            counted = Err(Refusal::Decided);
            None
        }
    });
    decided.map_or(Err(Refusal::HostFailed), |_| counted)
}

pub(super) fn find(
    host: &dyn Host,
    table: &SlotTable,
    token: &Token,
) -> Result<Found, HostFailure> {
    let token = SubjectToken::parse(&token.text).unwrap();
    table.find(host, &token, &token.digest())
}

pub(super) fn cancel(host: &dyn Host, table: &SlotTable, token: &Token) -> Result<(), Refusal> {
    let token = SubjectToken::parse(&token.text).unwrap();
    let digest = token.digest();
    match table.cancel(host, &token.id(&digest), |found, _| found.matches(&digest)) {
        Ok(Cancelled::Yes(_)) => Ok(()),
        Ok(Cancelled::Spent(..)) => Err(Refusal::AlreadySpent),
        Ok(Cancelled::NotTheirs) => Err(Refusal::Unknown),
        Err(HostFailure(_)) => Err(Refusal::HostFailed),
    }
}

pub(super) fn spend(host: &dyn Host, table: &SlotTable, token: &Token) -> Result<(), Refusal> {
    let exchange = Exchange {
        client_id: "portal".into(),
        actor_id: None,
        request_id: "exchange".into(),
        jti: "jti".into(),
        at_millis: 0,
    };
    let outstanding = match find(host, table, token) {
        Ok(Found::Outstanding(outstanding)) => outstanding,
        Ok(Found::Spent(..)) => return Err(Refusal::AlreadySpent),
        Ok(Found::Cancelled(_)) => return Err(Refusal::Cancelled),
        Ok(Found::Waiting(..)) => return Err(Refusal::Waiting),
        Ok(Found::Denied(..)) => return Err(Refusal::Denied),
        Ok(Found::Expired(..)) => return Err(Refusal::Expired),
        Ok(Found::Unknown) => return Err(Refusal::Unknown),
        Err(HostFailure(_)) => return Err(Refusal::HostFailed),
    };
    table.spend(host, outstanding, exchange).map_err(|error| match error {
        NotSpent::Already(_) => Refusal::AlreadySpent,
        NotSpent::Forgotten => Refusal::Unknown,
        NotSpent::Cancelled => Refusal::Cancelled,
        NotSpent::Expired => Refusal::Expired,
        NotSpent::Store(_) | NotSpent::Unknown(_) => Refusal::HostFailed,
    })
}
