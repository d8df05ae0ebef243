//! The guard, request by request, while another worker revokes.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use impersonation_core::fakes::{
    Etcd, FakeHost, FakeStream, etcd_server, jwt_metadata, play_in_etcd,
};
use impersonation_core::guard::Guard;
use impersonation_core::host::Host;
use impersonation_core::http_stream::{Flow, HttpRequest};
use impersonation_core::state::etcd::RecordKeys;
use impersonation_core::state::remote::Revision;
use impersonation_core::state::revocations::{Mark, Revocation};
use impersonation_core::state::storage::Revocations;
use impersonation_core::step::{Call, GrpcCall, Progress, Reply, Step, Task};
use serde_json::{Value, json};

const ISSUER: &str = "https://auth.example.com/oidc";
const TENANT: &str = "https://auth.example.com/oidc\n";

/// A request with an access token of these claims.
fn request(method: &str, path: &str, claims: &Value) -> FakeStream {
    let metadata = jwt_metadata(&json!({"access_token": claims}));
    let id: (_, &[u8]) = ("x-request-id", b"r-1");
    FakeStream::new(method, path.as_bytes(), [id], b"").with_metadata(metadata)
}

struct Api {
    world: Rc<FakeHost>,
    guard: Rc<Guard>,
    /// The revision at which the filter issues tokens.
    revision: Revision,
}

impl Api {
    fn new(members: &Value) -> Self {
        let api = Self::in_world(Rc::default(), members);
        api.tick(&[]);
        // Tokens that were issued before the guard first looked count as ended, because the guard
        // cannot know earlier revocations.
        api.world.advance(Duration::from_secs(1));
        api
    }

    /// One VM of an Envoy.
    fn in_world(world: Rc<FakeHost>, members: &Value) -> Self {
        let mut configuration = json!({"issuer": ISSUER});
        configuration.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        let bytes = configuration.to_string();
        let guard =
            Rc::new(Guard::configure(bytes.as_bytes(), world.now(), &|_| None, || None).unwrap());
        Self { world, guard, revision: Revision::default() }
    }

    /// One VM of an Envoy whose revocations are in etcd.
    fn in_etcd(world: Rc<FakeHost>) -> Self {
        let store = json!({"etcd": {"cluster": "etcd"}});
        let members = json!({"store": store, "max_staleness": "10s", "default": "allow"});
        Self { revision: Revision::new(1), ..Self::in_world(world, &members) }
    }

    /// Returns the call to etcd that is due.
    fn asks(&self) -> Option<(GrpcCall, Task<()>)> {
        let host: Rc<dyn Host> = self.world.clone();
        match self.guard.follow(&host)? {
            Step::Call(Call::Grpc(call), task) => Some((call, task)),
            _ => panic!("it is etcd that is asked"),
        }
    }

    /// Asks etcd, and asserts that this was due.
    fn follow(&self, answer: impl FnMut(&GrpcCall) -> Result<Vec<u8>, u32>) {
        let (call, task) = self.asks().expect("it is this VM's turn");
        play_in_etcd(Step::Call(Call::Grpc(call), task), answer);
    }

    fn reason(&self) -> Value {
        self.events().pop().unwrap()["reason"].clone()
    }

    /// An access token that the filter issues now.
    fn claims(&self, id: &str) -> Value {
        let now = self.world.now();
        let jti = Mark::jti([7; 16], "backend", now, self.revision, None);
        json!({
            "iss": ISSUER, "sub": "u-1", "aud": "urn:api", "client_id": "portal", "iat": now.secs(),
            "exp": now.after(Duration::from_secs(3600)).secs(), "jti": jti, "scope": "read", "txn": id,
            "act": {"sub": "agent-7"},
        })
    }

    fn send(&self, stream: u32, method: &str, claims: &Value) -> (Flow, FakeStream) {
        let shown = request(method, "/orders", claims);
        (self.guard.on_request_headers(&*self.world, &shown, stream), shown)
    }

    /// Revokes as another worker does, or as the filter of this worker does.
    fn revoke(&self, revocation: Revocation) {
        let revocations = Revocations::shared_data(TENANT);
        let task = Task::start(self.world.clone(), None, |context| async move {
            revocations.revoke(&context, &revocation).await.unwrap()
        });
        assert!(matches!(task.run(|_, _| panic!("a call")), Progress::Done(_)));
    }

    /// Ticks the guard. Returns the streams of these that have ended.
    fn tick(&self, streams: &[(u32, &FakeStream)]) -> Vec<u32> {
        let acted_for = Cell::new(0);
        let shown = ActedFor { streams, acted_for: &acted_for };
        self.guard.on_tick(&*self.world, &shown, &|stream| acted_for.set(stream));
        let ended = streams.iter().filter(|(_, shown)| shown.status().is_some());
        ended.map(|(stream, _)| *stream).collect()
    }

    fn events(&self) -> Vec<Value> {
        let lines = self.world.events.borrow();
        lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// Records for which stream the host acts.
struct ActedFor<'s> {
    streams: &'s [(u32, &'s FakeStream)],
    acted_for: &'s Cell<u32>,
}

impl ActedFor<'_> {
    fn shown(&self) -> &FakeStream {
        let found = self.streams.iter().find(|(stream, _)| *stream == self.acted_for.get());
        found.expect("a stream that is open").1
    }
}

impl HttpRequest for ActedFor<'_> {
    fn metadata(&self) -> Vec<u8> {
        self.shown().metadata()
    }

    fn request_header(&self, name: &str) -> Option<Vec<u8>> {
        self.shown().request_header(name)
    }

    fn visit_request_headers(&self, see: &mut dyn FnMut(&[u8], &[u8])) {
        self.shown().visit_request_headers(see);
    }

    fn connection_property(&self, name: &str) -> Option<Vec<u8>> {
        self.shown().connection_property(name)
    }

    fn set_request_header(&self, name: &str, value: &str) {
        self.shown().set_request_header(name, value);
    }

    fn remove_request_header(&self, name: &str) {
        self.shown().remove_request_header(name);
    }

    fn respond(&self, status: u16, headers: &[(&str, &[u8])], body: &[u8], details: &str) {
        self.shown().respond(status, headers, body, details);
    }

    fn set_filter_state(&self, name: &str, value: &str) {
        self.shown().set_filter_state(name, value);
    }
}

#[test]
fn the_guard_refuses_when_revocations_cannot_be_read() {
    let api = Api::new(&json!({"default": "allow"}));
    let claims = api.claims("t-1");
    api.world.fail_shared_data(0);
    let (flow, shown) = api.send(1, "GET", &claims);
    assert!(api.world.heal());
    assert_eq!((flow, shown.status()), (Flow::Pause, Some(503)));
    let headers = shown.answered.take().unwrap().headers;
    assert!(headers.contains(&("retry-after".into(), b"1".to_vec())), "{headers:?}");
    assert!(!headers.iter().any(|(name, _)| name == "www-authenticate"), "{headers:?}");
    assert_eq!(api.events()[0]["reason"], "revocations_unknown");
    assert_eq!(api.send(2, "GET", &claims).0, Flow::Continue);
}

#[test]
fn open_streams_of_what_was_revoked_end_with_the_next_tick_and_no_others() {
    let api = Api::new(&json!({}));
    let open: Vec<_> = ["t-1", "t-2", "t-1", "t-3"]
        .iter()
        .zip(1..)
        .map(|(id, stream)| (stream, api.send(stream, "GET", &api.claims(id)).1))
        .collect();
    let open: Vec<_> = open.iter().map(|(stream, shown)| (*stream, shown)).collect();
    assert!(api.tick(&open).is_empty());
    // One of the streams has ended by itself.
    api.guard.on_end(3);
    api.revoke(Revocation::of_id("t-1"));
    assert_eq!(api.tick(&open), [1]);
    assert_eq!(open[0].1.status(), Some(401));
    assert_eq!(open[0].1.filter_state.borrow()["guard"], "refused: ended_while_open");
    let ended = metric(&api, "impersonation_guard_streams_ended_total");
    assert_eq!(ended, 1);
    // The guard ends a stream once.
    api.revoke(Revocation::of_id("t-1"));
    *open[0].1.answered.borrow_mut() = None;
    assert!(api.tick(&open).is_empty());
    api.revoke(Revocation::default());
    assert_eq!(api.tick(&open), [2, 4]);
    let reasons: Vec<_> = api.events().iter().map(|event| event["reason"].clone()).collect();
    assert_eq!(reasons, ["ended_while_open"; 3]);
}

fn metric(api: &Api, name: &str) -> usize {
    api.world.counted.borrow().iter().filter(|counted| **counted == name).count()
}

#[test]
fn a_report_ends_nothing() {
    let api = Api::new(&json!({"mode": "report"}));
    let claims = api.claims("t-1");
    let (_, open) = api.send(1, "GET", &claims);
    api.revoke(Revocation::default());
    assert!(api.tick(&[(1, &open)]).is_empty());
    let (flow, shown) = api.send(2, "POST", &claims);
    assert_eq!((flow, shown.status()), (Flow::Continue, None));
    let events = api.events();
    assert_eq!(events.len(), 2, "{events:?}");
    assert!(events.iter().all(|event| event["enforced"] == false), "{events:?}");
}

const AGE: &str = "impersonation_guard_revocations_age_seconds";

/// Ends all impersonations, through another Envoy.
fn revoke_elsewhere(etcd: &mut Etcd) {
    let server = etcd_server(RecordKeys::default());
    let revocations = Revocations::etcd(&server, TENANT, Duration::from_secs(3600));
    let step = Task::start(Rc::new(FakeHost::default()), None, |context| async move {
        revocations.revoke(&context, &Revocation::default()).await.unwrap();
    });
    play_in_etcd(step, |call| etcd.answer(call));
}

#[test]
fn the_guard_refuses_all_before_etcd_answers_and_too_long_after() {
    let api = Api::in_etcd(Rc::default());
    let mut etcd = Etcd::default();
    let claims = api.claims("t-1");
    assert_eq!(api.send(1, "GET", &claims).1.status(), Some(503));
    assert_eq!(api.reason(), "revocations_unknown");
    api.follow(|call| etcd.answer(call));
    assert_eq!(api.send(2, "GET", &claims).0, Flow::Continue);

    // If etcd does not answer, the last known revocations count for a while.
    api.world.advance(Duration::from_secs(9));
    api.follow(|_| Err(14));
    assert_eq!(api.send(3, "GET", &claims).0, Flow::Continue);
    api.world.advance(Duration::from_secs(1));
    api.follow(|_| Err(14));
    let (flow, shown) = api.send(4, "GET", &claims);
    assert_eq!((flow, shown.status()), (Flow::Pause, Some(503)));
    let headers = shown.answered.take().unwrap().headers;
    assert!(headers.contains(&("retry-after".into(), b"1".to_vec())), "{headers:?}");
    assert_eq!(api.reason(), "revocations_stale");
    [2, 3].iter().for_each(|stream| api.guard.on_end(*stream));
    api.tick(&[]);
    assert_eq!(api.world.gauges.borrow()[AGE], 10);

    api.follow(|call| etcd.answer(call));
    assert_eq!(api.send(5, "GET", &claims).0, Flow::Continue);
    api.tick(&[]);
    assert_eq!(api.world.gauges.borrow()[AGE], 0);
    // A failure of etcd is one line, not one for each request.
    assert_eq!(api.world.warnings.borrow().len(), 1, "{:?}", api.world.warnings.borrow());
    assert_eq!(metric(&api, "impersonation_store_errors_total.kind.unreachable"), 2);
}

/// The other store may have revocations that this one lacks.
#[test]
fn the_guard_refuses_what_was_issued_while_another_store_was_in_use() {
    let [in_shared_data, in_etcd] = [Api::new(&json!({})), Api::in_etcd(Rc::default())];
    in_etcd.follow(|call| Etcd::default().answer(call));
    for (api, other) in [(&in_shared_data, &in_etcd), (&in_etcd, &in_shared_data)] {
        assert_eq!(api.send(1, "GET", &api.claims("t-1")).0, Flow::Continue);
        assert_eq!(api.send(2, "GET", &other.claims("t-1")).1.status(), Some(401));
        assert_eq!(api.reason(), "ended");
    }
}

#[test]
fn open_streams_end_when_etcd_has_been_silent_for_too_long() {
    let api = Api::in_etcd(Rc::default());
    let mut etcd = Etcd::default();
    api.follow(|call| etcd.answer(call));
    let (_, open) = api.send(1, "GET", &api.claims("t-1"));
    api.world.advance(Duration::from_millis(9999));
    assert!(api.tick(&[(1, &open)]).is_empty());
    api.world.advance(Duration::from_millis(1));
    assert_eq!(api.tick(&[(1, &open)]), [1]);
    assert_eq!(open.status(), Some(503));
    assert_eq!(api.reason(), "stale_while_open");
    assert_eq!(metric(&api, "impersonation_guard_streams_ended_total"), 1);
}

#[test]
fn one_vm_of_an_envoy_asks_one_thing_at_a_time_and_all_know() {
    let world = Rc::<FakeHost>::default();
    let [asks, other] = [(); 2].map(|()| Api::in_etcd(world.clone()));
    let mut etcd = Etcd::default();
    asks.follow(|call| etcd.answer(call));
    let claims = asks.claims("t-1");
    let (_, open) = other.send(1, "GET", &claims);
    assert_eq!(open.status(), None);
    assert!(other.tick(&[(1, &open)]).is_empty());

    world.advance(Duration::from_secs(1));
    revoke_elsewhere(&mut etcd);
    let (call, task) = asks.asks().unwrap();
    assert!(asks.asks().is_none(), "an answer is waited for");
    assert!(other.asks().is_none(), "it is another's turn");
    let mut step = task.resume(Reply::Grpc(Ok(etcd.answer(&call).unwrap())));
    while let Step::Call(Call::Grpc(call), task) = step {
        step = task.resume(Reply::Grpc(Ok(etcd.answer(&call).unwrap())));
    }
    for (stream, api) in [(2, &asks), (3, &other)] {
        assert_eq!(api.send(stream, "GET", &claims).1.status(), Some(401));
    }
    assert_eq!(other.tick(&[(1, &open)]), [1]);
    // If this VM stops asking, another VM asks.
    world.advance(Duration::from_secs(2));
    other.follow(|call| etcd.answer(call));
    assert!(asks.asks().is_none());
}
