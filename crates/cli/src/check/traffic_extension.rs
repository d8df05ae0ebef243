//! Checks Istio's `TrafficExtension`, and `WasmPlugin`, which Istio turns into one.
//!
//! Neither has a field for `allow_on_headers_stop_iteration` or for a matcher (as of Istio 1.31).
//! So neither can load the filter. The guard can be loaded if an `EnvoyFilter` puts a matcher
//! around it.

use super::clusters::Clusters;
use super::findings::Findings;
use super::guard;
use super::tree::{Place, member_path};
use super::wasm;

/// Checks one manifest. Returns true if it has the filter or the guard.
pub(super) fn check(
    manifest: &Place<'_>,
    manifests: &[Place<'_>],
    clusters: &Clusters<'_>,
    findings: &mut Findings,
) -> bool {
    let (Some(kind), Some(spec)) = (manifest.text_of("kind"), manifest.get("spec")) else {
        return false;
    };
    let extension = match kind {
        "TrafficExtension" => spec.get("wasm"),
        _ => Some(spec.clone()),
    };
    let Some(extension) = extension else { return false };
    let config = extension.get("pluginConfig");
    if config.as_ref().is_some_and(wasm::is_ours) {
        findings.problem(
            member_path(&manifest.path, "kind"),
            format!(
                "{kind} cannot set allow_on_headers_stop_iteration, without which every request of ours hangs: use an EnvoyFilter"
            ),
        );
        return true;
    }
    let is_guard = config.as_ref().is_some_and(wasm::looks_like_a_guards)
        || extension.text_of("url").is_some_and(|url| url.contains("impersonation-guard"));
    if !is_guard {
        return false;
    }
    match &config {
        Some(config) => {
            clusters.check_store(config, findings);
            guard::check_alone(config, findings);
        }
        None => findings.problem(
            member_path(&extension.path, "pluginConfig"),
            "is required: the guard's configuration",
        ),
    }
    check_failure(&extension, findings);
    check_place(&spec, findings);
    check_matcher(manifest, kind, manifests, findings);
    true
}

/// Checks what a sidecar does with requests when the guard has crashed.
fn check_failure(extension: &Place<'_>, findings: &mut Findings) {
    let text = match extension.text_of("failStrategy") {
        Some("FAIL_RELOAD") => return,
        Some("FAIL_OPEN") => {
            "must be FAIL_RELOAD: with FAIL_OPEN requests pass unchecked when the guard has crashed"
        }
        _ => {
            "must be FAIL_RELOAD: else a worker whose guard has crashed answers 503 until Envoy is restarted"
        }
    };
    findings.problem(member_path(&extension.path, "failStrategy"), text);
}

/// Checks the place in the sidecar: behind `jwt_authn`, and for requests to the API only.
fn check_place(spec: &Place<'_>, findings: &mut Findings) {
    if spec.text_of("phase") == Some("AUTHN") {
        findings.problem(
            member_path(&spec.path, "phase"),
            "must be AUTHZ: with AUTHN the guard stands before jwt_authn, finds no claims, and refuses every impersonation",
        );
    }
    let selectors = spec.list("match");
    let one_way = |selector: &Place<'_>| {
        selector.text_of("mode").is_some_and(|mode| matches!(mode, "SERVER" | "CLIENT"))
    };
    if selectors.is_empty() || !selectors.iter().all(one_way) {
        findings.warning(
            member_path(&spec.path, "match"),
            "must have mode: SERVER: else the guard also stands before what the API itself calls, and refuses it",
        );
    }
}

/// Checks that an `EnvoyFilter` replaces the guard by a matcher with the guard in it.
fn check_matcher(
    manifest: &Place<'_>,
    kind: &str,
    manifests: &[Place<'_>],
    findings: &mut Findings,
) {
    let metadata = manifest.get("metadata");
    let text = |name| metadata.as_ref().and_then(|metadata| metadata.text_of(name));
    let full =
        format!("{}.{}", text("namespace").unwrap_or("default"), text("name").unwrap_or_default());
    let resource = match kind {
        "TrafficExtension" => format!("extensions.istio.io/trafficextension/{full}"),
        _ => format!("extensions.istio.io/trafficextension/{full}~istio-translated-wasmplugin"),
    };
    let replaces = |patch: &Place<'_>| {
        patch.text_of("applyTo") == Some("HTTP_FILTER")
            && patch.at(&["patch", "operation"]).is_some_and(|it| it.text() == Some("REPLACE"))
            && replaced(patch).is_some_and(|name| name == resource)
            && patch.at(&["patch", "value"]).is_some_and(|value| discovers(&value, &resource))
    };
    let wrapped = manifests
        .iter()
        .filter(|manifest| manifest.text_of("kind") == Some("EnvoyFilter"))
        .filter_map(|manifest| manifest.get("spec"))
        .any(|spec| spec.list("configPatches").iter().any(replaces));
    if !wrapped {
        findings.warning(
            &*manifest.path,
            format!(
                "no EnvoyFilter in this file replaces {resource} by a matcher that enters it for impersonations only: \
                 the guard would refuse every other request"
            ),
        );
    }
}

/// Returns the name of the HTTP filter to which a patch applies.
fn replaced<'d>(patch: &Place<'d>) -> Option<&'d str> {
    let filter = patch.at(&["match", "listener", "filterChain", "filter", "subFilter"])?;
    filter.text_of("name")
}

/// Returns true if `place` has a `dynamic_config` that loads the resource.
fn discovers(place: &Place<'_>, resource: &str) -> bool {
    let here = place.at(&["dynamic_config", "name"]);
    here.is_some_and(|name| name.text() == Some(resource))
        || place.children().iter().any(|child| discovers(child, resource))
}
