//! Measures what bound tokens cost: an exchange with a proof, and requests to an API with a token
//! that is bound to a key or to a certificate, each beside the same request with a bearer token.
//!
//! No proof can be sent twice, so each request has one of its own. They are made before the turn.

use std::path::Path;
use std::sync::LazyLock;

use jsonwebtoken::Algorithm;
use serde_json::{Value, json};

use crate::exchange::{mint_with_context, with_key};
use crate::guard::start;
use crate::lane::Lane;
use crate::load::leave_envoy_alone;
use testkit::bootstrap::{Bootstrap, Cluster};
use testkit::configuration::Configuration;
use testkit::envoy::Envoy;
use testkit::gateway::{exchange_form, exchange_request};
use testkit::guarded::{
    PUBLIC_ORIGIN, bound_listener_answering, claims_with, guard_configuration, token,
};
use testkit::holder::Holder;
use testkit::http::Request;
use testkit::tls::{Authority, certificate_digest};

const ROUNDS: usize = 30;
/// Few enough that all proofs of a run fit into the memory of used proofs.
const TURN: usize = 1000;

static AUTHORITY: LazyLock<Authority> =
    LazyLock::new(|| Authority::new(&testkit::scratch().join("bench-tls")));

pub(crate) fn run() {
    leave_envoy_alone();
    println!("\nbound tokens, one worker each, {ROUNDS} turns each");
    Lane::print_head();
    exchanges();
    requests_with_proofs();
    requests_with_certificates();
}

fn exchanges() {
    let configuration = Configuration::default().with("/dpop", json!({}));
    let gateway = with_key(Algorithm::ES256, &configuration);
    let lane =
        |name, status| Lane::new(name, &gateway.envoy, gateway.envoy.address("gateway"), status);
    let mut mint = lane("mint", 201);
    let mut lanes = [lane("exchange, a bearer token", 200), lane("exchange, DPoP, ES256", 200)];
    let holder = Holder::new(Algorithm::ES256);
    let mints = vec![mint_with_context().to_bytes(); TURN];
    let with_proof = |subject_token: &String| {
        let proof = holder.proof("POST", "https://auth.example.com/oidc/token");
        exchange_request(&exchange_form(subject_token)).header("DPoP", proof).to_bytes()
    };
    in_turns(&mut lanes, |number| {
        mint.turn(&mints);
        match number {
            0 => mint.exchanges(),
            _ => mint.subject_tokens().iter().map(with_proof).collect(),
        }
    });
}

fn requests_with_proofs() {
    let listener = bound_listener_answering(
        &guard_configuration(&json!({"public_origin": PUBLIC_ORIGIN})),
        "ok",
    );
    let envoy = start(|bootstrap| bootstrap.listener(listener.clone()));
    let lane = |name| Lane::new(name, &envoy, envoy.address("guarded"), 200);
    let mut lanes =
        [lane("an impersonation, a bearer token"), lane("an impersonation, DPoP, ES256")];
    let holder = Holder::new(Algorithm::ES256);
    let unbound = token(&claims_with(&json!({})));
    let bound = token(&claims_with(&json!({"cnf": {"jkt": holder.thumbprint()}})));
    let url = format!("{PUBLIC_ORIGIN}/orders/7");
    in_turns(&mut lanes, |number| match number {
        0 => vec![Request::get("/orders/7").bearer(&unbound).to_bytes(); TURN],
        _ => {
            let request = || {
                Request::get("/orders/7")
                    .header("authorization", format!("DPoP {bound}"))
                    .header("DPoP", holder.proof_with(&bound, "GET", &url))
                    .to_bytes()
            };
            std::iter::repeat_with(request).take(TURN).collect()
        }
    });
}

/// The load speaks no TLS: another Envoy does it. Only the CPU time of the guard's Envoy counts.
fn requests_with_certificates() {
    let server = AUTHORITY.issue("server");
    let client = AUTHORITY.issue("client");
    let listener =
        bound_listener_answering(&guard_configuration(&json!({})), "ok").tls(server).edited(asking);
    let envoy = start(|bootstrap| bootstrap.listener(listener.clone()));
    let front = before(&envoy, &client, &AUTHORITY.certificate);
    let lane = |name| Lane::new(name, &envoy, front.address("front"), 200);
    let mut lanes = [
        lane("an impersonation by TLS, a bearer token"),
        lane("an impersonation by TLS, a bound one"),
    ];
    let cnf = json!({"cnf": {"x5t#S256": certificate_digest(&client.certificate)}});
    let [unbound, bound] = [json!({}), cnf].map(|claims| token(&claims_with(&claims)));
    in_turns(&mut lanes, |number| {
        let token = if number == 0 { &unbound } else { &bound };
        vec![Request::get("/orders/7").bearer(token).to_bytes(); TURN]
    });
}

fn asking(listener: &mut Value) {
    let context = "/filter_chains/0/transport_socket/typed_config/common_tls_context";
    listener.pointer_mut(context).unwrap()["validation_context"] =
        json!({"trusted_ca": {"filename": AUTHORITY.certificate}});
}

/// An Envoy that passes requests on to the guard's Envoy, with a client certificate.
fn before(envoy: &Envoy, client: &testkit::tls::Identity, authority: &Path) -> Envoy {
    let cluster = Cluster::new("guarded", envoy.address("guarded")).by_tls(client, authority);
    let front = testkit::bootstrap::Listener::new("front").route_to("guarded", "60s");
    Bootstrap::default().listener(front).cluster(cluster).start()
}

/// Measures both lanes in turns, and prints both and the difference of their CPU times.
fn in_turns(lanes: &mut [Lane<'_>; 2], mut requests: impl FnMut(usize) -> Vec<Vec<u8>>) {
    for round in 0..=ROUNDS {
        let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        for number in order {
            let requests = requests(number);
            lanes[number].turn(&requests);
        }
        if round == 0 {
            lanes.iter_mut().for_each(Lane::forget);
        }
    }
    let [plain, bound] = lanes;
    plain.print(None);
    bound.print(Some(plain));
    println!("{:<36}{:>+33.1}", "  the difference", (bound.cpu() - plain.cpu()) * 1e6);
}
