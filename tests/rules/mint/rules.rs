//! The operator's rules: mints that are refused for every caller.

use serde_json::{Value, json};

use crate::world::World;
use testkit::Findings;
use testkit::configuration::{Configuration, PROVIDER_KEY};
use testkit::gateway::{
    backend_claims, exchange_form, mint_body_request, mint_request, minted, raw_part,
};
use testkit::http::{Answer, Request};
use testkit::server::Reply;
use testkit::services::http_uri_of;

const REFUSED_MINTS: &str = "impersonation_refusals_total.endpoint.subject_tokens.error";

fn mint(world: &World, user: &str, context: &Value) -> Answer {
    world.send(&mint_body_request(&json!({"userId": user, "context": context})))
}

fn by(client_id: &str) -> Request {
    let mut claims = backend_claims();
    claims["client_id"] = json!(client_id);
    let token = PROVIDER_KEY.sign(&claims);
    Request::post("/api/subject-tokens").bearer(&token).json(&json!({"userId": "u-1"}))
}

#[test]
fn required_context_and_protected_users_are_enforced() {
    let configuration = Configuration::default()
        .with("/subject_tokens/required_context", json!(["ticketId", "reason"]))
        .with("/subject_tokens/protected_users", json!(["root", "admin-*"]));
    let world = World::start(&configuration);
    let complete = json!({"ticketId": "T-1", "reason": "x"});
    let mut findings = Findings::default();
    for user in ["u-1", "roots", "admin"] {
        findings.expect(user, &mint(&world, user, &complete).status, &201);
    }
    #[rustfmt::skip]
    let cases = [
        ("u-1",      json!({}),                             "required_context"),
        ("u-1",      json!({"ticketId": "T-1"}),            "required_context"),
        ("u-1",      json!({"ticketId": "T-1", "reason": ""}), "required_context"),
        ("u-1",      json!({"ticketId": 7, "reason": "x"}), "required_context"),
        ("root",     complete.clone(),                      "protected_user"),
        ("admin-",   complete.clone(),                      "protected_user"),
        ("admin-eu", complete.clone(),                      "protected_user"),
    ];
    for (user, context, reason) in cases {
        let case = format!("{user} {context}");
        let counter = format!("{REFUSED_MINTS}.access_denied.reason.{reason}");
        let before = world.counted(&counter);
        let answer = mint(&world, user, &context);
        findings.expect(&case, &answer.refusal(), &(403, "access_denied".into()));
        findings.expect(&case, &(world.counted(&counter) - before), &1);
        let event = world.last_event();
        findings.expect(&case, &event["reason"], &json!(reason));
        findings.expect(&case, &event["user_id"], &json!(user));
    }
}

/// The filter with rules, and a lookup that says how a user is called.
fn canonical() -> World {
    let lookup =
        json!({"http_uri": http_uri_of("users", "/users/{userId}"), "user_id_member": "id"});
    World::start(
        &Configuration::default()
            .with("/subject_tokens/user_lookup", lookup)
            .with("/subject_tokens/protected_users", json!(["root"])),
    )
}

#[test]
fn the_rules_apply_to_the_gateways_name_of_a_user() {
    let world = canonical();
    world.upstream("users").answer(|asked| {
        let user = asked.target.strip_prefix("/users/").unwrap().to_lowercase();
        Reply::json(&json!({"id": user, "name": "x"}))
    });
    let answer = world.send(&mint_request("USER-42"));
    assert_eq!(world.last_event()["user_id"], "user-42");
    let answer = world.exchange(&exchange_form(&minted(&answer)));
    assert_eq!(raw_part(&answer.member("access_token"), 1)["sub"], "user-42");

    assert_eq!(world.send(&mint_request("ROOT")).refusal(), (403, "access_denied".into()));
    assert_eq!(world.last_event()["user_id"], "root");
    // An actor cannot impersonate themselves under another spelling of their name.
    let themselves = json!({"userId": "USER-42", "actorId": "user-42"});
    let answer = world.send(&mint_body_request(&themselves));
    assert_eq!(answer.refusal(), (400, "invalid_request".into()), "{answer:?}");
    assert!(answer.member("error_description").starts_with("actorId"), "{answer:?}");
}

#[test]
fn an_answer_that_names_nobody_mints_nothing() {
    let world = canonical();
    let json = |body: &str| Reply { body: body.into(), ..Reply::json(&Value::Null) };
    let long = format!(r#"{{"id": "{}"}}"#, "x".repeat(256));
    let answers = [
        Reply::status(204),
        json("{}"),
        json(r#"{"id": null}"#),
        json(r#"{"id": 42}"#),
        json(r#"{"id": ""}"#),
        json(r#"{"id": "a\nb"}"#),
        json(&long),
        json(r#"{"user": {"id": "user-42"}}"#),
        json(r#"[{"id": "user-42"}]"#),
        json(r#"{"id":"a","id":"b"}"#),
    ];
    let mut findings = Findings::default();
    for answer in answers {
        let case = String::from_utf8(answer.body.clone()).unwrap();
        world.upstream("users").answer_always(answer);
        let answer = world.send(&mint_request("user-42"));
        findings.expect(&case, &answer.refusal(), &(503, "temporarily_unavailable".into()));
        findings.expect(&case, &world.last_event()["reason"], &json!("callout_failed"));
    }
    findings.expect("minted", &world.counted("impersonation_subject_tokens_created_total"), &0);
}

#[test]
fn a_caller_mints_as_often_as_it_may() {
    let lookup = json!({"http_uri": http_uri_of("users", "/users/{userId}")});
    let world = World::start(
        &Configuration::default()
            .with("/subject_tokens/user_lookup", lookup)
            .with("/subject_tokens/max_mints_per_caller", json!({"count": 2, "per": "1800s"})),
    );
    let users = world.upstream("users");
    // A request that is refused for another reason does not count as a mint.
    users.answer_always(Reply::status(404));
    assert_eq!(world.send(&by("a")).status, 404);
    assert_eq!(world.send(&by("a").body("{}")).status, 400);

    users.answer_always(Reply::json(&json!({})));
    assert_eq!(world.send(&by("a")).status, 201);
    world.advance(600);
    assert_eq!(world.send(&by("a")).status, 201);
    let asked = users.calls();
    let answer = world.send(&by("a"));
    assert_eq!(answer.refusal(), (429, "temporarily_unavailable".into()), "{answer:?}");
    let event = world.last_event();
    assert_eq!((&event["reason"], &event["caller"]), (&json!("too_many_mints"), &json!("a")));
    let wait: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!((900..=1200).contains(&wait), "{wait}");
    assert_eq!(users.calls(), asked, "no upstream is asked for a caller that may not mint");

    assert_eq!(world.send(&by("b")).status, 201, "another caller");
    world.advance(1200);
    assert_eq!(world.send(&by("a")).status, 201, "half an hour after its first");
    world.advance(-1800);
    assert_eq!(world.send(&by("a")).status, 201, "by a clock that was set back");
}
