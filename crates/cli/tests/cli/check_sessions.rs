//! Tests of `check` for browser sessions: changes to the shipped envoy.yaml after which a request
//! on a session's host may not be the session's, or may pass the guard by.

use std::path::Path;

use crate::check::{Checked, check};
use crate::check_guard::assert_findings;
use crate::file;

/// A text to replace, and its replacement.
type Edit<'a> = (&'a str, &'a str);

fn shipped() -> String {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("envoy.yaml");
    std::fs::read_to_string(path).unwrap()
}

/// Returns the shipped configuration with some text of the sessions' listener replaced.
fn edited(edits: &[Edit<'_>]) -> String {
    let shipped = shipped();
    let (before, rest) = shipped.split_once("  - name: sessions\n").unwrap();
    let (listener, after) = rest.split_once("  # For Prometheus").unwrap();
    let listener = edits.iter().fold(listener.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from:?} is not there");
        text.replace(from, to)
    });
    format!("{before}  - name: sessions\n{listener}  # For Prometheus{after}")
}

/// Returns the shipped configuration with the first occurrence of a text replaced.
fn replaced((from, to): Edit<'_>) -> String {
    let shipped = shipped();
    assert!(shipped.contains(from), "{from:?} is not there");
    shipped.replacen(from, to, 1)
}

const ROUTE: &str = "listener sessions, route /*: ";
const LISTENER: &str = "listener sessions: ";

const REMOVAL: &str = "                - remove: authorization\n";
const APPEND: &str = r#"                - append:
                    header: {key: authorization, value: "Bearer %DYNAMIC_METADATA(impersonation:cookie)%"}
                    append_action: OVERWRITE_IF_EXISTS_OR_ADD
"#;
const COOKIE_RULE: &str = "              - cookie: __Host-impersonation\n";
const TOKEN: &str = "          - name: token-of-the-session\n";
const NO_STORE: &str = "          - name: no-store\n";
const ROUTES: &str = "              # The application. A WebSocket";

#[test]
fn a_request_of_a_session_is_made_with_the_token_of_its_cookie_alone() {
    let made =
        "header_mutation before jwt_authn, behind the removal of authorization, that writes it";
    let swapped = format!("{APPEND}{REMOVAL}");
    let as_shipped = format!(
        "{REMOVAL}                - remove: proxy-authorization\n                - remove: dpop\n{APPEND}"
    );
    let other_rule = format!(
        "              - header: x-token\n                on_header_present: {{metadata_namespace: impersonation, key: cookie}}\n{COOKIE_RULE}"
    );
    let lua = format!(
        "          - name: lua\n            typed_config: {{\"@type\": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua}}\n{TOKEN}"
    );
    let disabled = format!("{TOKEN}            disabled: true\n");
    let per_route = "                    requirement_name: shop\n";
    let set_per_route = format!(
        "{per_route}                  token-of-the-session: {{\"@type\": type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutationPerRoute}}\n"
    );
    let removed = "the sessions need a header_mutation before jwt_authn that removes authorization";
    #[rustfmt::skip]
    let cases: [(&str, Vec<Edit<'_>>, Vec<String>); 13] = [
        ("as it is shipped",   vec![], vec![]),
        ("no removal",         vec![(REMOVAL, "")],                    vec![format!("{ROUTE}{removed}")]),
        ("no cookie",          vec![(COOKIE_RULE, "              - cookie: session\n")],
            vec![format!("{ROUTE}impersonation.cookie is written here"), format!("{ROUTE}header_to_metadata must keep the cookie __Host-impersonation")]),
        ("another rule",       vec![(COOKIE_RULE, &other_rule)],       vec![format!("{ROUTE}impersonation.cookie is written here")]),
        ("a part of the cookie", vec![("key: cookie, type: STRING", "key: cookie, type: STRING, regex_value_rewrite: {pattern: {regex: a}, substitution: b}")],
            vec![format!("{ROUTE}impersonation.cookie is written here"), format!("{ROUTE}header_to_metadata must keep")]),
        ("no bearer",          vec![(APPEND, "")],                     vec![format!("{ROUTE}the sessions need a {made}")]),
        ("a removal behind",   vec![(&as_shipped, &swapped)],          vec![format!("{ROUTE}the sessions need a {made}")]),
        ("another bearer",     vec![("Bearer %DYNAMIC_METADATA(impersonation:cookie)%", "Bearer %REQ(x-token)%")], vec![format!("{ROUTE}authorization must be `Bearer ")]),
        ("a second bearer",    vec![("impersonation:cookie)%\"}\n                    append_action: OVERWRITE_IF_EXISTS_OR_ADD", "impersonation:cookie)%\"}\n                    append_action: APPEND_IF_EXISTS_OR_ADD")],
            vec![format!("{ROUTE}authorization must be `Bearer ")]),
        ("off",                vec![(TOKEN, &disabled)],               vec![format!("{ROUTE}{removed}")]),
        ("a script between",   vec![(TOKEN, &lua)],                    vec![format!("{ROUTE}\"lua\" between header_to_metadata and jwt_authn")]),
        ("a route's own",      vec![(per_route, &set_per_route)],      vec![format!("{ROUTE}a setting of \"token-of-the-session\" for this route")]),
        ("another audience",   vec![("audiences: [\"http://as-user.localhost:10080/\"]", "audiences: [\"http://as-user.localhost:10080/\", \"http://127.0.0.1:10000/orders\"]")],
            vec![format!("{ROUTE}the provider takes tokens for another audience than browser_sessions.resource")]),
    ];
    for (case, edits, expected) in cases {
        let expected: Vec<_> = expected.iter().map(String::as_str).collect();
        assert_findings(case, &edited(&edits), &expected);
    }
}

#[test]
fn the_guard_sees_each_request_of_a_session() {
    let shipped = edited(&[]);
    let (public, _) = shipped.split_once("  - name: sessions\n").unwrap();
    let (_, matched) = public.split_once("          - name: impersonation-guard\n").unwrap();
    let (matched, _) =
        matched.split_once("                            name: envoy.filters.http.wasm\n").unwrap();
    let (_, own) = shipped.split_once("  - name: sessions\n").unwrap();
    let (_, own) = own.split_once("          - name: impersonation-guard\n").unwrap();
    let (own, _) = own.split_once("\n\n").unwrap();
    let (_, wasm) = own.split_once("            typed_config:\n").unwrap();
    let nested: String = wasm.lines().map(|line| format!("                {line}\n")).collect();
    let matched = matched.replace("custom_match: &is_present", "custom_match: &is_present_here");
    let composite = format!(
        "{matched}                            name: envoy.filters.http.wasm\n                            typed_config:\n{nested}"
    );
    let application = format!(
        "              - match: {{path: /health}}\n                route: {{cluster: shop}}\n{ROUTES}"
    );
    let domains = "              domains: [\"*.as-user.localhost\"] # Yours";
    let own_route = "                    requirement_name: shop\n";
    let unguarded = format!(
        "{own_route}                  impersonation-guard: {{\"@type\": type.googleapis.com/envoy.config.route.v3.FilterConfig, disabled: true}}\n"
    );
    let no_store = "no-store into each response";
    let stored = format!(
        "{own_route}                  no-store: {{\"@type\": type.googleapis.com/envoy.config.route.v3.FilterConfig, disabled: true}}\n"
    );
    #[rustfmt::skip]
    let cases: [(&str, Vec<Edit<'_>>, Vec<String>); 8] = [
        ("only tokens with txn", vec![(own, &composite)], vec![format!("{ROUTE}on the sessions' hosts a token without txn passes the guard by")]),
        ("another route",        vec![(ROUTES, &application)], vec!["listener sessions, route /health: no rule of jwt_authn is certain".into()]),
        ("the guard is off",     vec![(own_route, &unguarded)], vec![format!("{ROUTE}this switches the guard off")]),
        ("another host, too",    vec![(domains, "              domains: [\"*.as-user.localhost\", shop.localhost] # Yours")],
            vec![format!("{LISTENER}it takes other hosts than *.as-user.localhost"), format!("{LISTENER}no virtual host has the domains")]),
        ("every host",           vec![(domains, "              domains: [\"*\"] # Yours")],
            vec![format!("{LISTENER}it takes other hosts than *.as-user.localhost"), format!("{LISTENER}no virtual host has the domains")]),
        ("a forged id",          vec![("                - remove: x-impersonation-id\n", "")], vec![format!("{ROUTE}the guard needs a header_mutation before it that removes x-impersonation-id")]),
        ("caches",               vec![("header: {key: cache-control, value: no-store}", "header: {key: cache-control, value: private}")], vec![format!("{ROUTE}the sessions need a header_mutation before jwt_authn that writes cache-control: {no_store}")]),
        ("caches of one route",  vec![(own_route, &stored)],
            vec![format!("{ROUTE}the sessions need a header_mutation before jwt_authn that writes cache-control: {no_store}")]),
    ];
    for (case, edits, expected) in cases {
        let expected: Vec<_> = expected.iter().map(String::as_str).collect();
        assert_findings(case, &edited(&edits), &expected);
    }
}

#[test]
fn the_filter_stands_first_on_its_four_paths_alone() {
    let me = "              - match: {path: /.impersonation/me}\n";
    let shipped = edited(&[]);
    let (_, listener) = shipped.split_once("  - name: sessions\n").unwrap();
    let (_, filter) = listener.split_once("          # The same filter as above").unwrap();
    let (filter, _) = filter.split_once("          # The cookie of the session").unwrap();
    let filter = format!("          # The same filter as above{filter}");
    let behind = format!("{filter}{TOKEN}");
    let on_all = "                    requirement_name: shop\n";
    let on_all_also = format!("{on_all}                  envoy.filters.http.wasm: *enabled\n");
    let mutates = format!(
        "          - {{name: early, typed_config: {{\"@type\": type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutation, mutations: {{request_mutations: [{{remove: x-a}}]}}}}}}\n{NO_STORE}"
    );
    let nowhere = "nobody can begin or end one";
    #[rustfmt::skip]
    let cases: [(&str, Vec<Edit<'_>>, Vec<String>); 5] = [
        ("no filter",        vec![(&filter, "")],              vec![format!("{LISTENER}the filter is not among the filters of the sessions: {nowhere}")]),
        ("behind another",   vec![(&filter, ""), (TOKEN, &behind)], vec![format!("{LISTENER}\"cookie-of-the-session\" stands before the filter")]),
        ("a change before",  vec![(NO_STORE, &mutates)],       vec![format!("{LISTENER}\"early\" stands before the filter")]),
        ("on every route",   vec![(on_all, &on_all_also)],     vec![format!("{LISTENER}the filter is on for /*")]),
        ("not on one path",  vec![(me, "              - match: {path: /.impersonation/others}\n")],
            vec![format!("{LISTENER}no route to /.impersonation/me"), format!("{LISTENER}the filter is on for /.impersonation/others")]),
    ];
    for (case, edits, expected) in cases {
        let expected: Vec<_> = expected.iter().map(String::as_str).collect();
        assert_findings(case, &edited(&edits), &expected);
    }
}

#[test]
fn guard_and_banner_of_a_session_agree() {
    let rules = "                    # rules:\n";
    let rule = |methods: &str| {
        format!(
            "                    rules: [{{path: /cart, methods: [{methods}], action: allow}}]\n{rules}"
        )
    };
    let (writes, upgrades) = (rule("POST"), rule("CONNECT"));
    let says = "the sessions' banner says read_only, and the guard lets requests write";
    #[rustfmt::skip]
    let cases: [(&str, Vec<Edit<'_>>, Vec<String>); 4] = [
        ("a rule for writes",  vec![(rules, &writes)],   vec![format!("{LISTENER}{says}")]),
        ("a rule for upgrades", vec![(rules, &upgrades)], vec![]),
        ("writes by default",  vec![("default: read_only", "default: allow")], vec![format!("{LISTENER}{says}")]),
        ("another domain",     vec![("as-user.localhost", "elsewhere.localhost")], vec![
            format!("{LISTENER}browser_session.domain is not the filter's (as-user.localhost)"),
            format!("{ROUTE}the provider takes tokens for another audience"),
            format!("{ROUTE}no resource of the filter has one of the provider's audiences"),
            "listener public: it does not answer 421".into(), "listener metrics: it does not answer 421".into(),
        ]),
    ];
    for (case, edits, expected) in cases {
        let expected: Vec<_> = expected.iter().map(String::as_str).collect();
        assert_findings(case, &edited(&edits), &expected);
    }
    let writes =
        replaced(("read_only: true # what the banner", "read_only: false # what the banner"));
    let says = "warning: listener sessions: the sessions' banner does not say read_only";
    assert_findings("nothing to write", &writes, &[says]);
}

#[test]
fn other_listeners_answer_421_to_the_hosts_of_sessions() {
    let misdirected = "            - &misdirected\n";
    let status = ("direct_response: {status: 421}", "direct_response: {status: 404}");
    let part = (
        "              - match: {prefix: /}\n                direct_response: {status: 421}",
        "              - match: {prefix: /a}\n                direct_response: {status: 421}",
    );
    let others = (
        "domains: [\"*.as-user.localhost\"] # Yours: the sessions' domain\n",
        "domains: [\"*.localhost\"] # Yours: the sessions' domain\n",
    );
    let longer = (
        "domains: [\"*.as-user.localhost\"] # Yours: the sessions' domain\n",
        "domains: [\"*.user.localhost\"] # Yours: the sessions' domain\n",
    );
    let port = (
        "            ignore_port_in_host_matching: true\n            virtual_hosts:\n            - &misdirected",
        "            virtual_hosts:\n            - &misdirected",
    );
    let first = format!(
        "            - {{name: mine, domains: [\"f6*\"], routes: [{{match: {{prefix: /}}, direct_response: {{status: 200}}}}]}}\n{misdirected}"
    );
    let exact = format!(
        "            - {{name: mine, domains: [f69c769c7328d1eaca86918b4690.as-user.localhost], routes: [{{match: {{prefix: /}}, direct_response: {{status: 200}}}}]}}\n{misdirected}"
    );
    let (public, metrics) =
        ("listener public: it does not answer 421", "listener metrics: it does not answer 421");
    #[rustfmt::skip]
    let cases: [(&str, Edit<'_>, Vec<&str>); 7] = [
        ("another status",    status,                  vec![public, metrics]),
        ("a part only",       part,                    vec![public, metrics]),
        ("a shorter end",     others,                  vec![]),
        ("another domain",    longer,                  vec![public, metrics]),
        ("with a port",       port,                    vec![public]),
        ("a beginning",       (misdirected, &first),   vec![]),
        ("a host of its own", (misdirected, &exact),   vec![public]),
    ];
    for (case, edit, expected) in cases {
        assert_findings(case, &replaced(edit), &expected);
    }
}

#[test]
fn the_ordinary_host_of_the_application_is_no_api_of_impersonations() {
    let host = |domain: &str, cluster: &str| {
        let name = "            - name: public\n";
        let host = format!(
            "            - {{name: ordinary, domains: [{domain}], request_headers_to_remove: [x-jwt-payload, x-impersonation-id, x-impersonator], routes: [{{match: {{prefix: /}}, route: {{cluster: {cluster}}}}}]}}\n{name}"
        );
        replaced((name, &host))
    };
    let past = "route /* of ordinary: ";
    let checked = |text: &str, hosts: &[&str]| {
        let mut flags = vec!["--assume-environment"];
        hosts.iter().for_each(|host| flags.extend(["--ordinary-host", *host]));
        check(&file("envoy.yaml", text), &flags)
    };
    let has = |checked: &Checked, text: &str| checked.lines.iter().any(|line| line.contains(text));
    let shop = host("shop.localhost", "shop");
    assert!(has(&checked(&shop, &[]), past));
    assert!(has(&checked(&shop, &["other.localhost"]), past));
    assert!(!has(&checked(&shop, &["other.localhost", "Shop.localhost"]), past));
    assert!(has(
        &checked(&host("shop.localhost, other.localhost", "shop"), &["shop.localhost"]),
        past
    ));
    // It is no way to the APIs.
    assert!(has(&checked(&host("shop.localhost", "apis"), &["shop.localhost"]), past));
    let (apart, site) = ("is not apart from the ordinary host", "warning: ");
    for (host, expected) in [
        ("localhost", Some(apart)),
        ("as-user.localhost", Some(apart)),
        ("a.as-user.localhost", Some(apart)),
        ("shop.localhost", None),
    ] {
        let checked = checked(&shipped(), &[host]);
        assert_eq!(has(&checked, apart), expected.is_some(), "{host}: {:#?}", checked.lines);
    }
    let text = shipped().replace("as-user.localhost", "as-user.shop.example");
    assert!(has(&checked(&text, &["www.shop.example"]), "seems to be of one site"), "{site}");
    assert!(!has(&checked(&text, &["www.shop.test"]), "seems to be of one site"));
}

/// The application believes the header fields that say whose session a request is of.
#[test]
fn the_ordinary_host_of_the_application_lets_nobody_say_whose_request_it_is() {
    let shipped = shipped();
    let (before, rest) = shipped.split_once("            # - name: shop\n").unwrap();
    let (host, after) = rest.split_once("\n\n").unwrap();
    let host =
        format!("            - name: shop\n{}", host.replace("            # ", "            "));
    let with = |host: &str| file("envoy.yaml", &format!("{before}{host}\n\n{after}"));
    let flags = ["--assume-environment", "--ordinary-host", "shop.localhost"];
    let found = |host: &str| {
        let checked = check(&with(host), &flags);
        let line = |line: &&String| line.contains("ordinary host must remove");
        checked.lines.iter().find(line).cloned()
    };
    assert_eq!(found(&host), None);
    let names = ["x-jwt-payload", "x-impersonation-id", "x-impersonator"];
    for name in names {
        let others = names.into_iter().filter(|other| *other != name).collect::<Vec<_>>();
        let host = host.replace(&names.join(", "), &others.join(", "));
        let line = found(&host).unwrap_or_else(|| panic!("{name}"));
        assert!(line.contains(&format!("must remove {name}:")), "{line}");
    }
}

/// A filter on the sessions' listener may be elsewhere than the one that exchanges.
#[test]
fn sessions_without_a_listener_are_a_warning() {
    let text = shipped();
    let (before, rest) = text.split_once("  # Browser sessions: the application").unwrap();
    let (_, after) = rest.split_once("  # For Prometheus").unwrap();
    let text = format!("{before}  # For Prometheus{after}");
    assert_findings(
        "no listener",
        &text,
        &["warning: no listener in this file has a guard for these sessions"],
    );
}
