//! Every way from a listener to a cluster: routes, their mirrors, and whatever passes connections
//! on.
//!
//! A way that is not understood here counts as one to an API.

use super::super::findings::Doubt;
use super::super::reach::{Meeting, Reach, Servers};
use super::super::routing::{Destination, Route};
use super::super::topology::{Filter, Listener, MANAGER};
use super::super::tree::Place;
use super::reasons::{Reason, problem, warning};

const TCP_PROXY: &str = "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy";
const LUA: [&str; 2] = [
    "envoy.extensions.filters.http.lua.v3.Lua",
    "envoy.extensions.filters.http.lua.v3.LuaPerRoute",
];

/// Filters that pass no connection on.
const HARMLESS: [&str; 12] = [
    "envoy.extensions.filters.listener.http_inspector.v3.HttpInspector",
    "envoy.extensions.filters.listener.local_ratelimit.v3.LocalRateLimit",
    "envoy.extensions.filters.listener.original_dst.v3.OriginalDst",
    "envoy.extensions.filters.listener.original_src.v3.OriginalSrc",
    "envoy.extensions.filters.listener.proxy_protocol.v3.ProxyProtocol",
    "envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector",
    "envoy.extensions.filters.network.connection_limit.v3.ConnectionLimit",
    "envoy.extensions.filters.network.direct_response.v3.Config",
    "envoy.extensions.filters.network.ext_authz.v3.ExtAuthz",
    "envoy.extensions.filters.network.local_ratelimit.v3.LocalRateLimit",
    "envoy.extensions.filters.network.ratelimit.v3.RateLimit",
    "envoy.extensions.filters.network.rbac.v3.RBAC",
];

/// Filters by which a caller chooses the cluster of `tcp_proxy`.
const CHOOSE: [&str; 2] = [
    "envoy.extensions.filters.network.sni_cluster.v3.SniCluster",
    "envoy.extensions.filters.network.sni_dynamic_forward_proxy.v3.FilterConfig",
];

/// The clusters that a route's own action names.
pub(super) fn own_clusters<'d>(route: &Route<'d>) -> Vec<&'d str> {
    match route.destination() {
        Destination::Clusters(names) => names,
        Destination::Nowhere | Destination::Unknown => Vec::new(),
    }
}

/// The way by which a route leads to a guarded API.
pub(super) enum Lead {
    /// By the API's own cluster.
    Plain,
    /// By another way, which the operator may not know of.
    Hidden(Doubt),
}

/// Finds the way by which a route leads to the guarded servers.
pub(super) fn lead<'d>(
    route: &Route<'d>,
    reach: &Reach<'d>,
    guarded: &Servers<'d>,
) -> Option<Lead> {
    if guarded.is_empty() {
        return None;
    }
    let names = own_clusters(route);
    let meet = |name| reach.servers(name).meet(name, guarded);
    if names.iter().any(|name| meet(name) == Some(Meeting::SameCluster)) {
        return Some(Lead::Plain);
    }
    if matches!(route.destination(), Destination::Unknown) {
        let text = "the request decides where it leads, and a guarded API may be there: name the cluster, or put jwt_authn and the guard before it";
        return Some(Lead::Hidden(Doubt::new(&*route.route.path, text)));
    }
    let hidden = |path: String, what: String| {
        let text = format!("{what}: take it out, or put jwt_authn and the guard before it");
        Some(Lead::Hidden(Doubt::new(path, text)))
    };
    for name in &names {
        if let Some(how) = meet(name).and_then(|meeting| how(name, &meeting)) {
            return hidden(route.route.path.clone(), format!("its {how}"));
        }
    }
    let of_clusters = names.iter().filter_map(|name| reach.http_options(name));
    let of_clusters = of_clusters.flat_map(|options| options.list("request_mirror_policies"));
    for mirror in route.mirrors().into_iter().chain(of_clusters) {
        let Some(name) = mirror.text_of("cluster").filter(|name| !name.is_empty()) else {
            let text = "Envoy sends a copy of each request wherever the request says";
            return hidden(mirror.path, text.to_owned());
        };
        match meet(name) {
            None => {}
            Some(meeting) => {
                let how = how(name, &meeting);
                let how = how.unwrap_or_else(|| format!("cluster {name:?} is a guarded API's"));
                return hidden(
                    mirror.path,
                    format!("Envoy sends a copy of each request on, and the {how}"),
                );
            }
        }
    }
    None
}

/// Says how a cluster leads to a guarded API, unless it is the API's own.
fn how(name: &str, meeting: &Meeting) -> Option<String> {
    match meeting {
        Meeting::SameCluster => None,
        Meeting::Inside(inner) => {
            Some(format!("cluster {name:?} has {inner:?} inside, where a guarded API is"))
        }
        Meeting::SameAddress(address) => {
            Some(format!("cluster {name:?} has the address {address} of a guarded API"))
        }
        Meeting::Anywhere => Some(format!(
            "cluster {name:?} is of a kind that may lead to any server, a guarded API too"
        )),
    }
}

/// Finds the ways of connections, past all HTTP filters, to the guarded servers.
pub(super) fn of_connections<'d>(
    listener: &Listener<'d>,
    reach: &Reach<'d>,
    guarded: &Servers<'d>,
) -> Vec<Reason> {
    let filters = listener.filters.iter();
    filters.flat_map(|filter| of_connection_filter(filter, reach, guarded)).collect()
}

fn of_connection_filter<'d>(
    filter: &Filter<'d>,
    reach: &Reach<'d>,
    guarded: &Servers<'d>,
) -> Vec<Reason> {
    let path = &*filter.entry.path;
    let name = filter.name();
    let kind = filter.r#type;
    if kind == TCP_PROXY {
        let weighted = filter.fields.get("weighted_clusters");
        let weighted = weighted.map_or_else(Vec::new, |weighted| weighted.list("clusters"));
        let names = weighted.iter().filter_map(|cluster| cluster.text_of("name"));
        let names = filter.fields.text_of("cluster").into_iter().chain(names);
        let its = names.filter(|name| reach.servers(name).meet(name, guarded).is_some());
        let report = |name| {
            let text = format!(
                "tcp_proxy passes connections on to {name}, where a guarded API is, past jwt_authn and guard: take it out"
            );
            problem(Doubt::new(&*filter.fields.path, text))
        };
        return its.map(report).collect();
    }
    if kind == MANAGER || HARMLESS.contains(&kind) {
        return Vec::new();
    }
    if CHOOSE.contains(&kind) {
        let text = format!(
            "{name:?} lets callers choose the cluster of their connections, a guarded API's too, past jwt_authn and guard: take it out"
        );
        return vec![problem(Doubt::new(path, text))];
    }
    let text = if kind.is_empty() {
        format!(
            "{name:?} comes from elsewhere, and nobody knows whether it passes connections on to APIs past the guard: check a file that has it"
        )
    } else {
        format!(
            "{name:?} is not among the filters that are known to pass no connection on to APIs past the guard: take it out"
        )
    };
    vec![warning(Doubt::new(path, text))]
}

/// Finds everything else on a listener that names the cluster of a guarded API: a filter that sends
/// requests there by itself.
pub(super) fn of_filters<'d>(
    place: &Place<'d>,
    reach: &Reach<'d>,
    guarded: &Servers<'d>,
    found: &mut Vec<Reason>,
) {
    const NO_REQUESTS: [&str; 5] =
        ["configuration", "remote_jwks", "request_mirror_policies", "route", "weighted_clusters"];
    let kind = place.message().map(|message| message.r#type);
    if kind == Some(TCP_PROXY) {
        return;
    }
    let is_lua = kind.is_some_and(|kind| LUA.contains(&kind));
    for (name, member) in place.members().filter(|(name, _)| !NO_REQUESTS.contains(name)) {
        let mut strings: Vec<_> = member.text().into_iter().collect();
        strings.extend(member.items().filter_map(|item| item.text()));
        if name.contains("cluster") {
            for text in strings.into_iter().filter(|text| !text.is_empty()) {
                if reach.servers(text).meet(text, guarded).is_some() {
                    let text = format!(
                        "it names {text:?}, where a guarded API is: requests reach the API from here past jwt_authn and guard; take that out"
                    );
                    found.push(problem(Doubt::new(&*member.path, text)));
                }
            }
        }
        if is_lua && name != "@type" && member.value.to_string().contains("httpCall") {
            let text = "a script makes requests of its own, and nobody knows whether they lead to APIs past the guard: take httpCall out";
            found.push(warning(Doubt::new(&*member.path, text)));
        }
        of_filters(&member, reach, guarded, found);
    }
    for item in place.items() {
        of_filters(&item, reach, guarded, found);
    }
}
