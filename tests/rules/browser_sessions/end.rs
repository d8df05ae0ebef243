//! `POST /.impersonation/end`.

use serde_json::json;

use super::*;
use testkit::Findings;
use testkit::impersonations::{introspection, list_request};

#[test]
fn a_session_ends_by_its_own_page_as_every_impersonation_ends() {
    let world = start();
    let (session, beside) = (begin(&world), begin(&world));
    let answer = world.send(&session.end());
    assert_eq!((answer.status, answer.json()), (200, json!({"location": ENDED})), "{answer:?}");
    let taken = format!("{COOKIE}=; Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age=0");
    assert_eq!(answer.header("set-cookie"), Some(&*taken));
    assert_eq!(answer.header("clear-site-data"), Some("\"storage\", \"cache\""));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let Minted { id, parties, .. } = &session.minted;
    let event = world.last_event();
    let expected = json!({
        "event": "impersonation.revoked", "request_id": event["request_id"], "subject_token_id": id,
        "user_id": parties.user, "actor_id": parties.actor, "client_id": "support-console",
        "resource": SHOP,
    });
    assert_eq!(event, expected);

    assert_over(&world, &session, "ended");
    let again = world.send(&session.end());
    assert_eq!(again.refusal(), (401, "invalid_token".into()), "{again:?}");
    let shown = world.send(&introspection(&session.access_token));
    assert_eq!(shown.json(), json!({"active": false}), "{shown:?}");
    let listed = world.send(&list_request(&format!("?actorId={}", parties.actor))).json();
    assert_eq!(listed["impersonations"], json!([]), "{listed}");
    assert_live(&world, &beside);
}

#[test]
fn no_other_page_and_no_other_cookie_ends_a_session() {
    let world = start();
    let (session, other) = (begin(&world), begin(&world));
    let path = "/.impersonation/end";
    let by = |headers: &[(&str, &str)]| {
        let cookie = format!("{COOKIE}={}", session.access_token);
        let request = Request::post(path).header("host", &session.minted.host);
        let request = request.header("cookie", cookie);
        headers.iter().fold(request, |request, (name, value)| request.header(name, value))
    };
    let others = format!("{COOKIE}={}", other.access_token);
    let with_others = session.request_without_cookie("POST", path).header("cookie", others);
    let without = session.request_without_cookie("POST", path);
    #[rustfmt::skip]
    let cases = [
        ("nobody says whose page",  by(&[]),                                   403, "access_denied"),
        ("a sandboxed frame",       by(&[("origin", "null")]),                 403, "access_denied"),
        ("a stranger",              by(&[("sec-fetch-site", "cross-site")]),   403, "access_denied"),
        ("a sibling",               by(&[("sec-fetch-site", "same-site")]),    403, "access_denied"),
        ("the support desk",        by(&[("origin", SUPPORT_DESK)]),           403, "access_denied"),
        ("another session's token", with_others,                               401, "invalid_token"),
        ("no token",                without,                                   401, "invalid_token"),
        ("another method",          session.request("GET", path),              405, "invalid_request"),
    ];
    let mut findings = Findings::default();
    for (case, request, status, error) in cases {
        let answer = world.send(&request);
        findings.expect(case, &answer.refusal(), &(status, error.into()));
        findings.expect(case, &answer.header("set-cookie"), &None);
        findings.expect(case, &answer.header("clear-site-data"), &None);
    }
    drop(findings);
    assert_live(&world, &session);
    assert_live(&world, &other);
    let own = format!("http://{}", session.minted.host);
    assert_eq!(world.send(&by(&[("origin", &own)])).status, 200, "an old browser");
}

#[test]
fn a_session_whose_store_is_etcd_begins_and_ends_there() {
    let world = World::start(&configuration().with("/store", json!({"etcd": {"cluster": "etcd"}})));
    let session = begin(&world);
    let shown = world.send(&session.me()).json();
    assert_eq!(shown["context"], json!({"ticketId": "T-1"}), "{shown}");
    assert_eq!(world.send(&session.end()).status, 200);
    assert_over(&world, &session, "ended");
}
