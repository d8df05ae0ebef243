//! Nonces of DPoP (RFC 9449 §8), which every worker and every Envoy accepts.

use jsonwebtoken::Algorithm;
use serde_json::json;

use testkit::configuration::Configuration;
use testkit::gateway::{Gateway, Options, exchange_form, exchange_request, mint_request, minted};
use testkit::holder::{Holder, changed, proof_claims};
use testkit::http::Form;

const TOKEN_URL: &str = "https://auth.example.com/oidc/token";

/// RFC 9449 §8.
#[test]
fn a_nonce_is_good_at_every_worker_and_at_every_envoy() {
    let configuration = Configuration::default().with("/dpop/nonce", "required");
    let options = Options { concurrency: 2, ..Options::default() };
    let gateways = [(); 2].map(|()| Gateway::try_start(&configuration, &options).unwrap());
    let [first, other] = &gateways;
    let holder = Holder::new(Algorithm::ES256);
    let proof = |nonce: Option<&str>| {
        let claims = changed(proof_claims("POST", TOKEN_URL), &json!({"nonce": nonce}));
        holder.sign(&claims)
    };
    let exchange =
        |form: &Form, proof: &str| first.send(&exchange_request(form).header("DPoP", proof));
    let form = exchange_form(&first.mint("u-1"));
    let refused = exchange(&form, &proof(None));
    assert_eq!(refused.refusal(), (400, "use_dpop_nonce".into()), "{refused:?}");
    let nonce = refused.header("dpop-nonce").expect("a nonce").to_owned();
    let invented = exchange(&form, &proof(Some("an-invented-nonce")));
    assert_eq!(invented.refusal(), (400, "use_dpop_nonce".into()));
    for gateway in [first, other] {
        for connection in &mut gateway.envoy.connect_to_every_worker() {
            let token = minted(&connection.send(&mint_request("u-1")));
            let request = exchange_request(&exchange_form(&token));
            let answer = connection.send(&request.header("DPoP", proof(Some(&nonce))));
            assert_eq!(answer.status, 200, "{answer:?}");
            assert!(answer.header("dpop-nonce").is_some(), "{answer:?}");
        }
    }
    // Without a proof nobody is asked for a nonce, and a wrong clock does no harm.
    assert_eq!(first.exchange(&form).status, 200);
    let slow = changed(proof_claims("POST", TOKEN_URL), &json!({"nonce": nonce, "iat": 1_000_000}));
    let form = exchange_form(&first.mint("u-1"));
    assert_eq!(exchange(&form, &holder.sign(&slow)).status, 200);
}
