//! Requests that bring no event, and how each endpoint refuses them.

use serde_json::json;

use super::{Findings, Live, start};
use testkit::events::{
    AUTHORIZATION, EVENT_TYPE, EVENTS_PATH, LOGOUT_PATH, event_request, logout_claims,
    logout_request, session_revoked, sign,
};
use testkit::gateway::IDENTITY_GATEWAY;
use testkit::http::{Form, Request};

const FORM: &str = "application/x-www-form-urlencoded";

#[test]
fn a_request_that_brings_no_event_is_refused_in_the_form_of_its_endpoint() {
    let world = start();
    let live = Live::begin(&world);
    let event = session_revoked(&live.actor);
    let logout = sign("logout+jwt", &logout_claims(&live.sid));
    let form = Form::default().set("logout_token", &logout).encode();
    let post = |path: &str, r#type: &str| {
        let request = Request::post(path).header("authorization", AUTHORIZATION);
        if r#type.is_empty() { request } else { request.header("content-type", r#type) }
    };
    let event_as = |r#type: &str| post(EVENTS_PATH, r#type).body(event.clone());
    let form_as = |r#type: &str| post(LOGOUT_PATH, r#type).body(form.clone());
    let authorized = |authorization: &str| {
        let request = Request::post(EVENTS_PATH).header("content-type", EVENT_TYPE);
        request.header("authorization", authorization).body(event.clone())
    };
    let unauthorized =
        Request::post(EVENTS_PATH).header("content-type", EVENT_TYPE).body(event.clone());
    let long = "x".repeat(65 * 1024);
    #[rustfmt::skip]
    let rows = [
        ("no content type",          event_as(""),                                           415, "invalid_request"),
        ("application/jwt",          event_as("application/jwt"),                            415, "invalid_request"),
        ("application/json",         event_as("application/json"),                           415, "invalid_request"),
        ("a form",                   event_as(FORM),                                         415, "invalid_request"),
        ("too long",                 post(EVENTS_PATH, EVENT_TYPE).body(long.clone()),       413, "invalid_request"),
        ("not UTF-8",                post(EVENTS_PATH, EVENT_TYPE).body(vec![0xff, 0xfe]),   400, "invalid_request"),
        ("no body",                  post(EVENTS_PATH, EVENT_TYPE),                          400, "invalid_request"),
        ("a form's body",            post(EVENTS_PATH, EVENT_TYPE).body(form.clone()),       400, "invalid_request"),
        ("no authorization",         unauthorized,                                           401, "authentication_failed"),
        ("another authorization",    authorized("Bearer other"),                             401, "authentication_failed"),
        ("another case",             authorized(&AUTHORIZATION.to_lowercase()),              401, "authentication_failed"),
        ("its digest",               authorized(&testkit::configuration::sha256_hex(AUTHORIZATION)), 401, "authentication_failed"),
        ("logout: no content type",  form_as(""),                                            415, "invalid_request"),
        ("logout: application/json", form_as("application/json"),                            415, "invalid_request"),
        ("logout: secevent+jwt",     form_as(EVENT_TYPE),                                    415, "invalid_request"),
        ("logout: too long",         post(LOGOUT_PATH, FORM).body(format!("logout_token={long}")), 413, "invalid_request"),
        ("logout: no body",          post(LOGOUT_PATH, FORM),                                400, "invalid_request"),
        ("logout: no parameter",     post(LOGOUT_PATH, FORM).body("token=x"),                400, "invalid_request"),
        ("logout: an empty one",     post(LOGOUT_PATH, FORM).body("logout_token="),          400, "invalid_request"),
        ("logout: two of it",        post(LOGOUT_PATH, FORM).body(format!("{form}&{form}")), 400, "invalid_request"),
        ("logout: broken encoding",  post(LOGOUT_PATH, FORM).body("logout_token=%zz"),       400, "invalid_request"),
        ("logout: in the query",     post(&format!("{LOGOUT_PATH}?{form}"), FORM),           400, "invalid_request"),
    ];
    let mut findings = Findings::default();
    for (case, request, status, error) in rows {
        let answer = world.send(&request);
        let (name, text) = match request.target.starts_with(EVENTS_PATH) {
            true => ("err", "description"),
            false => ("error", "error_description"),
        };
        findings.expect(case, &answer.status, &status);
        findings.expect(case, &answer.json()[name], &json!(error));
        findings.expect(case, &answer.json()[text].is_string(), &true);
        let challenged = answer.header("www-authenticate").is_some();
        findings.expect(format!("{case}: a challenge"), &challenged, &(status == 401));
    }
    for (path, name) in [(EVENTS_PATH, "err"), (LOGOUT_PATH, "error")] {
        for method in ["GET", "HEAD", "PUT", "PATCH", "DELETE"] {
            let answer = world.send(&Request::new(method, path));
            let case = format!("{method} {path}");
            findings.expect(&case, &answer.status, &405);
            findings.expect(&case, &answer.header("allow"), &Some("POST"));
            if method != "HEAD" {
                findings.expect(&case, &answer.json()[name], &json!("invalid_request"));
            }
        }
    }
    assert!(!live.has_ended(&world), "a refused request ends nothing");

    // The same event and the same logout token are good.
    let charset = form_as(&format!("{FORM}; charset=UTF-8"));
    findings.expect("with a charset", &world.send(&charset).status, &200);
    assert!(live.has_ended(&world));
    let answer = world.send(&event_request(&event));
    findings.expect("the event", &answer.status, &202);
    // A preflight is for Envoy's CORS filter, and other paths are the gateway's.
    for (case, request) in [
        ("a preflight", Request::new("OPTIONS", EVENTS_PATH)),
        ("a slash more", Request::post(&format!("{EVENTS_PATH}/")).body("x")),
        (
            "another case",
            Request { target: "/oidc/Backchannel-Logout".to_owned(), ..logout_request(&logout) },
        ),
    ] {
        let answer = world.send(&request);
        let passed_on = world.upstream(IDENTITY_GATEWAY).received_for(&answer).is_some();
        findings.expect(case, &passed_on, &true);
    }
}
