//! A flood of proofs. Nobody can choose where the memory keeps a proof, and each key has a share of
//! the memory: so the flood of one key leaves the proofs of all others good. The bound itself is
//! tested in `crates/core/src/dpop/tests.rs`, because it is half a million proofs.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::Algorithm;
use serde_json::json;

use testkit::Findings;
use testkit::bootstrap::Filter;
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

/// The memory once had this many buckets, each with room for this many proofs. The unkeyed SHA-256
/// of a proof chose its bucket.
const BUCKETS: u32 = 4096;
const ROOM: usize = 64;

/// The seconds after which every proof of a flood has expired.
const WINDOW: u64 = 180;

/// The values of `jti` with which the proofs of every key were once in the same bucket.
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
fn the_flood_of_one_key_leaves_the_proofs_of_other_keys_good() {
    let filter = Filter::from(&filter_configuration().with("/dpop", json!({})));
    let api = Server::start(API);
    api.answer(as_asked);
    let members = json!({"public_origin": PUBLIC_ORIGIN});
    let listener = bound_listener(&guard_configuration(&members), true);
    let bootstrap = Guarded::bootstrap_with(listener, filter, api.address);
    let guarded = Guarded { envoy: bootstrap.with_clock().start(), api };
    let mut findings = Findings::default();
    at_the_filter(&guarded, &mut findings);
    at_the_guard(&guarded, &mut findings);
}

fn at_the_filter(guarded: &Guarded, findings: &mut Findings) {
    let mut gateway = connect(&guarded.envoy, "gateway");
    let made = now();
    let mut mint = |holder: &Holder, jti: &str| {
        let cnf = json!({"cnf": {"jkt": holder.thumbprint()}});
        let bearer = PROVIDER_KEY.sign(&changed(backend_claims(), &cnf));
        let proof = proof(holder, ("POST", MINT_URL), jti, &bearer, made);
        let request = Request::post("/api/subject-tokens").json(&json!({"userId": "u-1"}));
        let request = request.header("authorization", format!("DPoP {bearer}"));
        gateway.send(&request.header("DPoP", proof))
    };
    let (flooder, other) = (Holder::new(Algorithm::ES256), Holder::new(Algorithm::ES256));
    for jti in in_one_bucket(&flooder).take(ROOM) {
        assert_eq!(mint(&flooder, &jti).status, 201, "a proof of the flood");
    }
    let jti = in_one_bucket(&other).next().unwrap();
    findings.expect("another backend's mint", &mint(&other, &jti).status, &201);
    let subject_token = minted(&gateway.send(&mint_request("u-1")));
    let proof =
        proof(&other, ("POST", TOKEN_URL), &in_one_bucket(&other).nth(1).unwrap(), "", made);
    let form = exchange_form(&subject_token);
    let answer = gateway.send(&exchange_request(&form).header("DPoP", proof));
    findings.expect("a client's exchange", &answer.status, &200);
}

fn at_the_guard(guarded: &Guarded, findings: &mut Findings) {
    let ask = |holder: &Holder, jti: &str, iat: u64| -> Answer {
        let token = token(&claims_with(&json!({"cnf": {"jkt": holder.thumbprint()}})));
        let proof = proof(holder, ("GET", API_URL), jti, &token, iat);
        let request = Request::get("/orders").header("authorization", format!("DPoP {token}"));
        guarded.send(&request.header("DPoP", proof))
    };
    let (flooder, other) = (Holder::new(Algorithm::ES256), Holder::new(Algorithm::ES256));
    let made = now();
    let flood: Vec<_> = in_one_bucket(&flooder).take(ROOM).collect();
    for jti in &flood {
        assert_eq!(ask(&flooder, jti, made).status, 200, "a proof of the flood");
    }
    let jti = in_one_bucket(&other).next().unwrap();
    findings.expect("another key's proof", &ask(&other, &jti, made).status, &200);
    let again = ask(&flooder, &flood[0], made);
    findings.expect("the flood makes no used proof new", &again.status, &401);
    guarded.envoy.clock().set(WINDOW as i64);
    let late = ask(&flooder, &flood[0], made);
    findings.expect("forgotten, and too old", &late.status, &401);
}
