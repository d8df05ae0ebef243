//! A world of bytes: a clock that stands still, randomness that can be repeated, shared data in a map, and a stream
//! that holds what the filter does against what any filter may do.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use impersonation_core::host::{
    Expected, Host, HostFailure, Level, SharedData, Swap, UnixTime, Version,
};
use impersonation_core::issuer::Service;
use impersonation_core::step::{Call, CallFailure, Progress, Reply, Step, WhenCallerLeaves};
use impersonation_core::stream::{Flow, HttpStream, Stream};
use serde_json::Value;

/// When everything happens.
pub(crate) const NOW: UnixTime = UnixTime::from_millis(1_790_000_000_000);

/// What the core gets at once. A clone has the same shared data, and draws the same numbers.
#[derive(Clone, Default)]
pub(crate) struct World {
    shared_data: RefCell<BTreeMap<String, (Vec<u8>, u32)>>,
    last_version: Cell<u32>,
    random: Cell<u64>,
}

impl World {
    /// The keys of shared data.
    pub(crate) fn keys(&self) -> Vec<String> {
        self.shared_data.borrow().keys().cloned().collect()
    }

    /// Puts something in the place of a value.
    pub(crate) fn replace(&self, key: &str, value: &[u8]) {
        self.shared_data.borrow_mut().get_mut(key).unwrap().0 = value.to_vec();
    }
}

impl SharedData for World {
    fn get(&self, key: &str) -> Result<Option<(Vec<u8>, Version)>, HostFailure> {
        let found = self.shared_data.borrow().get(key).cloned();
        Ok(found.map(|(value, version)| (value, Version::new(version).unwrap())))
    }

    fn compare_and_set(
        &self,
        key: &str,
        value: &[u8],
        expected: Expected,
    ) -> Result<Swap, HostFailure> {
        let mut shared_data = self.shared_data.borrow_mut();
        let now = shared_data.get(key).map(|(_, version)| *version);
        let wanted = match expected {
            Expected::Absent => None,
            Expected::Version(version) => Some(version.get()),
        };
        if now != wanted {
            return Ok(Swap::Lost);
        }
        self.last_version.set(self.last_version.get() + 1);
        shared_data.insert(key.to_owned(), (value.to_vec(), self.last_version.get()));
        Ok(Swap::Done)
    }
}

impl Host for World {
    fn now(&self) -> UnixTime {
        NOW
    }

    fn random(&self, buffer: &mut [u8]) -> Result<(), HostFailure> {
        self.random.set(self.random.get() + 1);
        let draw = self.random.get().wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
        buffer.iter_mut().zip(draw.iter().cycle()).for_each(|(byte, draw)| *byte = *draw);
        Ok(())
    }

    fn log(&self, level: Level, line: &str) {
        // A caller's text in it could forge another line otherwise, or write to a terminal.
        assert!(!line.chars().any(char::is_control), "{level:?}: {line:?}");
        if level == Level::Info {
            let event: Result<Value, _> = serde_json::from_str(line);
            assert!(event.is_ok_and(|event| event.is_object()), "no line of the audit log: {line}");
        }
    }
}

/// A request as it reaches Envoy.
#[derive(Default)]
pub(crate) struct Request<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a [u8],
    pub(crate) headers: Vec<(&'a str, &'a [u8])>,
    pub(crate) body: &'a [u8],
    /// What the gateway answers if the request goes on: status and body.
    pub(crate) answer: Option<(u16, &'a [u8])>,
}

/// What the caller gets.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

type Headers = RefCell<Vec<(String, Vec<u8>)>>;

/// A stream as Envoy would have it.
#[derive(Default)]
struct Shown {
    request_headers: Headers,
    request_body: Vec<u8>,
    response_headers: Headers,
    response_body: RefCell<Vec<u8>>,
    answered: RefCell<Option<Answer>>,
    called: RefCell<Option<Call>>,
}

fn find(headers: &Headers, name: &str) -> Option<Vec<u8>> {
    headers.borrow().iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
}

fn set(headers: &Headers, name: &str, value: &str) {
    // Envoy asserts that it can be sent.
    assert!(!value.bytes().any(|byte| byte < b' ' || byte == 0x7f), "{name}: {value:?}");
    remove(headers, name);
    headers.borrow_mut().push((name.to_owned(), value.into()));
}

fn remove(headers: &Headers, name: &str) {
    headers.borrow_mut().retain(|(known, _)| known != name);
}

impl HttpStream for Shown {
    fn request_header(&self, name: &str) -> Option<Vec<u8>> {
        find(&self.request_headers, name)
    }

    fn set_request_header(&self, name: &str, value: &str) {
        set(&self.request_headers, name, value);
    }

    fn remove_request_header(&self, name: &str) {
        remove(&self.request_headers, name);
    }

    fn request_body(&self, len: usize) -> Vec<u8> {
        self.request_body[..len.min(self.request_body.len())].to_vec()
    }

    fn response_header(&self, name: &str) -> Option<Vec<u8>> {
        find(&self.response_headers, name)
    }

    fn response_headers(&self) -> Vec<(String, Vec<u8>)> {
        self.response_headers.borrow().clone()
    }

    fn set_response_header(&self, name: &str, value: &str) {
        set(&self.response_headers, name, value);
    }

    fn remove_response_header(&self, name: &str) {
        remove(&self.response_headers, name);
    }

    fn response_body(&self, len: usize) -> Vec<u8> {
        let body = self.response_body.borrow();
        body[..len.min(body.len())].to_vec()
    }

    fn replace_response_body(&self, body: &[u8], size: usize) {
        self.response_body.borrow_mut().splice(..size, body.iter().copied());
    }

    fn respond(&self, status: u16, headers: &[(&str, &[u8])], body: &[u8], _details: &str) {
        assert!((200..600).contains(&status), "{status}");
        for (name, value) in headers {
            let sendable = !value.iter().any(|byte| *byte < b' ' || *byte == 0x7f);
            assert!(sendable, "{name}: {}", value.escape_ascii());
            if *name == "content-type" && !body.is_empty() {
                assert!(serde_json::from_slice::<Value>(body).is_ok(), "{}", body.escape_ascii());
            }
        }
        let before = self.answered.replace(Some(Answer { status, body: body.to_vec() }));
        assert!(before.is_none(), "answered twice");
    }

    fn resume_request(&self) {}

    fn set_filter_state(&self, _name: &str, value: &str) {
        assert!(!value.chars().any(char::is_control), "{value:?}");
    }

    fn send(&self, call: &Call, _when_caller_leaves: WhenCallerLeaves) -> Result<(), CallFailure> {
        check_call(call);
        assert!(self.called.replace(Some(call.clone())).is_none(), "two calls at once");
        Ok(())
    }
}

/// What a caller said must not become another request.
fn check_call(call: &Call) {
    if let Call::Http(call) = call {
        let texts = call.headers.iter().map(|(_, value)| value).chain([&call.path]);
        for text in texts {
            assert!(!text.bytes().any(|byte| byte < b' ' || byte == 0x7f), "{text:?}");
        }
        assert!(call.path.bytes().all(|byte| byte.is_ascii_graphic()), "{:?}", call.path);
    }
}

/// Plays a request to its end. What the caller gets; `None` if the filter leaves that to the gateway.
pub(crate) fn play(
    service: &Rc<Service>,
    world: &Rc<World>,
    request: &Request<'_>,
    mut reply: impl FnMut(&Call) -> Reply,
) -> Option<Answer> {
    let own = [(":method", request.method.as_bytes()), (":path", request.path)];
    let headers = own.into_iter().chain(request.headers.iter().copied());
    let shown = Shown {
        request_headers: RefCell::new(
            headers.map(|(name, value)| (name.to_owned(), value.to_vec())).collect(),
        ),
        request_body: request.body.to_vec(),
        ..Shown::default()
    };
    let mut stream = Stream::new(Some(Rc::clone(service)), Rc::clone(world) as Rc<dyn Host>);
    let size = request.body.len();
    let mut flow = stream.on_request_headers(&shown, size == 0);
    if size > 0 && shown.answered.borrow().is_none() {
        flow = stream.on_request_body(&shown, size, true);
    }
    loop {
        let called = shown.called.take();
        let Some(call) = called else { break };
        stream.on_reply(&shown, reply(&call));
    }
    let answered = shown.answered.borrow().is_some();
    assert_eq!(flow == Flow::Pause, answered, "held back for ever, or answered and let go");
    if let (false, Some((status, body))) = (answered, request.answer) {
        respond(&mut stream, &shown, status, body);
    }
    assert!(!stream.on_end(&shown), "it is over, and goes on");
    let answer = shown.answered.take();
    answer.or_else(|| {
        let status = find(&shown.response_headers, ":status")?;
        let status = str::from_utf8(&status).unwrap().parse().unwrap();
        let body = shown.response_body.take();
        (request.answer != Some((status, &body))).then_some(Answer { status, body })
    })
}

/// The gateway's answer passes.
fn respond(stream: &mut Stream, shown: &Shown, status: u16, body: &[u8]) {
    shown.response_headers.replace(vec![
        (":status".to_owned(), status.to_string().into_bytes()),
        ("content-type".to_owned(), b"application/json".to_vec()),
    ]);
    let mut flow = stream.on_response_headers(shown, body.is_empty());
    if !body.is_empty() && shown.answered.borrow().is_none() {
        for (len, last) in [(body.len() / 2, false), (body.len(), true)] {
            shown.response_body.replace(body[..len].to_vec());
            flow = stream.on_response_body(shown, len, last);
        }
    }
    let answered = shown.answered.borrow().is_some();
    assert_eq!(flow == Flow::Pause, answered, "held back for ever, or answered and let go");
}

/// Lets the timer tick, and what begins then go to its end.
pub(crate) fn tick(
    service: &Rc<Service>,
    world: &Rc<World>,
    mut reply: impl FnMut(&Call) -> Reply,
) {
    let host = Rc::clone(world) as Rc<dyn Host>;
    for step in service.tick(&host) {
        run(step, &mut reply);
    }
}

fn run(mut step: Step<()>, reply: &mut dyn FnMut(&Call) -> Reply) {
    loop {
        let mut called = None;
        let progress = step.run(|call, _| {
            check_call(call);
            called = Some(call.clone());
            Ok(())
        });
        let Progress::Waiting(task) = progress else { return };
        step = task.resume(reply(&called.unwrap()));
    }
}
