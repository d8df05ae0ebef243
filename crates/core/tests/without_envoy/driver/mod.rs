//! A world without Envoy: whole requests through the core, by a clock that stands still until it is
//! moved, with randomness that can be repeated, shared data in a map, and upstreams that say what a test
//! tells them to.
//!
//! [`Gateway`] is to the core what the plugin is in Envoy: it shows a stream its request, sends its calls, and
//! takes down what it does.

pub(crate) mod shared_data;

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use impersonation_core::host::{
    Expected, Host, HostFailure, Level, SharedData, Swap, UnixTime, Version,
};
use impersonation_core::issuer::Service;
use impersonation_core::jose::NativeCrypto;
use impersonation_core::metrics;
use impersonation_core::step::{
    Call, CallFailure, HttpCall, Progress, Reply, Step, WhenCallerLeaves,
};
use impersonation_core::stream::{Flow, HttpStream, Stream};
use serde_json::Value;

use shared_data::EnvoyMap;

/// When every test begins.
pub(crate) const START: UnixTime = UnixTime::from_millis(1_790_000_000_000);

/// What the core gets at once.
pub(crate) struct World {
    now: Cell<UnixTime>,
    random_state: Cell<u64>,
    shared_data: RefCell<EnvoyMap<Vec<u8>>>,
    /// So many more calls are answered; the one after them fails.
    shared_data_fails_after: Cell<Option<u32>>,
    random_fails_after: Cell<Option<u32>>,
    /// What is there before anything is minted.
    begun: RefCell<Vec<(String, Vec<u8>)>>,
    /// What another worker does right before the next write.
    intruder: RefCell<Option<Box<dyn FnOnce()>>>,
    /// What the operator is told apart from the outcome of requests.
    pub warnings: RefCell<Vec<String>>,
    /// The alarms about spent tokens.
    alarms: RefCell<Vec<String>>,
    /// The audit log.
    pub events: RefCell<Vec<String>>,
    /// What is counted besides the outcome of requests.
    pub counted: RefCell<Vec<Cow<'static, str>>>,
    /// What was set last.
    pub gauges: RefCell<BTreeMap<&'static str, u64>>,
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
            begun: RefCell::default(),
            intruder: RefCell::default(),
            warnings: RefCell::default(),
            alarms: RefCell::default(),
            events: RefCell::default(),
            counted: RefCell::default(),
            gauges: RefCell::default(),
            debugged: RefCell::default(),
        }
    }
}

impl World {
    pub(crate) fn advance(&self, by: Duration) {
        self.now.set(self.now.get().after(by));
    }

    /// Sets the clock back.
    pub(crate) fn set_back(&self, by: Duration) {
        self.now.set(self.now.get().before(by));
    }

    /// Lets the call to shared data fail that comes after `answered` others.
    pub(crate) fn fail_shared_data(&self, answered: u32) {
        self.shared_data_fails_after.set(Some(answered));
    }

    /// Lets the draw fail that comes after `answered` others.
    pub(crate) fn fail_randomness(&self, answered: u32) {
        self.random_fails_after.set(Some(answered));
    }

    /// Takes back what was to fail. Whether it did.
    pub(crate) fn heal(&self) -> bool {
        let left = [self.shared_data_fails_after.take(), self.random_fails_after.take()];
        left.iter().all(Option::is_none)
    }

    /// Lets another worker act right before the next write, once.
    pub(crate) fn before_next_write(&self, intruder: impl FnOnce() + 'static) {
        *self.intruder.borrow_mut() = Some(Box::new(intruder));
    }

    /// All that is stored, but for what a service begins with.
    pub(crate) fn stored(&self) -> Vec<(String, Vec<u8>)> {
        let (map, begun) = (self.shared_data.borrow(), self.begun.borrow());
        let all = map.entries().map(|(key, value)| (key.to_owned(), value.clone()));
        all.filter(|entry| !begun.contains(entry)).collect()
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

    fn count(&self, counter: Cow<'static, str>) {
        let outcomes = [
            metrics::CREATED,
            metrics::EXCHANGED,
            metrics::REPLAYED,
            metrics::STORE_FULL,
            "impersonation_refusals_total",
        ];
        if !outcomes.iter().any(|outcome| counter.starts_with(outcome)) {
            self.counted.borrow_mut().push(counter);
        }
    }

    fn add(&self, counter: &'static str, count: u64) {
        (0..count).for_each(|_| self.count(counter.into()));
    }

    fn set(&self, gauge: &'static str, value: u64) {
        self.gauges.borrow_mut().insert(gauge, value);
    }

    fn log(&self, level: Level, line: &str) {
        let lines = match level {
            Level::Debug => &self.debugged,
            Level::Info => &self.events,
            Level::Warn if line.starts_with("{\"alarm\"") => &self.alarms,
            Level::Warn | Level::Error => &self.warnings,
        };
        lines.borrow_mut().push(line.to_owned());
    }
}

/// A request as it reaches Envoy.
#[derive(Clone)]
pub(crate) struct Request {
    pub method: &'static str,
    pub path: String,
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
}

/// What became of a request.
#[derive(Debug)]
pub(crate) struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Value,
    /// The line of the audit log.
    pub event: Value,
    /// The alarm, where a spent token was presented.
    pub alarm: Option<Value>,
    /// The line of the operator's log.
    pub explanation: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The member of an answer that must have it.
    pub(crate) fn text(&self, member: &str) -> &str {
        self.body[member].as_str().unwrap_or_else(|| panic!("no {member} in {self:?}"))
    }

    /// The check that refused.
    pub(crate) fn reason(&self) -> &str {
        self.event["reason"].as_str().unwrap_or("")
    }
}

fn json(line: &str) -> Value {
    assert!(!line.contains('\n'), "not one line: {line:?}");
    serde_json::from_str(line).unwrap()
}

/// What an upstream does with a call.
pub(crate) type Upstream = Box<dyn Fn(&HttpCall) -> Reply>;

/// One worker, with a service.
pub(crate) struct Gateway {
    pub world: Rc<World>,
    pub service: Rc<Service>,
    upstreams: RefCell<VecDeque<Upstream>>,
    /// The calls that went out.
    pub calls: RefCell<Vec<HttpCall>>,
}

/// An answer that was sent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub status: u16,
    pub headers: Vec<(String, Vec<u8>)>,
    pub body: Vec<u8>,
}

/// A stream as Envoy would have it.
#[derive(Default)]
pub(crate) struct Shown {
    pub request_headers: RefCell<Vec<(String, Vec<u8>)>>,
    request_body: Vec<u8>,
    /// The gateway's answer, as far as it is here.
    pub response_headers: RefCell<Vec<(String, Vec<u8>)>>,
    pub response_body: RefCell<Vec<u8>>,
    /// What the filter answered.
    pub answered: RefCell<Option<Sent>>,
    pub filter_state: RefCell<Vec<(String, String)>>,
    called: RefCell<Option<(HttpCall, WhenCallerLeaves)>>,
}

impl Shown {
    pub(crate) fn new(request: &Request) -> Self {
        let headers = [(":method", request.method), (":path", &request.path)];
        let headers = headers.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        let more = request.headers.iter();
        let more = more.map(|(name, value)| ((*name).into(), value.clone().into_bytes()));
        Self {
            request_headers: RefCell::new(headers.chain(more).collect()),
            request_body: request.body.clone(),
            ..Self::default()
        }
    }
}

fn find(headers: &[(String, Vec<u8>)], name: &str) -> Option<Vec<u8>> {
    headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
}

fn set(headers: &mut Vec<(String, Vec<u8>)>, name: &str, value: &str) {
    headers.retain(|(known, _)| known != name);
    headers.push((name.into(), value.into()));
}

impl HttpStream for Shown {
    fn request_header(&self, name: &str) -> Option<Vec<u8>> {
        find(&self.request_headers.borrow(), name)
    }

    fn set_request_header(&self, name: &str, value: &str) {
        set(&mut self.request_headers.borrow_mut(), name, value);
    }

    fn remove_request_header(&self, name: &str) {
        self.request_headers.borrow_mut().retain(|(known, _)| known != name);
    }

    fn request_body(&self, len: usize) -> Vec<u8> {
        self.request_body[..len.min(self.request_body.len())].to_vec()
    }

    fn response_header(&self, name: &str) -> Option<Vec<u8>> {
        find(&self.response_headers.borrow(), name)
    }

    fn response_headers(&self) -> Vec<(String, Vec<u8>)> {
        self.response_headers.borrow().clone()
    }

    fn set_response_header(&self, name: &str, value: &str) {
        set(&mut self.response_headers.borrow_mut(), name, value);
    }

    fn remove_response_header(&self, name: &str) {
        self.response_headers.borrow_mut().retain(|(known, _)| known != name);
    }

    fn response_body(&self, len: usize) -> Vec<u8> {
        let body = self.response_body.borrow();
        body[..len.min(body.len())].to_vec()
    }

    fn replace_response_body(&self, body: &[u8], size: usize) {
        self.response_body.borrow_mut().splice(..size, body.iter().copied());
    }

    fn respond(&self, status: u16, headers: &[(&str, &[u8])], body: &[u8], _details: &str) {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), value.to_vec()));
        let answer = Sent { status, headers: headers.collect(), body: body.to_vec() };
        assert!(self.answered.replace(Some(answer)).is_none(), "answered twice");
    }

    fn resume_request(&self) {
        panic!("no request goes on after a call");
    }

    fn set_filter_state(&self, name: &str, value: &str) {
        self.filter_state.borrow_mut().push((name.to_owned(), value.to_owned()));
    }

    fn send(&self, call: &Call, when_caller_leaves: WhenCallerLeaves) -> Result<(), CallFailure> {
        let Call::Http(call) = call else { panic!("{call:?} is not over HTTP") };
        self.called.replace(Some((call.clone(), when_caller_leaves)));
        Ok(())
    }
}

/// A request that waits for the reply to its call.
pub(crate) struct Waiting<'g> {
    gateway: &'g Gateway,
    stream: Stream,
    shown: Shown,
}

impl Waiting<'_> {
    /// The caller leaves. The line of the audit log, if that was the end of it.
    pub(crate) fn leave(&mut self) -> Option<Value> {
        let before = self.gateway.world.events.borrow().len();
        let goes_on = self.stream.on_end(&self.shown);
        let event = self.gateway.world.events.borrow().get(before).map(|line| json(line));
        assert_eq!(goes_on, event.is_none(), "either it goes on, or there is a line about it");
        event
    }

    /// The reply comes; what is called next is answered, too. The line of the audit log.
    pub(crate) fn reply(&mut self, reply: Reply) -> Value {
        let before = self.gateway.world.events.borrow().len();
        self.stream.on_reply(&self.shown, reply);
        self.gateway.answer_calls(&mut self.stream, &self.shown);
        assert!(self.shown.answered.borrow().is_none(), "an answer to nobody");
        json(&self.gateway.world.events.borrow()[before])
    }
}

impl Gateway {
    /// A world with one worker in it.
    pub(crate) fn new(configuration: &Value) -> Self {
        Self::in_world(&Rc::default(), configuration)
    }

    /// One more worker in a world, or the same after its configuration changed.
    pub(crate) fn in_world(world: &Rc<World>, configuration: &Value) -> Self {
        Self::with_crypto(world, configuration, None)
    }

    /// A worker whose host has cryptography of its own.
    pub(crate) fn with_crypto(
        world: &Rc<World>,
        configuration: &Value,
        crypto: Option<Box<dyn NativeCrypto>>,
    ) -> Self {
        let bytes = configuration.to_string().into_bytes();
        let service = Service::configure(&bytes, &|_| None, world.now(), crypto);
        let service = service.unwrap_or_else(|error| panic!("{error}"));
        service.create_tables(&**world);
        let begun = world.stored();
        world.begun.borrow_mut().extend(begun);
        Self {
            world: Rc::clone(world),
            service: Rc::new(service),
            upstreams: RefCell::default(),
            calls: RefCell::default(),
        }
    }

    /// Says what the next upstream that is called will do.
    pub(crate) fn upstream(&self, upstream: impl Fn(&HttpCall) -> Reply + 'static) {
        self.upstreams.borrow_mut().push_back(Box::new(upstream));
    }

    /// Lets the timer of the worker tick: what is due is done.
    pub(crate) fn tick(&self) {
        let host = Rc::clone(&self.world) as Rc<dyn Host>;
        for step in self.service.tick(&host) {
            self.run(step);
        }
    }

    fn run(&self, mut step: Step<()>) {
        loop {
            let mut called = None;
            let progress = step.run(|call, _| {
                called = Some(call.clone());
                Ok(())
            });
            let Progress::Waiting(task) = progress else { return };
            let Some(Call::Http(call)) = called else { panic!("nothing is called over HTTP") };
            step = task.resume(self.reply(call));
        }
    }

    /// A stream of this worker.
    pub(crate) fn stream(&self) -> Stream {
        Stream::new(Some(Rc::clone(&self.service)), Rc::clone(&self.world) as Rc<dyn Host>)
    }

    /// Plays a request to its end; `None` if it goes on to the identity gateway.
    pub(crate) fn try_send(&self, request: &Request) -> Option<Answer> {
        let (events, alarms) = (self.world.events.borrow().len(), self.world.alarms.borrow().len());
        let (mut stream, shown, flow) = self.begin(request);
        if flow == Flow::Continue {
            return None;
        }
        self.answer_calls(&mut stream, &shown);
        assert!(!stream.on_end(&shown), "it is answered, and goes on");
        let Sent { status, headers, body } =
            shown.answered.take().expect("neither answered nor let go");
        let line = |lines: &RefCell<Vec<String>>, before: usize| {
            // Whoever came in between has lines of their own before ours.
            lines.borrow().get(before..).and_then(<[_]>::last).map(|line| json(line))
        };
        let event = line(&self.world.events, events).unwrap_or(Value::Null);
        let refused = !event["error"].is_null();
        let last = self.world.debugged.borrow().last().filter(|_| refused).cloned();
        let text = |value: Vec<u8>| String::from_utf8(value).unwrap();
        Some(Answer {
            status,
            headers: headers.into_iter().map(|(name, value)| (name, text(value))).collect(),
            body: if body.is_empty() {
                Value::Null
            } else {
                serde_json::from_slice(&body).unwrap()
            },
            event,
            alarm: line(&self.world.alarms, alarms),
            explanation: last.unwrap_or_default(),
        })
    }

    fn answer_calls(&self, stream: &mut Stream, shown: &Shown) {
        loop {
            let called = shown.called.take();
            let Some((call, _)) = called else { return };
            stream.on_reply(shown, self.reply(call));
        }
    }

    fn reply(&self, call: HttpCall) -> Reply {
        let upstream = self.upstreams.borrow_mut().pop_front();
        let reply = upstream.unwrap_or_else(|| panic!("nobody expects {call:?}"))(&call);
        self.calls.borrow_mut().push(call);
        reply
    }

    /// Plays a request that is ours.
    pub(crate) fn send(&self, request: &Request) -> Answer {
        self.try_send(request).expect("the request went on to the identity gateway")
    }

    /// Plays a request up to its first call.
    pub(crate) fn send_and_wait(&self, request: &Request) -> Waiting<'_> {
        let (stream, shown, _) = self.begin(request);
        assert!(shown.called.take().is_some(), "nothing is called");
        Waiting { gateway: self, stream, shown }
    }

    fn begin(&self, request: &Request) -> (Stream, Shown, Flow) {
        let (mut stream, shown) = (self.stream(), Shown::new(request));
        let size = request.body.len();
        let mut flow = stream.on_request_headers(&shown, size == 0);
        if size > 0 && shown.answered.borrow().is_none() {
            flow = stream.on_request_body(&shown, size, true);
        }
        (stream, shown, flow)
    }
}
