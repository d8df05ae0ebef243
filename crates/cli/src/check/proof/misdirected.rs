//! Proves that a request to a session's host gets 421 wherever its listener is not.
//!
//! A browser sends cookies to every port of a host, and requests for all names of one certificate
//! over one connection. After a 421 it sends the request again, on a connection of its own (RFC
//! 9110 §15.5.20). Any other answer would let another application read the token of a session.

use super::super::findings::Doubt;
use super::super::sessions::host_of;
use super::super::topology::{Chain, Listener};
use super::super::tree::Place;
use super::reasons::{Reason, problem};

/// Checks a connection manager of other hosts.
pub(super) fn check(listener: &Listener<'_>, chain: &Chain<'_>, domain: &str) -> Vec<Reason> {
    let Some(table) = chain.manager.get("route_config").filter(|_| chain.routes.is_some()) else {
        return Vec::new();
    };
    let hosts = table.list("virtual_hosts");
    let port = listener.place.at(&["address", "socket_address", "port_value"]);
    let port = port.and_then(|port| port.number());
    let ignores_port = table.is_set("ignore_port_in_host_matching");
    let with_port = port.filter(|_| !ignores_port);
    let host = host_of(domain);
    let asked = with_port.map(|port| format!("{host}:{port}")).into_iter().chain([host]);
    let refuses = |asked: String| match taking(&hosts, &asked) {
        Some(host) if is_misdirected(host) => None,
        Some(host) => Some(host.path.clone()),
        // Envoy itself answers 404. A browser does not try again after that.
        None => has_tls(listener, chain).then(|| table.path.clone()),
    };
    let open = asked.into_iter().find_map(refuses);
    let doubt = |path| {
        let text = format!(
            "it does not answer 421 to the sessions' hosts: give it a virtual host *.{domain} that does, and its route_config ignore_port_in_host_matching"
        );
        problem(Doubt::new(path, text))
    };
    open.map(doubt).into_iter().collect()
}

/// Finds the virtual host that takes a host: by its whole name, by the longest end, by the longest
/// beginning, or every host.
fn taking<'h, 'd>(hosts: &'h [Place<'d>], asked: &str) -> Option<&'h Place<'d>> {
    let rank = |domain: &str| {
        let domain = domain.to_ascii_lowercase();
        let length = domain.len();
        if domain == asked {
            Some((3, length))
        } else if domain == "*" {
            Some((0, 0))
        } else if let Some(end) = domain.strip_prefix('*') {
            (asked.len() > end.len() && asked.ends_with(end)).then_some((2, length))
        } else {
            let start = domain.strip_suffix('*')?;
            (asked.len() > start.len() && asked.starts_with(start)).then_some((1, length))
        }
    };
    let of_host = |host: &'h Place<'d>| {
        let domains = host.list("domains");
        let ranks = domains.iter().filter_map(|domain| rank(domain.text()?));
        Some((ranks.max()?, host))
    };
    let taking = hosts.iter().filter_map(of_host).max_by_key(|(rank, _)| *rank);
    taking.map(|(_, host)| host)
}

/// Returns true if a virtual host answers 421 to every request.
fn is_misdirected(host: &Place<'_>) -> bool {
    host.list("routes").first().is_some_and(|route| {
        let takes_all = route.get("match").is_some_and(|rule| {
            rule.text_of("prefix") == Some("/") && rule.other_than(&["prefix"]).is_none()
        });
        let status = route.at(&["direct_response", "status"]);
        takes_all && status.and_then(|status| status.number()) == Some(421)
    })
}

/// Returns true if the connections of a manager are encrypted.
fn has_tls(listener: &Listener<'_>, chain: &Chain<'_>) -> bool {
    let chains = listener.place.list("filter_chains").into_iter();
    let mut around = chains.chain(listener.place.get("default_filter_chain"));
    around.any(|one| {
        chain.manager.path.starts_with(&format!("{}.", one.path))
            && one.get("transport_socket").is_some()
    })
}
