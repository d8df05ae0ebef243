//! Measures the cost of the guard: for an ordinary user, whose requests skip it, and for an
//! impersonation, whose requests all enter it. Envoy's `jwt_authn` stands before the guard and
//! caches the tokens. Envoy itself answers in the place of the API: the time of an API would only
//! make the guard look cheaper.

use std::path::PathBuf;

use serde_json::json;

use crate::lane::Lane;
use crate::load::{envoy_core, leave_envoy_alone};
use testkit::bootstrap::{Bootstrap, Filter, Listener};
use testkit::envoy::Envoy;
use testkit::guarded::{
    claims, for_impersonations, guard, guard_configuration, ordinary_token, token,
    verifying_listener,
};
use testkit::http::Request;

const ROUNDS: usize = 30;
pub(crate) const TURN: usize = 5000;

pub(crate) fn start(filters: impl Fn(Bootstrap) -> Bootstrap) -> Envoy {
    let bootstrap = filters(Bootstrap::default());
    envoy_core()
        .map_or_else(|| bootstrap.clone().start(), |core| bootstrap.clone().core(core).start())
}

/// Returns a listener without the guard.
pub(crate) fn unguarded() -> Listener {
    verifying_listener("bare", []).answer("/", "ok")
}

/// Returns a listener with the guard and the rules of a deployment of some size.
pub(crate) fn guarded() -> Listener {
    guarded_by("guarded", None)
}

/// Returns such a listener with another module as the guard.
pub(crate) fn guarded_by(name: &str, module: Option<PathBuf>) -> Listener {
    let configuration = guard_configuration(&json!({"rules": [
        {"path_prefix": "/account/password", "action": "deny"},
        {"path_prefix": "/payments", "action": "deny"},
        {"path": "/orders/search", "methods": ["POST"], "action": "allow"},
        {"path_prefix": "/orders/", "methods": ["POST", "PATCH"], "scopes": ["orders:write"], "action": "allow"},
    ]}));
    let ours = guard(&configuration);
    let guard = Filter { module: module.or_else(|| ours.module.clone()), ..ours };
    verifying_listener(name, [for_impersonations(guard)]).answer("/", "ok")
}

pub(crate) fn run() {
    leave_envoy_alone();
    let envoy = start(|bootstrap| bootstrap.listener(guarded()).listener(unguarded()));
    let lane = |name, listener| Lane::new(name, &envoy, envoy.address(listener), 200);
    let mut lanes = [
        lane("an ordinary user, no guard", "bare"),
        lane("an ordinary user, the guard", "guarded"),
        lane("an impersonation, no guard", "bare"),
        lane("an impersonation, the guard", "guarded"),
    ];
    let request = |token: &str| vec![Request::get("/orders/7").bearer(token).to_bytes(); TURN];
    let (ordinary, impersonation) = (request(&ordinary_token()), request(&token(&claims())));
    let requests = [&ordinary, &ordinary, &impersonation, &impersonation];
    for round in 0..=ROUNDS {
        for (lane, requests) in lanes.iter_mut().zip(requests) {
            lane.turn(requests);
        }
        if round == 0 {
            lanes.iter_mut().for_each(Lane::forget);
        }
    }
    println!("\nan API behind jwt_authn, one worker, {ROUNDS} turns each");
    Lane::print_head();
    lanes[0].print(None);
    lanes[1].print(Some(&lanes[0]));
    lanes[2].print(None);
    lanes[3].print(Some(&lanes[2]));
}
