//! etcd answers wrongly or not at all: each request is refused as the contract says, and the log
//! has one line for each kind of failure.

use testkit::etcd::{Etcd, Settings};
use testkit::gateway::{exchange_form, mint_request};
use testkit::http::Request;
use testkit::server::{Reply, Server};
use testkit::wait_for;

use super::{assert_unavailable, complaints, configuration, events, gateway_at, genuine_token};

/// Frames a gRPC message as one of `length` bytes.
fn framed(length: u32, message: &[u8]) -> Vec<u8> {
    [&[0][..], &length.to_be_bytes(), message].concat()
}

fn grpc(body: Vec<u8>, status: Option<&str>) -> Reply {
    let trailers = status.map(|status| ("grpc-status".into(), status.into()));
    let reply = Reply::status(200).header("content-type", "application/grpc");
    Reply { body, trailers: trailers.into_iter().collect(), ..reply }
}

#[test]
fn an_answer_that_etcd_does_not_give_counts_as_a_failed_store() {
    // A revision, and then a key-value pair that is longer than the message.
    let cut_off = b"\x0a\x02\x18\x09\x12\x40\x0a";
    let html = Reply::status(200).header("content-type", "text/html");
    #[rustfmt::skip]
    let cases = [
        ("an empty message",             grpc(framed(0, b""), Some("0")),                   "malformed"),
        ("no header",                    grpc(framed(2, b"\x10\x01"), Some("0")),           "malformed"),
        ("no revision",                  grpc(framed(2, b"\x0a\x00"), Some("0")),           "malformed"),
        ("no protobuf",                  grpc(framed(6, b"<html>"), Some("0")),             "malformed"),
        ("a message that is cut off",    grpc(framed(7, cut_off), Some("0")),               "malformed"),
        ("less than the frame says",     grpc(framed(64, b"\x0a\x02\x18\x09"), Some("0")),  "unreachable"),
        ("no message",                   grpc(Vec::new(), Some("0")),                       "unreachable"),
        ("a message without a status",   grpc(framed(4, b"\x0a\x02\x18\x09"), None),        "unreachable"),
        ("a web page",                   Reply { body: b"<html>".into(), ..html },          "unreachable"),
        ("an error page",                Reply::status(500),                                "unreachable"),
        ("cancelled",                    grpc(Vec::new(), Some("1")),                       "unreachable"),
        ("internal",                     grpc(Vec::new(), Some("13")),                      "unreachable"),
        ("a status that there is not",   grpc(Vec::new(), Some("99")),                      "unreachable"),
        ("a status that is no number",   grpc(Vec::new(), Some("x")),                       "unreachable"),
        ("invalid argument",             grpc(Vec::new(), Some("3")),                       "rejected"),
        ("failed precondition",          grpc(Vec::new(), Some("9")),                       "rejected"),
        ("unimplemented",                grpc(Vec::new(), Some("12")),                      "rejected"),
        ("permission denied",            grpc(Vec::new(), Some("7")),                       "forbidden"),
        ("unauthenticated",              grpc(Vec::new(), Some("16")),                      "forbidden"),
        ("resource exhausted",           grpc(Vec::new(), Some("8")),                       "exhausted"),
    ];
    let server = Server::start("etcd");
    let gateway = gateway_at(server.address, &configuration());
    let token = genuine_token();
    for (case, reply, kind) in cases {
        server.answer_always(reply);
        let counter = format!("wasmcustom.impersonation_store_errors_total.kind.{kind}");
        let before = gateway.envoy.stat(&counter);
        for _ in 0..3 {
            assert_unavailable(&gateway.send(&mint_request("u-1")), case);
            assert_unavailable(&gateway.exchange(&exchange_form(&token)), case);
        }
        // A timer counts the outstanding tokens, and fails as well.
        let counted = gateway.envoy.stat(&counter) - before;
        assert!(counted >= 6, "{case}: {counted} counted as {kind}");
    }
    let lines = complaints(&gateway);
    let kinds = [
        "is not one of etcd's",
        "does not answer",
        "refuses the call",
        "does not allow it",
        "out of space",
    ];
    assert_eq!(lines.len(), kinds.len(), "{lines:#?}");
    for kind in kinds {
        assert!(lines.iter().any(|line| line.contains(kind)), "{kind}: {lines:#?}");
    }
    let keys = gateway.send(&Request::get("/oidc/jwks"));
    assert_eq!(keys.status, 200);
}

#[test]
fn a_full_quota_refuses_mints_and_spends_until_there_is_room() {
    let flags = vec!["--quota-backend-bytes=500000".into()];
    let etcd = Etcd::start_with(Settings { flags, ..Settings::default() });
    let gateway = gateway_at(etcd.address, &configuration());
    let token = gateway.mint("u-1");
    let much = "x".repeat(100_000);
    wait_for("the quota to be full", || {
        etcd.try_ctl(&["put", "much", &much]).is_err().then_some(())
    });

    for _ in 0..5 {
        assert_unavailable(&gateway.send(&mint_request("u-1")), "a mint");
        assert_unavailable(&gateway.exchange(&exchange_form(&token)), "a spend");
    }
    assert_eq!(
        events(&gateway).pop().unwrap()["reason"],
        "store_failed",
        "that it is not spent is known"
    );
    let lines = complaints(&gateway);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("etcd is out of space"), "{lines:?}");
    let failed = "wasmcustom.impersonation_store_errors_total.kind.exhausted";
    assert_eq!(gateway.envoy.stat(failed), 10);

    let revision = revision(&etcd);
    etcd.ctl(&["compact", &revision]);
    etcd.ctl(&["del", "much"]);
    etcd.ctl(&["defrag"]);
    etcd.ctl(&["alarm", "disarm"]);
    gateway.assert_spendable(&token, "once there is room");
    gateway.assert_serves("once there is room");
}

#[test]
fn a_token_survives_a_compaction() {
    let etcd = Etcd::start();
    let gateway = gateway_at(etcd.address, &configuration());
    let [outstanding, spent] = ["u-1", "u-2"].map(|user| gateway.mint(user));
    gateway.assert_spendable(&spent, "before");
    etcd.ctl(&["compact", "--physical", &revision(&etcd)]);
    etcd.ctl(&["defrag"]);
    gateway.assert_spendable(&outstanding, "after");
    for token in [&outstanding, &spent] {
        gateway.assert_spent(token, "after");
        assert_eq!(events(&gateway).pop().unwrap()["reason"], "subject_token_spent");
    }
    assert!(complaints(&gateway).is_empty());
}

#[test]
fn a_vanished_lease_takes_its_tokens_along_and_the_next_mint_makes_a_new_one() {
    let etcd = Etcd::start();
    let gateway = gateway_at(etcd.address, &configuration());
    let lost = gateway.mint("u-1");
    let leases = String::from_utf8(etcd.ctl(&["lease", "list"])).unwrap();
    for lease in leases.lines().skip(1) {
        etcd.ctl(&["lease", "revoke", lease]);
    }
    assert_eq!(etcd.tokens().len(), 0, "{leases}");
    let answer = gateway.exchange(&exchange_form(&lost));
    assert_eq!(answer.refusal(), (400, "invalid_request".into()));
    assert_eq!(events(&gateway).pop().unwrap()["reason"], "subject_token_unknown");
    gateway.assert_serves("in the same ten seconds or in the next");
    assert!(complaints(&gateway).is_empty());
}

fn revision(etcd: &Etcd) -> String {
    let status: serde_json::Value =
        serde_json::from_slice(&etcd.ctl(&["endpoint", "status", "-w", "json"])).unwrap();
    status[0]["Status"]["header"]["revision"].to_string()
}
