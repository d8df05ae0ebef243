//! The parts of an Envoy that a request passes: listeners, the filters of each connection manager
//! in their order, and the routes behind the filters.

use super::routing::{self, Route};
use super::tree::{Place, messages};

const LISTENER: &str = "envoy.config.listener.v3.Listener";
const MANAGER: &str =
    "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
const TCP_PROXY: &str = "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy";

/// A listener.
pub(super) struct Listener<'d> {
    pub(super) place: Place<'d>,
    pub(super) name: String,
    /// The connection managers of the listener.
    pub(super) chains: Vec<Chain<'d>>,
    /// The clusters to which `tcp_proxy` passes connections on.
    pub(super) piped_to: Vec<(&'d str, Place<'d>)>,
}

/// A connection manager: filters, and the routes behind them.
pub(super) struct Chain<'d> {
    pub(super) manager: Place<'d>,
    /// The filters in their order.
    pub(super) filters: Vec<Filter<'d>>,
    /// `None` if the routes are not in this file.
    pub(super) routes: Option<Vec<Route<'d>>>,
}

/// An entry of `http_filters`.
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
    let piped_to = messages(&place, TCP_PROXY).iter().flat_map(piped_to).collect();
    let chains = messages(&place, MANAGER).into_iter().map(chain).collect();
    Listener { place, name, chains, piped_to }
}

fn piped_to<'d>(proxy: &Place<'d>) -> Vec<(&'d str, Place<'d>)> {
    let weighted = proxy.get("weighted_clusters");
    let weighted = weighted.map_or_else(Vec::new, |weighted| weighted.list("clusters"));
    let names = weighted.iter().filter_map(|cluster| cluster.text_of("name"));
    proxy.text_of("cluster").into_iter().chain(names).map(|name| (name, proxy.clone())).collect()
}

fn chain(manager: Place<'_>) -> Chain<'_> {
    let filters = manager.list("http_filters").into_iter().map(|entry| {
        let message = entry.get("typed_config").and_then(|typed| typed.message());
        match message {
            Some(message) => Filter { entry, r#type: message.r#type, fields: message.fields },
            None => Filter { fields: entry.clone(), entry, r#type: "" },
        }
    });
    let filters = filters.collect();
    // A virtual host may have a tree of matchers in place of routes.
    let is_here = |table: &Place<'_>| {
        table.get("vhds").is_none()
            && table.list("virtual_hosts").iter().all(|host| host.get("matcher").is_none())
    };
    let routes = manager.get("route_config").filter(is_here);
    let routes = routes.map(|table| routing::routes(&table));
    Chain { manager, filters, routes }
}

impl Filter<'_> {
    pub(super) fn name(&self) -> &str {
        self.entry.text_of("name").unwrap_or_default()
    }
}
