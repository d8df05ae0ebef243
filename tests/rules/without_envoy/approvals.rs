//! Decisions and impersonations of which a required hook is told.

use serde_json::json;

use crate::rules::approvals::hooks::{hooked, take_back, told, types};
use crate::rules::approvals::{approver, assert_refused, decide, exchange, minted};
use crate::world::World;
use testkit::gateway::{exchange_form, exchange_request};
use testkit::guarded::filter_configuration;
use testkit::http::Request;
use testkit::impersonations::revocation;
use testkit::server::Reply;

const STORE: &str = "/store";

/// The decision may count: to take it back would be a lie as often as the truth.
#[test]
fn a_decision_of_unknown_outcome_is_not_taken_back() {
    let configuration = hooked(&["hooks"], true).with(STORE, json!({"etcd": {"cluster": "etcd"}}));
    let world = World::start(&configuration);
    let hook = world.upstream("hooks");
    hook.answer_always(Reply::status(204));
    let (token, id) = minted(&world, &json!({}));
    let path = format!("/api/approvals/{id}");
    let decision =
        Request::post(&path).bearer(&approver("dana")).json(&json!({"decision": "approve"}));
    // All answers to the write.
    let (answer, ()) = world.told_while(&decision, "hooks", || world.lose_answers(5));
    assert_refused(&answer, "lost", 503, "temporarily_unavailable", "decision_unknown");
    assert_eq!(answer.event["event"], "approval.refused");
    // The person repeats the decision, and learns that it counts.
    let answer = decide(&world, &approver("dana"), &id, "approve");
    assert_eq!((answer.status, answer.text("state")), (200, "approved"));
    assert_eq!(exchange(&world, &token).status, 200);
    assert_eq!(
        types(hook),
        ["approval.requested.v1", "approval.given.v1", "impersonation.began.v1"]
    );
}

/// The hook may take seconds. An ending that another worker or another Envoy has answered meanwhile
/// is not missed.
#[test]
fn an_impersonation_that_is_ended_elsewhere_while_the_hook_is_told_does_not_begin() {
    type Way = fn(&str) -> (Request, u16);
    let ways: [(&str, Way); 2] = [
        ("an operator ends it", |_| (revocation(&json!({"userId": "user-42"})), 201)),
        ("the caller takes it back", |id| (take_back(id), 204)),
    ];
    let operators = filter_configuration().0["impersonations"].clone();
    let configuration =
        hooked(&["hooks"], true).with("/approvals/required", 0).with("/impersonations", operators);
    let in_etcd = configuration.clone().with(STORE, json!({"etcd": {"cluster": "etcd"}}));
    for (case, way) in ways {
        let (one, another) = (World::start(&configuration), World::start(&in_etcd));
        let pairs =
            [(one.another_worker(&configuration), one), (another.another_envoy(&in_etcd), another)];
        for (other, world) in pairs {
            let hook = world.upstream("hooks");
            hook.answer_always(Reply::status(204));
            let (token, id) = minted(&world, &json!({}));
            world.advance(1);
            other.advance(1);
            let (request, status) = way(&id);
            let exchange = exchange_request(&exchange_form(&token));
            let (refused, meanwhile) =
                world.told_while(&exchange, "hooks", || other.send(&request).status);
            assert_eq!(meanwhile, status, "{case}");
            assert_refused(&refused, case, 400, "invalid_request", "revoked");
            world.wait_for("the hook", || told(hook, "impersonation.not_begun").pop());
        }
    }
}
