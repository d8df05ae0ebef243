use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::Value;

use super::SigningKeyError;
use crate::fakes::FakeHost;
use crate::jose::tests::{keys_of_all_kinds, rfc, signing_key};
use crate::jose::{AccessTokenType, Algorithm, PublishedKey, private_from_pem};

/// Both algorithms are deterministic, so the signatures equal those of the RFCs.
#[test]
fn the_examples_of_rfc_7515_a_2_and_rfc_8037_a_4_are_signed() {
    let mut a2: Value = serde_json::from_str(rfc::A2_KEY).unwrap();
    let private: Value = serde_json::from_str(rfc::A2_PRIVATE).unwrap();
    a2.as_object_mut().unwrap().extend(private.as_object().unwrap().clone());
    let ed25519 = serde_json::from_str(rfc::ED25519_KEY).unwrap();
    for (jwk, input, signature) in [
        (a2, rfc::A2_INPUT, rfc::A2_SIGNATURE),
        (ed25519, rfc::ED25519_INPUT, rfc::ED25519_SIGNATURE),
    ] {
        let signed = signing_key(&jwk).sign(&FakeHost::default(), None, input.as_bytes()).unwrap();
        assert_eq!(BASE64_URL_SAFE_NO_PAD.encode(signed), signature);
    }
}

/// Without randomness RSA would not be blinded, and the salt of PSS would be predictable.
#[test]
fn rsa_does_not_sign_without_randomness() {
    let host = FakeHost::default();
    for (algorithm, key) in keys_of_all_kinds() {
        let Ok((_, Some(signing))) = PublishedKey::from_jwk(&key.private_jwk(), None, None) else {
            continue;
        };
        let signs = !matches!(algorithm, Algorithm::Rs256 | Algorithm::Ps256);
        host.fail_randomness(0);
        assert_eq!(
            signing.sign_jwt(&host, None, AccessTokenType::AtJwt, b"{}").is_ok(),
            signs,
            "{algorithm}"
        );
    }
}

#[test]
fn an_error_says_what_is_wrong_with_a_key_and_reveals_no_contents() {
    for (_, key) in keys_of_all_kinds() {
        let mut jwk = key.private_jwk();
        let d = jwk["d"].as_str().unwrap().to_owned();
        jwk["alg"] = d.clone().into();
        let mut spoilt = key.private_jwk();
        spoilt["x"] = d.clone().into();
        spoilt["n"] = d.into();
        let (pem, half) = (key.pem(), key.pem().len() / 2);
        let errors = [
            PublishedKey::from_jwk(&jwk, None, None).err(),
            PublishedKey::from_jwk(&spoilt, None, None).err(),
            private_from_pem(pem.get(..half).unwrap()).err(),
            private_from_pem(&pem.replace("PRIVATE KEY", "RSA PRIVATE KEY")).err(),
        ];
        let errors: Vec<SigningKeyError> = errors.into_iter().flatten().collect();
        assert_eq!(errors.len(), 4, "{errors:?}");
        for error in errors {
            let shown = format!("{error} {error:?}");
            for secret in key.secrets() {
                assert!(!shown.contains(secret.get(..12).unwrap()), "{shown}");
            }
        }
    }
}
