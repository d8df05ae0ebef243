//! The probe on the hosts of browser sessions: it passes where they are as in the shipped
//! envoy.yaml, and names what another listener lets through.

use serde_json::{Value, json};

use super::{Probe, address};
use crate::browser_sessions::{
    COOKIE, DOMAIN, SHOP, SUPPORT_DESK, filter, jwt_authn_of_sessions, token_of_cookie,
};
use testkit::Findings;
use testkit::bootstrap::{Bootstrap, Cluster, Filter, Listener};
use testkit::configuration::{ORDERS, PROVIDER_KEY};
use testkit::guarded::{
    ACTOR_HEADER, API, Guarded, ID_HEADER, claims_with, for_impersonations, gateway_listener,
    guard, guard_configuration, guarded_listener, without_headers,
};
use testkit::server::{Server, as_asked};

/// The rule of these checks in a report.
const SESSIONS: &str = "a browser session does what its own pages ask for, and nothing else";

fn manager(listener: &mut Value) -> &mut Value {
    listener.pointer_mut("/filter_chains/0/filters/0/typed_config").unwrap()
}

/// Answers 421 to the hosts of sessions.
fn misdirect(listener: &mut Value) {
    let hosts = &mut manager(listener)["route_config"]["virtual_hosts"];
    hosts.as_array_mut().unwrap().push(json!({
        "name": "misdirected", "domains": [format!("*.{DOMAIN}")],
        "routes": [{
            "match": {"prefix": "/"},
            "direct_response": {"status": 421},
            "typed_per_filter_config": {"envoy.filters.http.jwt_authn": {
                "@type": "type.googleapis.com/envoy.extensions.filters.http.jwt_authn.v3.PerRouteConfig",
                "disabled": true,
            }},
        }],
    }));
}

/// Sends the tabs of ended sessions away.
fn lead_out(listener: &mut Value) {
    let header = |name: &str, exact: &str| json!({"header_filter": {"header": {"name": name, "string_match": {"exact": exact}}}});
    let status = json!({"status_code_filter": {"comparison": {
        "op": "EQ", "value": {"default_value": 401, "runtime_key": "unused"},
    }}});
    manager(listener)["local_reply_config"] = json!({"mappers": [{
        "filter": {"and_filter": {"filters": [
            status, header("sec-fetch-mode", "navigate"), header("sec-fetch-dest", "document"),
        ]}},
        "status_code": 303,
        "headers_to_add": [{
            "header": {"key": "location", "value": "https://support.example/ended"},
        }],
    }]});
}

fn no_store() -> Value {
    json!({
        "name": "no-store",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutation",
            "mutations": {"response_mutations": [{"append": {
                "header": {"key": "cache-control", "value": "no-store"},
                "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
            }}]},
        },
    })
}

/// A guard that knows that its hosts are those of sessions.
fn of_sessions() -> Value {
    guard(&guard_configuration(&json!({"browser_session": {"domain": DOMAIN}}))).into()
}

/// The filters before the guard.
fn before_the_guard(name: &str) -> Listener {
    let listener = Listener::new(name).filter(no_store()).filter(Filter::from(&filter()));
    let listener = token_of_cookie().into_iter().fold(listener, Listener::filter);
    let listener = listener.filter(jwt_authn_of_sessions());
    listener.filter(without_headers(&[ID_HEADER, ACTOR_HEADER]))
}

fn complete(listener: Listener, guard: Value) -> Listener {
    listener.filter(guard).route_to(API, "3s")
}

/// Takes the access token from everywhere, as `jwt_authn` would without the filters before it.
fn any_bearer(name: &str) -> Listener {
    let mut jwt_authn = jwt_authn_of_sessions();
    jwt_authn["typed_config"]["providers"]["ours"]["from_cookies"] = json!([COOKIE]);
    let listener = Listener::new(name).filter(no_store()).filter(Filter::from(&filter()));
    listener.filter(jwt_authn).filter(without_headers(&[ID_HEADER, ACTOR_HEADER]))
}

#[test]
fn a_probe_of_sessions_passes_where_they_hold_and_names_each_gap() {
    let api = Server::start(API);
    api.answer(as_asked);
    let apis = |members: &Value| guarded_listener(&guard_configuration(members));
    let for_apis = |members: &Value| guard(&guard_configuration(members));
    let without_store = |name: &str| {
        let listener = Listener::new(name).filter(Filter::from(&filter()));
        let listener = token_of_cookie().into_iter().fold(listener, Listener::filter);
        listener.filter(jwt_authn_of_sessions()).filter(without_headers(&[ID_HEADER, ACTOR_HEADER]))
    };
    let matched = guard_configuration(&json!({"browser_session": {"domain": DOMAIN}}));
    #[rustfmt::skip]
    let gaps = [
        ("matched",    complete(before_the_guard("matched"), for_impersonations(guard(&matched))).edited(lead_out),
            vec!["an ordinary token in the cookie does not read"]),
        ("for-apis",   complete(before_the_guard("for-apis"), for_apis(&json!({"default": "allow"})).into()).edited(lead_out),
            vec!["another session's host refuses the cookie", "a stranger's page frames nothing",
                "a stranger's page posts no form", "a sibling fetches nothing", "a sibling shows no image",
                "a sibling opens no WebSocket", "a WebSocket without an origin is refused"]),
        ("any-bearer", complete(any_bearer("any-bearer"), of_sessions()).edited(lead_out),
            vec!["a token outside of the cookie does not read"]),
        ("kept",       complete(without_store("kept"), of_sessions()).edited(lead_out),
            vec!["no cache keeps a page of a session"]),
        ("no-way-out", complete(before_the_guard("no-way-out"), of_sessions()),
            vec!["the tab of an ended session goes on to `ended`"]),
    ];
    let mut bootstrap = Bootstrap::default()
        .listener(complete(before_the_guard("sessions"), of_sessions()).edited(lead_out))
        .listener(gateway_listener(Filter::from(&filter())).edited(misdirect))
        .listener(apis(&json!({})).edited(misdirect))
        .cluster(Cluster::new(API, api.address).as_downstream());
    for (_, listener, _) in &gaps {
        bootstrap = bootstrap.listener(listener.clone());
    }
    let guarded = Guarded { envoy: bootstrap.start(), api };

    let ordinary = claims_with(&json!({"txn": null, "act": null, "aud": [ORDERS, SHOP]}));
    let gateway = address(&guarded, "gateway");
    let probe = |name: &str, api: &str| {
        let port = guarded.envoy.address(name).port();
        let probe = Probe::new("sessions", &gateway, &[api.to_owned()]);
        let ordinary = probe.file("ordinary-of-both", &PROVIDER_KEY.sign(&ordinary));
        let members = json!({
            "session": format!("http://{DOMAIN}:{port}"), "session_resource": SHOP,
            "session_scope": "shop", "session_origin": SUPPORT_DESK, "session_read": "/orders",
            "ordinary_token_file": ordinary, "echo": null,
        });
        probe.with(&members).run()
    };
    let api = address(&guarded, "guarded");
    let held = probe("sessions", &api);
    assert_eq!(held.failed(None), Vec::<&Value>::new(), "{}", held.printed);
    let tried = held.checks().iter().filter(|row| row["rule"] == SESSIONS && row["holds"] == true);
    assert!(tried.count() > 30, "{}", held.printed);
    held.expect_no_secret();

    let mut findings = Findings::default();
    for (name, _, expected) in &gaps {
        let probed = probe(name, &api);
        findings.expect(format!("{name}: {}", probed.printed), &probed.status, &Some(1));
        for check in expected {
            let is_found = probed.failed(None).iter().any(|row| row["check"] == *check);
            findings.expect(format!("{name}: {check}: {}", probed.printed), &is_found, &true);
        }
    }
}
