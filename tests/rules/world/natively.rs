//! The core on a fake host. It does for the core what the plugin does in Envoy: it shows a stream
//! its request, sends the calls, and brings the replies. The servers are the testkit's own; their
//! rules are asked without a socket.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use impersonation_core::fakes::{self, Etcd, FakeHost, FakeStream, Headers, Sent};
use impersonation_core::host::{Host, UnixTime};
use impersonation_core::step::{Call, CallFailure, GrpcStatus, HttpCall, Reply};
use impersonation_issuer::issuer::{BuiltPage, Service};
use impersonation_issuer::stream::{Flow, Stream};
use serde_json::{Map, Value, json};

use testkit::audit::FILTER_STATE;
use testkit::configuration::Configuration;
use testkit::gateway::{IDENTITY_GATEWAY, SERVERS, now};
use testkit::http::{Answer, Body, Request};
use testkit::paths;
use testkit::server::{self, Fault, Received, Server, as_asked};

#[derive(PartialEq, Eq)]
enum CallerThen {
    Waits,
    Leaves,
}

/// One worker with the filter.
pub(crate) struct World {
    host: Rc<FakeHost>,
    service: RefCell<Rc<Service>>,
    servers: Vec<Server>,
    etcd: Rc<RefCell<Etcd>>,
    /// The number of transactions in etcd whose answers get lost from now on.
    lost_answers: Cell<u32>,
    moves: bool,
    /// The number of requests to which Envoy would have given an id.
    requests: Cell<u64>,
    access_log: RefCell<Vec<Value>>,
}

impl World {
    pub(crate) fn start(configuration: &Configuration) -> Self {
        let servers: Vec<_> =
            SERVERS.into_iter().chain([IDENTITY_GATEWAY]).map(Server::start).collect();
        servers.last().unwrap().answer(as_asked);
        let host = Rc::new(FakeHost::default());
        host.now.set(UnixTime::from_millis(now() * 1000));
        Self::start_on(host, servers, Rc::default(), configuration)
    }

    /// Starts the filter behind an access log.
    pub(crate) fn observed(configuration: &Configuration) -> Self {
        Self::start(configuration)
    }

    /// Starts another worker of the same Envoy.
    pub(crate) fn another_worker(&self, configuration: &Configuration) -> Self {
        let host = Rc::clone(&self.host);
        Self::start_on(host, self.servers.clone(), Rc::clone(&self.etcd), configuration)
    }

    /// Starts another Envoy with the same etcd.
    pub(crate) fn another_envoy(&self, configuration: &Configuration) -> Self {
        let host = Rc::new(FakeHost::with_seed(u64::MAX));
        host.now.set(self.host.now.get());
        Self::start_on(host, self.servers.clone(), Rc::clone(&self.etcd), configuration)
    }

    fn start_on(
        host: Rc<FakeHost>,
        servers: Vec<Server>,
        etcd: Rc<RefCell<Etcd>>,
        configuration: &Configuration,
    ) -> Self {
        let service = configured(&host, configuration).unwrap_or_else(|error| panic!("{error}"));
        // What begins in the millisecond in which the service begins has ended.
        host.advance(Duration::from_millis(1));
        let moves = configuration.0.get("paths").is_some();
        let service = RefCell::new(service);
        let (lost_answers, requests, access_log) = Default::default();
        let world =
            Self { host, service, servers, etcd, lost_answers, moves, requests, access_log };
        world.tick();
        world
    }

    /// Plays a request to its end.
    pub(crate) fn send(&self, request: &Request) -> Answer {
        self.send_unmoved(&self.moved(request))
    }

    /// Sends a request to the path that it names, although the configuration has paths.
    pub(crate) fn send_unmoved(&self, request: &Request) -> Answer {
        self.play(request, &|_| CallerThen::Waits).expect("an answer")
    }

    /// Sends a request, and does something when the filter asks the server behind this cluster for
    /// the first time.
    pub(crate) fn send_while<T>(
        &self,
        request: &Request,
        cluster: &str,
        meanwhile: impl FnOnce() -> T,
    ) -> (Answer, T) {
        let (meanwhile, told) = (Cell::new(Some(meanwhile)), Cell::new(None));
        let answer = self.play(&self.moved(request), &|asked| {
            if asked == cluster
                && let Some(meanwhile) = meanwhile.take()
            {
                told.set(Some(meanwhile()));
            }
            CallerThen::Waits
        });
        (answer.expect("an answer"), told.take().expect("the filter does not ask the server"))
    }

    /// Sends a request whose caller hangs up while the filter asks the server behind this cluster.
    pub(crate) fn leave_while(&self, request: &Request, cluster: &str) {
        let leaves = |asked: &str| match asked == cluster {
            true => CallerThen::Leaves,
            false => CallerThen::Waits,
        };
        assert!(self.play(&self.moved(request), &leaves).is_none(), "an answer to nobody");
    }

    /// Waits for something that the filter does without a request.
    pub(crate) fn wait_for<T>(&self, what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
        let ticked = (0..10).find_map(|_| {
            self.tick();
            probe()
        });
        ticked.unwrap_or_else(|| panic!("waited in vain for {what}"))
    }

    /// Plays a request to its end. `caller` sees the cluster of each call before it is answered.
    /// Each refusal has one line for the operator, at level debug.
    fn play(&self, request: &Request, caller: &dyn Fn(&str) -> CallerThen) -> Option<Answer> {
        let before = (self.host.events.borrow().len(), self.host.debugged.borrow().len());
        let host = Rc::clone(&self.host) as Rc<dyn Host>;
        let mut stream = Stream::new(Rc::clone(&self.service.borrow()), host);
        let body = match &request.body {
            Body::None => Vec::new(),
            Body::Sized(body) => body.clone(),
            Body::Pieces { data, .. } => data.concat(),
        };
        // Envoy shows the filter names in small letters, and one field `authorization`.
        let mut headers = Headers::new();
        for (name, value) in &request.headers {
            let name = name.to_ascii_lowercase();
            let before = headers.iter_mut().find(|(have, _)| *have == name);
            match before.filter(|_| name == "authorization") {
                Some((_, values)) => *values = [values, b",".as_slice(), value].concat(),
                None => headers.push((name, value.clone())),
            }
        }
        // Envoy shows the host as HTTP/2 has it.
        let host = headers.iter().find(|(name, _)| name == "host").map(|(_, host)| host.clone());
        let host = host.unwrap_or_else(|| b"gateway.test".to_vec());
        headers.extend([(":authority".into(), host), (":scheme".into(), b"http".to_vec())]);
        if !request.has("x-request-id") {
            let number = self.requests.replace(self.requests.get() + 1);
            let id = format!("00000000-0000-4000-8000-{number:012}");
            headers.push(("x-request-id".into(), id.into()));
        }
        let headers = headers.iter().map(|(name, value)| (name.as_str(), value.as_slice()));
        let shown = FakeStream::new(&request.method, request.target.as_bytes(), headers, &body);
        let flow = stream.read_request(&shown);
        let mut is_there = true;
        while let Some(call) = shown.take_call() {
            let then = match &call {
                Call::Http(call) => caller(&call.cluster),
                Call::Grpc(_) => CallerThen::Waits,
            };
            if is_there && then == CallerThen::Leaves {
                is_there = false;
                if !stream.on_end(&shown) {
                    break;
                }
            }
            stream.on_reply(&shown, self.reply(&call));
        }
        let passed_on = flow == Flow::Continue && shown.answered.borrow().is_none();
        let answer = match passed_on {
            _ if !is_there => shown.answered.take(),
            true => Some(self.pass_on(&mut stream, &shown, body)),
            false => Some(shown.answered.take().expect("neither answered nor passed on")),
        };
        if is_there {
            stream.on_end(&shown);
        }
        self.access_log.borrow_mut().push(logged(&shown));
        let events = self.host.events.borrow();
        let refused = events.iter().skip(before.0).any(|event| event.contains("\"error\":"));
        let explained = self.host.debugged.borrow().len() > before.1;
        assert!(explained || !refused || !is_there, "nothing for the operator about {request:?}");
        drop(events);
        self.tick();
        answer.map(|answer| answer_of(answer.status, answer.headers, answer.body))
    }

    /// Asks the identity gateway, and shows the filter its answer.
    fn pass_on(&self, stream: &mut Stream, shown: &FakeStream, body: Vec<u8>) -> Sent {
        let mut headers = shown.request_headers.borrow().clone();
        let mut pseudo = |name: &str| {
            let at = headers.iter().position(|(have, _)| have == name).unwrap();
            String::from_utf8(headers.remove(at).1).unwrap()
        };
        let (method, path) = (pseudo(":method"), pseudo(":path"));
        headers.retain(|(name, _)| !name.starts_with(':'));
        let received = received(&method, &path, headers, body);
        let (fault, reply) = self.upstream(IDENTITY_GATEWAY).play(received);
        let reply = match fault {
            // Envoy answers itself, and the filter sees its answer.
            Some(Fault::Refused) => server::Reply::status(503),
            Some(Fault::Slow | Fault::Stalled | Fault::ResetMidBody) => {
                panic!("a gateway that breaks connections is for tests in Envoy")
            }
            _ => reply,
        };
        let status = (":status".to_owned(), reply.status.to_string().into_bytes());
        let headers = [status].into_iter().chain(reply.headers).collect();
        shown.response_body.replace(Vec::new());
        let _ = stream.read_response(shown, headers, &reply.body);
        if let Some(answer) = shown.answered.take() {
            return answer;
        }
        let mut headers = shown.response_headers.take();
        let at = headers.iter().position(|(name, _)| name == ":status").unwrap();
        let status = String::from_utf8(headers.remove(at).1).unwrap().parse().unwrap();
        Sent { status, headers, body: shown.response_body.take() }
    }

    fn reply(&self, call: &Call) -> Reply {
        let call = match call {
            Call::Http(call) => call,
            Call::Grpc(call) => {
                let answer = self.etcd.borrow_mut().answer(call).map_err(GrpcStatus);
                let left = self.lost_answers.get().checked_sub(1);
                return Reply::Grpc(match left.filter(|_| call.method == "Txn") {
                    Some(left) => {
                        self.lost_answers.set(left);
                        Err(GrpcStatus(14))
                    }
                    None => answer,
                });
            }
        };
        let HttpCall { cluster, method, authority, path, headers, body, .. } = call;
        let Some(server) = self.servers.iter().find(|server| *server.name == **cluster) else {
            return Reply::Failed(CallFailure::NotSent);
        };
        let authority = ("host".to_owned(), authority.as_bytes().to_vec());
        let headers =
            headers.iter().map(|(name, value)| ((*name).to_owned(), value.clone().into()));
        let headers = [authority].into_iter().chain(headers).collect();
        match server.play(received(method, path, headers, body.clone())) {
            (Some(Fault::Stalled | Fault::ResetMidBody | Fault::Junk), _) => {
                Reply::Failed(CallFailure::CutOff)
            }
            // Envoy reports a refused connection as 503, and a timeout as 504.
            (Some(Fault::Refused), _) => Reply::Http { status: 503, json: false, body: Vec::new() },
            (Some(Fault::Slow), _) => Reply::Http { status: 504, json: false, body: Vec::new() },
            (_, reply) => {
                let kind = reply.headers.iter().find(|(name, _)| name == "content-type");
                let json = kind.is_some_and(|(_, value)| value.starts_with(b"application/json"));
                Reply::Http { status: reply.status, json, body: reply.body }
            }
        }
    }

    /// Ticks the timer of the worker, and finishes the work that is due.
    fn tick(&self) {
        let host = Rc::clone(&self.host) as Rc<dyn Host>;
        let service = Rc::clone(&self.service.borrow());
        for step in service.tick(&host) {
            fakes::run(step, |call| self.reply(call));
        }
    }

    /// Returns the server behind a cluster.
    pub(crate) fn upstream(&self, cluster: &str) -> &Server {
        let found = self.servers.iter().find(|server| server.name == cluster);
        found.unwrap_or_else(|| panic!("no server {cluster}"))
    }

    /// Returns the host of the worker, on which a guard may stand, too.
    pub(crate) fn host(&self) -> &Rc<FakeHost> {
        &self.host
    }

    /// Loses the answers to this many transactions in etcd.
    pub(crate) fn lose_answers(&self, count: u32) {
        self.lost_answers.set(count);
    }

    /// Moves the filter's clock on, or back.
    pub(crate) fn advance(&self, seconds: i64) {
        let by = Duration::from_secs(seconds.unsigned_abs());
        if seconds < 0 {
            self.host.set_back(by)
        } else {
            self.host.advance(by)
        }
        self.tick();
    }

    /// Returns what a counter has counted in this test.
    pub(crate) fn counted(&self, name: &str) -> u64 {
        self.host.counters.borrow().get(name).copied().unwrap_or(0)
    }

    /// Returns the lines of the audit log.
    pub(crate) fn audit(&self) -> Vec<Value> {
        let events = self.host.events.borrow();
        let lines = events.iter().filter(|line| line.starts_with("{\"event\""));
        lines.map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Returns the access log of this many requests.
    pub(crate) fn access_log(&self, count: usize) -> Vec<Value> {
        let lines = self.access_log.borrow().clone();
        assert_eq!(lines.len(), count, "{lines:?}");
        lines
    }

    /// Returns all counters.
    pub(crate) fn counters(&self) -> Vec<(String, u64)> {
        let counters = self.host.counters.borrow();
        counters.iter().map(|(name, value)| (name.to_string(), *value)).collect()
    }

    /// Returns the alarms.
    pub(crate) fn alarms(&self) -> Vec<Value> {
        let alarms = self.host.alarms.borrow();
        alarms.iter().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Returns the log of level info and above.
    pub(crate) fn log(&self) -> String {
        let host = &self.host;
        let logs = [host.events.borrow(), host.alarms.borrow(), host.warnings.borrow()];
        logs.iter().flat_map(|log| log.iter()).map(|line| format!("{line}\n")).collect()
    }

    /// Returns the target to which a request for this target is sent. A configuration with paths
    /// has those of Keycloak.
    pub(crate) fn sent_to(&self, target: &str) -> String {
        if self.moves { paths::moved(target) } else { target.to_owned() }
    }

    fn moved(&self, request: &Request) -> Request {
        Request { target: self.sent_to(&request.target), ..request.clone() }
    }

    /// Returns a gauge of the filter.
    pub(crate) fn gauge(&self, name: &str) -> Option<u64> {
        self.host.gauges.borrow().get(name).copied()
    }

    /// Gives the running filter another configuration. The store stays where it is. Returns the
    /// reason if the filter refuses the configuration.
    pub(crate) fn update(&self, configuration: &Configuration) -> Result<(), String> {
        let service = configured(&self.host, configuration)?;
        self.service.replace(service);
        self.tick();
        Ok(())
    }
}

/// Returns the line of a request in the access log.
fn logged(shown: &FakeStream) -> Value {
    let (state, headers) = (shown.filter_state.borrow(), shown.request_headers.borrow());
    let id = headers.iter().find(|(name, _)| name == "x-request-id").map(|(_, id)| text(id));
    let state = FILTER_STATE.map(|name| (name.to_owned(), json!(state.get(name))));
    json!({
        "request_id": id,
        "details": *shown.details.borrow(),
        "impersonation": Map::from_iter(state),
    })
}

fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value).into_owned()
}

fn configured(host: &FakeHost, configuration: &Configuration) -> Result<Rc<Service>, String> {
    let bytes = configuration.0.to_string().into_bytes();
    let service =
        Service::configure(&bytes, &|_| None, host.now(), None, Some(BuiltPage::ONE_LINE));
    let service = service.map_err(|error| error.to_string())?;
    service.introduce(host);
    Ok(Rc::new(service))
}

/// Returns an answer as a client reads it.
pub(crate) fn answer_of(status: u16, headers: Headers, body: Vec<u8>) -> Answer {
    let headers = headers.into_iter().map(|(name, value)| (name, text(&value))).collect();
    Answer { status, headers, body, trailers: Vec::new() }
}

/// Returns a request as a server keeps it.
pub(crate) fn received(method: &str, target: &str, headers: Headers, body: Vec<u8>) -> Received {
    Received {
        index: 0,
        at: Instant::now(),
        version: "HTTP/1.1".to_owned(),
        method: method.to_owned(),
        target: target.to_owned(),
        headers,
        body,
        trailers: Vec::new(),
    }
}
