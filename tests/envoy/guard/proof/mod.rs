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
//! - Listeners, routes, clusters and filters from elsewhere: `check` cannot see them.
//! - A guard whose code is not there: Envoy does not start.
//! - Two listeners of one name or one address: Envoy drops the second, or does not start.
//! - The demo's secret, a public admin interface, no operator who can end anything: no request to
//!   an API shows those.

mod hidden;
mod variants;

use std::net::SocketAddr;
use std::process::Command;

use serde_json::{Value, json};

use testkit::artifacts::{COMPANION, ENVOY_VERSION};
use testkit::bootstrap::{Bootstrap, Cluster, Filter, Listener};
use testkit::configuration::{ISSUER, ORDERS, PROVIDER_KEY, SIGNING_KEY, jwks};
use testkit::guarded::{
    ACTOR_HEADER, API, Guarded, ID_HEADER, Parties, connect, filter_configuration,
    for_impersonations, gateway_listener, guard, guard_configuration, ordinary_token,
    without_headers,
};
use testkit::http::Request;
use testkit::server::{Received, Server, as_asked};
use testkit::{Findings, wait_for};

use self::hidden::HIDDEN;
pub(crate) use self::variants::VARIANTS;

/// A cluster with the API's address.
const SAME_ADDRESS: &str = "the-same-address";

/// A cluster with the API's cluster inside.
const AGGREGATE: &str = "aggregate";

/// A cluster that leads to the address in a header of the request.
const ANYWHERE: &str = "anywhere";

/// A cluster whose server does not answer.
const ELSEWHERE: &str = "elsewhere";

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
    /// As [`ByTheEnded`](Self::ByTheEnded), in Envoy 1.40. Older versions answer no request then.
    ByTheEndedInTheNewest,
    /// This request reaches the API, and does harm there.
    By(fn(&Tokens) -> Request, fn(&Received) -> bool),
    /// The API gets a copy of a write of an impersonation that was ended.
    ByACopy,
    /// The change fails closed: live impersonations do not reach the API.
    ByRefusals,
    /// The change alone is harmless, for this reason: two settings must both be wrong.
    Not(&'static str),
}

/// The access tokens of an ended and of a live impersonation.
pub(crate) struct Tokens {
    ended: String,
    live: String,
    /// The address of the API.
    api: SocketAddr,
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

/// Leaves the router alone in the chain.
fn without_guard(listener: &mut Value) {
    filters(listener).retain(|filter| filter["name"] == "envoy.filters.http.router");
    without(route(listener), "typed_per_filter_config");
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

fn forged(_: &Tokens) -> Request {
    Request::post("/orders/1").bearer(&ordinary_token()).header(ACTOR_HEADER, "agent-7")
}

/// Starts an Envoy with the shipped listener and each variant of it before one API.
pub(crate) fn start(api: Server) -> Guarded {
    let bootstrap = Bootstrap::default()
        .listener(shipped("shipped"))
        .listener(gateway_listener(Filter::from(&filter_configuration())))
        .cluster(Cluster::new(API, api.address).as_downstream())
        .cluster(Cluster::new(SAME_ADDRESS, api.address).as_downstream())
        .cluster(Cluster::new(ELSEWHERE, SocketAddr::from(([127, 0, 0, 1], 9))))
        .cluster(Cluster::without_endpoints(ANYWHERE).with("load_assignment", Value::Null)
                .with("type", "ORIGINAL_DST")
            .with("lb_policy", "CLUSTER_PROVIDED")
            .with("original_dst_lb_config", json!({"use_http_header": true})))
        .cluster(Cluster::without_endpoints(AGGREGATE).with("load_assignment", Value::Null).with("lb_policy", "CLUSTER_PROVIDED").with("cluster_type", json!({
            "name": "envoy.clusters.aggregate",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig",
                "clusters": [API],
            },
        })));
    let bootstrap = VARIANTS.iter().chain(HIDDEN).fold(bootstrap, |bootstrap, variant| {
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
    let tokens = Tokens { ended: ended.access_token, live, api: guarded.api.address };

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
    for Variant { name, finding, shown_by, .. } in VARIANTS.iter().chain(HIDDEN) {
        let about = format!("listener {name}");
        let told = said.iter().any(|line| {
            let names_route = line.contains(&format!("{about}, route /orders: "))
                || line.contains(&format!("{about}: tcp_proxy"));
            // The guard stands there, and its rules or its refusals are not what was meant.
            let is_warning = finding.starts_with("rules") || finding.starts_with("strip");
            names_route && line.contains(finding) && line.contains(": warning: ") == is_warning
        });
        if !told {
            let lines: Vec<_> = said.iter().filter(|line| line.contains(&about)).collect();
            findings.add(format!("{name}: not {finding:?} but {lines:#?}"));
        }
        let (request, harms): (Request, fn(&Received) -> bool) = match shown_by {
            Shown::ByTheEnded => (write_of_the_ended(&tokens), anything),
            Shown::ByTheEndedInTheNewest if ENVOY_VERSION.starts_with("1.40.") => {
                (write_of_the_ended(&tokens), anything)
            }
            Shown::ByTheEndedInTheNewest => continue,
            Shown::By(request, harms) => (request(&tokens), *harms),
            Shown::ByACopy => {
                let target = format!("/orders/{name}");
                connect(&guarded.envoy, name).send(&Request::post(&target).bearer(&tokens.ended));
                wait_for(&format!("{name}: a copy"), || {
                    guarded.api.received().into_iter().find(|received| received.target == target)
                });
                continue;
            }
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
