//! A signing key that arrives in an environment variable of the VM.

use jsonwebtoken::Algorithm;
use serde_json::json;

use testkit::bootstrap::Filter;
use testkit::configuration::Configuration;
use testkit::gateway::{Gateway, exchange_form, verify};
use testkit::http::Request;
use testkit::keys::Key;

#[test]
fn a_key_in_an_environment_variable_signs() {
    let gateway = Gateway::lent(&Configuration::default());
    let rsa = Key::generate(Algorithm::RS256, "rsa-1");
    let ps256 = rsa.under(Algorithm::PS256, "ps-1");
    let ec = Key::generate(Algorithm::ES256, "es256-1");
    for (key, value) in [
        (&rsa, rsa.private_jwk().to_string()),
        (&rsa, rsa.pem().into()),
        (&ps256, ps256.private_jwk().to_string()),
        (&ec, ec.private_jwk().to_string()),
        (&ec, ec.pem().into()),
    ] {
        let member = json!([{"environment_variable": "KEY"}]);
        let configuration = Configuration::default().with("/signing_keys", member);
        let environment = vec![("KEY".to_owned(), value)];
        gateway.update(Filter { environment, ..Filter::from(&configuration) }).unwrap();
        let answer = gateway.exchange(&exchange_form(&gateway.mint("u-1")));
        let jwks = gateway.send(&Request::get("/oidc/jwks")).json();
        let (header, claims) = verify(&answer.member("access_token"), &jwks);
        assert_eq!(header["alg"], json!(key.alg));
        assert_eq!(claims["sub"], "u-1");
        for secret in key.secrets() {
            assert!(!jwks.to_string().contains(&secret), "a private key in {jwks}");
        }
    }
}
