//! `impersonation-filter check` proves that the guard stands before an API. Each change to the
//! shipped configuration that `check` cannot prove safe is tried in Envoy, too: a request really
//! passes that the shipped configuration refuses. This shows that the warnings of `check` are
//! justified and that its proofs hold.
//!
//! All variants are listeners of one Envoy before one API. tests/envoy/probe.rs runs
//! `impersonation-filter probe` against the same listeners. `check` reads the file that this Envoy
//! was started with. The same changes to envoy.yaml are in `crates/cli/tests/cli/check_guard.rs`,
//! and some that are not here:
//!
//! - Stores that differ: a guard that asks a missing etcd answers 503, and `guard::etcd` tests
//!   one that asks another etcd.
//! - Another key set by `remote_jwks`: the effect is that of `local_jwks` without the filter's key,
//!   tested here.
//! - Listeners and routes from elsewhere: `check` cannot see them.
//! - Two listeners of one name or one address: Envoy drops the second, or does not start.
//! - The demo's secret, a public admin interface, no operator who can end anything: no request to
//!   an API shows those.

use std::process::Command;

use serde_json::{Value, json};

use testkit::Findings;
use testkit::artifacts::COMPANION;
use testkit::bootstrap::{Bootstrap, Cluster, Filter, Listener};
use testkit::configuration::{ISSUER, ORDERS, PAYMENTS, PROVIDER_KEY, SIGNING_KEY, jwks};
use testkit::guarded::{
    ACTOR_HEADER, API, Guarded, ID_HEADER, OTHER_ISSUER, Parties, claims_with, connect,
    filter_configuration, for_impersonations, gateway_listener, guard, guard_configuration,
    ordinary_token, without_headers,
};
use testkit::http::Request;
use testkit::server::{Received, Server, as_asked};

/// A change to the shipped configuration.
pub(crate) struct Variant {
    pub(crate) name: &'static str,
    edit: fn(&mut Value),
    /// The finding of `check` about its routes.
    finding: &'static str,
    pub(crate) shown_by: Shown,
}

/// The way to show in Envoy that the warning is right.
pub(crate) enum Shown {
    /// A write of an impersonation that was ended reaches the API.
    ByTheEnded,
    /// This request reaches the API, and does harm there.
    By(fn(&Tokens) -> Request, fn(&Received) -> bool),
    /// The change fails closed: live impersonations do not reach the API.
    ByRefusals,
    /// The change alone is harmless, for this reason: two settings must both be wrong.
    Not(&'static str),
}

/// The access tokens of an ended and of a live impersonation.
pub(crate) struct Tokens {
    ended: String,
    live: String,
}

/// The path that no impersonation may write.
pub(crate) const LOCKED: &str = "/orders/locked";

const BEHIND: &str = "/filter_chains/0/filters/0/typed_config";

fn manager(listener: &mut Value) -> &mut Value {
    listener.pointer_mut(BEHIND).unwrap()
}

fn filters(listener: &mut Value) -> &mut Vec<Value> {
    manager(listener)["http_filters"].as_array_mut().unwrap()
}

fn jwt_authn(listener: &mut Value) -> &mut Value {
    let filter = filters(listener)
        .iter_mut()
        .find(|filter| filter["name"] == "envoy.filters.http.jwt_authn");
    &mut filter.unwrap()["typed_config"]
}

fn provider(listener: &mut Value) -> &mut Value {
    &mut jwt_authn(listener)["providers"]["orders"]
}

fn guards_entry(listener: &mut Value) -> &mut Value {
    filters(listener).iter_mut().find(|filter| filter["name"] == "impersonation-guard").unwrap()
}

fn matchers(listener: &mut Value) -> &mut Vec<Value> {
    let matchers = "/typed_config/xds_matcher/matcher_list/matchers";
    guards_entry(listener).pointer_mut(matchers).unwrap().as_array_mut().unwrap()
}

fn action(listener: &mut Value) -> &mut Value {
    &mut matchers(listener)[0]["on_match"]["action"]["typed_config"]
}

fn plugin(listener: &mut Value) -> &mut Value {
    &mut action(listener)["typed_config"]["typed_config"]["config"]
}

fn guards(listener: &mut Value) -> &mut Value {
    &mut plugin(listener)["configuration"]["value"]
}

/// The API's route. The route before it is the same on every listener of these tests.
fn route(listener: &mut Value) -> &mut Value {
    &mut manager(listener)["route_config"]["virtual_hosts"][0]["routes"][1]
}

fn without(value: &mut Value, member: &str) {
    assert!(value.as_object_mut().unwrap().remove(member).is_some(), "{member}");
}

fn setting(listener: &mut Value, filter: &str, setting: Value) {
    route(listener)["typed_per_filter_config"][filter] = setting;
}

fn off() -> Value {
    json!({"@type": "type.googleapis.com/envoy.config.route.v3.FilterConfig", "disabled": true})
}

/// The listener of envoy.yaml.
fn shipped(name: &str) -> Listener {
    let jwt_authn = json!({
        "name": "envoy.filters.http.jwt_authn",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication",
            "providers": {"orders": {
                "issuer": ISSUER,
                "audiences": [ORDERS],
                "from_headers": [{"name": "Authorization", "value_prefix": "Bearer "}],
                "local_jwks": jwks(&[&SIGNING_KEY, &PROVIDER_KEY]),
                "forward_payload_header": "x-jwt-payload",
                "payload_in_metadata": "access_token",
            }},
            "requirement_map": {"orders": {"provider_name": "orders"}},
        },
    });
    let configuration = guard_configuration(&json!({
        "rules": [
            {"path": LOCKED, "action": "deny"},
            {"path_prefix": "/orders", "methods": ["POST"], "action": "allow"},
        ],
    }));
    Listener::new(name)
        .filter(jwt_authn)
        .filter(without_headers(&[ID_HEADER, ACTOR_HEADER]))
        .filter(for_impersonations(guard(&configuration)))
        .route(json!({
            "match": {"path_separated_prefix": "/orders"},
            "route": {"cluster": API, "timeout": "0s"},
            "typed_per_filter_config": {"envoy.filters.http.jwt_authn": {
                "@type": "type.googleapis.com/envoy.extensions.filters.http.jwt_authn.v3.PerRouteConfig",
                "requirement_name": "orders",
            }},
        }))
        .edited(|listener| {
            let manager = manager(listener);
            manager["normalize_path"] = true.into();
            manager["merge_slashes"] = true.into();
            manager["path_with_escaped_slashes_action"] = "UNESCAPE_AND_REDIRECT".into();
        })
}

fn anything(_: &Received) -> bool {
    true
}

/// An ordinary user's token that is bound to a key, which nobody proves.
fn bound_token() -> String {
    let cnf = json!({"jkt": "a-key"});
    PROVIDER_KEY.sign(&claims_with(&json!({"txn": null, "act": null, "cnf": cnf})))
}

fn write_of_the_ended(tokens: &Tokens) -> Request {
    Request::post("/orders/1").bearer(&tokens.ended)
}

/// A request with an ordinary token where the guard looks, and the impersonation's where the API
/// looks.
fn with_a_second_token(tokens: &Tokens) -> Request {
    let target = format!("/orders/1?access_token={}", tokens.ended);
    Request::post(&target).bearer(&ordinary_token())
}

/// Returns true if the API gets the claims of the second token as verified.
fn claims_are_of_the_second_token(received: &Received) -> bool {
    let in_query = received.target.split_once("access_token=").map(|(_, token)| token);
    let token = in_query.or_else(|| received.header("x-token")).unwrap();
    let claims = token.split('.').nth(1).unwrap();
    let told = received.headers.iter().filter(|(name, _)| name == "x-jwt-payload");
    told.into_iter().any(|(_, value)| String::from_utf8_lossy(value).contains(claims))
}

#[rustfmt::skip]
pub(crate) const VARIANTS: &[Variant] = &[
    Variant { name: "disabled-in-the-chain", finding: "the guard is disabled", shown_by: Shown::ByTheEnded,
        edit: |listener| guards_entry(listener)["disabled"] = true.into() },
    Variant { name: "disabled-on-the-route", finding: "switches the guard off", shown_by: Shown::ByTheEnded,
        edit: |listener| setting(listener, "impersonation-guard", off()) },
    Variant { name: "for-no-sample", finding: "sample_percent enters the guard for a part", shown_by: Shown::ByTheEnded,
        edit: |listener| action(listener)["sample_percent"] = json!({"default_value": {"numerator": 0}}) },
    Variant { name: "skipped-first", finding: "has not exactly one entry", shown_by: Shown::ByTheEnded,
        edit: |listener| {
            let mut skip = matchers(listener)[0].clone();
            skip["on_match"]["action"] = json!({"name": "skip", "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.common.matcher.action.v3.SkipFilter",
            }});
            matchers(listener).insert(0, skip);
        } },
    Variant { name: "not-matched", finding: "not_matcher is not part of the guard's entry", shown_by: Shown::ByTheEnded,
        edit: |listener| {
            let predicate = matchers(listener)[0]["predicate"].take();
            matchers(listener)[0]["predicate"] = json!({"not_matcher": predicate});
        } },
    Variant { name: "matched-by-value", finding: "must be entered where access_token.txn", shown_by: Shown::ByTheEnded,
        edit: |listener| {
            let value = json!({"string_match": {"exact": "x"}});
            matchers(listener)[0]["predicate"]["or_matcher"]["predicate"][0]["single_predicate"]["custom_match"]["typed_config"]["value"] = value;
        } },
    Variant { name: "bound-tokens-pass", finding: "the guard is not entered for cnf",
        shown_by: Shown::By(|_| Request::post("/orders/1").bearer(&bound_token()), anything),
        edit: |listener| {
            let first = matchers(listener)[0]["predicate"]["or_matcher"]["predicate"][0].take();
            matchers(listener)[0]["predicate"] = first;
        } },
    Variant { name: "another-matcher-on-the-route", finding: "as ExtensionWithMatcherPerRoute does", shown_by: Shown::ByTheEnded,
        edit: |listener| {
            let mut matcher = guards_entry(listener)["typed_config"]["xds_matcher"].clone();
            let matched = "/matcher_list/matchers/0/predicate/or_matcher/predicate/0/single_predicate/custom_match/typed_config/value";
            *matcher.pointer_mut(matched).unwrap() = json!({"string_match": {"exact": "x"}});
            setting(listener, "impersonation-guard", json!({
                "@type": "type.googleapis.com/envoy.extensions.common.matching.v3.ExtensionWithMatcherPerRoute",
                "xds_matcher": matcher,
            }));
        } },
    Variant { name: "no-guard", finding: "no guard stands behind it", shown_by: Shown::ByTheEnded,
        edit: |listener| filters(listener).retain(|filter| filter["name"] != "impersonation-guard") },
    Variant { name: "neither", finding: "neither jwt_authn nor the guard stands before it", shown_by: Shown::ByTheEnded,
        edit: |listener| {
            filters(listener).retain(|filter| filter["name"] == "envoy.filters.http.router");
            without(route(listener), "typed_per_filter_config");
        } },
    Variant { name: "by-tcp", finding: "tcp_proxy passes connections on to api", shown_by: Shown::ByTheEnded,
        edit: |listener| listener["filter_chains"][0]["filters"][0] = json!({
            "name": "envoy.filters.network.tcp_proxy",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
                "stat_prefix": "tcp", "cluster": API,
            },
        }) },
    Variant { name: "missing-allowed", finding: "allow_missing lets requests pass",
        shown_by: Shown::By(|tokens| Request::post("/orders/1").header("authorization", format!("bearer {}", tokens.ended)), anything),
        edit: |listener| jwt_authn(listener)["requirement_map"]["orders"] =
            json!({"requires_any": {"requirements": [{"provider_name": "orders"}, {"allow_missing": {}}]}}) },
    Variant { name: "missing-allowed-by-all", finding: "allow_missing lets requests pass",
        shown_by: Shown::By(|tokens| Request::post("/orders/1").header("authorization", format!("bearer {}", tokens.ended)), anything),
        edit: |listener| jwt_authn(listener)["requirement_map"]["orders"] =
            json!({"requires_all": {"requirements": [{"requires_any": {"requirements": [{"provider_name": "orders"}, {"allow_missing": {}}]}}, {"allow_missing": {}}]}}) },
    Variant { name: "failures-allowed", finding: "allow_missing_or_failed lets requests pass",
        shown_by: Shown::By(|tokens| Request::post("/orders/1").header("authorization", format!("bearer {}", tokens.ended)), anything),
        edit: |listener| jwt_authn(listener)["requirement_map"]["orders"] =
            json!({"requires_any": {"requirements": [{"provider_name": "orders"}, {"allow_missing_or_failed": {}}]}}) },
    Variant { name: "unverified", finding: "jwt_authn is disabled here", shown_by: Shown::ByTheEnded,
        edit: |listener| setting(listener, "envoy.filters.http.jwt_authn", off()) },
    Variant { name: "unverified-by-its-own", finding: "jwt_authn is disabled here", shown_by: Shown::ByTheEnded,
        edit: |listener| setting(listener, "envoy.filters.http.jwt_authn", json!({
            "@type": "type.googleapis.com/envoy.extensions.filters.http.jwt_authn.v3.PerRouteConfig", "disabled": true,
        })) },
    Variant { name: "nothing-required", finding: "no rule of jwt_authn is certain to match", shown_by: Shown::ByTheEnded,
        edit: |listener| without(route(listener), "typed_per_filter_config") },
    Variant { name: "required-elsewhere", finding: "no rule of jwt_authn is certain to match", shown_by: Shown::ByTheEnded,
        edit: |listener| {
            without(route(listener), "typed_per_filter_config");
            jwt_authn(listener)["rules"] = json!([{"match": {"prefix": "/orders/private"}, "requirement_name": "orders"}]);
        } },
    Variant { name: "any-issuer", finding: "the provider has no issuer",
        shown_by: Shown::By(|_| Request::post("/orders/1").bearer(&SIGNING_KEY.sign(&claims_with(&json!({"iss": OTHER_ISSUER, "txn": null})))), anything),
        edit: |listener| without(provider(listener), "issuer") },
    Variant { name: "any-audience", finding: "the provider has no audiences",
        shown_by: Shown::By(|_| Request::post("/orders/1").bearer(&SIGNING_KEY.sign(&claims_with(&json!({"aud": PAYMENTS, "txn": null})))), anything),
        edit: |listener| without(provider(listener), "audiences") },
    Variant { name: "from-anywhere", finding: "the provider has no from_headers, so jwt_authn takes `?access_token=` too, and forward",
        shown_by: Shown::By(with_a_second_token, claims_are_of_the_second_token),
        edit: |listener| {
            without(provider(listener), "from_headers");
            provider(listener)["forward"] = true.into();
        } },
    Variant { name: "from-the-query", finding: "takes tokens from elsewhere than a header",
        shown_by: Shown::By(with_a_second_token, claims_are_of_the_second_token),
        edit: |listener| {
            provider(listener)["from_params"] = json!(["access_token"]);
            provider(listener)["forward"] = true.into();
        } },
    Variant { name: "from-two-headers", finding: "takes tokens from another header than Authorization",
        shown_by: Shown::By(
            |tokens| Request::post("/orders/1").bearer(&ordinary_token()).header("x-token", &tokens.ended),
            claims_are_of_the_second_token,
        ),
        edit: |listener| {
            provider(listener)["from_headers"] = json!([{"name": "x-token"}, {"name": "Authorization", "value_prefix": "Bearer "}]);
            provider(listener)["forward"] = true.into();
        } },
    Variant { name: "claims-elsewhere", finding: "payload_in_metadata must be \"access_token\"", shown_by: Shown::ByTheEnded,
        edit: |listener| provider(listener)["payload_in_metadata"] = "claims".into() },
    Variant { name: "claims-in-two-places", finding: "of several providers not all have the same payload_in_metadata", shown_by: Shown::ByTheEnded,
        edit: |listener| {
            let mut second = provider(listener).clone();
            second["payload_in_metadata"] = "claims".into();
            jwt_authn(listener)["providers"]["second"] = second;
            jwt_authn(listener)["requirement_map"]["orders"] =
                json!({"requires_any": {"requirements": [{"provider_name": "second"}, {"provider_name": "orders"}]}});
        } },
    Variant { name: "verified-afterwards", finding: "the guard stands before jwt_authn", shown_by: Shown::ByTheEnded,
        edit: |listener| filters(listener).swap(0, 2) },
    Variant { name: "changed-in-between", finding: "between jwt_authn and the guard could change", shown_by: Shown::ByTheEnded,
        edit: |listener| filters(listener).insert(1, json!({
            "name": "strips",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua",
                "default_source_code": {"inline_string":
                    "function envoy_on_request(handle) handle:streamInfo():dynamicMetadata():set('envoy.filters.http.jwt_authn', 'access_token', {}) end"},
            },
        })) },
    Variant { name: "forged-headers", finding: "needs a header_mutation before it that removes x-impersonator", 
        shown_by: Shown::By(forged, |received| received.header(ACTOR_HEADER) == Some("agent-7")),
        edit: |listener| filters(listener).retain(|filter| filter["name"] != "envoy.filters.http.header_mutation") },
    Variant { name: "odd-names-pass", finding: "removes the names of remove_on_match",
        shown_by: Shown::By(
            |_| Request::post("/orders/1").bearer(&ordinary_token()).header("x!jwt!payload", "forged"),
            |received| received.header("x!jwt!payload") == Some("forged"),
        ),
        edit: |listener| {
            let removes = filters(listener).iter_mut().find(|one| one["name"] == "envoy.filters.http.header_mutation");
            let mutations = &mut removes.unwrap()["typed_config"]["mutations"]["request_mutations"];
            mutations.as_array_mut().unwrap().retain(|one| one["remove_on_match"].is_null());
        } },
    Variant { name: "forged-headers-on-the-route", finding: "the header_mutation that removes x-impersonator is disabled here",
        shown_by: Shown::By(forged, |received| received.header(ACTOR_HEADER) == Some("agent-7")),
        edit: |listener| setting(listener, "envoy.filters.http.header_mutation", off()) },
    Variant { name: "headers-written-on-the-route", finding: "x-impersonator is written here",
        shown_by: Shown::By(forged, |received| received.header(ACTOR_HEADER) == Some("agent-7")),
        edit: |listener| setting(listener, "envoy.filters.http.header_mutation", json!({
            "@type": "type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutationPerRoute",
            "mutations": {"request_mutations": [{"append": {"header": {"key": "x-impersonator", "value": "agent-7"}}}]},
        })) },
    Variant { name: "preflights-pass", finding: "bypass_cors_preflight lets OPTIONS pass",
        shown_by: Shown::By(
            |tokens| Request::new("OPTIONS", "/orders/1").bearer(&tokens.ended)
                .header("origin", "https://a.example").header("access-control-request-method", "POST"),
            anything,
        ),
        edit: |listener| jwt_authn(listener)["bypass_cors_preflight"] = true.into() },
    Variant { name: "told-nothing", finding: "strip_failure_response takes WWW-Authenticate",
        shown_by: Shown::Not("refusals lack a header; none becomes an answer"),
        edit: |listener| jwt_authn(listener)["strip_failure_response"] = true.into() },
    Variant { name: "reported", finding: "mode: report refuses nothing", shown_by: Shown::ByTheEnded,
        edit: |listener| guards(listener)["mode"] = "report".into() },
    Variant { name: "all-allowed-first", finding: "rules[0] is about all that it is about, and comes first",
        shown_by: Shown::By(|tokens| Request::new("DELETE", "/orders/1").bearer(&tokens.live), anything),
        edit: |listener| guards(listener)["rules"] = json!([
            {"path_prefix": "/", "action": "allow"}, {"path_prefix": "/orders", "action": "deny"},
        ]) },
    Variant { name: "other-vm", finding: "the guard's vm_id must be the same", shown_by: Shown::ByTheEnded,
        edit: |listener| plugin(listener)["vm_config"]["vm_id"] = "guard".into() },
    Variant { name: "other-service", finding: "must have issuer and base_path of the filter", shown_by: Shown::ByTheEnded,
        edit: |listener| guards(listener)["base_path"] = "/tenant".into() },
    Variant { name: "guard-of-another", finding: "must have issuer and base_path of the filter", shown_by: Shown::ByRefusals,
        edit: |listener| guards(listener)["issuer"] = ISSUER.replace("auth", "Auth").into() },
    Variant { name: "issuer-misspelt", finding: "is not quite the filter's", shown_by: Shown::ByRefusals,
        edit: |listener| provider(listener)["issuer"] = format!("{ISSUER}/").into() },
    Variant { name: "indicator-misspelt", finding: "no resource of the filter has one of the provider's audiences", shown_by: Shown::ByRefusals,
        edit: |listener| provider(listener)["audiences"] = json!([ORDERS.replace("orders", "order")]) },
    Variant { name: "keys-of-the-provider-alone", finding: "local_jwks has no key of the filter", shown_by: Shown::ByRefusals,
        edit: |listener| provider(listener)["local_jwks"] = jwks(&[&PROVIDER_KEY]) },
    Variant { name: "paths-as-they-come", finding: "normalize_path is not true",
        shown_by: Shown::Not("no other route leads to the API, and the guard allows no path that is not normal"),
        edit: |listener| without(manager(listener), "normalize_path") },
    Variant { name: "slashes-as-they-come", finding: "merge_slashes is not true",
        shown_by: Shown::Not("no other route leads to the API, and the guard allows no path that is not normal"),
        edit: |listener| without(manager(listener), "merge_slashes") },
    Variant { name: "escapes-as-they-come", finding: "path_with_escaped_slashes_action leaves",
        shown_by: Shown::Not("no other route leads to the API, and the guard allows no path that is not normal"),
        edit: |listener| without(manager(listener), "path_with_escaped_slashes_action") },
];

fn forged(_: &Tokens) -> Request {
    Request::post("/orders/1").bearer(&ordinary_token()).header(ACTOR_HEADER, "agent-7")
}

/// Starts an Envoy with the shipped listener and each variant of it before one API.
pub(crate) fn start(api: Server) -> Guarded {
    let bootstrap = Bootstrap::default()
        .listener(shipped("shipped"))
        .listener(gateway_listener(Filter::from(&filter_configuration())))
        .cluster(Cluster::new(API, api.address).as_downstream());
    let bootstrap = VARIANTS.iter().fold(bootstrap, |bootstrap, variant| {
        bootstrap.listener(shipped(variant.name).edited(variant.edit))
    });
    Guarded { envoy: bootstrap.start(), api }
}

#[test]
fn each_shape_that_check_cannot_prove_is_unsafe_and_the_proved_one_is_safe() {
    let api = Server::start(API);
    api.answer(as_asked);
    let guarded = start(api);
    let ended = guarded.begin(&Parties::new());
    let live = guarded.begin(&Parties::new()).access_token;
    guarded.revoke(&json!({"userId": user_of(&ended.access_token)}));
    let tokens = Tokens { ended: ended.access_token, live };

    let sent = |listener: &str, request: &Request, harms: fn(&Received) -> bool| {
        let answer = connect(&guarded.envoy, listener).send(request);
        guarded.api.received_for(&answer).is_some_and(|received| harms(&received))
    };
    let said = checked(&guarded);
    let of_shipped =
        said.iter().filter(|line| line.contains("listener shipped")).collect::<Vec<_>>();
    assert_eq!(of_shipped, Vec::<&String>::new());

    let read = Request::get("/orders/1").bearer(&tokens.live);
    assert!(sent("shipped", &read, anything), "a live impersonation reads");
    let mut findings = Findings::default();
    for Variant { name, finding, shown_by, .. } in VARIANTS {
        let about = format!("listener {name}");
        let told = said.iter().any(|line| {
            let names_route = line.contains(&format!("{about}, route /orders: "))
                || line.contains(&format!("{about}: tcp_proxy"));
            names_route && line.contains(finding)
        });
        if !told {
            let lines: Vec<_> = said.iter().filter(|line| line.contains(&about)).collect();
            findings.add(format!("{name}: not {finding:?} but {lines:#?}"));
        }
        let (request, harms): (Request, fn(&Received) -> bool) = match shown_by {
            Shown::ByTheEnded => (write_of_the_ended(&tokens), anything),
            Shown::By(request, harms) => (request(&tokens), *harms),
            Shown::ByRefusals => {
                findings.expect(
                    format!("{name}, a live read"),
                    &sent(name, &read, anything),
                    &false,
                );
                continue;
            }
            Shown::Not(why) => {
                findings.expect(
                    format!("{name}: {why}"),
                    &sent(name, &write_of_the_ended(&tokens), anything),
                    &false,
                );
                continue;
            }
        };
        findings.expect(format!("{name}: passes"), &sent(name, &request, harms), &true);
        findings.expect(format!("{name}, as shipped"), &sent("shipped", &request, harms), &false);
    }
}

fn user_of(token: &str) -> String {
    testkit::gateway::raw_part(token, 1)["sub"].as_str().unwrap().to_owned()
}

/// Returns the findings of `check` about the file that an Envoy was started with.
fn checked(guarded: &Guarded) -> Vec<String> {
    let file = guarded.envoy.directory().join("envoy.json");
    let output = Command::new(&*COMPANION).arg("check").arg(file).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    text.lines().map(str::to_owned).collect()
}
