//! Tests of `check` for the guard: changes to the shipped envoy.yaml after which impersonations may
//! not meet the guard. `tests/envoy/guard/proof` shows in Envoy, as far as requests can, that
//! they do not.

use std::path::Path;

use crate::check::check;
use crate::file;

/// Returns a text to replace and its replacement.
pub(crate) fn edit(from: &str, to: impl Into<String>) -> (String, String) {
    (from.to_owned(), to.into())
}

/// Returns the shipped configuration without browser sessions, as its comment says.
pub(crate) fn without_sessions() -> String {
    let shipped = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("envoy.yaml");
    let mut text = std::fs::read_to_string(shipped).unwrap();
    for (from, to) in [
        ("            - &misdirected", "            - name: public"),
        ("  # Browser sessions: the application", "  # For Prometheus"),
        ("  # Yours: the application of the browser sessions", "  # This Envoy itself"),
        (
            "                    # The application itself, as the user",
            "                    # A client that",
        ),
    ] {
        let (before, rest) = text.split_once(from).unwrap();
        let (_, after) = rest.split_once(to).unwrap();
        text = format!("{before}{to}{after}");
    }
    text.replace("            - *misdirected\n", "")
}

/// Returns the shipped configuration without browser sessions, with some of its text replaced.
pub(crate) fn edited(edits: &[(&str, &str)]) -> String {
    edits.iter().fold(without_sessions(), |text, (from, to)| {
        assert!(text.contains(from), "{from:?} is not there");
        text.replace(from, to)
    })
}

/// Returns the whole entry of `http_filters` with this name.
pub(crate) fn entry(name: &str) -> String {
    let shipped = edited(&[]);
    let head = format!("          - name: {name}\n");
    let (_, rest) = shipped.split_once(&head).unwrap();
    let end = |line: &&str| line.starts_with("          - ") || line.starts_with("          #");
    let body: String = rest
        .split_inclusive('\n')
        .take_while(|line| !end(line))
        .filter(|line| !line.trim().is_empty())
        .collect();
    head + &body
}

/// The finding about the demo's secret, which is always there.
const DEMO: &str = "is the demo's, as in the envoy.yaml that is shipped";

/// Asserts that `check` has exactly these findings about this envoy.yaml: problems, and warnings
/// that begin with `warning: `.
pub(crate) fn assert_findings(case: &str, text: &str, expected: &[&str]) {
    let found = check(&file("envoy.yaml", text), &["--assume-environment"]);
    let (_, findings) = found.lines.split_last().unwrap();
    let findings: Vec<_> = findings.iter().filter(|line| !line.contains(DEMO)).collect();
    assert_eq!(findings.len(), expected.len(), "{case}: {findings:#?}");
    let mut status = 0;
    for line in expected {
        let (text, is_warning) = match line.strip_prefix("warning: ") {
            Some(text) => (text, true),
            None => (*line, false),
        };
        let is_it =
            |found: &&&String| found.contains(text) && found.contains(": warning: ") == is_warning;
        assert!(findings.iter().any(|found| is_it(&found)), "{case}: no {line:?} in {findings:#?}");
        status |= i32::from(!is_warning);
    }
    assert_eq!(found.status, Some(status), "{case}: {findings:#?}");
}

/// Asserts the findings about the shipped configuration with changes.
pub(crate) fn assert_cases(cases: Vec<Case>) {
    for (case, edits, expected) in cases {
        let expected: Vec<_> = expected.iter().map(String::as_str).collect();
        let edits: Vec<_> = edits.iter().map(|(from, to)| (&**from, &**to)).collect();
        assert_findings(case, &edited(&edits), &expected);
    }
}

/// The name of a case, the changes, and the expected findings.
pub(crate) type Case = (&'static str, Vec<(String, String)>, Vec<String>);

/// Returns a line of a route's settings for a filter.
fn setting(filter: &str, message: &str) -> String {
    format!("                  {filter}: {{\"@type\": type.googleapis.com/{message}}}\n")
}

const OFF: &str = "envoy.config.route.v3.FilterConfig, disabled: true";
pub(crate) const BOTH: &str = "listener public, routes /orders, /invoices: ";
pub(crate) const ORDERS: &str = "listener public, route /orders: ";

#[test]
fn every_route_to_an_api_is_proved_to_have_the_guard_before_it_or_named_with_the_reason() {
    let (guard, jwt_authn) = (entry("impersonation-guard"), entry("envoy.filters.http.jwt_authn"));
    let before = format!("{guard}{jwt_authn}");
    let removed = entry("envoy.filters.http.header_mutation");
    let on_orders = "                    requirement_name: orders\n";
    let on_orders_also =
        |filter: &str, message: &str| format!("{on_orders}{}", setting(filter, message));
    let requirement = "                  envoy.filters.http.jwt_authn:\n                    \"@type\": type.googleapis.com/envoy.extensions.filters.http.jwt_authn.v3.PerRouteConfig\n                    requirement_name: orders\n";
    let everything = "              - match: {prefix: /}\n";
    let one_more = |route: &str| {
        format!(
            "              - match: {{path_separated_prefix: /more}}\n                route: {{{route}}}\n{everything}"
        )
    };
    let guards_vm = "by this name the guard knows what the filter revokes.\n                                  vm_id: impersonation";
    let guards_issuer = "issuer: http://127.0.0.1:10000/oidc # Yours: as the filter's";
    let default = "                                    default: read_only # GET";
    let configured =
        |members: &str| format!("                                    {members}\n{default}");
    let of_orders = "                orders:\n                  issuer: http://127.0.0.1:10000/oidc\n                  audiences: [http://127.0.0.1:10000/orders]\n";
    let bearer = "                  from_headers: &bearer\n                  - {name: Authorization, value_prefix: \"DPoP \"} # tokens that are bound to keys\n                  - {name: Authorization, value_prefix: \"Bearer \"}\n";
    let no_headers = ["                  from_headers: *bearer\n", bearer];
    let named = "                orders: {provider_name: orders}\n";
    let required = |requirement: &str| format!("                orders: {requirement}\n");
    let matchers = "                  matchers:\n";
    let skip_first = r#"                  matchers:
                  - predicate: {single_predicate: {input: {name: any, typed_config: {"@type": type.googleapis.com/envoy.type.matcher.v3.HttpRequestHeaderMatchInput, header_name: ":path"}}, value_match: {prefix: /}}}
                    on_match: {action: {name: skip, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.common.matcher.action.v3.SkipFilter}}}
"#;
    let execute = "                          \"@type\": type.googleapis.com/envoy.extensions.filters.http.composite.v3.ExecuteFilterAction\n";
    let sampled = format!(
        "{execute}                          sample_percent: {{default_value: {{numerator: 0}}}}\n"
    );
    let second = |filters: &str, routes: &str| {
        format!(
            r#"  - name: second
    address: {{socket_address: {{address: 127.0.0.1, port_value: 10001}}}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: second
          {routes}
          http_filters:
{filters}          - name: envoy.filters.http.router
            typed_config: {{"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}

  # For Prometheus"#
        )
    };
    let to_apis = "route_config: {virtual_hosts: [{name: all, domains: [\"*\"], routes: [{match: {prefix: /}, route: {cluster: apis}}]}]}";
    let elsewhere = "rds: {route_config_name: routes, config_source: {ads: {}}}";
    // YAML anchors belong to the whole file, so this copy of jwt_authn spells the keys out.
    let its_own = r#"          - name: envoy.filters.http.jwt_authn
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication
              providers: {orders: {issuer: "http://127.0.0.1:10000/oidc", audiences: ["http://127.0.0.1:10000/orders"], payload_in_metadata: access_token}}
              rules: [{match: {prefix: /}, requires: {provider_name: orders}}]
"#;
    let wasm = r#"          - name: another
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm
              config: {vm_config: {code: {local: {filename: another.wasm}}}}

          # The guard (docs"#;
    let piped = r#"  - name: piped
    filter_chains: [{filters: [{name: tcp, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy, stat_prefix: tcp, cluster: apis}}]}]

  # For Prometheus"#;
    let (metrics, admin) =
        ("\n  # For Prometheus", "    socket_address: {address: 127.0.0.1, port_value: 9901}\n");
    let metrics_named = "  - name: metrics\n    address";
    #[rustfmt::skip]
    let cases: Vec<Case> = vec![
        ("as shipped", vec![], vec![]),

        ("the guard is disabled in the chain", vec![edit("          - name: impersonation-guard\n", "          - name: impersonation-guard\n            disabled: true\n")],
            vec![format!("{BOTH}the guard is disabled")]),
        ("entered for a sample of nobody", vec![edit(execute, &sampled)], vec![format!("{BOTH}sample_percent enters the guard for a part")]),
        ("skipped before it is entered", vec![edit(matchers, skip_first)], vec![format!("{BOTH}the matcher of the guard has not exactly one entry")]),
        ("entered by all others", vec![edit("                      or_matcher:\n", "                      not_matcher:\n                       or_matcher:\n")],
            vec![format!("{BOTH}not_matcher is not part of the guard's entry")]),
        ("inverted", vec![edit("                                value: {present_match: true}\n", "                                value: {present_match: true}\n                                invert: true\n")],
            vec![format!("{BOTH}invert is not part of the guard's entry")]),
        ("another claim", vec![edit("path: [{key: access_token}, {key: txn}]", "path: [{key: access_token}, {key: act}]")], vec![format!("{BOTH}the guard must be entered where access_token.txn")]),
        ("no matter what", vec![edit("value: {present_match: true}", "value: {string_match: {exact: x}}")], vec![format!("{BOTH}the guard must be entered where access_token.txn")]),
        ("not for bound tokens", vec![edit(" {key: cnf}]", " {key: sub}]")], vec![format!("{BOTH}the guard must be entered where access_token.txn or access_token.cnf")]),
        ("another matcher on the route", vec![edit(on_orders, on_orders_also("impersonation-guard", "envoy.extensions.common.matching.v3.ExtensionWithMatcherPerRoute, xds_matcher: {}"))],
            vec![format!("{ORDERS}a setting of the guard's entry for this route")]),
        ("switched off on the route", vec![edit(on_orders, on_orders_also("impersonation-guard", OFF))], vec![format!("{ORDERS}this switches the guard off")]),
        ("switched off in the virtual host", vec![edit("              domains: [\"*\"] # Yours", format!("              typed_per_filter_config:\n{}              domains: [\"*\"] # Yours", setting("  impersonation-guard", OFF)))],
            vec![format!("{BOTH}this switches the guard off")]),
        ("switched off for one of two clusters", vec![edit("              - match: {path_separated_prefix: /orders}\n                route: {cluster: apis, timeout: 0s, max_stream_duration: {max_stream_duration: 3600s}}\n", "              - match: {path_separated_prefix: /orders}\n                route: {weighted_clusters: {clusters: [{name: apis, weight: 1}, {name: canary, weight: 1, typed_per_filter_config: {impersonation-guard: {\"@type\": type.googleapis.com/envoy.config.route.v3.FilterConfig, disabled: true}}}]}}\n")],
            vec![format!("{ORDERS}this switches the guard off")]),
        ("no guard", vec![edit(&guard, "")], vec![format!("{BOTH}jwt_authn accepts access tokens of the filter, and no guard stands behind it")]),
        ("before jwt_authn", vec![edit(&guard, ""), edit(&jwt_authn, &before)],
            vec![format!("{BOTH}the guard stands before jwt_authn"), format!("{BOTH}the guard needs a header_mutation before it that removes x-impersonation-id"), format!("{BOTH}the guard needs a header_mutation before it that removes x-impersonator"), format!("{BOTH}the guard needs a header_mutation before it that removes the names of remove_on_match")]),
        ("a filter in between that could change the claims", vec![edit("          # The guard (docs", wasm)], vec![format!("{BOTH}\"another\" between jwt_authn and the guard could change")]),
        ("no claims where it is entered by", vec![edit("                  payload_in_metadata: access_token\n", "")],
            vec![format!("{ORDERS}the provider's payload_in_metadata must be \"access_token\""), "listener public, route /invoices: the provider's payload_in_metadata must be".into()]),

        ("jwt_authn that comes from elsewhere", vec![edit(&jwt_authn, "          - name: envoy.filters.http.jwt_authn\n            config_discovery: {config_source: {ads: {}}, type_urls: [type.googleapis.com/envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication]}\n")],
            vec!["listener public, routes /orders, /invoices: jwt_authn is not among its filters in this file".into()]),
        ("no jwt_authn", vec![edit(&jwt_authn, "")], vec![format!("{BOTH}the guard needs envoy.filters.http.jwt_authn before it")]),
        ("a second virtual host", vec![edit("            - name: public\n              domains: [\"*\"]", "            - {name: other, domains: [other.example], routes: [{name: all, match: {prefix: /}, route: {cluster: apis}}]}\n            - name: public\n              domains: [\"*\"]")],
            vec!["listener public, route all (/*) of other: no rule of jwt_authn is certain to match".into()]),

        ("forged headers", vec![edit(&removed, "")], vec![format!("{BOTH}the guard needs a header_mutation before it that removes x-impersonation-id"), format!("{BOTH}the guard needs a header_mutation before it that removes x-impersonator"), format!("{BOTH}the guard needs a header_mutation before it that removes the names of remove_on_match")]),
        ("forged headers by another spelling", vec![edit("'.*[^a-z0-9:-].*'", "'x.impersonator'")], vec![format!("{BOTH}the guard needs a header_mutation before it that removes the names of remove_on_match")]),
        ("forged headers on the route", vec![edit(on_orders, on_orders_also("envoy.filters.http.header_mutation", OFF))],
            vec![format!("{ORDERS}the header_mutation that removes x-impersonation-id is disabled here"), format!("{ORDERS}the header_mutation that removes x-impersonator is disabled here"), format!("{ORDERS}the guard needs a header_mutation before it that removes the names of remove_on_match")]),

        ("jwt_authn off on the route", vec![edit("                    requirement_name: orders\n", "                    disabled: true\n")], vec![format!("{ORDERS}jwt_authn is disabled here")]),
        ("no requirement", vec![edit(requirement, "")], vec![format!("{ORDERS}no rule of jwt_authn is certain to match")]),
        ("one more route to the API", vec![edit(everything, one_more("cluster: apis"))], vec!["listener public, route /more: no rule of jwt_authn is certain to match".into()]),
        ("a route that the request chooses", vec![edit(everything, one_more("cluster_header: x-cluster"))], vec!["listener public, route /more: no rule of jwt_authn is certain to match".into()]),
        ("a route to what no other leads to", vec![edit(everything, one_more("cluster: unheard-of"))], vec!["listener public, route /more: no rule of jwt_authn is certain to match".into()]),
        ("a route that might take the filter's paths", vec![edit("            disabled: true # a route turns it on\n", ""), edit(everything, format!("              - match: {{safe_regex: {{regex: '/more/.*'}}}}\n                route: {{cluster: more}}\n{everything}"))],
            vec!["listener public, route /more/.*: no rule of jwt_authn is certain to match".into()]),
        ("a host that might take the filter's paths", vec![edit("            disabled: true # a route turns it on\n", ""), edit("            - name: public\n              domains: [\"*\"]", "            - {name: other, domains: [other.example], routes: [{match: {prefix: /}, route: {cluster: more}}]}\n            - name: public\n              domains: [\"*\"]")],
            vec!["listener public, route /* of other: no rule of jwt_authn is certain to match".into()]),
        ("the API and the gateway in one cluster", vec![edit("route: {cluster: identity_gateway, timeout: 0s}", "route: {cluster: apis, timeout: 0s}")], vec!["listener public, route /*: no rule of jwt_authn is certain to match".into()]),
        ("a token may be missing", vec![edit(named, required("{requires_any: {requirements: [{provider_name: orders}, {allow_missing: {}}]}}"))], vec![format!("{ORDERS}allow_missing lets requests pass")]),
        ("a token may be wrong", vec![edit(named, required("{requires_any: {requirements: [{provider_name: orders}, {allow_missing_or_failed: {}}]}}"))], vec![format!("{ORDERS}allow_missing_or_failed lets requests pass")]),
        ("deep in it a token may be missing", vec![edit(named, required("{requires_all: {requirements: [{provider_name: orders}, {requires_any: {requirements: [{provider_name: orders}, {allow_missing: {}}]}}]}}"))], vec![format!("{ORDERS}allow_missing lets requests pass")]),
        ("any issuer", vec![edit(of_orders, "                orders:\n                  audiences: [http://127.0.0.1:10000/orders]\n")], vec![format!("{ORDERS}the provider has no issuer")]),
        ("an issuer with a slash", vec![edit(of_orders, of_orders.replace("/oidc\n", "/oidc/\n"))], vec![format!("{ORDERS}the provider's issuer \"http://127.0.0.1:10000/oidc/\" is not quite the filter's")]),
        ("an issuer that is another", vec![("issuer: http://127.0.0.1:10000/oidc\n                  audiences", "issuer: https://other.example\n                  audiences")].into_iter().map(|(from, to)| edit(from, to)).collect(),
            vec![format!("{ORDERS}no provider that it requires has the issuer of the filter (http://127.0.0.1:10000/oidc)"), "listener public, route /invoices: no provider that it requires has the issuer".into()]),
        ("an issuer in other letters", vec![edit(of_orders, of_orders.replace("/oidc\n", "/OIDC\n"))], vec![format!("{ORDERS}the provider's issuer \"http://127.0.0.1:10000/OIDC\" is not quite the filter's")]),
        ("any audience", vec![edit("                  audiences: [http://127.0.0.1:10000/orders]\n", "")], vec![format!("{ORDERS}the provider has no audiences")]),
        ("a misspelt indicator", vec![edit("audiences: [http://127.0.0.1:10000/orders]", "audiences: [http://127.0.0.1:10000/order]")], vec![format!("{ORDERS}no resource of the filter has one of the provider's audiences")]),
        ("tokens from anywhere", vec![edit(no_headers[0], ""), edit(no_headers[1], "")], vec![format!("{ORDERS}the provider has no from_headers, so jwt_authn takes `?access_token=` too: name"), "route /invoices: the provider has no from_headers".into()]),
        ("and both tokens go on", vec![edit(no_headers[0], ""), edit(no_headers[1], "                  forward: true\n")], vec![format!("{ORDERS}the provider has no from_headers, so jwt_authn takes `?access_token=` too, and forward sends both"), "route /invoices: the provider has no from_headers".into()]),
        ("tokens from the query", vec![edit(bearer, format!("{bearer}                  from_params: [access_token]\n"))], vec![format!("{ORDERS}the provider takes tokens from elsewhere than a header")]),
        ("tokens from another header", vec![edit(bearer, format!("{bearer}                  - {{name: x-token}}\n"))], vec![format!("{ORDERS}the provider takes tokens from another header"), "route /invoices: the provider takes tokens from another header".into()]),
        ("preflights pass", vec![edit("              requirement_map:\n", "              bypass_cors_preflight: true\n              requirement_map:\n")], vec![format!("{BOTH}bypass_cors_preflight lets OPTIONS pass")]),
        ("nobody is told why", vec![edit("              requirement_map:\n", "              strip_failure_response: true\n              requirement_map:\n")], vec![format!("warning: {BOTH}strip_failure_response takes WWW-Authenticate")]),
        ("the gateway's keys alone", vec![edit("cluster: public_listener, timeout: 5s", "cluster: identity_gateway, timeout: 5s")],
            vec![format!("{ORDERS}the provider's key set comes from the cluster \"identity_gateway\", past the filter"), "route /invoices: the provider's key set comes from the cluster".into()]),
        ("another key set", vec![edit("uri: http://127.0.0.1:10000/oidc/jwks, cluster: public_listener", "uri: http://127.0.0.1:10000/keys, cluster: public_listener")],
            vec![format!("{ORDERS}the provider's key set is not the one that the filter serves"), "route /invoices: the provider's key set is not".into()]),

        ("paths as they come", vec![edit("          normalize_path: true\n", "")], vec![format!("{BOTH}normalize_path is not true")]),
        ("slashes as they come", vec![edit("          merge_slashes: true\n", "")], vec![format!("{BOTH}merge_slashes is not true")]),
        ("escaped slashes as they come", vec![edit("          path_with_escaped_slashes_action: UNESCAPE_AND_REDIRECT\n", "")], vec![format!("{BOTH}path_with_escaped_slashes_action leaves")]),

        ("nothing is refused", vec![edit(default, configured("mode: report"))], vec![format!("{BOTH}mode: report refuses nothing")]),
        ("everything is allowed first", vec![edit(default, configured("rules: [{path_prefix: /, action: allow}, {path_prefix: /orders, action: deny}]"))],
            vec![format!("warning: {BOTH}rules[0] allows whatever has come so far"), format!("warning: {BOTH}rules[1] never decides over a path that is normal: rules[0]")]),
        ("a wider rule first", vec![edit(default, configured("rules: [{path_prefix: /orders, methods: [POST], action: allow}, {path: /orders/close, methods: [POST], action: deny}]"))],
            vec![format!("warning: {BOTH}rules[1] never decides over a path that is normal: rules[0]")]),
        ("a narrower rule first", vec![edit(default, configured("rules: [{path: /orders/close, methods: [POST], action: deny}, {path_prefix: /orders, methods: [POST], action: allow}]"))], vec![]),
        ("another vm_id", vec![edit(guards_vm, "x\n                                  vm_id: guard")], vec![format!("{BOTH}the guard's vm_id must be the same as in")]),
        ("another base_path", vec![edit(default, configured("base_path: /tenant"))], vec![format!("{BOTH}the guard must have issuer and base_path of the filter")]),
        ("another issuer", vec![edit(guards_issuer, "issuer: https://other.example.com")], vec![format!("{BOTH}the guard must have issuer and base_path of the filter"), format!("{BOTH}the guard has another issuer than jwt_authn's provider")]),
        ("dies for good", vec![edit("                                failure_policy: FAIL_RELOAD\n", "")], vec!["failure_policy: must be FAIL_RELOAD".into()]),
        ("misspelt", vec![edit(guards_issuer, "isuer: x")], vec!["isuer: unknown member".into(), "issuer: is required".into()]),

        ("another listener with jwt_authn and no guard", vec![edit(metrics, second(its_own, to_apis))], vec!["listener second, route /*: jwt_authn accepts access tokens of the filter, and no guard stands behind it".into()]),
        ("another listener with neither", vec![edit(metrics, second("", to_apis))], vec!["listener second, route /*: it leads to a guarded API, and neither jwt_authn nor the guard stands before it".into()]),
        ("another listener whose routes are elsewhere", vec![edit(metrics, second("", elsewhere))], vec!["warning: listener second: its routes are not in this file".into()]),
        ("a listener that passes connections on", vec![edit(metrics, piped)], vec!["listener piped: tcp_proxy passes connections on to apis".into()]),
        ("more listeners elsewhere", vec![edit("\nadmin:\n", "\ndynamic_resources: {lds_config: {path_config_source: {path: /lds.yaml}}}\nadmin:\n")], vec!["warning: dynamic_resources.lds_config: more listeners come by LDS".into()]),
        ("two listeners of one name", vec![edit(metrics_named, "  - name: public\n    address")], vec!["listener public: it has the name of static_resources.listeners[0]".into()]),
        ("two listeners of one address", vec![edit("port_value: 9902}", "port_value: 10000}")], vec!["listener metrics: it has the address of static_resources.listeners[0]".into()]),
        ("everybody's admin", vec![edit(admin, "    socket_address: {address: 0.0.0.0, port_value: 9901}\n")], vec!["warning: admin.address.socket_address.address: lets others than this machine reach the admin interface".into()]),
    ];
    assert_cases(cases);
}

#[test]
fn a_guard_that_every_request_enters_is_a_problem() {
    let (guard, bare) = (
        entry("impersonation-guard"),
        "          - name: impersonation-guard\n            typed_config:\n              \"@type\": type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm\n              config:\n                failure_policy: FAIL_RELOAD\n                vm_config: {vm_id: impersonation, code: {local: {filename: impersonation_guard.wasm}}}\n                configuration:\n                  \"@type\": type.googleapis.com/google.protobuf.Struct\n                  value: {issuer: \"http://127.0.0.1:10000/oidc\"}\n",
    );
    let found = check(&file("envoy.yaml", &edited(&[(&guard, bare)])), &["--assume-environment"]);
    assert!(
        found.lines.iter().any(|line| line.contains("is entered by every request")),
        "{:#?}",
        found.lines
    );
    assert_eq!(found.status, Some(1));
}

/// Returns the shipped configuration with these stores, and the cluster for etcd that it has in a
/// comment.
fn in_etcd(filters: &str, guards: &str) -> String {
    let shipped = edited(&[
        (
            "                      shared_data: {capacity: 65536}",
            &format!("                      {filters}"),
        ),
        (
            "                                  value:\n                                    issuer: http://127.0.0.1:10000/oidc # Yours: as the filter's\n",
            &format!(
                "                                  value:\n                                    store: {guards}\n                                    issuer: http://127.0.0.1:10000/oidc\n"
            ),
        ),
    ]);
    let (_, cluster) = shipped.split_once("  # - name: etcd\n").unwrap();
    let cluster: String = std::iter::once("  # - name: etcd")
        .chain(cluster.lines())
        .map_while(|line| line.strip_prefix("  # "))
        .map(|line| format!("  {line}\n"))
        .collect();
    shipped.replace("\n  clusters:\n", &format!("\n  clusters:\n{cluster}"))
}

#[test]
fn guard_and_filter_must_share_a_store_whose_cluster_is_checked_once() {
    let etcd = "etcd: {cluster: etcd}";
    let of_guard = "{etcd: {cluster: etcd}}";
    let (good, elsewhere) = (in_etcd(etcd, of_guard), in_etcd(etcd, "{etcd: {cluster: store}}"));
    let renamed = elsewhere.replace("  - name: etcd\n", "  - name: store\n");
    let no_checks = good.replace("unhealthy_threshold: 3", "unhealthy_threshold: 1");
    let other_vm = good.replace(
        "by this name the guard knows what the filter revokes.\n                                  vm_id: impersonation",
        "\n                                  vm_id: guard",
    );
    assert_ne!(other_vm, good);
    #[rustfmt::skip]
    let cases: [(&str, String, &[&str]); 9] = [
        ("the same",               good.clone(), &[]),
        ("with the default named", in_etcd(etcd, "{etcd: {cluster: etcd, prefix: /impersonation/}}"), &[]),
        ("shared data",            in_etcd(etcd, "{shared_data: {}}"),
            &["routes /orders, /invoices: the guard's store must have etcd, as in"]),
        ("only the guard",         in_etcd("shared_data: {capacity: 7}", of_guard),
            &["routes /orders, /invoices: the guard's store must have shared_data, as in"]),
        ("another prefix",         in_etcd(etcd, "{etcd: {cluster: etcd, prefix: /other/}}"),
            &["routes /orders, /invoices: the guard's store.etcd.prefix must be \"/impersonation/\", as in"]),
        ("no such cluster",        elsewhere,
            &["warning: listener public, routes /orders, /invoices: the guard's store.etcd.cluster is not \"etcd\", as in", "configuration.value.store.etcd.cluster: there is no cluster \"store\""]),
        ("another cluster",        renamed,
            &["warning: listener public, routes /orders, /invoices: the guard's store.etcd.cluster is not \"etcd\", as in", "configuration.value.store.etcd.cluster: there is no cluster \"etcd\""]),
        ("a cluster that fails",   no_checks,
            &["retriable_statuses: must have 503"]),
        ("another vm_id",          other_vm,
            &["warning: listener public, routes /orders, /invoices: the guard's vm_id should be the same as in"]),
    ];
    for (case, text, expected) in cases {
        assert_findings(case, &text, expected);
    }
}
