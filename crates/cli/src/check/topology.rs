//! The parts of an Envoy that a request passes: listeners, the filters of each connection manager
//! in their order, and the routes behind the filters.

use super::routing::{self, Route};
use super::tree::{Place, messages};

const LISTENER: &str = "envoy.config.listener.v3.Listener";
pub(super) const MANAGER: &str =
    "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";

/// A listener.
pub(super) struct Listener<'d> {
    pub(super) place: Place<'d>,
    pub(super) name: String,
    /// The connection managers of the listener.
    pub(super) chains: Vec<Chain<'d>>,
    /// The filters that see connections: of the listener, and of its filter chains.
    pub(super) filters: Vec<Filter<'d>>,
}

/// A connection manager: filters, and the routes behind them.
pub(super) struct Chain<'d> {
    pub(super) manager: Place<'d>,
    /// The filters in their order.
    pub(super) filters: Vec<Filter<'d>>,
    /// `None` if the routes are not in this file.
    pub(super) routes: Option<Vec<Route<'d>>>,
}

/// A filter with its place in a list of filters.
pub(super) struct Filter<'d> {
    pub(super) entry: Place<'d>,
    /// The type of the filter; empty if the type is not in this file.
    pub(super) r#type: &'d str,
    pub(super) fields: Place<'d>,
}

/// Finds all listeners of a file: a bootstrap, a discovery response, or a dump of Envoy's
/// configuration.
pub(super) fn listeners<'d>(root: &Place<'d>) -> Vec<Listener<'d>> {
    let fixed = root.at(&["static_resources", "listeners"]);
    let fixed = fixed.into_iter().flat_map(|listeners| listeners.items());
    fixed
        .chain(messages(root, LISTENER))
        .enumerate()
        .map(|(index, place)| listener(place, index))
        .collect()
}

fn listener(place: Place<'_>, index: usize) -> Listener<'_> {
    let name = match place.text_of("name").filter(|name| !name.is_empty()) {
        Some(name) => name.to_owned(),
        None => format!("without a name ({index})"),
    };
    let chains = messages(&place, MANAGER).into_iter().map(chain).collect();
    let of_chains =
        place.list("filter_chains").into_iter().chain(place.get("default_filter_chain"));
    let filters = of_chains.flat_map(|chain| chain.list("filters"));
    let filters = filters.chain(place.list("listener_filters")).map(Filter::read).collect();
    Listener { place, name, chains, filters }
}

fn chain(manager: Place<'_>) -> Chain<'_> {
    let filters = manager.list("http_filters").into_iter().map(Filter::read).collect();
    // A virtual host may have a tree of matchers in place of routes, and plugins may replace
    // routes.
    let is_plain = |place: &Place<'_>| {
        ["vhds", "matcher", "route_specifiers"].iter().all(|name| place.get(name).is_none())
    };
    let is_here = |table: &Place<'_>| {
        let hosts = table.list("virtual_hosts");
        let mut routes = hosts.iter().flat_map(|host| host.list("routes"));
        is_plain(table) && hosts.iter().all(is_plain) && routes.all(|route| is_plain(&route))
    };
    let routes = manager.get("route_config").filter(is_here);
    let routes = routes.map(|table| routing::routes(&table));
    Chain { manager, filters, routes }
}

impl<'d> Filter<'d> {
    /// Reads an entry of a list of filters.
    pub(super) fn read(entry: Place<'d>) -> Self {
        match entry.get("typed_config").and_then(|typed| typed.message()) {
            Some(message) => Self { entry, r#type: message.r#type, fields: message.fields },
            None => Self { fields: entry.clone(), entry, r#type: "" },
        }
    }

    pub(super) fn name(&self) -> &str {
        self.entry.text_of("name").unwrap_or_default()
    }
}
