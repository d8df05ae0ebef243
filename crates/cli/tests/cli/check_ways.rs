//! Tests of `check`: every way to an API that is not proved to have the guard before it is a
//! problem, and what `check` does not understand is a warning. `tests/envoy/guard/proof` shows in
//! Envoy that the ways are open.

use crate::check::check;
use crate::check_guard::{BOTH, Case, ORDERS, assert_cases, edit, edited, entry};
use crate::file;

const METRICS: &str = "\n  # For Prometheus";
const CLUSTERS: &str = "\n  clusters:\n";
const GATEWAY_ROUTE: &str = "route: {cluster: identity_gateway, timeout: 0s}";
const NAMED: &str = "                orders: {provider_name: orders}\n";
const GUARD: &str = "          # The guard (docs";
const FILTER: &str = "          - name: envoy.filters.http.router\n            typed_config:\n              \"@type\": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router\n              suppress_envoy_headers: true\n";
const LUA: &str = "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua";

/// Another listener before this one of metrics, with routes and other members of the manager.
fn second(members: &str) -> Vec<(String, String)> {
    listener(&format!(
        "name: http, typed_config: {{\"@type\": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager, stat_prefix: second, {members}, http_filters: [{{name: router, typed_config: {{\"@type\": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}}}]}}"
    ))
}

/// Another listener with this filter of connections.
fn listener(filter: &str) -> Vec<(String, String)> {
    let text = format!(
        "  - name: second\n    address: {{socket_address: {{address: 127.0.0.1, port_value: 10001}}}}\n    filter_chains: [{{filters: [{{{filter}}}]}}]\n{METRICS}"
    );
    vec![edit(METRICS, text)]
}

fn routes(action: &str) -> String {
    format!(
        "route_config: {{virtual_hosts: [{{name: all, domains: [\"*\"], routes: [{{match: {{prefix: /}}, route: {{{action}}}}}]}}]}}"
    )
}

/// Another listener that leads to a cluster named `other`.
fn to_other(cluster: &str) -> Vec<(String, String)> {
    let cluster = format!("{CLUSTERS}  - {{name: other, connect_timeout: 1s, {cluster}}}\n");
    let mut edits = second(&routes("cluster: other"));
    edits.push(edit(CLUSTERS, cluster));
    edits
}

fn endpoint(address: &str, port: &str) -> String {
    format!(
        "load_assignment: {{cluster_name: other, endpoints: {{lb_endpoints: [{{endpoint: {{address: {{socket_address: {{address: {address}, port_value: {port}}}}}}}}}]}}}}"
    )
}

#[test]
fn every_way_to_an_api_past_the_guard_is_a_problem() {
    let mirrored = "listener public, route /*: Envoy sends a copy of each request on, and the cluster \"apis\" is a guarded API's";
    let of_second = |text: &str| vec![format!("listener second, route /*: {text}")];
    let chosen = || of_second("the request decides where it leads");
    let table = "          route_config:\n            name: public\n";
    let host = "              domains: [\"*\"] # Yours";
    #[rustfmt::skip]
    let cases: Vec<Case> = vec![
        ("a mirror", vec![edit(GATEWAY_ROUTE, "route: {cluster: identity_gateway, timeout: 0s, request_mirror_policies: [{cluster: apis}]}")], vec![mirrored.into()]),
        ("a mirror that is no list", vec![edit(GATEWAY_ROUTE, "route: {cluster: identity_gateway, timeout: 0s, requestMirrorPolicies: {cluster: apis}}")], vec![mirrored.into()]),
        ("a mirror of another listener", second(&routes("cluster: admin, request_mirror_policies: [{cluster: apis}]")), of_second("Envoy sends a copy of each request on")),
        ("a mirror that the request chooses", second(&routes("cluster: admin, request_mirror_policies: [{cluster_header: x-cluster}]")), of_second("Envoy sends a copy of each request wherever the request says")),
        ("a mirror of a virtual host", vec![edit(host, format!("              request_mirror_policies: [{{cluster: apis}}]\n{host}"))], vec!["listener public, routes /api/subject-tokens, /oidc/token, /api/impersonations and 12 more: Envoy sends a copy".into()]),
        ("a mirror of all routes", vec![edit(table, format!("{table}            request_mirror_policies: [{{cluster: apis}}]\n"))], vec!["listener public, routes /api/subject-tokens, /oidc/token, /api/impersonations and 12 more: Envoy sends a copy".into()]),
        ("a mirror of a cluster", vec![edit("        common_http_protocol_options: {idle_timeout: 60s}\n        explicit_http_config: {http_protocol_options: {enable_trailers: true}}\n\n  # Yours: the address", "        request_mirror_policies: [{cluster: apis}]\n        explicit_http_config: {http_protocol_options: {enable_trailers: true}}\n\n  # Yours: the address")],
            vec!["and 12 more: Envoy sends a copy of each request on".into()]),

        ("a header chooses", second(&routes("cluster_header: x-cluster")), chosen()),
        ("a header chooses among several", second(&routes("weighted_clusters: {clusters: [{name: admin, weight: 1}, {cluster_header: x-cluster, weight: 1}]}")), chosen()),
        ("a plugin chooses", second(&routes("cluster_specifier_plugin: any")), chosen()),
        ("a plugin of the route chooses", second(&routes("inline_cluster_specifier_plugin: {extension: {name: any}}")), chosen()),
        ("a plugin replaces routes", second("route_config: {route_specifiers: [], virtual_hosts: []}"), vec!["warning: listener second: its routes are not in this file".into()]),

        ("an aggregate cluster", to_other("lb_policy: CLUSTER_PROVIDED, cluster_type: {name: any, typed_config: {\"@type\": type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig, clusters: [admin, apis]}}"), of_second("its cluster \"other\" has \"apis\" inside")),
        ("the same address", to_other(&endpoint("127.0.0.1", "\"9001\"")), of_second("its cluster \"other\" has the address localhost:9001 of a guarded API")),
        ("the same address by name", to_other(&format!("type: strict_dns, {}", endpoint("localhost", "9001"))), of_second("its cluster \"other\" has the address localhost:9001")),
        ("another address", to_other(&endpoint("127.0.0.1", "9010")), vec![]),
        ("the original destination", to_other("type: ORIGINAL_DST, lb_policy: CLUSTER_PROVIDED"), of_second("its cluster \"other\" is of a kind that may lead to any server")),
        ("wherever the host header says", to_other("lb_policy: CLUSTER_PROVIDED, cluster_type: {name: any, typed_config: {\"@type\": type.googleapis.com/envoy.extensions.clusters.dynamic_forward_proxy.v3.ClusterConfig}}"), of_second("its cluster \"other\" is of a kind that may lead to any server")),
        ("addresses from elsewhere", to_other("type: EDS"), vec!["warning: listener second, route /*: the addresses of its cluster \"other\" are not in this file".into()]),
        ("a cluster from elsewhere", second(&routes("cluster: nowhere")), vec!["warning: listener second, route /*: the addresses of its cluster \"nowhere\"".into()]),
        ("more clusters elsewhere", vec![edit("\nadmin:\n", "\ndynamic_resources: {cds_config: {path_config_source: {path: /cds.yaml}}}\nadmin:\n")], vec!["warning: dynamic_resources.cds_config: more clusters come by CDS".into()]),

        ("a connection's own name chooses", vec![edit(METRICS, format!("  - name: second\n    filter_chains: [{{filters: [{{name: sni, typed_config: {{\"@type\": type.googleapis.com/envoy.extensions.filters.network.sni_cluster.v3.SniCluster}}}}, {{name: tcp, typed_config: {{\"@type\": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy, stat_prefix: tcp, cluster: admin}}}}]}}]\n{METRICS}"))],
            vec!["listener second: \"sni\" lets callers choose the cluster".into()]),
        ("connections to the same address", vec![edit(CLUSTERS, format!("{CLUSTERS}  - {{name: other, connect_timeout: 1s, {}}}\n", endpoint("127.0.0.1", "9001"))),
            edit(METRICS, format!("  - name: second\n    filter_chains: [{{filters: [{{name: tcp, typed_config: {{\"@type\": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy, stat_prefix: tcp, cluster: other}}}}]}}]\n{METRICS}"))],
            vec!["listener second: tcp_proxy passes connections on to other".into()]),
        ("a filter of connections from elsewhere", listener("name: any, config_discovery: {config_source: {ads: {}}, type_urls: [a/b]}"), vec!["warning: listener second: \"any\" comes from elsewhere".into()]),
        ("another filter of connections", listener("name: redis, typed_config: {\"@type\": type.googleapis.com/envoy.extensions.filters.network.redis_proxy.v3.RedisProxy, stat_prefix: redis, prefix_routes: {catch_all_route: {cluster: apis}}}"),
            vec!["warning: listener second: \"redis\" is not among the filters that are known".into(), "listener second: it names \"apis\", where a guarded API is".into()]),
        ("a filter that asks the API", vec![edit(GUARD, format!("          - name: authz\n            typed_config: {{\"@type\": type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthz, grpc_service: {{envoy_grpc: {{cluster_name: apis}}}}}}\n{GUARD}"))],
            vec![format!("{BOTH}\"authz\" between jwt_authn and the guard"), "listener public: it names \"apis\"".into()]),
        ("a script that makes requests", second(&format!("http_filters: [], {}, access_log: []", routes("cluster: admin"))).into_iter().map(|(from, to)| (from, to.replace("http_filters: [], ", "").replace("[{name: router", &format!("[{{name: lua, typed_config: {{\"@type\": {LUA}, default_source_code: {{inline_string: \"handle:httpCall('api' .. 's')\"}}}}}}, {{name: router")))).collect(),
            vec!["warning: listener second: a script makes requests of its own".into()]),
    ];
    assert_cases(cases);
}

#[test]
fn a_requirement_that_may_let_a_request_pass_is_a_problem() {
    let required =
        |requirement: &str| edit(NAMED, format!("                orders: {requirement}\n"));
    let empty = format!("{ORDERS}an empty requirement lets every request pass");
    let by_route = "                  envoy.filters.http.jwt_authn:\n                    \"@type\": type.googleapis.com/envoy.extensions.filters.http.jwt_authn.v3.PerRouteConfig\n                    requirement_name: orders\n";
    let map = "              requirement_map:\n";
    let audiences = "                  audiences: [http://127.0.0.1:10000/orders]\n";
    let provider =
        |member: &str| edit(audiences, format!("{audiences}                  {member}\n"));
    let entry = "          - name: envoy.filters.http.jwt_authn\n";
    #[rustfmt::skip]
    let cases: Vec<Case> = vec![
        ("nothing", vec![required("{}")], vec![empty.clone()]),
        ("null", vec![required("null")], vec![empty.clone()]),
        ("nothing by a rule", vec![edit(by_route, ""), edit(map, format!("              rules: [{{match: {{prefix: /}}, requires: {{}}}}]\n{map}"))], vec![empty.clone()]),
        ("nothing as one of several", vec![required("{requires_any: {requirements: [{provider_name: orders}, {}]}}")], vec![empty.clone()]),
        ("null as one of several", vec![required("{requiresAny: {requirements: [{providerName: orders}, null]}}")], vec![empty]),
        ("no such requirement", vec![edit("requirement_name: orders", "requirement_name: order")], vec![format!("{ORDERS}it names a requirement that jwt_authn does not have")]),
        ("another issuer", vec![edit("                orders:\n                  issuer: http://127.0.0.1:10000/oidc\n", "                orders:\n                  issuer: https://other.example\n")],
            vec![format!("{ORDERS}no provider that it requires has the issuer of the filter")]),
        ("a setting of another type", vec![edit("jwt_authn.v3.PerRouteConfig\n                    requirement_name: orders\n", "buffer.v3.BufferPerRoute\n                    disabled: true\n")], vec![format!("{ORDERS}what this setting of jwt_authn requires is not known")]),
        ("the route is chosen anew", vec![provider("clear_route_cache: true")], vec![format!("{BOTH}clear_route_cache lets a verified request take another route")]),
        ("the header in place of the claims", vec![provider("header_in_metadata: access_token")], vec![format!("{BOTH}header_in_metadata overwrites the claims")]),
        ("optional", vec![edit(entry, format!("{entry}            is_optional: true\n"))], vec![format!("{BOTH}Envoy leaves jwt_authn out if it cannot load it")]),
    ];
    assert_cases(cases);

    let one = edited(&[(
        "issuer: http://127.0.0.1:10000/oidc\n                  audiences: [http://127.0.0.1:10000/orders]",
        "issuer: https://other.example\n                  audiences: [http://127.0.0.1:10000/orders]",
    )]);
    let found = check(&file("envoy.yaml", &one), &["--assume-environment"]);
    let last = found.lines.last().unwrap();
    assert!(last.ends_with("; the guard stands before 1 of 2 routes to APIs"), "{last}");
    assert_eq!(found.status, Some(1));
}

#[test]
fn filters_around_the_guard_come_from_a_closed_list() {
    let before_guard = |filter: &str| vec![edit(GUARD, format!("          - {filter}\n{GUARD}"))];
    let behind = |filter: &str| vec![edit(FILTER, format!("          - {filter}\n{FILTER}"))];
    let to_metadata = "{name: notes, typed_config: {\"@type\": type.googleapis.com/envoy.extensions.filters.http.header_to_metadata.v3.Config, request_rules: [{header: x-note, on_header_present: {metadata_namespace: envoy.filters.http.jwt_authn, key: access_token}}]}}";
    let lua = format!("{{name: lua, typed_config: {{\"@type\": {LUA}}}}}");
    let mutation = |key: &str| {
        format!(
            "{{name: more, typed_config: {{\"@type\": type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutation, mutations: {{request_mutations: [{{append: {{header: {{key: \"{key}\", value: \"%REQ(x-more)%\"}}}}}}]}}}}}}"
        )
    };
    let manager = "          stat_prefix: public\n";
    let with = |member: &str| vec![edit(manager, format!("{manager}          {member}\n"))];
    let on_orders = "                route: {cluster: apis, timeout: 0s, max_stream_duration: {max_stream_duration: 3600s}}\n                request_headers_to_remove: [dpop] # the guard";
    let options = "        common_http_protocol_options: {idle_timeout: 60s}\n        explicit_http_config: {http_protocol_options: {enable_trailers: true}}\n\n  # This Envoy itself";
    let plugin = "                                name: impersonation-guard\n";
    let of_plugin = |member: &str| {
        vec![edit(plugin, format!("{plugin}                                {member}\n"))]
    };
    let code = "                                    local: {filename: target/wasm32-wasip1/release/impersonation_guard.wasm}\n";
    #[rustfmt::skip]
    let cases: Vec<Case> = vec![
        ("a filter that writes the claims", before_guard(to_metadata), vec![format!("{BOTH}\"notes\" between jwt_authn and the guard could change")]),
        ("a script behind the guard", behind(&lua), vec![format!("{BOTH}\"lua\" behind the guard is not known to leave the request and its route alone")]),
        ("a disabled one", behind(&lua.replace("{name: lua", "{name: lua, disabled: \"yes\"")), vec![]),
        ("a filter from elsewhere", behind("{name: any, config_discovery: {config_source: {ads: {}}, type_urls: [a/b]}}"), vec![format!("{BOTH}\"any\" behind the guard")]),
        ("a known one", behind("{name: buffer, typed_config: {\"@type\": type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer, max_request_bytes: 9}}"), vec![]),
        ("a header of the guard", behind(&mutation("X-Impersonator")), vec![format!("{BOTH}x-impersonator is written here, which is the guard's alone")]),
        ("a header of the guard, by the route", vec![edit(on_orders, on_orders.replace("                request", "                request_headers_to_add: [{header: {key: x-impersonator, value: agent-7}}]\n                request"))], vec![format!("{ORDERS}x-impersonator is written here")]),
        ("filters behind the router", vec![edit("              suppress_envoy_headers: true\n", format!("              suppress_envoy_headers: true\n              upstream_http_filters: [{lua}]\n"))], vec![format!("{BOTH}\"lua\" between the router and the API")]),
        ("filters of the API's cluster", vec![edit(options, format!("        http_filters: [{lua}]\n{options}"))], vec![format!("{BOTH}\"lua\" between the router and the API")]),
        ("filters of an upgrade", with("upgrade_configs: [{upgrade_type: websocket, filters: [{name: router, typed_config: {\"@type\": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}]}]"), vec![format!("{BOTH}a request to upgrade to \"websocket\" passes these filters in place of jwt_authn and guard")]),
        ("an upgrade with the same filters", with("upgrade_configs: [{upgrade_type: websocket}]"), vec![]),
        ("a tunnel", with("upgrade_configs: {upgrade_type: CONNECT}"), vec![format!("{BOTH}an upgrade to \"CONNECT\" opens a tunnel")]),

        ("a guard that is not shown requests", of_plugin("capability_restriction_config: {allowed_capabilities: {proxy_on_vm_start: {}}}"), vec![format!("{BOTH}capability_restriction_config is not known to let the guard see every request")]),
        ("a guard of another runtime", vec![edit("                                  runtime: envoy.wasm.runtime.v8\n                                  code:\n                                    local: {filename: target/wasm32-wasip1/release/impersonation_guard.wasm}", "                                  runtime: envoy.wasm.runtime.null\n                                  code:\n                                    local: {filename: target/wasm32-wasip1/release/impersonation_guard.wasm}")], vec![format!("{BOTH}runs code of Envoy's own in place of the guard")]),
        ("a guard without code", vec![edit(code, "                                    {}\n")], vec![format!("{BOTH}is required: the guard has no code")]),
        ("tokens in the log", vec![edit("                  request_id: \"%REQ(X-REQUEST-ID)%\"\n", "                  request_id: \"%REQ(Authorization)%\"\n")], vec!["warning: json_format.request_id: writes access tokens into the log".into()]),
        ("the copy of the header in the log", vec![edit("                  request_id: \"%REQ(X-REQUEST-ID)%\"\n", "                  request_id: \"x %DYNAMIC_METADATA(impersonation:authorization)%\"\n")], vec!["warning: json_format.request_id: writes access tokens into the log".into()]),
        ("the scheme in the log", vec![edit("                  request_id: \"%REQ(X-REQUEST-ID)%\"\n", "                  request_id: \"%REQ(AUTHORIZATION):6%\"\n")], vec![]),
    ];
    assert_cases(cases);

    let shipped = entry("impersonation-guard");
    let elsewhere =
        shipped.replace("release/impersonation_guard.wasm", "nowhere/impersonation_guard.wasm");
    let found = check(&file("envoy.yaml", &edited(&[(&shipped, &elsewhere)])), &["--strict"]);
    let names_file = |line: &String| {
        line.contains("warning: listener public, routes /orders, /invoices: there is no file")
            && line.contains("nowhere/impersonation_guard.wasm")
    };
    assert!(found.lines.iter().any(names_file), "{:#?}", found.lines);
    assert_eq!(found.status, Some(1));
}

#[test]
fn each_spelling_that_envoy_accepts_counts() {
    let named = "          - name: impersonation-guard\n";
    let disabled =
        |value: &str| vec![edit(named, format!("{named}            disabled: {value}\n"))];
    let off = || vec![format!("{BOTH}the guard is disabled")];
    let map = "              requirement_map:\n";
    let preflights = |member: &str| vec![edit(map, format!("              {member}\n{map}"))];
    let pass = || vec![format!("{BOTH}bypass_cors_preflight lets OPTIONS pass")];
    let escaped = "          path_with_escaped_slashes_action: UNESCAPE_AND_REDIRECT\n";
    let action = |value: &str| {
        vec![edit(escaped, format!("          pathWithEscapedSlashesAction: {value}\n"))]
    };
    let sample = "                          \"@type\": type.googleapis.com/envoy.extensions.filters.http.composite.v3.ExecuteFilterAction\n";
    #[rustfmt::skip]
    let cases: Vec<Case> = vec![
        ("a string", disabled("\"true\""), off()),
        ("an old boolean", disabled("\"T\""), off()),
        ("a number in a string", disabled("\"1\""), off()),
        ("false", disabled("\"no\""), vec![]),
        ("no boolean", disabled("1"), vec!["disabled: is not read by Envoy: expected true or false".into()]),
        ("camel case", preflights("bypassCorsPreflight: \"yes\""), pass()),
        ("the first of two spellings", preflights("bypass_cors_preflight: false\n              bypassCorsPreflight: true"), {
            let mut expected = pass();
            expected.push("bypassCorsPreflight: is given in two spellings".into());
            expected
        }),
        ("an enum by its number", action("3"), vec![]),
        ("an enum by its number in a string", action("\"3\""), vec![]),
        ("an enum in small letters", action("unescape_and_redirect"), vec![]),
        ("another enum by its number", action("1"), vec![format!("{BOTH}path_with_escaped_slashes_action leaves")]),
        ("no value of the enum", action("unescape"), vec![format!("{BOTH}path_with_escaped_slashes_action leaves"), "pathWithEscapedSlashesAction: is not read by Envoy: expected one of its values".into()]),
        ("a sample in camel case", vec![edit(sample, format!("{sample}                          samplePercent: {{defaultValue: {{numerator: \"0\"}}}}\n"))], vec![format!("{BOTH}sample_percent enters the guard for a part")]),
        ("an unknown field", vec![edit(named, format!("{named}            disable: true\n"))], vec!["disable: is not known to Envoy, which does not start with it".into(), format!("{BOTH}disable is not part of the guard's entry")]),
        ("two of a oneof", vec![edit(GATEWAY_ROUTE, "route: {cluster: identity_gateway, cluster_header: x, timeout: 0s}")], vec!["cluster_header: is given beside another of which Envoy takes one only".into()]),
        ("an unknown type", vec![edit(METRICS, format!("  - name: second\n    filter_chains: [{{filters: [{{name: any, typed_config: {{\"@type\": type.googleapis.com/envoy.extensions.any.v3.Any}}}}]}}]\n{METRICS}"))],
            vec!["warning: envoy.extensions.any.v3.Any is not a message of Envoy's".into(), "warning: listener second: \"any\" is not among the filters".into()]),
    ];
    assert_cases(cases);
}
