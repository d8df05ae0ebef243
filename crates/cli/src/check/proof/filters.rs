//! The filters around the guard, and what they may do: between `jwt_authn` and the guard they must
//! leave the claims alone, and behind the guard the request and its route.
//!
//! Filters can do anything, so only known ones are accepted.

use super::super::findings::Doubt;
use super::super::reach::Reach;
use super::super::routing::{Route, Variant};
use super::super::topology::{Chain, Filter};
use super::super::tree::Place;
use super::reasons::{Reason, problem};
use super::ways;

pub(super) const HEADER_MUTATION: &str =
    "envoy.extensions.filters.http.header_mutation.v3.HeaderMutation";
const ROUTER: &str = "envoy.extensions.filters.http.router.v3.Router";

/// Filters that leave claims, route and request alone. `header_mutation` may change header fields,
/// which is looked at.
pub(super) const HARMLESS: [&str; 19] = [
    HEADER_MUTATION,
    ROUTER,
    "envoy.extensions.filters.http.adaptive_concurrency.v3.AdaptiveConcurrency",
    "envoy.extensions.filters.http.admission_control.v3.AdmissionControl",
    "envoy.extensions.filters.http.bandwidth_limit.v3.BandwidthLimit",
    "envoy.extensions.filters.http.buffer.v3.Buffer",
    "envoy.extensions.filters.http.compressor.v3.Compressor",
    "envoy.extensions.filters.http.cors.v3.Cors",
    "envoy.extensions.filters.http.csrf.v3.CsrfPolicy",
    "envoy.extensions.filters.http.decompressor.v3.Decompressor",
    "envoy.extensions.filters.http.fault.v3.HTTPFault",
    "envoy.extensions.filters.http.grpc_stats.v3.FilterConfig",
    "envoy.extensions.filters.http.grpc_web.v3.GrpcWeb",
    "envoy.extensions.filters.http.health_check.v3.HealthCheck",
    "envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit",
    "envoy.extensions.filters.http.ratelimit.v3.RateLimit",
    "envoy.extensions.filters.http.rbac.v3.RBAC",
    "envoy.extensions.filters.http.stateful_session.v3.StatefulSession",
    "envoy.extensions.filters.http.upstream_codec.v3.UpstreamCodec",
];

/// The names of headers that a server may take for others: those with another character than
/// letters, digits and hyphens. A colon begins the names of HTTP/2's own fields.
const ODD_NAMES: &str = ".*[^a-z0-9:-].*";

/// A chain of filters around the guard, for one route.
pub(super) struct Around<'a, 'd> {
    pub(super) chain: &'a Chain<'d>,
    pub(super) route: &'a Route<'d>,
    pub(super) variant: &'a Variant<'d>,
    /// The indexes of the two filters.
    pub(super) jwt_authn: usize,
    pub(super) guard: usize,
}

impl<'d> Around<'_, 'd> {
    /// Finds filters that are not known to be harmless where they stand. `is_own` tells the filter
    /// of this project.
    pub(super) fn check(
        &self,
        reach: &Reach<'d>,
        is_own: impl Fn(&Filter<'d>) -> bool,
        reasons: &mut Vec<Reason>,
    ) {
        let filters = self.chain.filters.iter().enumerate();
        for (index, other) in filters.filter(|(index, _)| *index > self.jwt_authn) {
            let is_known = index == self.guard || HARMLESS.contains(&other.r#type) || is_own(other);
            if is_known || !self.variant.has_enabled(&other.entry) {
                continue;
            }
            let text = if index < self.guard {
                format!(
                    "{:?} between jwt_authn and the guard could change what the guard is entered by: put it before jwt_authn",
                    other.name()
                )
            } else {
                format!(
                    "{:?} behind the guard is not known to leave the request and its route alone, and the API could get another than the guard has seen: put it before jwt_authn",
                    other.name()
                )
            };
            reasons.push(problem(Doubt::new(&*other.entry.path, text)));
        }
        self.check_upstream(reach, reasons);
        self.check_upgrades(reasons);
    }

    /// Checks the filters between the router and the API.
    fn check_upstream(&self, reach: &Reach<'d>, reasons: &mut Vec<Reason>) {
        let routers = self.chain.filters.iter().filter(|filter| filter.r#type == ROUTER);
        let of_routers = routers.flat_map(|router| router.fields.list("upstream_http_filters"));
        let names = ways::own_clusters(self.route);
        let options = names.iter().filter_map(|name| reach.http_options(name));
        let of_clusters = options.flat_map(|options| options.list("http_filters"));
        for filter in of_routers.chain(of_clusters).map(Filter::read) {
            if !HARMLESS.contains(&filter.r#type) {
                let text = format!(
                    "{:?} between the router and the API is not known to leave the request alone: take it out",
                    filter.name()
                );
                reasons.push(problem(Doubt::new(&*filter.entry.path, text)));
            }
        }
    }

    /// Checks that requests to upgrade a connection pass the same filters, and open no tunnel in
    /// which nobody looks for tokens.
    fn check_upgrades(&self, reasons: &mut Vec<Reason>) {
        let manager = self.chain.manager.list("upgrade_configs");
        let action = self.route.route.get("route");
        let route = action.map_or_else(Vec::new, |action| action.list("upgrade_configs"));
        for upgrade in manager.into_iter().chain(route) {
            let kind = upgrade.text_of("upgrade_type").unwrap_or_default();
            let text = if !upgrade.list("filters").is_empty() {
                format!(
                    "a request to upgrade to {kind:?} passes these filters in place of jwt_authn and guard: take them out"
                )
            } else if kind.eq_ignore_ascii_case("websocket") {
                continue;
            } else {
                format!(
                    "an upgrade to {kind:?} opens a tunnel to the API, in which nobody looks for tokens: take it out"
                )
            };
            reasons.push(problem(Doubt::new(&*upgrade.path, text)));
        }
    }

    /// Finds a place in one of these filters, or on the route, that writes a header field of
    /// requests.
    fn written_by<'f>(
        &self,
        filters: impl Iterator<Item = &'f Filter<'d>>,
        header: &str,
    ) -> Option<Place<'d>>
    where
        'd: 'f,
    {
        let settings = |filter: &'f Filter<'d>| {
            [Some(filter.fields.clone()), self.variant.setting(filter.name())]
        };
        let of_filters =
            filters.filter(|filter| self.variant.has_enabled(&filter.entry)).flat_map(settings);
        let of_route = self.variant.0.iter().map(|level| level.get("request_headers_to_add"));
        of_filters.chain(of_route).flatten().find_map(|place| writes(&place, header))
    }

    /// Finds a way for an ordinary user to forge a header field of the guard.
    pub(super) fn not_removed(&self, header: &str) -> Option<Doubt> {
        let guard = self.chain.filters.get(self.guard)?;
        let before = self.chain.filters.iter().take(self.guard);
        let removes = |filter: &&Filter<'_>| {
            let mutations = filter.fields.at(&["mutations", "request_mutations"]);
            filter.r#type == HEADER_MUTATION
                && mutations.is_some_and(|mutations| {
                    let removed =
                        mutations.items().filter_map(|mutation| mutation.text_of("remove"));
                    removed.into_iter().any(|name| name.eq_ignore_ascii_case(header))
                })
        };
        let its: Vec<_> = before.filter(removes).collect();
        if its.is_empty() {
            return Some(Doubt::new(
                &*guard.entry.path,
                format!(
                    "the guard needs a header_mutation before it that removes {header}: an ordinary user could forge it"
                ),
            ));
        }
        let Some(last) = its.iter().rev().find(|filter| self.variant.has_enabled(&filter.entry))
        else {
            return Some(Doubt::new(
                &*guard.entry.path,
                format!(
                    "the header_mutation that removes {header} is disabled here: an ordinary user could forge it; take that out"
                ),
            ));
        };
        // Envoy applies the mutations of a route after those of the filter.
        let mut rest = self.chain.filters.iter();
        rest.find(|filter| filter.entry.path == last.entry.path);
        let place = self.written_by(std::iter::once(*last).chain(rest), header)?;
        let text = format!("{header} is written here, which is the guard's alone: take it out");
        Some(Doubt::new(place.path, text))
    }

    /// Finds a way for anybody to forge a header by a name that servers take for it.
    pub(super) fn odd_names_not_removed(&self) -> Option<Doubt> {
        let guard = self.chain.filters.get(self.guard)?;
        let mut before = self.chain.filters.iter().take(self.guard);
        if before.any(|one| removes_odd_names(one) && self.variant.has_enabled(&one.entry)) {
            return None;
        }
        let text = format!(
            "the guard needs a header_mutation before it that removes the names of remove_on_match {ODD_NAMES:?}: servers that read headers as variables take `x.jwt.payload` for `x-jwt-payload`, and anybody could forge it"
        );
        Some(Doubt::new(&*guard.entry.path, text))
    }
}

/// Returns true if a filter removes every header whose name a server may take for another.
fn removes_odd_names(filter: &Filter<'_>) -> bool {
    let mutations = filter.fields.at(&["mutations", "request_mutations"]);
    filter.r#type == HEADER_MUTATION
        && mutations.is_some_and(|mutations| {
            mutations.items().any(|mutation| {
                let regex = mutation.at(&["remove_on_match", "key_matcher", "safe_regex", "regex"]);
                regex.as_ref().and_then(Place::text) == Some(ODD_NAMES)
            })
        })
}

/// Finds a setting that writes a header field of requests.
fn writes<'d>(place: &Place<'d>, header: &str) -> Option<Place<'d>> {
    let is_one =
        |place: &Place<'_>| place.text().is_some_and(|text| text.eq_ignore_ascii_case(header));
    let added = place.at(&["header", "key"]);
    let claims = place.list("claim_to_headers").into_iter();
    let claims = claims.filter_map(|claim| claim.get("header_name"));
    let payload = place.get("forward_payload_header");
    if let Some(named) = added.into_iter().chain(claims).chain(payload).find(is_one) {
        return Some(named);
    }
    // A filter's own plugin has another format.
    let others = place.members().filter(|(name, _)| {
        !name.starts_with("response") && !matches!(*name, "configuration" | "xds_matcher")
    });
    others.map(|(_, member)| member).chain(place.items()).find_map(|inner| writes(&inner, header))
}
