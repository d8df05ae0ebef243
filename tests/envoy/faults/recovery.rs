//! The provider dies and comes back while requests flow.

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use super::{
    BOUND, Issuer, MINTERS, echoing_gateway, exchange_by, introspection, mint_with, userinfo,
};
use crate::support::Findings;
use crate::support::configuration::Configuration;
use crate::support::fronted::{Fronted, Setup};
use crate::support::gateway::{mint_request, minted};
use crate::support::http::Request;
use crate::support::idp::{Fault, Reply, Service};

const RATE: u32 = 50;
/// The provider lives, is dead, lives again: each so long.
const PHASE: Duration = Duration::from_secs(3);
/// What is sent this shortly before or after a change may meet either.
const BLUR: Duration = Duration::from_millis(700);

/// What a request needs of the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// A mint by a JWT of a remote key set that is known.
    KnownKey,
    /// A mint by an opaque token.
    Introspection,
    /// An exchange by an opaque actor.
    Userinfo,
    /// What is not ours.
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

    fn request(self, envoy: &Fronted, issuer: &Issuer) -> Request {
        match self {
            Self::KnownKey => mint_with(&issuer.bearer(&issuer.key)),
            Self::Introspection => mint_with("opaque-bearer"),
            Self::Userinfo => {
                let subject_token = minted(&envoy.send(&mint_request("u-1")));
                exchange_by(&subject_token, "opaque-actor")
            }
            Self::PassingThrough => Request::get("/anything"),
            Self::Document => Request::get("/oidc/jwks"),
        }
    }
}

/// One request: when it was sent, and how it ended; 0 for no answer at all.
struct Outcome {
    kind: Kind,
    sent: Duration,
    took: Duration,
    status: u16,
    request: Request,
}

#[test]
fn what_fails_while_the_provider_is_dead_works_when_it_is_back() {
    let issuer = Issuer::start("keys");
    let (gateway, users) = (echoing_gateway(), Service::start("userinfo"));
    let minters = Service::start("introspection");
    users.answer_always(Reply::json(&json!({"sub": "agent-1"})));
    minters.answer_always(Reply::json(&json!({
        "active": true, "scope": "impersonate", "client_id": "backend",
    })));
    let configuration = Configuration::default()
        // So short that refreshes fail while the provider is dead.
        .with(MINTERS, issuer.minters("1s"))
        .with(
            "/subject_tokens/authentication/introspection",
            introspection(&minters, "0s", json!(["impersonate"])),
        )
        .with("/actor_tokens/userinfo", userinfo(&users, "0s"))
        .with("/identity_gateway", json!({"documents": "merge"}));
    let services = [&gateway, &users, &minters, &issuer.service];
    let setup = Setup { concurrency: 2, ..Setup::default() };
    let mut envoy = Fronted::start(&configuration, &services, &setup);
    let warm = envoy.connect_to_every_worker();
    crate::support::wait_for("the keys", || {
        let mint = mint_with(&issuer.bearer(&issuer.key));
        (envoy.send(&mint).status == 201).then_some(())
    });
    drop(warm);
    thread::sleep(Duration::from_millis(1200));

    let (report, outcomes) = mpsc::channel();
    let began = Instant::now();
    thread::scope(|scope| {
        let (envoy, issuer) = (&envoy, &issuer);
        scope.spawn(|| {
            thread::sleep(PHASE.saturating_sub(began.elapsed()));
            services.iter().for_each(|service| service.fail(Fault::Refused));
            thread::sleep((PHASE * 2).saturating_sub(began.elapsed()));
            services.iter().for_each(|service| service.heal());
        });
        for n in 0..RATE * 3 * u32::try_from(PHASE.as_secs()).unwrap() {
            thread::sleep((Duration::from_secs(1) / RATE * n).saturating_sub(began.elapsed()));
            let kind = Kind::ALL[n as usize % Kind::ALL.len()];
            let report = report.clone();
            scope.spawn(move || {
                let request = kind.request(envoy, issuer);
                let sent = began.elapsed();
                let answer = envoy.connect().try_send(&request);
                let took = began.elapsed() - sent;
                let status = answer.map_or(0, |answer| answer.status);
                report.send(Outcome { kind, sent, took, status, request }).unwrap();
            });
        }
    });
    drop(report);
    let outcomes: Vec<_> = outcomes.iter().collect();

    // By half second: what came of each kind.
    let mut table: BTreeMap<(u128, Kind, u16), u32> = BTreeMap::new();
    for Outcome { kind, sent, status, .. } in &outcomes {
        *table.entry((sent.as_millis() / 500, *kind, *status)).or_default() += 1;
    }
    for ((half_second, kind, status), count) in &table {
        println!("{:4} ms {kind:?}: {count} x {status}", half_second * 500);
    }
    let mut findings = Findings::default();
    for Outcome { kind, sent, took, status, .. } in &outcomes {
        let case = format!("{kind:?} at {sent:?}");
        if *took > BOUND {
            findings.add(format!("{case}: took {took:?}"));
        }
        let into_phase = Duration::from_nanos((sent.as_nanos() % PHASE.as_nanos()) as u64);
        let blurred = into_phase < BLUR && *sent > PHASE || into_phase + BLUR > PHASE;
        let alive = !(PHASE..PHASE * 2).contains(sent);
        if !blurred {
            findings.expect(case, status, &kind.expected(alive));
        }
    }
    // Whatever was refused was not lost: the very same requests work now, on every worker.
    let mut connections = envoy.connect_to_every_worker();
    for outcome in outcomes.iter().filter(|outcome| outcome.status == 503) {
        // An exchange works once.
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
