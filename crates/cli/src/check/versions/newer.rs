//! The settings of Envoy that came after the oldest supported version.
//!
//! The table has every new field of the messages that envoy.yaml, the manifests and the
//! documentation use. It was made by comparing the descriptors inside the binaries of Envoy 1.36.4,
//! 1.37.0, 1.38.3, 1.39.3 and 1.40.0. `tests/envoy/versions.rs` reads the table too, and shows that
//! an older Envoy refuses each field and that no newer one does.

/// The newest supported version of Envoy 1: minor and patch.
pub(super) const NEWEST: (u32, u32) = (40, 0);

/// A field, and the minor version of Envoy 1 that brought it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Newer {
    /// The message where the path begins, without `envoy.`.
    pub(super) message: &'static str,
    /// The path of the field. `name[]` stands for each item of a list, and `*` for each member.
    pub(super) field: &'static str,
    pub(super) since: u32,
}

const fn newer(message: &'static str, field: &'static str, since: u32) -> Newer {
    Newer { message, field, since }
}

pub(super) const BOOTSTRAP: &str = "config.bootstrap.v3.Bootstrap";
pub(super) const LISTENER: &str = "config.listener.v3.Listener";
pub(super) const CLUSTER: &str = "config.cluster.v3.Cluster";
pub(super) const ROUTES: &str = "config.route.v3.RouteConfiguration";
pub(super) const MANAGER: &str =
    "extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
const CEL: &str = "extensions.access_loggers.filters.cel.v3.ExpressionFilter";
const COMPOSITE: &str = "extensions.filters.http.composite.v3.Composite";
const EXECUTE: &str = "extensions.filters.http.composite.v3.ExecuteFilterAction";
const HEADER_MUTATION: &str = "extensions.filters.http.header_mutation.v3.HeaderMutation";
const JWT_AUTHN: &str = "extensions.filters.http.jwt_authn.v3.JwtAuthentication";
const RATE_LIMIT: &str = "extensions.filters.http.local_ratelimit.v3.LocalRateLimit";
const ROUTER: &str = "extensions.filters.http.router.v3.Router";
const WASM: &str = "extensions.filters.http.wasm.v3.Wasm";
const TLS: &str = "extensions.transport_sockets.tls.v3.UpstreamTlsContext";
const UPSTREAM: &str = "extensions.upstreams.http.v3.HttpProtocolOptions";

#[rustfmt::skip]
pub(super) const NEWER: &[Newer] = &[
    newer(BOOTSTRAP, "admin.allow_paths", 37),
    newer(BOOTSTRAP, "enable_worker_cpu_affinity", 39),
    newer(BOOTSTRAP, "stats_config.allow_default_tag_overrides", 39),
    newer(LISTENER, "tcp_keepalive", 37),
    newer(LISTENER, "per_connection_buffer_high_watermark_timeout", 38),
    newer(LISTENER, "stats_matcher", 40),
    newer(CLUSTER, "transport_socket_matcher", 37),
    newer(CLUSTER, "outlier_detection.detect_degraded_hosts", 38),
    newer(CLUSTER, "per_connection_buffer_high_watermark_timeout", 38),
    newer(CLUSTER, "load_assignment.endpoints[].lb_endpoints[].endpoint.observability_name", 39),
    newer(CLUSTER, "health_checks[].http_health_check.use_alpn_protocol", 40),
    newer(CLUSTER, "health_checks[].name", 40),
    newer(CLUSTER, "queuing_policies", 40),
    newer(CLUSTER, "stats_matcher", 40),
    newer(ROUTES, "vhost_header", 37),
    newer(ROUTES, "virtual_hosts[].routes[].direct_response.body_format", 37),
    newer(ROUTES, "virtual_hosts[].routes[].match.cookies", 37),
    newer(ROUTES, "virtual_hosts[].routes[].route.host_rewrite", 37),
    newer(ROUTES, "virtual_hosts[].routes[].route.path_rewrite", 37),
    newer(ROUTES, "route_specifiers", 40),
    newer(ROUTES, "virtual_hosts[].route_specifiers", 40),
    newer(ROUTES, "virtual_hosts[].routes[].route_specifiers", 40),
    newer(MANAGER, "forward_client_cert_matcher", 37),
    newer(MANAGER, "http2_protocol_options.enable_huffman_encoding", 37),
    newer(MANAGER, "forward_proto_config", 38),
    newer(MANAGER, "http2_protocol_options.disallow_obs_text", 38),
    newer(MANAGER, "http2_protocol_options.max_header_field_size_kb", 38),
    newer(MANAGER, "common_http_protocol_options.max_connection_duration_jitter", 39),
    newer(MANAGER, "drain_timeout_jitter", 39),
    newer(MANAGER, "http2_protocol_options.stream_reset_burst", 39),
    newer(MANAGER, "http2_protocol_options.stream_reset_rate", 39),
    newer(MANAGER, "record_route_resolution_stats", 40),
    newer(CEL, "cel_config", 37),
    newer(COMPOSITE, "named_filter_chains", 37),
    // The field is in the messages of 1.38. Envoy's changelog has it as new in 1.39.
    newer(COMPOSITE, "matcher", 39),
    newer(EXECUTE, "filter_chain_name", 37),
    newer(HEADER_MUTATION, "mutations.formatters", 40),
    newer(JWT_AUTHN, "requirement_map.*.extract_only_without_validation", 37),
    newer(JWT_AUTHN, "rules[].requires.extract_only_without_validation", 37),
    newer(JWT_AUTHN, "providers.*.claim_to_headers[].claim_path", 40),
    newer(RATE_LIMIT, "descriptors[].shadow_mode", 38),
    newer(RATE_LIMIT, "rate_limits[].actions[].remote_address_match", 38),
    newer(RATE_LIMIT, "rate_limits[].x_ratelimit_option", 38),
    newer(RATE_LIMIT, "enable_retry_after_header", 40),
    newer(ROUTER, "reject_connect_request_early_data", 37),
    newer(WASM, "config.vm_config.capability_restriction_config", 40),
    newer(TLS, "common_tls_context.validation_context.suppress_client_ca_list", 39),
    newer(TLS, "common_tls_context.tls_certificates[].tls_params", 40),
    newer(UPSTREAM, "explicit_http_config.http2_protocol_options.enable_huffman_encoding", 37),
    newer(UPSTREAM, "hash_policy", 37),
    newer(UPSTREAM, "request_mirror_policies", 37),
    newer(UPSTREAM, "retry_policy", 37),
    newer(UPSTREAM, "explicit_http_config.http2_protocol_options.disallow_obs_text", 38),
    newer(UPSTREAM, "explicit_http_config.http2_protocol_options.max_header_field_size_kb", 38),
    newer(UPSTREAM, "common_http_protocol_options.max_connection_duration_jitter", 39),
    newer(UPSTREAM, "explicit_http_config.http2_protocol_options.stream_reset_burst", 39),
    newer(UPSTREAM, "explicit_http_config.http2_protocol_options.stream_reset_rate", 39),
];
