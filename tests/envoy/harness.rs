//! Tests of the test tools themselves, mostly with an Envoy without the filter. If these tests
//! pass, the tools did not cause a failure elsewhere.

use std::path::Path;

use serde_json::json;

use testkit::bootstrap::{Bootstrap, Cluster, Listener};
use testkit::configuration::Configuration;
use testkit::gateway::{Gateway, Options};
use testkit::http::{Connection, Request};
use testkit::server::{Fault, Reply, Server, pattern};
use testkit::{Findings, http2, wait_for};

#[test]
fn an_envoy_forwards_requests_and_ends_when_it_is_dropped() {
    let direct_responses = vec![("/x", "at once".into())];
    let options = Options { direct_responses, ..Options::default() };
    let Gateway { envoy, upstream, .. } = Gateway::without_filter(&options);
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

#[test]
fn a_server_answers_and_fails_as_it_is_told_over_both_protocols() {
    let mut findings = Findings::default();
    for http2 in [false, true] {
        let server = Server::start("served");
        server.answer(|received| {
            Reply::json(&json!({"target": received.target, "long": "x".repeat(9000)}))
        });
        let cluster = Cluster::new(&server.name, server.address);
        let cluster = if http2 { cluster.http2() } else { cluster };
        let listener = Listener::new("front").route_to(&server.name, "2s");
        let envoy = Bootstrap::default().listener(listener).cluster(cluster).start();

        let answer = envoy.send(&Request::get("/a?b=c").header("x-odd", b"\xff"));
        assert_eq!((answer.status, answer.member("target")), (200, "/a?b=c".into()));
        let received = server.last();
        assert_eq!(received.version, if http2 { "HTTP/2.0" } else { "HTTP/1.1" });
        assert!(received.headers.contains(&("x-odd".into(), b"\xff".to_vec())), "{received:?}");

        #[rustfmt::skip]
        let expected = [
            (Fault::Refused,          Some((503, "text/plain"))),
            (Fault::Slow,             Some((504, "text/plain"))),
            (Fault::Stalled,          None),
            (Fault::ResetMidBody,     None),
            (Fault::ServerError,      Some((500, "text/html"))),
            (Fault::WrongContentType, Some((200, "text/html"))),
            (Fault::Junk,             Some((200, "application/json"))),
            (Fault::Empty,            Some((200, "application/json"))),
        ];
        assert_eq!(expected.map(|(fault, _)| fault), Fault::ALL);
        for (fault, expected) in expected {
            server.fail(fault);
            let answer = envoy.connect().try_send(&Request::get("/")).ok();
            let got = answer
                .as_ref()
                .map(|answer| (answer.status, answer.header("content-type").unwrap()));
            findings.expect(format!("{fault:?}, HTTP/2: {http2}"), &got, &expected);
            server.heal();
            let case = format!("healed of {fault:?}, HTTP/2: {http2}");
            findings.expect(case, &envoy.send(&Request::get("/")).status, &200);
        }
    }
}

#[test]
fn two_envoys_run_at_once_each_with_its_own_bootstrap() {
    let server = Server::start("behind");
    let cluster = Cluster::new("behind", server.address).with(
        "health_checks",
        json!([{
            "timeout": "1s", "interval": "1s", "unhealthy_threshold": 1, "healthy_threshold": 1,
            "http_health_check": {"path": "/health"},
        }]),
    );
    let listener = Listener::new("inner").route_to("behind", "5s");
    let inner = Bootstrap::default().listener(listener).cluster(cluster).workers(2).start();
    wait_for("the health check", || {
        (inner.stat("cluster.behind.health_check.success") > 0).then_some(())
    });
    let listener = Listener::new("outer")
        .route_to("inner", "5s")
        .access_log(json!({"path": "%REQ(:PATH)%", "from": "%ENVIRONMENT(PLACE)%", "to": "%ENVIRONMENT(GIVEN)%"}))
        .watched();
    let bootstrap = Bootstrap::default()
        .listener(listener.clone())
        .cluster(Cluster::new("inner", inner.address("inner")))
        .stats_tag("place", "^http\\.((.+?)\\.)downstream_rq_total$")
        .environment("PLACE", "the table")
        .command_prefix(&["env", "GIVEN=by a prefix"]);
    let outer = bootstrap.start();
    assert_eq!(outer.send(&Request::get("/through-both")).status, 200);
    assert_eq!(server.received().iter().filter(|one| one.target == "/through-both").count(), 1);
    let lines = wait_for("the access log", || {
        let lines = outer.access_log();
        (!lines.is_empty()).then_some(lines)
    });
    assert_eq!(lines, [json!({"path": "/through-both", "from": "the table", "to": "by a prefix"})]);
    assert!(outer.prometheus().contains("place=\"outer\""), "{}", outer.prometheus());

    let answers = Listener::new("outer").answer("/", "of its own");
    outer.update(answers).unwrap();
    assert_eq!(outer.send(&Request::get("/")).text(), "of its own");
    assert!(outer.update(listener.route(json!({"match": {}}))).is_err());
    assert!(inner.is_running() && outer.is_running());
}

#[test]
fn a_lent_gateway_has_nothing_of_the_test_before() {
    let first = Gateway::lent(&Configuration::default());
    let token = first.mint("u-1");
    first.upstream.fail(Fault::ServerError);
    drop(first);
    let second = Gateway::lent(&Configuration::default());
    second.assert_spent(&token, "a token of another test");
    second.assert_serves("for the next test");
    assert_eq!(second.send(&Request::get("/")).status, 200);
}
