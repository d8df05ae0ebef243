//! The servers to which a cluster leads.
//!
//! A name alone does not tell: another cluster may have the same address, an aggregate cluster has
//! others inside, and some clusters go wherever the request says.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use super::tree::{Place, messages};

const CLUSTER: &str = "envoy.config.cluster.v3.Cluster";
const AGGREGATE: &str = "envoy.extensions.clusters.aggregate.v3.ClusterConfig";
const DNS: &str = "envoy.extensions.clusters.dns.v3.DnsCluster";
const HTTP_OPTIONS: &str = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";

/// All clusters of a file.
pub(super) struct Reach<'d>(HashMap<&'d str, Place<'d>>);

/// The servers behind some clusters.
#[derive(Debug, Default)]
pub(super) struct Servers<'d> {
    /// The clusters, with those inside aggregate clusters.
    names: HashSet<&'d str>,
    addresses: HashSet<String>,
    /// A cluster that may lead to any server.
    anywhere: bool,
    /// A cluster whose addresses are not in the file.
    pub(super) unseen: bool,
}

/// The reason why a cluster leads to certain servers.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Meeting {
    SameCluster,
    /// The cluster has this one inside.
    Inside(String),
    SameAddress(String),
    Anywhere,
}

impl<'d> Reach<'d> {
    pub(super) fn read(root: &Place<'d>) -> Self {
        let fixed = root.at(&["static_resources", "clusters"]);
        let fixed = fixed.into_iter().flat_map(|clusters| clusters.items());
        let all = fixed.chain(messages(root, CLUSTER));
        Self(all.filter_map(|cluster| Some((cluster.text_of("name")?, cluster))).collect())
    }

    /// Returns the servers behind a cluster.
    pub(super) fn servers(&self, name: &'d str) -> Servers<'d> {
        let mut servers = Servers::default();
        self.add(name, &mut servers);
        servers
    }

    fn add(&self, name: &'d str, servers: &mut Servers<'d>) {
        if !servers.names.insert(name) {
            return;
        }
        let Some(cluster) = self.0.get(name) else {
            servers.unseen = true;
            return;
        };
        let kind = cluster.get("cluster_type").map(|kind| kind.get("typed_config"));
        match (kind, cluster.text_of("type").unwrap_or("STATIC")) {
            (Some(kind), _) => match kind.and_then(|kind| kind.message()) {
                Some(message) if message.r#type == DNS => {}
                Some(message) if message.r#type == AGGREGATE => {
                    for inner in message.fields.list("clusters") {
                        inner.text().into_iter().for_each(|name| self.add(name, servers));
                    }
                    return;
                }
                _ => servers.anywhere = true,
            },
            (None, "STATIC" | "STRICT_DNS" | "LOGICAL_DNS") => {}
            (None, "EDS") => servers.unseen = true,
            (None, _) => servers.anywhere = true,
        }
        if let Some(assignment) = cluster.get("load_assignment") {
            add_addresses(&assignment, &mut servers.addresses);
        }
    }

    /// Returns the options of a cluster for HTTP.
    pub(super) fn http_options(&self, name: &str) -> Option<Place<'d>> {
        let options = self.0.get(name)?.get("typed_extension_protocol_options")?;
        let mut options = options.members().filter_map(|(_, options)| options.message());
        options.find(|message| message.r#type == HTTP_OPTIONS).map(|message| message.fields)
    }
}

impl<'d> Servers<'d> {
    pub(super) fn extend(&mut self, other: Self) {
        self.names.extend(other.names);
        self.addresses.extend(other.addresses);
        self.anywhere |= other.anywhere;
        self.unseen |= other.unseen;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Finds out how the cluster of this name leads to `others`, if it does.
    pub(super) fn meet(&self, name: &str, others: &Self) -> Option<Meeting> {
        if others.is_empty() {
            return None;
        }
        if others.names.contains(name) {
            return Some(Meeting::SameCluster);
        }
        let inside = self.names.iter().find(|name| others.names.contains(*name));
        let address = || self.addresses.iter().find(|address| others.addresses.contains(*address));
        let inside = inside.map(|name| Meeting::Inside((*name).to_owned()));
        let found = inside.or_else(|| address().map(|it| Meeting::SameAddress(it.clone())));
        found.or_else(|| self.anywhere.then_some(Meeting::Anywhere))
    }
}

/// Adds every address below a place, as text.
fn add_addresses(place: &Place<'_>, addresses: &mut HashSet<String>) {
    if let Some(socket) = place.get("socket_address") {
        let host = socket.text_of("address").unwrap_or_default().to_ascii_lowercase();
        let host = match host.parse::<IpAddr>() {
            Ok(ip) if ip.to_canonical().is_loopback() => "localhost".to_owned(),
            Ok(ip) => ip.to_canonical().to_string(),
            Err(_) => host.trim_end_matches('.').to_owned(),
        };
        let port = socket.get("port_value").and_then(|port| port.number());
        let port = port.map_or_else(
            || socket.text_of("named_port").unwrap_or_default().to_owned(),
            |port| port.to_string(),
        );
        addresses.insert(format!("{host}:{port}"));
    }
    let others = [&["pipe", "path"], &["envoy_internal_address", "server_listener_name"]];
    addresses.extend(others.iter().filter_map(|path| Some(place.at(*path)?.text()?.to_owned())));
    place.items().for_each(|item| add_addresses(&item, addresses));
    for (_, member) in place.members().filter(|(name, _)| *name != "health_check_config") {
        add_addresses(&member, addresses);
    }
}
