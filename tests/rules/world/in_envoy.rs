//! The filter in a real Envoy, and the servers that it asks.

use serde_json::Value;

use testkit::configuration::Configuration;
use testkit::gateway::Gateway;
use testkit::http::{Answer, Request};
use testkit::lent::Lent;
use testkit::server::Server;

/// One Envoy with the filter. Other tests have used the process, and see nothing of this one.
pub(crate) struct World {
    gateway: Lent<Gateway>,
    ahead: std::cell::Cell<i64>,
}

impl World {
    pub(crate) fn start(configuration: &Configuration) -> Self {
        Self { gateway: Gateway::lent(configuration), ahead: std::cell::Cell::new(0) }
    }

    /// Sends a request over a connection of its own.
    pub(crate) fn send(&self, request: &Request) -> Answer {
        self.gateway.send(request)
    }

    /// Returns the server behind a cluster.
    pub(crate) fn upstream(&self, cluster: &str) -> &Server {
        self.gateway.server(cluster)
    }

    /// Moves the filter's clock on, or back.
    pub(crate) fn advance(&self, seconds: i64) {
        self.ahead.set(self.ahead.get() + seconds);
        self.gateway.clock().set(self.ahead.get());
    }

    /// Returns what a counter has counted in this test.
    pub(crate) fn counted(&self, name: &str) -> u64 {
        self.gateway.envoy.metric(name).unwrap_or(0)
    }

    /// Returns the lines of the audit log.
    pub(crate) fn audit(&self) -> Vec<Value> {
        self.lines("{\"event\"")
    }

    /// Returns the alarms.
    pub(crate) fn alarms(&self) -> Vec<Value> {
        self.lines("{\"alarm\"")
    }

    /// Gives the filter another configuration. Returns the reason if the filter refuses it.
    pub(crate) fn update(&self, configuration: &Configuration) -> Result<(), String> {
        self.gateway.update(configuration)
    }

    /// Returns the log of level info and above.
    pub(crate) fn log(&self) -> String {
        self.gateway.envoy.log()
    }

    fn lines(&self, beginning: &str) -> Vec<Value> {
        let log = self.gateway.envoy.log();
        let lines = log.lines().filter_map(|line| Some(&line[line.find(beginning)?..]));
        lines.map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}
