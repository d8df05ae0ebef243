//! The streams of a session's pages end with the session: when it expires, when its banner ends it,
//! and when an operator does.

use serde_json::json;

use super::{DOMAIN, Session, filter, leave_out_the_version, verifying_listener, websocket};
use testkit::gateway::{now, raw_part};
use testkit::guarded::{API, Guarded, STREAMS};
use testkit::http::Connection;
use testkit::impersonations::end_by_id;
use testkit::lent::Lent;
use testkit::wait_for;

fn start() -> Lent<Guarded> {
    let members = json!({
        "browser_session": {"domain": DOMAIN},
        "rules": [{"path": "/live", "methods": ["CONNECT"], "action": "allow"}],
    });
    let filter = filter().with("/access_tokens/lifetime", "3600s");
    let ticker = json!({
        "match": {"path": "/events"}, "route": {"cluster": STREAMS, "timeout": "0s"},
    });
    let listener = verifying_listener(&members, &filter).route(ticker).route_to(API, "0s");
    Guarded::lent_with(listener.edited(leave_out_the_version), &filter)
}

/// The open streams of a page.
struct Page {
    socket: Connection,
    events: Connection,
}

impl Page {
    fn open(guarded: &Guarded, session: &Session) -> Self {
        let mut socket = guarded.envoy.connect();
        let handshake = websocket(session.request("GET", "/live"));
        assert_eq!(socket.send(&handshake).status, 101);
        let mut events = guarded.envoy.connect();
        events.write(&session.request("GET", "/events").to_bytes()).unwrap();
        events.read_raw(200).unwrap();
        Self { socket, events }
    }

    fn echoes(&mut self) -> bool {
        self.socket.write(b"ping").is_ok()
            && self.socket.read_raw(4).is_ok_and(|bytes| bytes == b"ping")
    }

    fn ticks(&mut self) -> bool {
        self.events.read_raw(10).is_ok()
    }

    fn expect_its_end(mut self) {
        wait_for("the end of the WebSocket", || (!self.echoes()).then_some(()));
        wait_for("the end of the events", || (!self.ticks()).then_some(()));
    }
}

#[test]
fn the_streams_of_a_session_end_when_it_is_ended_and_those_of_others_continue() {
    let guarded = start();
    let sessions = [(); 3].map(|()| Session::begin(&guarded));
    let [by_banner, by_operator, goes_on] = &sessions;
    let [of_banner, of_operator, mut others] =
        sessions.each_ref().map(|session| Page::open(&guarded, session));
    let ended = guarded.send(&by_banner.request("POST", "/.impersonation/end"));
    assert_eq!(ended.status, 200, "{ended:?}");
    of_banner.expect_its_end();
    assert_eq!(guarded.send_to_filter(&end_by_id(&by_operator.id)).status, 204);
    of_operator.expect_its_end();
    for _ in 0..10 {
        assert!(others.echoes() && others.ticks());
    }
    assert_eq!(guarded.send(&goes_on.request("GET", "/orders")).status, 200);
}

#[test]
fn the_streams_of_a_session_end_when_it_expires() {
    let guarded = start();
    let session = Session::begin(&guarded);
    let mut page = Page::open(&guarded, &session);
    assert!(page.echoes() && page.ticks());
    let expiry = raw_part(&session.token, 1)["exp"].as_i64().unwrap();
    guarded.envoy.clock().set(expiry + 1 - i64::try_from(now()).unwrap());
    page.expect_its_end();
    for path in ["/orders", "/.impersonation/me"] {
        let answer = guarded.send(&session.request("GET", path));
        assert_eq!(answer.refusal(), (401, "invalid_token".into()), "{answer:?}");
    }
}
