//! Checks that the routes in manifests, Istio's `VirtualService` and the Gateway API's `HTTPRoute`,
//! are for the filter's configured paths.

use impersonation_issuer::issuer::{Endpoint, Paths};

use super::findings::Findings;
use super::look_alikes::{self, is_for_look_alikes};
use super::reached::with_an_id;
use super::routing::matches_whole;
use super::sessions::is_of_sessions;
use super::tree::Place;

/// The paths of a route.
enum Pattern<'d> {
    Whole(&'d str),
    Prefix(&'d str),
    Regex(&'d str),
}

impl<'d> Pattern<'d> {
    fn takes(&self, path: &str) -> bool {
        match self {
            Pattern::Whole(whole) => path == *whole,
            // The route for everything else is not the filter's.
            Pattern::Prefix(prefix) => *prefix != "/" && path.starts_with(prefix),
            Pattern::Regex(regex) => matches_whole(regex, path) != Some(false),
        }
    }

    fn is_for_look_alikes(&self) -> bool {
        matches!(self, Pattern::Regex(regex) if is_for_look_alikes(regex))
    }

    /// Returns the patterns of all routes in a manifest.
    fn read_all(manifest: &Place<'d>) -> Vec<Self> {
        let Some(spec) = manifest.get("spec") else { return Vec::new() };
        let of = |routes: &str, matches: &str| {
            let routes = spec.list(routes).into_iter();
            routes.flat_map(|route| route.list(matches)).collect::<Vec<_>>()
        };
        match manifest.text_of("kind") {
            Some("VirtualService") => {
                let uris = of("http", "match").into_iter().filter_map(|one| one.get("uri"));
                uris.filter_map(|uri| {
                    let whole = uri.text_of("exact").map(Pattern::Whole);
                    let prefix = || uri.text_of("prefix").map(Pattern::Prefix);
                    let regex = || uri.text_of("regex").map(Pattern::Regex);
                    whole.or_else(prefix).or_else(regex)
                })
                .collect()
            }
            Some("HTTPRoute") => {
                let paths = of("rules", "matches").into_iter().filter_map(|one| one.get("path"));
                paths
                    .filter_map(|path| {
                        let value = path.text_of("value")?;
                        Some(match path.text_of("type") {
                            Some("Exact") => Pattern::Whole(value),
                            Some("RegularExpression") => Pattern::Regex(value),
                            _ => Pattern::Prefix(value),
                        })
                    })
                    .collect()
            }
            _ => Vec::new(),
        }
    }
}

/// Checks the routes of a file for a filter, if the file has routes for this or another
/// configuration of it.
pub(super) fn check(manifests: &[Place<'_>], paths: &Paths, place: &str, findings: &mut Findings) {
    let patterns = manifests.iter().flat_map(Pattern::read_all);
    let (of_look_alikes, own): (Vec<_>, Vec<_>) = patterns.partition(Pattern::is_for_look_alikes);
    let taken = |path: &str| own.iter().any(|pattern| pattern.takes(&with_an_id(path)));
    let whole = |paths: &Paths| -> Vec<_> {
        Endpoint::ALL.iter().filter_map(|endpoint| endpoint.path(paths)).collect()
    };
    let (configured, default) = (whole(paths), whole(&Paths::new("")));
    if configured.iter().chain(&default).any(|path| taken(path)) {
        let mut missing: Vec<_> =
            configured.iter().filter(|path| !taken(path)).map(String::as_str).collect();
        // Two endpoints have one path.
        missing.dedup();
        if !missing.is_empty() {
            let text = format!(
                "no VirtualService or HTTPRoute in this file has a route for {}, as it has for other paths of the filter: requests there pass the filter by",
                missing.join(", ")
            );
            findings.warning(place, text);
        }
    }
    if !of_look_alikes.is_empty() {
        let reaches = |path: &str| !of_look_alikes.iter().any(|pattern| pattern.takes(path));
        look_alikes::report(place, paths, |path| !is_of_sessions(path), reaches, findings);
    }
}
