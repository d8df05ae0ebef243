//! Two issuers use the same names, and a guard tells their actors apart.

use serde_json::json;

use testkit::bootstrap::Filter;
use testkit::configuration::{Configuration, ISSUER, MANAGEMENT, SUPPORT};
use testkit::gateway::minted;
use testkit::guarded::{ACTOR_HEADER, Guarded, guard_configuration, guarded_listener};
use testkit::http::Request;
use testkit::server::{Server, as_asked};
use testkit::two_issuers::{ACTORS, CALLERS, PARTNER, acting, agent, backend, both, mint};

fn configuration() -> Configuration {
    Configuration::default().with(CALLERS, both(MANAGEMENT)).with(ACTORS, both(SUPPORT))
}

#[test]
fn a_guard_rule_matches_only_the_actor_of_the_named_issuer() {
    let rules =
        json!([{"path": "/orders", "actors": ["agent-*"], "methods": ["POST"], "action": "allow"}]);
    let api = Server::start(testkit::guarded::API);
    api.answer(as_asked);
    let guarded = guarded_listener(&guard_configuration(&json!({"rules": rules})));
    let filter = Filter::from(&configuration());
    let envoy = Guarded::bootstrap_with(guarded, filter, api.address).start();
    let guarded = Guarded { envoy, api };
    for (issuer, actor, status) in [(ISSUER, "agent-7", 200), (PARTNER, "partner:agent-7", 403)] {
        let minted_answer =
            guarded.send_to_filter(&mint(&backend(issuer, "backend"), &json!({"userId": "u-1"})));
        let exchange = acting(&minted(&minted_answer), &agent(issuer, "agent-7"));
        let token = guarded.send_to_filter(&exchange).member("access_token");
        let written = guarded.send_as(&token, Request::post("/orders").body("x"));
        assert_eq!(written.status, status, "{actor}");
        let read = guarded.send_as(&token, Request::get("/orders"));
        let received = guarded.api.received_for(&read).unwrap();
        assert_eq!(received.header(ACTOR_HEADER), Some(actor));
    }
}
