//! Checks the ordinary host of an application that has browser sessions, too.
//!
//! The application reads header fields that say whose request it is. On the hosts of sessions only
//! `jwt_authn` and the guard write them. On the ordinary host nobody does, so Envoy must remove
//! what a caller sends.

use std::collections::BTreeSet;

use super::super::findings::Doubt;
use super::super::routing::Route;
use super::super::topology::Filter;
use super::super::tree::Place;
use super::reasons::{Reason, problem};

/// Returns the header fields that a `jwt_authn` makes of a token.
pub(super) fn made_by(jwt_authn: &Filter<'_>) -> Vec<String> {
    let providers = jwt_authn.fields.get("providers");
    let providers = providers.iter().flat_map(Place::members);
    providers
        .flat_map(|(_, provider)| {
            let claims = provider.list("claim_to_headers").into_iter();
            let claims = claims.filter_map(|claim| claim.get("header_name"));
            claims.chain(provider.get("forward_payload_header")).collect::<Vec<_>>()
        })
        .filter_map(|name| name.text().map(str::to_ascii_lowercase))
        .collect()
}

/// Checks that a route of the ordinary host removes all these header fields.
pub(super) fn check(route: &Route<'_>, told: &BTreeSet<String>) -> Option<Reason> {
    let levels = [&route.route, &route.host, &route.table];
    let removed: Vec<_> =
        levels.iter().flat_map(|level| level.list("request_headers_to_remove")).collect();
    let is_kept = |name: &&String| {
        !removed.iter().any(|one| one.text().is_some_and(|it| it.eq_ignore_ascii_case(name)))
    };
    let kept: Vec<_> = told.iter().filter(is_kept).map(String::as_str).collect();
    if kept.is_empty() {
        return None;
    }
    let text = format!(
        "the application's ordinary host must remove {}: by them the application knows whose session a request is of, and anybody could send them; name them in request_headers_to_remove of the virtual host",
        kept.join(", ")
    );
    Some(problem(Doubt::new(&*route.host.path, text)))
}
