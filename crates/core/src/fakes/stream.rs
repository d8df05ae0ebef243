//! A stream as Envoy shows it to filter and guard, and the part of the plugin that sends calls and
//! brings replies.

use std::cell::RefCell;
use std::collections::BTreeMap;

use serde_json::Value;

use crate::http_stream::{HttpRequest, HttpStream};
use crate::media_type;
use crate::step::{Call, CallFailure, Progress, Reply, Step, WhenCallerLeaves};

/// Header fields in their order.
pub type Headers = Vec<(String, Vec<u8>)>;

/// An answer of the filter or of the guard.
#[derive(Debug, PartialEq, Eq)]
pub struct Sent {
    pub status: u16,
    pub headers: Headers,
    pub body: Vec<u8>,
}

impl Sent {
    /// The body, which must be JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// The request and the response of one stream, as far as they have arrived.
#[derive(Default)]
pub struct FakeStream {
    pub request_headers: RefCell<Headers>,
    request_body: Vec<u8>,
    metadata: Vec<u8>,
    /// The gateway's answer.
    pub response_headers: RefCell<Headers>,
    pub response_body: RefCell<Vec<u8>>,
    /// The answer of the filter or of the guard.
    pub answered: RefCell<Option<Sent>>,
    /// The details of that answer, for an access log.
    pub details: RefCell<String>,
    pub filter_state: RefCell<BTreeMap<String, String>>,
    called: RefCell<Option<Call>>,
    /// The properties of the connection, by their names.
    pub connection: RefCell<BTreeMap<String, Vec<u8>>>,
}

impl FakeStream {
    /// A stream with a request that has arrived whole.
    pub fn new<'h>(
        method: &'h str,
        path: &'h [u8],
        headers: impl IntoIterator<Item = (&'h str, &'h [u8])>,
        body: &[u8],
    ) -> Self {
        let headers = [(":method", method.as_bytes()), (":path", path)].into_iter().chain(headers);
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_vec()));
        Self {
            request_headers: RefCell::new(headers.collect()),
            request_body: body.to_vec(),
            ..Self::default()
        }
    }

    /// The stream, with the metadata that earlier filters have left.
    pub fn with_metadata(self, metadata: Vec<u8>) -> Self {
        Self { metadata, ..self }
    }

    /// Returns the status of the answer; `None` if the request goes on.
    pub fn status(&self) -> Option<u16> {
        self.answered.borrow().as_ref().map(|answer| answer.status)
    }

    /// The call that the filter sent last, if nobody has taken it yet.
    pub fn take_call(&self) -> Option<Call> {
        self.called.take()
    }
}

/// Runs work that belongs to no stream to its end.
pub fn run(mut step: Step<()>, mut reply: impl FnMut(&Call) -> Reply) {
    loop {
        let mut called = None;
        let progress = step.run(|call, _| {
            assert_sendable(call);
            called = Some(call.clone());
            Ok(())
        });
        let Progress::Waiting(task) = progress else { return };
        step = task.resume(reply(&called.unwrap()));
    }
}

fn is_sendable(value: &[u8]) -> bool {
    !value.iter().any(|byte| *byte < b' ' || *byte == 0x7f)
}

/// A caller's text must not turn a call into another request.
fn assert_sendable(call: &Call) {
    if let Call::Http(call) = call {
        for (name, value) in &call.headers {
            assert!(is_sendable(value.as_bytes()), "{name}: {value:?}");
        }
        assert!(call.path.bytes().all(|byte| byte.is_ascii_graphic()), "{:?}", call.path);
    }
}

fn find(headers: &RefCell<Headers>, name: &str) -> Option<Vec<u8>> {
    headers.borrow().iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
}

fn remove(headers: &RefCell<Headers>, name: &str) {
    headers.borrow_mut().retain(|(known, _)| known != name);
}

fn set(headers: &RefCell<Headers>, name: &str, value: &str) {
    // Envoy asserts the same.
    assert!(is_sendable(value.as_bytes()), "{name}: {value:?}");
    remove(headers, name);
    headers.borrow_mut().push((name.to_owned(), value.into()));
}

fn first(body: &[u8], len: usize) -> Vec<u8> {
    body.iter().take(len).copied().collect()
}

impl HttpRequest for FakeStream {
    fn metadata(&self) -> Vec<u8> {
        self.metadata.clone()
    }

    fn request_header(&self, name: &str) -> Option<Vec<u8>> {
        find(&self.request_headers, name)
    }

    fn visit_request_headers(&self, see: &mut dyn FnMut(&[u8], &[u8])) {
        let headers = self.request_headers.borrow();
        headers.iter().for_each(|(name, value)| see(name.as_bytes(), value));
    }

    fn connection_property(&self, name: &str) -> Option<Vec<u8>> {
        self.connection.borrow().get(name).cloned()
    }

    fn set_request_header(&self, name: &str, value: &str) {
        set(&self.request_headers, name, value);
    }

    fn remove_request_header(&self, name: &str) {
        remove(&self.request_headers, name);
    }

    fn respond(&self, status: u16, headers: &[(&str, &[u8])], body: &[u8], details: &str) {
        assert!((200..600).contains(&status), "{status}");
        for (name, value) in headers {
            assert!(is_sendable(value), "{name}: {}", value.escape_ascii());
            if *name == "content-type" && !body.is_empty() && media_type::is_json(value) {
                assert!(serde_json::from_slice::<Value>(body).is_ok(), "{}", body.escape_ascii());
            }
        }
        details.clone_into(&mut self.details.borrow_mut());
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), value.to_vec()));
        let answer = Sent { status, headers: headers.collect(), body: body.to_vec() };
        assert!(self.answered.replace(Some(answer)).is_none(), "answered twice");
    }

    fn set_filter_state(&self, name: &str, value: &str) {
        assert!(!value.chars().any(char::is_control), "{value:?}");
        self.filter_state.borrow_mut().insert(name.to_owned(), value.to_owned());
    }
}

impl HttpStream for FakeStream {
    fn request_body(&self, len: usize) -> Vec<u8> {
        first(&self.request_body, len)
    }

    fn response_header(&self, name: &str) -> Option<Vec<u8>> {
        find(&self.response_headers, name)
    }

    fn response_headers(&self) -> Headers {
        self.response_headers.borrow().clone()
    }

    fn set_response_header(&self, name: &str, value: &str) {
        set(&self.response_headers, name, value);
    }

    fn remove_response_header(&self, name: &str) {
        remove(&self.response_headers, name);
    }

    fn response_body(&self, len: usize) -> Vec<u8> {
        first(&self.response_body.borrow(), len)
    }

    fn replace_response_body(&self, body: &[u8], size: usize) {
        self.response_body.borrow_mut().splice(..size, body.iter().copied());
    }

    fn resume_request(&self) {
        panic!("no endpoint passes a request on after a call");
    }

    fn send(&self, call: &Call, _when_caller_leaves: WhenCallerLeaves) -> Result<(), CallFailure> {
        assert_sendable(call);
        assert!(self.called.replace(Some(call.clone())).is_none(), "two calls at once");
        Ok(())
    }
}
