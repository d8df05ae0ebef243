//! Proofs of possession and client assertions, signed by a good key: what is accepted says what it
//! must.

use std::rc::Rc;

use impersonation_core::fakes::START;
use impersonation_issuer::issuer::Service;
use serde_json::{Value, json};

use crate::setting::{
    Begun, FORM, ISSUER, b64, exchange, exchange_form, provider, says_yes, service, signed,
};
use crate::world::play;

/// A service, and the host that every input begins with.
struct Begin {
    service: Rc<Service>,
    begun: Begun,
}

impl Begin {
    fn new(members: &Value) -> Self {
        let service = service(members);
        let begun = Begun::new(&service);
        Self { service, begun }
    }
}

thread_local! {
    static BINDING: Begin = Begin::new(&json!({"dpop": {}}));
    static SIGNING: Begin = Begin::new(&with_signer());
}

/// The public key of the provider.
fn jwk() -> Value {
    json!({"kty": "OKP", "crv": "Ed25519", "x": b64(provider().verifying_key().as_bytes())})
}

/// A client that authenticates by assertions, beside the one by which an impersonation is begun.
fn with_signer() -> Value {
    let keys = json!({"keys": [jwk()]}).to_string();
    let secret = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
    json!({"clients": [
        {"client_id": "portal", "type": "traditional_web", "client_secret_sha256": [secret]},
        {
            "client_id": "signer", "type": "traditional_web", "authentication": "private_key_jwt",
            "local_jwks": {"inline_string": keys},
        },
    ]})
}

/// Header and claims, each on a line. `$JWK` stands for the public key.
fn parts(data: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let mut lines = data.splitn(2, |byte| *byte == b'\n');
    let header = String::from_utf8_lossy(lines.next().unwrap_or_default()).into_owned();
    let header = header.replace("$JWK", &jwk().to_string());
    (header.into_bytes(), lines.next().unwrap_or_default().to_vec())
}

/// A proof at the exchange: its header and its claims, or the header field as it is. An accepted
/// proof says what RFC 9449 §4.3 demands, and is not accepted again.
pub(crate) fn proof(data: &[u8]) {
    let (header, claims) = parts(data);
    let raw = !data.contains(&b'\n');
    let field = if raw { data.to_vec() } else { signed(&header, &claims).into_bytes() };
    BINDING.with(|Begin { service, begun }| {
        let world = Rc::new(begun.world.copy());
        let form = exchange_form(&begun.outstanding);
        let mut request = exchange(form.as_bytes());
        request.headers.push(("dpop", &field));
        let answer = play(service, &world, &request, says_yes).unwrap();
        if answer.status != 200 {
            assert_eq!(answer.status, 400, "{}", answer.body.escape_ascii());
            let form = exchange_form(&begun.outstanding);
            let unspent = play(service, &world, &exchange(form.as_bytes()), says_yes).unwrap();
            assert_eq!(unspent.status, 200, "the subject token is spent");
            return;
        }
        assert!(!raw, "nobody signed it");
        let [header, claims]: [Value; 2] =
            [&header, &claims].map(|part| serde_json::from_slice(part).unwrap());
        assert!(header["typ"] == "dpop+jwt" && header.get("crit").is_none());
        assert!(header["alg"] == "EdDSA" || header["alg"] == "Ed25519");
        assert!(header["jwk"].get("d").is_none() && header["jwk"].get("k").is_none());
        assert!(
            claims["htm"] == "POST" && claims["jti"].as_str().is_some_and(|jti| !jti.is_empty())
        );
        let htu = claims["htu"].as_str().unwrap().to_ascii_lowercase();
        assert!(htu.starts_with("https://auth.example.com"), "{htu}");
        assert!((claims["iat"].as_f64().unwrap() - START.secs() as f64).abs() < 62.0);
        assert_eq!(answer.json()["token_type"], "DPoP");
    });
}

/// An assertion of a client at the exchange: its header and its claims. An accepted assertion says
/// what draft-ietf-oauth-rfc7523bis demands.
pub(crate) fn assertion(data: &[u8]) {
    let (header, claims) = parts(data);
    let assertion = signed(&header, &claims);
    SIGNING.with(|Begin { service, begun }| {
        let world = Rc::new(begun.world.copy());
        let form = exchange_form(&begun.outstanding);
        let form = form_urlencoded::Serializer::new(form)
            .append_pair("client_assertion", &assertion)
            .append_pair(
                "client_assertion_type",
                "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
            )
            .finish();
        let mut request = exchange(form.as_bytes());
        request.headers = vec![FORM];
        let answer = play(service, &world, &request, says_yes).unwrap();
        if answer.status != 200 {
            assert_eq!(answer.status, 401, "{}", answer.body.escape_ascii());
            return;
        }
        let [header, claims]: [Value; 2] =
            [&header, &claims].map(|part| serde_json::from_slice(part).unwrap());
        assert!(header["alg"] == "EdDSA" || header["alg"] == "Ed25519");
        assert!(claims["iss"] == "signer" && claims["sub"] == "signer");
        assert!(claims["aud"] == ISSUER || claims["aud"] == json!([ISSUER]));
        assert!(claims["jti"].as_str().is_some_and(|jti| !jti.is_empty()));
        let ahead = claims["exp"].as_f64().unwrap() - START.secs() as f64;
        assert!((-11.0..=301.0).contains(&ahead), "{ahead}");
        let again = play(service, &world, &request, says_yes).unwrap();
        assert_eq!(again.status, 401, "an assertion is good once");
    });
}
