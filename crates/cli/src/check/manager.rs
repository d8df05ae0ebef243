//! Checks the HTTP connection manager around the filter: requests that the filter holds back must
//! not hang, and their bodies must fit Envoy's buffers.

use impersonation_issuer::issuer::{MAX_BODY, Paths};

use super::findings::Findings;
use super::routing::{self, Route};
use super::tree::{Place, member_path};
use super::versions::EnvoyVersion;

/// An HTTP connection manager.
pub(super) struct Manager<'d>(pub(super) Place<'d>);

impl<'d> Manager<'d> {
    pub(super) fn check_timeouts(&self, findings: &mut Findings) {
        let path = |name| {
            self.0.get(name).map_or_else(|| member_path(&self.0.path, name), |place| place.path)
        };
        let timeout = |name| self.0.text_of(name).map(|text| !is_zero(text));
        if timeout("request_timeout") != Some(true) {
            findings.problem(
                path("request_timeout"),
                "must be set: requests that wait in a filter when it crashes hang until it runs out",
            );
        }
        match timeout("stream_idle_timeout") {
            Some(true) => {}
            Some(false) => findings.problem(
                path("stream_idle_timeout"),
                "must not be 0s: streams that wait in a filter when it crashes would hang for good",
            ),
            None => findings.warning(
                path("stream_idle_timeout"),
                "is not set: streams that wait in a filter when it crashes hang for 5 minutes",
            ),
        }
    }

    /// Checks the limits of Envoy's buffers. Envoy answers 413 itself if a body does not fit. The
    /// limit is the listener's over HTTP/1 and the stream's window over HTTP/2. A route that
    /// forwards can raise the limit and cannot lower it.
    pub(super) fn check_buffers(
        &self,
        listener: Option<&Place<'d>>,
        paths: &Paths,
        version: EnvoyVersion,
        findings: &mut Findings,
    ) {
        let limits = [
            listener.and_then(|listener| listener.get("per_connection_buffer_limit_bytes")),
            self.0.at(&["http2_protocol_options", "initial_stream_window_size"]),
        ];
        for limit in limits.into_iter().flatten() {
            let by_route = version.applies_route_limits_to_filters();
            if limit.number().is_none_or(holds_a_body) || by_route && self.raises_limit(paths) {
                continue;
            }
            let otherwise = if by_route {
                format!(
                    "(or set request_body_buffer_limit on the routes to {} and {})",
                    paths.token, paths.subject_tokens
                )
            } else {
                format!("(in Envoy {version} a route's request_body_buffer_limit comes too late)")
            };
            let text = format!(
                "must be at least {MAX_BODY}: Envoy would refuse bodies that the filter accepts {otherwise}"
            );
            if !findings.has(&limit.path, &text) {
                findings.problem(limit.path, text);
            }
        }
    }

    fn raises_limit(&self, paths: &Paths) -> bool {
        let Some(routes) = routing::routes_to(&self.0, &[&paths.token, &paths.subject_tokens])
        else {
            return false;
        };
        !routes.is_empty()
            && routes.iter().all(|Route { route, host, .. }| {
                let limit = ["request_body_buffer_limit", "per_request_buffer_limit_bytes"]
                    .iter()
                    .find_map(|name| route.get(name).or_else(|| host.get(name)));
                let limit = limit.and_then(|limit| limit.number());
                route.get("route").is_some() && limit.is_some_and(holds_a_body)
            })
    }
}

fn holds_a_body(limit: u64) -> bool {
    usize::try_from(limit).is_ok_and(|limit| limit >= MAX_BODY)
}

/// Returns true for a protobuf duration of zero: `0s`, `0.0s`.
fn is_zero(duration: &str) -> bool {
    let seconds = duration.strip_suffix('s').unwrap_or(duration);
    seconds.bytes().all(|byte| byte == b'0' || byte == b'.')
}
