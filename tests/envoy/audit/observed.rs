//! An Envoy that is observed as an operator observes it: by its log, and by an access log with the
//! filter's state. Beside the upstream there is one that never answers, one that does not exist,
//! and one that answers yes to everything.

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

/// The filter state for access logs.
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

    /// Everything that Envoy has printed. All of it must be UTF-8.
    pub(super) fn log(&self) -> String {
        String::from_utf8(fs::read(self.envoy.directory().join("envoy.log")).unwrap()).unwrap()
    }

    /// The events of the audit log.
    pub(super) fn events(&self) -> Vec<Value> {
        json_lines(&self.log(), "info", "event")
    }

    /// The alarms about replayed tokens.
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

/// Returns the JSON that the filter wrote at this level and that has this member. All other JSON of
/// the filter must be valid to its end, too.
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

/// Adds an access log that prints the filter state and the header fields of the filter's own
/// answers.
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
