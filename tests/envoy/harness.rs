//! The tests' own tools, tried against an Envoy without the filter: a failure elsewhere is then not
//! theirs.

use std::path::Path;

use testkit::gateway::{Gateway, Options};
use testkit::http::{Connection, Request};
use testkit::http2;
use testkit::server::pattern;

#[test]
fn an_envoy_passes_on_what_it_is_sent_and_goes_when_it_is_dropped() {
    let direct_responses = vec![("/x", "at once".into())];
    let options = Options { direct_responses, ..Options::default() };
    let Gateway { envoy, upstream } = Gateway::without_filter(&options);
    let body = pattern(100_000);
    let request = Request::post("/a?b=c")
        .header("x-bytes", b"\xff\x80")
        .pieces(vec![body.clone(), body.clone()], &[("x-last", "1")])
        .header("te", "trailers")
        .header("x-answer-trailers", "yes");

    for answer in [
        Connection::open(envoy.address("gateway")).send(&request),
        http2::send(envoy.address("gateway"), &request),
    ] {
        let received = upstream.received_for(&answer).unwrap();
        assert_eq!((received.method.as_str(), received.target.as_str()), ("POST", "/a?b=c"));
        assert_eq!(received.body, [body.clone(), body.clone()].concat());
        assert_eq!(received.trailers, [("x-last".into(), "1".into())]);
        assert_eq!(answer.body, received.body);
        assert_eq!(
            answer.trailers,
            [("x-upstream-trailer".into(), "at the end".into())],
            "{answer:?}"
        );
    }
    assert_eq!(
        Connection::open(envoy.address("direct")).send(&Request::post("/x").body("y")).text(),
        "at once"
    );
    assert!(envoy.resident_bytes() > 1 << 20 && !envoy.cpu_time().is_zero());
    assert_eq!(envoy.stat("http.gateway.downstream_rq_2xx"), 2);
    assert!(envoy.log().contains("admin address") && !envoy.log().contains("[debug]"));
    envoy.set_log_level("router", "debug");
    Connection::open(envoy.address("gateway")).send(&Request::get("/"));
    assert!(envoy.log().contains("[debug][router]"));

    let directory = envoy.directory().to_owned();
    drop(envoy);
    let running = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|process| std::fs::read_to_string(process.ok()?.path().join("cmdline")).ok());
    assert_eq!(running.filter(|line| line.contains(directory.to_str().unwrap())).count(), 0);
    assert!(Path::new(&directory).exists(), "the log stays for the post-mortem");
}
