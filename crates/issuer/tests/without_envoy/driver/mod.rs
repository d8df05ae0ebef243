//! Whole requests through the core, on a fake host and with upstreams that a test scripts.
//!
//! [`Gateway`] does for the core what the plugin does in Envoy: it shows a stream its request, and
//! answers its calls.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use impersonation_core::fakes;
pub(crate) use impersonation_core::fakes::{FakeHost, FakeStream, START, Sent};
use impersonation_core::host::Host;
use impersonation_core::jose::NativeCrypto;
use impersonation_core::step::{Call, HttpCall, Reply};
use impersonation_issuer::issuer::{BuiltPage, Service};
use impersonation_issuer::stream::{Flow, Stream};
use serde_json::Value;

/// A request as it reaches Envoy.
#[derive(Clone)]
pub(crate) struct Request {
    pub method: &'static str,
    pub path: String,
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
}

impl Request {
    /// The stream of this request.
    pub(crate) fn shown(&self) -> FakeStream {
        let headers = self.headers.iter().map(|(name, value)| (*name, value.as_bytes()));
        FakeStream::new(self.method, self.path.as_bytes(), headers, &self.body)
    }
}

/// The answer to a request, and the lines that were logged about it.
#[derive(Debug)]
pub(crate) struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Value,
    /// The line of the audit log.
    pub event: Value,
    /// The alarm, if a spent token was presented.
    pub alarm: Option<Value>,
    /// The operator's line of level debug.
    pub explanation: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// A text member that the answer must have.
    pub(crate) fn text(&self, member: &str) -> &str {
        self.body[member].as_str().unwrap_or_else(|| panic!("no {member} in {self:?}"))
    }

    /// The reason of the refusal.
    pub(crate) fn reason(&self) -> &str {
        self.event["reason"].as_str().unwrap_or("")
    }
}

fn json(line: &str) -> Value {
    assert!(!line.contains('\n'), "not one line: {line:?}");
    serde_json::from_str(line).unwrap()
}

/// The rule by which an upstream answers a call.
pub(crate) type Upstream = Box<dyn Fn(&HttpCall) -> Reply>;

/// One worker, with a service.
pub(crate) struct Gateway {
    pub world: Rc<FakeHost>,
    pub service: Rc<Service>,
    upstreams: RefCell<VecDeque<Upstream>>,
    /// The calls that were sent over HTTP.
    pub calls: RefCell<Vec<HttpCall>>,
}

impl Gateway {
    /// The first worker of a host.
    pub(crate) fn new(configuration: &Value) -> Self {
        Self::in_world(&Rc::default(), configuration)
    }

    /// A further worker of a host, or a worker after its configuration changed.
    pub(crate) fn in_world(world: &Rc<FakeHost>, configuration: &Value) -> Self {
        Self::with_crypto(world, configuration, None)
    }

    /// A worker whose host has its own cryptography.
    pub(crate) fn with_crypto(
        world: &Rc<FakeHost>,
        configuration: &Value,
        crypto: Option<Box<dyn NativeCrypto>>,
    ) -> Self {
        let bytes = configuration.to_string().into_bytes();
        let service =
            Service::configure(&bytes, &|_| None, world.now(), crypto, Some(BuiltPage::ONE_LINE));
        let service = service.unwrap_or_else(|error| panic!("{error}"));
        service.create_tables(&**world);
        world.has_begun();
        Self {
            world: Rc::clone(world),
            service: Rc::new(service),
            upstreams: RefCell::default(),
            calls: RefCell::default(),
        }
    }

    /// Sets the rule by which the next call is answered.
    pub(crate) fn upstream(&self, upstream: impl Fn(&HttpCall) -> Reply + 'static) {
        self.upstreams.borrow_mut().push_back(Box::new(upstream));
    }

    /// Forgets the rules that no call has used.
    pub(crate) fn forget_upstreams(&self) {
        self.upstreams.borrow_mut().clear();
    }

    /// Ticks the timer of the worker, and finishes the work that is due.
    pub(crate) fn tick(&self) {
        let host = Rc::clone(&self.world) as Rc<dyn Host>;
        for step in self.service.tick(&host) {
            fakes::run(step, |call| self.reply(call));
        }
    }

    /// A stream of this worker.
    pub(crate) fn stream(&self) -> Stream {
        Stream::new(Rc::clone(&self.service), Rc::clone(&self.world) as Rc<dyn Host>)
    }

    /// Plays a request to its end. Returns `None` if it goes on to the identity gateway.
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
            // Another worker that acted in between logged its lines before ours.
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

    fn answer_calls(&self, stream: &mut Stream, shown: &FakeStream) {
        stream.read_replies(shown, |call| self.reply(call));
    }

    fn reply(&self, call: &Call) -> Reply {
        let Call::Http(call) = call else { panic!("{call:?} is not over HTTP") };
        let upstream = self.upstreams.borrow_mut().pop_front();
        let reply = upstream.unwrap_or_else(|| panic!("no upstream expects {call:?}"))(call);
        self.calls.borrow_mut().push(call.clone());
        reply
    }

    /// Plays a request that the filter must answer.
    pub(crate) fn send(&self, request: &Request) -> Answer {
        self.try_send(request).expect("the request went on to the identity gateway")
    }

    /// Plays a request up to its first call, and forgets it there.
    pub(crate) fn send_and_die(&self, request: &Request) {
        let (_, shown, _) = self.begin(request);
        assert!(shown.take_call().is_some(), "nothing is called");
    }

    fn begin(&self, request: &Request) -> (Stream, FakeStream, Flow) {
        let (mut stream, shown) = (self.stream(), request.shown());
        let flow = stream.read_request(&shown);
        (stream, shown, flow)
    }
}
