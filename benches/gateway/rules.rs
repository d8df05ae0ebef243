//! Measures the cost of bounds, rules and the operator's function for a mint, and of bounds for an
//! exchange.

use jsonwebtoken::Algorithm;
use serde_json::{Value, json};

use crate::exchange::with_key;
use crate::lane::Lane;
use crate::load::leave_envoy_alone;
use testkit::configuration::{Configuration, ORDERS, PROVIDER_KEY};
use testkit::gateway::{
    actor_claims, exchange_form, exchange_request, mint_body_request, with_actor,
};

const ROUNDS: usize = 15;
const TURN: usize = 3000;

/// The function denies, narrows and allows, as the examples of docs/who-may-impersonate-whom.md do.
pub(crate) const FUNCTION: &str =
    "const authorizeSubjectToken = async ({ caller, userId, context, bounds, api }) => {
    if (userId.startsWith('admin-')) api.denyAccess('protected');
    if (!/^TICKET-[0-9]+$/.test(context.ticketId)) api.denyAccess('a ticket is needed');
    return { expiresIn: Math.min(bounds.expiresIn ?? 600, 300) };
};";

fn body() -> Value {
    let context = json!({"ticketId": "TICKET-123", "reason": "Checkout fails", "supportEngineerId": "eng-42"});
    json!({"userId": "user_123", "context": context})
}

pub(crate) fn run() {
    leave_envoy_alone();
    let plain = Configuration::default();
    let ruled = plain
        .clone()
        .with("/subject_tokens/required_context", json!(["ticketId", "reason"]))
        .with("/subject_tokens/protected_users", json!(["root", "admin-*", "finance-*", "hr-*"]))
        .with("/subject_tokens/max_mints_per_caller", json!({"count": 100_000_000, "per": "600s"}));
    let scripted = plain.clone().with("/authorize_subject_token/script", FUNCTION);
    let mut bounded = body();
    let bounds = json!({
        "expiresIn": 300, "clientId": ["support-console", "support-app"], "resource": ORDERS,
        "scope": "orders:read", "actorId": "agent-1", "accessTokenExpiresIn": 300,
    });
    bounded.as_object_mut().unwrap().extend(bounds.as_object().unwrap().clone());
    let actor_token = PROVIDER_KEY.sign(&actor_claims("agent-1"));
    #[rustfmt::skip]
    let kinds = [
        ("plain",                    &plain,    body()),
        ("with all bounds and rules", &ruled,    bounded),
        ("with the function",        &scripted, body()),
    ];
    let gateways =
        kinds.each_ref().map(|(_, configuration, _)| with_key(Algorithm::ES256, configuration));
    let mut lanes: Vec<_> = kinds
        .iter()
        .zip(&gateways)
        .map(|((name, _, body), gateway)| {
            let address = gateway.envoy.address("gateway");
            let mint = Lane::new(&format!("mint, {name}"), &gateway.envoy, address, 201);
            let exchange = Lane::new(&format!("exchange, {name}"), &gateway.envoy, address, 200);
            (vec![mint_body_request(body).to_bytes(); TURN], mint, exchange)
        })
        .collect();
    for round in 0..=ROUNDS {
        for (mints, mint, exchange) in &mut lanes {
            mint.turn(mints);
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
    println!(
        "\nbounds, rules and the function: one worker, {ROUNDS} turns each, exchanges with an actor token"
    );
    Lane::print_head();
    let (_, plain_mint, plain_exchange) = &lanes[0];
    plain_mint.print(None);
    lanes[1..].iter().for_each(|(_, mint, _)| mint.print(Some(plain_mint)));
    plain_exchange.print(None);
    lanes[1..].iter().for_each(|(_, _, exchange)| exchange.print(Some(plain_exchange)));
    let times = |base: &Lane<'_>, lane: &Lane<'_>| base.ratio(lane);
    println!(
        "bounds and rules make a mint take {:.2} times as long, an exchange {:.2}",
        times(plain_mint, &lanes[1].1),
        times(plain_exchange, &lanes[1].2)
    );
    println!("the function makes a mint take {:.2} times as long", times(plain_mint, &lanes[2].1));
}
