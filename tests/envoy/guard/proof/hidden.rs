//! Changes to the shipped listener that only a particular request shows: one that asks for another
//! cluster, another path or another protocol.

use serde_json::{Value, json};

use testkit::guarded::API;
use testkit::http::Request;

use super::{
    ANYWHERE, ELSEWHERE, LOCKED, Shown, Tokens, Variant, anything, filters, manager, route,
    without_guard, write_of_the_ended,
};

/// A write that the guard allows, with the path of one that it does not.
fn moved(tokens: &Tokens) -> Request {
    Request::post("/orders/1").bearer(&tokens.live).header("x-path", LOCKED)
}

/// Puts a filter between the guard and the router.
fn behind(listener: &mut Value, filter: Value) {
    let last = filters(listener).len() - 1;
    filters(listener).insert(last, filter);
}

fn lua(code: &str) -> Value {
    json!({"name": "moves", "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua",
        "default_source_code": {"inline_string": code},
    }})
}

const MOVE: &str = "function envoy_on_request(handle) local path = handle:headers():get('x-path') if path then handle:headers():replace(':path', path) end end";

#[rustfmt::skip]
pub(super) const HIDDEN: &[Variant] = &[
    Variant { name: "chosen-by-a-header", finding: "the request decides where it leads",
        shown_by: Shown::By(|tokens| write_of_the_ended(tokens).header("x-cluster", API), anything),
        edit: |listener| {
            without_guard(listener);
            route(listener)["route"] = json!({"clusterHeader": "x-cluster"});
        } },
    Variant { name: "chosen-by-a-plugin", finding: "the request decides where it leads", shown_by: Shown::ByTheEnded,
        edit: |listener| {
            without_guard(listener);
            route(listener)["route"] = json!({"inline_cluster_specifier_plugin": {"extension": {
                "name": "lua",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.router.cluster_specifiers.lua.v3.LuaConfig",
                    "source_code": {"inline_string": "function envoy_on_route(handle) return 'api' end"},
                    "default_cluster": ELSEWHERE,
                },
            }}});
        } },
    Variant { name: "anywhere-by-a-header", finding: "is of a kind that may lead to any server",
        shown_by: Shown::By(|tokens| write_of_the_ended(tokens).header("x-envoy-original-dst-host", tokens.api.to_string()), anything),
        edit: |listener| {
            without_guard(listener);
            route(listener)["route"]["cluster"] = ANYWHERE.into();
        } },
    Variant { name: "by-a-mirror", finding: "Envoy sends a copy of each request on, and the cluster \"api\" is a guarded API's", shown_by: Shown::ByACopy,
        edit: |listener| {
            without_guard(listener);
            route(listener)["route"] = json!({"cluster": ELSEWHERE, "request_mirror_policies": {"cluster": API}});
        } },
    Variant { name: "by-a-mirror-of-the-table", finding: "Envoy sends a copy of each request on, and the cluster \"api\" is a guarded API's", shown_by: Shown::ByACopy,
        edit: |listener| {
            without_guard(listener);
            route(listener)["route"]["cluster"] = ELSEWHERE.into();
            manager(listener)["route_config"]["requestMirrorPolicies"] = json!([{"cluster": API}]);
        } },
    Variant { name: "other-filters-for-an-upgrade", finding: "passes these filters in place of jwt_authn and guard",
        shown_by: Shown::By(|tokens| write_of_the_ended(tokens).header("connection", "upgrade").header("upgrade", "websocket"), anything),
        edit: |listener| manager(listener)["upgrade_configs"] = json!([{"upgrade_type": "websocket", "filters": [{
            "name": "envoy.filters.http.router",
            "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"},
        }]}]) },
    Variant { name: "moved-behind-the-guard", finding: "behind the guard is not known to leave the request",
        shown_by: Shown::By(moved, |received| received.target == LOCKED),
        edit: |listener| behind(listener, lua(MOVE)) },
    Variant { name: "moved-behind-the-router", finding: "between the router and the API is not known to leave the request",
        shown_by: Shown::By(moved, |received| received.target == LOCKED),
        edit: |listener| {
            let router = filters(listener).last_mut().unwrap();
            router["typed_config"]["upstream_http_filters"] = json!([lua(MOVE), {
                "name": "envoy.filters.http.upstream_codec",
                "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.upstream_codec.v3.UpstreamCodec"},
            }]);
        } },
];
