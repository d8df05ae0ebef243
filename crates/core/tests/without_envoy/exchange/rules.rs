//! The operator's rules: mints that are refused for every caller.

use std::time::Duration;

use impersonation_core::step::Reply;
use serde_json::{Value, json};

use super::callouts::{http_uri, reply};
use super::flow::claims;
use super::refusals::assert_refused;
use super::setting::{
    ExchangeForm, MintForm, PROVIDER_KEY, backend_claims, configuration, configured, mint_form,
    with,
};
use crate::driver::Gateway;

fn for_user(user_id: &str) -> MintForm {
    MintForm::new(&json!({"userId": user_id}))
}

#[test]
fn a_mint_must_give_the_account_that_is_asked_for() {
    let gateway = Gateway::new(&configured(
        "/subject_tokens/required_context",
        json!(["ticketId", "reason"]),
    ));
    for context in [json!({}), json!({"ticketId": "T-1"}), json!({"ticketId": "T-1", "reason": ""})]
    {
        let answer =
            gateway.send(&MintForm::new(&json!({"userId": "u", "context": context})).request());
        assert_refused(&answer, &context.to_string(), 403, "access_denied", "required_context");
    }
    let context = json!({"ticketId": "T-1", "reason": "x"});
    let answer =
        gateway.send(&MintForm::new(&json!({"userId": "u", "context": context})).request());
    assert_eq!(answer.status, 201, "{answer:?}");
}

#[test]
fn a_mint_for_a_protected_user_is_refused() {
    let gateway =
        Gateway::new(&configured("/subject_tokens/protected_users", json!(["root", "admin-*"])));
    for user_id in ["root", "admin-", "admin-eu"] {
        let answer = gateway.send(&for_user(user_id).request());
        assert_refused(&answer, user_id, 403, "access_denied", "protected_user");
        assert_eq!(answer.event["user_id"], user_id);
    }
    for user_id in ["roots", "admin", "user-42"] {
        assert_eq!(gateway.send(&for_user(user_id).request()).status, 201, "{user_id}");
    }
}

fn looked_up(answer: Value) -> impl Fn(&Gateway) {
    move |gateway| {
        let answer = answer.clone();
        gateway.upstream(move |_| reply(200, &answer));
    }
}

fn canonical() -> Value {
    let lookup = json!({"http_uri": http_uri("/api/users/{userId}"), "user_id_member": "id"});
    let mut configuration = configured("/subject_tokens/user_lookup", lookup);
    configuration["subject_tokens"]["protected_users"] = json!(["admin-*"]);
    configuration
}

#[test]
fn a_user_is_called_as_the_gateway_calls_them() {
    let gateway = Gateway::new(&canonical());
    looked_up(json!({"id": "user-42", "name": "x"}))(&gateway);
    let minted = gateway.send(&for_user("USER-42").request());
    assert_eq!((minted.status, &minted.event["user_id"]), (201, &json!("user-42")));
    let answer = gateway.exchange(&ExchangeForm::new(minted.text("subjectToken")));
    assert_eq!(claims(&gateway, &answer)["sub"], "user-42");

    // Rules and bounds apply to the id in the user's record, not to the requested one.
    looked_up(json!({"id": "admin-1"}))(&gateway);
    let answer = gateway.send(&for_user("Admin-1").request());
    assert_refused(&answer, "protected", 403, "access_denied", "protected_user");
    assert_eq!(answer.event["user_id"], "admin-1");
    looked_up(json!({"id": "agent-7"}))(&gateway);
    let bounded = MintForm::new(&json!({"userId": "Agent-7", "actorId": "agent-7"}));
    assert_refused(&gateway.send(&bounded.request()), "self", 400, "invalid_request", "bounds");
}

#[test]
fn an_answer_that_names_nobody_mints_nothing() {
    let answers = [
        reply(204, &json!(null)),
        reply(200, &json!({})),
        reply(200, &json!({"id": null})),
        reply(200, &json!({"id": 42})),
        reply(200, &json!({"id": ""})),
        reply(200, &json!({"id": "a\nb"})),
        reply(200, &json!({"id": "x".repeat(256)})),
        reply(200, &json!({"user": {"id": "user-42"}})),
        reply(200, &json!([{"id": "user-42"}])),
        Reply::Http { status: 200, json: true, body: b"{\"id\":\"a\",\"id\":\"b\"}".to_vec() },
    ];
    for answer in answers {
        let gateway = Gateway::new(&canonical());
        let case = format!("{answer:?}");
        gateway.upstream(move |_| answer.clone());
        let answer = gateway.send(&for_user("user-42").request());
        assert_refused(&answer, &case, 503, "temporarily_unavailable", "callout_failed");
        assert_eq!(gateway.world.stored(), [], "{case}");
    }
}

fn by(client_id: &str) -> MintForm {
    mint_form().bearer(&PROVIDER_KEY.sign(&with(backend_claims(), "client_id", client_id)))
}

#[test]
fn a_caller_mints_as_often_as_it_may() {
    let mut configuration = configuration();
    configuration["subject_tokens"]["max_mints_per_caller"] = json!({"count": 2, "per": "60s"});
    configuration["subject_tokens"]["user_lookup"] = json!({"http_uri": http_uri("/u/{userId}")});
    configuration["store"]["shared_data"]["capacity"] = json!(100);
    let gateway = Gateway::new(&configuration);
    let other = Gateway::in_world(&gateway.world, &configuration);
    let found = looked_up(json!({}));
    let mint = |gateway: &Gateway, form: &MintForm| {
        found(gateway);
        gateway.send(&form.request())
    };
    // A request that is refused for another reason does not count as a mint.
    gateway.upstream(|_| reply(404, &json!({})));
    assert_eq!(gateway.send(&by("a").request()).status, 404);
    assert_eq!(gateway.send(&by("a").body("{}").request()).status, 400);

    assert_eq!(mint(&gateway, &by("a")).status, 201);
    gateway.world.advance(Duration::from_millis(10_500));
    assert_eq!(mint(&other, &by("a")).status, 201, "at another worker");
    for gateway in [&gateway, &other] {
        // The filter asks no upstream for a caller that may not mint.
        let answer = gateway.send(&by("a").request());
        assert_refused(&answer, "too many", 429, "temporarily_unavailable", "too_many_mints");
        assert_eq!(answer.header("retry-after"), Some("50"));
        assert_eq!(answer.event["caller"], "a");
    }
    assert_eq!(mint(&gateway, &by("b")).status, 201, "another caller");
    gateway.world.advance(Duration::from_millis(49_500));
    assert_eq!(mint(&gateway, &by("a")).status, 201, "later");
    gateway.world.set_back(Duration::from_secs(3600));
    assert_eq!(mint(&gateway, &by("a")).status, 201, "by a clock that was set back");
}

#[test]
fn without_a_count_nothing_is_minted() {
    let gateway = Gateway::new(&configured(
        "/subject_tokens/max_mints_per_caller",
        json!({"count": 2, "per": "60s"}),
    ));
    for answered in 0..3 {
        gateway.world.fail_shared_data(answered);
        let answer = gateway.send(&mint_form().request());
        assert_refused(&answer, "failed", 503, "temporarily_unavailable", "host_failed");
        assert!(gateway.world.heal());
    }
}
