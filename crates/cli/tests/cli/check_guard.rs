//! `check`, of the guard: each way in which Envoy takes it and impersonations pass it by.

use std::path::Path;

use crate::check::check;
use crate::file;

/// What to replace, and by what.
type Edits<'a> = Vec<(&'a str, &'a str)>;

/// The shipped configuration with some of its text replaced.
fn edited(edits: &[(&str, &str)]) -> String {
    let shipped = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("envoy.yaml");
    let shipped = std::fs::read_to_string(shipped).unwrap();
    edits.iter().fold(shipped, |text, (from, to)| {
        assert!(text.contains(from), "{from:?} is not there");
        text.replace(from, to)
    })
}

/// The entry of `http_filters` with this name, whole.
fn entry(name: &str) -> String {
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

/// Of this envoy.yaml exactly so much is said, each of these lines among it.
fn assert_findings(case: &str, text: &str, expected: &[&str]) {
    let found = check(&file("envoy.yaml", text), &["--assume-environment"]);
    let (_, findings) = found.lines.split_last().unwrap();
    assert_eq!(findings.len(), expected.len(), "{case}: {findings:#?}");
    for line in expected {
        assert!(
            findings.iter().any(|found| found.contains(line)),
            "{case}: no {line:?} in {findings:#?}"
        );
    }
}

#[test]
fn what_lets_an_impersonation_pass_the_guard_by_is_told() {
    let (guard, jwt_authn) = (entry("impersonation-guard"), entry("envoy.filters.http.jwt_authn"));
    let before = format!("{guard}{jwt_authn}");
    let removed = entry("envoy.filters.http.header_mutation");
    let off = "                typed_per_filter_config:\n                  impersonation-guard: {\"@type\": type.googleapis.com/envoy.config.route.v3.FilterConfig, disabled: true}\n";
    let everything = "              - match: {prefix: /}\n";
    let switched_off = format!("{everything}{off}");
    let guards_vm = "by this name the guard knows what the filter revokes.\n                                  vm_id: impersonation";
    let other_vm = guards_vm.replace("vm_id: impersonation", "vm_id: guard");
    #[rustfmt::skip]
    let cases: [(&str, Edits<'_>, &[&str]); 12] = [
        ("as shipped",          vec![], &[]),
        ("before jwt_authn",    vec![(&guard, ""), (&jwt_authn, &before)],
            &["stands before jwt_authn", "needs a header_mutation before it that removes x-impersonation-id", "needs a header_mutation before it that removes x-impersonator"]),
        ("another claim",       vec![("path: [{key: access_token}, {key: txn}]", "path: [{key: access_token}, {key: act}]")],
            &["must be entered where access_token.txn"]),
        ("no matter what",      vec![("value: {present_match: true}", "value: {string_match: {exact: x}}")],
            &["must be entered where access_token.txn"]),
        ("no claims",           vec![("                  payload_in_metadata: access_token\n", "")],
            &["must be \"access_token\", where the guard is entered by", "must be \"access_token\", where the guard is entered by"]),
        ("forged headers",      vec![(&removed, "")],
            &["removes x-impersonation-id", "removes x-impersonator"]),
        ("another vm_id",       vec![(guards_vm, &other_vm)],
            &["must be the same as in"]),
        ("another issuer",      vec![("issuer: http://127.0.0.1:10000/oidc # Yours: as the filter's", "issuer: https://other.example.com")],
            &["must have issuer and base_path of the filter"]),
        ("switched off",        vec![(everything, &switched_off)],
            &["switches the guard off"]),
        ("dies for good",       vec![("                                failure_policy: FAIL_RELOAD\n", "")],
            &["failure_policy: must be FAIL_RELOAD"]),
        ("misspelt",            vec![("issuer: http://127.0.0.1:10000/oidc # Yours: as the filter's", "isuer: x")],
            &["isuer: unknown member", "issuer: is required"]),
        ("no guard",            vec![(&guard, "")],
            &["no guard stands behind it"]),
    ];
    for (case, edits, expected) in cases {
        assert_findings(case, &edited(&edits), expected);
    }
}

#[test]
fn a_guard_that_is_entered_by_everybody_refuses_ordinary_users() {
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

/// The shipped configuration with these stores, and the cluster that it has for etcd.
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
fn guard_and_filter_keep_revocations_in_one_place_whose_cluster_is_judged_once() {
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
            &["configuration.value.store: must have etcd, as in"]),
        ("only the guard",         in_etcd("shared_data: {capacity: 7}", of_guard),
            &["configuration.value.store: must have shared_data, as in"]),
        ("another prefix",         in_etcd(etcd, "{etcd: {cluster: etcd, prefix: /other/}}"),
            &["configuration.value.store.etcd.prefix: must be \"/impersonation/\", as in"]),
        ("no such cluster",        elsewhere,
            &["configuration.value.store.etcd.cluster: is not \"etcd\", as in", "configuration.value.store.etcd.cluster: there is no cluster \"store\""]),
        ("another cluster",        renamed,
            &["configuration.value.store.etcd.cluster: is not \"etcd\", as in", "configuration.value.store.etcd.cluster: there is no cluster \"etcd\""]),
        ("a cluster that fails",   no_checks,
            &["retriable_statuses: must have 503"]),
        ("another vm_id",          other_vm,
            &["vm_config.vm_id: should be the same as in"]),
    ];
    for (case, text, expected) in cases {
        assert_findings(case, &text, expected);
    }
}
