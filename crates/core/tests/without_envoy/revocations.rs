//! A revocation beside an exchange, in every order of their steps: no impersonation of the exchange
//! outlives it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use impersonation_core::fakes::FakeHost;
use impersonation_core::host::{Expected, Host, HostFailure, SharedData, Swap, UnixTime, Version};
use impersonation_core::state::revocations::{
    Concerned, Happened, Impersonation, IssuedAt, Revocation, Told,
};
use impersonation_core::state::storage::Revocations;
use impersonation_core::step::{Step, Task};

/// The most calls of the host that a revocation makes.
const STEPS: usize = 16;

const AGENT: Concerned<'_> = Concerned { actor_id: Some("agent"), session: None, user_id: None };

const USER: Impersonation<'_> = Impersonation {
    id: "id",
    user_id: "user",
    actor_id: Some("agent"),
    client_id: "client",
    caller: None,
    resource: "resource",
    session: None,
    actor_since: None,
};

/// An act of another worker.
type Other = Box<dyn FnOnce(&World)>;

/// A host on which time passes, and other workers act, between the calls of one worker.
struct World {
    host: FakeHost,
    step: Cell<usize>,
    /// The steps before which a millisecond passes.
    ticks: [usize; 2],
    /// The step before which another worker acts, and its act.
    others: RefCell<Vec<(usize, Other)>>,
    /// True while the worker under test calls.
    looking: Cell<bool>,
    /// The step before which the worker dies.
    dies_before: usize,
}

impl World {
    fn new(ticks: [usize; 2]) -> Self {
        Self {
            host: FakeHost::default(),
            step: Cell::new(0),
            ticks,
            others: RefCell::default(),
            looking: Cell::new(false),
            dies_before: usize::MAX,
        }
    }

    fn before_step(&self) -> Result<(), HostFailure> {
        if !self.looking.get() {
            return Ok(());
        }
        let step = self.step.get();
        self.step.set(step + 1);
        for _ in self.ticks.iter().filter(|tick| **tick == step) {
            self.host.advance(Duration::from_millis(1));
        }
        self.run_others(step);
        if step >= self.dies_before { Err(HostFailure("nothing any more")) } else { Ok(()) }
    }

    /// Runs each other worker whose turn comes before this step.
    fn run_others(&self, step: usize) {
        self.looking.set(false);
        loop {
            let mut others = self.others.borrow_mut();
            if others.first().is_none_or(|(at, _)| *at > step) {
                break;
            }
            let (_, other) = others.remove(0);
            drop(others);
            other(self);
        }
        self.looking.set(true);
    }
}

impl SharedData for World {
    fn get(&self, key: &str) -> Result<Option<(Vec<u8>, Version)>, HostFailure> {
        self.before_step()?;
        self.host.get(key)
    }

    fn compare_and_set(
        &self,
        key: &str,
        value: &[u8],
        expected: Expected,
    ) -> Result<Swap, HostFailure> {
        self.before_step()?;
        self.host.compare_and_set(key, value, expected)
    }
}

impl Host for World {
    fn now(&self) -> UnixTime {
        // A dead worker reads no clock.
        let _ = self.before_step();
        self.host.now()
    }

    fn random(&self, buffer: &mut [u8]) -> Result<(), HostFailure> {
        self.host.random(buffer)
    }
}

fn worker() -> Revocations {
    Revocations::shared_data("tenant")
}

/// Plays a revocation of the user. Returns true if it was answered.
fn revoke(world: &Rc<World>, revocations: Rc<Revocations>) -> bool {
    let host = Rc::clone(world) as Rc<dyn Host>;
    let step = Task::start(host, None, |context| async move {
        let user = Revocation { user_id: Some("user".to_owned()), ..Revocation::default() };
        revocations.revoke(&context, &user).await.is_ok()
    });
    let Step::Done(answered) = step else { panic!("shared data answers at once") };
    answered
}

fn ended(world: &World, revocations: &Revocations, issued: UnixTime) -> bool {
    revocations.recent_view(world).unwrap().has_ended(&USER, IssuedAt::At(issued))
}

/// An exchange of a subject token that was minted before the revocation began. It takes the time,
/// reads the revocations, and issues.
#[derive(Default)]
struct Exchange {
    now: Cell<UnixTime>,
    refused: Cell<bool>,
    issued: Cell<bool>,
}

impl Exchange {
    fn steps(self: &Rc<Self>, minted: UnixTime) -> [Other; 3] {
        let revocations = Rc::new(worker());
        let [time, look, issue] = [(); 3].map(|()| Rc::clone(self));
        [
            Box::new(move |world| time.now.set(world.host.now())),
            Box::new(move |world| {
                let refused = [minted, look.now.get()].map(|at| ended(world, &revocations, at));
                look.refused.set(refused.contains(&true));
            }),
            Box::new(move |_| issue.issued.set(!issue.refused.get())),
        ]
    }
}

#[test]
fn an_exchange_beside_a_revocation_leaves_no_live_impersonation() {
    let (mut played, mut issued, mut refused) = (0, 0, 0);
    for first in 0..=STEPS {
        for second in first..=STEPS {
            for third in second..=STEPS {
                for tick in 0..STEPS {
                    for tock in tick..STEPS {
                        let world = Rc::new(World::new([tick, tock]));
                        let (revoking, other) = (Rc::new(worker()), worker());
                        revoking.create_if_missing(&*world).unwrap();
                        let exchange = Rc::new(Exchange::default());
                        let steps = exchange.steps(world.host.now());
                        *world.others.borrow_mut() =
                            [first, second, third].into_iter().zip(steps).collect();
                        world.looking.set(true);
                        assert!(revoke(&world, revoking));
                        assert!(world.step.get() <= STEPS, "{} steps", world.step.get());
                        world.run_others(usize::MAX);
                        world.looking.set(false);
                        let at = exchange.now.get();
                        let lives = exchange.issued.get() && !ended(&world, &other, at);
                        let order = [first, second, third, tick, tock];
                        assert!(!lives, "issued at {at:?}, in the order {order:?}");
                        played += 1;
                        issued += usize::from(exchange.issued.get());
                        refused += usize::from(exchange.refused.get());
                    }
                }
            }
        }
    }
    assert_eq!(issued + refused, played);
    assert!(issued > 1000 && refused > 1000, "{issued} issued, {refused} refused");
}

/// The worker has not answered, so it promised nothing. The next worker completes what it wrote.
#[test]
fn a_worker_that_dies_while_it_revokes_holds_up_nobody() {
    for dies_before in 0..STEPS {
        let mut world = World::new([3, 5]);
        world.dies_before = dies_before;
        let world = Rc::new(world);
        let other = Rc::new(worker());
        other.create_if_missing(&*world).unwrap();
        let minted = world.host.now();
        world.looking.set(true);
        let answered = revoke(&world, Rc::new(worker()));
        world.looking.set(false);
        // Half a revocation counts as none or as a whole one, and the tick of any worker decides
        // which.
        let before = ended(&world, &worker(), minted);
        other.create_if_missing(&*world).unwrap();
        let after = ended(&world, &worker(), minted);
        assert!(after || !answered, "{dies_before}");
        assert!(after || !before, "{dies_before}");
        assert!(revoke(&world, Rc::clone(&other)), "{dies_before}: the next one");
        world.looking.set(false);
        assert!(ended(&world, &worker(), minted), "{dies_before}");
    }
}

/// A worker that has begun sees every answered revocation, however many run at once.
#[test]
fn simultaneous_revocations_are_all_kept() {
    for step in 0..STEPS {
        let world = Rc::new(World::new([STEPS; 2]));
        let revoking = Rc::new(worker());
        revoking.create_if_missing(&*world).unwrap();
        let (beside, minted) = (Rc::clone(&world), world.host.now());
        let other: Other = Box::new(move |_| {
            let host = Rc::clone(&beside) as Rc<dyn Host>;
            let step = Task::start(host, None, |context| async move {
                let client =
                    Revocation { client_id: Some("client".into()), ..Revocation::default() };
                worker().revoke(&context, &client).await.is_ok()
            });
            assert!(matches!(step, Step::Done(true)));
            beside.looking.set(false);
        });
        *world.others.borrow_mut() = vec![(step, other)];
        world.looking.set(true);
        assert!(revoke(&world, revoking));
        world.run_others(usize::MAX);
        world.looking.set(false);
        let known = worker().recent_view(&*world).unwrap();
        for named in [
            Impersonation { user_id: "another", ..USER },
            Impersonation { client_id: "another", ..USER },
        ] {
            assert!(known.has_ended(&named, IssuedAt::At(minted)), "{step}: {named:?}");
        }
    }
}

#[test]
fn a_service_that_begins_ends_what_was_issued_before() {
    let world = World::new([STEPS; 2]);
    let issued = world.host.now();
    world.host.now.set(issued.after(Duration::from_millis(2)));
    let revocations = worker();
    assert!(ended(&world, &revocations, issued));
    assert!(!ended(&world, &revocations, world.host.now()));
    world.host.now.set(issued.after(Duration::from_secs(5)));
    worker().create_if_missing(&world).unwrap();
    assert!(
        !ended(&world, &revocations, issued.after(Duration::from_millis(2))),
        "begun only once"
    );
}

/// Plays an event about the agent. `None` if it was not kept.
fn tell(world: &Rc<World>, happened: &Happened) -> Option<Told> {
    let (host, happened) = (Rc::clone(world) as Rc<dyn Host>, happened.clone());
    let step = Task::start(host, None, |context| async move {
        let agent = Revocation { actor_id: Some("agent".to_owned()), ..Revocation::default() };
        worker().keep_event(&context, &agent, &happened).await.ok()
    });
    let Step::Done(told) = step else { panic!("shared data answers at once") };
    told
}

fn event_at(time: UnixTime) -> Happened {
    Happened::new("https://auth.example.com", time.millis(), Duration::from_secs(86_400))
}

/// An exchange that takes its time before the event can be seen, whatever it does then, leaves
/// nothing that lives. One that takes its time after the event was answered is good at once.
#[test]
fn an_exchange_beside_an_event_leaves_no_live_impersonation() {
    let (mut issued, mut refused, mut lived) = (0, 0, 0);
    for first in 0..=STEPS {
        for second in first..=STEPS {
            for third in second..=STEPS {
                for tick in 0..STEPS {
                    for tock in (tick..STEPS).step_by(3) {
                        let world = Rc::new(World::new([tick, tock]));
                        worker().create_if_missing(&*world).unwrap();
                        world.host.advance(Duration::from_millis(5));
                        let happened = event_at(world.host.now());
                        let exchange = Rc::new(Exchange::default());
                        // An unbound subject token outlives an event, so its time does not count.
                        let [time, look, issue] = exchange.steps(world.host.now().after(DAY));
                        let (was_seen, seen) = (Rc::<Cell<bool>>::default(), Rc::default());
                        *world.others.borrow_mut() = vec![
                            (first, {
                                let seen: Rc<Cell<bool>> = Rc::clone(&seen);
                                Box::new(move |world: &World| {
                                    let known = worker().recent_view(world).unwrap();
                                    seen.set(known.has_event_since(AGENT, UnixTime::default()));
                                    time(world);
                                }) as Other
                            }),
                            (second, look),
                            (third, issue),
                        ];
                        world.looking.set(true);
                        assert_eq!(tell(&world, &happened), Some(Told::News(None)));
                        assert!(world.step.get() <= STEPS, "{} steps", world.step.get());
                        world.run_others(usize::MAX);
                        world.looking.set(false);
                        was_seen.set(seen.get());
                        let at = exchange.now.get();
                        let lives = exchange.issued.get() && !ended(&world, &worker(), at);
                        let order = [first, second, third, tick, tock];
                        assert!(
                            !lives || was_seen.get(),
                            "issued at {at:?}, in the order {order:?}"
                        );
                        issued += usize::from(exchange.issued.get());
                        refused += usize::from(exchange.refused.get());
                        lived += usize::from(lives);
                        // A repetition ends nothing.
                        world.host.advance(Duration::from_secs(7));
                        assert_eq!(tell(&world, &happened), Some(Told::OldNews));
                        world.looking.set(false);
                        assert!(!lives || !ended(&world, &worker(), at), "{order:?}");
                        let now = world.host.now();
                        assert!(!ended(&world, &worker(), now), "{order:?}: a new one");
                    }
                }
            }
        }
    }
    assert!(issued > 1000 && refused > 1000, "{issued} issued, {refused} refused, {lived} lived");
}

const DAY: Duration = Duration::from_secs(86_400);

/// The sender had no answer, and tries again. Until then more may have ended, never less.
#[test]
fn a_worker_that_dies_while_it_keeps_an_event_is_made_good_by_the_next_attempt() {
    for dies_before in 0..STEPS {
        let mut world = World::new([3, 5]);
        world.dies_before = dies_before;
        let world = Rc::new(world);
        worker().create_if_missing(&*world).unwrap();
        world.host.advance(Duration::from_millis(5));
        let begun = world.host.now();
        let happened = event_at(begun);
        world.looking.set(true);
        let answered = tell(&world, &happened).is_some();
        world.looking.set(false);
        let other = worker();
        other.create_if_missing(&*world).unwrap();
        assert!(!answered || ended(&world, &other, begun), "{dies_before}");
        let between = world.host.now();
        world.host.advance(Duration::from_secs(2));
        assert!(tell(&world, &happened).is_some(), "{dies_before}");
        world.looking.set(false);
        assert!(ended(&world, &other, begun), "{dies_before}");
        assert!(answered || ended(&world, &other, between), "{dies_before}");
        world.host.advance(Duration::from_millis(1));
        assert!(!ended(&world, &other, world.host.now()), "{dies_before}: a new one");
    }
}
