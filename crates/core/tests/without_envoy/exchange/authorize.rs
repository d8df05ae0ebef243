//! The operator's function that authorizes mints. Its input and its possible results are tested
//! beside the code.

use serde_json::{Value, json};

use super::callouts::{http_uri, reply};
use super::refusals::assert_refused;
use super::setting::{ExchangeForm, MintForm, ORDERS, configuration};
use crate::driver::{Answer, Gateway};

fn gateway(body: &str) -> Gateway {
    let mut configuration = configuration();
    configuration["authorize_subject_token"] = json!({
        "script": format!("const authorizeSubjectToken = async ({{ caller, userId, user, context, bounds, api }}) => {{ {body} }};"),
        "timeout": "1s",
    });
    configuration["subject_tokens"]["user_lookup"] =
        json!({"http_uri": http_uri("/users/{userId}"), "user_id_member": "id"});
    Gateway::new(&configuration)
}

fn mint(gateway: &Gateway, bounds: &Value) -> Answer {
    gateway.upstream(|_| reply(200, &json!({"id": "user-42", "roles": ["admin"]})));
    let mut body = json!({"userId": "USER-42", "context": {"ticketId": "T-1"}});
    body.as_object_mut().unwrap().extend(bounds.as_object().unwrap().clone());
    gateway.send(&MintForm::new(&body).request())
}

#[test]
fn a_denial_is_told_to_the_backend_and_mints_nothing() {
    let gateway = gateway(
        "if (user.roles.includes('admin')) api.denyAccess(`${caller.clientId} ${userId} ${context.ticketId}`);",
    );
    let answer = mint(&gateway, &json!({}));
    assert_refused(&answer, "denied", 403, "access_denied", "authorization_denied");
    assert_eq!(answer.text("error_description"), "backend user-42 T-1");
    assert_eq!(gateway.world.stored(), []);
}

#[test]
fn it_narrows_and_never_widens() {
    let gateway = gateway(
        "return { expiresIn: 300, clientId: ['console', 'desk'], scope: 'orders:read payments:read' };",
    );
    let asked = json!({"expiresIn": 60, "clientId": ["portal", "console"], "resource": ORDERS, "scope": "orders:write orders:read"});
    let answer = mint(&gateway, &asked);
    assert_eq!(answer.status, 201, "{answer:?}");
    assert_eq!(answer.body["expiresIn"], 60);
    let left = json!({
        "expiresIn": 60, "clientId": ["console"], "resource": [ORDERS], "scope": "orders:read",
    });
    assert_eq!(answer.event["bounds"], left);
    let form = ExchangeForm::new(answer.text("subjectToken"));
    assert_eq!(gateway.exchange(&form.clone().portal()).reason(), "bound_client");
    assert_eq!(gateway.exchange(&form).status, 200);

    for (asked, member) in [
        (json!({"clientId": "portal"}), "clientId"),
        (json!({"scope": "orders:write"}), "scope"),
        // Each bound can be met alone, but not both together: `console` has no access to payments.
        (json!({"clientId": "console", "scope": "orders:read orders:write"}), ""),
    ] {
        let answer = mint(&gateway, &asked);
        if member.is_empty() {
            assert_eq!(answer.status, 201, "{asked}: {answer:?}");
            continue;
        }
        assert_refused(&answer, member, 403, "access_denied", "authorization_denied");
        assert!(answer.text("error_description").starts_with(member), "{answer:?}");
    }
}

#[test]
fn a_function_that_fails_mints_nothing() {
    for body in [
        "throw new Error('secret of the script');",
        "return null;",
        "return true;",
        "return { allow: true };",
        "return { clientId: 'nobody' };",
        "return { expiresIn: 601 };",
        "return { actorId: userId };",
        "for (;;);",
    ] {
        let gateway = gateway(body);
        let answer = mint(&gateway, &json!({}));
        assert_refused(&answer, body, 500, "server_error", "authorization_failed");
        assert_eq!(
            answer.text("error_description"),
            "whether this may be minted could not be decided"
        );
        assert_eq!(gateway.world.stored(), [], "{body}");
        let warnings = gateway.world.warnings.borrow();
        assert!(warnings.last().unwrap().starts_with("authorize_subject_token: "), "{warnings:?}");
    }
}

#[test]
fn a_user_of_whom_nothing_is_said_is_null() {
    let mut configuration = configuration();
    configuration["authorize_subject_token"] = json!({
        "script": "const authorizeSubjectToken = ({ user, api }) => { if (user !== null) api.denyAccess('known'); };",
        "timeout": "1s",
    });
    let form = MintForm::new(&json!({"userId": "u"}));
    assert_eq!(Gateway::new(&configuration).send(&form.request()).status, 201, "nobody is asked");

    configuration["subject_tokens"]["user_lookup"] = json!({"http_uri": http_uri("/u/{userId}")});
    for (status, user, minted) in [(204, json!(null), 201), (200, json!({}), 403)] {
        let gateway = Gateway::new(&configuration);
        gateway.upstream(move |_| reply(status, &user));
        assert_eq!(gateway.send(&form.request()).status, minted, "{status}");
    }
}
