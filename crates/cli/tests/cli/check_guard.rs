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
        let found = check(&file("envoy.yaml", &edited(&edits)), &["--assume-environment"]);
        let (_, findings) = found.lines.split_last().unwrap();
        assert_eq!(findings.len(), expected.len(), "{case}: {findings:#?}");
        for line in expected {
            assert!(
                findings.iter().any(|found| found.contains(line)),
                "{case}: no {line:?} in {findings:#?}"
            );
        }
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
