//! Ended impersonations: once a revocation was answered, no worker lets another request of the
//! impersonation pass.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use serde_json::json;

use testkit::configuration::ORDERS;
use testkit::guarded::{Begun, Guarded, Parties, operator, ordinary_token};
use testkit::http::{Connection, Form, Request};

const WORKERS: u32 = 4;
/// The number of requests after the answer, for each kind of end. `REQUESTS_AFTER_AN_END` sets
/// another: every version of Envoy runs all kinds, with fewer requests.
pub(super) static REQUESTS: LazyLock<u32> = LazyLock::new(|| {
    std::env::var("REQUESTS_AFTER_AN_END").map_or(10_000, |number| number.parse().unwrap())
});

/// A way to end an impersonation.
pub(super) type End = fn(&Guarded, &Parties, &Begun);

pub(super) fn delete(guarded: &Guarded, path: &str, bearer: &str) {
    let answer = guarded.send_to_filter(&Request::new("DELETE", path).bearer(bearer));
    assert_eq!(answer.status, 204, "{answer:?}");
}

pub(super) const KINDS: [(&str, End); 10] = [
    ("its id", |guarded, _, begun| {
        delete(guarded, &format!("/api/impersonations/{}", begun.id), &operator());
    }),
    ("its subject token", |guarded, _, begun| {
        delete(guarded, &format!("/api/subject-tokens/{}", begun.id), &begun.backend);
    }),
    ("its access token", |guarded, _, begun| {
        let form = Form::default()
            .set("token", &begun.access_token)
            .set("client_id", "support-console")
            .encode();
        let request = Request::post("/oidc/token/revocation")
            .header("content-type", "application/x-www-form-urlencoded")
            .body(form);
        assert_eq!(guarded.send_to_filter(&request).status, 200);
    }),
    ("its user", |guarded, parties, _| guarded.revoke(&json!({"userId": parties.user}))),
    ("its actor", |guarded, parties, _| guarded.revoke(&json!({"actorId": parties.actor}))),
    ("its caller", |guarded, parties, _| guarded.revoke(&json!({"caller": parties.caller}))),
    ("several of them", |guarded, parties, _| {
        guarded.revoke(
            &json!({"userId": parties.user, "clientId": "support-console", "resource": ORDERS}),
        );
    }),
    ("its client", |guarded, _, _| guarded.revoke(&json!({"clientId": "support-console"}))),
    ("its resource", |guarded, _, _| guarded.revoke(&json!({"resource": ORDERS}))),
    ("everyone", |guarded, _, _| guarded.revoke(&json!({"all": true}))),
];

/// The first kinds end one impersonation and no other. This is their number.
pub(super) const OF_ONE: usize = 7;

#[test]
fn once_a_revocation_was_answered_no_request_passes_on_any_worker() {
    let guarded = Guarded::start_with_workers(&json!({}), WORKERS);
    for (index, (kind, end)) in KINDS.into_iter().enumerate() {
        let (parties, others) = (Parties::new(), Parties::new());
        let (begun, other) = (guarded.begin(&parties), guarded.begin(&others));
        let request = Request::get("/orders").bearer(&begun.access_token);
        let connections = guarded.envoy.connect_to_every_worker();
        let (answered, after, passed) =
            (AtomicBool::new(false), AtomicU32::new(0), AtomicU32::new(0));
        let load = |mut connection: Connection| {
            while after.load(Ordering::SeqCst) < *REQUESTS {
                let is_after = answered.load(Ordering::SeqCst);
                let status = connection.send(&request).status;
                if is_after {
                    after.fetch_add(1, Ordering::SeqCst);
                    passed.fetch_add(u32::from(status != 401), Ordering::SeqCst);
                }
                assert!(matches!(status, 200 | 401), "{kind}: {status}");
            }
        };
        thread::scope(|scope| {
            assert!(connections.len() >= WORKERS as usize);
            for connection in connections {
                scope.spawn(|| load(connection));
            }
            // The impersonation is in use while it is ended.
            let calls = guarded.api.calls();
            testkit::wait_for("the load", || (guarded.api.calls() > calls + 100).then_some(()));
            end(&guarded, &parties, &begun);
            answered.store(true, Ordering::SeqCst);
        });
        let (passed, after) = (passed.into_inner(), after.into_inner());
        assert_eq!(passed, 0, "{kind}: of {after} requests");
        let goes_on = guarded.send_as(&other.access_token, Request::get("/orders")).status;
        assert_eq!(goes_on, if index < OF_ONE { 200 } else { 401 }, "{kind}: another's");
        assert_eq!(guarded.send_as(&ordinary_token(), Request::post("/orders")).status, 200);
    }
    // An impersonation that begins after all of that is live.
    let begun = testkit::wait_for("a later impersonation", || {
        let begun = guarded.begin(&Parties::new());
        let answer = guarded.send_as(&begun.access_token, Request::get("/orders"));
        (answer.status == 200).then_some(begun)
    });
    assert!(!begun.id.is_empty());
}
