//! The plugin in manifests for Kubernetes: Istio's `EnvoyFilter`, which holds pieces of Envoy's own
//! configuration, and Envoy Gateway's `EnvoyExtensionPolicy`, which generates them.

use std::collections::HashMap;

use serde_json::Value;

use super::plugin::{self, Assume, Variables};
use super::tree::{Place, member_path};
use super::{Findings, deployment};

/// Whether this is a manifest, or the first of several.
pub(super) fn is_manifest(root: &Place<'_>) -> bool {
    let first = root.items().next().unwrap_or_else(|| root.clone());
    first.text_of("apiVersion").is_some() && first.text_of("kind").is_some()
}

/// Checks the plugin in all manifests of a file.
pub(super) fn check(root: &Place<'_>, assume: Assume, findings: &mut Findings) {
    let manifests: Vec<_> = match root.value {
        Value::Array(_) => root.items().collect(),
        _ => vec![root.clone()],
    };
    let mut found = deployment::check_plugins(root, assume, findings);
    for manifest in &manifests {
        match manifest.text_of("kind") {
            Some("EnvoyExtensionPolicy") => {
                found |= check_extension_policy(manifest, &manifests, assume, findings);
            }
            Some("WasmPlugin")
                if manifest
                    .at(&["spec", "pluginConfig"])
                    .is_some_and(|c| deployment::is_ours(&c)) =>
            {
                found = true;
                findings.problem(
                    member_path(&manifest.path, "kind"),
                    "WasmPlugin cannot set allow_on_headers_stop_iteration, without which every request of ours hangs: use an EnvoyFilter",
                );
            }
            _ => {}
        }
    }
    if !found {
        findings.problem("", "the impersonation filter is nowhere in this file");
    }
}

/// Envoy Gateway: what the policy says, and what has to be patched into what it generates.
fn check_extension_policy(
    policy: &Place<'_>,
    manifests: &[Place<'_>],
    assume: Assume,
    findings: &mut Findings,
) -> bool {
    let mut found = false;
    let extensions = policy.get("spec").map_or_else(Vec::new, |spec| spec.list("wasm"));
    for extension in extensions {
        let Some(config) = extension.get("config").filter(deployment::is_ours) else { continue };
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
        plugin::check(&config, &variables, assume, findings);
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
    found
}

/// Whether a manifest is a policy that adds `field` to what Envoy Gateway generates.
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
