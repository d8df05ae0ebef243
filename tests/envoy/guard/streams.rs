//! Open streams end with their impersonation; streams of others continue.

use serde_json::{Value, json};

use testkit::guarded::{
    Begun, Guarded, Parties, STREAMS, filter_configuration, guard_configuration, guarded_listener,
    ordinary_token,
};
use testkit::http::{Connection, Request};
use testkit::lent::Lent;
use testkit::streaming::{Http2, Open, SILENT};
use testkit::wait_for;

/// Sends the requests of an API's listener to the cluster whose answers do not end.
pub(super) fn to_streams(listener: &mut Value) {
    let hosts = "/filter_chains/0/filters/0/typed_config/route_config/virtual_hosts/0/routes";
    let routes = listener.pointer_mut(hosts).unwrap().as_array_mut().unwrap();
    routes.last_mut().unwrap()["route"]["cluster"] = STREAMS.into();
}

/// Lends an API whose answers do not end, and begins two impersonations.
fn streaming() -> (Lent<Guarded>, Begun, Begun) {
    let listener = guarded_listener(&guard_configuration(&json!({"default": "allow"})));
    let guarded = Guarded::lent_with(listener.edited(to_streams), &filter_configuration());
    let [ended, live] = [(); 2].map(|()| guarded.begin(&Parties::new()));
    (guarded, ended, live)
}

fn end(guarded: &Guarded, begun: &Begun) {
    let request = Request::new("DELETE", &format!("/api/impersonations/{}", begun.id));
    let answer = guarded.send_to_filter(&request.bearer(&testkit::guarded::operator()));
    assert_eq!(answer.status, 204, "{answer:?}");
}

/// Reads until the stream ends.
pub(super) fn drain(mut more: impl FnMut() -> bool) {
    wait_for("the end of a stream", || (!more()).then_some(()));
}

pub(super) fn assert_goes_on(open: &mut Open, case: &str) {
    for _ in 0..10 {
        assert!(open.more().is_some(), "{case} has ended");
    }
}

#[test]
fn an_event_stream_over_http_1_ends_with_its_impersonation_and_others_continue() {
    let (guarded, ended, live) = streaming();
    let open = |token: &str| {
        let mut connection = guarded.envoy.connect();
        connection.write(&Request::get("/events").bearer(token).to_bytes()).unwrap();
        connection.read_raw(200).unwrap();
        connection
    };
    let mut streams =
        [&ended.access_token, &live.access_token, &ordinary_token()].map(|token| open(token));
    end(&guarded, &ended);
    let more = |connection: &mut Connection| connection.read_raw(10).is_ok();
    drain(|| more(&mut streams[0]));
    for _ in 0..20 {
        assert!(more(&mut streams[1]) && more(&mut streams[2]));
    }
}

#[test]
fn one_of_several_streams_on_a_connection_ends_alone() {
    let (guarded, ended, live) = streaming();
    let mut connection = Http2::connect(guarded.envoy.address("guarded"));
    let mut open = |token: &str, request: Request| {
        let open = connection.open(&request.bearer(token));
        assert_eq!(open.status, 200);
        open
    };
    let events = || Request::get("/events");
    let grpc = || {
        Request::post("/orders.Orders/Watch")
            .header("content-type", "application/grpc")
            .header("te", "trailers")
    };
    let mut gone = [open(&ended.access_token, events()), open(&ended.access_token, grpc())];
    let mut others = [
        ("another's events", open(&live.access_token, events())),
        ("another's calls", open(&live.access_token, grpc())),
        ("an ordinary user's", open(&ordinary_token(), events())),
    ];
    end(&guarded, &ended);
    for stream in &mut gone {
        drain(|| stream.more().is_some());
    }
    for (case, stream) in &mut others {
        assert_goes_on(stream, case);
    }
    // The connection serves further requests, but none of the ended impersonation.
    let status =
        |connection: &mut Http2, token: &str| connection.open(&events().bearer(token)).status;
    assert_eq!(status(&mut connection, &ended.access_token), 401);
    assert_eq!(status(&mut connection, &live.access_token), 200);
}

#[test]
fn a_caller_waiting_for_the_api_is_told_that_the_impersonation_has_ended() {
    let (guarded, ended, _) = streaming();
    let mut connection = guarded.envoy.connect();
    let request = Request::get(SILENT).bearer(&ended.access_token);
    connection.write(&request.to_bytes()).unwrap();
    wait_for("the request to be looked at", || {
        (guarded.envoy.metric("impersonation_guard_requests_total") == Some(1)).then_some(())
    });
    end(&guarded, &ended);
    let answer = connection.read_answer("GET").unwrap();
    assert_eq!(answer.refusal(), (401, "invalid_token".into()));
}

#[test]
fn a_web_socket_ends_with_its_impersonation_and_others_continue() {
    let guarded = Guarded::lent(&json!({"default": "allow"}));
    let [ended, live] = [(); 2].map(|()| guarded.begin(&Parties::new()));
    let open = |token: &str| {
        let request =
            Request::get("/live").header("connection", "Upgrade").header("upgrade", "websocket");
        let mut connection = guarded.envoy.connect();
        assert_eq!(connection.send(&request.bearer(token)).status, 101);
        connection
    };
    let echoes = |connection: &mut Connection| {
        connection.write(b"ping").is_ok()
            && connection.read_raw(4).is_ok_and(|bytes| bytes == b"ping")
    };
    let mut sockets =
        [&ended.access_token, &live.access_token, &ordinary_token()].map(|token| open(token));
    assert!(sockets.iter_mut().all(echoes));
    end(&guarded, &ended);
    drain(|| echoes(&mut sockets[0]));
    assert!(echoes(&mut sockets[1]) && echoes(&mut sockets[2]));
}

#[test]
fn each_ended_stream_is_audited_and_counted() {
    let (guarded, ended, _) = streaming();
    let mut connection = Http2::connect(guarded.envoy.address("guarded"));
    let mut streams: Vec<_> = (0..20)
        .map(|_| connection.open(&Request::get("/events").bearer(&ended.access_token)))
        .collect();
    end(&guarded, &ended);
    for stream in &mut streams {
        drain(|| stream.more().is_some());
    }
    assert_eq!(guarded.envoy.metric("impersonation_guard_streams_ended_total"), Some(20));
    let line = "\"reason\":\"ended_while_open\"";
    wait_for("the audit log", || (guarded.envoy.log().matches(line).count() == 20).then_some(()));
    let log = wait_for("the access log", || {
        let lines = guarded.envoy.access_log();
        (lines.iter().filter(|line| line["reason"] == "ended_while_open").count() == 20)
            .then_some(lines)
    });
    assert!(log.iter().all(|line| line["txn"] == *ended.id));
}
