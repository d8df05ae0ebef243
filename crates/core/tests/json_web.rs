//! The JSON Web Signatures and keys of Wycheproof, which no crate has: run with a checkout of
//! <https://github.com/C2SP/wycheproof>, and not by `cargo test` alone.
//!
//! ```text
//! WYCHEPROOF=<checkout> cargo test -p impersonation-core --test json_web
//! ```
//!
//! The filter refuses some vectors that Wycheproof calls valid: secrets for HMAC, and algorithms
//! that the filter does not accept.
#![cfg(test)]

use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use impersonation_core::jose::{Algorithm, KeySet, UntrustedJwt};
use serde_json::{Value, json};
use testkit::Findings;

fn is_for_us(document: &Value, token: &str) -> bool {
    let has_secret = document["keys"].as_array().unwrap().iter().any(|key| key["kty"] == "oct");
    let algorithm = UntrustedJwt::parse(token).map(|token| token.algorithm().to_owned());
    !has_secret && algorithm.is_some_and(|name| Algorithm::from_name(&name).is_some())
}

/// Returns true if the filter accepts the token's form and its signature by one of the keys. The
/// payloads of these vectors are text, so no claims are checked.
fn is_signed(keys: &KeySet, token: &str) -> bool {
    let Some(parsed) = UntrustedJwt::parse(token) else { return false };
    let Some(algorithm) = Algorithm::from_name(parsed.algorithm()) else { return false };
    let (input, signature) = token.rsplit_once('.').unwrap();
    let signature = BASE64_URL_SAFE_NO_PAD.decode(signature).unwrap();
    let mut keys = keys.candidates(algorithm, parsed.key_id());
    keys.any(|key| key.verify(None, algorithm, input.as_bytes(), &signature))
}

#[test]
fn tokens_and_keys_are_judged_as_wycheproof_does() {
    let checkout = std::env::var_os("WYCHEPROOF").expect("WYCHEPROOF names a checkout");
    let mut findings = Findings::default();
    let (mut good, mut bad) = (0, 0);
    for file in ["json_web_signature_test.json", "json_web_key_test.json"] {
        let path = Path::new(&checkout).join("testvectors_v1").join(file);
        let set: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        for group in set["testGroups"].as_array().unwrap() {
            let key = group.get("public").or(group.get("private")).unwrap();
            let document =
                if key["keys"].is_array() { key.clone() } else { json!({"keys": [key]}) };
            let keys = KeySet::parse(document.to_string().as_bytes()).unwrap();
            for test in group["tests"].as_array().unwrap() {
                // The JSON serialisation is an object in one version of the file, and text in
                // another.
                let token = &test["jws"];
                let token = token.as_str().map_or_else(|| token.to_string(), str::to_owned);
                let expected = test["result"] == "valid" && is_for_us(&document, &token);
                *if expected { &mut good } else { &mut bad } += 1;
                let name = format!("{file} {}: {}", test["tcId"], test["comment"]);
                findings.expect(name, &is_signed(&keys, &token), &expected);
            }
        }
    }
    assert!(good >= 25 && bad >= 400, "{good} good and {bad} others");
}
