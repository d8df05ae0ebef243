//! Tests of `check --envoy-version`. That each finding is true of its version of Envoy is shown by
//! `tests/envoy/versions.rs`, in that version.

use crate::check::{ENVOY, Edits, assert_findings, check, edited};
use crate::{command, file};

const EXPRESSION: (&str, &str) = ("match: {prefix: /}", "match: {safe_regex: {regex: '/;.*'}}");
const NORMALIZED: (&str, &str) = (
    "          request_timeout: 10s\n",
    "          request_timeout: 10s\n          normalize_path: true\n",
);
const LOW: (&str, &str) =
    ("  - name: public\n", "  - name: public\n    per_connection_buffer_limit_bytes: 32768\n");
const RAISED: (&str, &str) = (
    "route: {cluster: identity_gateway}",
    "route: {cluster: identity_gateway}\n                request_body_buffer_limit: 65536",
);
const VARIABLES: (&str, &str) = (
    "{host_env_keys: [IMPERSONATION_SIGNING_KEY]}",
    "{host_env_keys: [IMPERSONATION_SIGNING_KEY], key_values: {A: b}}",
);
const COOKIES: (&str, &str) =
    ("match: {prefix: /}", "match: {prefix: /, cookies: [{name: a, string_match: {exact: b}}]}");
const JITTER: (&str, &str) = (
    "          request_timeout: 10s\n",
    "          request_timeout: 10s\n          drainTimeoutJitter: {value: 10}\n",
);
const QUEUES: (&str, &str) =
    ("    connect_timeout: 1s\n", "    connect_timeout: 1s\n    queuing_policies: {}\n");

#[test]
fn a_version_that_is_not_tested_is_named() {
    #[rustfmt::skip]
    let cases: &[(&str, &[&str])] = &[
        ("1.35",   &[": Envoy 1.35 is not supported: the filter needs 1.36.4 or later"]),
        ("1.36",   &[]),
        ("1.36.3", &["warning: Envoy 1.36.3 is not tested, and lacks what 1.36.4 corrects"]),
        ("1.36.9", &[]),
        ("v1.37.0", &[]),
        ("1.38.3", &["warning: Envoy 1.38 is not tested, because the build that the tests could use has no V8"]),
        ("1.39.2", &["warning: Envoy 1.39.2 is not tested, and lacks what 1.39.3 corrects"]),
        ("1.39",   &[]),
        ("1.40.0", &[]),
        ("1.41",   &["warning: Envoy 1.41 is not tested; tested are 1.36.4, 1.37.0, 1.39.3, 1.40.0"]),
    ];
    for (version, expected) in cases {
        let checked = check(&file("envoy.yaml", ENVOY), &["--envoy-version", version]);
        assert_findings(version, &checked, expected);
    }
}

#[test]
fn what_is_no_version_of_envoy_is_refused() {
    for version in ["", "1", "2.0", "latest", "1.36.x"] {
        let path = file("envoy.yaml", ENVOY);
        let arguments = ["check", "--envoy-version", version, path.to_str().unwrap()];
        let output = command(&arguments).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{version}: {error}");
        assert!(error.contains("expected a version of Envoy"), "{version}: {error}");
    }
}

#[test]
fn a_setting_that_a_version_lacks_or_misunderstands_is_a_finding_that_names_the_version() {
    #[rustfmt::skip]
    let cases: &[(&str, &str, Edits<'_>, &[&str])] = &[
        ("a field of a route", "1.36", &[COOKIES],
            &[": ^.route_config.virtual_hosts[0].routes[0].match.cookies: is not known to Envoy 1.36, "]),
        ("the same, one version later", "1.37", &[COOKIES], &[]),
        ("a field of the manager, in camel case", "1.37.0", &[JITTER],
            &[": ^.drain_timeout_jitter: is not known to Envoy 1.37.0, which does not start with it, and ignores it if a control plane sends it: it needs Envoy 1.39 or later"]),
        ("the same in time", "1.39", &[JITTER], &[]),
        ("a field of a cluster", "1.39.3", &[QUEUES],
            &[": static_resources.clusters[0].queuing_policies: is not known to Envoy 1.39.3, "]),
        ("several fields", "1.36", &[COOKIES, JITTER, QUEUES],
            &["match.cookies: is not known", "drain_timeout_jitter: is not known", "queuing_policies: is not known"]),
        ("an expression over paths that are not normalised", "1.37", &[EXPRESSION],
            &[": ^.route_config.virtual_hosts[0].routes[0].match.safe_regex: is passed by: in Envoy 1.37 no regular expression matches a byte that is not UTF-8"]),
        ("the same, normalised", "1.37", &[EXPRESSION, NORMALIZED], &[]),
        ("the same, before the correction", "1.39.1", &[EXPRESSION],
            &["warning: Envoy 1.39.1 is not tested", "match.safe_regex: is passed by: in Envoy 1.39.1"]),
        ("the same, corrected", "1.39.3", &[EXPRESSION], &[]),
        ("a route that raises the limit of bodies", "1.36", &[LOW, RAISED],
            &["per_connection_buffer_limit_bytes: must be at least 65536: Envoy would refuse bodies that the filter accepts (in Envoy 1.36 a route's request_body_buffer_limit comes too late)"]),
        ("the same where it does", "1.37", &[LOW, RAISED], &[]),
        ("a variable that is never renewed", "1.37", &[VARIABLES],
            &["warning: ~.vm_config.environment_variables.key_values: cannot be changed while Envoy 1.37 runs"]),
        ("the same where it is", "1.39", &[VARIABLES], &[]),
    ];
    for (case, version, edits, expected) in cases {
        let path = file("envoy.yaml", &edited(edits));
        assert_findings(case, &check(&path, &["--envoy-version", version]), expected);
        let newest = check(&path, &[]);
        assert!(newest.lines.iter().all(|line| !line.contains("Envoy 1.")), "{:?}", newest.lines);
    }
}

#[test]
fn a_field_is_found_where_a_control_plane_sends_it() {
    let lds = edited(&[COOKIES])
        .replacen("static_resources:\n  listeners:\n  - name", "resources:\n  - \"@type\": type.googleapis.com/envoy.config.listener.v3.Listener\n    name", 1)
        .replace("  clusters:\n  - name: identity_gateway\n    connect_timeout: 1s\n", "");
    let found = check(&file("lds.yaml", &lds), &["--envoy-version", "1.36"]).lines;
    let cookies = "match.cookies: is not known to Envoy 1.36";
    assert_eq!(found.iter().filter(|line| line.contains(cookies)).count(), 1, "{found:#?}");
}

#[test]
fn another_plugin_than_filter_and_guard_may_have_any_variables() {
    let other = VARIABLES.1;
    let text = edited(&[(
        "          - name: envoy.filters.http.router\n",
        &format!(
            "          - name: other\n            typed_config:\n              \"@type\": type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm\n              config: {{vm_config: {{environment_variables: {other}}}}}\n          - name: envoy.filters.http.router\n"
        ),
    )]);
    assert_findings("other", &check(&file("envoy.yaml", &text), &["--envoy-version", "1.36"]), &[]);
}
