//! Plays requests, and asserts what must hold of every answer.

use std::rc::Rc;

use impersonation_core::fakes::{self, FakeHost, FakeStream, Sent};
use impersonation_core::host::Host;
use impersonation_core::step::{Call, Reply};
use impersonation_issuer::issuer::Service;
use impersonation_issuer::stream::{Flow, Stream};
use serde_json::Value;

/// A request as it reaches Envoy.
#[derive(Default)]
pub(crate) struct Request<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a [u8],
    pub(crate) headers: Vec<(&'a str, &'a [u8])>,
    pub(crate) body: &'a [u8],
    /// Status and body of the gateway's answer, if the request goes on.
    pub(crate) answer: Option<(u16, &'a [u8])>,
}

/// Plays a request to its end. Returns what the caller gets; `None` if that is the gateway's answer
/// as it is.
pub(crate) fn play(
    service: &Rc<Service>,
    host: &Rc<FakeHost>,
    request: &Request<'_>,
    reply: impl FnMut(&Call) -> Reply,
) -> Option<Sent> {
    let Request { method, path, headers, body, answer } = request;
    let shown = FakeStream::new(method, path, headers.iter().copied(), body);
    let mut stream = Stream::new(Rc::clone(service), Rc::clone(host) as Rc<dyn Host>);
    let is_answered = |flow| {
        let answered = shown.answered.borrow().is_some();
        assert_eq!(flow == Flow::Pause, answered, "held back for ever, or answered and let go");
        answered
    };
    let mut flow = stream.read_request(&shown);
    stream.read_replies(&shown, reply);
    if let (false, Some((status, body))) = (is_answered(flow), answer) {
        let headers = vec![
            (":status".to_owned(), status.to_string().into_bytes()),
            ("content-type".to_owned(), b"application/json".to_vec()),
        ];
        flow = stream.read_response(&shown, headers, body);
        is_answered(flow);
    }
    assert!(!stream.on_end(&shown), "the stream goes on after its end");
    assert_audited(host);
    shown.answered.take().or_else(|| {
        let headers = shown.response_headers.take();
        let (_, status) = headers.iter().find(|(name, _)| name == ":status")?;
        let status = str::from_utf8(status).unwrap().parse().unwrap();
        let body = shown.response_body.take();
        (*answer != Some((status, &body))).then_some(Sent { status, headers, body })
    })
}

/// Ticks the timer, and finishes the work that begins then.
pub(crate) fn tick(
    service: &Rc<Service>,
    host: &Rc<FakeHost>,
    mut reply: impl FnMut(&Call) -> Reply,
) {
    let world = Rc::clone(host) as Rc<dyn Host>;
    for step in service.tick(&world) {
        fakes::run(step, &mut reply);
    }
    assert_audited(host);
}

/// Every line of the audit log is a JSON object.
fn assert_audited(host: &FakeHost) {
    for line in host.events.take() {
        let event: Result<Value, _> = serde_json::from_str(&line);
        assert!(event.is_ok_and(|event| event.is_object()), "no line of the audit log: {line}");
    }
}
