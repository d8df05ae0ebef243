//! The companion binary as an operator meets it: real files, standard output, exit status.
#![cfg(test)]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

/// A whole Envoy configuration without a fault. The key is the example of RFC 8037, appendix A.1.
const ENVOY: &str = r#"
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
                    identity_gateway: {documents: none}
          - name: envoy.filters.http.router
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
  clusters:
  - name: identity_gateway
    connect_timeout: 1s
"#;

const SECRET_PART: &str = "nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A";

fn signing_key() -> Value {
    json!({
        "kty": "OKP", "crv": "Ed25519", "d": SECRET_PART,
        "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
    })
}

fn plugin() -> Value {
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
        "identity_gateway": {"documents": "none"},
    })
}

/// A path that no other test has.
fn fresh(name: &str) -> PathBuf {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let directory =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("cli-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    directory.join(name)
}

fn file(name: &str, content: &str) -> PathBuf {
    let path = fresh(name);
    std::fs::write(&path, content).unwrap();
    path
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_impersonation-filter"));
    command.args(arguments).env_clear();
    command
}

fn with_input(arguments: &[&str], input: &[u8]) -> Output {
    let mut child = command(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

struct Checked {
    status: Option<i32>,
    /// Without the name of the file.
    lines: Vec<String>,
}

/// Checks a file, with the signing key in the environment.
fn check(path: &Path, options: &[&str]) -> Checked {
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

/// The part of the base configuration from one text up to another.
fn part(from: &str, to: &str) -> &'static str {
    let start = ENVOY.find(from).unwrap();
    let end = ENVOY.find(to).unwrap();
    ENVOY.get(start..end).unwrap()
}

const FILTER: &str = "          - name: impersonation\n";
const ROUTER: &str = "          - name: envoy.filters.http.router\n";
const CONFIGURATION: &str = "                configuration:\n";

/// The base configuration with JSON in the place of the Struct.
fn with_string_value(json: &str) -> String {
    let value = Value::from(json);
    let configuration = format!(
        "{CONFIGURATION}                  \"@type\": type.googleapis.com/google.protobuf.StringValue\n                  value: {value}\n"
    );
    ENVOY.replace(part(CONFIGURATION, ROUTER), &configuration)
}

/// What to replace, and by what.
type Edits<'a> = &'a [(&'a str, &'a str)];

/// The base configuration with some of its text replaced.
fn edited(edits: Edits<'_>) -> String {
    edits.iter().fold(ENVOY.to_owned(), |text, (from, to)| {
        assert_eq!(text.matches(from).count(), 1, "{from:?} is not there exactly once");
        text.replace(from, to)
    })
}

const MANAGER: &str = "static_resources.listeners[0].filter_chains[0].filters[0].typed_config";

/// Where the plugin is; `~` in an expected line stands for it.
const PLUGIN: &str = "static_resources.listeners[0].filter_chains[0].filters[0].typed_config.http_filters[0].typed_config.config";

const PASSED_BY: [&str; 4] = [
    ": ^.http_filters[0]: is disabled on every route to /api/subject-tokens:",
    ": ^.http_filters[0]: is disabled on every route to /oidc/token:",
    "warning: ^.http_filters[0]: is disabled on every route to /oidc/jwks:",
    "warning: ^.http_filters[0]: is disabled on every route to /oidc/.well-known/openid-configuration:",
];

#[track_caller]
fn assert_findings(case: &str, checked: &Checked, expected: &[&str]) {
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
        assert_eq!(
            (checked.status, &*checked.lines),
            (Some(0), &[": valid".to_owned()][..]),
            "{case}"
        );
    }
}

#[test]
fn the_configurations_to_start_from_have_nothing_to_improve() {
    for name in
        ["envoy.yaml", "deploy/istio/impersonation.yaml", "deploy/envoy-gateway/impersonation.yaml"]
    {
        let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(name);
        assert_findings(name, &check(&path, &["--assume-environment"]), &[]);
    }
}

#[test]
fn the_example_in_the_readme_is_valid() {
    let readme = include_str!("../../../README.md");
    let (_, example) = readme.split_once("checked by the tests. -->\n```yaml\n").unwrap();
    let (example, _) = example.split_once("```\n").unwrap();
    assert_findings("README.md", &check(&file("plugin.yaml", example), &[]), &[]);
}

#[test]
fn manifests_are_checked_as_far_as_they_say() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("deploy");
    let read = |name: &str| std::fs::read_to_string(root.join(name)).unwrap();
    let istio = read("istio/impersonation.yaml");
    let gateway = read("envoy-gateway/impersonation.yaml");
    let wasm_plugin = "apiVersion: extensions.istio.io/v1alpha1\nkind: WasmPlugin\nspec: {pluginConfig: {signing_keys: []}}\n";
    let without = |text: &str, part: &str| {
        assert!(text.contains(part), "{part:?}");
        text.replace(part, "")
    };
    let no_patch = gateway.replace("kind: EnvoyPatchPolicy", "kind: Another");
    #[rustfmt::skip]
    let cases = [
        ("Istio, no flag",              without(&istio, "            allow_on_headers_stop_iteration: true\n"), vec![": [0].spec.configPatches[0].patch.value.typed_config.config.allow_on_headers_stop_iteration: must be true"]),
        ("Istio, a wrong member",       without(&istio, "                  type: single_page\n"), vec!["config.configuration.value.clients[0].type: is required"]),
        ("Istio, a variable",           istio.replace("[IMPERSONATION_SIGNING_KEY, INTROSPECTION_SECRET]", "[IMPERSONATION_SIGNING_KEY]"), vec!["config.vm_config.environment_variables.host_env_keys: must pass on what "]),
        ("Istio, WasmPlugin",           wasm_plugin.to_owned(),                      vec![":2: kind: WasmPlugin cannot set allow_on_headers_stop_iteration"]),
        ("Envoy Gateway, no patches",   no_patch,                                    vec!["warning: [1].spec.wasm[0]: has no field for allow_on_headers_stop_iteration", "warning: [1].spec.wasm[0]: has no field for failure_policy"]),
        ("Envoy Gateway, wrong member", without(&gateway, "        type: single_page\n"), vec!["[1].spec.wasm[0].config.clients[0].type: is required"]),
        ("Envoy Gateway, a variable",   without(&gateway, "    env:\n      hostKeys: [IMPERSONATION_SIGNING_KEY, INTROSPECTION_SECRET]\n"), vec!["[1].spec.wasm[0].env.hostKeys: must pass on what ", "[1].spec.wasm[0].env.hostKeys: must pass on what "]),
        ("something else",              "apiVersion: v1\nkind: Secret\n".to_owned(), vec![": the impersonation filter is nowhere in this file"]),
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
            &["warning: ^.http_filters[0]: is disabled on every route to /oidc/jwks", "warning: ^.http_filters[0]: is disabled on every route to /oidc/.well-known/openid-configuration"]),
        ("enabled for another path than base_path makes it",
            &[disabled, (route, &enabled), ("                    signing_keys:\n", "                    base_path: /tenant\n                    signing_keys:\n")],
            &[": ^.http_filters[0]: is disabled on every route to /tenant/api/subject-tokens:", ": ^.http_filters[0]: is disabled on every route to /tenant/oidc/token:",
              "warning: ^.http_filters[0]: is disabled on every route to /tenant/oidc/jwks:", "warning: ^.http_filters[0]: is disabled on every route to /tenant/oidc/.well-known/openid-configuration:"]),
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
            edited(&[("                      authentication:\n", "                      max_context_bytes: 4096.0\n                      authentication:\n")]),
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
            edited(&[("google.protobuf.Struct", "google.protobuf.BytesValue")]),
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
        ("nothing",          "plugin.yaml", "",                        ": expected an object, found null"),
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
    let unset = "~.configuration.value.signing_keys[1].environment_variable: names a variable that is not set here";
    let not_passed = "~.vm_config.environment_variables.host_env_keys: must pass on what ~.configuration.value.signing_keys[1].environment_variable names";
    #[rustfmt::skip]
    let cases = [
        ("passed on, set",             edited(&[]), &[][..], vec![]),
        ("written down",               edited(&[(passed_on, &key_values)]), &[][..], vec![]),
        ("written down, empty",        edited(&[(passed_on, "environment_variables: {key_values: {IMPERSONATION_SIGNING_KEY: ''}}")]), assume,
            vec!["value.signing_keys[0].environment_variable: expected the name of an environment variable that is set"]),
        ("not passed on",              edited(&[("                  environment_variables: {host_env_keys: [IMPERSONATION_SIGNING_KEY]}\n", "")]), &[][..],
            vec!["~.vm_config.environment_variables.host_env_keys: must pass on what ~.configuration.value.signing_keys[0].environment_variable names"]),
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
            "signing_keys[0].environment_variable: expected the name of an environment variable that is set",
            "local_jwks.environment_variable: expected the name of an environment variable that is set",
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
        ("a warning that is denied",    &["check", "--assume-environment", "--deny-warnings", warned], 1),
        ("no such file",                &["check", missing],                            2),
        ("no file",                     &["check"],                                     2),
        ("an unknown option",           &["check", "--strict", good],                   2),
        ("an unknown command",          &["validate", good],                            2),
        ("no command",                  &[],                                            2),
        ("help",                        &["--help"],                                    0),
        ("version",                     &["--version"],                                 0),
    ];
    for (case, arguments, status) in cases {
        assert_eq!(command(arguments).output().unwrap().status.code(), Some(*status), "{case}");
    }
    let output = with_input(&["check", "-"], plugin().to_string().as_bytes());
    assert_eq!((output.status.code(), stdout(&output)), (Some(0), "-: valid\n"));
}

#[test]
fn a_generated_key_signs_and_its_set_verifies() {
    for alg in ["EdDSA", "Ed25519", "ES256", "ES384", "ps256"] {
        let output = command(&["keygen", "--alg", alg]).output().unwrap();
        assert!(output.status.success(), "{alg}");
        let documents: Vec<Value> =
            stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let [private, set] = documents.try_into().unwrap();
        let public = &set["keys"][0];
        assert_eq!(set["keys"].as_array().unwrap().len(), 1, "{alg}");
        for member in ["kid", "alg", "use", "kty", "crv", "x", "y", "n", "e"] {
            assert_eq!(private.get(member), public.get(member), "{alg} {member}");
        }
        for member in ["d", "p", "q", "dp", "dq", "qi"] {
            assert_eq!(public.get(member), None, "{alg} {member}");
            assert_eq!(
                private.get(member).is_some(),
                member == "d" || alg == "ps256",
                "{alg} {member}"
            );
        }
        assert!(private["alg"].as_str().unwrap().eq_ignore_ascii_case(alg));

        // The private key as the operator passes it, the set as an issuer publishes it.
        let mut plugin = plugin();
        plugin["signing_keys"] = json!([{"jwk": private}]);
        plugin["subject_tokens"]["authentication"]["jwt"][0]["local_jwks"]["inline_string"] =
            json!(set.to_string());
        let checked = check(&file("plugin.json", &plugin.to_string()), &[]);
        assert_eq!(checked.status, Some(0), "{alg}: {:?}", checked.lines);
    }
}

#[test]
fn a_key_has_the_name_it_is_given_or_its_thumbprint() {
    let kid = |arguments: &[&str]| {
        let output = command(&["keygen", "--alg", "ES256"]).args(arguments).output().unwrap();
        let line = stdout(&output).lines().next().unwrap().to_owned();
        serde_json::from_str::<Value>(&line).unwrap()["kid"].as_str().unwrap().to_owned()
    };
    assert_eq!(kid(&["--kid", "2026-11"]), "2026-11");
    assert_eq!(kid(&[]).len(), 43);
    assert_ne!(kid(&[]), kid(&[]));
}

#[test]
fn key_files_are_private_and_never_overwritten() {
    let [private, public] = ["key.json", "jwks.json"].map(fresh);
    let [private, public] = [&private, &public].map(|path| path.to_str().unwrap());
    let arguments = ["keygen", "--alg", "EdDSA", "--out", private, "--public-out", public];
    let output = command(&arguments).output().unwrap();
    assert_eq!((output.status.code(), stdout(&output)), (Some(0), ""));
    let read =
        |path| serde_json::from_str::<Value>(&std::fs::read_to_string(path).unwrap()).unwrap();
    let (key, set) = (read(private), read(public));
    assert_eq!(key["x"], set["keys"][0]["x"]);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(std::fs::metadata(private).unwrap().permissions().mode() & 0o777, 0o600);
    }

    let output = command(&arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(read(private), key);

    // What does not go to a file goes to standard output.
    let other = fresh("key.json");
    let output =
        command(&["keygen", "--alg", "EdDSA", "--out", other.to_str().unwrap()]).output().unwrap();
    assert!(stdout(&output).starts_with("{\"keys\":"));
}

#[test]
fn impossible_keys_are_refused() {
    #[rustfmt::skip]
    let cases: &[&[&str]] = &[
        &["keygen"],
        &["keygen", "--alg", "HS256"],
        &["keygen", "--alg", "none"],
        &["keygen", "--alg", "RS256", "--bits", "1024"],
        &["keygen", "--alg", "RS256", "--bits", "8192"],
        &["keygen", "--alg", "EdDSA", "--kid", ""],
    ];
    for arguments in cases {
        let output = command(arguments).output().unwrap();
        assert_eq!((output.status.code(), stdout(&output)), (Some(2), ""), "{arguments:?}");
    }
}

#[test]
fn a_secret_is_hashed_without_the_line_break_at_its_end() {
    // SHA-256("abc") is the example of FIPS 180-2, appendix B.1.
    let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\n";
    #[rustfmt::skip]
    let cases: &[(&[u8], Option<&str>)] = &[
        (b"abc",        Some(abc)),
        (b"abc\n",      Some(abc)),
        (b"abc\r\n",    Some(abc)),
        (b"",           None),
        (b"\n",         None),
        (b"abc\n\n",    None),
        (b"abc\ndef",   None),
        (b"\xff",       None),
    ];
    for (input, digest) in cases {
        let output = with_input(&["hash-secret"], input);
        assert_eq!(output.status.code(), Some(if digest.is_some() { 0 } else { 2 }), "{input:?}");
        assert_eq!(stdout(&output), digest.unwrap_or_default(), "{input:?}");
    }
    assert_ne!(stdout(&with_input(&["hash-secret"], b" abc")), abc);
    assert_eq!(command(&["hash-secret", "abc"]).output().unwrap().status.code(), Some(2));
}

#[cfg(feature = "custom-claims")]
const SCRIPT: &str =
    "const getCustomJwtClaims = async ({ token, context, environmentVariables, api }) => {
  const { grant: { type, subjectTokenContext } } = context;
  console.log('called for', token.accountId);
  if (subjectTokenContext.denied) return api.denyAccess('No ticket');
  if (subjectTokenContext.loops) for (;;);
  return { type, ...subjectTokenContext, region: environmentVariables.REGION };
};
";

#[test]
#[cfg(feature = "custom-claims")]
fn a_script_is_tried_with_the_input_it_will_get() {
    let script = file("claims.js", SCRIPT);
    let input = json!({
        "token": {"sub": "user_123"},
        "context": {"grant": {"subjectTokenContext": {"ticketId": "TICKET-123"}}},
        "environmentVariables": {"REGION": "eu"},
    });
    let script = script.to_str().unwrap();
    let output = with_input(&["claims", script, "--input", "-"], input.to_string().as_bytes());
    assert_eq!(output.status.code(), Some(0));
    let claims: Value = serde_json::from_slice(&output.stdout).unwrap();
    let token_exchange = "urn:ietf:params:oauth:grant-type:token-exchange";
    let expected = json!({"type": token_exchange, "ticketId": "TICKET-123", "region": "eu"});
    assert_eq!(claims, expected);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "called for user_123\n");
}

#[test]
#[cfg(feature = "custom-claims")]
fn a_script_that_fails_says_where() {
    fn context(context: Value) -> Value {
        json!({"context": {"grant": {"subjectTokenContext": context}}})
    }
    let good = SCRIPT.to_owned();
    #[rustfmt::skip]
    let cases = [
        ("denies",     good.clone(), context(json!({"denied": true})), 1, "the script denied access: No ticket"),
        ("loops",      good.clone(), context(json!({"loops": true})),  1, "the script timed out"),
        ("throws",     good.replace("...subject", "...a.subject"), json!({}), 1,
                       "line 6, column 21: ReferenceError: a is not defined"),
        ("reserved",   good.clone(), context(json!({"sub": "admin"})), 1, "may not set the claim sub"),
        ("no syntax",  good.replace("};", "}}"), json!({}),            1, "line 7, column 1: SyntaxError"),
        ("no script",  String::new(), json!({}),                       1, "declares no function getCustomJwtClaims"),
        ("a user",     good.clone(), json!({"context": {"user": {}}}), 2, "unknown field `user`"),
        ("no object",  good, json!([]),                                2, "invalid"),
    ];
    for (case, source, input, status, message) in cases {
        let script = file("claims.js", &source);
        let input = file("input.json", &input.to_string());
        let arguments = ["claims", script.to_str().unwrap(), "--input", input.to_str().unwrap()];
        let output = command(&arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{case}");
        assert!(output.stdout.is_empty(), "{case}");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains(message), "{case}: {errors}");
    }
}

#[test]
#[cfg(feature = "custom-claims")]
fn the_readme_shows_what_a_script_gives() {
    let readme = include_str!("../../../README.md");
    let (_, section) = readme.split_once("run by the tests, as docs/claims. -->").unwrap();
    let block = |language: &str| {
        let (_, block) = section.split_once(&format!("```{language}\n")).unwrap();
        block.split_once("```\n").unwrap().0
    };
    let source = include_str!("../../../docs/claims/impersonation.js");
    assert_eq!(block("js"), source);
    assert_eq!(block("json"), include_str!("../../../docs/claims/input.json"));

    let (line, printed) = block("console").split_once('\n').unwrap();
    let mut words = line.split(' ');
    assert_eq!((words.next(), words.next()), (Some("$"), Some("impersonation-filter")));
    let arguments: Vec<_> = words.collect();
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let output = command(&arguments).current_dir(root).output().unwrap();
    assert_eq!((output.status.code(), stdout(&output)), (Some(0), printed));
    assert!(output.stderr.is_empty());

    let script = file("impersonation.js", &source.replace("grant.subject", "grants.subject"));
    let arguments = ["claims", script.to_str().unwrap(), "--input", "docs/claims/input.json"];
    let output = command(&arguments).current_dir(root).output().unwrap();
    assert_eq!((output.status.code(), stdout(&output)), (Some(1), ""));
    let printed = String::from_utf8_lossy(&output.stderr)
        .replace(script.to_str().unwrap(), "docs/claims/impersonation.js");
    assert_eq!(printed, block("text"));
}

/// No more than a configuration can ask for, and no deeper than Envoy lets a script go.
#[test]
#[cfg(feature = "custom-claims")]
fn a_script_is_tried_within_the_limits_of_the_filter() {
    const RECURSE: &str = "const depth = (n) => (n === 0 ? 0 : 1 + depth(n - 1));";
    let works = "const getCustomJwtClaims = () => ({ a: 'x'.repeat(2e6).length });".to_owned();
    let deep = |calls: u32| {
        format!("{RECURSE} const getCustomJwtClaims = () => ({{ depth: depth({calls}) }});")
    };
    #[rustfmt::skip]
    let cases: [(&str, String, &[&str], i32, &str); 9] = [
        ("the least",         works.clone(), &["--timeout", "1000", "--memory-limit-bytes", "1048576"], 1, "out of memory"),
        ("the most",          works.clone(), &["--timeout", "1000", "--memory-limit-bytes", "67108864"], 0, ""),
        ("too short",         works.clone(), &["--timeout", "0"],                    2, "expected a duration in 1ms..=1s"),
        ("too long",          works.clone(), &["--timeout", "1001"],                 2, "expected a duration in 1ms..=1s"),
        ("no milliseconds",   works.clone(), &["--timeout", "10ms"],                 2, "a number of milliseconds"),
        ("too little memory", works.clone(), &["--memory-limit-bytes", "1048575"],   2, "expected a number in 1048576..=67108864"),
        ("too much memory",   works,         &["--memory-limit-bytes", "67108865"],  2, "expected a number in 1048576..=67108864"),
        ("deep",              deep(200),     &["--timeout", "1000"],                 0, ""),
        ("too deep",          deep(700),     &["--timeout", "1000"],                 1, "overflowed its stack"),
    ];
    for (case, source, options, status, message) in cases {
        let (script, input) = (file("claims.js", &source), file("input.json", "{}"));
        let arguments = ["claims", script.to_str().unwrap(), "--input", input.to_str().unwrap()];
        let output = command(&[&arguments, options].concat()).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{case}: {errors}");
        assert!(errors.contains(message), "{case}: {errors}");
    }
}

#[test]
#[cfg(not(feature = "custom-claims"))]
fn a_build_without_the_engine_runs_no_script() {
    let script = file("claims.js", "const getCustomJwtClaims = () => ({});");
    let output = command(&["claims", script.to_str().unwrap(), "--input", "-"]).output().unwrap();
    assert_eq!((output.status.code(), stdout(&output)), (Some(2), ""));
    assert!(String::from_utf8_lossy(&output.stderr).contains("custom-claims"));
}

/// In Envoy they give the same claims, and in another engine.
#[test]
#[cfg(feature = "custom-claims")]
fn scripts_as_operators_have_them_give_the_claims_that_they_gave_before() {
    for testkit::scripts::Case { name, script, mut input, outcome } in testkit::scripts::all() {
        let mut token = json!({
            "iss": "https://auth.example.com/oidc",
            "sub": "user_123",
            "aud": "https://api.example.com/orders",
            "client_id": "support-console",
            "scope": "orders:read",
            "jti": "0a1b2c",
        });
        let given = input["token"].take();
        token.as_object_mut().unwrap().extend(given.as_object().cloned().unwrap_or_default());
        input["token"] = token;
        let script = file("claims.js", &script);
        // A busy machine must not decide a test.
        let arguments = ["claims", script.to_str().unwrap(), "--input", "-", "--timeout", "1000"];
        let output = with_input(&arguments, input.to_string().as_bytes());
        let errors = String::from_utf8_lossy(&output.stderr);
        match outcome {
            Ok(expected) => {
                assert_eq!(output.status.code(), Some(0), "{name}: {errors}");
                let claims: Value = serde_json::from_slice(&output.stdout).unwrap();
                assert_eq!(claims, expected, "{name}");
            }
            Err(description) => {
                assert_eq!(output.status.code(), Some(1), "{name}");
                let denied = format!("the script denied access: {description}");
                assert!(errors.contains(&denied), "{name}: {errors}");
            }
        }
    }
}
