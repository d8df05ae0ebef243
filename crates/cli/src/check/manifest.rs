//! Checks the plugin in manifests for Kubernetes: Istio's `EnvoyFilter`, which has parts of Envoy's
//! own configuration, and Istio's `TrafficExtension` and Envoy Gateway's `EnvoyExtensionPolicy`,
//! from which such parts are generated.

use std::collections::HashMap;

use impersonation_issuer::issuer::{MAX_BODY, Paths};
use serde_json::Value;

use super::clusters::Clusters;
use super::findings::Findings;
use super::manifest_routes;
use super::plugin::{self, Assume, Variables};
use super::sessions::OrdinaryHosts;
use super::tree::{Place, member_path};
use super::versions::EnvoyVersion;
use super::{envoy, traffic_extension, wasm};

/// Returns true for a file that begins with a manifest.
pub(super) fn is_manifest(root: &Place<'_>) -> bool {
    let first = root.items().next().unwrap_or_else(|| root.clone());
    first.text_of("apiVersion").is_some() && first.text_of("kind").is_some()
}

/// Checks the plugin in all manifests of a file.
pub(super) fn check(
    root: &Place<'_>,
    assume: Assume,
    version: EnvoyVersion,
    findings: &mut Findings,
) {
    let manifests: Vec<_> = match root.value {
        Value::Array(_) => root.items().collect(),
        _ => vec![root.clone()],
    };
    let clusters = Clusters::read(root);
    let mut found =
        envoy::check_plugins(root, &clusters, assume, version, &OrdinaryHosts::default(), findings);
    for plugin in wasm::plugins(root).iter().filter(|plugin| plugin.is_filter()) {
        manifest_routes::check(&manifests, &plugin.paths(), &plugin.config.path, findings);
    }
    for manifest in &manifests {
        match manifest.text_of("kind") {
            Some("EnvoyFilter") if found => check_istio_buffers(manifest, version, findings),
            Some("EnvoyExtensionPolicy") => {
                found |= check_extension_policy(manifest, &manifests, &clusters, assume, findings);
            }
            Some("TrafficExtension" | "WasmPlugin") => {
                found |= traffic_extension::check(manifest, &manifests, &clusters, findings);
            }
            _ => {}
        }
    }
    check_claims(&manifests, findings);
    if !found {
        let kinds: Vec<_> =
            manifests.iter().filter_map(|manifest| manifest.text_of("kind")).collect();
        let text = format!(
            "the impersonation filter is nowhere in this file, whose manifests are of kind {}: check reads EnvoyFilter, \
             TrafficExtension, WasmPlugin, EnvoyExtensionPolicy and EnvoyPatchPolicy, and what is in a ConfigMap only as a file of its own",
            kinds.join(", ")
        );
        findings.problem("", text);
    }
}

/// Checks a policy of Envoy Gateway, and the patches that the generated configuration needs.
/// Returns true if the policy has the filter.
fn check_extension_policy(
    policy: &Place<'_>,
    manifests: &[Place<'_>],
    clusters: &Clusters<'_>,
    assume: Assume,
    findings: &mut Findings,
) -> bool {
    let mut found = false;
    let extensions = policy.get("spec").map_or_else(Vec::new, |spec| spec.list("wasm"));
    for extension in extensions {
        let Some(config) = extension.get("config").filter(wasm::is_ours) else { continue };
        found = true;
        let env = extension.get("env");
        let path = env
            .as_ref()
            .map_or_else(|| member_path(&extension.path, "env"), |env| env.path.clone());
        let keys = env.as_ref().map_or_else(Vec::new, |env| env.list("hostKeys"));
        let variables = Variables::PassedOn {
            path: member_path(&path, "hostKeys"),
            host: keys.iter().filter_map(Place::text).collect(),
            given: HashMap::new(),
        };
        clusters.check_store(&config, findings);
        plugin::check(&config, &variables, assume, findings);
        let paths = Paths::of_unchecked(config.value);
        manifest_routes::check(manifests, &paths, &config.path, findings);
        for (field, value) in [
            ("allow_on_headers_stop_iteration", Value::from(true)),
            ("failure_policy", "FAIL_RELOAD".into()),
        ] {
            if !manifests.iter().any(|manifest| patches(manifest, field, &value)) {
                findings.warning(
                    &*extension.path,
                    format!("has no field for {field}, and no EnvoyPatchPolicy in this file adds it with the value {value}"),
                );
            }
        }
    }
    if found && !manifests.iter().any(raises_buffer_limit) {
        findings.warning(
            &*policy.path,
            format!(
                "Envoy Gateway's connections hold 32 KiB, and no ClientTrafficPolicy in this file sets \
                 connection.bufferLimit to at least {MAX_BODY}: Envoy would refuse bodies that the filter accepts"
            ),
        );
    }
    found
}

/// Checks that the guard and its matcher read the claims that Envoy Gateway's `jwt_authn` writes:
/// under the name of the `SecurityPolicy`'s provider. With another name no impersonation enters the
/// guard.
fn check_claims(manifests: &[Place<'_>], findings: &mut Findings) {
    let of_kind = |kind: &'static str| {
        manifests.iter().filter(move |manifest| manifest.text_of("kind") == Some(kind))
    };
    let providers = of_kind("SecurityPolicy")
        .filter_map(|policy| policy.at(&["spec", "jwt"]))
        .flat_map(|jwt| jwt.list("providers"));
    let names: Vec<_> = providers.filter_map(|provider| provider.text_of("name")).collect();
    if names.is_empty() {
        return;
    }
    let mut places = Vec::new();
    of_kind("EnvoyPatchPolicy").for_each(|policy| find_names_of_claims(policy, &mut places));
    for (path, name) in places {
        if !names.contains(&name) {
            findings.problem(
                path,
                format!(
                    "must be the name of a provider of the SecurityPolicy ({}), under which Envoy Gateway keeps the claims: \
                     else no impersonation enters the guard",
                    names.join(", ")
                ),
            );
        }
    }
}

/// Finds the names under which matchers and guards look for claims.
fn find_names_of_claims<'d>(place: &Place<'d>, found: &mut Vec<(String, &'d str)>) {
    let of_matcher = place
        .text_of("filter")
        .filter(|filter| *filter == "envoy.filters.http.jwt_authn")
        .and_then(|_| place.list("path").first()?.get("key"));
    for name in [of_matcher, place.get("payload_in_metadata")].into_iter().flatten() {
        found.extend(name.text().map(|text| (name.path.clone(), text)));
    }
    for child in place.children() {
        find_names_of_claims(&child, found);
    }
}

/// Checks the buffer limits under Istio. Istio keeps Envoy's limit of 1 MiB, and its profile EDGE
/// for gateways sets 32 KiB: the filter's routes or the listener must raise it.
fn check_istio_buffers(manifest: &Place<'_>, version: EnvoyVersion, findings: &mut Findings) {
    let patches = manifest.get("spec").map_or_else(Vec::new, |spec| spec.list("configPatches"));
    let patched = |place: &Place<'_>, to: &str, field: &str| {
        let limit = place.at(&["patch", "value", field]);
        place.text_of("applyTo") == Some(to) && limit.is_some_and(|limit| holds_a_body(limit.value))
    };
    let raised = patches.iter().any(|patch| {
        version.applies_route_limits_to_filters()
            && patched(patch, "HTTP_ROUTE", "request_body_buffer_limit")
            || patched(patch, "LISTENER", "per_connection_buffer_limit_bytes")
    });
    let filter = patches.iter().find(|patch| {
        patch.text_of("applyTo") == Some("HTTP_ROUTE")
            && patch.at(&["patch", "value", "typed_per_filter_config"]).is_some()
    });
    if let Some(filter) = filter.filter(|_| !raised) {
        findings.warning(
            &*filter.path,
            format!(
                "sets no request_body_buffer_limit of at least {MAX_BODY}: under Istio's profile EDGE connections \
                 hold 32 KiB, and Envoy would refuse bodies that the filter accepts"
            ),
        );
    }
}

/// Returns true if a manifest raises the limit of Envoy Gateway's connections far enough.
fn raises_buffer_limit(manifest: &Place<'_>) -> bool {
    manifest.text_of("kind") == Some("ClientTrafficPolicy")
        && manifest
            .at(&["spec", "connection", "bufferLimit"])
            .is_some_and(|limit| holds_a_body(limit.value))
}

/// Returns true if the longest body fits a limit, which is a number or a quantity of Kubernetes.
fn holds_a_body(limit: &Value) -> bool {
    const UNITS: [(&str, u64); 7] = [
        ("Ki", 1 << 10),
        ("Mi", 1 << 20),
        ("Gi", 1 << 30),
        ("k", 1000),
        ("M", 1_000_000),
        ("G", 1_000_000_000),
        ("", 1),
    ];
    let bytes = match limit {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => UNITS
            .iter()
            .find_map(|(unit, size)| Some((text.strip_suffix(unit)?, size)))
            .and_then(|(count, size)| count.parse::<u64>().ok()?.checked_mul(*size)),
        _ => None,
    };
    bytes.is_some_and(|bytes| usize::try_from(bytes).map_or(true, |bytes| bytes >= MAX_BODY))
}

/// Returns true if a manifest is a policy that adds `field` to the configuration that Envoy Gateway
/// generates.
fn patches(manifest: &Place<'_>, field: &str, value: &Value) -> bool {
    manifest.text_of("kind") == Some("EnvoyPatchPolicy")
        && manifest.get("spec").is_some_and(|spec| {
            spec.list("jsonPatches").iter().filter_map(|patch| patch.get("operation")).any(
                |operation| {
                    let path = operation.text_of("path").unwrap_or_default();
                    path.trim_start_matches('/').rsplit('/').next() == Some(field)
                        && operation.get("value").is_some_and(|place| place.value == value)
                },
            )
        })
}
