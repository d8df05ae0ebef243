//! An ended impersonation stays ended while the wall clock is ahead, and after it is right again.

use serde_json::json;

use testkit::configuration::PROVIDER_KEY;
use testkit::gateway::backend_claims;
use testkit::guarded::{Begun, Guarded, Parties, operator};
use testkit::http::Request;

use super::ended::delete;

const MINUTE: i64 = 60;
const DAY: i64 = 24 * 3600;

/// Ends all impersonations of a user, with an operator's token that is valid on any of these days.
pub(super) fn revoke_user(guarded: &Guarded, user: &str) {
    let mut claims = backend_claims();
    claims["scope"] = json!("impersonations:revoke");
    claims["exp"] = json!(testkit::gateway::now() + 30 * 24 * 3600);
    let request = Request::post("/api/impersonations/revocations");
    let request = request.bearer(&PROVIDER_KEY.sign(&claims)).json(&json!({"userId": user}));
    let answer = guarded.send_to_filter(&request);
    assert_eq!(answer.status, 201, "{answer:?}");
}

fn status(guarded: &Guarded, begun: &Begun) -> u16 {
    guarded.send_as(&begun.access_token, Request::get("/orders")).status
}

#[test]
fn a_clock_that_was_ahead_makes_no_guard_forget_a_revocation() {
    let guarded = Guarded::lent(&json!({}));
    let clock = guarded.envoy.clock();
    let (ended, live) = (guarded.begin(&Parties::new()), guarded.begin(&Parties::new()));
    delete(&guarded, &format!("/api/impersonations/{}", ended.id), &operator());
    assert_eq!((status(&guarded, &ended), status(&guarded, &live)), (401, 200));
    for ahead in [90 * MINUTE, 3 * DAY, 20 * DAY] {
        clock.set(ahead);
        revoke_user(&guarded, &format!("somebody-else-{ahead}"));
        clock.set(0);
        assert_eq!((status(&guarded, &ended), status(&guarded, &live)), (401, 200), "{ahead}");
    }
}
