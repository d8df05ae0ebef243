//! Mints whose tokens wait, and mints that the decision point or the operator's function sees.

use serde_json::{Value, json};

use super::{World, mint, with_approvals};
use testkit::Findings;
use testkit::configuration::Configuration;
use testkit::server::{Fault, Reply};
use testkit::services::http_uri_of;

/// Nobody must approve unless a mint asks for it, and breaking the glass needs no context.
fn configuration() -> Configuration {
    with_approvals(&json!({"required": 0, "break_glass": {}}))
}

#[test]
fn a_mint_says_that_its_token_waits() {
    let world = World::start(&configuration());
    for (members, waits) in [
        (json!({"approvals": 1}), true),
        (json!({"consent": true}), true),
        (json!({"approvals": 0}), false),
        (json!({"approvals": 1, "breakGlass": true}), false),
    ] {
        let mut told = mint(&world, &members);
        assert_eq!(told.status, 201, "{members}: {told:?}");
        let approval = told.body.as_object_mut().unwrap().remove("approval");
        assert_eq!(approval, waits.then(|| json!("pending")), "{members}");
        assert_eq!(told.body.as_object().unwrap().len(), 2, "{members}: {told:?}");
    }
}

fn with_decision_point() -> World {
    let decision_point = json!({
        "http_uri": http_uri_of("decision_point", "/access/v1/evaluation"),
        "authorization": {"inline_string": "Bearer of the filter"},
    });
    World::start(&configuration().with("/authzen", decision_point))
}

#[test]
fn the_decision_point_is_asked_and_only_a_clear_yes_lets_the_mint_continue() {
    let world = with_decision_point();
    let point = world.upstream("decision_point");
    let yes = || Reply::json(&json!({"decision": true}));
    let with_body = |body: &str| Reply { body: body.into(), ..yes() };
    #[rustfmt::skip]
    let cases = [
        ("yes",         yes(),                                              None, 201, ""),
        ("yes and why", with_body(r#"{"decision":true,"context":{"id":1}}"#), None, 201, ""),
        ("no",          with_body(r#"{"decision":false}"#),                 None, 403, "decision_point_denied"),
        ("a text",      with_body(r#"{"decision":"true"}"#),                None, 503, "callout_failed"),
        ("a number",    with_body(r#"{"decision":1}"#),                     None, 503, "callout_failed"),
        ("nothing",     with_body("{}"),                                    None, 503, "callout_failed"),
        ("null",        with_body(r#"{"decision":null}"#),                  None, 503, "callout_failed"),
        ("a list",      with_body("[true]"),                                None, 503, "callout_failed"),
        ("twice",       with_body(r#"{"decision":false,"decision":true}"#), None, 503, "callout_failed"),
        ("created",     Reply { status: 201, ..yes() },                     None, 503, "callout_failed"),
        ("forbidden",   Reply { status: 403, ..yes() },                     None, 503, "callout_failed"),
        ("an error",    Reply { status: 500, ..yes() },                     None, 503, "callout_failed"),
        ("a page",      yes(),                 Some(Fault::WrongContentType),     503, "callout_failed"),
        ("down",        yes(),                 Some(Fault::Refused),              503, "callout_failed"),
        ("cut off",     yes(),                 Some(Fault::ResetMidBody),         503, "callout_failed"),
    ];
    let mut minted = 0;
    for (case, reply, fault, status, reason) in cases {
        point.heal();
        point.answer_always(reply);
        fault.into_iter().for_each(|fault| point.fail(fault));
        let told = mint(&world, &json!({"actorId": "agent-7"}));
        assert_eq!((told.status, told.reason()), (status, reason), "{case}: {told:?}");
        minted += u64::from(status == 201);
        assert_eq!(world.counted("impersonation_subject_tokens_created_total"), minted, "{case}");
        if fault == Some(Fault::Refused) {
            continue;
        }
        let asked = point.last();
        assert_eq!(asked.header("authorization"), Some("Bearer of the filter"));
        assert_eq!(asked.header("x-request-id"), told.event["request_id"].as_str());
        let expected = json!({
            "subject": {"type": "client", "id": "support-backend"},
            "action": {"name": "impersonate"},
            "resource": {"type": "user", "id": "user-42"},
            "context": {
                "context": {"ticketId": "T-1"}, "bounds": {"actorId": "agent-7"},
                "actor": "agent-7", "breakGlass": false,
            },
        });
        assert_eq!(serde_json::from_slice::<Value>(&asked.body).unwrap(), expected);
    }
}

#[test]
fn the_decision_point_sees_that_a_mint_breaks_the_glass_and_may_refuse_it() {
    let world = with_decision_point();
    world.upstream("decision_point").answer(|asked| {
        let question: Value = serde_json::from_slice(&asked.body).unwrap();
        Reply::json(&json!({"decision": question["context"]["breakGlass"] == json!(false)}))
    });
    for (members, status) in
        [(json!({}), 201), (json!({"breakGlass": false}), 201), (json!({"breakGlass": true}), 403)]
    {
        assert_eq!(mint(&world, &members).status, status, "{members}");
    }
}

/// The function asks for people in the middle of the night, for example. What it asks for is never
/// dropped.
#[cfg(feature = "custom-claims")]
#[test]
fn the_function_sees_that_a_mint_breaks_the_glass_and_no_people_that_it_asks_for_are_dropped() {
    let script = "const authorizeSubjectToken = ({ context, breakGlass, api }) => {
        if (context.refuses && breakGlass) api.denyAccess('no break glass here');
        return context.asks ?? {};
    };";
    let world = World::start(&configuration().with("/authorize_subject_token/script", script));
    let asking = |asks: Value| json!({"context": {"asks": asks}});
    let mut findings = Findings::default();
    for (members, glass) in [
        (asking(json!({})), 201),
        (asking(json!({"approvals": 0})), 201),
        (asking(json!({"approvals": 1})), 403),
        (asking(json!({"consent": true})), 403),
        (json!({"context": {"refuses": "yes"}}), 403),
    ] {
        findings.expect(&members, &mint(&world, &members).status, &201);
        let mut breaking = members;
        breaking["breakGlass"] = json!(true);
        let told = mint(&world, &breaking);
        findings.expect(&breaking, &told.status, &glass);
        if told.status == 403 {
            findings.expect(&breaking, &told.text("error"), &"access_denied");
        }
    }
}
