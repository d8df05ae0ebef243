//! Tests of `check` for endpoints at configured paths: routes, look-alikes and key sets must follow
//! `paths`. `tests/js/gateways` moves envoy.yaml by the lines of docs/gateway.md.

use std::path::Path;

use crate::check::check;
use crate::check_guard::without_sessions;
use crate::file;

const MANAGER: &str = "static_resources.listeners[0].filter_chains[0].filters[0].typed_config";

fn repositorys(name: &str) -> String {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(name);
    std::fs::read_to_string(path).unwrap()
}

/// The paths of Keycloak's realm `acme`.
const PATHS: &str = "\
paths:
  token: /realms/acme/protocol/openid-connect/token
  jwks: /realms/acme/protocol/openid-connect/certs
  discovery: /realms/acme/.well-known/openid-configuration
  revocation: /realms/acme/protocol/openid-connect/revoke
  introspection: /realms/acme/protocol/openid-connect/token/introspect
  back_channel_logout: /api/backchannel-logout
";

/// The default paths, and the realm's. A path stands before those that it begins with.
const MOVED: [(&str, &str); 6] = [
    ("/oidc/token/revocation", "/realms/acme/protocol/openid-connect/revoke"),
    ("/oidc/token/introspection", "/realms/acme/protocol/openid-connect/token/introspect"),
    ("/oidc/token", "/realms/acme/protocol/openid-connect/token"),
    ("/oidc/jwks", "/realms/acme/protocol/openid-connect/certs"),
    ("/oidc/.well-known/openid-configuration", "/realms/acme/.well-known/openid-configuration"),
    ("/oidc/backchannel-logout", "/api/backchannel-logout"),
];

/// The regular expressions of look-alikes in envoy.yaml, and those for the realm's paths.
const LOOK_ALIKES: [(&str, &str); 4] = [
    (
        r"(?i)/(api|oidc|oidc/\.well-known)(;|%3b).*",
        r"(?i)/(api|realms(/acme(/protocol(/openid-connect)?|/\.well-known)?)?)(;|%3b).*",
    ),
    (
        r"(?i)/(api/subject-tokens|oidc/(token|jwks))(/|(;|%3b).*)?",
        r"(?i)/api/subject-tokens(/|(;|%3b).*)?",
    ),
    (
        r"(?i)/oidc/\.well-known/openid-configuration(/|(;|%3b).*)?",
        r"(?i)/realms/acme/\.well-known/openid-configuration(/|(;|%3b).*)?",
    ),
    (
        r"(?i)/oidc/token/(revocation|introspection)(/|(;|%3b).*)?",
        r"(?i)/realms/acme/protocol/openid-connect/(token(/introspect)?|certs|revoke)(/|(;|%3b).*)?",
    ),
];

/// Replaces a text that is there.
fn replaced(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "{from:?} is not there");
    text.replace(from, to)
}

/// Returns a file with the realm's paths in the filter's configuration.
fn configured(text: &str) -> String {
    let keys = text.lines().find(|line| line.trim_start() == "signing_keys:").unwrap();
    let margin = keys.strip_suffix("signing_keys:").unwrap();
    let paths: String = PATHS.lines().map(|line| format!("{margin}{line}\n")).collect();
    let keys = format!("{keys}\n");
    replaced(text, &keys, &format!("{paths}{keys}"))
}

/// Returns a file whose routes and other addresses are moved.
fn addresses_moved(text: &str) -> String {
    MOVED.iter().fold(text.to_owned(), |text, (from, to)| replaced(&text, from, to))
}

/// Returns a file whose look-alikes are moved.
fn look_alikes_moved(text: &str) -> String {
    LOOK_ALIKES.iter().fold(text.to_owned(), |text, (from, to)| replaced(&text, from, to))
}

/// Returns envoy.yaml at the realm's paths.
fn moved_envoy_yaml() -> String {
    addresses_moved(&look_alikes_moved(&configured(&without_sessions())))
}

/// Returns a manifest with other paths. It has a regular expression for each path and each folder.
fn moved_manifest(name: &str) -> String {
    let text = replaced(
        &configured(&repositorys(name)),
        "'(?i)/oidc(;|%3b).*'",
        "'(?i)/realms(/acme(/protocol(/openid-connect)?)?)?(;|%3b).*'",
    );
    addresses_moved(&replaced(&text, "/oidc/\\.well-known", "/realms/acme/\\.well-known"))
}

/// Asserts that `check` has exactly these findings, beside that about the demo's secret.
#[track_caller]
fn assert_findings(case: &str, text: &str, expected: &[&str]) {
    let found = check(&file("envoy.yaml", text), &["--assume-environment"]);
    let (_, findings) = found.lines.split_last().unwrap();
    let findings: Vec<_> = findings
        .iter()
        .filter(|line| !line.contains("is the demo's"))
        .map(|line| line.replace(MANAGER, "^"))
        .collect();
    assert_eq!(findings.len(), expected.len(), "{case}: {findings:#?}");
    for line in expected {
        assert!(
            findings.iter().any(|found| found.contains(line)),
            "{case}: no {line:?} in {findings:#?}"
        );
    }
}

#[test]
fn files_that_are_moved_whole_have_no_findings() {
    assert_findings("envoy.yaml", &moved_envoy_yaml(), &[]);
    for name in ["deploy/istio/impersonation.yaml", "deploy/envoy-gateway/impersonation.yaml"] {
        assert_findings(name, &moved_manifest(name), &[]);
    }
}

const TOKEN: &str = "/realms/acme/protocol/openid-connect/token";
const INTROSPECT: &str = "/realms/acme/protocol/openid-connect/token/introspect";
const CERTS: &str = "/realms/acme/protocol/openid-connect/certs";

#[test]
fn what_stays_at_another_path_than_the_configured_one_is_found() {
    let moved = moved_envoy_yaml();
    let back = |from: &str, to: &str| replaced(&moved, from, to);
    let filter = ": ^.http_filters[6]: is disabled on every route to";
    let alike = "warning: ^.route_config.virtual_hosts[0]: routes refuse paths that servers could take for the filter's, and none refuses those like";
    let with =
        |member: &str| back("paths:\n", &format!("paths:\n                      {member}\n"));
    let (before, rest) = moved.split_once("                      back_channel_logout:\n").unwrap();
    let (_, after) = rest.split_once("                      # Yours: the transmitter").unwrap();
    let without_sender = format!("{before}                      # {after}");
    let unset = "                      jwks: /realms/acme/protocol/openid-connect/certs\n";
    let ids = "'/api/(subject-tokens|impersonations)/[0-9a-f]+'";
    let key_set = "the provider's key set is not the one that the filter serves: take that (/realms/acme/protocol/openid-connect/certs)";
    #[rustfmt::skip]
    let cases = [
        ("the token endpoint", back(&format!("path: {TOKEN}}}"), "path: /oidc/token}"),
            vec![format!("{filter} {TOKEN}: those requests pass it by")]),
        ("introspection", back(&format!("path: {INTROSPECT}}}"), "path: /oidc/token/introspection}"),
            vec![format!("warning{filter} {INTROSPECT}: impersonations cannot be seen, approved or ended there")]),
        ("approvals", back("path: /api/approvals}", "path: /elsewhere}"),
            vec![format!("warning{filter} /api/approvals: impersonations cannot be seen, approved or ended there")]),
        ("one approval", back("'/api/approvals/[0-9a-f]+'", "'/elsewhere/[0-9a-f]+'"),
            vec![format!("warning{filter} /api/approvals/{{id}}: impersonations cannot be seen, approved or ended there")]),
        ("look-alikes of the path of approvals", back("(?i)/api/approvals(/|", "(?i)/api/elsewhere(/|"),
            vec![format!("{alike} /api/approvals, such as /API/APPROVALS: refuse them")]),
        ("logouts", back("path: /api/backchannel-logout}", "path: /oidc/backchannel-logout}"),
            vec![format!("warning{filter} /api/backchannel-logout: impersonations cannot be seen, approved or ended there")]),
        ("look-alikes of the path of logouts", back("(?i)/api/backchannel-logout(", "(?i)/oidc/backchannel-logout("),
            vec![format!("{alike} /api/backchannel-logout, such as /API/BACKCHANNEL-LOGOUT: refuse them")]),
        ("no sender of logouts, so the path is the gateway's", without_sender.replace("path: /api/backchannel-logout}", "path: /elsewhere}"),
            vec![]),
        ("the key set's route", back(&format!("path: {CERTS}}}"), "path: /oidc/jwks}"),
            vec![format!("warning{filter} {CERTS}: it publishes nothing there")]),
        ("the key set of jwt_authn", back(&format!("uri: http://127.0.0.1:10000{CERTS}, cluster: public_listener"), "uri: http://127.0.0.1:10000/oidc/jwks, cluster: public_listener"),
            vec![format!("route /orders: {key_set}"), format!("route /invoices: {key_set}")]),
        ("minting", with("subject_tokens: /mint"),
            vec![format!("{filter} /mint: those requests pass it by"), format!("warning{filter} /mint/{{id}}: impersonations")]),
        ("nothing but the route with an id", replaced(&with("subject_tokens: /api/mint"), "path: /api/subject-tokens}", "path: /api/mint}").replace("(?i)/api/subject-tokens(/", "(?i)/api/mint(/"),
            vec![format!("warning{filter} /api/mint/{{id}}: impersonations")]),
        ("a route with an id of another form", replaced(&moved, ids, "'/api/(impersonations|subject-tokens)/[0-9a-f]{28}'"), vec![]),
        ("a document without a route", with("oauth_discovery: /.well-known/oauth-authorization-server"),
            vec![format!("warning{filter} /.well-known/oauth-authorization-server: it publishes nothing there")]),
        ("paths without a route's", back(unset, ""),
            vec![format!("warning{filter} /oidc/jwks: it publishes nothing there"), "route /orders: the provider's key set is not".into(), "route /invoices: the provider's key set is not".into()]),
        ("all look-alikes", addresses_moved(&configured(&without_sessions())),
            vec![format!("{alike} {TOKEN}, /realms/acme/protocol/openid-connect/revoke, {INTROSPECT}, {CERTS}, /realms/acme/.well-known/openid-configuration, such as /REALMS/")]),
        ("one look-alike", back("(token(/introspect)?|certs|revoke)", "(token(/introspect)?|revoke)"),
            vec![format!("{alike} {CERTS}, such as /REALMS/ACME/PROTOCOL/OPENID-CONNECT/CERTS: refuse them")]),
        ("another virtual host", back("            virtual_hosts:\n", "            virtual_hosts:\n            - {name: others, domains: [others], routes: [{match: {safe_regex: {regex: '(?i)/x/'}}, direct_response: {status: 404}}, {match: {prefix: /}, route: {cluster: identity_gateway}}]}\n"), vec![]),
        ("look-alikes by a path parameter", back("realms(/acme(/protocol(/openid-connect)?|/\\.well-known)?)?", "realms"),
            vec![format!("{alike} {TOKEN}, ")]),
        ("parameters that no route sees", back("            virtual_hosts:\n", "            ignore_path_parameters_in_path_matching: true\n            virtual_hosts:\n"),
            vec!["warning: ^.route_config.ignore_path_parameters_in_path_matching: hides path parameters from the routes that refuse `;`".into()]),
        ("look-alikes that lead to the gateway", back("                direct_response: *nobodys\n              - match: {safe_regex: {regex: '(?i)/api/impersonations", "                route: {cluster: identity_gateway}\n              - match: {safe_regex: {regex: '(?i)/api/impersonations"),
            vec![format!("{alike} /realms/acme/.well-known/openid-configuration, such as ")]),
    ];
    for (case, text, expected) in cases {
        assert_findings(case, &text, &expected.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

#[test]
fn routes_of_manifests_must_be_for_the_configured_paths() {
    let missing = "has a route for /api/backchannel-logout, /realms/acme/protocol/openid-connect/token, /realms/acme/protocol/openid-connect/revoke, /realms/acme/protocol/openid-connect/token/introspect, /realms/acme/protocol/openid-connect/certs, /realms/acme/.well-known/openid-configuration, as it has for other paths";
    let alike = "routes refuse paths that servers could take for the filter's, and none refuses those like /api/backchannel-logout, /realms/";
    for name in ["deploy/istio/impersonation.yaml", "deploy/envoy-gateway/impersonation.yaml"] {
        let shipped = repositorys(name);
        assert_findings(name, &configured(&shipped), &[missing, alike]);
        let routes = addresses_moved(&configured(&shipped));
        assert_findings(
            name,
            &routes,
            &[alike.trim_end_matches("/api/backchannel-logout, /realms/")],
        );
        // The routes may be in another file.
        let elsewhere = |kind: &str| shipped.replace(&format!("kind: {kind}\n"), "kind: Another\n");
        assert_findings(name, &elsewhere("VirtualService"), &[]);
        assert_findings(name, &elsewhere("HTTPRoute"), &[]);
    }
}

/// The guard of another Envoy than the filter's does not know the filter's `paths`.
#[test]
fn a_guard_without_the_filter_takes_a_key_set_at_any_path() {
    let shipped = without_sessions();
    let (before, rest) = shipped.split_once("          - name: envoy.filters.http.wasm\n").unwrap();
    let (_, after) = rest.split_once("          - name: envoy.filters.http.router\n").unwrap();
    let guard = format!("{before}          - name: envoy.filters.http.router\n{after}");
    let keys = "uri: http://127.0.0.1:10000/oidc/jwks, cluster: public_listener";
    let moved =
        replaced(&guard, keys, "uri: https://auth.example.com/certs, cluster: public_listener");
    let found = check(&file("envoy.yaml", &moved), &["--assume-environment"]);
    assert!(!found.lines.iter().any(|line| line.contains("key set")), "{:#?}", found.lines);
    assert!(found.lines.iter().any(|line| line.contains("in an Envoy without the filter")));
}
