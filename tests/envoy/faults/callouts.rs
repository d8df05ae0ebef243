//! Each callout with each fault: the caller is answered in bounded time, nothing is spent, no other
//! request is disturbed, and a metric counts the failure.

use std::time::Instant;

use jsonwebtoken::Algorithm;
use serde_json::{Value, json};

use super::{BOUND, echoing_gateway, expect_unavailable};
use testkit::configuration::Configuration;
use testkit::envoy::Envoy;
use testkit::gateway::{
    Gateway, exchange_by, exchange_form, exchange_request, in_front_of, mint_by, mint_request,
    minted,
};
use testkit::http::Request;
use testkit::keys::Key;
use testkit::server::{Fault, Reply};
use testkit::services::{ACTORS, Issuer, MINTERS, TIMEOUT, http_uri_of, introspection, userinfo};
use testkit::{Findings, wait_for};

/// A request that needs the service, and its status while the service works.
struct Callout<'a> {
    /// The name of the service.
    service: &'a str,
    answer: Value,
    metric: &'a str,
    request: &'a dyn Fn(&Envoy) -> Request,
    status: u16,
}

impl Callout<'_> {
    fn survives_every_fault(&self, configuration: &Configuration) {
        let gateway = Gateway::lent(configuration);
        let (envoy, service) = (&gateway.envoy, gateway.server(self.service));
        service.answer_always(Reply::json(&self.answer));
        let mut findings = Findings::default();
        for fault in Fault::ALL {
            let case = format!("{} {fault:?}", self.service);
            let request = (self.request)(envoy);
            let bystander = minted(&envoy.send(&mint_request("u-bystander")));
            let failures = envoy.failures(self.metric);

            service.fail(fault);
            let began = Instant::now();
            let mut waiting = envoy.connect();
            waiting.write(&request.to_bytes()).unwrap();
            // There is one worker: a request that blocked it would show here.
            let echoed = envoy.send(&Request::get("/anything"));
            let exchanged = envoy.send(&exchange_request(&exchange_form(&bystander)));
            let bystanders_took = began.elapsed();
            let answer = waiting.read_answer("POST").unwrap();
            let took = began.elapsed();

            expect_unavailable(&mut findings, &case, &answer);
            findings.expect(format!("{case}: passing through"), &echoed.status, &200);
            findings.expect(format!("{case}: another exchange"), &exchanged.status, &200);
            if took > BOUND {
                findings.add(format!("{case}: answered after {took:?}"));
            }
            if fault.takes_the_whole_timeout() && bystanders_took >= TIMEOUT {
                findings.add(format!("{case}: others waited for {bystanders_took:?}"));
            }
            let counted = envoy.failures(self.metric) - failures;
            findings.expect(format!("{case}: failures counted"), &counted, &1);

            service.heal();
            let answer = envoy.send(&request);
            findings.expect(
                format!("{case}: the same again, healed"),
                &answer.status,
                &self.status,
            );
        }
    }
}

/// Mints with a JWT first, so that only the exchange depends on the service.
fn exchange_with_opaque_actor(envoy: &Envoy) -> Request {
    exchange_by(&minted(&envoy.send(&mint_request("u-1"))), "opaque-actor")
}

#[test]
fn minters_introspection_survives_every_fault() {
    let configuration = Configuration::default().with(
        "/subject_tokens/authentication/introspection",
        introspection("0s", json!(["impersonate"])),
    );
    Callout {
        service: "introspection",
        answer: json!({"active": true, "scope": "impersonate", "client_id": "backend"}),
        metric: "introspection",
        request: &|_: &Envoy| mint_by("opaque-bearer", "u-1"),
        status: 201,
    }
    .survives_every_fault(&configuration);
}

#[test]
fn actors_introspection_survives_every_fault() {
    let configuration = Configuration::default()
        .with("/actor_tokens/introspection", introspection("0s", json!([])));
    Callout {
        service: "introspection",
        answer: json!({"active": true, "scope": "openid", "sub": "agent-1"}),
        metric: "introspection",
        request: &exchange_with_opaque_actor,
        status: 200,
    }
    .survives_every_fault(&configuration);
}

#[test]
fn userinfo_survives_every_fault() {
    let configuration = Configuration::default().with("/actor_tokens/userinfo", userinfo("0s"));
    Callout {
        service: "userinfo",
        answer: json!({"sub": "agent-1"}),
        metric: "userinfo",
        request: &exchange_with_opaque_actor,
        status: 200,
    }
    .survives_every_fault(&configuration);
}

/// Only the status counts here, so a fault of the body is no failure.
#[test]
fn user_lookup_survives_every_fault() {
    let lookup = json!({"http_uri": http_uri_of("users", "/api/users/{userId}")});
    let configuration = Configuration::default().with("/subject_tokens/user_lookup", lookup);
    let gateway = Gateway::lent(&configuration);
    let (envoy, service) = (&gateway.envoy, gateway.server("users"));
    service.answer_always(Reply::json(&json!({"id": "u-1", "name": "Somebody"})));
    let mut findings = Findings::default();
    for fault in Fault::ALL {
        let case = format!("users {fault:?}");
        let bystander = minted(&envoy.send(&mint_request("u-bystander")));
        let failures = envoy.failures("user_lookup");
        service.fail(fault);
        let began = Instant::now();
        let mut waiting = envoy.connect();
        waiting.write(&mint_request("u-1").to_bytes()).unwrap();
        let exchanged = envoy.send(&exchange_request(&exchange_form(&bystander)));
        let bystander_took = began.elapsed();
        let answer = waiting.read_answer("POST").unwrap();
        let took = began.elapsed();
        let counted = envoy.failures("user_lookup") - failures;
        findings.expect(format!("{case}: another exchange"), &exchanged.status, &200);
        if took > BOUND {
            findings.add(format!("{case}: answered after {took:?}"));
        }
        if fault.takes_the_whole_timeout() && bystander_took >= TIMEOUT {
            findings.add(format!("{case}: others waited for {bystander_took:?}"));
        }
        // An HTML page can have status 200 for any path. An answer without a body means what its
        // status says.
        if fault == Fault::Empty {
            findings.expect(format!("{case}: found all the same"), &answer.status, &201);
            findings.expect(format!("{case}: failures counted"), &counted, &0);
        } else {
            expect_unavailable(&mut findings, &case, &answer);
            findings.expect(format!("{case}: failures counted"), &counted, &1);
        }
        service.heal();
        let answer = envoy.send(&mint_request("u-1"));
        findings.expect(format!("{case}: healed"), &answer.status, &201);
    }
}

/// One issuer with each fault, for callers who mint or for actors.
struct FaultyIssuer {
    fault: Fault,
    issuer: Issuer,
    request: fn(&Envoy, &Issuer, &Key) -> (Request, u16),
}

#[test]
fn key_sets_survive_every_fault() {
    let minting = |_: &Envoy, issuer: &Issuer, key: &Key| (issuer.mint(key), 201);
    let acting = |envoy: &Envoy, issuer: &Issuer, key: &Key| {
        let subject_token = minted(&envoy.send(&mint_request("u-1")));
        (exchange_by(&subject_token, &issuer.actor(key)), 200)
    };
    let mut configuration = Configuration::default();
    let mut issuers = Vec::new();
    for fault in Fault::ALL {
        let issuer = Issuer::start(&format!("minters_{}", fault.name()));
        configuration = configuration.with(MINTERS, issuer.minters("300s"));
        issuers.push(FaultyIssuer { fault, issuer, request: minting });
        let issuer = Issuer::start(&format!("actors_{}", fault.name()));
        configuration = configuration.with(ACTORS, issuer.actors("300s"));
        issuers.push(FaultyIssuer { fault, issuer, request: acting });
    }
    let gateway = echoing_gateway();
    let services: Vec<_> =
        issuers.iter().map(|faulty| &faulty.issuer.service).chain([&gateway]).collect();
    for faulty in &issuers {
        faulty.issuer.service.fail(faulty.fault);
    }
    let envoy = in_front_of(&services, &configuration).with_clock().start();
    let mut findings = Findings::default();

    // Before the first success there are no keys to verify with.
    let mut refused = Vec::new();
    for FaultyIssuer { issuer, request, .. } in &issuers {
        let case = format!("{} from the start", issuer.service.name);
        let (request, status) = request(&envoy, issuer, &issuer.key);
        let began = Instant::now();
        expect_unavailable(&mut findings, &case, &envoy.send(&request));
        if began.elapsed() > BOUND {
            findings.add(format!("{case}: answered after {:?}", began.elapsed()));
        }
        refused.push((case, request, status));
    }
    wait_for("failures to be counted", || (envoy.failures("jwks") >= 16).then_some(()));
    for FaultyIssuer { fault, issuer, .. } in &issuers {
        // A request is refused at once while another worker's fetch is still in progress.
        wait_for(&format!("{} to be asked", issuer.service.name), || {
            (*fault == Fault::Refused || issuer.service.calls() > 0).then_some(())
        });
    }
    for faulty in &issuers {
        faulty.issuer.service.heal();
    }
    for (case, request, status) in refused.drain(..) {
        wait_for(&format!("{case}: the same request to work"), || {
            (envoy.send(&request).status == status).then_some(())
        });
    }

    // From then on the last good keys serve, whatever happens to a refresh.
    envoy.clock().set(6);
    for FaultyIssuer { fault, issuer, request } in &issuers {
        let case = format!("{} later", issuer.service.name);
        let rotated = Key::generate(Algorithm::EdDSA, "rotated");
        let (unknown, status) = request(&envoy, issuer, &rotated);
        let (known, _) = request(&envoy, issuer, &issuer.key);
        let (known_again, _) = request(&envoy, issuer, &issuer.key);
        let (failures, calls) = (envoy.failures("jwks"), issuer.service.calls());
        issuer.service.fail(*fault);
        let began = Instant::now();
        let mut waiting = envoy.connect();
        waiting.write(&unknown.to_bytes()).unwrap();
        let meanwhile = envoy.send(&known);
        let bystander_took = began.elapsed();
        let answer = waiting.read_answer("POST").unwrap();
        if began.elapsed() > BOUND {
            findings.add(format!("{case}: answered after {:?}", began.elapsed()));
        }
        if fault.takes_the_whole_timeout() && bystander_took >= TIMEOUT {
            findings.add(format!("{case}: others waited for {bystander_took:?}"));
        }
        expect_unavailable(&mut findings, format!("{case}: unknown kid"), &answer);
        findings.expect(format!("{case}: known kid meanwhile"), &meanwhile.status, &status);
        let after = envoy.send(&known_again);
        findings.expect(format!("{case}: known kid afterwards"), &after.status, &status);
        let counted = envoy.failures("jwks") - failures;
        findings.expect(format!("{case}: failures counted"), &counted, &1);
        let asked = issuer.service.calls() - calls;
        let reached = usize::from(*fault != Fault::Refused);
        findings.expect(format!("{case}: fetches"), &asked, &reached);

        issuer.publish(&[&issuer.key, &rotated]);
        issuer.service.heal();
        refused.push((case, unknown, status));
    }
    for (case, request, status) in refused {
        wait_for(&format!("{case}: the rotated key to work"), || {
            (envoy.send(&request).status == status).then_some(())
        });
    }
}
