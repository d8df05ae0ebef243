//! Envoy's routes: the requests that a route takes, and the filter settings that apply on it.

use std::cell::RefCell;
use std::collections::HashMap;

use regex::bytes::{Regex, RegexBuilder};
use serde_json::Value;

use super::tree::{Message, Place};

const FILTER_CONFIG: &str = "envoy.config.route.v3.FilterConfig";

/// A route, with its virtual host and its route table.
#[derive(Clone)]
pub(super) struct Route<'d> {
    pub(super) route: Place<'d>,
    pub(super) host: Place<'d>,
    pub(super) table: Place<'d>,
}

/// Returns all routes of a `RouteConfiguration`.
pub(super) fn routes<'d>(table: &Place<'d>) -> Vec<Route<'d>> {
    let mut routes = Vec::new();
    for host in table.list("virtual_hosts") {
        for route in host.list("routes") {
            routes.push(Route { route, host: host.clone(), table: table.clone() });
        }
    }
    routes
}

/// Returns the routes of a connection manager that requests to one of `paths` may take; `None` if
/// the routes are not in this file.
pub(super) fn routes_to<'d>(manager: &Place<'d>, paths: &[&str]) -> Option<Vec<Route<'d>>> {
    let table = manager.get("route_config")?;
    let hosts = table.list("virtual_hosts");
    let hosts = hosts.iter().flat_map(|host| paths.iter().map(move |path| (host, path)));
    Some(hosts.flat_map(|(host, path)| routes_of(&table, host, path)).collect())
}

/// Returns the routes of a virtual host that requests to `path` may take.
pub(super) fn routes_of<'d>(
    table: &Place<'d>,
    host: &Place<'d>,
    path: &str,
) -> impl Iterator<Item = Route<'d>> {
    let mut found = Vec::new();
    for route in host.list("routes") {
        let matches = match_of(&route, path);
        if matches == Match::Never {
            continue;
        }
        found.push(Route { route, host: host.clone(), table: table.clone() });
        if matches == Match::Always {
            break;
        }
    }
    found.into_iter()
}

/// Returns true if a request to `path` can reach `filter`, an entry of the manager's
/// `http_filters`.
pub(super) fn reaches<'d>(manager: &Place<'d>, filter: &Place<'d>, path: &str) -> bool {
    let Some(routes) = routes_to(manager, &[path]) else { return true };
    if routes.is_empty() {
        return !filter.is_set("disabled");
    }
    routes.iter().any(|route| route.variants().iter().any(|variant| variant.has_enabled(filter)))
}

/// The places that have filter settings for a route and one of its clusters, the most specific
/// first.
pub(super) struct Variant<'d>(pub(super) Vec<Place<'d>>);

impl<'d> Route<'d> {
    /// Returns a variant for each cluster that the route may choose, as each may have settings of
    /// its own.
    pub(super) fn variants(&self) -> Vec<Variant<'d>> {
        let levels = [self.route.clone(), self.host.clone(), self.table.clone()];
        let weighted = self.route.at(&["route", "weighted_clusters"]);
        let clusters = weighted.map_or_else(Vec::new, |weighted| weighted.list("clusters"));
        if clusters.is_empty() {
            return vec![Variant(levels.to_vec())];
        }
        let with = |cluster| Variant([cluster].into_iter().chain(levels.clone()).collect());
        clusters.into_iter().map(with).collect()
    }
}

impl<'d> Variant<'d> {
    /// Returns the setting of the filter with this name. Only the most specific one applies.
    pub(super) fn setting(&self, filter: &str) -> Option<Place<'d>> {
        self.0.iter().find_map(|place| {
            let settings = place.get("typed_per_filter_config")?;
            settings.members().find(|(name, _)| *name == filter).map(|(_, setting)| setting)
        })
    }

    /// Returns true if requests reach an entry of `http_filters`.
    pub(super) fn has_enabled(&self, filter: &Place<'_>) -> bool {
        match self.setting(filter.text_of("name").unwrap_or_default()) {
            Some(setting) => !disables(&setting),
            None => !filter.is_set("disabled"),
        }
    }
}

/// Returns true if a setting is a `FilterConfig` that disables its filter.
pub(super) fn disables(setting: &Place<'_>) -> bool {
    setting
        .message()
        .is_some_and(|message| is_filter_config(&message) && message.fields.is_set("disabled"))
}

/// Returns true for a `FilterConfig`, which enables or disables a filter of any type.
pub(super) fn is_filter_config(message: &Message<'_>) -> bool {
    message.r#type == FILTER_CONFIG
}

/// The answer to the question if a rule matches certain requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Match {
    Never,
    /// The answer depends on more than the path, or is not known.
    Perhaps,
    Always,
}

/// The paths of a `RouteMatch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pattern<'d> {
    Whole(&'d str),
    Prefix(&'d str),
    /// A prefix that ends at the end of a segment.
    Separated(&'d str),
    /// A regular expression of whole paths.
    Regex(&'d str),
    /// A template, which is not interpreted.
    Opaque,
}

/// A `RouteMatch`, of a route or of a rule of `jwt_authn`.
struct Rule<'d> {
    pattern: Pattern<'d>,
    folds: bool,
    conditional: bool,
}

impl<'d> Rule<'d> {
    fn read(rule: &Place<'d>) -> Self {
        const CONDITIONS: [&str; 6] = [
            "headers",
            "query_parameters",
            "cookies",
            "runtime_fraction",
            "tls_context",
            "dynamic_metadata",
        ];
        let pattern = if let Some(prefix) = rule.text_of("prefix") {
            Pattern::Prefix(prefix)
        } else if let Some(whole) = rule.text_of("path") {
            Pattern::Whole(whole)
        } else if let Some(prefix) = rule.text_of("path_separated_prefix") {
            Pattern::Separated(prefix)
        } else if let Some(regex) = rule.at(&["safe_regex", "regex"]).as_ref().and_then(Place::text)
        {
            Pattern::Regex(regex)
        } else {
            Pattern::Opaque
        };
        Self {
            pattern,
            folds: rule
                .get("case_sensitive")
                .is_some_and(|place| *place.value == Value::Bool(false)),
            conditional: CONDITIONS.iter().any(|name| rule.get(name).is_some()),
        }
    }
}

/// Tells if a route takes requests to `path`.
pub(super) fn match_of(route: &Place<'_>, path: &str) -> Match {
    let Some(rule) = route.get("match").map(|rule| Rule::read(&rule)) else {
        return Match::Perhaps;
    };
    let fold = |text: &str| if rule.folds { text.to_ascii_lowercase() } else { text.to_owned() };
    let folded = fold(path);
    let matches = match rule.pattern {
        Pattern::Prefix(prefix) => folded.starts_with(&fold(prefix)),
        Pattern::Whole(whole) => folded == fold(whole),
        Pattern::Separated(prefix) => is_below(&folded, &fold(prefix)),
        Pattern::Regex(regex) => match matches_whole(regex, path) {
            Some(matches) => matches,
            None => return Match::Perhaps,
        },
        Pattern::Opaque => return Match::Perhaps,
    };
    match matches {
        false => Match::Never,
        true if rule.conditional => Match::Perhaps,
        true => Match::Always,
    }
}

/// Returns true if a regular expression matches a whole path, as in Envoy; `None` if that is not
/// known.
pub(super) fn matches_whole(regex: &str, path: &str) -> Option<bool> {
    thread_local! {
        /// Regular expressions that were compiled before: one is tried for many paths.
        static KNOWN: RefCell<HashMap<String, Option<Regex>>> = RefCell::default();
    }
    KNOWN.with_borrow_mut(|known| {
        let compile = || {
            let whole = format!("^(?:{regex})$");
            RegexBuilder::new(&whole).unicode(false).size_limit(1 << 20).build().ok()
        };
        let regex = known.entry(regex.to_owned()).or_insert_with(compile).as_ref()?;
        Some(regex.is_match(path.as_bytes()))
    })
}

/// Tells if a rule of `jwt_authn` matches the requests that a route takes: all of them, none, or
/// perhaps some.
pub(super) fn covered_by(route: &Place<'_>, rule: &Place<'_>) -> Match {
    let Some(rule) = rule.get("match").map(|rule| Rule::read(&rule)) else { return Match::Perhaps };
    // Every path begins with a slash.
    let takes_all = rule.pattern == Pattern::Prefix("/");
    let Some(route) = route.get("match").map(|route| Rule::read(&route)) else {
        return if takes_all && !rule.conditional { Match::Always } else { Match::Perhaps };
    };
    let has_letters = |text: &str| text.bytes().any(|byte| byte.is_ascii_alphabetic());
    // The letter case is certain only if rule and route treat it in the same way.
    let fold = |text: &str| text.to_ascii_lowercase();
    let (of_rule, of_route) = match (rule.pattern, route.pattern) {
        (Pattern::Regex(_) | Pattern::Opaque, _) => return Match::Perhaps,
        (_, Pattern::Regex(_) | Pattern::Opaque) if takes_all && !rule.conditional => {
            return Match::Always;
        }
        (_, Pattern::Regex(_) | Pattern::Opaque) => return Match::Perhaps,
        (
            Pattern::Whole(of_rule) | Pattern::Prefix(of_rule) | Pattern::Separated(of_rule),
            Pattern::Whole(of_route) | Pattern::Prefix(of_route) | Pattern::Separated(of_route),
        ) => (of_rule, of_route),
    };
    let sure_of_case = rule.folds || !route.folds || !has_letters(of_rule);
    let same_start = |long: &str, short: &str| {
        if rule.folds || route.folds {
            fold(long).starts_with(&fold(short))
        } else {
            long.starts_with(short)
        }
    };
    let covers = same_start(of_route, of_rule)
        && match rule.pattern {
            Pattern::Prefix(_) => true,
            Pattern::Whole(_) => {
                matches!(route.pattern, Pattern::Whole(_)) && of_route.len() == of_rule.len()
            }
            Pattern::Separated(_) => {
                let rest = of_route.get(of_rule.len()..).unwrap_or_default();
                rest.starts_with('/')
                    || rest.is_empty() && !matches!(route.pattern, Pattern::Prefix(_))
            }
            Pattern::Regex(_) | Pattern::Opaque => false,
        };
    let may_meet = same_start(of_route, of_rule)
        || !matches!(route.pattern, Pattern::Whole(_)) && same_start(of_rule, of_route);
    match (covers && sure_of_case && !rule.conditional, may_meet) {
        (true, _) => Match::Always,
        (false, true) => Match::Perhaps,
        (false, false) => Match::Never,
    }
}

fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The destination of a route.
pub(super) enum Destination<'d> {
    /// Envoy answers the request itself.
    Nowhere,
    Clusters(Vec<&'d str>),
    /// The request determines the cluster.
    Unknown,
}

impl<'d> Route<'d> {
    /// Returns the destination of the route.
    pub(super) fn destination(&self) -> Destination<'d> {
        let Some(action) = self.route.get("route") else {
            let is_known = self.route.get("filter_action").is_none();
            return if is_known { Destination::Nowhere } else { Destination::Unknown };
        };
        if let Some(cluster) = action.text_of("cluster") {
            return Destination::Clusters(vec![cluster]);
        }
        let weighted = action.get("weighted_clusters");
        let weighted = weighted.map_or_else(Vec::new, |weighted| weighted.list("clusters"));
        let names: Option<Vec<_>> = weighted
            .iter()
            .map(|cluster| cluster.text_of("name").filter(|name| !name.is_empty()))
            .collect();
        match names {
            Some(names) if !names.is_empty() => Destination::Clusters(names),
            _ => Destination::Unknown,
        }
    }

    /// Returns the policies by which Envoy sends copies of the route's requests elsewhere.
    pub(super) fn mirrors(&self) -> Vec<Place<'d>> {
        let action = self.route.get("route");
        let levels = action.iter().flat_map(|_| [&self.host, &self.table]).chain(&action);
        levels.flat_map(|level| level.list("request_mirror_policies")).collect()
    }

    /// Returns the name of the route for operators: its own name, or its paths.
    pub(super) fn label(&self) -> String {
        let rule = self.route.get("match");
        let text = |name: &str| rule.as_ref().and_then(|rule| rule.text_of(name));
        let regex = rule.as_ref().and_then(|rule| rule.at(&["safe_regex", "regex"]));
        let paths = if let Some(prefix) = text("prefix") {
            format!("{prefix}*")
        } else if let Some(path) = text("path").or_else(|| text("path_separated_prefix")) {
            path.to_owned()
        } else if let Some(regex) = regex.as_ref().and_then(Place::text) {
            regex.to_owned()
        } else {
            self.route.path.clone()
        };
        let route = match self.route.text_of("name") {
            Some(name) if !name.is_empty() => format!("{name} ({paths})"),
            _ => paths,
        };
        match self.host.text_of("name") {
            Some(host) if self.is_one_of_several_hosts() => {
                format!("{route} of {host}")
            }
            _ => route,
        }
    }

    /// Returns true if several virtual hosts of the table lead anywhere.
    fn is_one_of_several_hosts(&self) -> bool {
        let leads = |host: &Place<'d>| {
            host.list("routes").iter().any(|route| route.get("direct_response").is_none())
        };
        self.table.list("virtual_hosts").iter().filter(|host| leads(host)).nth(1).is_some()
    }

    /// Returns the path of a route that takes exactly one.
    pub(super) fn whole_path(&self) -> Option<&'d str> {
        self.route.get("match")?.text_of("path")
    }

    /// Returns the regular expression of the route's paths.
    pub(super) fn regex(&self) -> Option<&'d str> {
        self.route.at(&["match", "safe_regex", "regex"])?.text()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_rule_covers_a_route_only_if_that_is_certain() {
        use Match::{Always, Never, Perhaps};
        #[rustfmt::skip]
        let cases = [
            (json!({"prefix": "/"}),                    json!({"prefix": "/orders"}),               Always),
            (json!({"prefix": "/"}),                    json!({"safe_regex": {"regex": "x"}}),      Always),
            (json!({"prefix": "/orders"}),              json!({"path_separated_prefix": "/orders"}), Always),
            (json!({"path_separated_prefix": "/orders"}), json!({"prefix": "/orders"}),             Perhaps),
            (json!({"path_separated_prefix": "/orders"}), json!({"prefix": "/orders/x"}),           Always),
            (json!({"path_separated_prefix": "/orders"}), json!({"path": "/ordersx"}),              Perhaps),
            (json!({"prefix": "/orders/"}),             json!({"path_separated_prefix": "/orders"}), Perhaps),
            (json!({"path": "/orders"}),                json!({"path": "/orders"}),                 Always),
            (json!({"path": "/orders"}),                json!({"path": "/orders/1"}),               Perhaps),
            (json!({"prefix": "/orders"}),              json!({"path": "/invoices"}),               Never),
            (json!({"prefix": "/orders"}),              json!({"prefix": "/"}),                     Perhaps),
            (json!({"prefix": "/orders"}),              json!({"safe_regex": {"regex": "x"}}),      Perhaps),
            (json!({"prefix": "/orders", "headers": []}), json!({"prefix": "/orders"}),             Perhaps),
            (json!({"prefix": "/orders"}),              json!({"prefix": "/orders", "case_sensitive": false}), Perhaps),
            (json!({"prefix": "/orders", "case_sensitive": false}), json!({"prefix": "/Orders"}),   Always),
            (json!({"safe_regex": {"regex": "/.*"}}),   json!({"prefix": "/orders"}),               Perhaps),
        ];
        for (rule, route, expected) in cases {
            let (rule, route) = (json!({"match": rule}), json!({"match": route}));
            assert_eq!(
                covered_by(&Place::root(&route), &Place::root(&rule)),
                expected,
                "{rule} {route}"
            );
        }
    }
}
