//! Checks an Envoy configuration with the filter or the guard in it.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::binding;
use super::clusters::Clusters;
use super::findings::{Findings, Severity};
use super::guard::{self, Issuer};
use super::logs;
use super::look_alikes;
use super::manager::Manager;
use super::plugin::Assume;
use super::proof::{self, EnvoyFile};
use super::protobuf::{self, BOOTSTRAP, CONFIG_DUMP, Canonical, DISCOVERY_RESPONSE};
use super::reached::{self, Service};
use super::sessions::OrdinaryHosts;
use super::topology;
use super::tree::Place;
use super::versions::{self, EnvoyVersion};
use super::wasm;

/// The form of an Envoy configuration.
#[derive(Debug, Clone, Copy)]
pub(super) enum Form {
    /// The whole file is a message of this type.
    Message(&'static str),
    /// Messages with their types are somewhere in the file.
    Within,
}

/// Returns the form of a file of Envoy's, and `None` for a plugin's own configuration.
pub(super) fn form(root: &Place<'_>) -> Option<Form> {
    const TOP: [&str; 4] = ["static_resources", "dynamic_resources", "node", "admin"];
    let is_top = |name| protobuf::field_name(BOOTSTRAP, name).is_some_and(|it| TOP.contains(&it));
    let has_types = |name| root.list(name).iter().any(|item| item.get("@type").is_some());
    if root.members().any(|(name, _)| is_top(name)) {
        Some(Form::Message(BOOTSTRAP))
    } else if has_types("resources") {
        // A discovery response on disk. The filter has `resources` too, without a type.
        Some(Form::Message(DISCOVERY_RESPONSE))
    } else if has_types("configs") {
        Some(Form::Message(CONFIG_DUMP))
    } else {
        let is_one = root.get("@type").is_some() || !wasm::plugins(root).is_empty();
        is_one.then_some(Form::Within)
    }
}

impl Form {
    /// Reads a file as Envoy does.
    pub(super) fn read(self, value: &Value, lines: HashMap<String, usize>) -> Canonical {
        match self {
            Self::Message(message) => protobuf::read(message, value, lines),
            Self::Within => protobuf::read_within(value, lines),
        }
    }
}

/// Checks an Envoy configuration.
pub(super) fn check(
    root: &Place<'_>,
    assume: Assume,
    version: EnvoyVersion,
    ordinary: &OrdinaryHosts,
    findings: &mut Findings,
) {
    let clusters = Clusters::read(root);
    if check_plugins(root, &clusters, assume, version, ordinary, findings) {
        check_admin(root, findings);
        check_listeners_differ(root, findings);
        return;
    }
    let found = wasm::plugins(root);
    let others = found.iter().map(|plugin| &*plugin.config.path).collect::<Vec<_>>().join(", ");
    let text = "the impersonation filter is nowhere in this file";
    match &*others {
        "" => findings.problem("", text),
        others => findings.problem("", format!("{text}; other Wasm filters are: {others}")),
    }
}

/// Checks every filter and guard, and the settings around them. Returns true if the file has one.
pub(super) fn check_plugins(
    root: &Place<'_>,
    clusters: &Clusters<'_>,
    assume: Assume,
    version: EnvoyVersion,
    ordinary: &OrdinaryHosts,
    findings: &mut Findings,
) -> bool {
    versions::check(root, version, findings);
    versions::check_expressions(root, version, findings);
    let found = wasm::plugins(root);
    let filters: Vec<_> = found.iter().filter(|plugin| plugin.is_filter()).collect();
    let guard_plugins: Vec<_> = found.iter().filter(|plugin| plugin.is_guard()).collect();
    let mut managers = HashSet::new();
    let mut services = Vec::new();
    let mut issuers = Vec::new();
    for plugin in filters.iter().chain(&guard_plugins) {
        versions::check_variables(plugin, version, findings);
    }
    for plugin in &filters {
        plugin.check_failure(findings);
        let paths = plugin.paths();
        if let Some(manager) = plugin.around.manager.clone() {
            let manager = Manager(manager);
            if managers.insert(manager.0.path.clone()) {
                manager.check_timeouts(findings);
            }
            let listener = plugin.around.listener.as_ref();
            manager.check_buffers(listener, &paths, version, findings);
        }
        // One configuration can stand on several listeners, and its faults are reported once.
        let mut earlier =
            filters.iter().take_while(|other| other.config.path != plugin.config.path);
        let mut known = Findings::default();
        let findings = match earlier.any(|other| other.is_the_same(plugin)) {
            true => &mut known,
            false => &mut *findings,
        };
        ordinary.check_apart(plugin, findings);
        let checked = plugin.check_configuration(assume, clusters, findings);
        let tenant = checked.as_ref().map(|checked| checked.config.tenant());
        services.push(Service { plugin, paths, tenant });
        issuers.extend(checked.map(|checked| Issuer { plugin, checked }));
    }
    reached::check_reached(&services, findings);
    reached::check_shared(&services, findings);
    look_alikes::check(&services, findings);
    logs::check(root, findings);
    let guards = guard::read(&found, &issuers, clusters, assume, findings);
    let file = EnvoyFile {
        root,
        clusters,
        filters: &filters,
        issuers: &issuers,
        guards: &guards,
        guard_plugins: &guard_plugins,
        ordinary,
    };
    binding::check(&file, findings);
    findings.proved = proof::check(&file, findings);
    !filters.is_empty() || !guard_plugins.is_empty()
}

/// Reports an admin interface that other machines reach: it stops Envoy and shows the
/// configuration.
fn check_admin(root: &Place<'_>, findings: &mut Findings) {
    let Some(address) = root.at(&["admin", "address", "socket_address", "address"]) else { return };
    let is_local = address.text().is_some_and(|text| {
        text == "localhost" || text.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
    });
    if !is_local {
        findings.warning(
            address.path,
            "lets others than this machine reach the admin interface, which stops Envoy and shows its configuration, and anybody's secrets in it: listen on 127.0.0.1",
        );
    }
}

/// Reports listeners with the same name or address, of which Envoy starts at most one.
fn check_listeners_differ(root: &Place<'_>, findings: &mut Findings) {
    let listeners = topology::listeners(root);
    let address = |place: &Place<'_>| {
        let address = place.at(&["address", "socket_address"])?;
        let port = address.get("port_value")?.number().filter(|port| *port != 0)?;
        Some((address.text_of("address").unwrap_or_default().to_owned(), port))
    };
    for (index, one) in listeners.iter().enumerate() {
        for other in listeners.iter().take(index) {
            let same_name = one.place.text_of("name").is_some() && one.name == other.name;
            let same_address =
                address(&one.place).is_some() && address(&one.place) == address(&other.place);
            if same_name || same_address {
                findings.add_about(
                    Severity::Problem,
                    one.place.path.clone(),
                    format!("listener {}", one.name),
                    format!(
                        "it has the {} of {}, and Envoy does not serve both: give it its own",
                        if same_name { "name" } else { "address" },
                        other.place.path
                    ),
                );
            }
        }
    }
}
