//! The guard before an API on a fake host, and the filter beside it on the same host. This file
//! does for the guard what the plugin and the filters before it do in Envoy, for tokens that
//! `jwt_authn` accepts.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use impersonation_core::fakes::{FakeHost, FakeStream, Headers, jwt_metadata};
use impersonation_core::guard::Guard;
use impersonation_core::host::Host;
use impersonation_issuer::stream::Flow;
use serde_json::{Value, json};

use testkit::gateway::raw_part;
use testkit::guarded::{
    ACTOR_HEADER, API, Begun, ID_HEADER, Parties, filter_configuration, guard_configuration,
    try_begin,
};
use testkit::http::{Answer, Body, Request};
use testkit::server::{Received, Server, as_asked};

use crate::world::{World, answer_of, received};

/// An API behind one worker with the guard.
pub(crate) struct Api {
    filter: World,
    guard: RefCell<Guard>,
    api: Server,
    log: RefCell<Vec<Value>>,
    streams: Cell<u32>,
}

impl Api {
    /// Starts the API behind a guard with these members besides the required ones.
    pub(crate) fn start(members: &Value) -> Self {
        Self::start_with(&guard_configuration(members))
    }

    /// Starts the API behind a guard with this configuration.
    pub(crate) fn start_with(configuration: &Value) -> Self {
        let filter = World::start(&filter_configuration());
        let guard = configured(filter.host(), configuration).unwrap_or_else(|log| panic!("{log}"));
        let api = Server::start(API);
        api.answer(as_asked);
        let (log, streams) = (RefCell::default(), Cell::default());
        let world = Self { filter, guard: RefCell::new(guard), api, log, streams };
        world.tick();
        // A token that was issued in the millisecond in which the guard began counts as ended.
        world.filter.host().advance(Duration::from_millis(1));
        world
    }

    /// Sends a request with this access token to the API.
    pub(crate) fn send_as(&self, token: &str, request: Request) -> Answer {
        let claims = raw_part(token, 1);
        let Request { method, target, headers, body } = &request;
        let body = match body {
            Body::None => Vec::new(),
            Body::Sized(body) => body.clone(),
            Body::Pieces { data, .. } => data.concat(),
        };
        let lower = headers.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone()));
        let told: Headers = lower.filter(|(name, _)| !is_removed(name)).collect();
        let shown = told.iter().map(|(name, value)| (name.as_str(), value.as_slice()));
        let metadata = jwt_metadata(&json!({"access_token": claims}));
        let shown =
            FakeStream::new(method, target.as_bytes(), shown, &body).with_metadata(metadata);
        let stream = self.streams.replace(self.streams.get() + 1);
        let flow = if claims.get("txn").or(claims.get("cnf")).is_some() {
            self.guard.borrow().on_request_headers(&**self.filter.host(), &shown, stream)
        } else {
            Flow::Continue
        };
        assert_eq!(flow == Flow::Pause, shown.status().is_some(), "{request:?}");
        let answer = match shown.answered.take() {
            Some(sent) => answer_of(sent.status, sent.headers, sent.body),
            None => {
                let sent_on = shown.request_headers.borrow().clone().into_iter();
                let headers = sent_on.filter(|(name, _)| !name.starts_with(':')).collect();
                let (_, reply) = self.api.play(received(method, target, headers, body));
                answer_of(reply.status, reply.headers, reply.body)
            }
        };
        self.guard.borrow().on_end(stream);
        self.log.borrow_mut().push(json!(*shown.filter_state.borrow()));
        self.tick();
        answer
    }

    /// Returns the request at the API that led to this answer; `None` if the API did not answer.
    pub(crate) fn received_for(&self, answer: &Answer) -> Option<Received> {
        self.api.received_for(answer)
    }

    /// Sends a request to the filter.
    pub(crate) fn send_to_filter(&self, request: &Request) -> Answer {
        self.filter.send(request)
    }

    /// Begins an impersonation through the filter.
    pub(crate) fn begin(&self, parties: &Parties) -> Begun {
        // An impersonation that begins in the millisecond of a revocation has ended.
        self.filter.host().advance(Duration::from_millis(1));
        try_begin(parties, |request| self.send_to_filter(request)).unwrap()
    }

    /// Gives the running guard another configuration. Returns the reason if it refuses.
    pub(crate) fn update(&self, configuration: &Value) -> Result<(), String> {
        self.filter.host().advance(Duration::from_millis(1));
        self.guard.replace(configured(self.filter.host(), configuration)?);
        self.tick();
        Ok(())
    }

    /// Moves the clock of filter and guard on, or back.
    pub(crate) fn advance(&self, seconds: i64) {
        self.filter.advance(seconds);
        self.tick();
    }

    /// Returns what a counter has counted in this test.
    pub(crate) fn counted(&self, name: &str) -> u64 {
        self.filter.counted(name)
    }

    /// Returns the audit events of this many requests to the API.
    pub(crate) fn refusals(&self, count: usize) -> Vec<Value> {
        let mut events = self.filter.audit();
        events.retain(|event| event["event"] == "impersonated_request.refused");
        assert_eq!(events.len(), count, "{events:?}");
        events
    }

    /// Returns the access log of this many requests to the API.
    pub(crate) fn access_log(&self, count: usize) -> Vec<Value> {
        let lines = self.log.borrow().clone();
        assert_eq!(lines.len(), count, "{lines:?}");
        lines
    }

    /// Returns the log of level info and above.
    pub(crate) fn log(&self) -> String {
        self.filter.log()
    }

    /// Ticks the timer of the guard. No stream is open.
    fn tick(&self) {
        let no_stream = |stream| panic!("the guard ends the stream {stream}");
        let shown = FakeStream::default();
        self.guard.borrow().on_tick(&**self.filter.host(), &shown, &no_stream);
    }
}

/// Returns true if the filters before the guard remove a header field of this name.
fn is_removed(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    [ID_HEADER, ACTOR_HEADER, "authorization"].contains(&name) || !name.bytes().all(is_plain)
}

fn configured(host: &Rc<FakeHost>, configuration: &Value) -> Result<Guard, String> {
    let bytes = configuration.to_string().into_bytes();
    match Guard::configure(&bytes, host.now(), &|_| None, || None) {
        Ok(guard) => {
            guard.introduce(&**host);
            Ok(guard)
        }
        Err(error) => {
            error.log(&**host);
            Err(host.warnings.borrow().join("\n"))
        }
    }
}
