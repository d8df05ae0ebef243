//! A guard without a filter needs only to read revocations from etcd. A user who can only read must
//! not do harm.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;

use super::{
    api, assert_ordinary_users_go_on, configuration, status, store, wait_until_it_passes,
    with_cluster,
};
use crate::etcd::access::{cluster, ctl_as, let_in_as_documented, secured};
use testkit::bootstrap::{Bootstrap, Filter, Listener};
use testkit::etcd::Etcd;
use testkit::guarded::{
    Begun, Guarded, Parties, claims, filter_configuration, guarded_listener, operator,
    operator_with, token,
};
use testkit::http::{Connection, Request};
use testkit::over::Over;
use testkit::tls::Authority;
use testkit::wait_for;

/// Starts a guard without a filter, with the certificate of this user.
fn guard_of(etcd: &Etcd, authority: &Authority, user: &str) -> Guarded {
    let api = api();
    let cluster = cluster(etcd, authority, Some(&authority.issue(user)));
    let envoy = with_cluster(cluster, &json!({}), api.address).start();
    Guarded { envoy, api }
}

/// Starts a guard with the filter, in an Envoy with a clock that can be set.
fn filter_of(etcd: &Etcd, authority: &Authority) -> Guarded {
    let api = api();
    let filter = Filter::from(&filter_configuration().with("/store", store()));
    let listener = guarded_listener(&configuration(&json!({})));
    let cluster = cluster(etcd, authority, Some(&authority.issue("impersonation-filter")));
    let bootstrap = Guarded::bootstrap_with(listener, filter, api.address).cluster(cluster);
    Guarded { envoy: bootstrap.workers(2).with_clock().start(), api }
}

#[test]
fn a_guard_needs_a_role_that_reads_revocations_and_no_more() {
    let (etcd, authority) = secured();
    let_in_as_documented(&etcd, &[("stranger", "readwrite", "/elsewhere/")]);
    let filter = filter_of(&etcd, &authority);
    let [ended, live] =
        [(); 2].map(|()| wait_for("the store", || filter.try_begin(&Parties::new())));
    let [reads, refused] =
        ["impersonation-guard", "stranger"].map(|user| guard_of(&etcd, &authority, user));
    for begun in [&ended, &live] {
        wait_until_it_passes(&reads, begun);
    }
    assert!(try_end(&filter, &ended));
    wait_for("the revocation to arrive", || (status(&reads, &ended) == 401).then_some(()));
    assert_eq!(status(&reads, &live), 200);

    wait_for("the log to say why", || {
        let because = "etcd does not allow it, see its users and roles: gRPC status 7";
        refused.envoy.log().contains(because).then_some(())
    });
    let unknown = refused.send_as(&token(&claims()), Request::get("/orders"));
    assert_eq!(unknown.status, 503);
    assert_ordinary_users_go_on(&refused);

    // The guard's certificate can read nothing else: the records of tokens contain contexts.
    let guard = authority.issue("impersonation-guard");
    assert!(ctl_as(&etcd, &guard, &["get", "--prefix", "/impersonation/revocations/"]).is_ok());
    let lease = leases(&etcd)[0].clone();
    #[rustfmt::skip]
    let forbidden: [&[&str]; 9] = [
        &["get", "--prefix", "/impersonation/tokens/"],
        &["get", "--prefix", "/impersonation/impersonations/"],
        &["get", "--prefix", "/impersonation/leases/"],
        &["get", "--prefix", "/impersonation/"],
        &["get", "", "--from-key"],
        &["put", "/impersonation/revocations/x", "x"],
        &["del", "--prefix", "/impersonation/revocations/"],
        &["put", "/impersonation/tokens/x", "x"],
        &["lease", "revoke", &lease],
    ];
    for command in forbidden {
        let answer = ctl_as(&etcd, &guard, command);
        assert!(
            answer.as_ref().is_err_and(|error| error.contains("permission denied")),
            "{command:?}: {answer:?}"
        );
    }
}

/// Ends an impersonation. Returns false if etcd cannot write.
fn try_end(guarded: &Guarded, begun: &Begun) -> bool {
    let path = format!("/api/impersonations/{}", begun.id);
    match guarded.send_to_filter(&Request::new("DELETE", &path).bearer(&operator())).status {
        204 => true,
        503 => false,
        status => panic!("{status}"),
    }
}

/// The ids of all leases, in hex as `etcdctl` has them.
fn leases(etcd: &Etcd) -> Vec<String> {
    let printed = String::from_utf8(etcd.ctl(&["lease", "list"])).unwrap();
    printed.lines().skip(1).map(str::to_owned).collect()
}

/// A user who may only read, calling etcd's own API through a cluster of Envoy, as the filter does.
struct Reader {
    address: SocketAddr,
}

/// Encodes a number as a field of a message.
fn field(number: u8, value: i64) -> Vec<u8> {
    let mut bytes = vec![number << 3];
    let mut left = value.cast_unsigned();
    while left >= 0x80 {
        bytes.push((left & 0x7f) as u8 | 0x80);
        left >>= 7;
    }
    bytes.push(left as u8);
    bytes
}

/// Reads a number, and returns the bytes behind it.
fn varint(bytes: &[u8]) -> (u64, &[u8]) {
    let len = bytes.iter().position(|byte| *byte < 0x80).unwrap() + 1;
    let digits = bytes[..len].iter().rev();
    (digits.fold(0, |value, byte| value << 7 | u64::from(byte & 0x7f)), &bytes[len..])
}

impl Reader {
    /// Returns etcd's answer; `None` if etcd refuses.
    fn ask(&self, method: &str, message: &[u8]) -> Option<Vec<u8>> {
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        let request = Request::post(&format!("/etcdserverpb.Lease/{method}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body([&[0][..], &length, message].concat());
        let answer = Connection::open(self.address).send(&request);
        (answer.status == 200 && answer.header("grpc-status") == Some("0"))
            .then(|| answer.body[5..].to_vec())
    }

    fn leases(&self) -> Vec<i64> {
        let answer = self.ask("LeaseLeases", b"").unwrap();
        let (mut left, mut leases) = (&answer[..], Vec::new());
        while let Some((tag, rest)) = left.split_first() {
            let (len, rest) = varint(rest);
            let (message, rest) = rest.split_at(usize::try_from(len).unwrap());
            // Field 1 is the header, field 2 a lease.
            if *tag == 2 << 3 | 2 {
                leases.push(varint(&message[1..]).0.cast_signed());
            }
            left = rest;
        }
        leases
    }

    /// Grants a lease of twelve seconds.
    fn grant(&self, id: i64) -> bool {
        self.ask("LeaseGrant", &[field(1, 12), field(2, id)].concat()).is_some()
    }

    fn revoke(&self, id: i64) -> bool {
        self.ask("LeaseRevoke", &field(1, id)).is_some()
    }

    /// Grants leases whose ids the filter may want in the next two minutes: an id ends with the
    /// number of its ten seconds, and the rest is that of an existing lease. Returns how many it
    /// has granted.
    fn grant_beforehand(&self) -> usize {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() / 10;
        let now = i64::try_from(now).unwrap();
        let ids = self
            .leases()
            .into_iter()
            .flat_map(|lease| (now - 1..now + 12).map(move |bucket| (lease >> 32 << 32) | bucket));
        ids.filter(|id| self.grant(*id)).count()
    }

    /// Revokes every lease that it may revoke, and grants the same id for a moment.
    fn shorten(&self) {
        for id in self.leases() {
            if self.revoke(id) {
                self.grant(id);
            }
        }
    }
}

#[test]
fn a_reader_of_etcd_can_neither_undo_a_revocation_nor_hide_an_impersonation() {
    let (etcd, authority) = secured();
    let_in_as_documented(&etcd, &[("reader", "read", "/impersonation/")]);
    let filter = filter_of(&etcd, &authority);
    let begin = || wait_for("an impersonation", || filter.try_begin(&Parties::new()));
    let end = |begun: &Begun| wait_for("the end of it", || try_end(&filter, begun).then_some(()));
    let guard = guard_of(&etcd, &authority, "impersonation-guard");
    // Makes leases of both kinds, from which the reader can learn.
    let first = begin();
    end(&first);

    let to_etcd = cluster(&etcd, &authority, Some(&authority.issue("reader")));
    let bridge = json!({
        "name": "envoy.filters.http.grpc_http1_bridge",
        "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.grpc_http1_bridge.v3.Config"},
    });
    let listener = Listener::new("reader").filter(bridge).route_to("etcd", "5s");
    let envoy = Bootstrap::default().listener(listener).cluster(to_etcd).start();
    let reader = Reader { address: envoy.address("reader") };
    wait_for("etcd to answer the reader", || reader.ask("LeaseLeases", b"").map(|_| ()));

    // Repeated before each step: the filter uses another lease every ten seconds.
    assert!(reader.grant_beforehand() > 0, "etcd lets every user grant leases");
    let [ended, live] = [(); 2].map(|()| begin());
    reader.grant_beforehand();
    end(&ended);

    // At the same time the reader acts as fast as it can.
    let (over, turns) = (Over::default(), AtomicUsize::new(0));
    let [ended_too, live_too] = thread::scope(|scope| {
        let _all = over.when_dropped();
        scope.spawn(|| {
            while !over.is_over() {
                reader.shorten();
                turns.fetch_add(1, Ordering::SeqCst);
            }
        });
        // The filter makes leases of the next ten seconds while the reader acts.
        filter.envoy.clock().set(10);
        let begun = [(); 2].map(|()| begin());
        end(&begun[0]);
        begun
    });
    assert!(turns.into_inner() > 0);

    // All leases that the reader has granted have expired by then.
    let decoy = 1 << 40;
    assert!(reader.grant(decoy));
    wait_for("the reader's leases to end", || {
        (!leases(&etcd).contains(&format!("{decoy:016x}"))).then_some(())
    });
    let (later_filter, later_guard) =
        (filter_of(&etcd, &authority), guard_of(&etcd, &authority, "impersonation-guard"));
    for begun in [&live, &live_too] {
        for guarded in [&later_filter, &later_guard, &guard, &filter] {
            wait_until_it_passes(guarded, begun);
        }
    }
    for begun in [&first, &ended, &ended_too] {
        for guarded in [&later_filter, &later_guard, &guard, &filter] {
            assert_eq!(status(guarded, begun), 401);
        }
    }
    for guarded in [&filter, &later_filter] {
        let request = Request::get("/api/impersonations");
        let answer = guarded.send_to_filter(&request.bearer(&operator_with("impersonations:read")));
        let listed = answer.json();
        assert_eq!(listed["complete"], true);
        let ids = listed["impersonations"].as_array().unwrap().iter().map(|one| &one["id"]);
        let ids: Vec<_> = ids.collect();
        assert!([&live, &live_too].iter().all(|live| ids.contains(&&json!(live.id))), "{listed}");
    }
    assert!(try_end(&later_filter, &live) && try_end(&filter, &live_too));
}
