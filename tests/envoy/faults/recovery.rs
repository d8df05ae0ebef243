//! The provider dies and comes back while requests flow.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde_json::json;

use super::documents::wait_for_a_fetch;
use super::echoing_gateway;
use testkit::configuration::Configuration;
use testkit::envoy::Envoy;
use testkit::gateway::{IDENTITY_GATEWAY, exchange_by, in_front_of, mint_by, mint_request, minted};
use testkit::http::Request;
use testkit::over::Over;
use testkit::server::{Fault, Reply, Server};
use testkit::services::{Issuer, MINTERS, introspection, userinfo};
use testkit::{Findings, wait_for};

/// The number of requests of each kind while the provider works, is dead, and works again.
const ENOUGH: usize = 25;

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

/// The states of the provider, in their order.
const WORKS: usize = 0;
const DIES: usize = 1;
const IS_DEAD: usize = 2;
const COMES_BACK: usize = 3;
const WORKS_AGAIN: usize = 4;

/// One request, with the states of the provider when it was sent and when it ended; the status is 0
/// if there was no answer.
struct Outcome {
    kind: Kind,
    states: (usize, usize),
    status: u16,
    request: Request,
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
    let envoy = in_front_of(&services, &configuration).workers(2).with_clock().start();
    let warm = envoy.connect_to_every_worker();
    wait_for("the keys", || {
        let mint = issuer.mint(&issuer.key);
        (envoy.send(&mint).status == 201).then_some(())
    });
    wait_for_a_fetch(&gateway, 0, "/oidc/jwks");
    assert_eq!(envoy.send(&Request::get("/oidc/jwks")).status, 200);
    drop(warm);

    let (state, outcomes, over) = (AtomicUsize::new(0), Mutex::new(Vec::new()), Over::default());
    thread::scope(|scope| {
        // Stops the other threads even if this one panics.
        let _over = over.when_dropped();
        for kind in Kind::ALL {
            let (envoy, issuer, over) = (&envoy, &issuer, &over);
            let (state, outcomes) = (&state, &outcomes);
            scope.spawn(move || {
                while !over.is_over() {
                    let request = kind.request(envoy, issuer);
                    let begun = state.load(Ordering::SeqCst);
                    let answer = envoy.connect().try_send(&request);
                    let status = answer.map_or(0, |answer| answer.status);
                    let states = (begun, state.load(Ordering::SeqCst));
                    outcomes.lock().unwrap().push(Outcome { kind, states, status, request });
                }
            });
        }
        let have = |count: usize, is_one: &dyn Fn(&Outcome) -> bool| {
            let outcomes = outcomes.lock().unwrap();
            let of = |kind| outcomes.iter().filter(|one| one.kind == kind && is_one(one)).count();
            Kind::ALL.into_iter().all(|kind| of(kind) >= count).then_some(())
        };
        for now in [WORKS, DIES, IS_DEAD, COMES_BACK, WORKS_AGAIN] {
            state.store(now, Ordering::SeqCst);
            match now {
                DIES => {
                    services.iter().for_each(|service| service.fail(Fault::Refused));
                    // The key set is due to be fetched again.
                    envoy.clock().set(2);
                }
                COMES_BACK => services.iter().for_each(|service| service.heal()),
                _ => {}
            }
            // A request while the provider changes may meet either state.
            if [DIES, COMES_BACK].contains(&now) {
                wait_for("the change to be met", || {
                    let met = |one: &Outcome| {
                        one.states.0 == now && one.status == one.kind.expected(now == COMES_BACK)
                    };
                    have(1, &met)
                });
            } else {
                wait_for("enough requests", || have(ENOUGH, &|one| one.states == (now, now)));
            }
            if now == IS_DEAD {
                wait_for("a failed fetch", || (envoy.failures("jwks") > 0).then_some(()));
            }
        }
    });
    let outcomes = outcomes.into_inner().unwrap();

    let mut findings = Findings::default();
    for Outcome { kind, states, status, .. } in &outcomes {
        if states.0 == states.1 && [WORKS, IS_DEAD, WORKS_AGAIN].contains(&states.0) {
            let is_alive = states.0 != IS_DEAD;
            findings.expect(format!("{kind:?} in {states:?}"), status, &kind.expected(is_alive));
        }
    }
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
