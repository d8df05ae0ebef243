//! The filter in a real Envoy, and the servers that it asks.

use serde_json::Value;

use testkit::audit::with_access_log;
use testkit::bootstrap::Filter;
use testkit::configuration::Configuration;
use testkit::gateway::{Gateway, listener, store_in_etcd};
use testkit::http::{Answer, Connection, Request};
use testkit::lent::Lent;
use testkit::paths;
use testkit::server::{Held, Server};
use testkit::wait_for;

/// One Envoy with the filter. Other tests have used the process, and see nothing of this one.
pub(crate) struct World {
    gateway: Lent<Gateway>,
    ahead: std::cell::Cell<i64>,
    /// A store in etcd, with a place of its own.
    store: Option<Value>,
    moves: bool,
}

impl World {
    pub(crate) fn start(configuration: &Configuration) -> Self {
        let store = configuration.0.pointer("/store/etcd").map(|_| store_in_etcd());
        let gateway = match &store {
            Some(store) => {
                Gateway::lent_with_etcd(&configuration.clone().with("/store", store.clone()))
            }
            None => Gateway::lent(configuration),
        };
        let moves = configuration.0.get("paths").is_some();
        Self { gateway, ahead: std::cell::Cell::new(0), store, moves }
    }

    /// Starts the filter behind an access log.
    pub(crate) fn observed(configuration: &Configuration) -> Self {
        let world = Self::start(configuration);
        let listener = listener("gateway", Some(Filter::from(configuration).into()));
        world.gateway.envoy.update(with_access_log(listener)).unwrap();
        world
    }

    /// Sends a request over a connection of its own.
    pub(crate) fn send(&self, request: &Request) -> Answer {
        let target = self.sent_to(&request.target);
        self.gateway.send(&Request { target, ..request.clone() })
    }

    /// Sends a request to the path that it names, although the configuration has paths.
    pub(crate) fn send_unmoved(&self, request: &Request) -> Answer {
        self.gateway.send(request)
    }

    /// Sends a request, and does something when the filter asks the server behind this cluster for
    /// the first time.
    pub(crate) fn send_while<T>(
        &self,
        request: &Request,
        cluster: &str,
        meanwhile: impl FnOnce() -> T,
    ) -> (Answer, T) {
        let (mut connection, held) = self.begin(request, cluster);
        let told = meanwhile();
        drop(held);
        (connection.read_answer(&request.method).unwrap(), told)
    }

    /// Sends a request whose caller hangs up while the filter asks the server behind this cluster.
    pub(crate) fn leave_while(&self, request: &Request, cluster: &str) {
        let (connection, held) = self.begin(request, cluster);
        self.gateway.envoy.hang_up(connection);
        drop(held);
    }

    fn begin(&self, request: &Request, cluster: &str) -> (Connection, Held) {
        let mut held = self.upstream(cluster).hold();
        let mut connection = self.gateway.connect();
        let target = self.sent_to(&request.target);
        connection.write(&Request { target, ..request.clone() }.to_bytes()).unwrap();
        held.wait();
        (connection, held)
    }

    /// Waits for something that the filter does without a request.
    pub(crate) fn wait_for<T>(&self, what: &str, probe: impl FnMut() -> Option<T>) -> T {
        wait_for(what, probe)
    }

    /// Returns the server behind a cluster.
    pub(crate) fn upstream(&self, cluster: &str) -> &Server {
        self.gateway.server(cluster)
    }

    /// Moves the filter's clock on, or back.
    pub(crate) fn advance(&self, seconds: i64) {
        self.ahead.set(self.ahead.get() + seconds);
        self.gateway.envoy.clock().set(self.ahead.get());
    }

    /// Returns what a counter has counted in this test.
    pub(crate) fn counted(&self, name: &str) -> u64 {
        self.gateway.envoy.metric(name).unwrap_or(0)
    }

    /// Returns the lines of the audit log.
    pub(crate) fn audit(&self) -> Vec<Value> {
        self.lines("{\"event\"")
    }

    /// Returns the access log of this many requests.
    pub(crate) fn access_log(&self, count: usize) -> Vec<Value> {
        wait_for("the access log", || {
            let lines = self.gateway.envoy.access_log();
            assert!(lines.len() <= count, "more than {count} requests: {lines:#?}");
            (lines.len() == count).then_some(lines)
        })
    }

    /// Returns all counters.
    pub(crate) fn counters(&self) -> Vec<(String, u64)> {
        self.gateway.envoy.metrics()
    }

    /// Returns the alarms.
    pub(crate) fn alarms(&self) -> Vec<Value> {
        self.lines("{\"alarm\"")
    }

    /// Returns the log of level info and above.
    pub(crate) fn log(&self) -> String {
        self.gateway.envoy.log()
    }

    /// Returns the target to which a request for this target is sent. A configuration with paths
    /// has those of Keycloak.
    pub(crate) fn sent_to(&self, target: &str) -> String {
        if self.moves { paths::moved(target) } else { target.to_owned() }
    }

    /// Returns a gauge of the filter.
    pub(crate) fn gauge(&self, name: &str) -> Option<u64> {
        self.gateway.envoy.metric(name)
    }

    /// Gives the running filter another configuration. The store stays where it is. Returns the
    /// reason if the filter refuses the configuration.
    pub(crate) fn update(&self, configuration: &Configuration) -> Result<(), String> {
        let configuration =
            self.store.iter().fold(configuration.clone(), |configuration, store| {
                configuration.with("/store", store.clone())
            });
        self.gateway.update(&configuration)
    }

    fn lines(&self, beginning: &str) -> Vec<Value> {
        let log = self.gateway.envoy.log();
        let lines = log.lines().filter(|line| line.contains(beginning));
        let lines = lines.map(|line| {
            assert!(line.starts_with("[20"), "Envoy did not begin this line: {line:?}");
            &line[line.find(beginning).unwrap()..]
        });
        lines.map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}
