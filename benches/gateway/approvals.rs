//! Measures an exchange of an approved token beside one that nobody needed to approve, a mint that
//! a policy decision point decides beside one that the function decides, and the memory of a token
//! that waits.

use std::thread;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::Algorithm;
use serde_json::{Value, json};

use crate::lane::Lane;
use crate::load::{Load, envoy_core, leave_envoy_alone};
use crate::rules::FUNCTION;
use testkit::configuration::{Configuration, ISSUER, PROVIDER_KEY, jwks};
use testkit::envoy::Envoy;
use testkit::etcd::{self, Etcd};
use testkit::gateway::{Gateway, IDENTITY_GATEWAY, Options, backend_claims, now};
use testkit::http::Request;
use testkit::keys::Key;
use testkit::server::Reply;

const ROUNDS: usize = 21;
const TURN: usize = 2000;
/// The callers that mint. Each holds only a thousand tokens that need an approval.
const CALLERS: usize = 8;

/// The tokens that wait for others, while somebody is told that nothing waits for them.
const OTHERS: usize = 1200;

/// The tokens that wait before memory is measured, and those whose memory is measured.
const BEFORE: usize = 5000;
const WEIGHED: usize = 50_000;

/// The usual configuration with a new key and with people who approve.
fn configuration() -> Configuration {
    let people = json!({
        "issuer": ISSUER, "name_prefix": "", "audiences": ["people"],
        "local_jwks": jwks(&[&PROVIDER_KEY]),
    });
    Configuration::default()
        .with("/signing_keys/0", json!({"jwk": Key::generate(Algorithm::ES256, "k").private_jwk()}))
        .with("/approvals", json!({"authentication": {"jwt": [people]}, "required": 0}))
}

fn start(configuration: &Configuration) -> Gateway {
    let options = Options { core: envoy_core(), ..Options::default() };
    Gateway::try_start(configuration, &options).unwrap()
}

/// A mint by one of several callers.
fn mint(caller: &str, body: &Value) -> Vec<u8> {
    Request::post("/api/subject-tokens").bearer(caller).json(body).to_bytes()
}

/// The access tokens of this number of callers.
fn callers(count: usize) -> Vec<String> {
    let caller = |number| {
        let (mut claims, name) = (backend_claims(), json!(format!("backend-{number}")));
        (claims["sub"], claims["client_id"]) = (name.clone(), name);
        PROVIDER_KEY.sign(&claims)
    };
    (0..count).map(caller).collect()
}

/// The body of a mint for one of many users.
fn body(number: usize, approvals: Option<u8>) -> Value {
    let user = format!("user_{number}");
    let mut body = json!({"userId": user, "context": {"ticketId": "TICKET-123"}});
    if let Some(approvals) = approvals {
        body["approvals"] = json!(approvals);
    }
    body
}

pub(crate) fn run() {
    leave_envoy_alone();
    let gateway = start(&configuration());
    let envoy = &gateway.envoy;
    let lane = |name: &str, status| Lane::new(name, envoy, envoy.address("gateway"), status);
    let mut mints = [lane("mint, nobody approves", 201), lane("mint, one approves", 201)];
    let mut exchanges =
        [lane("exchange, nobody has approved", 200), lane("exchange, one has approved", 200)];
    let mut decisions = lane("approval", 200);
    let callers = callers(CALLERS);
    let approver = PROVIDER_KEY.sign(&json!({
        "iss": ISSUER, "sub": "dana", "client_id": "console", "aud": "people", "iat": now(),
        "exp": now() + 7200, "scope": "impersonations:approve",
    }));
    let approve = |token: &str| {
        let path = format!("/api/approvals/{}", id(token));
        let request = Request::post(&path).bearer(&approver);
        request.json(&json!({"decision": "approve"})).to_bytes()
    };
    for round in 0..=ROUNDS {
        // Each comes first in every second round.
        let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        for kind in order {
            let body = |number| body(number, (kind == 1).then_some(1));
            let requests: Vec<_> =
                (0..TURN).map(|number| mint(&callers[number % CALLERS], &body(number))).collect();
            mints[kind].turn(&requests);
            if kind == 1 {
                let tokens = mints[1].subject_tokens();
                decisions.turn(&tokens.iter().map(|token| approve(token)).collect::<Vec<_>>());
            }
            let spent = mints[kind].exchanges();
            exchanges[kind].turn(&spent);
        }
        if round == 0 {
            mints.iter_mut().chain(&mut exchanges).chain([&mut decisions]).for_each(Lane::forget);
        }
    }
    println!("\napprovals in shared data, one worker, {ROUNDS} turns each");
    Lane::print_head();
    for [without, with] in [&mints, &exchanges] {
        without.print(None);
        with.print(Some(without));
    }
    decisions.print(Some(&mints[0]));
    let [without, with] = &exchanges;
    println!(
        "an approval makes an exchange take {:.2} times as long, {:.2} of the CPU time",
        without.ratio(with),
        with.cpu() / without.cpu()
    );
    drop(gateway);
    decision_point();
}

/// The id of a token in a slot: the beginning of its digest, and the slot.
fn id(token: &str) -> String {
    let token = URL_SAFE_NO_PAD.decode(token.strip_prefix("sub_").unwrap()).unwrap();
    let digest = digest(&SHA256, &token);
    let hex: String = digest.as_ref()[..12].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{hex}{:x}", u32::from_be_bytes(*token.first_chunk().unwrap()))
}

fn decision_point() {
    let uri = "http://identity-gateway.example.com/access/v1/evaluation";
    let http_uri = json!({"uri": uri, "cluster": IDENTITY_GATEWAY, "timeout": "3s"});
    let plain = configuration().without("/approvals");
    let asking = plain.clone().with("/authzen/http_uri", http_uri);
    let scripted = plain.clone().with("/authorize_subject_token/script", FUNCTION);
    let kinds =
        [("mint", &plain), ("mint, with the function", &scripted), ("mint, with AuthZEN", &asking)];
    let gateways = kinds.map(|(_, configuration)| start(configuration));
    for gateway in &gateways {
        gateway.upstream.answer(|_| Reply::json(&json!({"decision": true})));
    }
    let mut lanes: Vec<_> = kinds
        .iter()
        .zip(&gateways)
        .map(|((name, _), Gateway { envoy, .. })| {
            Lane::new(name, envoy, envoy.address("gateway"), 201)
        })
        .collect();
    let requests = vec![mint(&callers(1)[0], &body(123, None)); TURN];
    for round in 0..=ROUNDS {
        for lane in &mut lanes {
            lane.turn(&requests);
            if round == 0 {
                lane.forget();
            }
        }
    }
    println!(
        "\nwho decides on a mint, one worker, {ROUNDS} turns each; the decision point answers at once"
    );
    Lane::print_head();
    lanes[0].print(None);
    lanes[1..].iter().for_each(|lane| lane.print(Some(&lanes[0])));
    println!(
        "a mint with AuthZEN takes {:.2} times as long as one with the function, {:.2} of the CPU time",
        lanes[1].ratio(&lanes[2]),
        lanes[2].cpu() / lanes[1].cpu()
    );
}

/// Measures the list of what waits for a person without a scope for whom nothing waits: while
/// nothing waits for others, and while [`OTHERS`] tokens do.
pub(crate) fn nobody() {
    leave_envoy_alone();
    let person = PROVIDER_KEY.sign(&json!({
        "iss": ISSUER, "sub": "u-nobody", "client_id": "console", "aud": "people", "iat": now(),
        "exp": now() + 7200, "scope": "openid",
    }));
    let list = vec![Request::get("/api/approvals").bearer(&person).to_bytes(); TURN / 10];
    let of_others: Vec<_> = (0..OTHERS)
        .map(|number| json!({"userId": format!("user-{number}"), "approvals": 1}))
        .zip(callers(2).into_iter().cycle())
        .map(|(body, caller)| mint(&caller, &body))
        .collect();
    for in_etcd in [false, true] {
        let nodes = if in_etcd { vec![Etcd::start(), Etcd::start()] } else { Vec::new() };
        let gateways = [0, 1].map(|number| {
            let node = nodes.get(number..=number).unwrap_or_default();
            let configuration = match in_etcd {
                true => configuration().with("/store", json!({"etcd": {"cluster": "etcd"}})),
                false => configuration(),
            };
            let clusters = if in_etcd { vec![etcd::cluster(node)] } else { Vec::new() };
            let options = Options { core: envoy_core(), clusters, ..Options::default() };
            Gateway::try_start(&configuration, &options).unwrap()
        });
        let minted = Load::new(gateways[1].address()).run(&of_others);
        assert!(minted.iter().all(|reply| reply.status == 201));
        let names = ["nothing waits for others", "1200 tokens wait for others"];
        let mut lanes = [0, 1].map(|number| {
            let Gateway { envoy, .. } = &gateways[number];
            Lane::new(names[number], envoy, envoy.address("gateway"), 403)
        });
        for round in 0..=ROUNDS {
            for lane in &mut lanes {
                lane.turn(&list);
                if round == 0 {
                    lane.forget();
                }
            }
        }
        let store = if in_etcd { "etcd" } else { "shared data" };
        println!("\nthe list of what waits, for somebody for whom nothing does, {store}");
        Lane::print_head();
        let [none, many] = &lanes;
        none.print(None);
        many.print(Some(none));
        println!(
            "{OTHERS} tokens of others make it take {:.2} times as long, {:.2} of the CPU time",
            none.ratio(many),
            many.cpu() / none.cpu()
        );
    }
}

/// Measures the memory of tokens that wait, beside that of tokens that do not.
pub(crate) fn weight() {
    leave_envoy_alone();
    let all = 4 * (BEFORE + WEIGHED);
    let configuration = configuration().with("/store/shared_data/capacity", all);
    let callers = callers((BEFORE + WEIGHED) / 500);
    println!();
    for (name, approvals) in [("an outstanding token", None), ("a token that waits", Some(1))] {
        let gateway = start(&configuration);
        let mut load = Load::new(gateway.address());
        let mut store = |numbers: std::ops::Range<usize>| {
            let requests: Vec<_> = numbers
                .map(|number| mint(&callers[number % callers.len()], &body(number, approvals)))
                .collect();
            assert!(load.run(&requests).iter().all(|reply| reply.status == 201));
            memory(&gateway.envoy)
        };
        let before = store(0..BEFORE);
        let after = store(BEFORE..BEFORE + WEIGHED);
        let bytes = after.saturating_sub(before) as f64 / WEIGHED as f64;
        println!("{name} takes {bytes:.0} bytes of Envoy's memory");
    }
}

/// Returns the bytes that Envoy has allocated.
fn memory(envoy: &Envoy) -> u64 {
    // Envoy updates them every five seconds.
    thread::sleep(Duration::from_secs(6));
    envoy.stat("server.memory_allocated")
}
