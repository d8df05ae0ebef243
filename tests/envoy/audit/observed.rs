//! An Envoy that is observed as an operator observes it: by its log, and by an access log with the
//! filter's state. Besides the upstream there are one that never answers, and one that does not
//! exist.

use serde_json::Value;

use testkit::audit::with_access_log;
use testkit::bootstrap::{Filter, Listener};
use testkit::configuration::Configuration;
use testkit::envoy::Envoy;
use testkit::gateway::{Gateway, IDENTITY_GATEWAY, in_front_of, listener, minted};
use testkit::http::Request;
use testkit::lent::Lent;
use testkit::server::{Fault, Server};
use testkit::wait_for;

/// Clusters that a configuration can name besides `identity_gateway`: servers of a lent gateway.
pub(super) const SILENT: &str = "introspection";
pub(super) const ABSENT: &str = "keys";

pub(super) enum Observed {
    /// Other tests have used this Envoy.
    Lent(Lent<Gateway>),
    /// Only this test uses the Envoy.
    Own(Envoy),
}

impl Observed {
    pub(super) fn lent(configuration: &Configuration) -> Self {
        Self::lent_with(configuration, with_access_log)
    }

    /// Lends a gateway whose listener is changed.
    pub(super) fn lent_with(
        configuration: &Configuration,
        edit: impl Fn(Listener) -> Listener,
    ) -> Self {
        let gateway = Gateway::lent(configuration);
        let filter = Filter::from(configuration).into();
        gateway.envoy.update(edit(listener("gateway", Some(filter)))).unwrap();
        gateway.server(SILENT).fail(Fault::Slow);
        gateway.server(ABSENT).fail(Fault::Refused);
        Self::Lent(gateway)
    }

    pub(super) fn start(configuration: &Configuration, workers: u32) -> Self {
        let upstream = Server::start(IDENTITY_GATEWAY);
        let bootstrap = in_front_of(&[&upstream], configuration);
        let envoy = bootstrap.edit_listener(with_access_log).workers(workers).with_clock().start();
        Self::Own(envoy)
    }

    pub(super) fn envoy(&self) -> &Envoy {
        match self {
            Self::Lent(gateway) => &gateway.envoy,
            Self::Own(envoy) => envoy,
        }
    }

    /// Returns a server of a lent gateway.
    pub(super) fn server(&self, name: &str) -> &Server {
        match self {
            Self::Lent(gateway) => gateway.server(name),
            Self::Own(..) => panic!("this Envoy has its upstream only"),
        }
    }

    pub(super) fn mint(&self, request: &Request) -> String {
        minted(&self.envoy().send(request))
    }

    /// Everything that Envoy has printed. All of it must be UTF-8.
    pub(super) fn log(&self) -> String {
        let log = self.envoy().log();
        assert!(!log.contains(char::REPLACEMENT_CHARACTER), "not UTF-8: {log}");
        log
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
            let lines = self.envoy().access_log();
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
