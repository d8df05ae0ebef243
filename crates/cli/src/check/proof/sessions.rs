//! Proves the listener of browser sessions: each request there is made with the token of the
//! session's cookie, and the guard looks at each of them.
//!
//! A page of the application is written by others, and so are its requests. So no header of a
//! request may name another token or another user, and no route on the sessions' hosts may lead to
//! the application past the guard.

use impersonation_core::browser_session::COOKIE;

use super::super::findings::Doubt;
use super::super::guard::Guard;
use super::super::jwt_authn::as_audience;
use super::super::routing::{self, Destination, Route};
use super::super::rules::may_write;
use super::super::sessions::{PATHS, Sessions, without_port};
use super::super::topology::{Chain, Filter};
use super::super::tree::{Place, member_path};
use super::filters::{Around, HARMLESS, HEADER_MUTATION};
use super::reasons::{Reason, problem, warning};

const HEADER_TO_METADATA: &str = "envoy.extensions.filters.http.header_to_metadata.v3.Config";
const NAMESPACE: &str = "impersonation";
const KEY: &str = "cookie";
const BEARER: &str = "Bearer %DYNAMIC_METADATA(impersonation:cookie)%";
const OVERWRITE: &str = "OVERWRITE_IF_EXISTS_OR_ADD";

/// Filters that may stand before the filter on a session's host. A `header_mutation` there may
/// change responses only.
const BEFORE_THE_FILTER: [&str; 2] = [
    "envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit",
    "envoy.extensions.filters.http.ratelimit.v3.RateLimit",
];

/// A connection manager whose guard is for browser sessions.
pub(super) struct OfSessions<'a, 'p, 'd> {
    pub(super) chain: &'a Chain<'d>,
    /// The domain of the guard.
    pub(super) domain: String,
    /// The guard, if its configuration is valid.
    pub(super) guard: Option<&'a Guard<'p, 'd>>,
    /// The entry of the filter, with its sessions.
    pub(super) filter: Option<(&'a Place<'d>, Option<Sessions>)>,
}

impl<'d> OfSessions<'_, '_, 'd> {
    /// Checks what concerns all routes of the listener.
    pub(super) fn check(&self) -> Vec<Reason> {
        let mut reasons = Vec::new();
        self.check_filter(&mut reasons);
        self.check_hosts(&mut reasons);
        if let (Some(guard), Some((_, Some(sessions)))) = (self.guard, &self.filter) {
            self.compare(guard, sessions, &mut reasons);
        }
        reasons
    }

    /// Checks that the filter stands first, on its four paths alone.
    fn check_filter(&self, reasons: &mut Vec<Reason>) {
        let Some((entry, _)) = &self.filter else {
            let text = "the filter is not among the filters of the sessions: nobody can begin or end one; put it first, on its four paths";
            let path = member_path(&self.chain.manager.path, "http_filters");
            reasons.push(problem(Doubt::new(path, text)));
            return;
        };
        let before = self.chain.filters.iter().take_while(|other| other.entry.path != entry.path);
        for other in before.filter(|other| !may_stand_before(other)) {
            let text = format!(
                "{:?} stands before the filter, whose requests are not the application's: put the filter first",
                other.name()
            );
            reasons.push(problem(Doubt::new(&*other.entry.path, text)));
        }
        for route in self.chain.routes.iter().flatten() {
            let is_its = route.whole_path().is_some_and(|path| PATHS.contains(&path));
            if !is_its && route.variants().iter().any(|variant| variant.has_enabled(entry)) {
                let text = format!(
                    "the filter is on for {}, and every request of the application enters it: turn it on for its four paths alone",
                    route.label()
                );
                reasons.push(problem(Doubt::new(&*route.route.path, text)));
            }
        }
        for path in PATHS {
            if !self.answers(entry, path) {
                let text = format!(
                    "no route to {path} on the sessions' hosts has the filter on: give it a route of its own, before all others"
                );
                reasons.push(problem(Doubt::new(&*entry.path, text)));
            }
        }
    }

    /// Returns true if requests to `path` reach the filter on each virtual host of the sessions.
    fn answers(&self, entry: &Place<'d>, path: &str) -> bool {
        let Some(table) = self.chain.manager.get("route_config") else { return false };
        table.list("virtual_hosts").iter().filter(|host| self.is_ours(host)).all(|host| {
            let mut routes = routing::routes_of(&table, host, path);
            routes.next().is_some_and(|route| {
                route.whole_path() == Some(path)
                    && route.variants().iter().all(|variant| variant.has_enabled(entry))
            })
        })
    }

    /// Returns true if a virtual host takes the hosts of sessions and no other.
    fn is_ours(&self, host: &Place<'_>) -> bool {
        let domains = host.list("domains");
        let is_one = |domain: &Place<'_>| {
            domain.text().is_some_and(|domain| {
                without_port(domain).strip_prefix("*.") == Some(&*self.domain)
            })
        };
        !domains.is_empty() && domains.iter().all(is_one)
    }

    /// Checks that the sessions share their connection manager with no other host.
    fn check_hosts(&self, reasons: &mut Vec<Reason>) {
        let mut is_there = false;
        let table = self.chain.manager.get("route_config");
        for host in table.iter().flat_map(|table| table.list("virtual_hosts")) {
            is_there |= self.is_ours(&host);
            let leads_somewhere = |route: Place<'d>| {
                let table = host.clone();
                let route = Route { route, host: host.clone(), table };
                !matches!(route.destination(), Destination::Nowhere)
            };
            if !self.is_ours(&host) && host.list("routes").into_iter().any(leads_somewhere) {
                let text = format!(
                    "it takes other hosts than *.{}: on them nobody's request is the session's; give the sessions a domain of their own, and the others another listener",
                    self.domain
                );
                let path = host.get("domains").map_or(host.path.clone(), |domains| domains.path);
                reasons.push(problem(Doubt::new(path, text)));
            }
        }
        if !is_there && table.is_some() {
            let text = format!(
                "no virtual host has the domains [\"*.{}\"], whose sessions the guard is for: add it",
                self.domain
            );
            reasons.push(problem(Doubt::new(&*self.chain.manager.path, text)));
        }
    }

    /// Compares guard and filter.
    fn compare(&self, guard: &Guard<'_, '_>, sessions: &Sessions, reasons: &mut Vec<Reason>) {
        let path = guard.plugin.configuration().map(|(_, path)| path).unwrap_or_default();
        if sessions.domain != self.domain {
            let text = format!(
                "browser_session.domain is not the filter's ({}): the guard refuses every session; name that",
                sessions.domain
            );
            let path = member_path(&path, "browser_session");
            reasons.push(problem(Doubt::new(path, text)));
        }
        let writes = may_write(&guard.config);
        match sessions.read_only {
            true if writes => {
                let text = "the sessions' banner says read_only, and the guard lets requests write: set browser_sessions.read_only to false, or take that from the guard";
                reasons.push(problem(Doubt::new(path, text)));
            }
            false if !writes => {
                let text = "the sessions' banner does not say read_only, and the guard lets no request write: set browser_sessions.read_only, or give the guard rules";
                reasons.push(warning(Doubt::new(path, text)));
            }
            _ => {}
        }
    }

    /// Checks the filters before the application, for one route.
    pub(super) fn check_route(
        &self,
        around: &Around<'_, 'd>,
        provider: Option<&Place<'d>>,
    ) -> Vec<Reason> {
        let mut doubts = Vec::new();
        check_settings(around, &mut doubts);
        check_cookie(around, &mut doubts);
        check_bearer(around, &mut doubts);
        check_store(around, &mut doubts);
        if let (Some(provider), Some((_, Some(sessions)))) = (provider, &self.filter) {
            check_audiences(provider, sessions, &mut doubts);
        }
        doubts.into_iter().map(problem).collect()
    }
}

/// Returns true for a filter that leaves requests alone.
fn may_stand_before(filter: &Filter<'_>) -> bool {
    let changes_requests = || filter.fields.at(&["mutations", "request_mutations"]).is_some();
    BEFORE_THE_FILTER.contains(&filter.r#type)
        || filter.r#type == HEADER_MUTATION && !changes_requests()
}

/// Returns the filters of a kind that stand before `jwt_authn` and are enabled.
fn before<'a, 'd>(around: &Around<'a, 'd>, kind: &'a str) -> Vec<(usize, &'a Filter<'d>)> {
    let filters = around.chain.filters.iter().enumerate().take(around.jwt_authn);
    let of_kind = filters.filter(|(_, filter)| filter.r#type == kind);
    of_kind.filter(|(_, filter)| around.variant.has_enabled(&filter.entry)).collect()
}

/// A setting of these filters for a route replaces or adds to their work.
fn check_settings(around: &Around<'_, '_>, doubts: &mut Vec<Doubt>) {
    let filters =
        before(around, HEADER_TO_METADATA).into_iter().chain(before(around, HEADER_MUTATION));
    for (_, filter) in filters {
        let setting = around.variant.setting(filter.name());
        let is_switch = |setting: &Place<'_>| {
            setting.message().is_some_and(|it| routing::is_filter_config(&it))
        };
        if let Some(setting) = setting.filter(|setting| !is_switch(setting)) {
            let text = format!(
                "a setting of {:?} for this route can name another token than the cookie's: take it out",
                filter.name()
            );
            doubts.push(Doubt::new(setting.path, text));
        }
    }
}

/// Checks that the cookie, and nothing else, is kept where the bearer is made from.
fn check_cookie(around: &Around<'_, '_>, doubts: &mut Vec<Doubt>) {
    let mut kept = None;
    for (index, filter) in before(around, HEADER_TO_METADATA) {
        for rule in filter.fields.list("request_rules") {
            let outcomes = ["on_header_present", "on_header_missing"].map(|name| rule.get(name));
            let writes = |outcome: &Place<'_>| {
                outcome.text_of("metadata_namespace") == Some(NAMESPACE)
                    && outcome.text_of("key") == Some(KEY)
            };
            if !outcomes.iter().flatten().any(writes) {
                continue;
            }
            let [present, missing] = &outcomes;
            let is_whole = present.as_ref().is_some_and(|present| {
                present.other_than(&["metadata_namespace", "key", "type"]).is_none()
                    && matches!(present.text_of("type"), None | Some("STRING"))
            });
            if rule.text_of("cookie") == Some(COOKIE) && is_whole && missing.is_none() {
                kept.get_or_insert(index);
            } else {
                let text = "impersonation.cookie is written here, which the session's cookie alone may be: take it out";
                doubts.push(Doubt::new(rule.path, text));
            }
        }
    }
    let Some(kept) = kept else {
        doubts.push(Doubt::new(
            member_path(&around.chain.manager.path, "http_filters"),
            "header_to_metadata must keep the cookie __Host-impersonation as impersonation.cookie before jwt_authn: without it every request of a session is refused",
        ));
        return;
    };
    let between = around.chain.filters.iter().take(around.jwt_authn).skip(kept.saturating_add(1));
    for other in between.filter(|other| around.variant.has_enabled(&other.entry)) {
        if !HARMLESS.contains(&other.r#type) && other.r#type != HEADER_TO_METADATA {
            let text = format!(
                "{:?} between header_to_metadata and jwt_authn could name another token than the cookie's: put it before header_to_metadata",
                other.name()
            );
            doubts.push(Doubt::new(&*other.entry.path, text));
        }
    }
}

/// Checks that `authorization` is removed, and then made from the cookie alone.
fn check_bearer(around: &Around<'_, '_>, doubts: &mut Vec<Doubt>) {
    let is_authorization =
        |name: Option<&str>| name.is_some_and(|name| name.eq_ignore_ascii_case("authorization"));
    let (mut is_removed, mut is_made) = (false, false);
    for (_, filter) in before(around, HEADER_MUTATION) {
        let mutations = filter.fields.at(&["mutations", "request_mutations"]);
        for mutation in mutations.iter().flat_map(Place::items) {
            let header = mutation.at(&["append", "header"]);
            if is_authorization(mutation.text_of("remove")) {
                (is_removed, is_made) = (true, false);
            } else if let Some(header) =
                header.filter(|header| is_authorization(header.text_of("key")))
            {
                let action = mutation.at(&["append", "append_action"]);
                let overwrites = action.as_ref().and_then(Place::text) == Some(OVERWRITE);
                is_made = header.text_of("value") == Some(BEARER) && overwrites;
                if !is_made {
                    let text = format!(
                        "authorization must be `{BEARER}` with {OVERWRITE}: another value could name another token than the cookie's"
                    );
                    doubts.push(Doubt::new(header.path, text));
                    return;
                }
            }
        }
    }
    let text = match (is_removed, is_made) {
        (true, true) => return,
        (false, _) => {
            "the sessions need a header_mutation before jwt_authn that removes authorization: a page could present another token than the cookie's".to_owned()
        }
        (true, false) => format!(
            "the sessions need a header_mutation before jwt_authn, behind the removal of authorization, that writes it as `{BEARER}`: without it every request of a session is refused"
        ),
    };
    doubts.push(Doubt::new(member_path(&around.chain.manager.path, "http_filters"), text));
}

/// Checks that no response is kept by a cache.
fn check_store(around: &Around<'_, '_>, doubts: &mut Vec<Doubt>) {
    let has = before(around, HEADER_MUTATION).into_iter().any(|(_, filter)| {
        let mutations = filter.fields.at(&["mutations", "response_mutations"]);
        mutations.iter().flat_map(Place::items).any(|mutation| {
            let of_append = |names: &[&str], expected: &str| {
                let place = mutation.at(&["append"]).and_then(|append| append.at(names));
                place
                    .as_ref()
                    .and_then(Place::text)
                    .is_some_and(|it| it.eq_ignore_ascii_case(expected))
            };
            of_append(&["header", "key"], "cache-control")
                && of_append(&["header", "value"], "no-store")
                && of_append(&["append_action"], OVERWRITE)
        })
    });
    if !has {
        let text = format!(
            "the sessions need a header_mutation before jwt_authn that writes cache-control: no-store into each response, with {OVERWRITE}: Back would show pages of a session that has ended"
        );
        doubts.push(Doubt::new(member_path(&around.chain.manager.path, "http_filters"), text));
    }
}

/// Checks that the provider takes tokens of sessions alone.
fn check_audiences(provider: &Place<'_>, sessions: &Sessions, doubts: &mut Vec<Doubt>) {
    let is_other = |audience: &Place<'_>| {
        audience.text().is_none_or(|it| as_audience(it) != as_audience(&sessions.resource))
    };
    if let Some(other) = provider.list("audiences").into_iter().find(is_other) {
        let text = format!(
            "the provider takes tokens for another audience than browser_sessions.resource ({}): name that alone",
            sessions.resource
        );
        doubts.push(Doubt::new(other.path, text));
    }
}
