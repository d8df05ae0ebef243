//! Hooks: a required hook is told before a thing happens, and everything that it was told and that
//! then has no effect is taken back.

use serde_json::{Value, json};

use super::{
    Told, World, approver, ask, assert_refused, decide, exchange, in_both_stores, list, mint,
    minted, state, with_approvals,
};
use testkit::configuration::{Configuration, ISSUER};
use testkit::gateway::{BEARER, exchange_form, exchange_request};
use testkit::guarded::filter_configuration;
use testkit::http::Request;
use testkit::impersonations::revocation;
use testkit::server::{Fault, Reply, Server};

/// A second hook: a server that these tests do not use otherwise.
const OTHER: &str = "users";

/// A configuration with hooks at these clusters.
pub(crate) fn hooked(clusters: &[&str], required: bool) -> Configuration {
    let hook = |cluster: &&str| {
        let uri = json!({"uri": "http://hook.example/told", "cluster": cluster, "timeout": "60s"});
        let secret = json!({"inline_string": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"});
        json!({"http_uri": uri, "required": required, "secret": secret})
    };
    with_approvals(&json!({"required": 1}))
        .with("/notifications", clusters.iter().map(hook).collect::<Value>())
}

/// A world with one required hook, which answers.
fn told_in_advance() -> World {
    let world = World::start(&hooked(&["hooks"], true));
    world.upstream("hooks").answer_always(Reply::status(204));
    world
}

/// The events that a hook was told, or tried to be told.
fn events(hook: &Server) -> Vec<Value> {
    let received = hook.received();
    received.iter().map(|asked| serde_json::from_slice(&asked.body).unwrap()).collect()
}

pub(crate) fn types(hook: &Server) -> Vec<String> {
    let name = |event: Value| event["type"].as_str().unwrap().to_owned();
    events(hook).into_iter().map(name).collect()
}

/// The events of one type that a hook was told.
pub(crate) fn told(hook: &Server, name: &str) -> Vec<Value> {
    let mut events = events(hook);
    events.retain(|event| event["type"] == json!(format!("{name}.v1")));
    events
}

fn wait_to_be_told(world: &World, hook: &Server, name: &str) -> Vec<Value> {
    world.wait_for(name, || Some(told(hook, name)).filter(|events| !events.is_empty()))
}

/// The caller takes its subject token back.
pub(crate) fn take_back(id: &str) -> Request {
    ask("DELETE", &format!("/api/subject-tokens/{id}"), &BEARER, "")
}

fn decision(name: &str, id: &str, choice: &str) -> Request {
    let body = json!({"decision": choice}).to_string();
    ask("POST", &format!("/api/approvals/{id}"), &approver(name), &body)
}

/// Asserts that the hook and the audit log have one decision of `dana`, taken back by `name`.
fn assert_taken_back(world: &World, hook: &Server, of: &str, name: &str, case: &str) {
    let events = wait_to_be_told(world, hook, name);
    let [not_given] = &events[..] else { panic!("{case}: {events:?}") };
    // Each try of a notice has one id.
    let given = &told(hook, of)[0];
    let id = given["data"]["decisionId"].as_str().unwrap();
    assert_eq!(not_given["data"]["decisionId"], id, "{case}");
    assert_eq!(id.len(), 32, "{case}");
    assert_ne!(not_given["id"], given["id"], "{case}");
    assert_eq!(not_given["subject"], given["subject"], "{case}");
    assert_eq!(not_given["data"]["decidedBy"], "dana", "{case}");
    assert_eq!(not_given["data"]["state"], "pending", "{case}");
    let line = world
        .wait_for("the audit", || world.audit().into_iter().find(|event| event["event"] == name));
    assert_eq!(line["decision_id"], id, "{case}: {line}");
}

fn assert_not_told(told: &Told, case: &str) {
    assert_refused(told, case, 503, "temporarily_unavailable", "notification_failed");
}

#[test]
fn a_required_hook_is_told_before_a_thing_happens() {
    let world = told_in_advance();
    let hook = world.upstream("hooks");
    let (token, id) = minted(&world, &json!({}));
    assert_eq!(types(hook), ["approval.requested.v1"]);
    assert_eq!(decide(&world, &approver("dana"), &id, "approve").text("state"), "approved");
    assert_eq!(exchange(&world, &token).status, 200);
    assert_eq!(
        types(hook),
        ["approval.requested.v1", "approval.given.v1", "impersonation.began.v1"]
    );
    for event in events(hook) {
        assert_eq!((&event["specversion"], &event["subject"]), (&json!("1.0"), &json!(id)));
        assert_eq!((&event["source"], &event["data"]["id"]), (&json!(ISSUER), &json!(id)));
        assert_eq!(event["data"]["userId"], "user-42");
        assert_eq!(event["data"]["context"], json!({"ticketId": "T-1"}));
        assert!(!event.to_string().contains(&token), "no token is told");
    }
}

#[test]
fn what_a_required_hook_cannot_be_told_does_not_happen() {
    let world = told_in_advance();
    let hook = world.upstream("hooks");
    hook.fail(Fault::ServerError);
    assert_not_told(&mint(&world, &json!({})), "a mint");
    hook.heal();
    assert_eq!(list(&world, &approver("dana")).body["approvals"], json!([]));

    let (token, id) = minted(&world, &json!({}));
    hook.fail(Fault::ServerError);
    assert_not_told(&decide(&world, &approver("dana"), &id, "approve"), "a decision");
    let given = told(hook, "approval.given");
    assert_eq!(given.len(), 3, "{given:?}");
    assert!(given.iter().all(|event| event["id"] == given[0]["id"]), "one id in each try");
    assert_eq!(state(&world, &id), "pending");
    hook.heal();
    wait_to_be_told(&world, hook, "approval.not_given");
    assert_eq!(decide(&world, &approver("dana"), &id, "approve").status, 200);

    hook.fail(Fault::ServerError);
    assert_not_told(&exchange(&world, &token), "an exchange");
    hook.heal();
    wait_to_be_told(&world, hook, "impersonation.not_begun");
    assert_eq!(exchange(&world, &token).status, 200, "the token is unspent");
}

/// The hook may take seconds. An ending that is answered meanwhile is not missed.
#[test]
fn an_impersonation_that_is_ended_while_the_hook_is_told_does_not_begin() {
    type Way = fn(&str) -> Request;
    let ways: [(&str, Way, u16); 2] = [
        ("an operator ends it", |_| revocation(&json!({"userId": "user-42"})), 201),
        ("the caller takes it back", take_back, 204),
    ];
    let operators = filter_configuration().0["impersonations"].clone();
    let configuration =
        hooked(&["hooks"], true).with("/approvals/required", 0).with("/impersonations", operators);
    for (case, way, status) in ways {
        for (store, world) in in_both_stores(&configuration) {
            let hook = world.upstream("hooks");
            hook.answer_always(Reply::status(204));
            let (token, id) = minted(&world, &json!({}));
            world.advance(1);
            let form = exchange_form(&token);
            let (refused, meanwhile) = world
                .told_while(&exchange_request(&form), "hooks", || world.send(&way(&id)).status);
            assert_eq!(meanwhile, status, "{case}, {store}");
            assert_refused(&refused, case, 400, "invalid_request", "revoked");
            wait_to_be_told(&world, hook, "impersonation.not_begun");
            assert_eq!(told(hook, "impersonation.began").len(), 1, "{case}, {store}");
            // Nobody is told again of what cannot begin.
            assert_eq!(exchange(&world, &token).reason(), "revoked", "{case}, {store}");
            assert_eq!(told(hook, "impersonation.began").len(), 1, "{case}, {store}");
        }
    }
}

#[test]
fn other_hooks_are_told_afterwards_and_delay_nothing() {
    let world = World::start(&hooked(&["hooks"], false));
    let hook = world.upstream("hooks");
    hook.fail(Fault::ServerError);
    let (token, id) = minted(&world, &json!({}));
    assert_eq!(decide(&world, &approver("dana"), &id, "deny").status, 200);
    assert_eq!(exchange(&world, &token).status, 400);
    hook.heal();
    hook.answer_always(Reply::status(204));
    let (token, id) = minted(&world, &json!({}));
    assert_eq!(decide(&world, &approver("dana"), &id, "approve").status, 200);
    assert_eq!(exchange(&world, &token).status, 200);
    assert_eq!(world.send(&take_back(&id)).status, 204);
    let glass = json!({"breakGlass": true, "context": {"incident": "I-7"}});
    let _ = minted(&world, &glass);
    let kinds = [
        "approval.denied.v1",
        "approval.given.v1",
        "approval.requested.v1",
        "break_glass.used.v1",
        "impersonation.began.v1",
        "impersonation.ended.v1",
    ];
    world.wait_for("the hook", || {
        let mut kinds_told = types(hook);
        kinds_told.sort();
        kinds_told.dedup();
        (kinds_told == kinds).then_some(())
    });
}

#[test]
fn a_decision_that_comes_too_late_is_taken_back() {
    type Way = fn(&str) -> Request;
    #[rustfmt::skip]
    let cases: [(&str, &str, &str, Way, u16); 4] = [
        ("approve", "approval.given",  "approval.not_given",  |id| decision("eli", id, "deny"),    409),
        ("approve", "approval.given",  "approval.not_given",  take_back,                           404),
        ("deny",    "approval.denied", "approval.not_denied", |id| decision("eli", id, "approve"), 409),
        ("deny",    "approval.denied", "approval.not_denied", take_back,                           404),
    ];
    for (choice, given, not_given, way, status) in cases {
        let case = format!("{choice}, {status}");
        let world = told_in_advance();
        let (_, id) = minted(&world, &json!({}));
        let (answer, meanwhile) = world
            .send_while(&decision("dana", &id, choice), "hooks", || world.send(&way(&id)).status);
        assert!(meanwhile < 300, "{case}");
        assert_eq!(answer.status, status, "{case}: {answer:?}");
        assert_taken_back(&world, world.upstream("hooks"), given, not_given, &case);
    }
}

#[test]
fn a_decision_that_counts_is_told_once_and_not_taken_back() {
    let world = told_in_advance();
    let hook = world.upstream("hooks");
    let (_, first) = minted(&world, &json!({}));
    assert_eq!(world.send(&decision("dana", &first, "approve")).status, 200);
    // The hook gets what waits for it in order: a later retraction comes behind an earlier one.
    let (_, last) = minted(&world, &json!({}));
    let (answer, taken) = world.send_while(&decision("dana", &last, "approve"), "hooks", || {
        world.send(&take_back(&last)).status
    });
    assert_eq!((answer.status, taken), (404, 204));
    let events = wait_to_be_told(&world, hook, "approval.not_given");
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(events[0]["subject"], json!(last));
    assert_eq!(told(hook, "approval.given").len(), 2);
}

#[test]
fn a_decision_that_another_hook_could_not_be_told_is_taken_back() {
    let world = World::start(&hooked(&["hooks", OTHER], true));
    let [hook, other] = ["hooks", OTHER].map(|name| world.upstream(name));
    for hook in [hook, other] {
        hook.answer_always(Reply::status(204));
    }
    let (_, id) = minted(&world, &json!({}));
    other.fail(Fault::ServerError);
    assert_not_told(&decide(&world, &approver("dana"), &id, "approve"), "another hook");
    let names = ("approval.given", "approval.not_given");
    assert_taken_back(&world, hook, names.0, names.1, "another hook");
    // The other hook may have been told, too: only its answer is known to be wrong.
    other.heal();
    wait_to_be_told(&world, other, names.1);
}

#[test]
fn a_decision_whose_person_has_left_is_taken_back() {
    let world = told_in_advance();
    let (_, id) = minted(&world, &json!({}));
    world.leave_while(&decision("dana", &id, "approve"), "hooks");
    let names = ("approval.given", "approval.not_given");
    assert_taken_back(&world, world.upstream("hooks"), names.0, names.1, "gone");
    // The person decides again, and it counts.
    assert_eq!(world.send(&decision("dana", &id, "approve")).status, 200);
}
