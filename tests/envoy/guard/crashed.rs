//! A VM of the guard or of the filter crashes: revocations stay, and nothing else ends.

use serde_json::json;

use testkit::artifacts::{GUARD, MODULE};
use testkit::bootstrap::Filter;
use testkit::guarded::{
    API, Begun, Guarded, Parties, api_listener, connect, filter_configuration, for_impersonations,
    guard, guard_configuration, operator,
};
use testkit::http::Request;
use testkit::server::{Server, as_asked};
use testkit::trap::{springing_it, with_trap_for_many_headers};
use testkit::wait_for;

use super::ended::delete;

#[test]
fn a_crash_of_guard_or_filter_keeps_revocations_and_live_impersonations() {
    let mut guard = guard(&guard_configuration(&json!({})));
    guard.module = Some(with_trap_for_many_headers(&GUARD));
    let mut filter = Filter::from(&filter_configuration());
    filter.module = Some(with_trap_for_many_headers(&MODULE));
    let api = Server::start(API);
    api.answer(as_asked);
    let listener = api_listener("guarded", [for_impersonations(guard)]);
    let envoy = Guarded::bootstrap_with(listener, filter, api.address).workers(2).start();
    let guarded = Guarded { envoy, api };
    let [ended, live] = [(); 2].map(|()| guarded.begin(&Parties::new()));
    delete(&guarded, &format!("/api/impersonations/{}", ended.id), &operator());
    let status = |begun: &Begun| {
        // A VM that is being made anew gives no other answer.
        wait_for("the VM to be back", || {
            let request = Request::get("/orders");
            let status = guarded.send_as(&begun.access_token, request).status;
            (status != 503).then_some(status)
        })
    };
    assert_eq!((status(&ended), status(&live)), (401, 200));
    for round in 0..2 {
        for connection in &mut guarded.envoy.connect_to_every_worker() {
            let request = springing_it(Request::get("/orders")).bearer(&live.access_token);
            assert_eq!(connection.send(&request).status, 503, "{round}");
        }
        assert_eq!((status(&ended), status(&live)), (401, 200), "{round}: the guard");

        let crash = springing_it(Request::get("/api/impersonations"));
        for _ in 0..16 {
            assert_eq!(connect(&guarded.envoy, "gateway").send(&crash).status, 503, "{round}");
        }
        wait_for("the filter to be back", || {
            (guarded.send_to_filter(&Request::get("/oidc/jwks")).status == 200).then_some(())
        });
        assert_eq!((status(&ended), status(&live)), (401, 200), "{round}: the filter");
    }
    // Both work as before.
    wait_for("the filter of every worker to be back", || {
        let path = format!("/api/impersonations/{}", live.id);
        let answer = guarded.send_to_filter(&Request::new("DELETE", &path).bearer(&operator()));
        (answer.status == 204).then_some(())
    });
    assert_eq!(status(&live), 401);
}
