//! Proofs of DPoP that are longer than Envoy's usual limit of header fields.

use jsonwebtoken::Algorithm;
use serde_json::{Value, json};

use testkit::bootstrap::{Bootstrap, Filter};
use testkit::configuration::PROVIDER_KEY;
use testkit::gateway::{backend_claims, exchange_form, exchange_request, mint_body_request};
use testkit::guarded::{filter_configuration, gateway_listener};
use testkit::holder::{Holder, changed};

/// Accepts long headers, so that a proof of 64 KiB reaches the filter. Envoy's own limit is 60 KiB
/// for all headers.
pub(crate) fn large_headers(listener: &mut Value) {
    let manager = listener.pointer_mut("/filter_chains/0/filters/0/typed_config").unwrap();
    manager["max_request_headers_kb"] = 192.into();
}

#[test]
fn a_proof_of_64_kib_is_refused() {
    let configuration = filter_configuration().with("/dpop", json!({}));
    let listener = gateway_listener(Filter::from(&configuration)).edited(large_headers);
    let envoy = Bootstrap::default().listener(listener).start();
    let proof = "x".repeat(65_536);
    let mint = mint_body_request(&json!({"userId": "u-1"}));
    let token = envoy.send(&mint).member("subjectToken");
    let exchange = exchange_request(&exchange_form(&token)).header("DPoP", &proof);
    assert_eq!(envoy.send(&exchange).refusal(), (400, "invalid_dpop_proof".into()));

    let cnf = json!({"cnf": {"jkt": Holder::new(Algorithm::ES256).thumbprint()}});
    let bound = PROVIDER_KEY.sign(&changed(backend_claims(), &cnf));
    let mut by_bound = mint.header("DPoP", &proof);
    by_bound.headers.retain(|(name, _)| name != "authorization");
    let answer = envoy.send(&by_bound.header("authorization", format!("DPoP {bound}")));
    assert_eq!(answer.refusal(), (401, "invalid_dpop_proof".into()));
}
