//! A flood of proofs: the memory of used proofs has a bound. At the bound the filter and the guard
//! refuse proofs, and let none through that they cannot remember (RFC 9449 §11.1).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::Algorithm;
use serde_json::json;

use testkit::bootstrap::Filter;
use testkit::clock::Clock;
use testkit::configuration::PROVIDER_KEY;
use testkit::gateway::{
    backend_claims, exchange_form, exchange_request, mint_request, minted, now,
};
use testkit::guarded::{
    API, Guarded, PUBLIC_ORIGIN, bound_listener, claims_with, connect, filter_configuration,
    guard_configuration, token,
};
use testkit::holder::{Holder, changed, proof_claims};
use testkit::http::{Answer, Request};
use testkit::keys::sha256;
use testkit::server::{Server, as_asked};

const API_URL: &str = "https://api.example.com/orders";
const MINT_URL: &str = "https://auth.example.com/api/subject-tokens";
const TOKEN_URL: &str = "https://auth.example.com/oidc/token";

/// The memory has this many buckets, each with room for this many proofs.
const BUCKETS: u32 = 4096;
const ROOM: usize = 64;

/// The seconds after which every proof of a flood has expired.
const WINDOW: u64 = 180;

/// How far in the future the proofs are made. They are remembered for longer, so that a slow machine
/// forgets none of them during the test.
const AHEAD: u64 = 50;

/// The values of `jti` of this key that are all in one bucket of the memory. A flood of all buckets
/// would be a quarter of a million requests.
fn in_one_bucket(holder: &Holder) -> impl Iterator<Item = String> {
    let key = URL_SAFE_NO_PAD.decode(holder.thumbprint()).unwrap();
    let jtis = (0_u64..).map(|number| format!("flood-{number}"));
    jtis.filter(move |jti| {
        let id = URL_SAFE_NO_PAD.decode(sha256([&key, jti.as_bytes()].concat())).unwrap();
        u32::from_le_bytes(id[16..20].try_into().unwrap()).is_multiple_of(BUCKETS)
    })
}

fn proof(holder: &Holder, (method, url): (&str, &str), jti: &str, token: &str, iat: u64) -> String {
    let claims = json!({"jti": jti, "iat": iat, "ath": sha256(token)});
    holder.sign(&changed(proof_claims(method, url), &claims))
}

#[test]
fn a_flood_of_proofs_is_refused_until_the_old_ones_have_expired() {
    let clock = Clock::new();
    let filter = Filter::from(&filter_configuration().with("/dpop", json!({})));
    let api = Server::start(API);
    api.answer(as_asked);
    let members = json!({"public_origin": PUBLIC_ORIGIN});
    let listener = bound_listener(&guard_configuration(&members), true);
    let bootstrap = Guarded::bootstrap_with(listener, filter, api.address);
    let guarded = Guarded { envoy: clock.for_envoy(bootstrap).start(), api };
    at_the_filter(&guarded, &clock);
    at_the_guard(&guarded, &clock);
}

fn at_the_filter(guarded: &Guarded, clock: &Clock) {
    let holder = Holder::new(Algorithm::ES256);
    let mut jtis = in_one_bucket(&holder);
    let cnf = json!({"cnf": {"jkt": holder.thumbprint()}});
    let bearer = PROVIDER_KEY.sign(&changed(backend_claims(), &cnf));
    let mut gateway = connect(&guarded.envoy, "gateway");
    let made = now() + AHEAD;
    let mut mint = |jti: &str| {
        let proof = proof(&holder, ("POST", MINT_URL), jti, &bearer, made);
        let request = Request::post("/api/subject-tokens").json(&json!({"userId": "u-1"}));
        let request = request.header("authorization", format!("DPoP {bearer}"));
        gateway.send(&request.header("DPoP", proof))
    };
    for jti in jtis.by_ref().take(ROOM) {
        assert_eq!(mint(&jti).status, 201, "there is room");
    }
    let next = jtis.next().unwrap();
    let refused = mint(&next);
    assert_eq!(refused.refusal(), (503, "temporarily_unavailable".into()), "{refused:?}");
    let subject_token = minted(&gateway.send(&mint_request("u-1")));
    let mut exchange = |iat: u64| {
        let proof = proof(&holder, ("POST", TOKEN_URL), &next, "", iat);
        gateway.send(&exchange_request(&exchange_form(&subject_token)).header("DPoP", proof))
    };
    let refused = exchange(made);
    assert_eq!(refused.refusal(), (503, "temporarily_unavailable".into()), "{refused:?}");
    clock.set(WINDOW as i64);
    let answer = exchange(now() + WINDOW);
    assert_eq!(answer.status, 200, "there is room again, and the token is unspent: {answer:?}");
    assert_eq!(answer.member("token_type"), "DPoP");
}

fn at_the_guard(guarded: &Guarded, clock: &Clock) {
    let holder = Holder::new(Algorithm::ES256);
    let mut jtis = in_one_bucket(&holder);
    let token = token(&claims_with(&json!({"cnf": {"jkt": holder.thumbprint()}})));
    let ask = |jti: &str, iat: u64| -> Answer {
        let proof = proof(&holder, ("GET", API_URL), jti, &token, iat);
        let request = Request::get("/orders").header("authorization", format!("DPoP {token}"));
        guarded.send(&request.header("DPoP", proof))
    };
    let made = now() + WINDOW + AHEAD;
    let flood: Vec<_> = jtis.by_ref().take(ROOM).collect();
    for jti in &flood {
        assert_eq!(ask(jti, made).status, 200, "there is room");
    }
    let next = jtis.next().unwrap();
    for _ in 0..2 {
        let refused = ask(&next, made);
        assert_eq!(refused.refusal(), (503, "temporarily_unavailable".into()), "{refused:?}");
        assert!(!guarded.reached(&refused));
    }
    let again = ask(&flood[0], made);
    assert_eq!(again.status, 401, "the flood makes no used proof new: {again:?}");
    assert_eq!(ask("another bucket", made).status, 200);
    clock.set(2 * WINDOW as i64);
    assert_eq!(ask(&next, now() + 2 * WINDOW).status, 200, "there is room again");
    assert_eq!(ask(&flood[0], made).status, 401, "forgotten, and too old");
}
