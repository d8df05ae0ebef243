//! The provider dies and comes back while requests flow.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use super::documents::wait_for_a_fetch;
use super::{BOUND, echoing_gateway};
use testkit::Findings;
use testkit::configuration::Configuration;
use testkit::envoy::Envoy;
use testkit::gateway::{IDENTITY_GATEWAY, exchange_by, in_front_of, mint_by, mint_request, minted};
use testkit::http::Request;
use testkit::server::{Fault, Reply, Server};
use testkit::services::{Issuer, MINTERS, introspection, userinfo};

const RATE: u32 = 50;
/// The least time for which the provider works, is dead, and works again.
const PHASE: Duration = Duration::from_secs(3);
/// A request within this time after a change may see either state.
const BLUR: Duration = Duration::from_millis(700);

/// The kinds of requests, by the service that they need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// A mint with a JWT of a remote key set that is known.
    KnownKey,
    /// A mint with an opaque token.
    Introspection,
    /// An exchange with an opaque actor token.
    Userinfo,
    /// A request to another path, which passes.
    PassingThrough,
    /// The merged key set.
    Document,
}

impl Kind {
    const ALL: [Self; 5] =
        [Self::KnownKey, Self::Introspection, Self::Userinfo, Self::PassingThrough, Self::Document];

    fn expected(self, alive: bool) -> u16 {
        match (self, alive) {
            (Self::KnownKey, _) | (Self::Introspection, true) => 201,
            (Self::Document, _) | (Self::Userinfo | Self::PassingThrough, true) => 200,
            (Self::Introspection | Self::Userinfo | Self::PassingThrough, false) => 503,
        }
    }

    fn request(self, envoy: &Envoy, issuer: &Issuer) -> Request {
        match self {
            Self::KnownKey => issuer.mint(&issuer.key),
            Self::Introspection => mint_by("opaque-bearer", "u-1"),
            Self::Userinfo => {
                let subject_token = minted(&envoy.send(&mint_request("u-1")));
                exchange_by(&subject_token, "opaque-actor")
            }
            Self::PassingThrough => Request::get("/anything"),
            Self::Document => Request::get("/oidc/jwks"),
        }
    }
}

/// One request: the time when it was sent, and its status; 0 if there was no answer.
struct Outcome {
    kind: Kind,
    sent: Duration,
    ended: Duration,
    status: u16,
    request: Request,
}

/// The times of the provider's death: killing it takes a while, and so does bringing it back.
struct Death {
    begins: Duration,
    is_complete: Duration,
    ends: Duration,
    is_over: Duration,
}

impl Death {
    /// Returns true if the provider worked all the while, false if it was dead; `None` if a request
    /// may have met either.
    fn spared(&self, sent: Duration, ended: Duration) -> Option<bool> {
        let (alive_before, alive_after) = (ended < self.begins, sent > self.is_over + BLUR);
        let dead = sent > self.is_complete + BLUR && ended < self.ends;
        (alive_before || alive_after || dead).then_some(!dead)
    }
}

#[test]
fn requests_that_fail_while_the_provider_is_dead_succeed_when_it_is_back() {
    let issuer = Issuer::start("keys");
    let (gateway, users) = (echoing_gateway(), Server::start("userinfo"));
    let minters = Server::start("introspection");
    users.answer_always(Reply::json(&json!({"sub": "agent-1"})));
    minters.answer_always(Reply::json(&json!({
        "active": true, "scope": "impersonate", "client_id": "backend",
    })));
    // There was a key set before: it is served while the provider is dead.
    gateway.answer_always(Reply::json(&json!({"keys": [issuer.key.public_jwk()]})));
    let configuration = Configuration::default()
        // The cache duration is so short that refreshes fail while the provider is dead.
        .with(MINTERS, issuer.minters("1s"))
        .with(
            "/subject_tokens/authentication/introspection",
            introspection("0s", json!(["impersonate"])),
        )
        .with("/actor_tokens/userinfo", userinfo("0s"))
        .with("/identity_gateway", json!({"documents": "merge", "cluster": IDENTITY_GATEWAY}));
    let services = [&gateway, &users, &minters, &issuer.service];
    let envoy = in_front_of(&services, &configuration).workers(2).start();
    let warm = envoy.connect_to_every_worker();
    testkit::wait_for("the keys", || {
        let mint = issuer.mint(&issuer.key);
        (envoy.send(&mint).status == 201).then_some(())
    });
    wait_for_a_fetch(&gateway, 0, "/oidc/jwks");
    assert_eq!(envoy.send(&Request::get("/oidc/jwks")).status, 200);
    drop(warm);
    thread::sleep(Duration::from_millis(1200));

    let (report, outcomes) = mpsc::channel();
    let began = Instant::now();
    let death = thread::scope(|scope| {
        let (envoy, issuer) = (&envoy, &issuer);
        let death = scope.spawn(|| {
            thread::sleep(PHASE);
            let begins = began.elapsed();
            services.iter().for_each(|service| service.fail(Fault::Refused));
            let is_complete = began.elapsed();
            thread::sleep(PHASE);
            let ends = began.elapsed();
            services.iter().for_each(|service| service.heal());
            let is_over = began.elapsed();
            thread::sleep(PHASE);
            Death { begins, is_complete, ends, is_over }
        });
        for n in 0.. {
            if death.is_finished() {
                break;
            }
            thread::sleep((Duration::from_secs(1) / RATE * n).saturating_sub(began.elapsed()));
            let kind = Kind::ALL[n as usize % Kind::ALL.len()];
            let report = report.clone();
            scope.spawn(move || {
                let request = kind.request(envoy, issuer);
                let sent = began.elapsed();
                let answer = envoy.connect().try_send(&request);
                let ended = began.elapsed();
                let status = answer.map_or(0, |answer| answer.status);
                report.send(Outcome { kind, sent, ended, status, request }).unwrap();
            });
        }
        death.join().unwrap()
    });
    drop(report);
    let outcomes: Vec<_> = outcomes.iter().collect();

    // Outcomes of each kind, by half second.
    let mut table: BTreeMap<(u128, Kind, u16), u32> = BTreeMap::new();
    for Outcome { kind, sent, status, .. } in &outcomes {
        *table.entry((sent.as_millis() / 500, *kind, *status)).or_default() += 1;
    }
    for ((half_second, kind, status), count) in &table {
        println!("{:4} ms {kind:?}: {count} x {status}", half_second * 500);
    }
    let mut findings = Findings::default();
    let mut met = BTreeSet::new();
    for Outcome { kind, sent, ended, status, .. } in &outcomes {
        let case = format!("{kind:?} at {sent:?}");
        let took = *ended - *sent;
        if took > BOUND {
            findings.add(format!("{case}: took {took:?}"));
        }
        if let Some(alive) = death.spared(*sent, *ended) {
            findings.expect(case, status, &kind.expected(alive));
            met.insert((*kind, alive));
        }
    }
    findings.expect("each kind met the provider, dead and alive", &met.len(), &10);
    // No refused request was lost: the very same requests succeed now, on every worker.
    let mut connections = envoy.connect_to_every_worker();
    for outcome in outcomes.iter().filter(|outcome| outcome.status == 503) {
        // An exchange succeeds once.
        let times = if outcome.kind == Kind::Userinfo { 1 } else { connections.len() };
        for connection in connections.iter_mut().take(times) {
            let status = connection.send(&outcome.request).status;
            findings.expect(
                format!("{:?} again", outcome.kind),
                &status,
                &outcome.kind.expected(true),
            );
        }
        connections.rotate_left(1);
    }
    let failed = ["introspection", "userinfo", "jwks"].map(|name| envoy.failures(name) > 0);
    findings.expect("failures counted", &failed, &[true; 3]);
    findings.expect("the same process", &envoy.is_running(), &true);
}
