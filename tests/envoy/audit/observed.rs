//! An Envoy that is looked at as its operator does: its log, and an access log that prints what the filter
//! says of a request. Beside the upstream there is one that reads and never answers, one that is not there,
//! and one that says yes to everything.

use std::fs;

use serde_json::{Map, Value, json};

use testkit::bootstrap::Listener;
use testkit::configuration::Configuration;
use testkit::envoy::Envoy;
use testkit::gateway::{IDENTITY_GATEWAY, in_front_of, minted};
use testkit::http::Request;
use testkit::server::{Fault, Reply, Server};
use testkit::wait_for;

/// Clusters that a configuration can name beside `identity_gateway`.
pub(super) const SILENT: &str = "silent";
pub(super) const ABSENT: &str = "absent";
pub(super) const AGREEABLE: &str = "agreeable";

/// What the filter sets for access logs.
pub(super) const FILTER_STATE: [&str; 11] = [
    "event",
    "subject_token_id",
    "user_id",
    "actor_id",
    "client_id",
    "caller",
    "resource",
    "scope",
    "jti",
    "error",
    "reason",
];

pub(super) struct Observed {
    pub envoy: Envoy,
    pub agreeable: Server,
    _others: [Server; 3],
}

impl Observed {
    pub(super) fn start(configuration: &Configuration, workers: u32) -> Self {
        Self::start_with(configuration, workers, with_access_log)
    }

    pub(super) fn start_with(
        configuration: &Configuration,
        workers: u32,
        edit: impl Fn(Listener) -> Listener,
    ) -> Self {
        let [upstream, silent, absent, agreeable] =
            [IDENTITY_GATEWAY, SILENT, ABSENT, AGREEABLE].map(Server::start);
        silent.fail(Fault::Slow);
        absent.fail(Fault::Refused);
        agreeable.answer_always(Reply::json(&json!({
            "active": true,
            "scope": "impersonate",
            "client_id": "opaque-backend",
            "sub": "opaque-agent",
        })));
        let bootstrap = in_front_of(&[&upstream, &silent, &absent, &agreeable], configuration);
        let envoy = bootstrap.edit_listener(edit).workers(workers).start();
        Self { envoy, agreeable, _others: [upstream, silent, absent] }
    }

    pub(super) fn mint(&self, request: &Request) -> String {
        minted(&self.envoy.send(request))
    }

    /// Everything that Envoy has printed, all of it text.
    pub(super) fn log(&self) -> String {
        String::from_utf8(fs::read(self.envoy.directory().join("envoy.log")).unwrap()).unwrap()
    }

    /// The audit log.
    pub(super) fn events(&self) -> Vec<Value> {
        json_lines(&self.log(), "info", "event")
    }

    /// The alarms about spent tokens.
    pub(super) fn alarms(&self) -> Vec<Value> {
        json_lines(&self.log(), "warning", "alarm")
    }

    /// The access log, once it has `count` lines.
    pub(super) fn access_log(&self, count: usize) -> Vec<Value> {
        wait_for("the access log", || {
            let lines = self.envoy.access_log();
            assert!(lines.len() <= count, "more than {count} requests: {lines:#?}");
            (lines.len() == count).then_some(lines)
        })
    }
}

/// What the filter wrote at this level, where it has this member. Anything else that it wrote as JSON
/// is looked at too: it must be JSON to its end.
pub(super) fn json_lines(log: &str, level: &str, member: &str) -> Vec<Value> {
    let mark = format!("][{level}][wasm]");
    let json = |line: &str| {
        let (_, message) = line.split_once("wasm log")?;
        let json = &message[message.find(": {")? + 2..];
        Some(serde_json::from_str::<Value>(json).unwrap_or_else(|error| panic!("{error}: {line}")))
    };
    let lines = log.lines().filter(|line| line.contains(&mark));
    lines.filter_map(json).filter(|value| value.get(member).is_some()).collect()
}

/// The listener with an access log that prints what the filter sets, and what an answer of its own looks
/// like.
pub(super) fn with_access_log(listener: Listener) -> Listener {
    let state = FILTER_STATE.map(|name| {
        (name.to_owned(), json!(format!("%FILTER_STATE(wasm.impersonation.{name}:PLAIN)%")))
    });
    listener.access_log(json!({
        "request_id": "%REQ(X-REQUEST-ID)%",
        "path": "%REQ(:PATH)%",
        "status": "%RESPONSE_CODE%",
        "details": "%RESPONSE_CODE_DETAILS%",
        "flags": "%RESPONSE_FLAGS%",
        "pragma": "%RESP(PRAGMA)%",
        "upstream": "%UPSTREAM_HOST%",
        "impersonation": Map::from_iter(state),
    }))
}
