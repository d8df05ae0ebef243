//! Checks the cluster of `store.etcd`. Envoy accepts settings that fail while etcd elects a leader,
//! or that let others read the calls.
//!
//! docs/many-envoys.md has the measurements.

use super::findings::Findings;
use super::tree::{Place, member_path};

const HTTP_OPTIONS: &str = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";

/// One node of three, in per cent: the most that may be ejected at once.
const ONE_OF_THREE: u64 = 34;

/// Checks a cluster of etcd's nodes.
pub(super) fn check_cluster(cluster: &Place<'_>, findings: &mut Findings) {
    check_protocol(cluster, findings);
    check_health(cluster, findings);
    check_ejection(cluster, findings);
    check_tls(cluster, findings);
}

/// Returns the path of a field, also if the field is absent.
fn path_of(cluster: &Place<'_>, name: &str) -> String {
    cluster.get(name).map_or_else(|| member_path(&cluster.path, name), |place| place.path)
}

fn check_protocol(cluster: &Place<'_>, findings: &mut Findings) {
    const OPTIONS: &str = "typed_extension_protocol_options";
    let options = cluster.get(OPTIONS).into_iter().flat_map(|options| options.members());
    let options = options.filter_map(|(_, options)| options.message());
    let speaks = options.filter(|options| options.r#type == HTTP_OPTIONS).any(|options| {
        options.fields.at(&["explicit_http_config", "http2_protocol_options"]).is_some()
    });
    if !speaks && cluster.get("http2_protocol_options").is_none() {
        findings.problem(
            path_of(cluster, OPTIONS),
            "must have explicit_http_config.http2_protocol_options: etcd is called by gRPC",
        );
    }
}

fn check_health(cluster: &Place<'_>, findings: &mut Findings) {
    let checks = cluster.list("health_checks");
    if checks.is_empty() {
        findings.warning(
            path_of(cluster, "health_checks"),
            "is not set: a node that hangs or is cut off from the others is asked again and again",
        );
    }
    for check in checks {
        let Some(http) = check.get("http_health_check") else {
            findings.warning(
                &*check.path,
                "only etcd's /health, by http_health_check, knows that a node is cut off from the others",
            );
            continue;
        };
        let retriable = http.list("retriable_statuses").iter().any(|range| {
            let [start, end] = ["start", "end"].map(|name| range.get(name)?.number());
            start.is_some_and(|start| start <= 503) && end.is_some_and(|end| end > 503)
        });
        let several = check.get("unhealthy_threshold").and_then(|n| n.number()) >= Some(2);
        if !(retriable && several) {
            findings.problem(
                path_of(&http, "retriable_statuses"),
                "must have 503, and unhealthy_threshold must be 2 or more: all nodes answer 503 while they elect a leader, and would be taken for dead at once",
            );
        }
    }
}

fn check_ejection(cluster: &Place<'_>, findings: &mut Findings) {
    let outliers = cluster.get("outlier_detection");
    let most = outliers.as_ref().and_then(|outliers| outliers.get("max_ejection_percent"));
    if let Some(most) = most.filter(|most| most.number() > Some(ONE_OF_THREE)) {
        findings.warning(
            most.path,
            format!(
                "should be {ONE_OF_THREE} at most, so that of three nodes two are never ejected"
            ),
        );
    }
    let panic = cluster.at(&["common_lb_config", "healthy_panic_threshold", "value"]);
    let threshold = panic.as_ref().and_then(Place::number).unwrap_or(50);
    let path = panic.map_or_else(|| path_of(cluster, "common_lb_config"), |place| place.path);
    if threshold >= ONE_OF_THREE {
        findings.warning(
            path,
            "healthy_panic_threshold should be 30: at Envoy's own 50, with one of three nodes gone and one ejected, calls go to all of them",
        );
    }
}

fn check_tls(cluster: &Place<'_>, findings: &mut Findings) {
    let sockets = [cluster.get("transport_socket")].into_iter().flatten();
    let matched = cluster.list("transport_socket_matches").into_iter();
    let mut sockets = sockets.chain(matched.filter_map(|socket| socket.get("transport_socket")));
    let has_tls = sockets.any(|socket| {
        let message = socket.get("typed_config");
        message.and_then(|config| Some(config.message()?.r#type.contains("UpstreamTlsContext")))
            == Some(true)
    });
    if !has_tls && !is_on_loopback(cluster) {
        findings.warning(
            path_of(cluster, "transport_socket"),
            "is not TLS: whoever is on the way can read who impersonates whom, and spend or forge tokens",
        );
    }
    let ports = endpoints(cluster);
    let mut ports =
        ports.iter().filter_map(|endpoint| endpoint.at(&["health_check_config", "port_value"]));
    let criteria = |check: &Place<'_>| check.get("transport_socket_match_criteria").is_some();
    let checks = cluster.list("health_checks");
    if let Some(port) = ports.next().filter(|_| has_tls && !checks.iter().all(criteria)) {
        findings.warning(
            port.path,
            "is asked with the cluster's TLS: if it is etcd's plain port for metrics, name a plain transport socket in transport_socket_matches, and in the health check's transport_socket_match_criteria",
        );
    }
}

fn endpoints<'d>(cluster: &Place<'d>) -> Vec<Place<'d>> {
    let localities =
        cluster.get("load_assignment").map_or_else(Vec::new, |all| all.list("endpoints"));
    let endpoints = localities.iter().flat_map(|locality| locality.list("lb_endpoints"));
    endpoints.filter_map(|endpoint| endpoint.get("endpoint")).collect()
}

/// Returns true if all known endpoints are on this machine.
fn is_on_loopback(cluster: &Place<'_>) -> bool {
    let endpoints = endpoints(cluster);
    !endpoints.is_empty()
        && endpoints.iter().all(|endpoint| {
            let address = endpoint.at(&["address", "socket_address"]);
            let address = address.as_ref().and_then(|address| address.text_of("address"));
            address.is_none_or(|address| {
                address == "localhost"
                    || address.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
            })
        })
}
