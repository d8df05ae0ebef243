//! Calls that a request causes: their trace, and a cluster that does not exist.

use jsonwebtoken::Algorithm;
use serde_json::json;

use crate::world::World;
use testkit::Findings;
use testkit::configuration::Configuration;
use testkit::gateway::{exchange_by, exchange_form, mint_by, mint_request, minted};
use testkit::http::{Answer, Request};
use testkit::keys::Key;
use testkit::server::Reply;
use testkit::services::{Issuer, MINTERS, http_uri_of, introspection, userinfo};
use testkit::wait_for;

const MINTERS_INTROSPECTION: &str = "/subject_tokens/authentication/introspection";

#[test]
fn every_callout_of_a_request_carries_its_traceparent() {
    let world = World::start(&Configuration::default());
    let issuer = Issuer::at(world.upstream("keys"));
    let [users, agents, minters] =
        ["users", "userinfo", "introspection"].map(|name| world.upstream(name));
    agents.answer_always(Reply::json(&json!({"sub": "agent-1"})));
    let active = json!({"active": true, "scope": "impersonate", "client_id": "backend"});
    minters.answer_always(Reply::json(&active));
    let lookup = json!({"http_uri": http_uri_of("users", "/api/users/{userId}")});
    let configuration = Configuration::default()
        .with(MINTERS, issuer.minters("300s"))
        .with(MINTERS_INTROSPECTION, introspection("0s", json!(["impersonate"])))
        .with("/subject_tokens/user_lookup", lookup)
        .with("/actor_tokens/userinfo", userinfo("0s"));
    world.update(&configuration).unwrap();
    // The fetch of the start has ended, so that the next one is a request's.
    wait_for("the keys", || (world.send(&issuer.mint(&issuer.key)).status == 201).then_some(()));
    let trace =
        |number: u32| format!("00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333{number}-01");
    let traced =
        |request: Request, number| world.send(&request.header("traceparent", trace(number)));

    let subject_token = minted(&traced(mint_by("opaque-bearer", "u-1"), 1));
    assert_eq!(traced(exchange_by(&subject_token, "opaque-actor"), 2).status, 200);
    for (service, number) in [(minters, 1), (users, 1), (agents, 2)] {
        let asked = service.last();
        assert_eq!(asked.header("traceparent"), Some(&*trace(number)), "{}", service.name);
    }
    // This request causes a fetch.
    world.advance(6);
    let rotated = Key::generate(Algorithm::EdDSA, "rotated");
    issuer.publish(&[&rotated]);
    assert_eq!(traced(issuer.mint(&rotated), 3).status, 201);
    assert_eq!(issuer.service.last().header("traceparent"), Some(&*trace(3)));

    // The filter invents no trace for a caller who sends none, and does not mix up two requests.
    minted(&world.send(&mint_by("opaque-bearer", "u-1")));
    assert_eq!(minters.last().header("traceparent"), None);
}

fn expect_unavailable(findings: &mut Findings, case: &str, answer: &Answer) {
    findings.expect(case, &answer.refusal(), &(503, "temporarily_unavailable".into()));
    let seconds = answer.header("retry-after").and_then(|value| value.parse::<u32>().ok());
    findings.expect(case, &seconds.is_some(), &true);
}

#[test]
fn a_missing_cluster_counts_as_a_failing_service() {
    let world = World::start(&Configuration::default());
    let issuer = Issuer::at(world.upstream("keys"));
    let nowhere = "nowhere";
    let configuration = Configuration::default()
        .with(MINTERS, issuer.minters("300s"))
        .with("/subject_tokens/authentication/jwt/1/remote_jwks/http_uri/cluster", nowhere)
        .with("/actor_tokens/userinfo", userinfo("0s"))
        .with("/actor_tokens/userinfo/http_uri/cluster", nowhere)
        .with(MINTERS_INTROSPECTION, introspection("0s", json!(["impersonate"])))
        .with(&format!("{MINTERS_INTROSPECTION}/http_uri/cluster"), nowhere);
    world.update(&configuration).unwrap();
    let mut findings = Findings::default();
    let subject_token = world.mint();
    let cases = [
        ("jwks", issuer.mint(&issuer.key)),
        ("introspection", mint_by("opaque-bearer", "u-1")),
        ("userinfo", exchange_by(&subject_token, "opaque-actor")),
    ];
    for (upstream, request) in cases {
        expect_unavailable(&mut findings, upstream, &world.send(&request));
        findings.expect(upstream, &(world.failures(upstream) > 0), &true);
    }
    let answer = world.exchange(&exchange_form(&subject_token));
    findings.expect("without the actor", &answer.status, &200);

    let lookup = json!({"http_uri": http_uri_of(nowhere, "/api/users/{userId}")});
    let lookup = Configuration::default().with("/subject_tokens/user_lookup", lookup);
    world.update(&lookup).unwrap();
    expect_unavailable(&mut findings, "user_lookup", &world.send(&mint_request("u-1")));
    findings.expect("user_lookup", &world.failures("user_lookup"), &1);
}
