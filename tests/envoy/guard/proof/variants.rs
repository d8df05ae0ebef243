//! Changes to the shipped listener that show from outside: `impersonation-filter probe` finds them,
//! too.

use std::collections::HashMap;

use serde_json::json;

use testkit::configuration::{ISSUER, ORDERS, PAYMENTS, PROVIDER_KEY, SIGNING_KEY, jwks};
use testkit::guarded::{ACTOR_HEADER, API, OTHER_ISSUER, claims_with, ordinary_token};
use testkit::http::Request;

use super::{
    AGGREGATE, SAME_ADDRESS, Shown, Variant, action, anything, claims_are_of_the_second_token,
    filters, forged, guards, guards_entry, jwt_authn, manager, matchers, off, plugin, provider,
    route, setting, with_a_second_token, without, without_guard,
};

/// An ordinary user's token that is bound to a key, which nobody proves.
fn bound_token() -> String {
    let cnf = json!({"jkt": "a-key"});
    PROVIDER_KEY.sign(&claims_with(&json!({"txn": null, "act": null, "cnf": cnf})))
}

/// The capabilities of a guard that is not shown any request: all that it asks for when it starts.
#[rustfmt::skip]
const CAPABILITIES: [&str; 19] = [
    "proxy_on_vm_start", "proxy_on_configure", "proxy_on_tick", "proxy_on_context_create", "proxy_on_delete",
    "proxy_on_memory_allocate", "proxy_log", "proxy_get_buffer_bytes", "proxy_get_shared_data",
    "proxy_set_shared_data", "proxy_define_metric", "proxy_increment_metric", "proxy_record_metric",
    "proxy_set_tick_period_milliseconds", "proxy_get_current_time_nanoseconds", "proxy_get_property",
    "random_get", "clock_time_get", "proxy_call_foreign_function",
];

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
    Variant { name: "nothing-in-the-requirement", finding: "an empty requirement lets every request pass", shown_by: Shown::ByTheEnded,
        edit: |listener| jwt_authn(listener)["requirement_map"]["orders"] = json!({}) },
    Variant { name: "nothing-by-a-rule", finding: "an empty requirement lets every request pass", shown_by: Shown::ByTheEnded,
        edit: |listener| {
            without(route(listener), "typed_per_filter_config");
            jwt_authn(listener)["rules"] = json!([{"match": {"prefix": "/"}, "requires": {}}]);
        } },
    Variant { name: "nothing-as-one-of-several", finding: "an empty requirement lets every request pass",
        shown_by: Shown::By(|tokens| Request::post("/orders/1").header("authorization", format!("bearer {}", tokens.ended)), anything),
        edit: |listener| jwt_authn(listener)["requirement_map"]["orders"] =
            json!({"requires_any": {"requirements": [{"provider_name": "orders"}, {}]}}) },
    Variant { name: "null-as-one-of-several", finding: "an empty requirement lets every request pass",
        shown_by: Shown::By(|tokens| Request::post("/orders/1").header("authorization", format!("bearer {}", tokens.ended)), anything),
        edit: |listener| jwt_authn(listener)["requirement_map"]["orders"] =
            json!({"requiresAny": {"requirements": [null, {"providerName": "orders"}]}}) },
    Variant { name: "of-another-issuer", finding: "no provider that it requires has the issuer of the filter", shown_by: Shown::ByRefusals,
        edit: |listener| provider(listener)["issuer"] = OTHER_ISSUER.into() },
    Variant { name: "claims-written-in-between", finding: "between jwt_authn and the guard could change", shown_by: Shown::ByTheEnded,
        edit: |listener| filters(listener).insert(1, json!({
            "name": "notes",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.http.header_to_metadata.v3.Config",
                "request_rules": [{"header": "x-note", "on_header_missing": {
                    "metadata_namespace": "envoy.filters.http.jwt_authn", "key": "access_token", "value": "none",
                }}],
            },
        })) },
    Variant { name: "the-header-in-place-of-the-claims", finding: "header_in_metadata overwrites the claims",
        shown_by: Shown::Not("this Envoy writes the claims last"),
        edit: |listener| provider(listener)["header_in_metadata"] = "access_token".into() },
    Variant { name: "shown-no-requests", finding: "capability_restriction_config is not known to let the guard see", shown_by: Shown::ByTheEndedInTheNewest,
        edit: |listener| plugin(listener)["capability_restriction_config"] = json!({
            "allowed_capabilities": HashMap::from(CAPABILITIES.map(|name| (name, json!({})))),
        }) },
    Variant { name: "header-written-by-the-route", finding: "x-impersonator is written here",
        shown_by: Shown::By(forged, |received| received.header(ACTOR_HEADER) == Some("agent-7")),
        edit: |listener| route(listener)["request_headers_to_add"] =
            json!([{"header": {"key": "X-Impersonator", "value": "agent-7"}}]) },
    Variant { name: "by-the-same-address", finding: "has the address localhost:", shown_by: Shown::ByTheEnded,
        edit: |listener| {
            without_guard(listener);
            route(listener)["route"]["cluster"] = SAME_ADDRESS.into();
        } },
    Variant { name: "by-an-aggregate", finding: "has \"api\" inside, where a guarded API is", shown_by: Shown::ByTheEnded,
        edit: |listener| {
            without_guard(listener);
            route(listener)["route"]["cluster"] = AGGREGATE.into();
        } },
    Variant { name: "by-tcp-to-the-same-address", finding: "tcp_proxy passes connections on to the-same-address", shown_by: Shown::ByTheEnded,
        edit: |listener| listener["filter_chains"] = json!({"filters": {
            "name": "envoy.filters.network.tcp_proxy",
            "typedConfig": {
                "@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
                "statPrefix": "tcp", "cluster": SAME_ADDRESS,
            },
        }}) },
    Variant { name: "disabled-by-a-string", finding: "the guard is disabled", shown_by: Shown::ByTheEnded,
        edit: |listener| guards_entry(listener)["disabled"] = "true".into() },
    Variant { name: "disabled-by-one-letter-on-the-route", finding: "switches the guard off", shown_by: Shown::ByTheEnded,
        edit: |listener| setting(listener, "impersonation-guard", json!({
            "@type": "any.example/envoy.config.route.v3.FilterConfig", "disabled": "T",
        })) },
    Variant { name: "preflights-pass-by-a-string", finding: "bypass_cors_preflight lets OPTIONS pass",
        shown_by: Shown::By(
            |tokens| Request::new("OPTIONS", "/orders/1").bearer(&tokens.ended)
                .header("origin", "https://a.example").header("access-control-request-method", "POST"),
            anything,
        ),
        edit: |listener| jwt_authn(listener)["bypassCorsPreflight"] = "yes".into() },
    Variant { name: "for-no-sample-in-another-spelling", finding: "sample_percent enters the guard for a part", shown_by: Shown::ByTheEnded,
        edit: |listener| action(listener)["samplePercent"] = json!({"defaultValue": {"numerator": "0", "denominator": 2}}) },
];
