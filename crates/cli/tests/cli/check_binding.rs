//! Tests of `check` for clients with certificates and for tokens that are bound to keys: changes to
//! the shipped envoy.yaml that Envoy accepts without a word.

use crate::check::check;
use crate::check_guard::without_sessions;
use crate::file;

/// A change of a text, which must be there.
type Edit<'a> = (&'a str, &'a str);

/// Returns the shipped configuration with some of its text replaced.
fn edited(edits: &[Edit<'_>]) -> String {
    edits.iter().fold(without_sessions(), |text, (from, to)| {
        assert!(text.contains(from), "{from:?} is not there");
        text.replacen(from, to, 1)
    })
}

/// The finding about the demo's secret, which is always there.
const DEMO: &str = "is the demo's, as in the envoy.yaml that is shipped";

#[track_caller]
fn assert_findings(case: &str, text: &str, expected: &[&str]) {
    let found = check(&file("envoy.yaml", text), &["--assume-environment"]);
    let (_, findings) = found.lines.split_last().unwrap();
    let findings: Vec<_> = findings.iter().filter(|line| !line.contains(DEMO)).collect();
    assert_eq!(findings.len(), expected.len(), "{case}: {findings:#?}");
    for line in expected {
        let is_there = findings.iter().any(|found| found.contains(line));
        assert!(is_there, "{case}: no {line:?} in {findings:#?}");
    }
}

const BOUND: Edit<'_> = ("# token_binding: dpop", "token_binding: dpop");

#[test]
fn what_bound_tokens_need_at_the_guard_is_found() {
    let no_origin = ("public_origin: http", "# public_origin: http");
    let no_header = ("- header: authorization\n", "- header: x-authorization\n");
    let elsewhere = ("key: authorization, type: STRING", "key: elsewhere, type: STRING");
    let bearer_only = ("- {name: Authorization, value_prefix: \"DPoP \"}", "#");
    let lost = "header_to_metadata must keep authorization as impersonation.authorization";
    let one_scheme = "should have the value_prefixes \"DPoP \" and \"Bearer \"";
    #[rustfmt::skip]
    let cases: [(&str, Vec<Edit<'_>>, Vec<&str>); 6] = [
        ("as it is shipped",  vec![],                       vec![]),
        ("tokens are bound",  vec![BOUND],                  vec![]),
        ("no origin",         vec![BOUND, no_origin],       vec!["public_origin: is not set"]),
        ("no kept header",    vec![BOUND, no_header],       vec![lost]),
        ("kept elsewhere",    vec![BOUND, elsewhere],       vec![lost]),
        ("one scheme",        vec![BOUND, bearer_only],     vec![one_scheme, one_scheme]),
    ];
    for (case, edits, expected) in cases {
        assert_findings(case, &edited(&edits), &expected);
    }
}

#[test]
fn a_listener_that_does_not_verify_certificates_is_found() {
    let filters = "    filter_chains:\n    - filters:\n";
    let tls = |validation: &str, more: &str| {
        format!(
            r#"    filter_chains:
    - transport_socket:
        name: envoy.transport_sockets.tls
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext
          {more}
          common_tls_context:
            tls_certificates: [{{certificate_chain: {{filename: a}}, private_key: {{filename: b}}}}]
            {validation}
      filters:
"#
        )
    };
    let client = |members: &str| {
        format!(
            "                    - client_id: support-console # runs in the browser\n                      type: traditional_web\n                      {members}\n"
        )
    };
    let console = "                    - client_id: support-console # runs in the browser\n                      type: single_page\n";
    let named = client(
        "authentication: tls_client_auth\n                      tls_client_auth: {san_dns: console.example.com}",
    );
    let by_secret = client(
        "client_secret_sha256: [1935d7613ead96200a9bfbf12ab593d31a0c3efb6ab6f8eaaff2219581ce8b0d]\n                      token_binding: mtls",
    );
    let forwarded = "                    identity_gateway: {documents: merge, cluster: identity_gateway}\n                    client_certificate: forwarded\n";
    let merge =
        "                    identity_gateway: {documents: merge, cluster: identity_gateway}\n";
    let verifying = tls("validation_context: {trusted_ca: {filename: c}}", "");
    let required =
        tls("validation_context: {trusted_ca: {filename: c}}", "require_client_certificate: true");
    let accepting = tls(
        "validation_context: {trusted_ca: {filename: c}, trust_chain_verification: ACCEPT_UNTRUSTED}",
        "",
    );
    let without = tls("validation_context: {}", "");
    let none = tls("", "");
    let prefix = "          stat_prefix: public\n";
    let only =
        "          stat_prefix: public\n          forward_client_cert_details: FORWARD_ONLY\n";
    let always = "          stat_prefix: public\n          forward_client_cert_details: ALWAYS_FORWARD_ONLY\n";
    let untrusted = "trust_chain_verification: must not be ACCEPT_UNTRUSTED";
    #[rustfmt::skip]
    let cases: [(&str, Vec<Edit<'_>>, Vec<&str>); 11] = [
        ("verified",                  vec![(console, &named), (filters, &verifying)],      vec![]),
        ("no TLS",                    vec![(console, &named)],                             vec!["transport_socket: must be set"]),
        ("no certificate is asked",   vec![(console, &named), (filters, &none)],           vec!["validation_context: must be set"]),
        ("anybody's certificate",     vec![(console, &named), (filters, &accepting)],      vec![untrusted]),
        ("no authority",              vec![(console, &named), (filters, &without)],        vec!["trusted_ca: must be set"]),
        ("bound, anybody's",          vec![(console, &by_secret), (filters, &accepting)],  vec![]),
        ("bound, none is asked",      vec![(console, &by_secret), (filters, &none)],       vec!["validation_context: must be set"]),
        ("forwarded by the proxy",    vec![(merge, forwarded), (filters, &required), (prefix, only)], vec![]),
        ("forwarded, removed here",   vec![(merge, forwarded), (filters, &required)],      vec!["forward_client_cert_details: must be FORWARD_ONLY"]),
        ("forwarded by anybody",      vec![(merge, forwarded), (filters, &required), (prefix, always)], vec!["forward_client_cert_details: must be FORWARD_ONLY"]),
        ("anybody may connect",       vec![(merge, forwarded), (filters, &verifying), (prefix, only)], vec!["require_client_certificate: must be true"]),
    ];
    for (case, edits, expected) in cases {
        assert_findings(case, &edited(&edits), &expected);
    }
}
