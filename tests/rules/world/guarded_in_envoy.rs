//! The guard before an API, in a real Envoy behind `jwt_authn`, and the filter beside it.

use std::cell::Cell;

use serde_json::Value;

use testkit::guarded::{
    Begun, Guarded, Parties, filter_configuration, guard_configuration, guarded_listener,
};
use testkit::http::{Answer, Request};
use testkit::lent::Lent;
use testkit::server::Received;
use testkit::wait_for;

/// An API behind one Envoy. Other tests have used the process, and see nothing of this one.
pub(crate) struct Api {
    guarded: Lent<Guarded>,
    ahead: Cell<i64>,
}

impl Api {
    /// Starts the API behind a guard with these members besides the required ones.
    pub(crate) fn start(members: &Value) -> Self {
        Self::start_with(&guard_configuration(members))
    }

    /// Starts the API behind a guard with this configuration.
    pub(crate) fn start_with(configuration: &Value) -> Self {
        let listener = guarded_listener(configuration);
        let guarded = Guarded::lent_with(listener, &filter_configuration());
        Self { guarded, ahead: Cell::new(0) }
    }

    /// Sends a request with this access token to the API.
    pub(crate) fn send_as(&self, token: &str, request: Request) -> Answer {
        self.guarded.send_as(token, request)
    }

    /// Returns the request at the API that led to this answer; `None` if the API did not answer.
    pub(crate) fn received_for(&self, answer: &Answer) -> Option<Received> {
        self.guarded.api.received_for(answer)
    }

    /// Sends a request to the filter.
    pub(crate) fn send_to_filter(&self, request: &Request) -> Answer {
        self.guarded.send_to_filter(request)
    }

    /// Begins an impersonation through the filter.
    pub(crate) fn begin(&self, parties: &Parties) -> Begun {
        self.guarded.begin(parties)
    }

    /// Gives the running guard another configuration. Returns the reason if it refuses.
    pub(crate) fn update(&self, configuration: &Value) -> Result<(), String> {
        self.guarded.envoy.update(guarded_listener(configuration))
    }

    /// Moves the clock of filter and guard on, or back.
    pub(crate) fn advance(&self, seconds: i64) {
        self.ahead.set(self.ahead.get() + seconds);
        self.guarded.envoy.clock().set(self.ahead.get());
    }

    /// Returns what a counter has counted in this test.
    pub(crate) fn counted(&self, name: &str) -> u64 {
        self.guarded.envoy.metric(name).unwrap_or(0)
    }

    /// Returns the audit events of this many requests to the API.
    pub(crate) fn refusals(&self, count: usize) -> Vec<Value> {
        const BEGINNING: &str = "{\"event\":\"impersonated_request.";
        wait_for("the audit log", || {
            let log = self.guarded.envoy.log();
            let lines = log.lines().filter_map(|line| Some(&line[line.find(BEGINNING)?..]));
            let events: Vec<_> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
            Some(events).filter(|events| events.len() == count)
        })
    }

    /// Returns the access log of this many requests to the API.
    pub(crate) fn access_log(&self, count: usize) -> Vec<Value> {
        wait_for("the access log", || {
            Some(self.guarded.envoy.access_log()).filter(|lines| lines.len() == count)
        })
    }

    /// Returns the log of level info and above.
    pub(crate) fn log(&self) -> String {
        self.guarded.envoy.log()
    }
}
