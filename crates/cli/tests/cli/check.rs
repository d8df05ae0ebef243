//! Tests of `check`: the problems that it finds in a configuration, and the settings that it
//! accepts.

use std::path::Path;

use serde_json::{Value, json};

use crate::{command, file, fresh, stdout, with_input};

/// A complete, valid Envoy configuration. The key is the example of RFC 8037, appendix A.1.
pub(crate) const ENVOY: &str = r#"
static_resources:
  listeners:
  - name: public
    address: {socket_address: {address: 0.0.0.0, port_value: 10000}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: public
          request_timeout: 10s
          stream_idle_timeout: 30s
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:
              - match: {prefix: /}
                route: {cluster: identity_gateway}
          http_filters:
          - name: impersonation
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm
              config:
                name: impersonation
                allow_on_headers_stop_iteration: true
                failure_policy: FAIL_RELOAD
                vm_config:
                  vm_id: impersonation
                  runtime: envoy.wasm.runtime.v8
                  environment_variables: {host_env_keys: [IMPERSONATION_SIGNING_KEY]}
                  code: {local: {filename: /etc/envoy/impersonation_filter.wasm}}
                configuration:
                  "@type": type.googleapis.com/google.protobuf.Struct
                  value:
                    issuer: https://auth.example.com/oidc
                    signing_keys:
                    - environment_variable: IMPERSONATION_SIGNING_KEY
                    subject_tokens:
                      authentication:
                        jwt:
                        - issuer: https://auth.example.com/oidc
                          audiences: [https://auth.example.com/api]
                          required_scopes: [impersonate]
                          client_ids: [integrator-backend]
                          local_jwks:
                            inline_string: '{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}'
                    clients:
                    - client_id: support-console
                      type: single_page
                    resources:
                    - indicator: https://api.example.com/orders
                      scopes: [orders:read]
                    impersonations:
                      authentication:
                        introspection:
                          http_uri: {uri: http://auth.example.com/introspect, cluster: identity_gateway, timeout: 2s}
                          client_id: impersonation-filter
                          client_secret: {inline_string: a secret of a test}
                          audiences: [https://auth.example.com/api]
                          client_ids: [operations]
                    identity_gateway: {documents: none}
          - name: envoy.filters.http.router
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
  clusters:
  - name: identity_gateway
    connect_timeout: 1s
"#;

/// The protocol of the shipped clusters of etcd, and another.
const HTTP2: &str = "http2_protocol_options: {connection_keepalive: {interval: 2s, timeout: 1s}}";
const HTTP1: &str = "http_protocol_options: {}";

const SECRET_PART: &str = "nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A";

fn signing_key() -> Value {
    json!({
        "kty": "OKP", "crv": "Ed25519", "d": SECRET_PART,
        "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
    })
}

pub(crate) fn plugin() -> Value {
    let local_jwks = json!({"keys": [
        {"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"},
    ]});
    json!({
        "issuer": "https://auth.example.com/oidc",
        "signing_keys": [{"jwk": signing_key()}],
        "subject_tokens": {"authentication": {"jwt": [{
            "issuer": "https://auth.example.com/oidc",
            "audiences": ["https://auth.example.com/api"],
            "required_scopes": ["impersonate"],
            "client_ids": ["integrator-backend"],
            "local_jwks": {"inline_string": local_jwks.to_string()},
        }]}},
        "clients": [{"client_id": "support-console", "type": "single_page"}],
        "resources": [{"indicator": "https://api.example.com/orders", "scopes": ["orders:read"]}],
        "impersonations": {"authentication": {"jwt": [{
            "issuer": "https://auth.example.com/oidc",
            "audiences": ["https://auth.example.com/api"],
            "client_ids": ["operations"],
            "local_jwks": {"inline_string": local_jwks.to_string()},
        }]}},
        "identity_gateway": {"documents": "none"},
    })
}

pub(crate) struct Checked {
    pub status: Option<i32>,
    /// The printed lines without the name of the file.
    pub lines: Vec<String>,
}

/// Checks a file, with the signing key in the environment.
pub(crate) fn check(path: &Path, options: &[&str]) -> Checked {
    let name = path.to_str().unwrap();
    let output = command(&["check", name])
        .args(options)
        .env("IMPERSONATION_SIGNING_KEY", signing_key().to_string())
        .output()
        .unwrap();
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = stdout(&output);
    assert!(!text.contains(SECRET_PART), "a private key was printed: {text}");
    let lines = text.lines().map(|line| line.strip_prefix(name).unwrap().to_owned()).collect();
    Checked { status: output.status.code(), lines }
}

/// Returns the base configuration from one text up to another.
fn part(from: &str, to: &str) -> &'static str {
    let start = ENVOY.find(from).unwrap();
    let end = ENVOY.find(to).unwrap();
    ENVOY.get(start..end).unwrap()
}

const FILTER: &str = "          - name: impersonation\n";
const ROUTER: &str = "          - name: envoy.filters.http.router\n";
const CONFIGURATION: &str = "                configuration:\n";

/// Returns the base configuration with the plugin's configuration as JSON text.
fn with_string_value(json: &str) -> String {
    let value = Value::from(json);
    let configuration = format!(
        "{CONFIGURATION}                  \"@type\": type.googleapis.com/google.protobuf.StringValue\n                  value: {value}\n"
    );
    ENVOY.replace(part(CONFIGURATION, ROUTER), &configuration)
}

/// Pairs of the text to replace and its replacement.
pub(crate) type Edits<'a> = &'a [(&'a str, &'a str)];

/// Returns the base configuration with some of its text replaced.
pub(crate) fn edited(edits: Edits<'_>) -> String {
    edits.iter().fold(ENVOY.to_owned(), |text, (from, to)| {
        assert_eq!(text.matches(from).count(), 1, "{from:?} is not there exactly once");
        text.replace(from, to)
    })
}

const MANAGER: &str = "static_resources.listeners[0].filter_chains[0].filters[0].typed_config";

/// The path of the plugin. `~` in an expected line stands for it.
const PLUGIN: &str = "static_resources.listeners[0].filter_chains[0].filters[0].typed_config.http_filters[0].typed_config.config";

const UNSEEN: &str = "warning: ^.http_filters[0]: is disabled on every route to /api/subject-tokens/{id}, /api/impersonations, /api/impersonations/{id}, /api/impersonations/revocations, /oidc/token/revocation, /oidc/token/introspection:";

const PASSED_BY: [&str; 5] = [
    ": ^.http_filters[0]: is disabled on every route to /api/subject-tokens:",
    ": ^.http_filters[0]: is disabled on every route to /oidc/token:",
    "warning: ^.http_filters[0]: is disabled on every route to /oidc/jwks:",
    "warning: ^.http_filters[0]: is disabled on every route to /oidc/.well-known/openid-configuration:",
    UNSEEN,
];

#[track_caller]
pub(crate) fn assert_findings(case: &str, checked: &Checked, expected: &[&str]) {
    let found: Vec<_> =
        checked.lines.iter().map(|line| line.replace(PLUGIN, "~").replace(MANAGER, "^")).collect();
    let (summary, found) = found.split_last().unwrap();
    let problems = expected.iter().filter(|line| !line.contains("warning: ")).count();
    assert_eq!(found.len(), expected.len(), "{case}: {found:#?}");
    for line in expected {
        assert!(
            found.iter().any(|found| found.contains(line)),
            "{case}: no {line:?} in {found:#?}"
        );
    }
    assert_eq!(checked.status, Some(i32::from(problems > 0)), "{case}: {found:#?}");
    assert_eq!(summary.starts_with(": valid"), problems == 0, "{case}: {summary}");
}

#[test]
fn a_good_configuration_is_valid_in_every_form() {
    let lds = ENVOY
        .replacen("static_resources:\n  listeners:\n  - name", "resources:\n  - \"@type\": type.googleapis.com/envoy.config.listener.v3.Listener\n    name", 1)
        .replace("  clusters:\n  - name: identity_gateway\n    connect_timeout: 1s\n", "");
    let typed_struct = edited(&[(
        "\"@type\": type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm\n              config:\n",
        "\"@type\": type.googleapis.com/xds.type.v3.TypedStruct\n              type_url: type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm\n              value:\n               config:\n",
    )]);
    let plugin = plugin();
    let extension = json!({"resources": [{
        "@type": "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig",
        "name": "impersonation",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm",
            "config": {
                "allowOnHeadersStopIteration": true,
                "failurePolicy": "FAIL_RELOAD",
                "configuration": {
                    "@type": "type.googleapis.com/google.protobuf.Struct",
                    "value": plugin,
                },
            },
        },
    }]});
    #[rustfmt::skip]
    let cases = [
        ("a bootstrap in YAML",       "envoy.yaml",  ENVOY.to_owned()),
        ("the same in camel case",    "envoy.yaml",  edited(&[
            ("allow_on_headers_stop_iteration", "allowOnHeadersStopIteration"),
            ("failure_policy", "failurePolicy"),
            ("host_env_keys", "hostEnvKeys"),
            ("request_timeout", "requestTimeout"),
        ])),
        ("a listener by LDS",         "lds.yaml",    lds),
        ("JSON in a StringValue",     "envoy.yaml",  with_string_value(&plugin.to_string())),
        ("an extension by ECDS",      "ecds.json",   extension.to_string()),
        ("a TypedStruct",             "envoy.yaml",  typed_struct),
        ("the plugin's own, JSON",    "plugin.json", plugin.to_string()),
        ("the plugin's own, YAML",    "plugin.yaml", plugin.to_string()),
        ("JSON by its looks",         "plugin.conf", plugin.to_string()),
    ];
    for (case, name, content) in cases {
        let checked = check(&file(name, &content), &[]);
        let alone = if name.starts_with("plugin") { ALONE } else { "" };
        assert_eq!(
            (checked.status, &*checked.lines),
            (Some(0), &[format!(": valid{alone}")][..]),
            "{case}"
        );
    }
}

/// The end of the summary for a file that holds only a plugin's own configuration.
const ALONE: &str =
    "; it is the filter's own configuration, and where Envoy has the filter is not in it";

/// Reads a file of the repository.
fn repositorys(name: &str) -> String {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(name);
    std::fs::read_to_string(path).unwrap()
}

const MANIFESTS: [&str; 2] =
    ["deploy/istio/impersonation.yaml", "deploy/envoy-gateway/impersonation.yaml"];
const TRAFFIC_EXTENSION: &str = "deploy/istio/traffic-extension.yaml";
const OF_SESSIONS: [&str; 2] = ["deploy/istio/sessions.yaml", "deploy/envoy-gateway/sessions.yaml"];

#[test]
fn the_shipped_configurations_have_no_findings_except_the_demos_secret() {
    for name in MANIFESTS.into_iter().chain([TRAFFIC_EXTENSION]) {
        let path = file("manifest.yaml", &repositorys(name));
        assert_findings(name, &check(&path, &["--assume-environment"]), &[]);
    }
    for (name, beside) in OF_SESSIONS.into_iter().zip(MANIFESTS) {
        let both = format!("{}\n---\n{}", repositorys(beside), repositorys(name));
        let path = file("manifest.yaml", &both);
        assert_findings(name, &check(&path, &["--assume-environment"]), &[]);
    }
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../envoy.yaml"));
    let demo = "warning: ^.http_filters[6].typed_config.config.configuration.value.clients[0].client_secret_sha256: is the demo's, as in the envoy.yaml that is shipped";
    let checked = check(path, &["--assume-environment"]);
    assert_findings("envoy.yaml", &checked, &[demo]);
    let summary = ": valid, 1 warning; the guard stands before 3 of 3 routes to APIs";
    assert_eq!(checked.lines.last().map(String::as_str), Some(summary));

    // The README's command, without the secrets.
    let output = command(&["check", path.to_str().unwrap()]).output().unwrap();
    let lines: Vec<_> = stdout(&output).lines().collect();
    let [code, unset, secret, of_sessions, summary] = &*lines else { panic!("{lines:#?}") };
    assert!(code.contains("there is no file"), "{code}");
    assert!(of_sessions.contains("there is no file"), "{of_sessions}");
    assert!(unset.contains("names 2 environment variables that are not set here"), "{unset}");
    assert!(secret.contains("is the demo's"), "{secret}");
    assert!(
        summary.ends_with(": valid, 4 warnings; the guard stands before 3 of 3 routes to APIs"),
        "{summary}"
    );
    assert_eq!(output.status.code(), Some(0));
    let demo = command(&["check", "--assume-environment", path.to_str().unwrap()])
        .env("INTROSPECTION_SECRET", "demo-only-impersonation-filter")
        .output()
        .unwrap();
    assert!(
        stdout(&demo).contains("introspects with the demo's client_secret"),
        "{}",
        stdout(&demo)
    );
    let strict = command(&["check", "--strict", path.to_str().unwrap()]).output().unwrap();
    assert_eq!(strict.status.code(), Some(1));
}

#[test]
fn the_example_in_the_readme_is_valid() {
    let readme = include_str!("../../../../README.md");
    let (_, example) = readme.split_once("checked by the tests. -->\n```yaml\n").unwrap();
    let (example, _) = example.split_once("```\n").unwrap();
    assert_findings("README.md", &check(&file("plugin.yaml", example), &[]), &[]);
}

#[test]
fn manifests_are_checked_for_what_they_contain() {
    let [istio, gateway] = MANIFESTS.map(repositorys);
    let wasm_plugin = "apiVersion: extensions.istio.io/v1alpha1\nkind: WasmPlugin\nspec: {pluginConfig: {signing_keys: []}}\n";
    let traffic_extension = "apiVersion: extensions.istio.io/v1alpha1\nkind: TrafficExtension\nspec: {wasm: {pluginConfig: {signing_keys: []}}}\n";
    let without = |text: &str, part: &str| {
        assert!(text.contains(part), "{part:?}");
        text.replace(part, "")
    };
    let no_patch = gateway.replace("kind: EnvoyPatchPolicy", "kind: Another");
    let limit = |text: &str, from: &str, to: &str| {
        assert!(text.contains(from), "{from:?}");
        text.replace(from, to)
    };
    let buffers = "warning: [1]: Envoy Gateway's connections hold 32 KiB, and no ClientTrafficPolicy in this file sets connection.bufferLimit to at least 65536";
    let edge = "warning: [0].spec.configPatches[2]: sets no request_body_buffer_limit of at least 65536: under Istio's profile EDGE connections hold 32 KiB";
    #[rustfmt::skip]
    let cases = [
        ("Istio, no flag",              without(&istio, "            allow_on_headers_stop_iteration: true\n"), vec![": [0].spec.configPatches[0].patch.value.typed_config.config.allow_on_headers_stop_iteration: must be true"]),
        ("Istio, a wrong member",       without(&istio, "                  type: single_page\n"), vec!["config.configuration.value.clients[0].type: is required"]),
        ("Istio, a variable",           istio.replace("[IMPERSONATION_SIGNING_KEY, INTROSPECTION_SECRET]", "[IMPERSONATION_SIGNING_KEY]"), vec!["config.vm_config.environment_variables.host_env_keys: must pass on what "]),
        ("Istio, WasmPlugin",           wasm_plugin.to_owned(),                      vec![":2: kind: WasmPlugin cannot set allow_on_headers_stop_iteration"]),
        ("Istio, TrafficExtension",     traffic_extension.to_owned(),                vec![":2: kind: TrafficExtension cannot set allow_on_headers_stop_iteration"]),
        ("Envoy Gateway, no patches",   no_patch,                                    vec!["warning: [1].spec.wasm[0]: has no field for allow_on_headers_stop_iteration", "warning: [1].spec.wasm[0]: has no field for failure_policy"]),
        ("Envoy Gateway, wrong member", without(&gateway, "        type: single_page\n"), vec!["[1].spec.wasm[0].config.clients[0].type: is required"]),
        ("Envoy Gateway, a variable",   without(&gateway, "    env:\n      hostKeys: [IMPERSONATION_SIGNING_KEY, INTROSPECTION_SECRET]\n"), vec!["[1].spec.wasm[0].env.hostKeys: must pass on what ", "[1].spec.wasm[0].env.hostKeys: must pass on what "]),
        ("Envoy Gateway, its default",  gateway.replace("kind: ClientTrafficPolicy", "kind: Another"), vec![buffers]),
        ("Envoy Gateway, too little",   limit(&gateway, "bufferLimit: 1Mi", "bufferLimit: 32Ki"),   vec![buffers]),
        ("Envoy Gateway, one too few",  limit(&gateway, "bufferLimit: 1Mi", "bufferLimit: 65535"),  vec![buffers]),
        ("Envoy Gateway, no quantity",  limit(&gateway, "bufferLimit: 1Mi", "bufferLimit: much"),   vec![buffers]),
        ("Envoy Gateway, just enough",  limit(&gateway, "bufferLimit: 1Mi", "bufferLimit: 64Ki"),   vec![]),
        ("Envoy Gateway, by thousands", limit(&gateway, "bufferLimit: 1Mi", "bufferLimit: 66k"),    vec![]),
        ("Envoy Gateway, a number",     limit(&gateway, "bufferLimit: 1Mi", "bufferLimit: 131072"), vec![]),
        ("Envoy Gateway, another provider", limit(&gateway, "    - name: orders\n      issuer", "    - name: others\n      issuer"), vec![
            "on_match.action.typed_config.typed_config.typed_config.config.configuration.value.payload_in_metadata: must be the name of a provider of the SecurityPolicy (others)",
            "predicate[0].single_predicate.input.typed_config.path[0].key: must be the name of a provider of the SecurityPolicy (others)",
            "predicate[1].single_predicate.input.typed_config.path[0].key: must be the name of a provider of the SecurityPolicy (others)",
        ]),
        ("Istio, its edge profile",     limit(&istio, "request_body_buffer_limit: 131072", "name: mint"), vec![edge]),
        ("Istio, too little",           limit(&istio, "request_body_buffer_limit: 131072", "request_body_buffer_limit: 32768"), vec![edge]),
        ("Istio, by the listener",      limit(&istio, "        request_body_buffer_limit: 131072\n", "").replace("  # Turns the filter on", "  - applyTo: LISTENER\n    patch: {operation: MERGE, value: {per_connection_buffer_limit_bytes: 1048576}}\n  # Turns the filter on"), vec![]),
        ("something else",              "apiVersion: v1\nkind: Secret\n".to_owned(), vec![": the impersonation filter is nowhere in this file, whose manifests are of kind Secret: check reads EnvoyFilter"]),
        ("nobody can end anything",     {
            let (before, rest) = istio.split_once("                impersonations:").unwrap();
            let (_, after) = rest.split_once('\n').unwrap();
            let after: String = after.split_inclusive('\n').skip_while(|line| line.starts_with("                 ")).collect();
            format!("{before}{}", after.trim_start_matches('\n'))
        }, vec!["warning: [0].spec.configPatches[0].patch.value.typed_config.config.configuration.value.impersonations: absent: nobody can list impersonations"]),
    ];
    for (case, text, expected) in cases {
        let checked = check(&file("manifest.yaml", &text), &["--assume-environment"]);
        assert_findings(case, &checked, &expected);
    }
}

#[test]
fn a_guard_that_istio_places_stands_behind_jwt_authn_and_in_a_matcher() {
    let shipped = repositorys(TRAFFIC_EXTENSION);
    let changed = |from: &str, to: &str| {
        assert!(shipped.contains(from), "{from:?}");
        shipped.replace(from, to)
    };
    let name = "extensions.istio.io/trafficextension/orders.impersonation-guard";
    let unwrapped =
        format!("warning: [0]: no EnvoyFilter in this file replaces {name} by a matcher");
    let unwrapped = unwrapped.as_str();
    let outbound = "warning: [0].spec.match: must have mode: SERVER: else the guard also stands before what the API itself calls";
    let wasm_plugin = |name: &str| {
        let (extension, rest) = shipped.split_once("\n---\n").unwrap();
        let (spec, wasm) = extension.split_once("  wasm:\n").unwrap();
        let wasm: Vec<_> = wasm.lines().map(|line| line.strip_prefix("  ").unwrap()).collect();
        let spec = spec.replace("kind: TrafficExtension", "kind: WasmPlugin");
        let guard = "extensions.istio.io/trafficextension/orders.impersonation-guard";
        format!("{spec}{}\n---\n{}", wasm.join("\n"), rest.replace(guard, name))
    };
    #[rustfmt::skip]
    let cases = [
        ("a WasmPlugin",             wasm_plugin(&format!("{name}~istio-translated-wasmplugin")), vec![]),
        ("its other name",           wasm_plugin(name), vec!["warning: [0]: no EnvoyFilter in this file replaces extensions.istio.io/trafficextension/orders.impersonation-guard~istio-translated-wasmplugin"]),
        ("no matcher",               changed("operation: REPLACE", "operation: MERGE"), vec![unwrapped]),
        ("another filter replaced",  changed(&format!("subFilter: {{name: {name}}}"), "subFilter: {name: another}"), vec![unwrapped]),
        ("another guard in it",      changed(&format!("                        name: {name}"), "                        name: another"), vec![unwrapped]),
        ("another namespace",        changed("  namespace: orders # Yours", "  namespace: invoices"), vec!["warning: [0]: no EnvoyFilter in this file replaces extensions.istio.io/trafficextension/invoices.impersonation-guard"]),
        ("before jwt_authn",         changed("phase: AUTHZ", "phase: AUTHN"), vec!["[0].spec.phase: must be AUTHZ: with AUTHN the guard stands before jwt_authn"]),
        ("both directions",          changed("mode: SERVER", "mode: CLIENT_AND_SERVER"), vec![outbound]),
        ("no direction",             changed("  match: [{mode: SERVER}]\n", ""), vec![outbound]),
        ("one of two directions",    changed("[{mode: SERVER}]", "[{mode: SERVER}, {ports: [{number: 80}]}]"), vec![outbound]),
        ("fails open",               changed("FAIL_RELOAD", "FAIL_OPEN"), vec!["[0].spec.wasm.failStrategy: must be FAIL_RELOAD: with FAIL_OPEN requests pass unchecked"]),
        ("fails closed",             changed("    failStrategy: FAIL_RELOAD\n", ""), vec!["[0].spec.wasm.failStrategy: must be FAIL_RELOAD: else a worker"]),
        ("a wrong member",           changed("default: read_only", "default: some"), vec!["[0].spec.wasm.pluginConfig.default: "]),
        ("reports only",             changed("default: read_only", "mode: report\n      default: read_only"), vec!["warning: [0].spec.wasm.pluginConfig.mode: mode: report refuses nothing"]),
        ("no configuration",         changed("    pluginConfig:\n", "    otherConfig:\n"), vec!["[0].spec.wasm.pluginConfig: is required: the guard's configuration"]),
        ("etcd over HTTP/1.1",       changed(HTTP2, HTTP1), vec!["must have explicit_http_config.http2_protocol_options"]),
    ];
    for (case, text, expected) in cases {
        let checked = check(&file("manifest.yaml", &text), &["--assume-environment"]);
        assert_findings(case, &checked, &expected);
    }
}

#[test]
fn what_lets_the_plugin_hang_or_be_passed_by_is_a_problem() {
    let disabled = (
        "          - name: impersonation\n",
        "          - name: impersonation\n            disabled: true\n",
    );
    let route =
        "              - match: {prefix: /}\n                route: {cluster: identity_gateway}\n";
    let enabled_by = |path: &str| {
        format!(
            "              - match: {{path: {path}}}\n                route: {{cluster: identity_gateway}}\n                typed_per_filter_config:\n                  impersonation: {{\"@type\": type.googleapis.com/envoy.config.route.v3.FilterConfig, config: {{}}}}\n"
        )
    };
    let enabled =
        format!("{}{}{route}", enabled_by("/oidc/token"), enabled_by("/api/subject-tokens"));
    let listener_limit =
        |limit| format!("  - name: public\n    per_connection_buffer_limit_bytes: {limit}\n");
    let (low, high) = (listener_limit(32768), listener_limit(65536));
    #[rustfmt::skip]
    let cases: &[(&str, Edits, &[&str])] = &[
        ("no allow_on_headers_stop_iteration",
            &[("                allow_on_headers_stop_iteration: true\n", "")],
            &[":25: ~.allow_on_headers_stop_iteration: must be true"]),
        ("allow_on_headers_stop_iteration is false",
            &[("stop_iteration: true", "stop_iteration: false")],
            &[":27: ~.allow_on_headers_stop_iteration: must be true"]),
        ("no failure policy",
            &[("                failure_policy: FAIL_RELOAD\n", "")],
            &["~.failure_policy: must be FAIL_RELOAD: else a worker"]),
        ("fails closed",
            &[("FAIL_RELOAD", "FAIL_CLOSED")],
            &[":28: ~.failure_policy: must be FAIL_RELOAD: else a worker"]),
        ("fails open",
            &[("FAIL_RELOAD", "FAIL_OPEN")],
            &["~.failure_policy: must be FAIL_RELOAD: with FAIL_OPEN requests pass"]),
        ("fails open, by number",
            &[("FAIL_RELOAD", "3")],
            &["~.failure_policy: must be FAIL_RELOAD: with FAIL_OPEN requests pass"]),
        ("reloads, by number",
            &[("FAIL_RELOAD", "1")],
            &[]),
        ("fails open, the old way",
            &[("failure_policy: FAIL_RELOAD", "fail_open: true")],
            &["~.fail_open: lets requests pass", "~.failure_policy: must be FAIL_RELOAD"]),
        ("an optional filter",
            &[("          - name: impersonation\n", "          - name: impersonation\n            is_optional: true\n")],
            &["^.http_filters[0].is_optional: lets every request pass"]),
        ("no request timeout",
            &[("          request_timeout: 10s\n", "")],
            &["^.request_timeout: must be set"]),
        ("a request timeout of nothing",
            &[("request_timeout: 10s", "request_timeout: 0s")],
            &["^.request_timeout: must be set"]),
        ("no idle timeout",
            &[("          stream_idle_timeout: 30s\n", "")],
            &["warning: ^.stream_idle_timeout: is not set"]),
        ("an idle timeout of nothing",
            &[("stream_idle_timeout: 30s", "stream_idle_timeout: 0.000s")],
            &["^.stream_idle_timeout: must not be 0s"]),
        ("a listener that cannot hold our bodies",
            &[("  - name: public\n", &low)],
            &[":5: static_resources.listeners[0].per_connection_buffer_limit_bytes: must be at least 65536"]),
        ("one that just can",
            &[("  - name: public\n", &high)],
            &[]),
        ("a route that raises the limit",
            &[("  - name: public\n", &low), ("route: {cluster: identity_gateway}", "route: {cluster: identity_gateway}\n                request_body_buffer_limit: 65536")],
            &[]),
        ("a virtual host that raises the limit",
            &[("  - name: public\n", &low), ("            - name: all\n", "            - name: all\n              per_request_buffer_limit_bytes: \"65536\"\n")],
            &[]),
        ("a route that does not raise it far enough",
            &[("  - name: public\n", &low), ("            - name: all\n", "            - name: all\n              request_body_buffer_limit: 65536\n"), ("route: {cluster: identity_gateway}", "route: {cluster: identity_gateway}\n                request_body_buffer_limit: 65535")],
            &["per_connection_buffer_limit_bytes: must be at least 65536"]),
        ("a direct response does not raise it",
            &[("  - name: public\n", &low), ("route: {cluster: identity_gateway}", "direct_response: {status: 404}\n                request_body_buffer_limit: 65536")],
            &["per_connection_buffer_limit_bytes: must be at least 65536"]),
        ("only a route for others raises it",
            &[("  - name: public\n", &low), (route, "              - match: {prefix: /upload}\n                route: {cluster: identity_gateway}\n                request_body_buffer_limit: 65536\n              - match: {prefix: /}\n                route: {cluster: identity_gateway}\n")],
            &["per_connection_buffer_limit_bytes: must be at least 65536"]),
        ("a window that cannot hold our bodies",
            &[("          request_timeout: 10s\n", "          request_timeout: 10s\n          http2_protocol_options: {initial_stream_window_size: 65535}\n")],
            &["^.http2_protocol_options.initial_stream_window_size: must be at least 65536"]),
        ("disabled for all",
            &[disabled],
            &PASSED_BY),
        ("enabled where it is needed",
            &[disabled, (route, &enabled)],
            &["warning: ^.http_filters[0]: is disabled on every route to /oidc/jwks", "warning: ^.http_filters[0]: is disabled on every route to /oidc/.well-known/openid-configuration", UNSEEN]),
        ("enabled for another path than base_path makes it",
            &[disabled, (route, &enabled), ("                    signing_keys:\n", "                    base_path: /tenant\n                    signing_keys:\n")],
            &[": ^.http_filters[0]: is disabled on every route to /tenant/api/subject-tokens:", ": ^.http_filters[0]: is disabled on every route to /tenant/oidc/token:",
              "warning: ^.http_filters[0]: is disabled on every route to /tenant/oidc/jwks:", "warning: ^.http_filters[0]: is disabled on every route to /tenant/oidc/.well-known/openid-configuration:",
              "warning: ^.http_filters[0]: is disabled on every route to /tenant/api/subject-tokens/{id}, /tenant/api/impersonations, "]),
        ("disabled by the virtual host",
            &[("            - name: all\n", "            - name: all\n              typed_per_filter_config:\n                impersonation: {\"@type\": type.googleapis.com/envoy.config.route.v3.FilterConfig, disabled: true}\n")],
            &PASSED_BY),
        ("a route table that is elsewhere",
            &[disabled, ("route_config:\n            virtual_hosts:\n            - name: all\n              domains: [\"*\"]\n              routes:\n              - match: {prefix: /}\n                route: {cluster: identity_gateway}\n", "rds: {route_config_name: routes}\n")],
            &[]),
    ];
    for (case, edits, expected) in cases {
        assert_findings(case, &check(&file("envoy.yaml", &edited(edits)), &[]), expected);
    }
}

#[test]
fn the_plugins_own_problems_are_told_with_their_path_in_the_file() {
    let second_filter = |(from, to): (&str, &str)| {
        let filter = part(FILTER, ROUTER);
        assert!(filter.contains(from));
        ENVOY.replace(ROUTER, &format!("{}{ROUTER}", filter.replace(from, to)))
    };
    #[rustfmt::skip]
    let cases = [
        ("an unknown member",
            edited(&[("type: single_page", "type: single_page\n                      colour: blue")]),
            vec![":52: ~.configuration.value.clients[0].colour: unknown member"]),
        ("several problems at once",
            edited(&[("type: single_page", "type: website"), ("scopes: [orders:read]", "scopes: orders:read")]),
            vec!["~.configuration.value.clients[0].type: expected one of", "~.configuration.value.resources[0].scopes: expected a list"]),
        ("something missing",
            edited(&[("                    issuer: https://auth.example.com/oidc\n                    signing_keys", "                    signing_keys")]),
            vec![":36: ~.configuration.value.issuer: is required"]),
        ("a duration that YAML takes for a number",
            edited(&[("                    resources:\n", "                    access_tokens: {lifetime: 3600}\n                    resources:\n")]),
            vec!["~.configuration.value.access_tokens.lifetime: expected a duration"]),
        ("a number that Envoy turns into a string",
            edited(&[("                    subject_tokens:\n", "                    subject_tokens:\n                      max_context_bytes: 4096.0\n")]),
            vec!["~.configuration.value.subject_tokens.max_context_bytes: expected an integer from 2 to 65536, found a string"]),
        ("a name that YAML takes for a boolean",
            edited(&[("client_id: support-console", "client_id: on")]),
            vec!["~.configuration.value.clients[0].client_id: expected a string, found a boolean"]),
        ("what works but is not meant",
            edited(&[("                          required_scopes: [impersonate]\n", "")]),
            vec!["warning: ~.configuration.value.subject_tokens.authentication.jwt[0]: no required_scopes"]),
        ("no configuration",
            ENVOY.replace(part(CONFIGURATION, ROUTER), ""),
            vec!["~.configuration: is required"]),
        ("a configuration of another type",
            edited(&[("google.protobuf.Struct", "google.protobuf.ListValue")]),
            vec!["~.configuration: expected a google.protobuf.Struct, or JSON in a google.protobuf.StringValue"]),
        ("broken JSON",
            with_string_value("{\"signing_keys\": [}"),
            vec!["~.configuration.value: not valid JSON: a syntax error at line 1 column 19"]),
        ("two plugins, one of them wrong",
            second_filter(("failure_policy: FAIL_RELOAD", "failure_policy: FAIL_OPEN")),
            vec!["^.http_filters[1].typed_config.config.failure_policy: must be FAIL_RELOAD"]),
        ("two plugins that do not share",
            second_filter(("vm_id: impersonation", "vm_id: other")),
            vec!["^.http_filters[1].typed_config.config.vm_config.vm_id: must be the same as in ~"]),
        ("two plugins that need not share",
            second_filter(("vm_id: impersonation", "vm_id: other")).replacen("                    signing_keys:\n", "                    base_path: /a\n                    signing_keys:\n", 1),
            vec![]),
        ("a plugin where Envoy takes none",
            edited(&[("route: {cluster: identity_gateway}", "route: {cluster: identity_gateway}\n                typed_per_filter_config: {impersonation: {\"@type\": type.googleapis.com/envoy.config.route.v3.FilterConfig, config: {\"@type\": type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm, config: {allow_on_headers_stop_iteration: true, failure_policy: FAIL_RELOAD, vm_config: {code: {local: {filename: impersonation-filter.wasm}}}}}}}")]),
            vec![".routes[0].typed_per_filter_config: Envoy refuses a Wasm filter here", ".routes[0].typed_per_filter_config.impersonation.config.config.configuration: is required"]),
        ("ours by its code alone",
            edited(&[("                    signing_keys:\n                    - environment_variable: IMPERSONATION_SIGNING_KEY\n", ""), ("                    subject_tokens:\n", "                    subject_token:\n"), ("identity_gateway: {documents: none}", "gateway: {}")]),
            vec!["value.signing_keys: is required", "value.subject_tokens: is required", "value.subject_token: unknown", "value.gateway: unknown"]),
        ("ours by its configuration alone",
            edited(&[("impersonation_filter.wasm", "filter.wasm"), ("type: single_page", "type: website")]),
            vec!["~.configuration.value.clients[0].type: expected one of"]),
        ("a merge key",
            edited(&[("type: single_page", "<<: {type: single_page}")]),
            vec!["~.configuration.value.clients[0][\"<<\"]: Envoy has no merge keys", "~.configuration.value.clients[0].<<: unknown member", "~.configuration.value.clients[0].type: is required"]),
        ("a member given twice",
            edited(&[("type: single_page", "type: native\n                      type: single_page")]),
            vec![":52: ~.configuration.value.clients[0].type: is given twice"]),
        ("two documents",
            format!("{ENVOY}---\nstatic_resources: {{}}\n"),
            vec!["the file has several YAML documents"]),
    ];
    for (case, text, expected) in cases {
        assert_findings(case, &check(&file("envoy.yaml", &text), &[]), &expected);
    }
}

#[test]
fn a_file_without_the_plugin_is_a_problem() {
    let other = edited(&[("impersonation_filter.wasm", "filter.wasm")]).replace(
        "                    signing_keys:\n                    - environment_variable: IMPERSONATION_SIGNING_KEY\n",
        "",
    );
    let other =
        other.replace("subject_tokens:", "tokens:").replace("identity_gateway: {", "gateway: {");
    let nowhere = ": the impersonation filter is nowhere in this file";
    #[rustfmt::skip]
    let cases = [
        ("no Wasm at all", "envoy.yaml", "static_resources: {}\n".to_owned(), nowhere.to_owned()),
        ("another one's",  "envoy.yaml", other,                               format!("{nowhere}; other Wasm filters are: ~")),
    ];
    for (case, name, text, expected) in cases {
        assert_findings(case, &check(&file(name, &text), &[]), &[&expected]);
    }
}

#[test]
fn a_file_that_cannot_be_parsed_is_a_problem() {
    #[rustfmt::skip]
    let cases = [
        ("YAML",             "envoy.yaml",  "a: [1",                   ": not valid YAML: "),
        ("JSON",             "plugin.json", "{\"a\": ",                ": not valid JSON: it ends too early"),
        ("YAML named JSON",  "plugin.json", "issuer: x",               ": neither JSON nor"),
        ("a member twice",   "plugin.json", "{\"a\": 1, \"a\": 2}",    ": not valid JSON: a member is given twice"),
        ("nothing",          "plugin.yaml", "",                        ": there is nothing in this file"),
        ("a comment",        "envoy.yaml",  "# nothing\n",             ": there is nothing in this file"),
        ("an empty object",  "plugin.json", "{}",                      ": this is neither an Envoy configuration nor one of the filter or the guard"),
        ("a list",           "plugin.json", "[1]",                     ": this is neither an Envoy configuration nor one of the filter or the guard"),
        ("something else",   "deploy.yaml", "services: {envoy: {image: envoy}}\n", ": this is neither an Envoy configuration nor one of the filter or the guard"),
        ("the guard's own",  "guard.yaml",  "issuer: https://a.example\nmode: off\n", ": mode: expected"),
    ];
    for (case, name, text, expected) in cases {
        assert_findings(case, &check(&file(name, text), &[]), &[expected]);
    }
    let path = fresh("envoy.yaml");
    std::fs::write(&path, b"a: \xff").unwrap();
    assert_findings("not UTF-8", &check(&path, &[]), &[": not UTF-8"]);
}

#[test]
fn variables_must_be_passed_on_and_set() {
    let passed_on = "environment_variables: {host_env_keys: [IMPERSONATION_SIGNING_KEY]}";
    let key_values = format!(
        "environment_variables: {{key_values: {{IMPERSONATION_SIGNING_KEY: '{}'}}}}",
        signing_key()
    );
    let two_keys = "- environment_variable: IMPERSONATION_SIGNING_KEY\n                    - {environment_variable: PREVIOUS_KEY, alg: PS256}";
    let one_key = "- environment_variable: IMPERSONATION_SIGNING_KEY";
    let assume = &["--assume-environment"][..];
    let unset = "warning: ~.configuration.value: names an environment variable that is not set here (PREVIOUS_KEY), so its value was not checked: set it as for Envoy, or say --assume-environment";
    let not_passed = "~.vm_config.environment_variables.host_env_keys: must pass on what ~.configuration.value.signing_keys[1].environment_variable names: PREVIOUS_KEY";
    #[rustfmt::skip]
    let cases = [
        ("passed on, set",             edited(&[]), &[][..], vec![]),
        ("written down",               edited(&[(passed_on, &key_values)]), &[][..], vec![]),
        ("written down, empty",        edited(&[(passed_on, "environment_variables: {key_values: {IMPERSONATION_SIGNING_KEY: ''}}")]), assume,
            vec!["value.signing_keys[0].environment_variable: expected the name of an environment variable that is set, and IMPERSONATION_SIGNING_KEY is unset or empty; in Envoy"]),
        ("not passed on",              edited(&[("                  environment_variables: {host_env_keys: [IMPERSONATION_SIGNING_KEY]}\n", "")]), &[][..],
            vec!["~.vm_config.environment_variables.host_env_keys: must pass on what ~.configuration.value.signing_keys[0].environment_variable names: IMPERSONATION_SIGNING_KEY"]),
        ("not passed on, not set",     edited(&[(one_key, two_keys)]), &[][..], vec![not_passed]),
        ("not passed on, assumed",     edited(&[(one_key, two_keys)]), assume,  vec![not_passed]),
        ("the key itself for a name",  edited(&[(one_key, &format!("- environment_variable: '{}'", signing_key()))]), &[][..],
            vec!["~.vm_config.environment_variables.host_env_keys: must pass on what "]),
        ("passed on, not set",         edited(&[(one_key, two_keys), ("[IMPERSONATION_SIGNING_KEY]", "[IMPERSONATION_SIGNING_KEY, PREVIOUS_KEY]")]), &[][..], vec![unset]),
        ("passed on, assumed",         edited(&[(one_key, two_keys), ("[IMPERSONATION_SIGNING_KEY]", "[IMPERSONATION_SIGNING_KEY, PREVIOUS_KEY]")]), assume, vec![]),
        ("assumed, with a wrong alg",  edited(&[(one_key, &two_keys.replace("PS256", "HS256")), ("[IMPERSONATION_SIGNING_KEY]", "[IMPERSONATION_SIGNING_KEY, PREVIOUS_KEY]")]), assume,
            vec!["~.configuration.value.signing_keys[1].environment_variable: expected an alg that fits the key"]),
    ];
    for (case, text, options, expected) in cases {
        assert_findings(case, &check(&file("envoy.yaml", &text), options), &expected);
    }

    let mut plugin = plugin();
    plugin["signing_keys"] = json!([{"environment_variable": "PREVIOUS_KEY"}]);
    plugin["subject_tokens"]["authentication"]["jwt"][0]["local_jwks"] =
        json!({"environment_variable": "KEY_SET"});
    let path = file("plugin.json", &plugin.to_string());
    assert_findings(
        "the plugin's own",
        &check(&path, &[]),
        &[
            "warning: names 2 environment variables that are not set here (KEY_SET, PREVIOUS_KEY), so their values were not checked: set them as for Envoy, or say --assume-environment",
        ],
    );
    plugin["signing_keys"] = json!([{"environment_variable": signing_key().to_string()}]);
    let itself = file("plugin.json", &plugin.to_string());
    assert_findings(
        "the plugin's own, with the key itself for a name",
        &check(&itself, &["--assume-environment"]),
        &[
            "signing_keys[0].environment_variable: expected the name of an environment variable that is set",
        ],
    );
    assert_findings("the plugin's own, assumed", &check(&path, &["--assume-environment"]), &[]);
}

#[test]
fn clusters_that_are_called_must_exist() {
    let remote = |uri: &str, cluster: &str| {
        edited(&[(
            "                    clients:\n",
            &format!(
                "                      user_lookup: {{http_uri: {{uri: \"{uri}\", cluster: {cluster}, timeout: 2s}}}}\n                    clients:\n"
            ),
        )])
    };
    let secured = |text: String| {
        text.replace("    connect_timeout: 1s\n", "    transport_socket: {name: tls}\n")
    };
    let by_cds = |text: String| {
        format!(
            "{text}dynamic_resources: {{cds_config: {{path_config_source: {{path: /cds.yaml}}}}}}\n"
        )
    };
    let path = "~.configuration.value.subject_tokens.user_lookup.http_uri.cluster";
    let missing = format!("{path}: there is no cluster \"users\"");
    let insecure = format!("warning: {path}: the cluster \"identity_gateway\" has no TLS");
    let dynamic = format!("warning: {path}: the cluster \"users\" is not in this file");
    #[rustfmt::skip]
    let cases = [
        ("missing",            remote("http://a.example/users/{userId}", "users"), Some(&missing)),
        ("missing, with CDS",  by_cds(remote("http://a.example/users/{userId}", "users")), Some(&dynamic)),
        ("there",              remote("http://a.example/users/{userId}", "identity_gateway"), None),
        ("without TLS",        remote("https://a.example/users/{userId}", "identity_gateway"), Some(&insecure)),
        ("with TLS",           secured(remote("https://a.example/users/{userId}", "identity_gateway")), None),
    ];
    for (case, text, expected) in cases {
        let expected: Vec<_> = expected.into_iter().map(String::as_str).collect();
        assert_findings(case, &check(&file("envoy.yaml", &text), &[]), &expected);
    }
}

#[test]
fn the_exit_status_tells_problems_from_no_check() {
    let good = file("good.json", &plugin().to_string());
    let bad = file("bad.json", "{}");
    let warned = file("envoy.yaml", &edited(&[("          stream_idle_timeout: 30s\n", "")]));
    let missing = fresh("missing.yaml");
    let [good, bad, warned, missing] =
        [&good, &bad, &warned, &missing].map(|path| path.to_str().unwrap());
    #[rustfmt::skip]
    let cases: &[(&str, &[&str], i32)] = &[
        ("valid",                       &["check", good],                               0),
        ("problems",                    &["check", bad],                                1),
        ("one of two",                  &["check", bad, good],                          1),
        ("a warning",                   &["check", "--assume-environment", warned],     0),
        ("a warning that is denied",    &["check", "--assume-environment", "--strict", warned], 1),
        ("no such file",                &["check", missing],                            2),
        ("no file",                     &["check"],                                     2),
        ("nothing to be denied",        &["check", "--strict", good],                   0),
        ("an unknown option",           &["check", "--lax", good],                      2),
        ("a directory",                 &["check", "/tmp"],                             2),
        ("an unknown command",          &["validate", good],                            2),
        ("no command",                  &[],                                            2),
        ("help",                        &["--help"],                                    0),
        ("version",                     &["--version"],                                 0),
    ];
    for (case, arguments, status) in cases {
        assert_eq!(command(arguments).output().unwrap().status.code(), Some(*status), "{case}");
    }
    let output = with_input(&["check", "-"], plugin().to_string().as_bytes());
    assert_eq!((output.status.code(), stdout(&output)), (Some(0), &*format!("-: valid{ALONE}\n")));
}

/// Returns a configuration with the cluster for etcd that envoy.yaml has in a comment.
fn with_etcd() -> String {
    let shipped = include_str!("../../../../envoy.yaml");
    let (_, rest) = shipped.split_once("  # - name: etcd\n").unwrap();
    let cluster: String = std::iter::once("  # - name: etcd")
        .chain(rest.lines())
        .map_while(|line| line.strip_prefix("  # "))
        .map(|line| format!("  {line}\n"))
        .collect();
    let store =
        "                    store: {etcd: {cluster: etcd}}\n                    clients:\n";
    edited(&[("                    clients:\n", store)]) + &cluster
}

#[test]
fn routes_to_the_endpoints_that_end_impersonations_are_checked_under_etcd_too() {
    let route =
        "              - match: {prefix: /}\n                route: {cluster: identity_gateway}\n";
    let filter = "          - name: impersonation\n";
    let good = with_etcd();
    assert_eq!((good.matches(route).count(), good.matches(filter).count()), (1, 1));
    let disabled = good.replace(filter, &format!("{filter}            disabled: true\n"));
    assert_findings("in etcd", &check(&file("envoy.yaml", &disabled), &[]), &PASSED_BY);
}

#[test]
fn the_cluster_of_etcd_must_outlast_an_election() {
    let good = with_etcd();
    let cut = |from: &str, to: &str| {
        let (before, rest) = good.split_once(from).unwrap();
        let (_, after) = rest.split_once(to).unwrap();
        format!("{before}{to}{after}")
    };
    let change = |from: &str, to: &str| {
        assert!(good.contains(from), "{from}");
        good.replace(from, to)
    };
    let criteria = "      transport_socket_match_criteria: {health: plain}\n";
    let (plain, _) = good.split_once("    transport_socket_matches:\n").unwrap();
    let nearby = ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
        .iter()
        .fold(plain.to_owned(), |text, address| text.replace(address, "127.0.0.1"));
    let at = "static_resources.clusters[1]";
    #[rustfmt::skip]
    let cases = [
        ("as shipped",             good.clone(), None),
        ("another name",           change("{etcd: {cluster: etcd}}", "{etcd: {cluster: etc}}"),
            Some("~.configuration.value.store.etcd.cluster: there is no cluster \"etc\"".to_owned())),
        ("HTTP/1.1",               change(HTTP2, HTTP1),
            Some(format!(": {at}.typed_extension_protocol_options: must have explicit_http_config.http2_protocol_options"))),
        ("no health checks",       cut("    health_checks:\n", "    outlier_detection:\n"),
            Some(format!("warning: {at}.health_checks: is not set"))),
        ("an election is death",   change(", retriable_statuses: [{start: 503, end: 504}]", ""),
            Some(format!(": {at}.health_checks[0].http_health_check.retriable_statuses: must have 503"))),
        ("at the first 503",       change("unhealthy_threshold: 3", "unhealthy_threshold: 1"),
            Some(format!(": {at}.health_checks[0].http_health_check.retriable_statuses: must have 503"))),
        ("by gRPC",                change("http_health_check: {path: /health, codec_client_type: HTTP1, retriable_statuses: [{start: 503, end: 504}]}", "grpc_health_check: {}"),
            Some(format!("warning: {at}.health_checks[0]: only etcd's /health"))),
        ("all may be ejected",     change("max_ejection_percent: 34", "max_ejection_percent: 100"),
            Some(format!("warning: {at}.outlier_detection.max_ejection_percent: should be 34 at most"))),
        ("panic at a half",        change("    common_lb_config: {healthy_panic_threshold: {value: 30}} # one node down and one ejected is no panic\n", ""),
            Some(format!("warning: {at}.common_lb_config: healthy_panic_threshold should be 30"))),
        ("in the clear",           plain.replace(criteria, ""),
            Some(format!("warning: {at}.transport_socket: is not TLS"))),
        ("on this machine",        nearby.replace(criteria, ""), None),
        ("health over TLS",        change(criteria, ""),
            Some(format!("warning: {at}.load_assignment.endpoints[0].lb_endpoints[0].endpoint.health_check_config.port_value: is asked with the cluster's TLS"))),
    ];
    for (case, text, expected) in cases {
        let expected: Vec<_> = expected.iter().map(String::as_str).collect();
        assert_findings(case, &check(&file("envoy.yaml", &text), &[]), &expected);
    }

    // Under Istio the guard runs in another Envoy.
    for (name, clusters) in MANIFESTS.into_iter().zip([2, 1]) {
        let manifest = repositorys(name).replace(HTTP2, HTTP1);
        let checked = check(&file("manifest.yaml", &manifest), &["--assume-environment"]);
        let expected = "must have explicit_http_config.http2_protocol_options";
        assert_findings(name, &checked, &vec![expected; clusters]);
    }
}
