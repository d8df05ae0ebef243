//! Proves that no impersonation reaches an API past the guard.
//!
//! Two filters must stand before every route to a guarded API: `jwt_authn`, which requires one
//! token of the issuer, and the guard, in the one shape that is known to be entered for each
//! impersonation. A search for known mistakes would accept the next mistake. So `check` looks for
//! the proof instead: it reports everything that is missing or unknown.
//!
//! The file determines which routes lead to guarded APIs. A listener with `jwt_authn` for the
//! filter's tokens, or with the guard, has APIs behind it: all its routes count, except the
//! filter's own and those to the identity gateway. A cluster behind such a route is a guarded API
//! on other listeners too.

mod shape;

use std::collections::{BTreeMap, HashMap, HashSet};

use impersonation_core::issuer::{Endpoint, Paths};

use super::clusters::Clusters;
use super::findings::{Doubt, Findings, Proved, Severity};
use super::guard::{Guard, Issuer};
use super::jwt_authn::{self, JWT_AUTHN, Tokens, Verified};
use super::routing::{self, Destination, Route, Variant};
use super::topology::{self, Chain, Filter, Listener};
use super::tree::{Place, member_path};
use super::wasm::Plugin;

const HEADER_MUTATION: &str = "envoy.extensions.filters.http.header_mutation.v3.HeaderMutation";

/// Filters that do not change the metadata which `jwt_authn` sets.
const HARMLESS: [&str; 15] = [
    HEADER_MUTATION,
    "envoy.extensions.filters.http.buffer.v3.Buffer",
    "envoy.extensions.filters.http.compressor.v3.Compressor",
    "envoy.extensions.filters.http.cors.v3.Cors",
    "envoy.extensions.filters.http.csrf.v3.CsrfPolicy",
    "envoy.extensions.filters.http.decompressor.v3.Decompressor",
    "envoy.extensions.filters.http.fault.v3.HTTPFault",
    "envoy.extensions.filters.http.grpc_stats.v3.FilterConfig",
    "envoy.extensions.filters.http.grpc_web.v3.GrpcWeb",
    "envoy.extensions.filters.http.header_to_metadata.v3.Config",
    "envoy.extensions.filters.http.health_check.v3.HealthCheck",
    "envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit",
    "envoy.extensions.filters.http.ratelimit.v3.RateLimit",
    "envoy.extensions.filters.http.rbac.v3.RBAC",
    "envoy.extensions.filters.http.router.v3.Router",
];

/// An Envoy configuration, with its plugins.
pub(super) struct EnvoyFile<'a, 'p, 'd> {
    pub(super) root: &'a Place<'d>,
    pub(super) clusters: &'a Clusters<'d>,
    /// All filters, also those whose configuration is not valid.
    pub(super) filters: &'a [&'p Plugin<'d>],
    pub(super) issuers: &'a [Issuer<'p, 'd>],
    pub(super) guards: &'a [Guard<'p, 'd>],
    /// All guards, also those whose configuration is not valid.
    pub(super) guard_plugins: &'a [&'p Plugin<'d>],
}

/// A reason why a route is not proved.
struct Reason {
    severity: Severity,
    doubt: Doubt,
}

/// Judges every route that leads to a guarded API.
pub(super) fn check(file: &EnvoyFile<'_, '_, '_>, findings: &mut Findings) -> Proved {
    let listeners = topology::listeners(file.root);
    let tokens = file.tokens(&listeners);
    let judge = Judge { file, tokens: &tokens };
    let gateways = judge.gateways(&listeners);
    let mut guarded_clusters = HashSet::new();
    let mut has_apis = false;
    for chain in listeners.iter().flat_map(|listener| &listener.chains) {
        if !judge.has_apis(chain) {
            continue;
        }
        has_apis = true;
        for route in chain.routes.iter().flatten() {
            if judge.is_api(chain, route, &gateways) {
                guarded_clusters.extend(clusters_of(route));
            }
        }
    }
    let mut proved = Proved::default();
    let mut causes = Causes::default();
    for listener in &listeners {
        for chain in &listener.chains {
            if let Some(reason) = judge.guards_nobody(chain) {
                causes.add(&listener.name, None, reason);
            }
            let behind = judge.has_apis(chain);
            let Some(routes) = &chain.routes else {
                if has_apis {
                    let path = chain
                        .manager
                        .get("route_config")
                        .map_or_else(|| chain.manager.path.clone(), |table| table.path);
                    let text = "its routes are not in this file, so nobody knows whether they lead to APIs past the guard: check a file that has them";
                    let reason =
                        Reason { severity: Severity::Warning, doubt: Doubt::new(path, text) };
                    causes.add(&listener.name, None, reason);
                }
                continue;
            };
            for route in routes {
                let leads_to_api = clusters_of(route).any(|name| guarded_clusters.contains(name));
                let counts = behind && judge.is_api(chain, route, &gateways)
                    || leads_to_api && !judge.is_own(chain, route);
                if !counts {
                    continue;
                }
                let Some(reasons) = judge.judge(chain, route) else { continue };
                proved.routes = proved.routes.saturating_add(1);
                if reasons.is_empty() {
                    proved.guarded = proved.guarded.saturating_add(1);
                }
                for reason in reasons {
                    causes.add(&listener.name, Some(route), reason);
                }
            }
        }
        for (cluster, place) in &listener.piped_to {
            if guarded_clusters.contains(cluster) {
                let text = format!(
                    "tcp_proxy passes connections on to {cluster}, where a guarded API is, past jwt_authn and guard: take it out"
                );
                let reason =
                    Reason { severity: Severity::Warning, doubt: Doubt::new(&*place.path, text) };
                causes.add(&listener.name, None, reason);
            }
        }
    }
    if let Some(lds) = file.root.at(&["dynamic_resources", "lds_config"]).filter(|_| has_apis) {
        findings.warning(
            lds.path,
            "more listeners come by LDS, and nobody knows whether they lead to APIs past the guard: check a file that has them",
        );
    }
    causes.report(findings);
    for guard in file.guards {
        let stands_somewhere = listeners
            .iter()
            .flat_map(|listener| &listener.chains)
            .any(|chain| chain.routes.is_some() && guard.is_in(chain));
        if !(stands_somewhere && proved.routes > 0) {
            for (severity, doubt) in &guard.faults {
                findings.add(*severity, doubt.path.clone(), doubt.text.clone());
            }
        }
    }
    proved
}

/// Returns the clusters that a route leads to.
fn clusters_of<'d>(route: &Route<'d>) -> impl Iterator<Item = &'d str> + use<'d> {
    match route.destination() {
        Destination::Clusters(names) => names,
        Destination::Nowhere | Destination::Unknown => Vec::new(),
    }
    .into_iter()
}

impl<'d> Guard<'_, 'd> {
    fn is_in(&self, chain: &Chain<'d>) -> bool {
        is_in(self.plugin, chain)
    }
}

/// Returns true if a plugin stands in a chain.
pub(super) fn is_in(plugin: &Plugin<'_>, chain: &Chain<'_>) -> bool {
    let manager = plugin.around.manager.as_ref();
    manager.is_some_and(|manager| manager.path == chain.manager.path)
}

impl<'a> EnvoyFile<'a, '_, '_> {
    fn tokens(&self, listeners: &[Listener<'_>]) -> Tokens<'a> {
        let mut issuers: Vec<&str> = Vec::new();
        let of_filters = self.issuers.iter().map(|issuer| &*issuer.checked.config.issuer);
        for issuer in of_filters.chain(self.guards.iter().map(|guard| &*guard.config.issuer)) {
            if !issuers.contains(&issuer) {
                issuers.push(issuer);
            }
        }
        let configs = || self.issuers.iter().map(|issuer| &issuer.checked);
        let with_filter = listeners.iter().filter(|listener| {
            listener
                .chains
                .iter()
                .any(|chain| self.filters.iter().any(|filter| is_in(filter, chain)))
        });
        let port = |listener: &Listener<'_>| {
            listener.place.at(&["address", "socket_address", "port_value"])?.number()
        };
        let indicators =
            configs().flat_map(|checked| checked.config.resources.keys().map(String::as_str));
        Tokens {
            issuers,
            indicators: (!self.issuers.is_empty()).then(|| indicators.collect()),
            key_sets: configs()
                .map(|checked| (&*checked.config.issuer, &*checked.config.paths.jwks))
                .collect(),
            ports: with_filter.filter_map(port).collect(),
            published: (!self.issuers.is_empty() && configs().all(|checked| !checked.assumed))
                .then(|| configs().flat_map(|checked| &checked.config.published_keys).collect()),
        }
    }
}

/// Returns the regular expressions by which a route may name the paths with an id: one for each
/// path, and, as envoy.yaml has it, one for all paths in one folder.
fn regexes_of_ids(paths: &Paths) -> Vec<String> {
    const ID: &str = "[0-9a-f]+";
    let whole = Endpoint::ALL.iter().filter_map(|endpoint| endpoint.path(paths));
    let parents: Vec<_> =
        whole.filter_map(|path| Some(path.strip_suffix("/{id}")?.replace('.', r"\."))).collect();
    let mut regexes: Vec<_> = parents.iter().map(|parent| format!("{parent}/{ID}")).collect();
    let split: Vec<_> = parents.iter().filter_map(|parent| parent.rsplit_once('/')).collect();
    if let [(folder, _), ..] = &*split
        && split.iter().all(|(other, _)| other == folder)
    {
        let names: Vec<_> = split.iter().map(|(_, name)| *name).collect();
        regexes.push(format!("{folder}/({})/{ID}", names.join("|")));
    }
    regexes
}

struct Judge<'a, 'p, 'd> {
    file: &'a EnvoyFile<'a, 'p, 'd>,
    tokens: &'a Tokens<'a>,
}

impl<'d> Judge<'_, '_, 'd> {
    /// Returns the clusters of the routes that take only the filter's paths: the identity gateways.
    /// A route that takes other paths as well may lead to an API.
    fn gateways(&self, listeners: &[Listener<'d>]) -> HashSet<&'d str> {
        let chains = listeners.iter().flat_map(|listener| &listener.chains);
        let routes =
            chains.flat_map(|chain| chain.routes.iter().flatten().map(move |route| (chain, route)));
        routes
            .filter(|(chain, route)| self.is_own(chain, route))
            .flat_map(|(_, route)| clusters_of(route))
            .collect()
    }

    fn filters_in<'c>(
        &'c self,
        chain: &'c Chain<'d>,
    ) -> impl Iterator<Item = (&'c Plugin<'d>, &'c Place<'d>)> {
        let here = self.file.filters.iter().filter(|filter| is_in(filter, chain));
        here.filter_map(|filter| Some((*filter, filter.around.filter.as_ref()?)))
    }

    fn jwt_authns<'c>(chain: &'c Chain<'d>) -> impl Iterator<Item = (usize, &'c Filter<'d>)> {
        chain.filters.iter().enumerate().filter(|(_, filter)| filter.r#type == JWT_AUTHN)
    }

    /// Returns true if a chain accepts tokens of the filter.
    fn has_apis(&self, chain: &Chain<'d>) -> bool {
        let verifies = Self::jwt_authns(chain).any(|(_, filter)| self.takes_our_tokens(filter));
        // A file without filter and guard has nothing to prove.
        let is_ours = !self.tokens.issuers.is_empty();
        is_ours && verifies || self.file.guard_plugins.iter().any(|guard| is_in(guard, chain))
    }

    /// Finds a guard whose `jwt_authn` accepts no token of the guard's issuer.
    fn guards_nobody(&self, chain: &Chain<'d>) -> Option<Reason> {
        let guard = self.file.guards.iter().find(|guard| guard.is_in(chain))?;
        let (_, jwt_authn) = Self::jwt_authns(chain).next()?;
        (!self.takes_our_tokens(jwt_authn)).then(|| {
            let text = format!("no provider of jwt_authn has the guard's issuer {:?}, so no token of an impersonation is accepted: spell it as there", guard.config.issuer);
            warning(Doubt::new(&*jwt_authn.entry.path, text))
        })
    }

    fn takes_our_tokens(&self, jwt_authn: &Filter<'d>) -> bool {
        let providers = jwt_authn.fields.get("providers");
        let mut providers = providers.into_iter().flat_map(|all| all.members().collect::<Vec<_>>());
        providers.any(|(_, provider)| self.tokens.may_be_of(&provider))
    }

    /// Returns true if a route of a chain with APIs leads to an API.
    fn is_api(&self, chain: &Chain<'d>, route: &Route<'d>, gateways: &HashSet<&str>) -> bool {
        let leads_to = match route.destination() {
            Destination::Nowhere => return false,
            Destination::Clusters(names) => names,
            Destination::Unknown => Vec::new(),
        };
        if self.is_own(chain, route) {
            return false;
        }
        let is_gateways =
            !leads_to.is_empty() && leads_to.iter().all(|name| gateways.contains(name));
        !is_gateways || self.requires_a_token(chain, route)
    }

    fn requires_a_token(&self, chain: &Chain<'d>, route: &Route<'d>) -> bool {
        route.variants().iter().any(|variant| {
            Self::jwt_authns(chain)
                .any(|(_, filter)| self.verify(filter, route, variant).provider.is_some())
        })
    }

    /// Returns true if a route takes only the filter's paths, and the filter is enabled there.
    fn is_own(&self, chain: &Chain<'d>, route: &Route<'d>) -> bool {
        self.filters_in(chain).any(|(filter, entry)| {
            let paths = filter.paths();
            let mut whole = Endpoint::ALL.iter().filter_map(|endpoint| endpoint.path(&paths));
            let is_its = route.whole_path().is_some_and(|path| whole.any(|ours| ours == path))
                || route
                    .regex()
                    .is_some_and(|regex| regexes_of_ids(&paths).iter().any(|known| known == regex));
            is_its && route.variants().iter().all(|variant| variant.has_enabled(entry))
        })
    }

    fn verify(
        &self,
        jwt_authn: &Filter<'d>,
        route: &Route<'d>,
        variant: &Variant<'d>,
    ) -> Verified<'d> {
        let ports = |name: &str| self.file.clusters.ports(name);
        jwt_authn::verify(jwt_authn, route, variant, self.tokens, &ports)
    }

    /// Finds the reasons why a route is not proved; `None` if the route accepts no token of the
    /// filter.
    fn judge(&self, chain: &Chain<'d>, route: &Route<'d>) -> Option<Vec<Reason>> {
        let mut reasons = Vec::new();
        let mut concerns_us = false;
        for variant in route.variants() {
            let Some(more) = self.judge_variant(chain, route, &variant) else { continue };
            concerns_us = true;
            reasons.extend(more);
        }
        concerns_us.then_some(reasons)
    }

    fn judge_variant(
        &self,
        chain: &Chain<'d>,
        route: &Route<'d>,
        variant: &Variant<'d>,
    ) -> Option<Vec<Reason>> {
        let doubt = |path: &str, text: &str| vec![warning(Doubt::new(path, text))];
        let mut jwt_authns = Self::jwt_authns(chain);
        let of_jwt_authn = jwt_authns.next();
        if jwt_authns.next().is_some() {
            let text = "several jwt_authn stand before it, and one can overwrite what another has said: keep one";
            return Some(doubt(&chain.manager.path, text));
        }
        let Some((of_jwt_authn, jwt_authn)) = of_jwt_authn else {
            return Some(match self.entry_of_guard(chain, None) {
                Some(_) if chain.filters.iter().any(|filter| filter.r#type.is_empty()) => doubt(
                    &chain.manager.path,
                    "jwt_authn is not among its filters in this file, of which some come from elsewhere: check a file that has them",
                ),
                Some(filter) => vec![problem(Doubt::new(
                    &*filter.path,
                    "the guard needs envoy.filters.http.jwt_authn before it, which verifies the token that it goes by",
                ))],
                None => doubt(
                    &route.route.path,
                    "it leads to a guarded API, and neither jwt_authn nor the guard stands before it: put both there, or take the route away",
                ),
            });
        };
        let verified = self.verify(jwt_authn, route, variant);
        if !verified.concerns_us {
            return None;
        }
        let Some(filter) = self.entry_of_guard(chain, verified.provider.as_ref()) else {
            return Some(doubt(
                &jwt_authn.entry.path,
                "jwt_authn accepts access tokens of the filter, and no guard stands behind it: an impersonation that was ended goes on until its token expires; put the guard there (docs/guard.md)",
            ));
        };
        let mut reasons: Vec<_> = verified.doubts.into_iter().map(warning).collect();
        check_path(&chain.manager, &mut reasons);
        let of_guard = chain.filters.iter().position(|one| one.entry.path == filter.path);
        let of_guard = of_guard.unwrap_or_default();
        if of_guard < of_jwt_authn {
            reasons.push(problem(Doubt::new(
                &*filter.path,
                "the guard stands before jwt_authn: there are no claims yet to enter it by, and every impersonation passes it by; put it behind",
            )));
        }
        let between = chain.filters.iter().take(of_guard).skip(of_jwt_authn.saturating_add(1));
        for other in between
            .filter(|other| !HARMLESS.contains(&other.r#type) && variant.has_enabled(&other.entry))
        {
            reasons.push(warning(Doubt::new(
                &*other.entry.path,
                format!("{:?} between jwt_authn and the guard could change what the guard is entered by: put it before the one or behind the other", other.name()),
            )));
        }
        reasons.extend(check_switch(filter, variant));
        self.check_guards(
            chain,
            filter,
            of_guard,
            verified.provider.as_ref(),
            variant,
            &mut reasons,
        );
        Some(reasons)
    }

    /// Returns the entry of a chain's guard. Of several guards, the one for the provider's tokens
    /// counts.
    fn entry_of_guard<'c>(
        &'c self,
        chain: &Chain<'d>,
        provider: Option<&Place<'d>>,
    ) -> Option<&'c Place<'d>> {
        // A guard in the setting of a route does not stand in the chain.
        let is_here = |guard: &Plugin<'d>| is_in(guard, chain) && guard.around.filter.is_some();
        let issuer = provider.and_then(|provider| provider.text_of("issuer"));
        let of_issuer = self
            .file
            .guards
            .iter()
            .find(|guard| is_here(guard.plugin) && issuer == Some(&*guard.config.issuer));
        let any = || self.file.guard_plugins.iter().find(|guard| is_here(guard)).copied();
        of_issuer.map(|guard| guard.plugin).or_else(any)?.around.filter.as_ref()
    }

    /// Checks that the chain's guard is for the tokens' issuer, and is entered for all of its
    /// tokens.
    fn check_guards(
        &self,
        chain: &Chain<'d>,
        filter: &Place<'d>,
        of_guard: usize,
        provider: Option<&Place<'d>>,
        variant: &Variant<'d>,
        reasons: &mut Vec<Reason>,
    ) {
        let here = |guard: &&Guard<'_, 'd>| {
            guard.plugin.around.filter.as_ref().is_some_and(|entry| entry.path == filter.path)
        };
        // A guard whose configuration is not valid was reported already.
        let Some(guard) = self.file.guards.iter().find(here) else { return };
        let config = &guard.config;
        for (severity, fault) in &guard.faults {
            let doubt = Doubt::new(fault.path.clone(), fault.text.clone());
            reasons.push(Reason { severity: *severity, doubt });
        }
        let names = shape::Guard {
            issuer: &config.issuer,
            payload_in_metadata: &config.payload_in_metadata,
        };
        reasons.extend(shape::check(filter, &names).into_iter().map(problem));
        if let Some(provider) = provider {
            let payload = provider.get("payload_in_metadata");
            if payload.as_ref().and_then(Place::text) != Some(&config.payload_in_metadata) {
                let path = payload.map_or_else(|| provider.path.clone(), |payload| payload.path);
                let text = format!(
                    "the provider's payload_in_metadata must be {:?}, where the guard is entered by: else impersonations pass it by",
                    config.payload_in_metadata
                );
                reasons.push(problem(Doubt::new(path, text)));
            }
            let issuer = provider.text_of("issuer");
            if issuer.is_some_and(|issuer| {
                issuer != config.issuer && self.tokens.issuers.contains(&issuer)
            }) {
                let text = "the guard has another issuer than jwt_authn's provider, and refuses every impersonation: name the filter's in both";
                reasons.push(warning(Doubt::new(guard.plugin.path_of("configuration"), text)));
            }
        }
        let before: Vec<_> = chain.filters.iter().take(of_guard).collect();
        let headers = [&config.headers.id, &config.headers.actor].into_iter().flatten();
        for header in headers {
            if let Some(doubt) = not_removed(header, &before, filter, variant) {
                reasons.push(problem(doubt));
            }
        }
    }
}

fn warning(doubt: Doubt) -> Reason {
    Reason { severity: Severity::Warning, doubt }
}

fn problem(doubt: Doubt) -> Reason {
    Reason { severity: Severity::Problem, doubt }
}

/// Checks that routes, guard and API interpret a path in the same way.
fn check_path(manager: &Place<'_>, reasons: &mut Vec<Reason>) {
    for name in ["normalize_path", "merge_slashes"] {
        if !manager.is_set(name) {
            reasons.push(warning(Doubt::new(
                manager.get(name).map_or_else(|| manager.path.clone(), |member| member.path),
                format!("{name} is not true: a path can be one thing to routes, jwt_authn and guard, and another to the API; set it"),
            )));
        }
    }
    let action = manager.get("path_with_escaped_slashes_action");
    let known = ["REJECT_REQUEST", "UNESCAPE_AND_REDIRECT", "UNESCAPE_AND_FORWARD"];
    if !action.as_ref().and_then(Place::text).is_some_and(|action| known.contains(&action)) {
        reasons.push(warning(Doubt::new(
            action.map_or_else(|| manager.path.clone(), |action| action.path),
            "path_with_escaped_slashes_action leaves `%2F` in paths, which an API may take for a slash: set UNESCAPE_AND_REDIRECT",
        )));
    }
}

/// Finds a setting that disables the guard's entry.
fn check_switch(filter: &Place<'_>, variant: &Variant<'_>) -> Option<Reason> {
    let setting = variant.setting(filter.text_of("name").unwrap_or_default());
    match setting {
        None if filter.is_set("disabled") => Some(problem(Doubt::new(
            member_path(&filter.path, "disabled"),
            "the guard is disabled: impersonations pass it by; take that out, ordinary users do not enter it anyway",
        ))),
        None => None,
        Some(setting) if routing::disables(&setting) => Some(problem(Doubt::new(
            setting.path,
            "this switches the guard off: impersonations pass it by; take it out",
        ))),
        Some(setting) => Some(warning(Doubt::new(
            setting.path,
            "a setting of the guard's entry for this route can enter it for less, as ExtensionWithMatcherPerRoute does: take it out",
        ))),
    }
}

/// Finds a way for an ordinary user to forge a header of the guard.
fn not_removed(
    header: &str,
    before: &[&Filter<'_>],
    guard: &Place<'_>,
    variant: &Variant<'_>,
) -> Option<Doubt> {
    let removes = |filter: &&&Filter<'_>| {
        let mutations = filter.fields.at(&["mutations", "request_mutations"]);
        filter.r#type == HEADER_MUTATION
            && mutations.is_some_and(|mutations| {
                let removed = mutations.items().filter_map(|mutation| mutation.text_of("remove"));
                removed.into_iter().any(|name| name.eq_ignore_ascii_case(header))
            })
    };
    let its: Vec<_> = before.iter().filter(removes).collect();
    if its.is_empty() {
        return Some(Doubt::new(
            &*guard.path,
            format!(
                "the guard needs a header_mutation before it that removes {header}: an ordinary user could forge it"
            ),
        ));
    }
    if !its.iter().any(|filter| variant.has_enabled(&filter.entry)) {
        return Some(Doubt::new(
            &*guard.path,
            format!(
                "the header_mutation that removes {header} is disabled here: an ordinary user could forge it; take that out"
            ),
        ));
    }
    // Envoy applies the mutations of a route after those of the filter.
    let adds = its.iter().filter_map(|filter| variant.setting(filter.name())).find(|setting| {
        setting.value.to_string().to_ascii_lowercase().contains(&format!("\"{header}\""))
    });
    adds.map(|setting| {
        Doubt::new(setting.path, format!("a header_mutation of this route writes {header}, which is the guard's alone: take it out"))
    })
}

/// Collects reasons, so that a cause is one line of the report however many routes it concerns.
#[derive(Default)]
struct Causes {
    order: Vec<(Severity, String, Doubt)>,
    routes: HashMap<(String, String, String), BTreeMap<usize, String>>,
}

impl Causes {
    fn add(&mut self, listener: &str, route: Option<&Route<'_>>, reason: Reason) {
        let Reason { severity, doubt } = reason;
        // A reason about the routes themselves has a different path on each, and is one cause.
        let is_own = route.is_some_and(|route| doubt.path.starts_with(&route.route.path));
        let place = if is_own { String::new() } else { doubt.path.clone() };
        let key = (listener.to_owned(), place, doubt.text.clone());
        if !self.routes.contains_key(&key) {
            self.order.push((severity, listener.to_owned(), doubt));
        }
        let routes = self.routes.entry(key).or_default();
        let next = routes.len();
        if let Some(label) =
            route.map(Route::label).filter(|label| !routes.values().any(|have| have == label))
        {
            routes.insert(next, label);
        }
    }

    fn report(self, findings: &mut Findings) {
        let Self { order, routes } = self;
        for (severity, listener, doubt) in order {
            let find =
                |place: &str| routes.get(&(listener.clone(), place.to_owned(), doubt.text.clone()));
            let labels = find(&doubt.path).or_else(|| find(""));
            let labels: Vec<_> =
                labels.into_iter().flat_map(BTreeMap::values).map(String::as_str).collect();
            let subject = match &*labels {
                [] => format!("listener {listener}"),
                [one] => format!("listener {listener}, route {one}"),
                several => format!("listener {listener}, routes {}", several.join(", ")),
            };
            findings.add_about(severity, doubt.path, subject, doubt.text);
        }
    }
}
