//! Two people: approvals, the user's consent and break glass, in a real Envoy.

use serde_json::{Value, json};

use testkit::configuration::{Configuration, ISSUER, PROVIDER_KEY, jwks};
use testkit::gateway::{Gateway, mint_body_request};
use testkit::http::Request;

/// The usual configuration, with people who approve where somebody asks for it.
fn configuration() -> Configuration {
    let people = json!({
        "issuer": ISSUER, "name_prefix": "", "audiences": ["people"],
        "local_jwks": jwks(&[&PROVIDER_KEY]),
    });
    let approvals = json!({
        "authentication": {"jwt": [people]}, "required": 0, "break_glass": {},
    });
    Configuration::default().with("/approvals", approvals)
}

/// Mints a subject token with these members.
fn mint(members: &Value) -> Request {
    let mut body = json!({"userId": "u-1"});
    body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    mint_body_request(&body)
}

#[test]
fn a_mint_says_that_its_token_waits() {
    let gateway = Gateway::lent(&configuration());
    for (members, waits) in [
        (json!({"approvals": 1}), true),
        (json!({"consent": true}), true),
        (json!({"approvals": 0}), false),
        (json!({"approvals": 1, "breakGlass": true}), false),
    ] {
        let answer = gateway.send(&mint(&members));
        assert_eq!(answer.status, 201, "{members}: {answer:?}");
        let mut body = answer.json();
        let told = body.as_object_mut().unwrap().remove("approval");
        assert_eq!(told, waits.then(|| json!("pending")), "{members}");
        assert_eq!(body.as_object().unwrap().len(), 2, "{members}: {body}");
    }
}
