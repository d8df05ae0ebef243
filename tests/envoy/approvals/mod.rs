//! Two people: approvals, the user's consent and break glass, in a real Envoy.

mod hooks;
mod waiting;

use serde_json::{Value, json};

use testkit::configuration::{Configuration, ISSUER, PROVIDER_KEY, jwks};
use testkit::gateway::{BEARER, Gateway, mint_body_request, now};
use testkit::http::Request;
use testkit::server::Reply;

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

/// Mints a subject token. Returns its id and the token.
fn minted(gateway: &Gateway, members: &Value) -> (String, String) {
    let answer = gateway.send(&mint(members));
    assert_eq!(answer.status, 201, "{members}: {answer:?}");
    let id = answer.header("location").unwrap().rsplit_once('/').unwrap().1.to_owned();
    (id, answer.member("subjectToken"))
}

/// Takes a subject token back, as its caller.
fn take_back(id: &str) -> Request {
    Request::new("DELETE", &format!("/api/subject-tokens/{id}")).bearer(&BEARER)
}

/// The access token of a person with this scope.
fn person(name: &str, scope: &str) -> String {
    PROVIDER_KEY.sign(&json!({
        "iss": ISSUER, "sub": name, "client_id": "console", "aud": "people", "iat": now(),
        "exp": now() + 7200, "scope": scope,
    }))
}

fn approver(name: &str) -> String {
    person(name, "openid impersonations:approve")
}

/// The decision of an approver.
fn decision(name: &str, id: &str, choice: &str) -> Request {
    let request = Request::post(&format!("/api/approvals/{id}")).bearer(&approver(name));
    request.json(&json!({"decision": choice}))
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

#[test]
fn the_decision_point_sees_that_a_mint_breaks_the_glass_and_may_refuse_it() {
    let uri = json!({
        "uri": "http://pdp.example.com/access/v1/evaluation", "cluster": "decision_point",
        "timeout": "10s",
    });
    let gateway = Gateway::lent(&configuration().with("/authzen/http_uri", uri));
    gateway.server("decision_point").answer(|asked| {
        let question: Value = serde_json::from_slice(&asked.body).unwrap();
        Reply::json(&json!({"decision": question["context"]["breakGlass"] == json!(false)}))
    });
    for (members, status) in
        [(json!({}), 201), (json!({"breakGlass": false}), 201), (json!({"breakGlass": true}), 403)]
    {
        assert_eq!(gateway.send(&mint(&members)).status, status, "{members}");
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
    let configuration = configuration().with("/authorize_subject_token/script", script);
    let gateway = Gateway::lent(&configuration);
    let asking = |asks: Value| json!({"context": {"asks": asks}});
    for (context, plain, glass) in [
        (asking(json!({})), 201, 201),
        (asking(json!({"approvals": 0})), 201, 201),
        (asking(json!({"approvals": 1})), 201, 403),
        (asking(json!({"consent": true})), 201, 403),
        (json!({"context": {"refuses": "yes"}}), 201, 403),
    ] {
        assert_eq!(gateway.send(&mint(&context)).status, plain, "{context}");
        let mut breaking = context.clone();
        breaking["breakGlass"] = json!(true);
        let answer = gateway.send(&mint(&breaking));
        assert_eq!(answer.status, glass, "{breaking}: {answer:?}");
        if glass == 403 {
            assert_eq!(answer.refusal(), (403, "access_denied".into()), "{breaking}");
        }
    }
}
