//! Checks the routes that refuse look-alikes of the filter's paths.
//!
//! Some servers read `/OIDC/token`, `/oidc/token/` or `/oidc;x/token` as `/oidc/token`. To Envoy
//! and the filter these are other paths, so they would reach such a server past the filter.

use impersonation_issuer::issuer::{Endpoint, Paths};

use super::findings::Findings;
use super::reached::Service;
use super::routing::{self, Destination, Route};
use super::tree::member_path;

/// With this setting Envoy matches routes by a path without its parameters, and forwards the path
/// with them.
const IGNORES_PARAMETERS: &str = "ignore_path_parameters_in_path_matching";

/// Returns true for a regular expression that is there to refuse look-alikes.
pub(super) fn is_for_look_alikes(regex: &str) -> bool {
    regex.starts_with("(?i)")
}

/// Checks each virtual host that has such routes. Without them, the servers behind are known to
/// read a path as Envoy does.
pub(super) fn check(services: &[Service<'_, '_>], findings: &mut Findings) {
    for service in services {
        let around = &service.plugin.around;
        let (Some(manager), Some(filter)) = (&around.manager, &around.filter) else { continue };
        let Some(table) = manager.get("route_config") else { continue };
        let mut any_refuses = false;
        for host in table.list("virtual_hosts") {
            let answers_itself =
                |route: &Route<'_>| matches!(route.destination(), Destination::Nowhere);
            let refuses = routing::routes(&table).iter().any(|route| {
                route.host.path == host.path
                    && route.regex().is_some_and(is_for_look_alikes)
                    && answers_itself(route)
            });
            let is_the_filters = |path: &str| {
                routing::routes_of(&table, &host, path)
                    .any(|route| route.variants().iter().any(|variant| variant.has_enabled(filter)))
            };
            let reaches = |path: &str| {
                routing::routes_of(&table, &host, path).any(|route| !answers_itself(&route))
            };
            any_refuses |= refuses;
            if refuses {
                report(&host.path, &service.paths, is_the_filters, reaches, findings);
            }
        }
        if any_refuses && table.is_set(IGNORES_PARAMETERS) {
            findings.warning(
                member_path(&table.path, IGNORES_PARAMETERS),
                "hides path parameters from the routes that refuse `;`, so /oidc;x/token reaches a server: take it out",
            );
        }
    }
}

/// Reports the paths of the filter that have look-alikes which reach a server.
pub(super) fn report(
    place: &str,
    paths: &Paths,
    is_the_filters: impl Fn(&str) -> bool,
    reaches: impl Fn(&str) -> bool,
    findings: &mut Findings,
) {
    // The gateway has no paths with an id of the filter's.
    let whole = Endpoint::ALL.iter().filter_map(|endpoint| endpoint.path(paths));
    let whole = whole.filter(|path| !path.ends_with("/{id}") && is_the_filters(path));
    let open: Vec<_> = whole
        .filter_map(|path| Some((of(&path).into_iter().find(|alike| reaches(alike))?, path)))
        .collect();
    let Some((example, _)) = open.first() else { return };
    let open: Vec<_> = open.iter().map(|(_, path)| path.as_str()).collect();
    findings.warning(
        place,
        format!(
            "routes refuse paths that servers could take for the filter's, and none refuses those like {}, such as {example}: refuse them, too (docs/gateway.md)",
            open.join(", ")
        ),
    );
}

/// Returns look-alikes of a path: in another letter case, with a slash at the end, and with a path
/// parameter behind each segment.
fn of(path: &str) -> Vec<String> {
    let ends = path.match_indices('/').map(|(index, _)| index).skip(1).chain([path.len()]);
    let with_parameter = ends.filter_map(|end| {
        let (head, tail) = path.split_at_checked(end)?;
        Some(format!("{head};x{tail}"))
    });
    [path.to_ascii_uppercase(), format!("{path}/")].into_iter().chain(with_parameter).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn look_alikes_differ_by_case_slash_and_parameters() {
        let expected = ["/OIDC/TOKEN", "/oidc/token/", "/oidc;x/token", "/oidc/token;x"];
        assert_eq!(super::of("/oidc/token"), expected);
    }
}
