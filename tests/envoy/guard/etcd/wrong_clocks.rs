//! A revocation is kept long enough in etcd and in its copies, for every configured lifetime and
//! for every wrong clock of one Envoy.

use serde_json::{Value, json};

use super::super::wrong_clocks::revoke_user;
use super::{
    api, cluster, configuration, end, start, start_without_filter, status, store,
    wait_until_it_has_ended, wait_until_it_passes,
};
use testkit::bootstrap::Filter;
use testkit::etcd::Etcd;
use testkit::guarded::{Begun, Guarded, Parties, filter_configuration, guarded_listener};
use testkit::wait_for;

/// The longest life that can be configured: a day for each of both tokens, and ten minutes.
const LONGEST: u64 = 2 * 24 * 3600 + 600;

/// Starts guard and filter before an API that answers, with a clock that can be set and these
/// lifetimes.
fn start_with_clock(etcd: &Etcd, lifetimes: [&str; 2]) -> Guarded {
    let api = api();
    let filter = filter_configuration()
        .with("/store", store())
        .with("/subject_tokens/lifetime", lifetimes[0])
        .with("/access_tokens/lifetime", lifetimes[1])
        .with("/resources/1/access_token_lifetime", lifetimes[1]);
    let listener = guarded_listener(&configuration(&json!({})));
    let bootstrap = Guarded::bootstrap_with(listener, Filter::from(&filter), api.address)
        .cluster(cluster(etcd));
    Guarded { envoy: bootstrap.workers(2).with_clock().start(), api }
}

/// Returns for how many more seconds each revocation is kept.
fn kept(etcd: &Etcd) -> Vec<u64> {
    let json = |words: &[&str]| -> Value { serde_json::from_slice(&etcd.ctl(words)).unwrap() };
    let keys = json(&["get", "--prefix", "", "-w", "json"]);
    let revocations = keys["kvs"].as_array().unwrap().iter().filter(|kv| {
        use base64::Engine as _;
        let key = base64::prelude::BASE64_STANDARD.decode(kv["key"].as_str().unwrap()).unwrap();
        let key = String::from_utf8_lossy(&key);
        key.contains("/revocations/") && !key.ends_with(".last")
    });
    let lease = |kv: &Value| format!("{:x}", kv["lease"].as_i64().unwrap());
    let ttl = |lease: String| json(&["lease", "timetolive", &lease, "-w", "json"])["ttl"].as_u64();
    revocations.map(|kv| ttl(lease(kv)).unwrap()).collect()
}

/// Does what an operator on call would do: shortens the lifetimes, then ends all impersonations.
#[test]
fn a_revocation_is_kept_for_the_longest_life_that_can_be_configured() {
    let etcd = Etcd::start();
    let before = start(&etcd, &json!({}));
    let parties = Parties::new();
    let (ended, live) = (before.begin(&parties), before.begin(&Parties::new()));
    let revoker = start_with_clock(&etcd, ["300s", "60s"]);
    let guard = start_without_filter(&etcd, &json!({}));
    for guarded in [&revoker, &guard] {
        wait_until_it_passes(guarded, &ended);
    }
    revoke_user(&revoker, &parties.user);
    for guarded in [&before, &guard] {
        wait_until_it_has_ended(guarded, &ended);
    }
    let kept = kept(&etcd);
    assert_eq!(kept.len(), 1);
    assert!(kept[0] + 60 >= LONGEST, "{kept:?}");
    // Another revocation follows a thousand seconds later.
    revoker.envoy.clock().set(1100);
    revoke_user(&revoker, "somebody-else");
    let later = start_without_filter(&etcd, &json!({}));
    for guarded in [&before, &guard, &later] {
        wait_until_it_passes(guarded, &live);
        assert_eq!(status(guarded, &ended), 401);
    }
}

/// Waits until the guard refuses the impersonation because it has ended. After its clock has been
/// set, a guard refuses every impersonation with 503 until it has asked etcd again. Before the 401,
/// the status may also be `before`: 200, or none.
fn wait_until_it_is_refused(guarded: &Guarded, begun: &Begun, before: Option<u16>) {
    wait_for("the impersonation to be refused", || match status(guarded, begun) {
        401 => Some(()),
        503 => None,
        status => {
            assert_eq!(Some(status), before);
            None
        }
    });
}

/// One of the two Envoys has a clock that is far ahead.
#[test]
fn an_envoy_whose_clock_is_ahead_makes_no_other_forget_a_revocation() {
    let etcd = Etcd::start();
    let one = start(&etcd, &json!({}));
    let other = start_with_clock(&etcd, ["600s", "3600s"]);
    let (ended, live) = (one.begin(&Parties::new()), one.begin(&Parties::new()));
    end(&one, &ended);
    wait_until_it_has_ended(&other, &ended);
    for ahead in [90 * 60, 3 * 24 * 3600] {
        other.envoy.clock().set(ahead);
        let user = format!("somebody-else-{ahead}");
        revoke_user(&other, &user);
        other.envoy.clock().set(0);
        // Once this revocation is known, all earlier ones are known, too.
        let marked = one.begin(&Parties::new());
        end(&other, &marked);
        for guarded in [&one, &other] {
            wait_until_it_is_refused(guarded, &marked, Some(200));
            wait_until_it_is_refused(guarded, &ended, None);
        }
        wait_until_it_passes(&one, &live);
    }
}
