//! Access tokens that are bound to a key: the proofs of an exchange (RFC 9449 §4.3, §5, §8, §11.1),
//! and actor tokens that are bound.

use jsonwebtoken::Algorithm;
use serde_json::{Value, json};

use super::flow::claims_of;
use crate::world::World;
use testkit::Findings;
use testkit::configuration::{CLIENT_SECRET, Configuration, ORDERS, PROVIDER_KEY};
use testkit::gateway::{actor_claims, exchange_form, exchange_request, raw_part, with_actor};
use testkit::holder::{Holder, bad_proofs, changed, proof_claims};
use testkit::http::{Answer, Form, Request};

const ORIGIN: &str = "https://auth.example.com";
const TOKEN_PATH: &str = "/oidc/token";
const TOKEN_URL: &str = "https://auth.example.com/oidc/token";

/// A resource for which no client gets an unbound token.
const VAULT: &str = "https://api.example.com/vault";

fn configuration() -> Configuration {
    Configuration::default()
        .with(
            "/clients/-",
            json!({"client_id": "bound", "type": "native", "token_binding": "dpop"}),
        )
        .with("/clients/-", json!({"client_id": "tls", "type": "native", "token_binding": "mtls"}))
        .with(
            "/resources/-",
            json!({"indicator": VAULT, "scopes": ["orders:read"], "token_binding": "any"}),
        )
}

fn with_proofs(request: Request, proofs: &[String]) -> Request {
    proofs.iter().fold(request, |request, proof| request.header("DPoP", proof))
}

fn exchange(world: &World, form: &Form, proofs: &[String]) -> Answer {
    world.send(&with_proofs(exchange_request(form), proofs))
}

#[test]
fn the_exchange_makes_every_check_of_a_proof() {
    let world = World::start(&configuration());
    let token = world.mint();
    let form = exchange_form(&token);
    let mut findings = Findings::default();
    for (case, fields) in bad_proofs("POST", (ORIGIN, TOKEN_PATH), None) {
        let answer = exchange(&world, &form, &fields);
        findings.expect(case, &answer.refusal(), &(400, "invalid_dpop_proof".into()));
    }
    let lies = [
        ("host", "evil.example.com"),
        ("x-forwarded-host", "evil.example.com"),
        ("x-forwarded-proto", "http"),
    ];
    for (name, value) in lies {
        let proof =
            Holder::new(Algorithm::ES256).proof("POST", "https://evil.example.com/oidc/token");
        let request = exchange_request(&form).header("DPoP", proof).header(name, value);
        let answer = world.send(&request);
        findings.expect(name, &answer.refusal(), &(400, "invalid_dpop_proof".into()));
    }
    world.assert_spendable(&token, "after bad proofs");
}

#[test]
fn a_proof_binds_the_access_token_to_its_key() {
    let world = World::start(&configuration());
    for alg in [Algorithm::ES256, Algorithm::ES384, Algorithm::EdDSA, Algorithm::PS256] {
        let holder = Holder::new(alg);
        let form = exchange_form(&world.mint());
        let answer = exchange(&world, &form, &[holder.proof("POST", TOKEN_URL)]);
        assert_eq!(answer.status, 200, "{alg:?}: {answer:?}");
        assert_eq!(answer.member("token_type"), "DPoP", "{alg:?}");
        assert_eq!(claims_of(&answer)["cnf"], json!({"jkt": holder.thumbprint()}), "{alg:?}");
        let introspection = Form::default().set("token", &answer.member("access_token"));
        let request = Request::post("/oidc/token/introspection")
            .header("content-type", "application/x-www-form-urlencoded")
            .basic("support-portal", &CLIENT_SECRET)
            .body(introspection.encode());
        let told = world.send(&request).json();
        assert_eq!(told["token_type"], json!("DPoP"), "{told}");
        assert_eq!(told["cnf"], json!({"jkt": holder.thumbprint()}), "{told}");
    }
    let unbound = exchange(&world, &exchange_form(&world.mint()), &[]);
    assert_eq!(unbound.member("token_type"), "Bearer");
    assert_eq!(claims_of(&unbound).get("cnf"), None);
}

#[test]
fn a_client_or_a_resource_that_asks_for_binding_gets_no_unbound_token() {
    let world = World::start(&configuration());
    let holder = Holder::new(Algorithm::ES256);
    let token = world.mint();
    let bound = exchange_form(&token).set("client_id", "bound");
    let vault = exchange_form(&token).set("resource", VAULT);
    let tls = exchange_form(&token).set("client_id", "tls");
    let proof = || vec![holder.proof("POST", TOKEN_URL)];
    let mut findings = Findings::default();
    #[rustfmt::skip]
    let cases = [
        ("a client, no proof",               &bound, vec![],  "invalid_dpop_proof"),
        ("a resource, no proof",             &vault, vec![],  "invalid_dpop_proof"),
        ("a certificate, none",              &tls,   vec![],  "invalid_request"),
        ("a certificate, a proof instead",   &tls,   proof(), "invalid_request"),
    ];
    for (case, form, proofs, error) in cases {
        let answer = exchange(&world, form, &proofs);
        findings.expect(case, &answer.refusal(), &(400, error.into()));
    }
    assert_eq!(exchange(&world, &bound, &proof()).status, 200);
    let again = exchange_form(&world.mint()).set("resource", VAULT);
    assert_eq!(exchange(&world, &again, &proof()).status, 200);
}

/// RFC 9449 §11.1.
#[test]
fn a_proof_is_good_for_one_exchange() {
    let world = World::start(&configuration());
    let holder = Holder::new(Algorithm::ES256);
    let proof = [holder.proof("POST", TOKEN_URL)];
    let first = exchange(&world, &exchange_form(&world.mint()), &proof);
    assert_eq!(first.status, 200, "{first:?}");
    let second = exchange_form(&world.mint());
    let answer = exchange(&world, &second, &proof);
    assert_eq!(answer.refusal(), (400, "invalid_dpop_proof".into()));
    let unknown = exchange_form("sub_0123456789012345678901234567890123456789012");
    let unused = [holder.proof("POST", TOKEN_URL)];
    assert_eq!(exchange(&world, &unknown, &unused).refusal(), (400, "invalid_request".into()));
    assert_eq!(exchange(&world, &second, &unused).status, 200, "a stranger used up no proof");
}

/// A stranger chooses the key of a proof, and so what its verification costs. Without a nonce and a
/// live subject token nobody makes the filter verify.
#[test]
fn a_proof_is_verified_last() {
    let world = World::start(&configuration());
    let holder = Holder::new(Algorithm::ES256);
    let forged = |claims: &Value| {
        let proof = holder.sign(claims);
        [format!("{}.{}", proof.rsplit_once('.').unwrap().0, "A".repeat(86))]
    };
    let forged_now = || forged(&proof_claims("POST", TOKEN_URL));
    let unknown = exchange_form("sub_0123456789012345678901234567890123456789012");
    let refused = exchange(&world, &unknown, &forged_now());
    assert_eq!(refused.refusal(), (400, "invalid_request".into()), "no live token: {refused:?}");
    let live = exchange_form(&world.mint());
    let elsewhere = live.clone().set("resource", "https://api.example.com/else");
    let refused = exchange(&world, &elsewhere, &forged_now());
    assert_eq!(refused.refusal(), (400, "invalid_target".into()), "{refused:?}");
    let refused = exchange(&world, &live, &forged_now());
    assert_eq!(refused.refusal(), (400, "invalid_dpop_proof".into()), "{refused:?}");
    world.update(&configuration().with("/dpop/nonce", "required")).unwrap();
    let refused = exchange(&world, &live, &forged_now());
    assert_eq!(refused.refusal(), (400, "use_dpop_nonce".into()), "no nonce: {refused:?}");
    let nonce = refused.header("dpop-nonce").expect("a nonce").to_owned();
    let claims = changed(proof_claims("POST", TOKEN_URL), &json!({"nonce": nonce}));
    let refused = exchange(&world, &live, &forged(&claims));
    assert_eq!(refused.refusal(), (400, "invalid_dpop_proof".into()), "{refused:?}");
    assert_eq!(exchange(&world, &live, &[holder.sign(&claims)]).status, 200);
}

#[test]
fn a_bound_actor_token_needs_the_key_of_the_exchange() {
    let world = World::start(&configuration());
    let (holder, other) = (Holder::new(Algorithm::ES256), Holder::new(Algorithm::ES256));
    let bound = changed(actor_claims("agent-1"), &json!({"cnf": {"jkt": holder.thumbprint()}}));
    let form = with_actor(exchange_form(&world.mint()), &PROVIDER_KEY.sign(&bound));
    let refused = (400, "invalid_request".into());
    assert_eq!(exchange(&world, &form, &[]).refusal(), refused, "no proof");
    let another = exchange(&world, &form, &[other.proof("POST", TOKEN_URL)]);
    assert_eq!(another.refusal(), refused, "another key");
    let unknown = changed(actor_claims("agent-1"), &json!({"cnf": {"jwk": holder.jwk()}}));
    let odd = with_actor(form.clone(), &PROVIDER_KEY.sign(&unknown));
    let odd = exchange(&world, &odd, &[holder.proof("POST", TOKEN_URL)]);
    assert_eq!(odd.refusal(), refused, "a cnf of another kind");
    let answer = exchange(&world, &form, &[holder.proof("POST", TOKEN_URL)]);
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(claims_of(&answer)["act"]["sub"], json!("agent-1"));
}

/// Nothing changes for a deployment that configures no binding.
#[test]
fn a_proof_means_nothing_where_no_binding_is_configured() {
    let world = World::start(&Configuration::default());
    let form = exchange_form(&world.mint());
    let answer = exchange(&world, &form, &["no proof at all".into()]);
    assert_eq!(answer.member("token_type"), "Bearer");
    assert_eq!(raw_part(&answer.member("access_token"), 1).get("cnf"), None);
    let document = world.send(&Request::get("/oidc/.well-known/openid-configuration")).json();
    for member in
        ["dpop_signing_alg_values_supported", "tls_client_certificate_bound_access_tokens"]
    {
        assert_eq!(document.get(member), None, "{member}");
    }
}

#[test]
fn discovery_names_the_ways_to_bind_and_to_authenticate() {
    let signer = json!({
        "client_id": "signer", "type": "traditional_web", "authentication": "private_key_jwt",
        "local_jwks": testkit::configuration::jwks(&[&PROVIDER_KEY]), "resources": [ORDERS],
    });
    let world = World::start(&configuration().with("/clients/-", signer));
    let document = world.send(&Request::get("/oidc/.well-known/openid-configuration")).json();
    let list = |member: &str| document[member].as_array().cloned().unwrap_or_default();
    assert!(list("dpop_signing_alg_values_supported").contains(&json!("ES256")), "{document}");
    assert!(!list("dpop_signing_alg_values_supported").contains(&json!("RS256")), "{document}");
    assert!(list("token_endpoint_auth_methods_supported").contains(&json!("private_key_jwt")));
    assert!(list("token_endpoint_auth_signing_alg_values_supported").contains(&json!("PS256")));
    assert_eq!(document["tls_client_certificate_bound_access_tokens"], json!(true));
}
