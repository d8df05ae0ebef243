//! The plugin in its place: the settings of Envoy that decide whether it can hang or be passed by.
//!
//! The plugin is found by its type wherever it is, so that bootstrap files, single listeners and
//! extension configurations can all be checked. What is not in the file is not guessed at: a route
//! table that comes by RDS is taken to be right.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use impersonation_core::config::{self, Config};
use impersonation_core::issuer::{MAX_BODY, Paths};
use serde_json::Value;

use super::Findings;
use super::guard::Issuer;
use super::plugin::{self, Assume, Variables};
use super::tree::{Place, member_path};
use super::{etcd, guard};

const WASM: &str = "envoy.extensions.filters.http.wasm.v3.Wasm";
const LISTENER: &str = "envoy.config.listener.v3.Listener";
const MANAGER: &str =
    "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
const FILTER_CONFIG: &str = "envoy.config.route.v3.FilterConfig";

/// Whether a configuration can only be ours.
pub(super) fn is_ours(configuration: &Place<'_>) -> bool {
    OUR_MEMBERS.iter().any(|name| configuration.get(name).is_some())
}

/// Members that no configuration but ours has.
const OUR_MEMBERS: [&str; 6] = [
    "signing_keys",
    "subject_tokens",
    "actor_tokens",
    "foreign_subject_tokens",
    "identity_gateway",
    "custom_claims",
];

/// Whether this is a file for Envoy rather than the plugin's own configuration.
pub(super) fn is_envoy(root: &Place<'_>) -> bool {
    const TOP: [&str; 5] = ["static_resources", "dynamic_resources", "node", "admin", "@type"];
    TOP.iter().any(|name| root.get(name).is_some())
        // A discovery response on disk. Ours has `resources` too, but they have no type.
        || root.list("resources").iter().any(|resource| resource.get("@type").is_some())
        || !plugins(root).is_empty()
}

/// Checks an Envoy configuration.
pub(super) fn check(root: &Place<'_>, assume: Assume, findings: &mut Findings) {
    if !check_plugins(root, &Clusters::read(root), assume, findings) {
        let found = plugins(root);
        let others = found.iter().map(|plugin| &*plugin.config.path).collect::<Vec<_>>().join(", ");
        let text = "the impersonation filter is nowhere in this file";
        match &*others {
            "" => findings.problem("", text),
            others => findings.problem("", format!("{text}; other Wasm filters are: {others}")),
        }
    }
}

/// Checks every plugin of ours, wherever it is. Whether there was one.
pub(super) fn check_plugins(
    root: &Place<'_>,
    clusters: &Clusters<'_>,
    assume: Assume,
    findings: &mut Findings,
) -> bool {
    let found = plugins(root);
    let mut managers = HashSet::new();
    let mut services = Vec::new();
    let mut issuers = Vec::new();
    for plugin in found.iter().filter(|plugin| plugin.is_ours() && !guard::is_guard(plugin)) {
        plugin.check_failure(findings);
        let base_path = plugin.base_path();
        let paths = Paths::new(&base_path);
        if let Some(manager) = plugin.around.manager.clone() {
            let manager = Manager(manager);
            if managers.insert(manager.0.path.clone()) {
                manager.check_timeouts(findings);
            }
            manager.check_buffers(plugin.around.listener.as_ref(), &paths, findings);
        }
        let config = plugin.check_configuration(assume, clusters, findings);
        services.push(Service { plugin, paths, tenant: config.as_ref().map(Config::tenant) });
        issuers.extend(config.map(|config| Issuer { plugin, config }));
    }
    check_reached(&services, findings);
    check_shared(&services, findings);
    guard::check(&found, &issuers, clusters, findings);
    !services.is_empty() || found.iter().any(guard::is_guard)
}

/// A Wasm filter and what is around it.
pub(super) struct Plugin<'d> {
    /// The `PluginConfig`.
    pub(super) config: Place<'d>,
    pub(super) around: Around<'d>,
}

#[derive(Clone, Default)]
pub(super) struct Around<'d> {
    listener: Option<Place<'d>>,
    pub(super) manager: Option<Place<'d>>,
    /// Its entry in `http_filters`.
    pub(super) filter: Option<Place<'d>>,
    /// The `typed_per_filter_config` that it is in.
    per_route: Option<Place<'d>>,
}

/// A plugin of ours that was checked.
struct Service<'p, 'd> {
    plugin: &'p Plugin<'d>,
    paths: Paths,
    /// `None` where the configuration is not valid.
    tenant: Option<String>,
}

/// All Wasm filters.
fn plugins<'d>(root: &Place<'d>) -> Vec<Plugin<'d>> {
    let mut found = Vec::new();
    find(root, &Around::default(), &mut found);
    found
}

fn find<'d>(place: &Place<'d>, around: &Around<'d>, found: &mut Vec<Plugin<'d>>) {
    let mut around = around.clone();
    let mut place = place.clone();
    if let Some(message) = place.message() {
        place = message.fields;
        match message.r#type {
            LISTENER => around.listener = Some(place.clone()),
            MANAGER => around.manager = Some(place.clone()),
            WASM => {
                let config = place.get("config").unwrap_or_else(|| place.clone());
                found.push(Plugin { config, around });
                return;
            }
            _ => {}
        }
    }
    for item in place.items() {
        find(&item, &around, found);
    }
    for (name, member) in place.members() {
        let mut around = around.clone();
        match name {
            "typed_per_filter_config" | "typedPerFilterConfig" => {
                around.per_route = Some(member.clone());
            }
            "http_filters" | "httpFilters" => {
                for filter in member.items() {
                    around.filter = Some(filter.clone());
                    find(&filter, &around, found);
                }
                continue;
            }
            "listeners" => {
                for listener in member.items() {
                    around.listener = Some(listener.clone());
                    find(&listener, &around, found);
                }
                continue;
            }
            _ => {}
        }
        find(&member, &around, found);
    }
}

impl<'d> Plugin<'d> {
    /// The path of a field of the plugin that is not there.
    pub(super) fn path_of(&self, name: &str) -> String {
        member_path(&self.config.path, name)
    }

    fn is_ours(&self) -> bool {
        self.is_named("impersonation_filter") || self.looks_ours()
    }

    /// Whether its module's file has this name.
    pub(super) fn is_named(&self, module: &str) -> bool {
        let code = self.config.at(&["vm_config", "code"]);
        let files = code.iter().flat_map(|code| {
            [code.at(&["local", "filename"]), code.at(&["remote", "http_uri", "uri"])]
        });
        files.flatten().filter_map(|file| file.text()).any(|file| {
            let name = file.rsplit('/').next().unwrap_or(file);
            name.replace('-', "_").contains(module)
        })
    }

    /// What its shared data belongs to.
    pub(super) fn vm_id(&self) -> String {
        let vm_config = self.config.get("vm_config");
        let vm_id = vm_config.and_then(|vm_config| vm_config.text_of("vm_id").map(str::to_owned));
        vm_id.unwrap_or_default()
    }

    fn looks_ours(&self) -> bool {
        let Some(configuration) = self.config.get("configuration") else { return false };
        let Some(value) = configuration.get("value") else { return false };
        match value.value {
            // It may be broken, and ours all the same.
            Value::String(text) => {
                OUR_MEMBERS.iter().any(|name| text.contains(&format!("\"{name}\"")))
            }
            _ => is_ours(&value),
        }
    }

    /// The configuration as the plugin gets it, and where it is written.
    pub(super) fn configuration(&self) -> Result<(Value, String), (String, String)> {
        let place = self.config.get("configuration").ok_or_else(|| {
            (
                self.path_of("configuration"),
                "is required: the plugin's own configuration".to_owned(),
            )
        })?;
        let r#type = place.text_of("@type").and_then(|url| url.rsplit('/').next());
        let value = place.get("value");
        let text = value.as_ref().and_then(Place::text);
        let decode = |path: &str, bytes: &[u8]| match config::decode(bytes) {
            Ok(value) => Ok((value, path.to_owned())),
            Err(error) => Err((path.to_owned(), error.to_string())),
        };
        match (r#type, value, text) {
            (Some("google.protobuf.Struct"), Some(value), _) => Ok((value.value.clone(), value.path)),
            (Some("google.protobuf.StringValue"), Some(value), Some(text)) => {
                decode(&value.path, text.as_bytes())
            }
            _ => Err((
                place.path,
                "expected a google.protobuf.Struct, or JSON in a google.protobuf.StringValue: @type and value".to_owned(),
            )),
        }
    }

    fn base_path(&self) -> String {
        let configuration = self.configuration().ok();
        let base_path = configuration.as_ref().and_then(|(value, _)| value.get("base_path"));
        base_path.and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    fn check_configuration(
        &self,
        assume: Assume,
        clusters: &Clusters<'_>,
        findings: &mut Findings,
    ) -> Option<Config> {
        match self.configuration() {
            Ok((value, path)) => {
                let place = Place { value: &value, path };
                clusters.check(&place, findings);
                clusters.check_store(&place, findings);
                plugin::check(&place, &self.variables(), assume, findings)
            }
            Err((path, text)) => {
                findings.problem(path, text);
                None
            }
        }
    }

    fn variables(&self) -> Variables<'d> {
        let environment = self.config.at(&["vm_config", "environment_variables"]);
        let path = environment.as_ref().map_or_else(
            || member_path(&self.path_of("vm_config"), "environment_variables"),
            |environment| environment.path.clone(),
        );
        let keys = environment.as_ref().map_or_else(Vec::new, |all| all.list("host_env_keys"));
        let given = environment.iter().filter_map(|environment| environment.get("key_values"));
        Variables::PassedOn {
            path: member_path(&path, "host_env_keys"),
            host: keys.iter().filter_map(Place::text).collect(),
            given: given
                .flat_map(|given| given.members())
                .filter_map(|(name, value)| Some((name, value.text()?)))
                .collect(),
        }
    }

    /// What happens when the plugin stops a request, or dies.
    fn check_failure(&self, findings: &mut Findings) {
        if let Some(per_route) = &self.around.per_route {
            findings.problem(
                &*per_route.path,
                "Envoy refuses a Wasm filter here: put it into http_filters with disabled: true, and a FilterConfig here",
            );
        }
        if !self.config.is_set("allow_on_headers_stop_iteration") {
            findings.problem(
                self.path_of("allow_on_headers_stop_iteration"),
                "must be true: without it no request body ever arrives, and every request of ours hangs",
            );
        }
        self.check_death(findings);
    }

    /// What happens when the plugin dies, or cannot be loaded.
    pub(super) fn check_death(&self, findings: &mut Findings) {
        if let Some(open) = self.config.get("fail_open").filter(|open| open.value == true) {
            findings.problem(open.path, "lets requests pass unchecked when the filter has crashed");
        }
        let policy = self.config.get("failure_policy");
        let path = policy
            .as_ref()
            .map_or_else(|| self.path_of("failure_policy"), |policy| policy.path.clone());
        let policy = policy.map(|policy| (policy.text(), policy.number()));
        match policy {
            Some((Some("FAIL_RELOAD"), _) | (_, Some(1))) => {}
            Some((Some("FAIL_OPEN"), _) | (_, Some(3))) => findings.problem(
                path,
                "must be FAIL_RELOAD: with FAIL_OPEN requests pass unchecked when the filter has crashed",
            ),
            _ => findings.problem(
                path,
                "must be FAIL_RELOAD: else a worker whose filter has crashed answers 503 until Envoy is restarted",
            ),
        }
        let filter = self.around.filter.as_ref();
        if let Some(optional) = filter.filter(|filter| filter.is_set("is_optional")) {
            findings.problem(
                member_path(&optional.path, "is_optional"),
                "lets every request pass when Envoy cannot load the filter",
            );
        }
    }
}

/// The HTTP connection manager.
struct Manager<'d>(Place<'d>);

/// A route, and the virtual host that it is in.
struct Route<'d> {
    route: Place<'d>,
    host: Place<'d>,
    table: Place<'d>,
}

impl<'d> Manager<'d> {
    fn check_timeouts(&self, findings: &mut Findings) {
        let path = |name| {
            self.0.get(name).map_or_else(|| member_path(&self.0.path, name), |place| place.path)
        };
        let timeout = |name| self.0.text_of(name).map(|text| !is_zero(text));
        if timeout("request_timeout") != Some(true) {
            findings.problem(
                path("request_timeout"),
                "must be set: requests that wait in a filter when it crashes hang until it runs out",
            );
        }
        match timeout("stream_idle_timeout") {
            Some(true) => {}
            Some(false) => findings.problem(
                path("stream_idle_timeout"),
                "must not be 0s: streams that wait in a filter when it crashes would hang for good",
            ),
            None => findings.warning(
                path("stream_idle_timeout"),
                "is not set: streams that wait in a filter when it crashes hang for 5 minutes",
            ),
        }
    }

    /// Envoy answers 413 itself when a body does not fit its buffer. Over HTTP/1 that is the listener's,
    /// over HTTP/2 the stream's window; a route that forwards can raise it, but not lower it.
    fn check_buffers(&self, listener: Option<&Place<'d>>, paths: &Paths, findings: &mut Findings) {
        let limits = [
            listener.and_then(|listener| listener.get("per_connection_buffer_limit_bytes")),
            self.0.at(&["http2_protocol_options", "initial_stream_window_size"]),
        ];
        for limit in limits.into_iter().flatten() {
            if limit.number().is_none_or(holds_a_body) || self.raises_limit(paths) {
                continue;
            }
            let text = format!(
                "must be at least {MAX_BODY}: Envoy would refuse bodies that the filter accepts \
                 (or set request_body_buffer_limit on the routes to {} and {})",
                paths.token, paths.subject_tokens
            );
            if !findings.findings.iter().any(|known| known.path == limit.path && known.text == text)
            {
                findings.problem(limit.path, text);
            }
        }
    }

    fn raises_limit(&self, paths: &Paths) -> bool {
        let Some(routes) = self.routes(&[&paths.token, &paths.subject_tokens]) else {
            return false;
        };
        !routes.is_empty()
            && routes.iter().all(|Route { route, host, .. }| {
                let limit = ["request_body_buffer_limit", "per_request_buffer_limit_bytes"]
                    .iter()
                    .find_map(|name| route.get(name).or_else(|| host.get(name)));
                let limit = limit.and_then(|limit| limit.number());
                route.get("route").is_some() && limit.is_some_and(holds_a_body)
            })
    }

    /// The routes that requests to one of `paths` may take; `None` if they are not in this file.
    fn routes(&self, paths: &[&str]) -> Option<Vec<Route<'d>>> {
        let table = self.0.get("route_config")?;
        let mut routes = Vec::new();
        for host in table.list("virtual_hosts") {
            for path in paths {
                for route in host.list("routes") {
                    let matches = match_of(&route, path);
                    if matches == Match::Never {
                        continue;
                    }
                    routes.push(Route { route, host: host.clone(), table: table.clone() });
                    if matches == Match::Always {
                        break;
                    }
                }
            }
        }
        Some(routes)
    }

    /// Whether a request to `path` can come to `filter`.
    fn reaches(&self, filter: &Place<'d>, path: &str) -> bool {
        let in_chain = !filter.is_set("disabled");
        let Some(routes) = self.routes(&[path]) else { return true };
        if routes.is_empty() {
            return in_chain;
        }
        let name = filter.text_of("name").unwrap_or_default();
        routes.iter().any(|Route { route, host, table }| {
            let settings = [route, host, table].into_iter().find_map(|place| {
                place.get("typed_per_filter_config")?.members().find(|(key, _)| *key == name)
            });
            let settings = settings.and_then(|(_, settings)| settings.message());
            match settings {
                Some(settings) if settings.r#type == FILTER_CONFIG => {
                    !settings.fields.is_set("disabled")
                }
                _ => in_chain,
            }
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Match {
    Never,
    /// It depends on more than the path.
    Perhaps,
    Always,
}

/// Whether a route takes requests to `path`.
fn match_of(route: &Place<'_>, path: &str) -> Match {
    const CONDITIONS: [&str; 6] = [
        "headers",
        "query_parameters",
        "cookies",
        "runtime_fraction",
        "tls_context",
        "dynamic_metadata",
    ];
    let Some(rule) = route.get("match") else { return Match::Perhaps };
    let fold = |text: &str| {
        if rule.get("case_sensitive").is_some_and(|place| *place.value == Value::Bool(false)) {
            text.to_ascii_lowercase()
        } else {
            text.to_owned()
        }
    };
    let path = fold(path);
    let matches = if let Some(prefix) = rule.text_of("prefix") {
        path.starts_with(&fold(prefix))
    } else if let Some(whole) = rule.text_of("path") {
        path == fold(whole)
    } else if let Some(prefix) = rule.text_of("path_separated_prefix") {
        path.strip_prefix(&fold(prefix))
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    } else {
        return Match::Perhaps;
    };
    match matches {
        false => Match::Never,
        true if CONDITIONS.iter().any(|name| rule.get(name).is_some()) => Match::Perhaps,
        true => Match::Always,
    }
}

fn holds_a_body(limit: u64) -> bool {
    usize::try_from(limit).is_ok_and(|limit| limit >= MAX_BODY)
}

/// A protobuf duration: `0s`, `1.5s`.
fn is_zero(duration: &str) -> bool {
    let seconds = duration.strip_suffix('s').unwrap_or(duration);
    seconds.bytes().all(|byte| byte == b'0' || byte == b'.')
}

/// Whether subject tokens are kept in etcd: then there are no endpoints to see and end impersonations by.
fn in_etcd(configuration: &Place<'_>) -> bool {
    // As a `StringValue` it is text, and not looked into: it is asked for too much rather than for too little.
    let inside =
        |place: &Place<'_>| place.get("store").is_some_and(|store| store.get("etcd").is_some());
    inside(configuration)
        || configuration.get("value").is_some_and(|configuration| inside(&configuration))
}

/// Says which of our paths no request comes by to the filter, in any listener.
fn check_reached(services: &[Service<'_, '_>], findings: &mut Findings) {
    for service in services {
        let Some(filter) = &service.plugin.around.filter else { continue };
        let earlier = services
            .iter()
            .take_while(|other| other.plugin.config.path != service.plugin.config.path)
            .any(|other| other.paths == service.paths);
        if earlier {
            continue;
        }
        let reached = |path: &str| {
            services.iter().filter(|other| other.paths == service.paths).any(|other| {
                let around = &other.plugin.around;
                match (&around.manager, &around.filter) {
                    (Some(manager), Some(filter)) => Manager(manager.clone()).reaches(filter, path),
                    _ => true,
                }
            })
        };
        let Paths {
            subject_tokens,
            impersonations,
            revocations,
            token,
            token_revocation,
            token_introspection,
            jwks,
            discovery,
        } = &service.paths;
        for path in [subject_tokens, token].into_iter().filter(|path| !reached(path)) {
            findings.problem(
                &*filter.path,
                format!("is disabled on every route to {path}: those requests pass it by"),
            );
        }
        for path in [jwks, discovery].into_iter().filter(|path| !reached(path)) {
            findings.warning(
                &*filter.path,
                format!("is disabled on every route to {path}: it publishes nothing there"),
            );
        }
        let configuration = service.plugin.config.get("configuration");
        if configuration.is_some_and(|configuration| in_etcd(&configuration)) {
            continue;
        }
        // One of those that have an id behind them.
        let one = |folder: &str| format!("{folder}/0");
        let (one_token, one_impersonation) = (one(subject_tokens), one(impersonations));
        let of_oversight = [
            &one_token,
            impersonations,
            &one_impersonation,
            revocations,
            token_revocation,
            token_introspection,
        ];
        let shown = |path: &String| match path.strip_suffix("/0") {
            Some(folder) => format!("{folder}/{{id}}"),
            None => path.clone(),
        };
        let passed_by: Vec<_> =
            of_oversight.into_iter().filter(|path| !reached(path)).map(shown).collect();
        if !passed_by.is_empty() {
            findings.warning(
                &*filter.path,
                format!(
                    "is disabled on every route to {}: impersonations cannot be seen or ended there",
                    passed_by.join(", ")
                ),
            );
        }
    }
}

/// Says which plugins will not know each other's subject tokens although they serve the same service.
fn check_shared(services: &[Service<'_, '_>], findings: &mut Findings) {
    let vm_id = |service: &Service<'_, '_>| service.plugin.vm_id();
    for (index, service) in services.iter().enumerate() {
        let stranger = services.iter().take(index).find(|other| {
            service.tenant.is_some()
                && service.tenant == other.tenant
                && vm_id(service) != vm_id(other)
        });
        if let Some(stranger) = stranger {
            let path = member_path(&service.plugin.path_of("vm_config"), "vm_id");
            let other = &stranger.plugin.config.path;
            findings.problem(
                path,
                format!(
                    "must be the same as in {other}, else neither knows the other's subject tokens"
                ),
            );
        }
    }
}

/// Whatever has a cluster's endpoints and a name.
fn added<'d>(place: &Place<'d>) -> Vec<Place<'d>> {
    let is_cluster = place.text_of("name").is_some() && place.get("load_assignment").is_some();
    let mut found: Vec<_> = is_cluster.then(|| place.clone()).into_iter().collect();
    found.extend(place.children().iter().flat_map(added));
    found
}

/// Envoy's clusters, as far as they are in the file.
pub(super) struct Clusters<'d> {
    /// `None` in a file that has none because they are elsewhere.
    by_name: Option<HashMap<&'d str, Place<'d>>>,
    /// Those that manifests add to what their product makes.
    added: Vec<Place<'d>>,
    /// Whether more of them come by CDS.
    discovered: bool,
    /// Where those are that were judged already: what is wrong is said once, however many keep something there.
    judged: RefCell<HashSet<String>>,
}

impl<'d> Clusters<'d> {
    pub(super) fn read(root: &Place<'d>) -> Self {
        let by_name = root.get("static_resources").map(|resources| {
            let clusters = resources.list("clusters").into_iter();
            clusters.filter_map(|cluster| Some((cluster.text_of("name")?, cluster))).collect()
        });
        let added = if by_name.is_some() { Vec::new() } else { added(root) };
        let discovered = root.at(&["dynamic_resources", "cds_config"]).is_some();
        Self { by_name, added, discovered, judged: RefCell::default() }
    }

    /// Checks every `http_uri` below `place`.
    fn check(&self, place: &Place<'_>, findings: &mut Findings) {
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

    /// Checks the cluster that a configuration keeps tokens or revocations in, if it names one.
    pub(super) fn check_store(&self, configuration: &Place<'_>, findings: &mut Findings) {
        let Some(named) = configuration.at(&["store", "etcd", "cluster"]) else { return };
        let Some(name) = named.text() else { return };
        let known = self.by_name.as_ref().and_then(|by_name| by_name.get(name)).into_iter();
        // Manifests may add one of the same name to several Envoys.
        let added = self.added.iter().filter(|cluster| cluster.text_of("name") == Some(name));
        let its: Vec<_> = known.chain(added).collect();
        if its.is_empty() && self.by_name.is_some() {
            self.is_missing(name, &named, findings);
        }
        for cluster in its {
            let is_new = self.judged.borrow_mut().insert(cluster.path.clone());
            if is_new {
                etcd::check_cluster(cluster, findings);
            }
        }
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
