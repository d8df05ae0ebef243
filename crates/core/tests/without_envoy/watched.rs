//! An Envoy that watches etcd for revocations, and asks now and then. Whatever becomes of the
//! watch, no impersonation outlives its end by more than `max_staleness`.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use impersonation_core::fakes::{
    Etcd, EtcdWatch, FakeHost, another_envoy, etcd_server, play_in_etcd,
};
use impersonation_core::host::{Host, UnixTime};
use impersonation_core::state::etcd::RecordKeys;
use impersonation_core::state::remote::Revision;
use impersonation_core::state::revocations::{Impersonation, IssuedAt, Revocation, Unknown};
use impersonation_core::state::storage::Revocations;
use impersonation_core::step::{Context, GrpcStatus, StreamAction, StreamEnd, StreamEvent, Task};
use proptest::prelude::*;

const STALE: Duration = Duration::from_secs(10);
const TICK: Duration = Duration::from_millis(250);

/// An Envoy that watches, an etcd, and the network between them.
struct World {
    host: Rc<FakeHost>,
    revocations: Rc<Revocations>,
    etcd: Etcd,
    watch: Option<EtcdWatch>,
    /// Messages of the watch that have not arrived.
    on_the_way: VecDeque<Vec<u8>>,
    /// The methods and the ranges of all calls: true for a range of several keys.
    calls: Vec<bool>,
    /// The number of watches that were opened.
    opened: usize,
    /// The number of ended impersonations, with the time of each end.
    ended: Vec<UnixTime>,
    issued: IssuedAt,
}

impl World {
    fn new() -> Self {
        let revocations = Revocations::etcd(&etcd_server(RecordKeys::default()), "tenant", STALE);
        let (host, etcd) = (another_envoy(), Etcd::default());
        let issued = IssuedAt::new(host.now().before(TICK), Revision::new(1));
        Self {
            host,
            revocations: Rc::new(revocations),
            etcd,
            watch: None,
            on_the_way: VecDeque::new(),
            calls: Vec::new(),
            opened: 0,
            ended: Vec::new(),
            issued,
        }
    }

    /// Ends the next impersonation, through another Envoy.
    fn end_one(&mut self) {
        let user = Some(self.ended.len().to_string());
        let revocation = Revocation { user_id: user, ..Revocation::default() };
        let server = etcd_server(RecordKeys::default());
        let elsewhere = Revocations::etcd(&server, "tenant", STALE);
        let host = another_envoy();
        host.now.set(self.host.now());
        let step = Task::start(host, None, |context: Context| async move {
            elsewhere.revoke(&context, &revocation).await.unwrap();
        });
        play_in_etcd(step, |call| self.etcd.answer(call));
        self.ended.push(self.host.now());
    }

    /// Plays a tick of the VM. `answers` says if etcd answers questions.
    fn tick(&mut self, answers: bool) {
        self.host.now.set(self.host.now().after(TICK));
        match self.revocations.tend_watch(&*self.host) {
            Some(StreamAction::Open(stream)) => {
                assert!(self.watch.is_none(), "one watch at a time");
                self.watch = Some(self.etcd.watch(&stream));
                self.opened += 1;
            }
            Some(StreamAction::Cancel) => {
                self.watch = None;
                self.on_the_way.clear();
            }
            None => {}
        }
        if self.revocations.follows(&*self.host) {
            let (host, revocations) =
                (Rc::clone(&self.host) as Rc<dyn Host>, self.revocations.clone());
            let step = Task::start(host, None, |context: Context| async move {
                revocations.follow(&context).await;
            });
            play_in_etcd(step, |call| {
                // A message that reads several keys is longer: it has the end of the range.
                self.calls.push(call.message.len() > 60);
                if answers { self.etcd.answer(call) } else { Err(14) }
            });
        }
    }

    /// etcd sends what it has to say.
    fn send(&mut self) {
        if let Some(watch) = &mut self.watch {
            self.on_the_way.extend(std::iter::from_fn(|| self.etcd.news(watch)));
        }
    }

    fn arrive(&mut self, message: Vec<u8>) {
        self.revocations.on_watch(&*self.host, &StreamEvent::Message(message));
    }

    /// All that etcd has to say arrives.
    fn bring(&mut self) {
        self.send();
        while let Some(message) = self.on_the_way.pop_front() {
            self.arrive(message);
        }
    }

    /// The watch is cut off.
    fn cut(&mut self) {
        if self.watch.take().is_some() {
            self.on_the_way.clear();
            let end = StreamEnd::Closed(GrpcStatus(14));
            self.revocations.on_watch(&*self.host, &StreamEvent::Ended(end));
        }
    }

    fn has_ended(&self, user: &str) -> Result<bool, Unknown> {
        let known = self.revocations.recent_view(&*self.host)?;
        let impersonation = Impersonation {
            id: "id",
            user_id: user,
            actor_id: None,
            client_id: "client",
            caller: None,
            resource: "resource",
            session: None,
            actor_since: None,
        };
        Ok(known.has_ended(&impersonation, self.issued))
    }

    /// The promise of the guard.
    fn check(&self) -> Result<(), TestCaseError> {
        let now = self.host.now();
        for (user, ended_at) in self.ended.iter().enumerate() {
            if now >= ended_at.after(STALE) {
                prop_assert_ne!(self.has_ended(&user.to_string()), Ok(false), "user {}", user);
            }
        }
        prop_assert_ne!(self.has_ended("live"), Ok(true));
        Ok(())
    }

    /// An Envoy whose watch exists.
    fn watching() -> Self {
        let mut world = Self::new();
        world.end_one();
        world.tick(true);
        world.tick(true);
        assert_eq!(world.opened, 1);
        world.bring();
        world.calls.clear();
        world
    }

    fn last_has_ended(&self) -> Result<bool, Unknown> {
        self.has_ended(&(self.ended.len() - 1).to_string())
    }
}

#[test]
fn a_watch_brings_what_ends_without_a_question_and_saves_most_of_them() {
    let mut world = World::watching();
    for tick in 0..240 {
        if tick % 4 == 0 {
            world.end_one();
            assert_eq!(world.last_has_ended(), Ok(false));
            world.bring();
            assert_eq!(world.last_has_ended(), Ok(true));
        }
        world.tick(true);
    }
    // In a minute there would be 240 questions without a watch, and 60 reads of what is new.
    assert!((18..=20).contains(&world.calls.len()), "{}", world.calls.len());
    assert!(world.calls.iter().all(|range| !range), "the count shows that nothing is missing");
    assert_eq!(world.opened, 1);
}

#[test]
fn without_a_watch_the_vm_asks_at_every_tick() {
    let mut world = World::new();
    for _ in 0..40 {
        world.tick(true);
        // etcd never confirms the watch.
    }
    assert_eq!(world.calls.len(), 40);
    world.end_one();
    world.tick(true);
    assert_eq!(world.last_has_ended(), Ok(true));
}

#[test]
fn what_a_silent_watch_hides_is_found_by_the_next_question_and_the_watch_is_replaced() {
    let mut world = World::watching();
    world.end_one();
    let mut ticks = 0;
    while world.last_has_ended() == Ok(false) {
        world.tick(true);
        ticks += 1;
    }
    assert!((2..=14).contains(&ticks), "{ticks}: a third of max_staleness is 13 ticks");
    for _ in 0..8 {
        world.tick(true);
    }
    assert_eq!(world.opened, 2, "it is replaced");
    // The next one is confirmed, and as silent: the VM asks at every tick.
    let created = world.watch.as_mut().and_then(|watch| world.etcd.news(watch)).unwrap();
    world.arrive(created);
    world.calls.clear();
    for _ in 0..40 {
        world.tick(true);
    }
    assert_eq!(world.calls.len(), 40);
    // It speaks, and is believed.
    world.end_one();
    world.bring();
    assert_eq!(world.last_has_ended(), Ok(true));
    world.calls.clear();
    for _ in 0..40 {
        world.tick(true);
    }
    assert!(world.calls.len() < 5, "{}", world.calls.len());
}

#[test]
fn a_watch_that_missed_one_leaves_a_gap_and_the_vm_reads() {
    let mut world = World::watching();
    for _ in 0..3 {
        world.end_one();
    }
    world.send();
    world.on_the_way.remove(1);
    world.bring();
    let ended = |world: &World| [1, 2, 3].map(|user| world.has_ended(&user.to_string()));
    assert_eq!(ended(&world), [Ok(true), Ok(false), Ok(true)]);
    for _ in 0..14 {
        world.tick(true);
    }
    assert_eq!(ended(&world), [Ok(true); 3]);
    assert!(world.calls.contains(&true), "it has read what is new");
}

#[test]
fn a_watch_that_is_cut_off_or_compacted_or_speaks_nonsense_is_opened_again() {
    let faults: [fn(&mut World); 4] = [
        World::cut,
        |world| {
            world.end_one();
            world.etcd.compact();
            world.bring();
        },
        |world| world.arrive(Vec::new()),
        |world| world.arrive(b"<html>".to_vec()),
    ];
    for (case, fault) in faults.into_iter().enumerate() {
        let mut world = World::watching();
        fault(&mut world);
        let mut ticks = 0;
        while world.opened < 2 && ticks < 8 {
            world.tick(true);
            ticks += 1;
        }
        assert_eq!(world.opened, 2, "{case}");
        assert!(world.calls.len() >= ticks, "{case}: the VM asks at every tick meanwhile");
        world.bring();
        world.end_one();
        world.bring();
        assert_eq!(world.last_has_ended(), Ok(true), "{case}");
    }
}

/// However much the watch brings: without answers nobody knows what is missing.
#[test]
fn a_watch_that_speaks_keeps_no_copy_young() {
    let mut world = World::watching();
    for _ in 0..39 {
        world.tick(false);
        world.end_one();
        world.bring();
        assert_eq!(world.last_has_ended(), Ok(true));
    }
    for _ in 0..2 {
        world.tick(false);
        world.end_one();
        world.bring();
    }
    assert_eq!(world.last_has_ended(), Err(Unknown::Stale));
}

#[test]
fn a_vm_that_loses_its_turn_gives_its_watch_up() {
    let mut world = World::watching();
    let server = etcd_server(RecordKeys::default());
    let other = Rc::new(Revocations::etcd(&server, "tenant", STALE));
    world.host.now.set(world.host.now().after(Duration::from_secs(1)));
    assert!(other.follows(&*world.host), "the turn is free");
    world.tick(true);
    assert!(world.watch.is_none());
}

/// etcd is restored from a backup: the count of this VM is of another history.
#[test]
fn a_count_of_another_history_confirms_nothing() {
    let mut world = World::watching();
    let backup = world.etcd.clone();
    for _ in 0..3 {
        world.end_one();
    }
    world.bring();
    for _ in 0..14 {
        world.tick(true);
    }
    world.etcd = backup;
    world.cut();
    world.ended.clear();
    world.tick(true);
    assert_eq!(world.has_ended("live"), Ok(true), "everyone's has ended");
}

#[derive(Debug, Clone, Copy)]
enum Happens {
    /// An impersonation ends in another Envoy.
    Ends,
    /// The VM ticks, and etcd answers.
    Tick,
    /// The VM ticks, and etcd does not answer.
    TickInVain,
    /// etcd sends what it has to say, and it is on its way.
    Sends,
    /// The next message arrives.
    Arrives,
    /// The next message is lost.
    Lost,
    /// The next message arrives, and again later.
    Twice,
    /// The next message is overtaken by all others.
    Late,
    Cut,
    Compacted,
}

fn happens() -> impl Strategy<Value = Happens> {
    use Happens::*;
    prop_oneof![
        3 => Just(Ends),
        12 => Just(Tick),
        4 => Just(TickInVain),
        6 => Just(Sends),
        8 => Just(Arrives),
        2 => Just(Lost),
        2 => Just(Twice),
        2 => Just(Late),
        1 => Just(Cut),
        1 => Just(Compacted),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn nothing_that_has_ended_passes_for_longer_than_max_staleness(
        all in proptest::collection::vec(happens(), 0..200),
    ) {
        let mut world = World::new();
        for happens in all {
            match happens {
                Happens::Ends => world.end_one(),
                Happens::Tick => world.tick(true),
                Happens::TickInVain => world.tick(false),
                Happens::Sends => world.send(),
                Happens::Cut => world.cut(),
                Happens::Compacted => world.etcd.compact(),
                Happens::Arrives | Happens::Lost | Happens::Twice | Happens::Late => {
                    let Some(message) = world.on_the_way.pop_front() else { continue };
                    match happens {
                        Happens::Arrives => world.arrive(message),
                        Happens::Twice => {
                            world.arrive(message.clone());
                            world.on_the_way.push_back(message);
                        }
                        Happens::Late => world.on_the_way.push_back(message),
                        _ => {}
                    }
                }
            }
            world.check()?;
        }
        // etcd answers again: everything is known.
        for _ in 0..14 {
            world.tick(true);
            world.check()?;
        }
        for user in 0..world.ended.len() {
            prop_assert_eq!(world.has_ended(&user.to_string()), Ok(true), "user {}", user);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_message_of_a_watch_makes_the_guard_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..80),
        cut in 1_usize..200,
        place in 0_usize..200,
        change: u8,
    ) {
        let mut world = World::watching();
        world.end_one();
        world.send();
        let mut message = world.on_the_way.pop_front().unwrap();
        message.truncate(cut);
        let place = place % message.len();
        message[place] ^= change;
        world.arrive(message);
        world.arrive(bytes);
        world.tick(true);
    }
}
