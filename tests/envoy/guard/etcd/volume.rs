//! An Envoy that starts later learns every revocation in etcd, whatever else was written there.

use serde_json::json;

use super::{
    end, start, start_without_filter, status, wait_until_it_has_ended, wait_until_it_passes,
};
use testkit::etcd::Etcd;
use testkit::guarded::connect;
use testkit::guarded::{Guarded, Parties, operator};
use testkit::http::{Connection, Request};

/// Returns a name of the most characters, each of the most bytes.
fn longest(number: usize) -> String {
    let name = format!("{number:04}");
    format!("{name}{}", "\u{1f600}".repeat(255 - name.len()))
}

fn revoke_with_longest_names(connection: &mut Connection, number: usize) {
    let name = longest(number);
    let body = json!({
        "userId": name, "actorId": name, "clientId": name, "caller": name, "resource": name,
    });
    let request = Request::post("/api/impersonations/revocations").bearer(&operator());
    let answer = connection.send(&request.json(&body));
    assert_eq!(answer.status, 201, "{answer:?}");
}

/// Checks that the guard learns both that one impersonation has ended and that another has not.
fn assert_learns(etcd: &Etcd, one: &Guarded) {
    let (ended, live) = (one.begin(&Parties::new()), one.begin(&Parties::new()));
    end(one, &ended);
    let later = start_without_filter(etcd, &json!({}));
    wait_until_it_passes(&later, &live);
    assert_eq!(status(&later, &ended), 401);
    let (begun, again) = (one.begin(&Parties::new()), start(etcd, &json!({})));
    end(&again, &begun);
    wait_until_it_has_ended(&later, &begun);
}

#[test]
fn an_envoy_that_starts_later_learns_a_thousand_revocations_with_the_longest_names() {
    let etcd = Etcd::start();
    let one = start(&etcd, &json!({}));
    let mut connection = connect(&one.envoy, "gateway");
    (0..1000).for_each(|number| revoke_with_longest_names(&mut connection, number));
    assert_learns(&etcd, &one);
}

/// Other programs may write there, too: hundreds of values of 60 kB, which are too many for one
/// answer.
#[test]
fn long_foreign_values_in_etcd_hold_up_no_envoy() {
    const MANY: usize = 300;
    let etcd = Etcd::start();
    let one = start(&etcd, &json!({}));
    one.revoke(&json!({"userId": "somebody"}));
    let is_revocation = |key: &String| key.contains("/revocations/") && !key.ends_with(".last");
    let folder = etcd.keys().into_iter().find(is_revocation).unwrap();
    let folder = folder[..=folder.rfind('/').unwrap()].to_owned();
    let value = "x".repeat(60_000);
    for number in 0..MANY {
        etcd.ctl(&["put", &format!("{folder}zz{number:04}"), &value]);
    }
    one.revoke(&json!({"userId": "somebody-else"}));
    let later = start_without_filter(&etcd, &json!({}));
    // An unreadable value may end any impersonation that began before it. This one begins later.
    let live = one.begin(&Parties::new());
    wait_until_it_passes(&later, &live);
    end(&one, &live);
    wait_until_it_has_ended(&later, &live);
}
