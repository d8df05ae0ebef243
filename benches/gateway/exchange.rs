//! Measures mints and exchanges per second, beside Envoy answering the same requests from its
//! configuration.

use std::path::PathBuf;

use jsonwebtoken::Algorithm;
use serde_json::json;

use crate::chart::{self, Bar};
use crate::lane::Lane;
use crate::load::{CONNECTIONS, envoy_core, leave_envoy_alone};
use testkit::bootstrap::Filter;
use testkit::configuration::Configuration;
use testkit::gateway::{Gateway, Options, exchange_form, mint_body_request, minted};
use testkit::http::Request;
use testkit::keys::Key;

const ROUNDS: usize = 15;
/// The requests in one turn of one lane. Slow keys have fewer.
const TURN: usize = 3000;

/// The function of docs/claims, which copies the context into one claim.
const SAMPLE: &str = include_str!("../../docs/claims/impersonation.js");

pub(crate) fn run() {
    leave_envoy_alone();
    let plain = Configuration::default();
    let scripted = plain.clone().with(
        "/custom_claims",
        json!({"script": SAMPLE, "environment_variables": {"REGION": "eu"}}),
    );
    let in_access_log = plain.clone().with("/audit/log", "access_log");
    #[rustfmt::skip]
    let kinds = [
        ("exchange, ES256",                    Algorithm::ES256, &plain,    TURN),
        ("exchange, ES256, with the function", Algorithm::ES256, &scripted, TURN),
        // The audit event is made, and left to the access log.
        ("exchange, ES256, audit: access_log", Algorithm::ES256, &in_access_log, TURN),
        ("exchange, EdDSA",                    Algorithm::EdDSA, &plain,    TURN),
        ("exchange, ES384",                    Algorithm::ES384, &plain,    TURN / 4),
        ("exchange, RS256",                    Algorithm::RS256, &plain,    TURN / 20),
        // Envoy has no PSS. RS256 would cost the same if Envoy could not sign it.
        ("exchange, PS256, in the sandbox",    Algorithm::PS256, &plain,    TURN / 100),
    ];
    let gateways = kinds.map(|(_, algorithm, configuration, _)| with_key(algorithm, configuration));
    let envoy = &gateways[0].envoy;
    let mut direct_mint =
        Lane::new("direct_response to a mint", envoy, envoy.address("direct"), 200);
    let mut direct_exchange =
        Lane::new("direct_response to an exchange", envoy, envoy.address("direct"), 200);
    let mut lanes: Vec<_> = kinds
        .iter()
        .zip(&gateways)
        .map(|((name, _, _, turn), Gateway { envoy, .. })| {
            let mint = Lane::new("mint", envoy, envoy.address("gateway"), 201);
            (mint, Lane::new(name, envoy, envoy.address("gateway"), 200), *turn)
        })
        .collect();

    let mints = vec![mint_with_context().to_bytes(); TURN];
    for round in 0..=ROUNDS {
        direct_mint.turn(&mints);
        for (number, (mint, exchange, turn)) in lanes.iter_mut().enumerate() {
            mint.turn(&mints[..*turn]);
            let exchanges = mint.exchanges();
            if number == 0 {
                direct_exchange.turn(&exchanges);
            }
            exchange.turn(&exchanges);
        }
        if round == 0 {
            [&mut direct_mint, &mut direct_exchange].into_iter().for_each(Lane::forget);
            for (mint, exchange, _) in &mut lanes {
                [mint, exchange].into_iter().for_each(Lane::forget);
            }
        }
    }

    println!("\none worker, {CONNECTIONS} connections, {ROUNDS} turns each");
    Lane::print_head();
    direct_mint.print(None);
    lanes[0].0.print(Some(&direct_mint));
    direct_exchange.print(None);
    for (_, exchange, _) in &lanes {
        exchange.print(Some(&direct_exchange));
    }
    let (without, with) = (&lanes[0].1, &lanes[1].1);
    println!("the function makes an exchange take {:.2} times as long", without.ratio(with));

    let ours = |lane: &Lane<'_>| Bar::of_the_filter(&lane.name, lane.rate());
    let measure = |lane: &Lane<'_>| Bar::of_the_baseline(&lane.name, lane.rate());
    let mut bars = vec![measure(&direct_mint), ours(&lanes[0].0), measure(&direct_exchange)];
    bars.extend(lanes.iter().map(|(_, exchange, _)| ours(exchange)));
    chart::draw("throughput", "Requests per second, one worker on one core", 0, &bars);
}

/// Starts a gateway on Envoy's core that signs with a new key. Its `direct` listener answers the
/// same requests with recorded answers of the filter.
pub(crate) fn with_key(algorithm: Algorithm, configuration: &Configuration) -> Gateway {
    with_key_and_module(algorithm, configuration, None)
}

/// Returns such a gateway with another module as the filter.
pub(crate) fn with_key_and_module(
    algorithm: Algorithm,
    configuration: &Configuration,
    module: Option<PathBuf>,
) -> Gateway {
    let key = Key::generate(algorithm, "k");
    let configuration =
        configuration.clone().with("/signing_keys/0", json!({"jwk": key.private_jwk()}));
    // The recorded answers come from the filter itself, so that they have the right size.
    let sample = Gateway::start(&configuration);
    let mint = sample.send(&mint_with_context());
    let exchange = sample.exchange(&exchange_form(&minted(&mint)));
    let options = Options {
        core: envoy_core(),
        direct_responses: vec![("/api/", mint.text()), ("/oidc/", exchange.text())],
        ..Options::default()
    };
    let filter = Filter { module, ..Filter::from(&configuration) };
    Gateway::try_start(filter, &options).unwrap()
}

/// A mint with the context that the function needs.
pub(crate) fn mint_with_context() -> Request {
    mint_body_request(&json!({
        "userId": "user_123",
        "context": {"ticketId": "TICKET-123", "reason": "Checkout fails", "supportEngineerId": "eng-42"},
    }))
}
