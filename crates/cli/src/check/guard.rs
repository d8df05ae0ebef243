//! The guard in its place: what Envoy accepts, and what then lets an impersonation pass it by, or lets nobody pass.

use impersonation_core::config::{Config, GuardConfig, GuardStore, Store};
use serde_json::Value;

use super::Findings;
use super::deployment::{Clusters, Plugin};
use super::tree::{Place, member_path};

const JWT_AUTHN: &str = "envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication";
const HEADER_MUTATION: &str = "envoy.extensions.filters.http.header_mutation.v3.HeaderMutation";
const WITH_MATCHER: &str = "envoy.extensions.common.matching.v3.ExtensionWithMatcher";
const EXECUTE: &str = "envoy.extensions.filters.http.composite.v3.ExecuteFilterAction";
const METADATA_INPUT: &str =
    "envoy.extensions.matching.common_inputs.network.v3.DynamicMetadataInput";
const METADATA_MATCHER: &str = "envoy.extensions.matching.input_matchers.metadata.v3.Metadata";
const FILTER_CONFIG: &str = "envoy.config.route.v3.FilterConfig";

/// Members that the guard's configuration has, and the filter's has not.
const MEMBERS: [&str; 3] = ["payload_in_metadata", "max_staleness", "mode"];

/// A filter whose configuration is valid.
pub(super) struct Issuer<'p, 'd> {
    pub(super) plugin: &'p Plugin<'d>,
    pub(super) config: Config,
}

/// Whether a plugin can only be the guard.
pub(super) fn is_guard(plugin: &Plugin<'_>) -> bool {
    let has_members = |value: &Value| MEMBERS.iter().any(|name| value.get(name).is_some());
    plugin.is_named("impersonation_guard")
        || plugin.configuration().is_ok_and(|(value, _)| has_members(&value))
}

/// Checks every guard, and every place where one is missing.
pub(super) fn check(
    plugins: &[Plugin<'_>],
    issuers: &[Issuer<'_, '_>],
    clusters: &Clusters<'_>,
    findings: &mut Findings,
) {
    let guards: Vec<_> = plugins.iter().filter(|plugin| is_guard(plugin)).collect();
    for guard in &guards {
        guard.check_death(findings);
        if let Some(config) = check_configuration(guard, clusters, findings) {
            check_place(guard, &config, findings);
            check_service(guard, &config, issuers, findings);
        }
    }
    for issuer in issuers {
        check_unguarded(issuer, &guards, findings);
    }
}

fn check_configuration(
    guard: &Plugin<'_>,
    clusters: &Clusters<'_>,
    findings: &mut Findings,
) -> Option<GuardConfig> {
    let (value, path) = match guard.configuration() {
        Ok(configuration) => configuration,
        Err((path, text)) => {
            findings.problem(path, text);
            return None;
        }
    };
    let below = |member: &str| match member {
        "" => path.clone(),
        member => format!("{path}.{member}"),
    };
    clusters.check_store(&Place { value: &value, path: path.clone() }, findings);
    match GuardConfig::from_value(&value) {
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

/// The filters of a chain, in their order, as messages.
fn chain<'d>(manager: &Place<'d>) -> Vec<(Place<'d>, &'d str, Place<'d>)> {
    let typed = |filter: Place<'d>| {
        let message = filter.get("typed_config")?.message()?;
        Some((filter, message.r#type, message.fields))
    };
    manager.list("http_filters").into_iter().filter_map(typed).collect()
}

fn check_place(guard: &Plugin<'_>, config: &GuardConfig, findings: &mut Findings) {
    let (Some(manager), Some(filter)) = (&guard.around.manager, &guard.around.filter) else {
        return;
    };
    let chain = chain(manager);
    let place =
        |found: &dyn Fn(&str) -> bool| chain.iter().position(|(_, r#type, _)| found(r#type));
    let of_guard = chain.iter().position(|(other, ..)| other.path == filter.path);
    let of_jwt_authn = place(&|r#type| r#type == JWT_AUTHN);
    match (of_jwt_authn, of_guard) {
        (None, _) => findings.problem(
            &*filter.path,
            "needs envoy.filters.http.jwt_authn before it, which verifies the token that it goes by",
        ),
        (Some(jwt_authn), Some(guard)) if guard < jwt_authn => findings.problem(
            &*filter.path,
            "stands before jwt_authn: there are no claims yet to enter it by, and every impersonation passes it by",
        ),
        _ => {}
    }
    check_matcher(filter, config, findings);
    for (jwt_authn, ..) in chain.iter().filter(|(_, r#type, _)| *r#type == JWT_AUTHN) {
        check_providers(jwt_authn, config, findings);
    }
    let before = chain.iter().take(of_guard.unwrap_or_default());
    let removed: Vec<_> = before
        .filter(|(_, r#type, _)| *r#type == HEADER_MUTATION)
        .filter_map(|(.., fields)| fields.at(&["mutations", "request_mutations"]))
        .flat_map(|mutations| mutations.items().collect::<Vec<_>>())
        .filter_map(|mutation| mutation.text_of("remove"))
        .collect();
    let names = [&config.headers.id, &config.headers.actor].into_iter().flatten();
    for name in names.filter(|name| !removed.iter().any(|one| one.eq_ignore_ascii_case(name))) {
        findings.problem(
            &*filter.path,
            format!("needs a header_mutation before it that removes {name}: an ordinary user could forge it"),
        );
    }
    check_routes(manager, filter, findings);
}

/// Whether it is entered for impersonations, and for nobody else.
fn check_matcher(filter: &Place<'_>, config: &GuardConfig, findings: &mut Findings) {
    let message = filter.get("typed_config").and_then(|typed| typed.message());
    let Some(message) = message.filter(|message| message.r#type == WITH_MATCHER) else {
        findings.problem(
            &*filter.path,
            "is entered by every request, and refuses those of ordinary users, which have no txn: let the composite filter enter it for those that have one",
        );
        return;
    };
    let executes = contains(&message.fields, EXECUTE);
    if !executes {
        findings.problem(
            &*filter.path,
            "is not entered by ExecuteFilterAction of the composite filter: another action makes the module look at every request",
        );
    }
    let inputs = messages(&message.fields, METADATA_INPUT);
    let by_txn = inputs.iter().any(|input| {
        let keys: Vec<_> =
            input.list("path").iter().filter_map(|segment| segment.text_of("key")).collect();
        input.text_of("filter") == Some("envoy.filters.http.jwt_authn")
            && keys == [&*config.payload_in_metadata, "txn"]
    });
    let present = messages(&message.fields, METADATA_MATCHER)
        .iter()
        .any(|matcher| matcher.get("value").is_some_and(|value| value.is_set("present_match")));
    if !(by_txn && present) {
        findings.problem(
            &*filter.path,
            format!(
                "must be entered where {}.txn of envoy.filters.http.jwt_authn is present (present_match): impersonations that do not match pass it by",
                config.payload_in_metadata
            ),
        );
    }
}

/// Whether the tokens of this issuer leave their claims where the guard is entered by.
fn check_providers(jwt_authn: &Place<'_>, config: &GuardConfig, findings: &mut Findings) {
    for provider in providers(jwt_authn, &config.issuer) {
        let payload = provider.get("payload_in_metadata");
        if payload.as_ref().and_then(Place::text) != Some(&config.payload_in_metadata) {
            let path = member_path(&provider.path, "payload_in_metadata");
            findings.problem(
                payload.map_or(path, |payload| payload.path),
                format!(
                    "must be {:?}, where the guard is entered by: else impersonations pass it by",
                    config.payload_in_metadata
                ),
            );
        }
    }
}

/// The providers of `jwt_authn` that verify tokens of an issuer.
fn providers<'d>(jwt_authn: &Place<'d>, issuer: &str) -> Vec<Place<'d>> {
    let providers = jwt_authn.at(&["typed_config", "providers"]);
    let all = providers.into_iter().flat_map(|all| all.members().collect::<Vec<_>>());
    all.map(|(_, provider)| provider)
        .filter(|provider| provider.text_of("issuer") == Some(issuer))
        .collect()
}

/// Says which routes switch it off.
fn check_routes(manager: &Place<'_>, filter: &Place<'_>, findings: &mut Findings) {
    let Some(name) = filter.text_of("name") else { return };
    let Some(table) = manager.get("route_config") else { return };
    let hosts = table.list("virtual_hosts");
    let routes = hosts.iter().flat_map(|host| host.list("routes"));
    for place in routes.chain(hosts.iter().cloned()).chain([table.clone()]) {
        let settings = place.get("typed_per_filter_config");
        let settings = settings.into_iter().flat_map(|all| all.members().collect::<Vec<_>>());
        for (_, setting) in settings.filter(|(filter, _)| *filter == name) {
            let message = setting.message();
            if message.is_some_and(|m| m.r#type == FILTER_CONFIG && m.fields.is_set("disabled")) {
                findings.problem(setting.path, "switches the guard off: impersonations pass it by");
            }
        }
    }
}

/// Whether it looks at the revocations that the filter makes.
fn check_service(
    guard: &Plugin<'_>,
    config: &GuardConfig,
    issuers: &[Issuer<'_, '_>],
    findings: &mut Findings,
) {
    let in_etcd = matches!(config.store, GuardStore::Etcd { .. });
    if issuers.is_empty() {
        if !in_etcd {
            findings.warning(
                &*guard.config.path,
                "stands in an Envoy without the filter, and learns of no revocation: keep them in store.etcd",
            );
        }
        return;
    }
    let its = issuers.iter().find(|issuer| issuer.config.tenant() == config.tenant());
    let Some(issuer) = its else {
        let path = guard.path_of("configuration");
        findings.problem(
            path,
            "must have issuer and base_path of the filter: it looks at nobody's revocations",
        );
        return;
    };
    check_store(guard, config, issuer, findings);
    if guard.vm_id() != issuer.plugin.vm_id() {
        let path = member_path(&guard.path_of("vm_config"), "vm_id");
        let other = &issuer.plugin.config.path;
        if in_etcd {
            findings.warning(
                path,
                format!("should be the same as in {other}: both ask etcd now, and it learns of revocations later"),
            );
        } else {
            findings.problem(
                path,
                format!("must be the same as in {other}, else it learns of no revocation"),
            );
        }
    }
}

/// Whether both mean the same store.
fn check_store(
    guard: &Plugin<'_>,
    config: &GuardConfig,
    issuer: &Issuer<'_, '_>,
    findings: &mut Findings,
) {
    let path = guard.configuration().map(|(_, path)| path).unwrap_or_default();
    let other = &issuer.plugin.config.path;
    match (&config.store, &issuer.config.store) {
        (GuardStore::SharedData, Store::SharedData { .. }) => {}
        (GuardStore::SharedData, Store::Etcd(_)) => findings.problem(
            member_path(&path, "store"),
            format!("must have etcd, as in {other}: it learns of no revocation of another Envoy"),
        ),
        (GuardStore::Etcd { .. }, Store::SharedData { .. }) => findings.problem(
            member_path(&path, "store"),
            format!("must have shared_data, as in {other}: in etcd there is no revocation"),
        ),
        (GuardStore::Etcd { settings, .. }, Store::Etcd(of_filter)) => {
            let etcd = member_path(&member_path(&path, "store"), "etcd");
            if settings.prefix != of_filter.prefix {
                findings.problem(
                    member_path(&etcd, "prefix"),
                    format!(
                        "must be {:?}, as in {other}, else it learns of no revocation",
                        of_filter.prefix
                    ),
                );
            }
            if settings.cluster != of_filter.cluster {
                findings.warning(
                    member_path(&etcd, "cluster"),
                    format!(
                        "is not {:?}, as in {other}: if it leads to another etcd, the guard learns of no revocation",
                        of_filter.cluster
                    ),
                );
            }
        }
    }
}

/// Says where tokens of an issuer are accepted and no guard looks at them.
fn check_unguarded(issuer: &Issuer<'_, '_>, guards: &[&Plugin<'_>], findings: &mut Findings) {
    let Some(manager) = &issuer.plugin.around.manager else { return };
    let is_here = |guard: &&&Plugin<'_>| {
        guard.around.manager.as_ref().is_some_and(|other| other.path == manager.path)
    };
    if guards.iter().any(|guard| is_here(&guard)) {
        return;
    }
    for (filter, r#type, _) in chain(manager) {
        if r#type == JWT_AUTHN && !providers(&filter, &issuer.config.issuer).is_empty() {
            findings.warning(
                &*filter.path,
                "accepts access tokens of the filter, and no guard stands behind it: an impersonation that was ended goes on until its token expires",
            );
        }
    }
}

fn contains(place: &Place<'_>, r#type: &str) -> bool {
    !messages(place, r#type).is_empty()
}

/// Every message of a type, wherever it is.
fn messages<'d>(place: &Place<'d>, r#type: &str) -> Vec<Place<'d>> {
    let message = place.message().filter(|message| message.r#type == r#type);
    let mut found: Vec<_> = message.map(|message| message.fields).into_iter().collect();
    found.extend(place.children().iter().flat_map(|child| messages(child, r#type)));
    found
}
