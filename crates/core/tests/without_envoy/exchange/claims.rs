//! Custom claims during an exchange: the function's input, and the outcome of the exchange when the
//! function denies, fails or exceeds its limits.

use impersonation_core::metrics;
use serde_json::{Value, json};

use super::flow::claims;
use super::secrecy::Watch;
use super::setting::{ExchangeForm, ISSUER, ORDERS, actor_token, configuration, mint_form};
use crate::driver::Gateway;

/// A gateway whose function has this body.
fn gateway(body: &str, on_error: &str) -> Gateway {
    let mut configuration = configuration();
    configuration["custom_claims"] = json!({
        "script": format!(
            "const getCustomJwtClaims = async ({{ token, context, environmentVariables, api }}) => {{ {body} }};"
        ),
        "environment_variables": {"REGION": "eu"},
        "on_error": on_error,
        // The time limit is long, so that a busy machine does not decide a test.
        "timeout": "1s",
    });
    Gateway::new(&configuration)
}

#[test]
fn the_function_sees_the_exchange_and_adds_to_its_token() {
    let gateway = gateway(
        "return { input: { token, context, environmentVariables }, subject: context.grant.subjectTokenContext.ticketId };",
        "refuse",
    );
    let form = ExchangeForm::new(&gateway.mint()).actor(&actor_token());
    let answer = gateway.exchange(&form);
    let claims = claims(&gateway, &answer);
    assert_eq!(claims["subject"], "T-1");
    assert_eq!(claims["sub"], "user-42");
    assert_eq!(
        claims["input"],
        json!({
            "token": {
                "iss": ISSUER, "sub": "user-42", "aud": ORDERS, "client_id": "console",
                "jti": claims["jti"], "scope": "orders:read", "act": {"sub": "agent-7"},
                "accountId": "user-42", "clientId": "console",
            },
            "context": {"grant": {
                "type": "urn:ietf:params:oauth:grant-type:token-exchange",
                "subjectTokenContext": {"ticketId": "T-1"},
            }},
            "environmentVariables": {"REGION": "eu"},
        })
    );
    assert_eq!(answer.body.as_object().unwrap().len(), 5, "the answer has no more members");
}

#[test]
fn a_denial_is_told_to_the_client_and_costs_no_token() {
    let denial = "if (token.scope === 'orders:write') api.denyAccess('ticket \"T-1\" is closed\\n'); return {};";
    let gateway = gateway(denial, "issue_without");
    let subject_token = gateway.mint();
    let answer = gateway.exchange(&ExchangeForm::new(&subject_token).set("scope", "orders:write"));
    assert_eq!((answer.status, answer.text("error")), (400, "access_denied"));
    assert!(answer.text("error_description").starts_with("ticket 'T-1' is closed"), "{answer:?}");
    assert_eq!(answer.reason(), "custom_claims_denied");
    assert_eq!(answer.event["user_id"], "user-42");
    assert!(gateway.world.counted.borrow().is_empty(), "a denial is no failure");
    gateway.assert_spendable(&subject_token, "after a denial");
}

#[test]
fn a_function_that_fails_refuses_one_exchange_or_is_done_without() {
    #[rustfmt::skip]
    let failures = [
        ("throws",            "throw new Error('broken');"),
        ("no object",         "return 'claims';"),
        ("nothing",           "return;"),
        ("a reserved claim",  "return { sub: 'root' };"),
        ("no actor of ours",  "return { act: { sub: 'nobody' } };"),
        ("never resolves",    "return new Promise(() => {});"),
        ("too deep",          "const f = () => f() + 1; return { f: f() };"),
    ];
    for (case, failure) in failures {
        let body =
            format!("if (token.scope === 'orders:write') {{ {failure} }} return {{ fine: 1 }};");
        for (on_error, status) in [("refuse", 500), ("issue_without", 200)] {
            let gateway = gateway(&body, on_error);
            let subject_token = gateway.mint();
            let form = ExchangeForm::new(&subject_token).set("scope", "orders:write");
            let answer = gateway.exchange(&form);
            assert_eq!(answer.status, status, "{case}: {answer:?}");
            assert_eq!(
                *gateway.world.counted.borrow(),
                [metrics::CUSTOM_CLAIMS_FAILURES],
                "{case}"
            );
            assert_eq!(gateway.world.warnings.borrow().len(), 1, "{case}");
            if status == 200 {
                let claims = claims(&gateway, &answer);
                assert_eq!(claims["sub"], "user-42", "{case}");
                assert_eq!(claims.get("act"), None, "{case}");
                assert_eq!(claims.as_object().unwrap().len(), 9, "{case}: {claims}");
            } else {
                assert_eq!(answer.text("error"), "server_error", "{case}");
                assert_eq!(answer.reason(), "custom_claims_failed", "{case}");
                let again = gateway.exchange(&ExchangeForm::new(&subject_token));
                assert_eq!(claims(&gateway, &again)["fine"], 1, "{case}: the next one works");
            }
        }
    }
}

/// A function that logs everything within its reach logs no secret.
#[test]
fn a_function_has_no_secret_to_tell() {
    let body = "
        const seen = new Set();
        const all = (value) => JSON.stringify(value, (name, value) =>
            typeof value === 'function' ? String(value) : value);
        console.log(all({ token, context, environmentVariables, api }));
        console.log(Object.getOwnPropertyNames(globalThis).join());
        if (token.scope === 'orders:write') throw new Error(all({ token, context }));
        return { token, context };";
    let gateway = gateway(body, "refuse");
    let mut watch = Watch::new();
    let minted = gateway.send(&mint_form().request());
    watch.look_at(&minted);
    let form = ExchangeForm::new(minted.text("subjectToken")).portal().actor(&actor_token());
    let thrown = gateway.exchange(&form.clone().set("scope", "orders:write"));
    assert_eq!(thrown.reason(), "custom_claims_failed");
    watch.look_at(&thrown);
    let granted = gateway.exchange(&form);
    let claims: Value = claims(&gateway, &granted);
    watch.look_at(&granted);
    watch.look_into(&gateway);
    assert!(gateway.world.debugged.borrow().iter().any(|line| line.contains("ticketId")));
    assert_eq!(watch.leak(), None);
    assert!(!claims.to_string().contains(minted.text("subjectToken")));
}
