//! etcd cannot be reached: after `max_staleness` the guard does not know what was revoked, and no
//! impersonation passes until etcd is back.

use serde_json::json;

use super::super::streams::drain;
use super::{
    assert_ordinary_users_go_on, end, get, start, start_with_clock, start_without_filter, status,
    token_of_etcd, wait_until_it_has_ended, wait_until_it_passes, without_filter,
};
use testkit::etcd::Etcd;
use testkit::guarded::{Begun, Parties, ordinary_token};
use testkit::http::{Connection, Request};
use testkit::streaming;
use testkit::wait_for;

const AGE: &str = "impersonation_guard_revocations_age_seconds";

#[test]
fn without_etcd_only_impersonations_are_refused_and_only_after_max_staleness() {
    let etcd = Etcd::start();
    let guarded = start_with_clock(&etcd, &json!({"max_staleness": "10m"}));
    let [ended, live] = [(); 2].map(|()| guarded.begin(&Parties::new()));
    end(&guarded, &ended);
    assert_eq!(status(&guarded, &ended), 401);
    for (gone, ahead) in [("stopped", 601), ("killed", 1202)] {
        if gone == "stopped" {
            etcd.stop();
        } else {
            etcd.kill();
        }
        assert_eq!(status(&guarded, &live), 200, "{gone}");
        guarded.envoy.clock().set(ahead);
        let answer = wait_for("the revocations to be stale", || {
            let answer = get(&guarded, &live);
            assert!(matches!(answer.status, 200 | 503), "{gone}: {answer:?}");
            assert_ordinary_users_go_on(&guarded);
            (answer.status == 503).then_some(answer)
        });
        assert_eq!(answer.refusal(), (503, "temporarily_unavailable".into()), "{gone}");
        assert_eq!(answer.header("retry-after"), Some("1"), "{gone}");
        assert!(!guarded.reached(&answer), "{gone}");
        // The rule holds on every worker.
        for connection in &mut guarded.envoy.connect_to_every_worker() {
            let request = |token: &str| Request::get("/orders").bearer(token);
            assert_eq!(connection.send(&request(&live.access_token)).status, 503, "{gone}");
            assert_eq!(connection.send(&request(&ordinary_token())).status, 200, "{gone}");
        }
        wait_for("the age to be told", || (guarded.envoy.metric(AGE) >= Some(600)).then_some(()));
        if gone == "stopped" {
            etcd.go_on();
        } else {
            etcd.restart();
        }
        wait_until_it_passes(&guarded, &live);
        assert_eq!(status(&guarded, &ended), 401, "{gone}: an ended impersonation");
        wait_for("the age to be small", || (guarded.envoy.metric(AGE) < Some(600)).then_some(()));
    }
    let refused = "impersonation_guard_refusals_total.reason.revocations_stale";
    assert!(guarded.envoy.metric(refused) >= Some(4));
    let log = guarded.envoy.log();
    assert!(log.contains("\"reason\":\"revocations_stale\""));
    // Each VM logs each kind of failure once a minute, not for each request or poll.
    let complaints = log.lines().filter(|line| line.contains("etcd does not answer")).count();
    assert!((1..20).contains(&complaints), "{complaints}");
}

/// A stream that was let through before must not stay longer than a new one could.
#[test]
fn impersonated_streams_end_after_max_staleness_and_ordinary_ones_continue() {
    let etcd = Etcd::start();
    let members = json!({"max_staleness": "10m", "default": "allow"});
    let envoy = without_filter(&etcd, &members, streaming::start()).with_clock().start();
    let open = |token: &str| {
        wait_for("an answer that goes on", || {
            let mut connection = envoy.connect();
            connection.write(&Request::get("/events").bearer(token).to_bytes()).unwrap();
            let begins = connection.read_raw(12).unwrap();
            (begins == b"HTTP/1.1 200").then_some(connection)
        })
    };
    let impersonation = token_of_etcd();
    let mut impersonated = open(&impersonation);
    let mut ordinary = open(&ordinary_token());
    let more = |connection: &mut Connection| connection.read_raw(10).is_ok();
    assert!(more(&mut impersonated) && more(&mut ordinary));
    etcd.stop();
    envoy.clock().set(601);
    drain(|| more(&mut impersonated));
    assert!(more(&mut ordinary));
    wait_for("the audit log", || {
        envoy.log().contains("\"reason\":\"stale_while_open\"").then_some(())
    });
    etcd.go_on();
    drop(open(&impersonation));
    assert!(more(&mut ordinary));
}

/// A guard that starts without etcd knows no revocations, and says so.
#[test]
fn a_guard_that_never_heard_from_etcd_lets_no_impersonation_pass_until_it_does() {
    let etcd = Etcd::start();
    etcd.kill();
    let guarded = start_without_filter(&etcd, &json!({}));
    let request = || guarded.send_as(&token_of_etcd(), Request::get("/orders"));
    for _ in 0..20 {
        assert_eq!(request().refusal(), (503, "temporarily_unavailable".into()));
        assert_ordinary_users_go_on(&guarded);
    }
    let line = "\"reason\":\"revocations_unknown\"";
    assert_eq!(guarded.envoy.log().matches(line).count(), 20);
    etcd.restart();
    wait_for("the guard to hear of etcd", || (request().status == 200).then_some(()));
}

#[test]
fn a_compaction_loses_no_revocation() {
    let etcd = Etcd::start();
    let one = start(&etcd, &json!({}));
    let other = start_without_filter(&etcd, &json!({}));
    let [before, after, live] = [(); 3].map(|()| one.begin(&Parties::new()));
    let end = |begun: &Begun| {
        wait_until_it_passes(&other, begun);
        end(&one, begun);
    };
    let compact = || {
        let status: serde_json::Value =
            serde_json::from_slice(&etcd.ctl(&["endpoint", "status", "-w", "json"])).unwrap();
        let revision = status[0]["Status"]["header"]["revision"].to_string();
        etcd.ctl(&["compact", "--physical", &revision]);
        etcd.ctl(&["defrag"]);
    };
    end(&before);
    compact();
    wait_until_it_has_ended(&other, &before);
    end(&after);
    compact();
    wait_until_it_has_ended(&other, &after);
    // A guard that starts after the compaction reads what is left.
    let anew = start_without_filter(&etcd, &json!({}));
    for guarded in [&one, &other, &anew] {
        wait_until_it_passes(guarded, &live);
        assert_eq!([&before, &after].map(|begun| status(guarded, begun)), [401, 401]);
    }
}
