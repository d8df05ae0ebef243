//! A world without Envoy: whole requests through the core, by a clock that stands still until it is
//! moved, with randomness that can be repeated, shared data in a map, and upstreams that say what a test
//! tells them to.
//!
//! [`Gateway`] is to the core what `src/filter` is in Envoy, and loops until a request is answered.

pub mod shared_data;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use impersonation_core::config::Config;
use impersonation_core::host::{
    Counter, Expected, Host, HostFailure, SharedData, Swap, UnixTime, Version,
};
use impersonation_core::issuer::Service;
use impersonation_core::issuer::{Begun, Body, Head, MAX_BODY};
use impersonation_core::step::{Call, Finished, Origin, Reply, Step, Task};
use serde_json::Value;

use shared_data::EnvoyMap;

/// When every test begins.
pub const START: UnixTime = UnixTime::from_millis(1_790_000_000_000);

/// What the core gets at once.
pub struct World {
    now: Cell<UnixTime>,
    random_state: Cell<u64>,
    shared_data: RefCell<EnvoyMap<Vec<u8>>>,
    /// So many more calls are answered; the one after them fails.
    shared_data_fails_after: Cell<Option<u32>>,
    random_fails_after: Cell<Option<u32>>,
    /// What another worker does right before the next write.
    intruder: RefCell<Option<Box<dyn FnOnce()>>>,
    /// What the operator is told apart from the outcome of requests.
    pub warnings: RefCell<Vec<String>>,
    pub counted: RefCell<Vec<Counter>>,
    /// What is there for who looks closely.
    pub debugged: RefCell<Vec<String>>,
}

impl Default for World {
    fn default() -> Self {
        Self {
            now: Cell::new(START),
            random_state: Cell::new(1),
            shared_data: RefCell::default(),
            shared_data_fails_after: Cell::new(None),
            random_fails_after: Cell::new(None),
            intruder: RefCell::default(),
            warnings: RefCell::default(),
            counted: RefCell::default(),
            debugged: RefCell::default(),
        }
    }
}

impl World {
    pub fn advance(&self, by: Duration) {
        self.now.set(self.now.get().after(by));
    }

    /// Lets the call to shared data fail that comes after `answered` others.
    pub fn fail_shared_data(&self, answered: u32) {
        self.shared_data_fails_after.set(Some(answered));
    }

    /// Lets the draw fail that comes after `answered` others.
    pub fn fail_randomness(&self, answered: u32) {
        self.random_fails_after.set(Some(answered));
    }

    /// Takes back what was to fail. Whether it did.
    pub fn heal(&self) -> bool {
        let left = [self.shared_data_fails_after.take(), self.random_fails_after.take()];
        left.iter().all(Option::is_none)
    }

    /// Lets another worker act right before the next write, once.
    pub fn before_next_write(&self, intruder: impl FnOnce() + 'static) {
        *self.intruder.borrow_mut() = Some(Box::new(intruder));
    }

    /// All that is stored.
    pub fn stored(&self) -> Vec<(String, Vec<u8>)> {
        let map = self.shared_data.borrow();
        map.entries().map(|(key, value)| (key.to_owned(), value.clone())).collect()
    }
}

/// Counts down to a failure; once it has happened all is well again.
fn due(fails_after: &Cell<Option<u32>>) -> bool {
    match fails_after.get() {
        Some(0) => {
            fails_after.set(None);
            true
        }
        left => {
            fails_after.set(left.map(|left| left - 1));
            false
        }
    }
}

impl SharedData for World {
    fn get(&self, key: &str) -> Result<Option<(Vec<u8>, Version)>, HostFailure> {
        if due(&self.shared_data_fails_after) {
            return Err(HostFailure("shared data"));
        }
        Ok(self.shared_data.borrow().get(key))
    }

    fn compare_and_set(
        &self,
        key: &str,
        value: &[u8],
        expected: Expected,
    ) -> Result<Swap, HostFailure> {
        if due(&self.shared_data_fails_after) {
            return Err(HostFailure("shared data"));
        }
        let intruder = self.intruder.take();
        if let Some(intruder) = intruder {
            intruder();
        }
        Ok(self.shared_data.borrow_mut().compare_and_set(key, value.to_vec(), expected))
    }
}

impl Host for World {
    fn now(&self) -> UnixTime {
        self.now.get()
    }

    fn random(&self, buffer: &mut [u8]) -> Result<(), HostFailure> {
        if due(&self.random_fails_after) {
            return Err(HostFailure("randomness"));
        }
        for byte in buffer {
            // SplitMix64, for its good mixing in three lines.
            let state = self.random_state.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
            self.random_state.set(state);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            *byte = (mixed >> 56) as u8;
        }
        Ok(())
    }

    fn count(&self, counter: Counter) {
        self.counted.borrow_mut().push(counter);
    }

    fn debug(&self, message: &str) {
        self.debugged.borrow_mut().push(message.to_owned());
    }

    fn warn(&self, message: &str) {
        self.warnings.borrow_mut().push(message.to_owned());
    }
}

/// A request as it reaches Envoy.
#[derive(Clone)]
pub struct Request {
    pub method: &'static str,
    pub path: String,
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
}

impl Request {
    fn header(&self, name: &str) -> Option<Vec<u8>> {
        let found = self.headers.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| value.clone().into_bytes())
    }
}

/// What became of a request.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Value,
    /// The line of the audit log.
    pub event: Value,
    /// The alarm, where a spent token was presented.
    pub alarm: Option<Value>,
    /// The line of the operator's log.
    pub explanation: String,
}

impl Answer {
    fn new(finished: Finished) -> Self {
        let Finished { response, event, explanation, replay } = finished;
        Self {
            status: response.status,
            headers: response.headers,
            body: serde_json::from_slice(&response.body).unwrap(),
            event: event.map_or(Value::Null, |event| json(&event.to_json())),
            alarm: replay.map(|replay| json(&replay.to_json())),
            explanation: explanation.unwrap_or_default(),
        }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The member of an answer that must have it.
    pub fn text(&self, member: &str) -> &str {
        self.body[member].as_str().unwrap_or_else(|| panic!("no {member} in {self:?}"))
    }

    /// The check that refused.
    pub fn reason(&self) -> &str {
        self.event["reason"].as_str().unwrap_or("")
    }
}

fn json(line: &str) -> Value {
    assert!(!line.contains('\n'), "not one line: {line:?}");
    serde_json::from_str(line).unwrap()
}

/// What an upstream does with a call.
pub type Upstream = Box<dyn Fn(&Call) -> Reply>;

/// One worker, with a service.
pub struct Gateway {
    pub world: Rc<World>,
    pub service: Rc<Service>,
    upstreams: RefCell<VecDeque<Upstream>>,
    /// The calls that went out.
    pub calls: RefCell<Vec<Call>>,
}

impl Gateway {
    /// A world with one worker in it.
    pub fn new(configuration: &Value) -> Self {
        Self::in_world(&Rc::default(), configuration)
    }

    /// One more worker in a world, or the same after its configuration changed.
    pub fn in_world(world: &Rc<World>, configuration: &Value) -> Self {
        let bytes = configuration.to_string().into_bytes();
        let config = Config::parse(&bytes, &|_| None).unwrap_or_else(|error| panic!("{error}"));
        Self {
            world: Rc::clone(world),
            service: Rc::new(Service::new(config)),
            upstreams: RefCell::default(),
            calls: RefCell::default(),
        }
    }

    /// Says what the next upstream that is called will do.
    pub fn upstream(&self, upstream: impl Fn(&Call) -> Reply + 'static) {
        self.upstreams.borrow_mut().push_back(Box::new(upstream));
    }

    /// Lets the timer of the worker tick: key sets that are due are fetched.
    pub fn tick(&self) {
        for key_set in self.service.remote_key_sets() {
            if let Some(call) = key_set.tick(&*self.world) {
                let reply = self.reply(call);
                let _ = key_set.fetched(&*self.world, &reply);
            }
        }
    }

    /// Plays a request to its end; `None` if it goes on to the identity gateway.
    pub fn try_send(&self, request: &Request) -> Option<Answer> {
        let mut step = self.begin(request)?;
        loop {
            match step {
                Step::Done(finished) => return Some(Answer::new(finished)),
                Step::Call(call, task) => {
                    let upstream = self.upstreams.borrow_mut().pop_front();
                    let reply =
                        upstream.unwrap_or_else(|| panic!("nobody expects {call:?}"))(&call);
                    self.calls.borrow_mut().push(call);
                    step = task.resume(reply);
                }
            }
        }
    }

    fn reply(&self, call: Call) -> Reply {
        let upstream = self.upstreams.borrow_mut().pop_front();
        let reply = upstream.unwrap_or_else(|| panic!("nobody expects {call:?}"))(&call);
        self.calls.borrow_mut().push(call);
        reply
    }

    /// Plays a request that is ours.
    pub fn send(&self, request: &Request) -> Answer {
        self.try_send(request).expect("the request went on to the identity gateway")
    }

    /// Plays a request up to its first call.
    pub fn send_and_wait(&self, request: &Request) -> Task {
        match self.begin(request) {
            Some(Step::Call(_, task)) => task,
            _ => panic!("nothing is called"),
        }
    }

    fn begin(&self, request: &Request) -> Option<Step> {
        let route = self.service.paths.route(request.method.as_bytes(), request.path.as_bytes())?;
        let head = Head {
            origin: Origin {
                request_id: String::from_utf8(request.header("x-request-id").unwrap_or_default())
                    .unwrap(),
                traceparent: None,
            },
            authorization: request.header("authorization"),
            content_type: request.header("content-type"),
            if_none_match: request.header("if-none-match"),
        };
        let mut body = request.body.clone();
        let body = if body.len() > MAX_BODY {
            body.truncate(MAX_BODY);
            Body::TooLong(body)
        } else {
            Body::Whole(body)
        };
        match self.service.begin(Rc::clone(&self.world) as Rc<dyn Host>, route, head, body) {
            Begun::Step(step) => Some(step),
            Begun::PassThrough | Begun::Merge(..) => None,
        }
    }
}
