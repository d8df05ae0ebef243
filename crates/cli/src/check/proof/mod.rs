//! Proves that no impersonation reaches an API past the guard.
//!
//! Two filters must stand before every route to a guarded API: `jwt_authn`, which requires one
//! token of the issuer, and the guard, in the one shape that is known to be entered for each
//! impersonation. A search for known mistakes would accept the next mistake. So `check` looks for
//! the proof instead: a route without it is a problem, and so is every other way to the servers of
//! an API.
//!
//! The file determines which routes lead to guarded APIs. A listener with `jwt_authn` for the
//! filter's tokens, or with the guard, has APIs behind it: all its routes count, except the
//! filter's own and those to the identity gateway. The servers behind such a route are guarded on
//! every listener, by whatever cluster a route, a mirror or a filter leads to them.

mod filters;
mod misdirected;
mod ordinary;
mod reasons;
mod sessions;
mod shape;
mod ways;

use std::collections::{BTreeSet, HashSet};

use impersonation_issuer::issuer::{Endpoint, Paths};

use super::clusters::Clusters;
use super::findings::{Doubt, Findings, Proved, Severity};
use super::guard::{Guard, Issuer};
use super::jwt_authn::{self, JWT_AUTHN, Tokens, Verified};
use super::reach::{Reach, Servers};
use super::routing::{self, Destination, Route, Variant};
use super::sessions::{OrdinaryHosts, PATHS, is_of_sessions};
use super::topology::{self, Chain, Filter, Listener};
use super::tree::{Place, member_path};
use super::wasm::Plugin;

use self::filters::Around;
use self::reasons::{Causes, Reason, problem, warning};
use self::sessions::OfSessions;
use self::ways::Lead;

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
    pub(super) ordinary: &'a OrdinaryHosts,
}

/// Judges every way that leads to a guarded API.
pub(super) fn check(file: &EnvoyFile<'_, '_, '_>, findings: &mut Findings) -> Proved {
    let listeners = topology::listeners(file.root);
    let tokens = file.tokens(&listeners);
    let reach = Reach::read(file.root);
    let judge = Judge { file, tokens: &tokens, reach: &reach };
    let gateways = judge.gateways(&listeners);
    let guarded = Guarded {
        all: judge.guarded(&listeners, &gateways, |_| true),
        apis: judge.guarded(&listeners, &gateways, |chain| !file.has_sessions(chain)),
        told: judge.told_in_sessions(&listeners),
    };
    let has_apis =
        listeners.iter().flat_map(|listener| &listener.chains).any(|chain| judge.has_apis(chain));
    let mut proved = Proved::default();
    let mut causes = Causes::default();
    if has_apis {
        for listener in &listeners {
            judge.check_listener(listener, &gateways, &guarded, &mut proved, &mut causes);
        }
        for name in ["lds_config", "cds_config"] {
            if let Some(elsewhere) = file.root.at(&["dynamic_resources", name]) {
                let what = if name == "lds_config" {
                    "listeners come by LDS"
                } else {
                    "clusters come by CDS"
                };
                findings.warning(
                    elsewhere.path,
                    format!("more {what}, and nobody knows whether they lead to APIs past the guard: check a file that has them"),
                );
            }
        }
    }
    causes.report(findings);
    check_sessions_stand(file, findings);
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

/// Warns of a filter whose sessions have no listener.
fn check_sessions_stand(file: &EnvoyFile<'_, '_, '_>, findings: &mut Findings) {
    let is_there = file.guard_plugins.iter().any(|guard| guard.session_domain().is_some());
    let mut filters = file.filters.iter();
    let Some(filter) = filters.find(|filter| filter.sessions().is_some()) else { return };
    if let (false, Ok((_, path))) = (is_there, filter.configuration()) {
        findings.warning(
            member_path(&path, "browser_sessions"),
            "no listener in this file has a guard for these sessions (browser_session): add it, or check the file that has it",
        );
    }
}

/// The servers behind the guard.
struct Guarded<'d> {
    all: Servers<'d>,
    /// Without those that only the listeners of browser sessions lead to.
    apis: Servers<'d>,
    /// The header fields by which the application of the sessions knows whose request it is.
    told: BTreeSet<String>,
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
    /// Returns true if the guard of a chain is for browser sessions.
    pub(super) fn has_sessions(&self, chain: &Chain<'_>) -> bool {
        let mut here = self.guard_plugins.iter().filter(|guard| is_in(guard, chain));
        here.any(|guard| guard.session_domain().is_some())
    }

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
                .filter(|chain| !self.has_sessions(chain))
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
    reach: &'a Reach<'d>,
}

impl<'p, 'd> Judge<'_, 'p, 'd> {
    /// Judges all routes of a listener, and the other ways from there.
    fn check_listener(
        &self,
        listener: &Listener<'d>,
        gateways: &HashSet<&'d str>,
        guarded: &Guarded<'d>,
        proved: &mut Proved,
        causes: &mut Causes,
    ) {
        for chain in &listener.chains {
            for reason in self.check_sessions(listener, chain) {
                causes.add(&listener.name, None, reason);
            }
            let Some(routes) = &chain.routes else {
                let table = chain.manager.get("route_config");
                let path = table.map_or_else(|| chain.manager.path.clone(), |table| table.path);
                let text = "its routes are not in this file, so nobody knows whether they lead to APIs past the guard: check a file that has them";
                causes.add(&listener.name, None, warning(Doubt::new(path, text)));
                continue;
            };
            for route in routes {
                let is_api = self.has_apis(chain) && self.is_api(chain, route, gateways);
                let servers =
                    if self.is_ordinary(chain, route) { &guarded.apis } else { &guarded.all };
                let lead = ways::lead(route, self.reach, servers);
                if self.is_ordinary(chain, route)
                    && ways::lead(route, self.reach, &guarded.all).is_some()
                    && let Some(reason) = ordinary::check(route, &guarded.told)
                {
                    causes.add(&listener.name, Some(route), reason);
                }
                if !is_api && lead.is_none() {
                    if let Some(reason) = self.cannot_compare(route, servers) {
                        causes.add(&listener.name, Some(route), reason);
                    }
                    continue;
                }
                let mut reasons = self.judge(chain, route);
                let is_guarded = reasons.iter().all(|reason| reason.severity == Severity::Warning);
                if let (false, false, Some(Lead::Hidden(doubt))) = (is_api, is_guarded, lead) {
                    reasons = vec![problem(doubt)];
                }
                proved.routes = proved.routes.saturating_add(1);
                if is_guarded {
                    proved.guarded = proved.guarded.saturating_add(1);
                }
                for reason in reasons {
                    causes.add(&listener.name, Some(route), reason);
                }
            }
        }
        let mut others = ways::of_connections(listener, self.reach, &guarded.all);
        ways::of_filters(&listener.place, self.reach, &guarded.all, &mut others);
        for reason in others {
            causes.add(&listener.name, None, reason);
        }
    }

    /// Checks a connection manager for browser sessions: it has them, or it answers 421 to their
    /// hosts.
    fn check_sessions(&self, listener: &Listener<'d>, chain: &Chain<'d>) -> Vec<Reason> {
        if let Some(sessions) = self.sessions_in(chain) {
            return sessions.check();
        }
        let of_guards = self.file.guard_plugins.iter().filter_map(|guard| guard.session_domain());
        let of_filters = self.file.filters.iter().filter_map(|filter| filter.sessions());
        let domains: BTreeSet<_> =
            of_guards.chain(of_filters.map(|sessions| sessions.domain)).collect();
        let check = |domain: &String| misdirected::check(listener, chain, domain);
        domains.iter().flat_map(check).collect()
    }

    /// Returns the browser sessions of a connection manager, if its guard is for them.
    fn sessions_in<'c>(&'c self, chain: &'c Chain<'d>) -> Option<OfSessions<'c, 'p, 'd>> {
        let mut here = self.file.guard_plugins.iter().filter(|guard| is_in(guard, chain));
        let domain = here.find_map(|guard| guard.session_domain())?;
        let guard = self.file.guards.iter().find(|guard| guard.is_in(chain));
        let filter = self.filters_in(chain).next();
        let filter = filter.map(|(filter, entry)| (entry, filter.sessions()));
        Some(OfSessions { chain, domain, guard, filter })
    }

    /// Returns true for a route of the application's ordinary host, which is no API of
    /// impersonations: no token of the filter is asked for there.
    fn is_ordinary(&self, chain: &Chain<'d>, route: &Route<'d>) -> bool {
        self.file.ordinary.have(&route.host) && !self.requires_a_token(chain, route)
    }

    /// Returns the servers of all guarded APIs on chains of some kind.
    fn guarded(
        &self,
        listeners: &[Listener<'d>],
        gateways: &HashSet<&'d str>,
        is_of_kind: impl Fn(&Chain<'d>) -> bool,
    ) -> Servers<'d> {
        let mut guarded = Servers::default();
        let chains = listeners.iter().flat_map(|listener| &listener.chains);
        for chain in chains.filter(|chain| self.has_apis(chain) && is_of_kind(chain)) {
            for route in chain.routes.iter().flatten() {
                if self.is_api(chain, route, gateways) {
                    for name in ways::own_clusters(route) {
                        guarded.extend(self.reach.servers(name));
                    }
                }
            }
        }
        guarded
    }

    /// Returns the header fields that `jwt_authn` and the guard write on the hosts of sessions.
    fn told_in_sessions(&self, listeners: &[Listener<'d>]) -> BTreeSet<String> {
        let chains = listeners.iter().flat_map(|listener| &listener.chains);
        let chains = chains.filter(|chain| self.file.has_sessions(chain));
        let by_jwt_authn =
            chains.flat_map(Self::jwt_authns).flat_map(|(_, filter)| ordinary::made_by(filter));
        let of_sessions =
            self.file.guards.iter().filter(|guard| guard.plugin.session_domain().is_some());
        let by_guard = of_sessions.flat_map(|guard| {
            let headers = &guard.config.headers;
            [&headers.id, &headers.actor].into_iter().flatten().cloned()
        });
        by_jwt_authn.chain(by_guard).collect()
    }

    /// Warns of a route whose servers nobody can compare with those of the APIs.
    fn cannot_compare(&self, route: &Route<'d>, guarded: &Servers<'d>) -> Option<Reason> {
        let names = ways::own_clusters(route);
        let unseen = names.iter().find(|name| self.reach.servers(name).unseen);
        let name = unseen.filter(|_| !guarded.is_empty())?;
        let text = format!(
            "the addresses of its cluster {name:?} are not in this file, so nobody knows whether a guarded API is there: check a file that has them"
        );
        Some(warning(Doubt::new(&*route.route.path, text)))
    }

    /// Returns the clusters of the routes that take only the filter's paths: the identity gateways.
    /// A route that takes other paths as well may lead to an API.
    fn gateways(&self, listeners: &[Listener<'d>]) -> HashSet<&'d str> {
        let chains = listeners.iter().flat_map(|listener| &listener.chains);
        let routes =
            chains.flat_map(|chain| chain.routes.iter().flatten().map(move |route| (chain, route)));
        routes
            .filter(|(chain, _)| !self.file.has_sessions(chain))
            .filter(|(chain, route)| self.is_own(chain, route))
            .flat_map(|(_, route)| ways::own_clusters(route))
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
        if self.is_own(chain, route) || self.is_ordinary(chain, route) {
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
            let whole = Endpoint::ALL.iter().filter_map(|endpoint| endpoint.path(&paths));
            let of_sessions = self.file.has_sessions(chain).then_some(PATHS);
            let of_sessions = of_sessions.into_iter().flatten().map(str::to_owned);
            let mut whole = whole.filter(|path| !is_of_sessions(path)).chain(of_sessions);
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

    /// Finds the reasons why a route is not proved.
    fn judge(&self, chain: &Chain<'d>, route: &Route<'d>) -> Vec<Reason> {
        let variants = route.variants();
        variants.iter().flat_map(|variant| self.judge_variant(chain, route, variant)).collect()
    }

    fn judge_variant(
        &self,
        chain: &Chain<'d>,
        route: &Route<'d>,
        variant: &Variant<'d>,
    ) -> Vec<Reason> {
        let doubt = |path: &str, text: &str| vec![problem(Doubt::new(path, text))];
        let mut jwt_authns = Self::jwt_authns(chain);
        let of_jwt_authn = jwt_authns.next();
        if jwt_authns.next().is_some() {
            let text = "several jwt_authn stand before it, and one can overwrite what another has said: keep one";
            return doubt(&chain.manager.path, text);
        }
        let Some((of_jwt_authn, jwt_authn)) = of_jwt_authn else {
            return match self.entry_of_guard(chain, None) {
                Some(_) if chain.filters.iter().any(|filter| filter.r#type.is_empty()) => doubt(
                    &chain.manager.path,
                    "jwt_authn is not among its filters in this file, of which some come from elsewhere: check a file that has them",
                ),
                Some(filter) => doubt(
                    &filter.path,
                    "the guard needs envoy.filters.http.jwt_authn before it, which verifies the token that it goes by",
                ),
                None => doubt(
                    &route.route.path,
                    "it leads to a guarded API, and neither jwt_authn nor the guard stands before it: put both there, or take the route away",
                ),
            };
        };
        let verified = self.verify(jwt_authn, route, variant);
        let Some(filter) = self.entry_of_guard(chain, verified.provider.as_ref()) else {
            return doubt(
                &jwt_authn.entry.path,
                "jwt_authn accepts access tokens of the filter, and no guard stands behind it: an impersonation that was ended goes on until its token expires; put the guard there (docs/guard.md)",
            );
        };
        let mut reasons: Vec<_> = verified.doubts.into_iter().map(problem).collect();
        reasons.extend(verified.faults.into_iter().map(warning));
        check_path(&chain.manager, &mut reasons);
        let of_guard = chain.filters.iter().position(|one| one.entry.path == filter.path);
        let of_guard = of_guard.unwrap_or_default();
        if of_guard < of_jwt_authn {
            reasons.push(problem(Doubt::new(
                &*filter.path,
                "the guard stands before jwt_authn: there are no claims yet to enter it by, and every impersonation passes it by; put it behind",
            )));
        }
        let around = Around { chain, route, variant, jwt_authn: of_jwt_authn, guard: of_guard };
        let is_filter = |other: &Filter<'d>| {
            self.filters_in(chain).any(|(_, entry)| entry.path == other.entry.path)
        };
        around.check(self.reach, is_filter, &mut reasons);
        reasons.extend(check_switch(filter, variant));
        self.check_guards(&around, filter, verified.provider.as_ref(), &mut reasons);
        reasons
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
        around: &Around<'_, 'd>,
        filter: &Place<'d>,
        provider: Option<&Place<'d>>,
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
        let sessions = self.sessions_in(around.chain);
        let of_shape = match &sessions {
            Some(_) => shape::check_plain(filter),
            None => shape::check(filter, &names),
        };
        reasons.extend(of_shape.into_iter().map(problem));
        if let Some(sessions) = &sessions {
            reasons.extend(sessions.check_route(around, provider));
        }
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
                reasons.push(problem(Doubt::new(guard.plugin.path_of("configuration"), text)));
            }
        }
        let headers = [&config.headers.id, &config.headers.actor].into_iter().flatten();
        reasons.extend(headers.filter_map(|header| around.not_removed(header)).map(problem));
        reasons.extend(around.odd_names_not_removed().map(problem));
    }
}

/// Checks that routes, guard and API interpret a path in the same way.
fn check_path(manager: &Place<'_>, reasons: &mut Vec<Reason>) {
    for name in ["normalize_path", "merge_slashes"] {
        if !manager.is_set(name) {
            reasons.push(problem(Doubt::new(
                manager.get(name).map_or_else(|| manager.path.clone(), |member| member.path),
                format!("{name} is not true: a path can be one thing to routes, jwt_authn and guard, and another to the API; set it"),
            )));
        }
    }
    let action = manager.get("path_with_escaped_slashes_action");
    let known = ["REJECT_REQUEST", "UNESCAPE_AND_REDIRECT", "UNESCAPE_AND_FORWARD"];
    if !action.as_ref().and_then(Place::text).is_some_and(|action| known.contains(&action)) {
        reasons.push(problem(Doubt::new(
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
        Some(setting) => Some(problem(Doubt::new(
            setting.path,
            "a setting of the guard's entry for this route can enter it for less, as ExtensionWithMatcherPerRoute does: take it out",
        ))),
    }
}
