//! Checks that requests to the filter's endpoints reach the filter in some listener, and that all
//! plugins of one service know the same subject tokens.

use impersonation_issuer::issuer::{Endpoint, Paths, Purpose};

use super::findings::Findings;
use super::routing;
use super::tree::member_path;
use super::wasm::Plugin;

/// A filter, with its service.
pub(super) struct Service<'p, 'd> {
    pub(super) plugin: &'p Plugin<'d>,
    pub(super) paths: Paths,
    /// `None` if the configuration is not valid.
    pub(super) tenant: Option<String>,
}

/// Returns the path of a request to an endpoint.
pub(super) fn with_an_id(path: &str) -> String {
    path.replace("{id}", "f69c769c7328d1eaca86918b4690")
}

/// Reports the endpoints whose requests reach the filter in no listener.
pub(super) fn check_reached(services: &[Service<'_, '_>], findings: &mut Findings) {
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
                    (Some(manager), Some(filter)) => routing::reaches(manager, filter, path),
                    _ => true,
                }
            })
        };
        let unreached = |purpose| {
            let of_purpose = Endpoint::ALL.iter().filter(move |one| one.purpose() == purpose);
            let paths = of_purpose.filter_map(|endpoint| endpoint.path(&service.paths));
            paths.filter(|path| !reached(&with_an_id(path)))
        };
        for path in unreached(Purpose::Issue) {
            findings.problem(
                &*filter.path,
                format!("is disabled on every route to {path}: those requests pass it by"),
            );
        }
        for path in unreached(Purpose::Publish) {
            findings.warning(
                &*filter.path,
                format!("is disabled on every route to {path}: it publishes nothing there"),
            );
        }
        let mut of_oversight: Vec<_> = unreached(Purpose::Oversee).collect();
        // Two endpoints have one path.
        of_oversight.dedup();
        if !of_oversight.is_empty() {
            findings.warning(
                &*filter.path,
                format!(
                    "is disabled on every route to {}: impersonations cannot be seen, approved or ended there",
                    of_oversight.join(", ")
                ),
            );
        }
    }
}

/// Reports filters that serve the same service and do not share its subject tokens.
pub(super) fn check_shared(services: &[Service<'_, '_>], findings: &mut Findings) {
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
