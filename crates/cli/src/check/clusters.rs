//! Checks the clusters that the plugins call: they must exist and speak the expected protocol.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use super::etcd;
use super::findings::Findings;
use super::tree::Place;

/// Finds everything that has a name and a cluster's endpoints.
fn added<'d>(place: &Place<'d>) -> Vec<Place<'d>> {
    let is_cluster = place.text_of("name").is_some() && place.get("load_assignment").is_some();
    let mut found: Vec<_> = is_cluster.then(|| place.clone()).into_iter().collect();
    found.extend(place.children().iter().flat_map(added));
    found
}

/// The clusters of a file.
pub(super) struct Clusters<'d> {
    /// `None` for a file without `static_resources`, whose clusters are elsewhere.
    by_name: Option<HashMap<&'d str, Place<'d>>>,
    /// Clusters that manifests add to those of their product.
    added: Vec<Place<'d>>,
    /// More clusters come by CDS.
    discovered: bool,
    /// The paths of the etcd clusters that were checked, so that each fault is reported once.
    checked: RefCell<HashSet<String>>,
}

impl<'d> Clusters<'d> {
    pub(super) fn read(root: &Place<'d>) -> Self {
        let by_name = root.get("static_resources").map(|resources| {
            let clusters = resources.list("clusters").into_iter();
            clusters.filter_map(|cluster| Some((cluster.text_of("name")?, cluster))).collect()
        });
        let added = if by_name.is_some() { Vec::new() } else { added(root) };
        let discovered = root.at(&["dynamic_resources", "cds_config"]).is_some();
        Self { by_name, added, discovered, checked: RefCell::default() }
    }

    /// Checks the cluster of every `http_uri` below `place`.
    pub(super) fn check(&self, place: &Place<'_>, findings: &mut Findings) {
        let Some(by_name) = &self.by_name else { return };
        for (name, member) in place.members() {
            let cluster = member.get("cluster").filter(|_| name == "http_uri");
            let Some((cluster, name)) =
                cluster.and_then(|cluster| Some((cluster.clone(), cluster.text()?)))
            else {
                continue;
            };
            let https = member.text_of("uri").is_some_and(|uri| uri.starts_with("https:"));
            match by_name.get(name) {
                Some(known) if https && !has_tls(known) => findings.warning(
                    &*cluster.path,
                    format!("the cluster {name:?} has no TLS transport_socket, although the uri says https"),
                ),
                Some(_) => {}
                None => self.is_missing(name, &cluster, findings),
            }
        }
        for child in place.children() {
            self.check(&child, findings);
        }
    }

    /// Checks the cluster of `identity_gateway`, if a configuration has one. Whether it speaks TLS
    /// is the business of the routes to it.
    pub(super) fn check_gateway(&self, configuration: &Place<'_>, findings: &mut Findings) {
        let Some(by_name) = &self.by_name else { return };
        let Some(named) = configuration.at(&["identity_gateway", "cluster"]) else { return };
        if let Some(name) = named.text().filter(|name| !by_name.contains_key(*name)) {
            self.is_missing(name, &named, findings);
        }
    }

    /// Checks the cluster of `store.etcd`, if a configuration has one.
    pub(super) fn check_store(&self, configuration: &Place<'_>, findings: &mut Findings) {
        let Some(named) = configuration.at(&["store", "etcd", "cluster"]) else { return };
        let Some(name) = named.text() else { return };
        let known = self.by_name.as_ref().and_then(|by_name| by_name.get(name)).into_iter();
        // Manifests may add clusters of the same name to several Envoys.
        let added = self.added.iter().filter(|cluster| cluster.text_of("name") == Some(name));
        let its: Vec<_> = known.chain(added).collect();
        if its.is_empty() && self.by_name.is_some() {
            self.is_missing(name, &named, findings);
        }
        for cluster in its {
            let is_new = self.checked.borrow_mut().insert(cluster.path.clone());
            if is_new {
                etcd::check_cluster(cluster, findings);
            }
        }
    }

    /// Returns the ports of a cluster's endpoints; `None` if they are not in the file.
    pub(super) fn ports(&self, name: &str) -> Option<Vec<u64>> {
        let cluster = self.by_name.as_ref()?.get(name)?;
        let localities = cluster.get("load_assignment")?.list("endpoints");
        let endpoints = localities.iter().flat_map(|locality| locality.list("lb_endpoints"));
        let ports: Vec<_> = endpoints
            .filter_map(|endpoint| {
                endpoint.at(&["endpoint", "address", "socket_address", "port_value"])?.number()
            })
            .collect();
        (!ports.is_empty()).then_some(ports)
    }

    fn is_missing(&self, name: &str, named: &Place<'_>, findings: &mut Findings) {
        if self.discovered {
            findings.warning(
                &*named.path,
                format!("the cluster {name:?} is not in this file: it must come by CDS"),
            );
        } else {
            findings.problem(&*named.path, format!("there is no cluster {name:?}"));
        }
    }
}

fn has_tls(cluster: &Place<'_>) -> bool {
    cluster.get("transport_socket").is_some() || cluster.get("transport_socket_matches").is_some()
}
