//! RFC 7009 and RFC 7662 at the gateway's own paths, for tokens that the filter has issued.

use serde_json::json;

use super::cancel::kept;
use super::{
    Parties, configuration, delete, event, form_request, gateway, introspection, is_active,
    operator, sent_to, start, unique,
};
use testkit::configuration::{CLIENT_SECRET, Configuration, PROVIDER_KEY};
use testkit::gateway::{Gateway, backend_claims};
use testkit::http::{Form, Request};
use testkit::keys::Key;
use testkit::wait_for;

const REVOCATION: &str = "/oidc/token/revocation";
const INTROSPECTION: &str = "/oidc/token/introspection";

fn form(token: &str) -> Form {
    Form::default().set("token", token)
}

/// A revocation by the public client that exchanges in these tests.
fn by_console(token: &str) -> Request {
    form_request(REVOCATION, &form(token).set("client_id", "support-console"))
}

#[test]
fn a_client_can_revoke_a_token_that_it_exchanged() {
    let (gateway, parties) = (gateway(), Parties::new());
    for by_subject_token in [false, true] {
        let live = parties.begin(gateway);
        let token = if by_subject_token { &live.subject_token } else { &live.access_token };
        let answer = gateway.send(&by_console(token));
        assert_eq!((answer.status, answer.text()), (200, String::new()), "{answer:?}");
        assert!(!gateway.passed_on(&answer));
        assert!(!is_active(gateway, &live.access_token));
        let line = event(gateway, "impersonation.revoked", "subject_token_id", live.id());
        assert_eq!(line["client_id"], "support-console");
    }
    let (outstanding, _) = parties.mint(gateway);
    assert_eq!(gateway.send(&by_console(&outstanding)).status, 200);
    assert_eq!(parties.exchange(gateway, &outstanding).status, 400);
}

/// A holder of old tokens from a log must not fill the table.
#[test]
fn a_token_that_has_expired_is_not_revoked() {
    let gateway = start(&configuration().with("/access_tokens/lifetime", "1s"));
    let live: Vec<_> = (0..10).map(|_| Parties::new().begin(&gateway)).collect();
    for live in &live {
        wait_for("the end of it", || (!is_active(&gateway, &live.access_token)).then_some(()));
        let answer = gateway.send(&by_console(&live.access_token));
        assert_eq!((answer.status, answer.text()), (200, String::new()), "{answer:?}");
        event(&gateway, "impersonation.revocation_ignored", "subject_token_id", live.id());
    }
    assert_eq!(kept(&gateway), 1, "the operator's");
}

#[test]
fn a_live_token_that_is_revoked_a_thousand_times_is_revoked_once() {
    let gateway = start(&configuration());
    let live = Parties::new().begin(&gateway);
    let mut connection = gateway.connect();
    for _ in 0..1000 {
        assert_eq!(connection.send(&by_console(&live.access_token)).status, 200);
    }
    assert!(!is_active(&gateway, &live.access_token));
    let metric = |name: &str| gateway.envoy.metric(name);
    assert_eq!(metric("impersonation_revocations_total"), Some(1));
    assert_eq!(metric("impersonation_revocations_ignored_total"), Some(999));
}

#[test]
fn a_client_cannot_revoke_anothers_token_and_gets_the_same_answer() {
    let (gateway, parties) = (gateway(), Parties::new());
    let live = parties.begin_by_portal(gateway);
    for token in [&live.access_token, &live.subject_token, "sub_x"] {
        let answer = gateway.send(&by_console(token));
        assert_eq!((answer.status, answer.text()), (200, String::new()), "{answer:?}");
    }
    assert!(is_active(gateway, &live.access_token));
    event(gateway, "impersonation.revocation_ignored", "subject_token_id", live.id());
    let right =
        form_request(REVOCATION, &form(&live.access_token)).basic("support-portal", &CLIENT_SECRET);
    assert_eq!(gateway.send(&right).status, 200);
    assert!(!is_active(gateway, &live.access_token));
}

#[test]
fn an_unauthenticated_caller_revokes_and_learns_nothing() {
    let (gateway, parties) = (gateway(), Parties::new());
    let live = parties.begin_by_portal(gateway);
    for path in [REVOCATION, INTROSPECTION] {
        let form = form(&live.access_token);
        for request in [
            form_request(path, &form).basic("support-portal", "wrong"),
            form_request(path, &form).basic("nobody", &CLIENT_SECRET),
            form_request(path, &form.clone().set("client_id", "support-portal")),
        ] {
            let answer = gateway.send(&request);
            assert_eq!(answer.refusal(), (401, "invalid_client".into()), "{path}");
            assert!(answer.header("www-authenticate").unwrap().starts_with("Basic "));
        }
        let answer = gateway.send(&form_request(path, &form.add("token", "other")));
        assert_eq!(answer.refusal(), (400, "invalid_request".into()), "twice");
        let long = form_request(path, &Form::default().set("pad", &"x".repeat(70_000)));
        assert_eq!(gateway.send(&long).refusal(), (413, "invalid_request".into()));
    }
    let public = form(&live.access_token).set("client_id", "support-console");
    let answer = gateway.send(&form_request(INTROSPECTION, &public));
    assert_eq!(answer.refusal(), (401, "invalid_client".into()), "a public client");
    assert!(is_active(gateway, &live.access_token));
}

#[test]
fn introspection_repeats_the_claims_until_the_impersonation_has_ended() {
    let (gateway, parties) = (gateway(), Parties::new());
    let live = parties.begin(gateway);
    let answer = gateway.send(&introspection(&live.access_token));
    assert_eq!((answer.status, answer.header("cache-control")), (200, Some("no-store")));
    let mut expected = live.claims.clone();
    expected["active"] = json!(true);
    assert_eq!(answer.json(), expected);
    assert_eq!(answer.json()["act"], json!({"sub": parties.actor}));
    assert!(!gateway.passed_on(&answer));
    let ended = delete(&format!("/api/impersonations/{}", live.id()));
    assert_eq!(gateway.send(&ended.bearer(&operator("impersonations:revoke"))).status, 204);
    assert_eq!(gateway.send(&introspection(&live.access_token)).json(), json!({"active": false}));
    event(gateway, "token.introspected", "subject_token_id", live.id());
}

/// An API may get another type of token while tokens of the former type are live.
#[test]
fn a_token_of_either_type_is_introspected_and_revoked() {
    let of_type = |name: &str| configuration().with("/access_tokens/typ", name);
    let gateway = start(&of_type("JWT"));
    for name in ["at+jwt", "JWT"] {
        let live = [Parties::new().begin(&gateway), Parties::new().begin(&gateway)];
        gateway.update(&of_type(name)).unwrap();
        for live in live {
            assert!(is_active(&gateway, &live.access_token), "{name}");
            assert_eq!(gateway.send(&by_console(&live.access_token)).status, 200, "{name}");
            assert!(!is_active(&gateway, &live.access_token), "{name}");
        }
    }
}

#[test]
fn a_subject_token_is_never_active_and_never_sent_to_the_gateway() {
    let (gateway, parties) = (gateway(), Parties::new());
    let (token, _) = parties.mint(gateway);
    for path in [REVOCATION, INTROSPECTION] {
        for name in ["token", "%74oken"] {
            for body in [
                format!("{name}={token}"),
                format!("{name}=x&{name}={token}"),
                format!("\u{feff}{name}={token}"),
                format!("{name}=%73ub%5F{}%", &token[4..]),
            ] {
                let request = Request::post(path)
                    .header("content-type", "application/x-www-form-urlencoded")
                    .body(body.clone());
                let answer = gateway.send(&request);
                assert!(!gateway.passed_on(&answer), "{body}");
                assert!((400..500).contains(&answer.status), "{body}: {answer:?}");
            }
        }
    }
    assert_eq!(gateway.send(&introspection(&token)).json(), json!({"active": false}));
    assert_eq!(parties.exchange(gateway, &token).status, 200);
}

#[test]
fn a_foreign_token_passes_to_the_gateway_byte_for_byte() {
    let gateway = gateway();
    let forged = Key::generate(jsonwebtoken::Algorithm::EdDSA, "gateway-1").sign(&backend_claims());
    let provider = PROVIDER_KEY.sign(&backend_claims());
    for path in [REVOCATION, INTROSPECTION] {
        for body in [
            format!("token={provider}&token_type_hint=access_token"),
            format!("token={forged}"),
            format!("token=opaque-{}&client_id=x", unique("t")),
            "token=%zz&&=%".to_owned(),
            "no=token".to_owned(),
            String::new(),
        ] {
            let request = Request::post(path)
                .header("content-type", "application/x-www-form-urlencoded")
                .basic("somebody", "else")
                .body(body.clone());
            let answer = gateway.send(&request);
            let received = gateway.upstream.received_for(&answer).expect(&body);
            assert_eq!((received.target, received.body), (sent_to(path), body.into_bytes()));
        }
        let answer = gateway.send(&Request::post(path).json(&json!({"token": "sub_x"})));
        assert!(gateway.passed_on(&answer), "no form");
        assert!(gateway.passed_on(&gateway.send(&Request::get(path))), "no POST");
    }
}

#[test]
fn a_token_of_another_service_is_foreign() {
    let other =
        Gateway::start(&Configuration::default().with("/issuer", "https://other.example.com"));
    let live = Parties::new().begin(gateway());
    let answer = other.send(&introspection(&live.access_token));
    assert!(other.passed_on(&answer), "{answer:?}");
}
