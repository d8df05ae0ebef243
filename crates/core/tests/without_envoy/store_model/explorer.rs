//! Every interleaving of a few actors, at the granularity of single calls to the host.
//!
//! There are no threads. The search runs an actor from its beginning, with the answers that it had
//! before. It performs the first call without an answer, fails all later calls, and throws their
//! results away. So the world between two calls is a plain value, which the search can keep,
//! compare and return to, and the search walks the tree of all schedules.
//!
//! Schedules that lead to the same world (the same shared data, the same clock, the same answers to
//! every actor) have the same futures. The search visits each world once, and counts the schedules
//! as the paths through it.
//!
//! An actor that stops for ever after one of its calls needs no search of its own: the schedules in
//! which it is not chosen again cover this. A check that treats the unfinished actors of each world
//! as dead covers every crash.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use impersonation_core::fakes::EnvoyMap;
use impersonation_core::host::{Expected, Host, HostFailure, SharedData, Swap, UnixTime, Version};

/// A value in shared data, hashed once.
#[derive(Clone)]
pub(super) struct Value {
    bytes: Rc<[u8]>,
    fingerprint: u128,
}

impl Value {
    pub(super) fn new(bytes: &[u8]) -> Self {
        Self { bytes: bytes.into(), fingerprint: fingerprint(bytes) }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Hash for Value {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.fingerprint.hash(state);
    }
}

/// A fingerprint of 128 bits: two worlds of one search practically never share one.
pub(super) fn fingerprint(value: impl Hash) -> u128 {
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, &value).hash(&mut hasher);
        u128::from(hasher.finish())
    };
    half(0) << 64 | half(1)
}

/// A call of the host, as a schedule prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Call {
    Get(String),
    Set(String),
    Now,
}

/// The host's answer to a call.
#[derive(Clone, Hash)]
pub(super) enum Answer {
    Got(Option<(Value, Version)>),
    Written,
    Lost,
    /// Milliseconds.
    Now(u64),
    Failed,
}

/// The world between two calls.
#[derive(Clone)]
pub(super) struct World<E> {
    pub shared_data: EnvoyMap<Value>,
    pub now: UnixTime,
    pub actors: Vec<Rc<Progress<E>>>,
    ticks: usize,
}

/// The progress of an actor.
#[derive(Clone)]
pub(super) struct Progress<E> {
    pub past: Vec<(Call, Answer)>,
    /// The events that the actor noted.
    pub events: Vec<E>,
    /// The time at which its first call was performed.
    pub began: Option<UnixTime>,
    pub finished: bool,
    /// The fingerprint of all fields above.
    fingerprint: u128,
}

impl<E> World<E> {
    fn fingerprint(&self) -> u128 {
        let actors: Vec<_> = self.actors.iter().map(|actor| actor.fingerprint).collect();
        fingerprint((&self.shared_data, self.ticks, actors))
    }
}

/// The host that one actor sees during one run.
pub(super) struct Stage<'s, E> {
    past: &'s [(Call, Answer)],
    replayed: Cell<usize>,
    /// The only call of this run that is not a repetition.
    performed: RefCell<Option<(Call, Answer)>>,
    /// True if a later call was refused: the actor continues in another run.
    cut: Cell<bool>,
    failing: bool,
    shared_data: RefCell<EnvoyMap<Value>>,
    now: UnixTime,
    clock_stands: bool,
    events: RefCell<Vec<E>>,
}

/// The call was not performed in this run.
struct Cut;

impl<E> SharedData for Stage<'_, E> {
    fn get(&self, key: &str) -> Result<Option<(Vec<u8>, Version)>, HostFailure> {
        let answer = self.ask(Call::Get(key.to_owned()), |map| Answer::Got(map.get(key)));
        match answer {
            Ok(Answer::Got(found)) => {
                Ok(found.map(|(value, version)| (value.bytes.to_vec(), version)))
            }
            _ => Err(HostFailure("shared data")),
        }
    }

    fn compare_and_set(
        &self,
        key: &str,
        value: &[u8],
        expected: Expected,
    ) -> Result<Swap, HostFailure> {
        self.write(key, |map| map.compare_and_set(key, Value::new(value), expected))
    }
}

impl<E> Host for Stage<'_, E> {
    fn now(&self) -> UnixTime {
        let asked_while_it_ran = matches!(self.past.get(self.replayed.get()), Some((Call::Now, _)));
        if self.clock_stands && !asked_while_it_ran {
            return self.now;
        }
        match self.ask(Call::Now, |_| Answer::Now(self.now.millis())) {
            Ok(Answer::Now(millis)) => UnixTime::from_millis(millis),
            _ => self.now,
        }
    }

    /// Fails. An actor that draws numbers has its own source, with the same numbers in each run.
    fn random(&self, _buffer: &mut [u8]) -> Result<(), HostFailure> {
        Err(HostFailure("randomness"))
    }
}

impl<E> Stage<'_, E> {
    /// The blind write, which the filter never uses.
    pub(super) fn overwrite(&self, key: &str, value: &[u8]) -> Result<Swap, HostFailure> {
        self.write(key, |map| map.set(key, Value::new(value), 0))
    }

    fn write(
        &self,
        key: &str,
        write: impl FnOnce(&mut EnvoyMap<Value>) -> Swap,
    ) -> Result<Swap, HostFailure> {
        let answer = self.ask(Call::Set(key.to_owned()), |map| match write(map) {
            Swap::Done => Answer::Written,
            Swap::Lost => Answer::Lost,
        });
        match answer {
            Ok(Answer::Written) => Ok(Swap::Done),
            Ok(Answer::Lost) => Ok(Swap::Lost),
            _ => Err(HostFailure("shared data")),
        }
    }

    /// Notes an event: a decision of the actor.
    pub(super) fn note(&self, event: E) {
        if !self.cut.get() {
            self.events.borrow_mut().push(event);
        }
    }

    /// The number of writes of this actor that took effect so far.
    pub(super) fn writes(&self) -> usize {
        let done = |(_, answer): &&(Call, Answer)| matches!(answer, Answer::Written);
        let replayed = self.past.iter().take(self.replayed.get()).filter(done).count();
        replayed + self.performed.borrow().iter().filter(done).count()
    }

    fn ask(
        &self,
        call: Call,
        perform: impl FnOnce(&mut EnvoyMap<Value>) -> Answer,
    ) -> Result<Answer, Cut> {
        if let Some((before, answer)) = self.past.get(self.replayed.get()) {
            assert_eq!(&call, before, "an actor did something else on the same answers");
            self.replayed.set(self.replayed.get() + 1);
            return Ok(answer.clone());
        }
        if self.performed.borrow().is_some() {
            self.cut.set(true);
            return Err(Cut);
        }
        let answer =
            if self.failing { Answer::Failed } else { perform(&mut self.shared_data.borrow_mut()) };
        *self.performed.borrow_mut() = Some((call, answer.clone()));
        Ok(answer)
    }
}

/// An actor: its work with the host.
pub(super) type Actor<'e, E> = Box<dyn Fn(&Stage<'_, E>) + 'e>;

/// A rule that every world is checked against.
pub(super) type Check<'e, E> = Box<dyn Fn(&World<E>) -> Result<(), String> + 'e>;

/// A search.
pub(super) struct Explorer<'e, E> {
    pub actors: Vec<Actor<'e, E>>,
    /// The clock starts at the first of these times, and moves to the next at any point.
    pub times: Vec<UnixTime>,
    /// True if one call of each actor, at any point, may fail.
    pub calls_fail: bool,
    pub check: Check<'e, E>,
}

/// The size of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Explored {
    pub interleavings: u128,
    pub worlds: usize,
}

/// A world that breaks a rule, and the way to it.
#[derive(Debug)]
pub(super) struct Violation {
    pub rule: String,
    pub schedule: Vec<String>,
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "{}, after:", self.rule)?;
        self.schedule.iter().try_for_each(|step| writeln!(formatter, "  {step}"))
    }
}

#[derive(Clone, Copy)]
enum Choice {
    Tick,
    Run(usize),
    RunFailing(usize),
}

impl<E: Clone> Explorer<'_, E> {
    /// Visits every world that can arise.
    pub(super) fn explore(&self, shared_data: EnvoyMap<Value>) -> Result<Explored, Violation> {
        let mut seen = HashMap::new();
        let interleavings = self.visit(&self.beginning(shared_data), &mut Vec::new(), &mut seen)?;
        Ok(Explored { interleavings, worlds: seen.len() })
    }

    /// Plays one schedule of a search that is too large to finish. `choose` picks one of so many
    /// choices.
    pub(super) fn walk(
        &self,
        shared_data: EnvoyMap<Value>,
        mut choose: impl FnMut(usize) -> usize,
    ) -> Result<(), Violation> {
        let mut world = self.beginning(shared_data);
        let mut path = Vec::new();
        loop {
            (self.check)(&world).map_err(|rule| Violation {
                rule,
                schedule: schedule(&path, &world, &self.times),
            })?;
            let choices = self.choices(&world);
            if choices.is_empty() {
                return Ok(());
            }
            let choice = choices[choose(choices.len())];
            if let Some(next) = self.choose(&world, choice) {
                path.push(choice);
                world = next;
            }
        }
    }

    fn beginning(&self, shared_data: EnvoyMap<Value>) -> World<E> {
        let (past, events) = (Vec::new(), Vec::new());
        let idle = Progress { past, events, began: None, finished: false, fingerprint: 0 };
        let idle = Rc::new(idle);
        let actors = vec![idle; self.actors.len()];
        World { shared_data, now: self.times[0], ticks: 0, actors }
    }

    /// Returns the number of ways in which this world can end.
    fn visit(
        &self,
        world: &World<E>,
        path: &mut Vec<Choice>,
        seen: &mut HashMap<u128, u128>,
    ) -> Result<u128, Violation> {
        let fingerprint = world.fingerprint();
        if let Some(ends) = seen.get(&fingerprint) {
            return Ok(*ends);
        }
        (self.check)(world)
            .map_err(|rule| Violation { rule, schedule: schedule(path, world, &self.times) })?;
        let mut ends = 0;
        for choice in self.choices(world) {
            let Some(next) = self.choose(world, choice) else { continue };
            path.push(choice);
            ends += self.visit(&next, path, seen)?;
            path.pop();
        }
        let ends = ends.max(1);
        seen.insert(fingerprint, ends);
        Ok(ends)
    }

    fn choices(&self, world: &World<E>) -> Vec<Choice> {
        let mut choices = Vec::new();
        if world.ticks + 1 < self.times.len() {
            choices.push(Choice::Tick);
        }
        for (index, actor) in world.actors.iter().enumerate().filter(|(_, actor)| !actor.finished) {
            choices.push(Choice::Run(index));
            let failed = actor.past.iter().any(|(_, answer)| matches!(answer, Answer::Failed));
            if self.calls_fail && !failed {
                choices.push(Choice::RunFailing(index));
            }
        }
        choices
    }

    /// Returns the world after a choice; `None` if the choice is impossible, because reading the
    /// clock does not fail.
    fn choose(&self, world: &World<E>, choice: Choice) -> Option<World<E>> {
        let (index, failing) = match choice {
            Choice::Tick => {
                let ticks = world.ticks + 1;
                return Some(World { ticks, now: self.times[ticks], ..world.clone() });
            }
            Choice::Run(index) => (index, false),
            Choice::RunFailing(index) => (index, true),
        };
        let stage = Stage {
            past: &world.actors[index].past,
            replayed: Cell::new(0),
            performed: RefCell::new(None),
            cut: Cell::new(false),
            failing,
            shared_data: RefCell::new(world.shared_data.clone()),
            now: world.now,
            clock_stands: world.ticks + 1 == self.times.len(),
            events: RefCell::new(Vec::new()),
        };
        (self.actors[index])(&stage);
        let performed = stage.performed.into_inner();
        if failing && !matches!(performed, Some((Call::Get(_) | Call::Set(_), _))) {
            return None;
        }
        let mut actors = world.actors.clone();
        let actor = Rc::make_mut(&mut actors[index]);
        let began = *actor.began.get_or_insert(world.now);
        actor.finished = !stage.cut.get();
        let answer = performed.as_ref().map(|(_, answer)| answer);
        let step = (actor.fingerprint, answer, began.millis(), actor.finished);
        actor.fingerprint = fingerprint(step);
        actor.past.extend(performed);
        actor.events = stage.events.into_inner();
        Some(World { shared_data: stage.shared_data.into_inner(), actors, ..world.clone() })
    }
}

/// The way to a world, with one line for each step.
fn schedule<E>(path: &[Choice], world: &World<E>, times: &[UnixTime]) -> Vec<String> {
    let mut done = vec![0; world.actors.len()];
    let mut ticks = 0;
    let lines = path.iter().map(|choice| match choice {
        Choice::Tick => {
            ticks += 1;
            format!("the clock shows {} ms", times[ticks].millis())
        }
        Choice::Run(index) | Choice::RunFailing(index) => {
            let step = world.actors[*index].past.get(done[*index]);
            done[*index] += 1;
            let Some((call, answer)) = step else { return format!("actor {index} ends") };
            let answer = match answer {
                Answer::Got(None) => "absent".to_owned(),
                Answer::Got(Some((_, version))) => format!("version {version}"),
                Answer::Written => "written".to_owned(),
                Answer::Lost => "lost".to_owned(),
                Answer::Now(millis) => format!("{millis} ms"),
                Answer::Failed => "failed".to_owned(),
            };
            format!("actor {index}: {call:?}: {answer}")
        }
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An actor of `calls` calls, each of which appends its name to one value.
    fn writer<'e>(name: u8, calls: usize) -> Actor<'e, ()> {
        Box::new(move |stage| {
            let mut seen = Vec::new();
            for _ in 0..calls {
                // Every write reads the last one, so all orders end in different worlds.
                seen.push(name);
                let _ = stage.overwrite(&format!("{seen:?}"), &[name]);
            }
        })
    }

    fn explore(actors: Vec<Actor<'_, ()>>, ticks: usize) -> Explored {
        let times = (0..=ticks).map(|tick| UnixTime::from_millis(tick as u64)).collect();
        let check: Check<'_, ()> = Box::new(|_| Ok(()));
        Explorer { actors, times, calls_fail: false, check }.explore(EnvoyMap::default()).unwrap()
    }

    #[test]
    fn every_order_of_the_calls_is_visited() {
        // Multinomial coefficients: (2+3)!/(2! 3!), (4+4+4)!/(4! 4! 4!), (2+2+1)!/(2! 2! 1!).
        let two = explore(vec![writer(1, 2), writer(2, 3)], 0);
        assert_eq!(two.interleavings, 10);
        let three = explore(vec![writer(1, 4), writer(2, 4), writer(3, 4)], 0);
        assert_eq!(three.interleavings, 34_650);
        let with_clock = explore(vec![writer(1, 2), writer(2, 2)], 1);
        assert_eq!(with_clock.interleavings, 30);
    }

    #[test]
    fn orders_that_differ_in_nothing_are_counted_and_visited_once() {
        let reader = || -> Actor<'_, ()> {
            Box::new(|stage| {
                for _ in 0..4 {
                    let _ = stage.get("nothing");
                }
            })
        };
        let explored = explore(vec![reader(), reader()], 0);
        assert_eq!(explored, Explored { interleavings: 70, worlds: 25 });
    }

    #[test]
    fn any_one_call_of_an_actor_fails_or_none() {
        let check: Check<'_, ()> = Box::new(|_| Ok(()));
        let times = vec![UnixTime::default()];
        let explorer = Explorer { actors: vec![writer(1, 3)], times, calls_fail: true, check };
        assert_eq!(explorer.explore(EnvoyMap::default()).unwrap().interleavings, 4);
    }
}
