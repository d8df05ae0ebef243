//! Measures how soon an impersonation is refused after the identity gateway has sent an event about
//! its actor, and what step-up costs an exchange.
//!
//! Two Envoys share one etcd. The first has the filter and a guard, the second has a guard alone,
//! as beside an API. Both are asked without a pause, so a time is exact to one request. It counts
//! from the moment at which the sender writes its request. An operator's revocation is measured in
//! the same way, for comparison.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use jsonwebtoken::Algorithm;
use serde_json::json;

use crate::exchange::with_key;
use crate::lane::Lane;
use crate::load::{leave_envoy_alone, quantile};
use testkit::bootstrap::{Bootstrap, Cluster, Filter};
use testkit::configuration::{Configuration, PROVIDER_KEY};
use testkit::etcd::Etcd;
use testkit::events::{event_request, receiving, session_revoked};
use testkit::gateway::{
    actor_claims, exchange_form, exchange_request, mint_request, now, with_actor,
};
use testkit::guarded::{
    API, Begun, Guarded, Parties, connect, filter_configuration, guard_configuration,
    guarded_listener, operator,
};
use testkit::http::{Connection, Request};
use testkit::server::{Server, as_asked};
use testkit::wait_for;

/// The number of endings, if `ENDINGS` does not say it.
const ENDINGS: usize = 300;

const ROUNDS: usize = 40;
const TURN: usize = 1500;

pub(crate) fn run() {
    let endings = std::env::var("ENDINGS").map_or(ENDINGS, |count| count.parse().unwrap());
    let etcd = Etcd::start();
    let [one, other] = [true, false].map(|has_filter| start(&etcd, has_filter));
    type Ends = fn(&Parties) -> Request;
    let kinds: [(&str, Ends); 2] = [
        ("an event", |parties| event_request(&session_revoked(&parties.actor))),
        ("a revocation", |parties| {
            let request = Request::post("/api/impersonations/revocations").bearer(&operator());
            request.json(&json!({"actorId": parties.actor}))
        }),
    ];
    println!("\nfrom the request that ends to the first refused request, {endings} times each, ms");
    println!("{:<36}{:>9}{:>9}{:>9}", "", "p50", "p99", "max");
    for (kind, ends) in kinds {
        let mut times = [Vec::new(), Vec::new()];
        for number in 0..=endings {
            let parties = Parties::new();
            let begun = wait_for("an impersonation", || one.try_begin(&parties));
            let took = end(&one, &other, &begun, &ends(&parties));
            if number > 0 {
                times.iter_mut().zip(took).for_each(|(times, took)| times.push(took));
            }
        }
        for (place, times) in ["the same Envoy", "the other Envoy"].iter().zip(&times) {
            let at = [0.5, 0.99, 1.0].map(|at| quantile(times, at) * 1e3);
            let name = format!("{kind}, {place}");
            println!("{name:<36}{:>9.2}{:>9.2}{:>9.2}", at[0], at[1], at[2]);
        }
    }
}

fn start(etcd: &Etcd, has_filter: bool) -> Guarded {
    let store = json!({"etcd": {"cluster": "etcd"}});
    let listener = guarded_listener(&guard_configuration(&json!({"store": store})));
    let api = Server::start(API);
    api.answer(as_asked);
    let bootstrap = if has_filter {
        let filter = receiving(filter_configuration()).with("/store", store);
        Guarded::bootstrap_with(listener, Filter::from(&filter), api.address)
    } else {
        Bootstrap::default()
            .listener(listener.watched())
            .cluster(Cluster::new(API, api.address).as_downstream())
    };
    let cluster = Cluster::new("etcd", etcd.address).http2();
    Guarded { envoy: bootstrap.cluster(cluster).workers(1).start(), api }
}

/// Ends an impersonation, and asks both Envoys until they refuse it. Returns the seconds until each
/// of them does.
fn end(one: &Guarded, other: &Guarded, begun: &Begun, ending: &Request) -> [f64; 2] {
    let asking = AtomicUsize::new(0);
    let request = Request::get("/orders").bearer(&begun.access_token);
    let ask = |guarded: &Guarded| {
        let mut connection: Connection = connect(&guarded.envoy, "guarded");
        let mut is_counted = false;
        let deadline = Instant::now() + Duration::from_secs(60);
        while Instant::now() < deadline {
            match connection.send(&request).status {
                200 if !is_counted => {
                    is_counted = true;
                    asking.fetch_add(1, Ordering::SeqCst);
                }
                200 | 503 => {}
                401 => return Instant::now(),
                status => panic!("{status}"),
            }
        }
        panic!("it was never refused");
    };
    thread::scope(|scope| {
        let asks = [one, other].map(|guarded| scope.spawn(move || ask(guarded)));
        let mut sender = connect(&one.envoy, "gateway");
        wait_for("both to pass", || (asking.load(Ordering::SeqCst) == 2).then_some(()));
        let sent = Instant::now();
        let answer = sender.send(ending);
        assert!((200..300).contains(&answer.status), "{answer:?}");
        asks.map(|ask| ask.join().unwrap().duration_since(sent).as_secs_f64())
    })
}

/// Measures exchanges with an actor token, with and without demands on its sign-in.
pub(crate) fn step_up() {
    leave_envoy_alone();
    let plain = Configuration::default();
    let demanding = plain
        .clone()
        .with("/actor_tokens/acr_values", json!(["phr", "phrh"]))
        .with("/actor_tokens/max_age", "3600s")
        .with("/resources/0/actor_acr_values", json!(["phrh"]))
        .with("/resources/0/actor_max_age", "3000s");
    let kinds = [("exchange with an actor token", plain), ("exchange with step-up", demanding)];
    let gateways =
        kinds.each_ref().map(|(_, configuration)| with_key(Algorithm::ES256, configuration));
    let mut claims = actor_claims("agent-1");
    claims["acr"] = json!("phrh");
    claims["auth_time"] = json!(now());
    claims["exp"] = json!(now() + 7200);
    let actor_token = PROVIDER_KEY.sign(&claims);
    let mints = vec![mint_request("u-1").to_bytes(); TURN];
    let mut lanes: Vec<_> = kinds
        .iter()
        .zip(&gateways)
        .map(|((name, _), gateway)| {
            let address = gateway.envoy.address("gateway");
            let mint = Lane::new("mint", &gateway.envoy, address, 201);
            (mint, Lane::new(name, &gateway.envoy, address, 200))
        })
        .collect();
    for round in 0..=ROUNDS {
        for (mint, exchange) in &mut lanes {
            mint.turn(&mints);
            let acting = |token: &str| with_actor(exchange_form(token), &actor_token);
            let exchanges: Vec<_> = mint
                .subject_tokens()
                .iter()
                .map(|token| exchange_request(&acting(token)).to_bytes())
                .collect();
            exchange.turn(&exchanges);
            if round == 0 {
                [mint, exchange].into_iter().for_each(Lane::forget);
            }
        }
    }
    println!("\nstep-up of the actor: one worker, {ROUNDS} turns each");
    Lane::print_head();
    let mut exchanges = lanes.iter().map(|(_, exchange)| exchange);
    let [plain, demanding] = [exchanges.next().unwrap(), exchanges.next().unwrap()];
    plain.print(None);
    demanding.print(Some(plain));
    let (times, cpu) = (plain.ratio(demanding), demanding.cpu() / plain.cpu());
    println!("step-up makes an exchange take {times:.3} times as long, CPU {cpu:.3} times");
}
