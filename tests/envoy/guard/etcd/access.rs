//! What a guard that stands elsewhere needs of etcd: to read below the prefix.

use serde_json::json;

use super::{api, assert_ordinary_users_go_on, with_cluster};
use crate::etcd::access::{cluster, let_in, secured};
use testkit::guarded::{Guarded, claims, token};
use testkit::http::Request;
use testkit::wait_for;

#[test]
fn a_role_that_may_read_the_prefix_is_enough_for_a_guard_and_nothing_less() {
    let (etcd, authority) = secured();
    let_in(&etcd, "guard", "read");
    let [reads, refused] = ["guard", "stranger"].map(|user| {
        let cluster = cluster(&etcd, &authority, Some(&authority.issue(user)));
        let api = api();
        let envoy = with_cluster(cluster, &json!({}), api.address).start();
        Guarded { envoy, api }
    });
    let status =
        |guarded: &Guarded| guarded.send_as(&token(&claims()), Request::get("/orders")).status;
    wait_for("the guard to hear of etcd", || (status(&reads) == 200).then_some(()));
    wait_for("the log to say why", || {
        let because = "etcd does not allow it, see its users and roles: gRPC status 7";
        refused.envoy.log().contains(because).then_some(())
    });
    assert_eq!(status(&refused), 503);
    assert_ordinary_users_go_on(&refused);
}
