//! Checks the guard's own configuration: it must be valid, its rules must take effect, and it must
//! read the filter's revocations.

use impersonation_core::config::{GuardConfig, GuardStore, Mode, StoreSettings};

use super::clusters::Clusters;
use super::findings::{Doubt, Findings, Severity};
use super::plugin::{Assume, Checked};
use super::rules;
use super::tree::{Place, member_path};
use super::wasm::Plugin;

/// A filter whose configuration is valid.
pub(super) struct Issuer<'p, 'd> {
    pub(super) plugin: &'p Plugin<'d>,
    pub(super) checked: Checked,
}

/// A guard whose configuration is valid.
pub(super) struct Guard<'p, 'd> {
    pub(super) plugin: &'p Plugin<'d>,
    pub(super) config: GuardConfig,
    /// The faults of the configuration, which concern every route to the guard.
    pub(super) faults: Vec<(Severity, Doubt)>,
}

/// Reads the configurations of all guards.
pub(super) fn read<'p, 'd>(
    plugins: &'p [Plugin<'d>],
    issuers: &[Issuer<'_, '_>],
    clusters: &Clusters<'_>,
    assume: Assume,
    findings: &mut Findings,
) -> Vec<Guard<'p, 'd>> {
    let filters = plugins.iter().filter(|plugin| plugin.is_filter()).count();
    let mut guards = Vec::new();
    for plugin in plugins.iter().filter(|plugin| plugin.is_guard()) {
        plugin.check_crash(findings);
        let (value, path) = match plugin.configuration() {
            Ok(configuration) => configuration,
            Err((path, text)) => {
                findings.problem(path, text);
                continue;
            }
        };
        let place = Place { value: &value, path };
        clusters.check_store(&place, findings);
        if let Some(config) = check(&place, findings) {
            let mut faults = plugin.check_code(assume);
            let reports = in_report_mode(&place, &config);
            faults.extend(reports.map(|doubt| (Severity::Problem, doubt)));
            faults.extend(rules::without_effect(&place, &config));
            // The store of a filter whose configuration is not valid is not known.
            if issuers.len() == filters {
                faults.extend(check_service(plugin, &config, issuers));
            }
            guards.push(Guard { plugin, config, faults });
        }
    }
    guards
}

/// Checks a guard's configuration; `None` if it is not valid.
pub(super) fn check(place: &Place<'_>, findings: &mut Findings) -> Option<GuardConfig> {
    let below = |member: &str| match (&*place.path, member) {
        (path, "") => path.to_owned(),
        ("", member) => member.to_owned(),
        (path, member) => format!("{path}.{member}"),
    };
    // Envoy refuses the configuration if a variable is not set.
    let set = |_: &str| Some("x".repeat(64));
    match GuardConfig::with_variables(place.value, &set) {
        Ok(config) => {
            for warning in &config.warnings {
                findings.warning(below(&warning.path), &*warning.expected);
            }
            Some(config)
        }
        Err(error) => {
            for problem in error.problems {
                findings.problem(below(&problem.path), problem.expected);
            }
            None
        }
    }
}

/// Checks a guard's configuration that is alone in its file.
pub(super) fn check_alone(place: &Place<'_>, findings: &mut Findings) {
    let Some(config) = check(place, findings) else { return };
    let faults = in_report_mode(place, &config).map(|doubt| (Severity::Warning, doubt)).into_iter();
    for (severity, doubt) in faults.chain(rules::without_effect(place, &config)) {
        findings.add(severity, doubt.path, doubt.text);
    }
}

fn in_report_mode(place: &Place<'_>, config: &GuardConfig) -> Option<Doubt> {
    let text = "mode: report refuses nothing, not even what has ended: set mode to enforce, or leave it out";
    (config.mode == Mode::Report).then(|| Doubt::new(member_path(&place.path, "mode"), text))
}

/// Finds faults for which the guard would not read the filter's revocations.
fn check_service(
    guard: &Plugin<'_>,
    config: &GuardConfig,
    issuers: &[Issuer<'_, '_>],
) -> Vec<(Severity, Doubt)> {
    let in_etcd = matches!(config.store, GuardStore::Etcd { .. });
    if issuers.is_empty() {
        let text = "the guard stands in an Envoy without the filter, and learns of no revocation: keep them in store.etcd";
        let fault = (Severity::Problem, Doubt::new(&*guard.config.path, text));
        return if in_etcd { Vec::new() } else { vec![fault] };
    }
    let its = issuers.iter().find(|issuer| issuer.checked.config.tenant() == config.tenant());
    let Some(issuer) = its else {
        let text = "the guard must have issuer and base_path of the filter: it looks at nobody's revocations";
        return vec![(Severity::Problem, Doubt::new(guard.path_of("configuration"), text))];
    };
    let mut faults = Vec::new();
    check_store(guard, config, issuer, &mut faults);
    if guard.vm_id() != issuer.plugin.vm_id() {
        let path = member_path(&guard.path_of("vm_config"), "vm_id");
        let other = &issuer.plugin.config.path;
        let fault = if in_etcd {
            let text = format!(
                "the guard's vm_id should be the same as in {other}: both ask etcd now, and the guard learns of revocations later"
            );
            (Severity::Warning, Doubt::new(path, text))
        } else {
            let text = format!(
                "the guard's vm_id must be the same as in {other}, else it learns of no revocation"
            );
            (Severity::Problem, Doubt::new(path, text))
        };
        faults.push(fault);
    }
    faults
}

/// Finds differences between the stores of guard and filter.
fn check_store(
    guard: &Plugin<'_>,
    config: &GuardConfig,
    issuer: &Issuer<'_, '_>,
    faults: &mut Vec<(Severity, Doubt)>,
) {
    let path = guard.configuration().map(|(_, path)| path).unwrap_or_default();
    let store = member_path(&path, "store");
    let other = &issuer.plugin.config.path;
    match (&config.store, &issuer.checked.config.store) {
        (GuardStore::SharedData, StoreSettings::SharedData { .. }) => {}
        (GuardStore::SharedData, StoreSettings::Etcd(_)) => {
            let text = format!(
                "the guard's store must have etcd, as in {other}: it learns of no revocation of another Envoy"
            );
            faults.push((Severity::Problem, Doubt::new(store, text)));
        }
        (GuardStore::Etcd { .. }, StoreSettings::SharedData { .. }) => {
            let text = format!(
                "the guard's store must have shared_data, as in {other}: in etcd there is no revocation"
            );
            faults.push((Severity::Problem, Doubt::new(store, text)));
        }
        (GuardStore::Etcd { settings, .. }, StoreSettings::Etcd(of_filter)) => {
            let etcd = member_path(&store, "etcd");
            if settings.prefix != of_filter.prefix {
                let text = format!(
                    "the guard's store.etcd.prefix must be {:?}, as in {other}, else it learns of no revocation",
                    of_filter.prefix
                );
                faults.push((Severity::Problem, Doubt::new(member_path(&etcd, "prefix"), text)));
            }
            if settings.cluster != of_filter.cluster {
                let text = format!(
                    "the guard's store.etcd.cluster is not {:?}, as in {other}: if it leads to another etcd, the guard learns of no revocation",
                    of_filter.cluster
                );
                faults.push((Severity::Warning, Doubt::new(member_path(&etcd, "cluster"), text)));
            }
        }
    }
}
