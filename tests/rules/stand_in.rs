//! The filter's own documents, which stand in while the identity gateway fails.

use serde_json::{Value, json};

use crate::world::World;
use testkit::configuration::{Configuration, ISSUER};
use testkit::documents::{
    DISCOVERY, JWKS, answers_that_are_no_documents, has_documents, keeping, merging,
};
use testkit::gateway::IDENTITY_GATEWAY;
use testkit::http::{Answer, Request};
use testkit::server::{Fault, Reply};
use testkit::{Findings, wait_for};

/// Starts a filter that has asked the gateway for its documents.
fn start() -> World {
    let world = World::start(&Configuration::default());
    has_documents(world.upstream(IDENTITY_GATEWAY));
    world.fetches(|| world.update(&keeping(&json!({}))).unwrap());
    world
}

impl World {
    /// Waits until this step has made the filter ask for each document itself.
    fn fetches(&self, step: impl FnOnce()) {
        let gateway = self.upstream(IDENTITY_GATEWAY);
        let before = gateway.calls();
        step();
        for target in [JWKS, DISCOVERY] {
            wait_for("the filter's own request", || {
                let asked = gateway.received().split_off(before);
                asked.iter().any(|asked| asked.target == target).then_some(())
            });
        }
    }

    /// Waits until a document stands in for the failing gateway.
    fn stand_in(&self, target: &str) -> Answer {
        wait_for("a document that stands in", || {
            let answer = self.send(&Request::get(target));
            let stands_in = answer.header("cache-control") == Some("max-age=60");
            (answer.status == 200 && stands_in).then_some(answer)
        })
    }

    fn assert_fails(&self, case: &str) {
        for target in [JWKS, DISCOVERY] {
            assert_eq!(self.send(&Request::get(target)).status, 500, "{target}: {case}");
        }
    }
}

#[test]
fn the_filters_document_replaces_that_of_a_gateway_which_fails_in_any_way() {
    let world = start();
    let gateway = world.upstream(IDENTITY_GATEWAY);
    let mut findings = Findings::default();
    for target in [JWKS, DISCOVERY] {
        // The standard is the gateway's own answer.
        let good = world.send(&Request::get(target));
        gateway.fail(Fault::ServerError);
        world.stand_in(target);
        gateway.heal();
        let mut expect_good = |case: &str| {
            let case = format!("{target}: {case}");
            let answer = world.send(&Request::get(target));
            findings.expect(format!("{case}: status"), &answer.status, &200);
            findings.expect(format!("{case}: body"), &answer.text(), &good.text());
            let kept_for = answer.header("cache-control");
            findings.expect(format!("{case}: kept for"), &kept_for, &Some("max-age=60"));
            findings.expect(format!("{case}: tag"), &answer.header("etag"), &good.header("etag"));
            let length = answer.header("content-length").map(|length| length.parse().unwrap());
            let length = length.unwrap_or(answer.body.len());
            findings.expect(format!("{case}: length"), &length, &answer.body.len());
            for of_the_failure in ["location", "vary"] {
                findings.expect(&case, &answer.header(of_the_failure), &None);
            }
            let head = world.send(&Request::new("HEAD", target));
            let kept_for = head.header("cache-control");
            findings.expect(format!("{case}: HEAD"), &kept_for, &Some("max-age=60"));
        };
        for (name, reply) in answers_that_are_no_documents() {
            gateway.answer_always(reply.header("vary", "origin"));
            // The filter's own fetch fails, too.
            world.advance(60);
            expect_good(name);
        }
        has_documents(gateway);
        for fault in
            [Fault::Refused, Fault::ServerError, Fault::WrongContentType, Fault::Junk, Fault::Empty]
        {
            gateway.fail(fault);
            expect_good(&format!("{fault:?}"));
            gateway.heal();
        }
        let etag = good.header("etag").unwrap();
        gateway.fail(Fault::ServerError);
        let known = world.send(&Request::get(target).header("if-none-match", etag));
        findings.expect(format!("{target}: known"), &known.status, &304);
        gateway.heal();
        let answer = world.send(&Request::get(target));
        let kept_for = Some("public, max-age=60");
        findings.expect(format!("{target}: healed"), &answer.header("cache-control"), &kept_for);
    }
    let line = "its last good one stands in";
    findings.expect("the operator learns of it", &world.log().contains(line), &true);
    gateway.fail(Fault::ServerError);
    world.advance(3600);
    world.assert_fails("after an hour");
}

#[test]
fn a_document_from_before_the_clock_was_set_back_does_not_stand_in() {
    let world = start();
    let gateway = world.upstream(IDENTITY_GATEWAY);
    gateway.fail(Fault::ServerError);
    for target in [JWKS, DISCOVERY] {
        world.stand_in(target);
    }
    world.advance(-3600);
    world.assert_fails("from before");
    gateway.heal();
    world.fetches(|| world.advance(60));
    gateway.fail(Fault::ServerError);
    for target in [JWKS, DISCOVERY] {
        world.stand_in(target);
    }
}

#[test]
fn without_the_gateways_cluster_its_failure_reaches_every_caller() {
    let world = World::start(&Configuration::default());
    world.update(&merging()).unwrap();
    let gateway = world.upstream(IDENTITY_GATEWAY);
    has_documents(gateway);
    for target in [JWKS, DISCOVERY] {
        assert_eq!(world.send(&Request::get(target)).status, 200, "{target}");
    }
    gateway.fail(Fault::ServerError);
    world.assert_fails("without a cluster");
    assert!(world.log().contains("configuration: identity_gateway.cluster: absent"));
}

#[test]
fn a_discovery_document_stands_in_only_if_its_endpoints_have_allowed_origins() {
    const MTLS: &str = "https://mtls.example.com";
    let document = json!({
        "issuer": ISSUER,
        "token_endpoint": format!("{ISSUER}/token"),
        "service_documentation": "https://www.example.org/",
        "mtls_endpoint_aliases": {"token_endpoint": format!("{MTLS}/token")},
    });
    for (members, stands_in) in [(json!({}), false), (json!({"origins": [MTLS]}), true)] {
        let world = World::start(&Configuration::default());
        let gateway = world.upstream(IDENTITY_GATEWAY);
        gateway.answer_always(Reply::json(&document));
        world.fetches(|| world.update(&keeping(&members)).unwrap());
        if !stands_in {
            wait_for("the operator's line", || {
                world.log().contains("mtls_endpoint_aliases").then_some(())
            });
        }
        // The caller's own document is not held back.
        assert_eq!(world.send(&Request::get(DISCOVERY)).status, 200, "{members}");
        gateway.fail(Fault::ServerError);
        if stands_in {
            let aliases: &Value = &world.stand_in(DISCOVERY).json()["mtls_endpoint_aliases"];
            assert_eq!(*aliases, document["mtls_endpoint_aliases"], "{members}");
        } else {
            assert_eq!(world.send(&Request::get(DISCOVERY)).status, 500, "{members}");
        }
    }
}
