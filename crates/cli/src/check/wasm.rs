//! Finds the Wasm filters of a file, tells filter and guard apart, and checks what Envoy does with
//! requests when a plugin fails.
//!
//! A plugin is found by its type, so `check` can read bootstrap files, single listeners and
//! extension configurations.

use std::path::Path;

use impersonation_core::config;
use impersonation_issuer::issuer::Paths;
use serde_json::Value;

use super::clusters::Clusters;
use super::findings::{Doubt, Findings, Severity};
use super::plugin::{self, Assume, Checked, Variables};
use super::tree::{Place, member_path};

const WASM: &str = "envoy.extensions.filters.http.wasm.v3.Wasm";
const LISTENER: &str = "envoy.config.listener.v3.Listener";
const MANAGER: &str =
    "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";

/// The settings of a plugin, and of its VM, with which it sees every request. With
/// `capability_restriction_config` Envoy may leave the callbacks out.
const OF_PLUGINS: [&str; 8] = [
    "allow_on_headers_stop_iteration",
    "configuration",
    "fail_open",
    "failure_policy",
    "name",
    "reload_config",
    "root_id",
    "vm_config",
];
const OF_VMS: [&str; 7] = [
    "allow_precompiled",
    "code",
    "configuration",
    "environment_variables",
    "nack_on_code_cache_miss",
    "runtime",
    "vm_id",
];

/// The runtime of code that is a part of Envoy.
const NO_RUNTIME: &str = "envoy.wasm.runtime.null";

/// Returns true if a configuration can only be the filter's.
pub(super) fn is_ours(configuration: &Place<'_>) -> bool {
    OUR_MEMBERS.iter().any(|name| configuration.get(name).is_some())
}

/// Members that only the filter's configuration has.
const OUR_MEMBERS: [&str; 6] = [
    "signing_keys",
    "subject_tokens",
    "actor_tokens",
    "foreign_subject_tokens",
    "identity_gateway",
    "custom_claims",
];

/// Returns true if a configuration can only be the guard's.
pub(super) fn looks_like_a_guards(configuration: &Place<'_>) -> bool {
    const MEMBERS: [&str; 3] = ["payload_in_metadata", "max_staleness", "mode"];
    !is_ours(configuration) && MEMBERS.iter().any(|name| configuration.get(name).is_some())
}

/// A Wasm plugin, and its place in the file.
pub(super) struct Plugin<'d> {
    /// The `PluginConfig`.
    pub(super) config: Place<'d>,
    pub(super) around: Around<'d>,
}

#[derive(Clone, Default)]
pub(super) struct Around<'d> {
    pub(super) listener: Option<Place<'d>>,
    pub(super) manager: Option<Place<'d>>,
    /// The plugin's entry in `http_filters`.
    pub(super) filter: Option<Place<'d>>,
    /// The `typed_per_filter_config` that has the plugin.
    per_route: Option<Place<'d>>,
}

/// Finds all Wasm plugins.
pub(super) fn plugins<'d>(root: &Place<'d>) -> Vec<Plugin<'d>> {
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
            "typed_per_filter_config" => {
                around.per_route = Some(member.clone());
            }
            "http_filters" => {
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
    /// Returns the path of a field of the plugin, also if the field is absent.
    pub(super) fn path_of(&self, name: &str) -> String {
        member_path(&self.config.path, name)
    }

    /// Returns true if another plugin has the same configuration in the same VM.
    pub(super) fn is_the_same(&self, other: &Self) -> bool {
        let member = |plugin: &Self, name| plugin.config.get(name).map(|member| member.value);
        let is_the_same = |name| member(self, name) == member(other, name);
        is_the_same("configuration") && is_the_same("vm_config")
    }

    /// Returns true if the plugin can only be the filter.
    pub(super) fn is_filter(&self) -> bool {
        !self.is_guard() && (self.is_named("impersonation_filter") || self.looks_ours())
    }

    /// Returns true if the plugin can only be the guard.
    pub(super) fn is_guard(&self) -> bool {
        self.is_named("impersonation_guard")
            || self
                .configuration()
                .is_ok_and(|(value, path)| looks_like_a_guards(&Place { value: &value, path }))
    }

    /// Returns true if the file of the plugin's module has this name.
    fn is_named(&self, module: &str) -> bool {
        let code = self.config.at(&["vm_config", "code"]);
        let files = code.iter().flat_map(|code| {
            [code.at(&["local", "filename"]), code.at(&["remote", "http_uri", "uri"])]
        });
        files.flatten().filter_map(|file| file.text()).any(|file| {
            let name = file.rsplit('/').next().unwrap_or(file);
            name.replace('-', "_").contains(module)
        })
    }

    /// Returns the `vm_id`, to which the plugin's shared data belongs.
    pub(super) fn vm_id(&self) -> String {
        let vm_config = self.config.get("vm_config");
        let vm_id = vm_config.and_then(|vm_config| vm_config.text_of("vm_id").map(str::to_owned));
        vm_id.unwrap_or_default()
    }

    fn looks_ours(&self) -> bool {
        let Some(configuration) = self.config.get("configuration") else { return false };
        let Some(value) = configuration.get("value") else { return false };
        match value.value {
            // JSON that does not parse can still be the filter's.
            Value::String(text) => {
                OUR_MEMBERS.iter().any(|name| text.contains(&format!("\"{name}\"")))
            }
            _ => is_ours(&value),
        }
    }

    /// Returns the configuration as the plugin gets it, with its path.
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

    /// The paths of the filter's endpoints, also if the configuration is not valid.
    pub(super) fn paths(&self) -> Paths {
        match self.configuration() {
            Ok((configuration, _)) => Paths::of_unchecked(&configuration),
            Err(_) => Paths::new(""),
        }
    }

    pub(super) fn check_configuration(
        &self,
        assume: Assume,
        clusters: &Clusters<'_>,
        findings: &mut Findings,
    ) -> Option<Checked> {
        match self.configuration() {
            Ok((value, path)) => {
                let place = Place { value: &value, path };
                clusters.check(&place, findings);
                clusters.check_store(&place, findings);
                clusters.check_gateway(&place, findings);
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

    /// Checks the settings for a plugin that holds requests back, and for one that fails.
    pub(super) fn check_failure(&self, findings: &mut Findings) {
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
        self.check_crash(findings);
    }

    /// Finds settings for which the guard's code is not there, or does not see every request.
    pub(super) fn check_code(&self, assume: Assume) -> Vec<(Severity, Doubt)> {
        let mut faults = Vec::new();
        let mut problem = |path: String, text: String| {
            faults.push((Severity::Problem, Doubt::new(path, text)));
        };
        let vm_config = self.config.get("vm_config");
        let of_vm = vm_config.iter().filter_map(|vm_config| vm_config.other_than(&OF_VMS));
        for other in self.config.other_than(&OF_PLUGINS).into_iter().chain(of_vm) {
            let name = other.path.rsplit('.').next().unwrap_or_default().to_owned();
            let text =
                format!("{name} is not known to let the guard see every request: take it out");
            problem(other.path, text);
        }
        let runtime = vm_config.as_ref().and_then(|vm_config| vm_config.get("runtime"));
        if let Some(runtime) = runtime.filter(|runtime| runtime.text() == Some(NO_RUNTIME)) {
            let text = "runs code of Envoy's own in place of the guard: take envoy.wasm.runtime.v8";
            problem(runtime.path, text.to_owned());
        }
        let code = self.config.at(&["vm_config", "code"]);
        let given = code.as_ref().is_some_and(|code| code.other_than(&[]).is_some());
        if !given {
            let path = member_path(&self.path_of("vm_config"), "code");
            problem(path, "is required: the guard has no code".to_owned());
        }
        let file = code.and_then(|code| code.at(&["local", "filename"]));
        if let Some((file, name)) = file.and_then(|file| Some((file.clone(), file.text()?)))
            && assume == Assume::Nothing
            && !Path::new(name).is_file()
        {
            let text = format!(
                "there is no file {name:?} here, and Envoy does not start without the guard's code: check where Envoy runs, or say --assume-environment"
            );
            faults.push((Severity::Warning, Doubt::new(file.path, text)));
        }
        faults
    }

    /// Checks the settings for a plugin that crashes, or that Envoy cannot load.
    pub(super) fn check_crash(&self, findings: &mut Findings) {
        if self.config.is_set("fail_open") {
            findings.problem(
                self.path_of("fail_open"),
                "lets requests pass unchecked when the filter has crashed",
            );
        }
        let policy = self.config.get("failure_policy");
        let path = policy
            .as_ref()
            .map_or_else(|| self.path_of("failure_policy"), |policy| policy.path.clone());
        match policy.as_ref().and_then(Place::text) {
            Some("FAIL_RELOAD") => {}
            Some("FAIL_OPEN") => findings.problem(
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
