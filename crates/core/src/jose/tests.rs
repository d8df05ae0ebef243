//! Keys and signatures: the examples of the RFCs, interoperation with another library, and
//! malicious keys.

pub(crate) mod host;
pub(crate) mod rfc;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{DecodingKey, Validation};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use self::host::{AwsLc, Manner};
use super::*;
use crate::fakes::FakeHost;
use testkit::keys::Key;
use testkit::{Findings, vectors};

fn decode(text: &str) -> Vec<u8> {
    BASE64_URL_SAFE_NO_PAD.decode(text).unwrap()
}

fn parse(json: &str) -> Value {
    serde_json::from_str(json).unwrap()
}

fn verifying_key(jwk: &Value) -> VerifyingKey {
    VerifyingKey::from_jwk(jwk).unwrap()
}

pub(crate) fn signing_key(jwk: &Value) -> SigningKey {
    let (_, signing) = PublishedKey::from_jwk(jwk, None, None).unwrap();
    signing.unwrap()
}

/// One key for each algorithm. Another library generates them.
pub(crate) fn keys_of_all_kinds() -> [(Algorithm, Key); 7] {
    Key::of_all_kinds().map(|key| {
        let name = key.public_jwk()["alg"].as_str().unwrap().to_owned();
        (Algorithm::from_name(&name).unwrap(), key)
    })
}

/// Splits a JWT into the signed part and the signature.
fn parts(token: &str) -> (&[u8], Vec<u8>) {
    let (input, signature) = token.rsplit_once('.').unwrap();
    (input.as_bytes(), decode(signature))
}

#[test]
fn the_examples_of_rfc_7515_and_rfc_8037_are_verified() {
    for (section, algorithm, key, input, signature) in [
        ("7515 A.2", Algorithm::Rs256, rfc::A2_KEY, rfc::A2_INPUT, rfc::A2_SIGNATURE),
        ("7515 A.3", Algorithm::Es256, rfc::A3_KEY, rfc::A3_INPUT, rfc::A3_SIGNATURE),
        (
            "8037 A.5",
            Algorithm::EdDsa,
            rfc::ED25519_KEY,
            rfc::ED25519_INPUT,
            rfc::ED25519_SIGNATURE,
        ),
    ] {
        let key = verifying_key(&parse(key));
        let (input, signature) = (input.as_bytes(), decode(signature));
        assert!(key.verify(None, algorithm, input, &signature), "{section}");
        for place in [0, signature.len() / 2, signature.len().saturating_sub(1)] {
            let mut changed = signature.clone();
            changed[place] ^= 1;
            assert!(!key.verify(None, algorithm, input, &changed), "{section}: byte {place}");
        }
        assert!(!key.verify(None, algorithm, b"another message", &signature), "{section}");
        assert!(!key.verify(None, algorithm, input, &signature[1..]), "{section}");
        assert!(!key.verify(None, algorithm, input, &[&signature[..], &[0]].concat()), "{section}");
        assert!(!key.verify(None, algorithm, input, &[]), "{section}");
        for other in Algorithm::ALL.into_iter().filter(|other| !other.is_same_as(algorithm)) {
            assert!(!key.verify(None, other, input, &signature), "{section} as {other}");
        }
    }
}

/// The crates verify, and a host where it can: aws-lc here, BoringSSL in `tests/envoy/vectors.rs`.
#[test]
fn the_verdicts_are_those_of_wycheproof() {
    let mut findings = Findings::default();
    let own = signing_key(&Key::generate(jsonwebtoken::Algorithm::ES256, "own").private_jwk());
    let host = AwsLc::new(Manner::Honest);
    let asked = host.verified.clone();
    let host = host.tested(&own);
    let vectors = vectors::all();
    for vector in &vectors {
        let key = verifying_key(&vector.jwk);
        let algorithm = Algorithm::from_name(vector.algorithm).unwrap();
        asked.set(0);
        for (by, crypto) in [("the crates", None), ("the host", Some(&host))] {
            let good = key.verify(crypto, algorithm, &vector.message, &vector.signature);
            findings.expect(format!("{}, by {by}", vector.name), &good, &vector.good);
        }
        let can = !matches!(algorithm, Algorithm::EdDsa | Algorithm::Ps256);
        if vector.good {
            findings.expect(format!("{}: asked", vector.name), &(asked.get() > 0), &can);
        }
    }
    let good = vectors.iter().filter(|vector| vector.good).count();
    assert!(good > 600 && vectors.len() > 3_500, "{good} of {}", vectors.len());
    for jwk in vectors::too_long_keys() {
        assert_eq!(VerifyingKey::from_jwk(&jwk).unwrap_err(), VerifyingKeyError::Weak);
    }
}

#[test]
fn the_other_algorithms_of_rfc_7515_are_refused() {
    // A.1, A.4, A.5, and names that resemble accepted ones.
    for name in ["HS256", "ES512", "none", "None", "NONE", "", "rs256", "RS256 ", "ES256K", "PS384"]
    {
        assert_eq!(Algorithm::from_name(name), None, "{name:?}");
    }
    for key in [rfc::A1_KEY, rfc::A4_KEY] {
        let refused = VerifyingKey::from_jwk(&parse(key)).unwrap_err();
        assert_eq!(refused, VerifyingKeyError::NotForUs);
    }
}

#[test]
fn a_key_without_a_name_is_named_by_its_thumbprint() {
    for (key, thumbprint) in
        [(rfc::THUMBPRINT_KEY, rfc::THUMBPRINT), (rfc::ED25519_KEY, rfc::ED25519_THUMBPRINT)]
    {
        let (published, _) = PublishedKey::from_jwk(&parse(key), None, None).unwrap();
        assert_eq!(published.kid, thumbprint);
    }
    let named = |kid| PublishedKey::from_jwk(&parse(rfc::ED25519_KEY), kid, None).unwrap().0.kid;
    assert_eq!(named(Some("given")), "given");
}

#[test]
fn only_the_right_signatures_of_another_library_are_verified() {
    let keys = keys_of_all_kinds();
    for (algorithm, key) in &keys {
        let token = key.sign(&json!({"sub": "x"}));
        let (input, signature) = parts(&token);
        for (accepted, other) in &keys {
            let same = key.kid == other.kid;
            let jwk = verifying_key(&other.public_jwk());
            assert_eq!(jwk.accepts(*algorithm), same, "{} by {}", key.kid, other.kid);
            assert_eq!(jwk.verify(None, *algorithm, input, &signature), same);
            assert!(same || !jwk.verify(None, *accepted, input, &signature));
        }
        let mut unnamed = key.public_jwk();
        unnamed.as_object_mut().unwrap().remove("alg");
        assert!(verifying_key(&unnamed).verify(None, *algorithm, input, &signature));
    }
}

#[test]
fn another_library_verifies_what_is_signed_here() {
    let host = FakeHost::default();
    for (algorithm, key) in keys_of_all_kinds() {
        if matches!(algorithm, Algorithm::Rs384 | Algorithm::Rs512) {
            let refused = PublishedKey::from_jwk(&key.private_jwk(), None, None).err();
            assert_eq!(refused, Some(SigningKeyError::Algorithm), "{algorithm}");
            continue;
        }
        let from_pem = private_from_pem(key.pem()).unwrap();
        for jwk in [key.private_jwk(), from_pem] {
            let (published, signing) =
                PublishedKey::from_jwk(&jwk, Some("k"), Some(algorithm.name())).unwrap();
            let signing = signing.unwrap();
            assert_eq!(signing.algorithm(), algorithm);
            let token = signing
                .sign_jwt(&host, None, AccessTokenType::AtJwt, br#"{"sub":"x","exp":99999999999}"#)
                .unwrap();
            let jwk: Jwk =
                serde_json::from_value(serde_json::to_value(published).unwrap()).unwrap();
            let (decoding, validation) =
                (DecodingKey::from_jwk(&jwk).unwrap(), Validation::new(key.alg));
            let verified = jsonwebtoken::decode::<Value>(&token, &decoding, &validation).unwrap();
            assert_eq!(verified.claims["sub"], "x");
            assert_eq!(verified.header.typ.as_deref(), Some("at+jwt"));
        }
    }
}

/// RFC 9864 §2.2: with an Ed25519 key, `EdDSA` means `Ed25519`. A token and its key may use
/// different names.
#[test]
fn ed25519_is_another_name_of_eddsa() {
    let key = Key::generate(jsonwebtoken::Algorithm::EdDSA, "k");
    let names = [Algorithm::EdDsa, Algorithm::Ed25519];
    let host = FakeHost::default();
    for of_key in names {
        let mut jwk = key.private_jwk();
        jwk["alg"] = json!(of_key.name());
        let (published, signing) = PublishedKey::from_jwk(&jwk, None, None).unwrap();
        let published = serde_json::to_value(published).unwrap();
        assert_eq!(published["alg"], of_key.name());
        let token = signing.unwrap().sign_jwt(&host, None, AccessTokenType::Jwt, b"{}").unwrap();
        let header: Value =
            serde_json::from_slice(&decode(token.split('.').next().unwrap())).unwrap();
        assert_eq!(header["alg"], of_key.name());

        let (input, signature) = parts(&token);
        let set = KeySet::parse(json!({"keys": [published]}).to_string().as_bytes()).unwrap();
        for of_token in names {
            let candidates: Vec<_> = set.candidates(of_token, Some("k")).collect();
            let [candidate] = &*candidates else { panic!("{of_key} {of_token}") };
            assert!(candidate.verify(None, of_token, input, &signature), "{of_key} {of_token}");
        }
        assert_eq!(set.candidates(Algorithm::Es256, Some("k")).count(), 0);
    }
    let mut jwk = key.private_jwk();
    jwk.as_object_mut().unwrap().remove("alg");
    assert_eq!(signing_key(&jwk).algorithm(), Algorithm::EdDsa, "where the key does not say");
    jwk["alg"] = json!("Ed448");
    let refused = PublishedKey::from_jwk(&jwk, None, None).err();
    assert_eq!(refused, Some(SigningKeyError::Algorithm));
}

#[test]
fn a_published_key_has_no_private_part() {
    for (algorithm, key) in keys_of_all_kinds() {
        let Ok((published, signing)) = PublishedKey::from_jwk(&key.private_jwk(), None, None)
        else {
            continue;
        };
        assert!(signing.is_some(), "{algorithm}");
        let shown = [serde_json::to_string(&published).unwrap(), format!("{published:?}")];
        for secret in key.secrets() {
            assert!(shown.iter().all(|shown| !shown.contains(&secret)), "{algorithm}");
        }
        let (_, signing) = PublishedKey::from_jwk(&key.public_jwk(), None, None).unwrap();
        assert!(signing.is_none(), "{algorithm}");
    }
}

#[test]
fn a_private_key_with_the_public_part_of_another_is_refused() {
    for ((algorithm, key), (_, other)) in keys_of_all_kinds().into_iter().zip(keys_of_all_kinds()) {
        if matches!(algorithm, Algorithm::Rs384 | Algorithm::Rs512) {
            continue;
        }
        let mut jwk = key.private_jwk();
        jwk.as_object_mut().unwrap().extend(other.public_jwk().as_object().unwrap().clone());
        let refused = PublishedKey::from_jwk(&jwk, None, None).err();
        assert_eq!(refused, Some(SigningKeyError::Mismatched), "{algorithm}");
    }
}

#[test]
fn a_key_is_used_for_its_purpose_only() {
    let good = parse(rfc::A3_KEY);
    let changed = |member: &str, value: Value| {
        let mut jwk = good.clone();
        jwk[member] = value;
        jwk
    };
    use VerifyingKeyError::*;
    #[rustfmt::skip]
    let cases = [
        ("for signatures",       changed("use", json!("sig")),                     None),
        ("for encryption",       changed("use", json!("enc")),                     Some(NotForUs)),
        ("to verify",            changed("key_ops", json!(["verify"])),            None),
        ("to encrypt",           changed("key_ops", json!(["encrypt"])),           Some(NotForUs)),
        ("of that algorithm",    changed("alg", json!("ES256")),                   None),
        ("of a kind of its own", changed("alg", json!("ECDH-ES")),                 Some(NotForUs)),
        ("of another type",      changed("kty", json!("oct")),                     Some(NotForUs)),
        ("of an unknown type",   changed("kty", json!("AKP")),                     Some(NotForUs)),
        ("on another curve",     changed("crv", json!("secp256k1")),               Some(NotForUs)),
        ("without a curve",      changed("crv", Value::Null),                      Some(NotForUs)),
        ("not on the curve",     changed("y", good["x"].clone()),                  Some(Malformed)),
        ("half a point",         changed("y", Value::Null),                        Some(Malformed)),
        ("a short coordinate",   changed("x", json!("f83O")),                      Some(Malformed)),
        ("no base64",            changed("x", json!("***")),                       Some(Malformed)),
        ("a number as kid",      changed("kid", json!(1)),                         Some(Malformed)),
        ("no object",            json!("key"),                                     Some(Malformed)),
        ("no type",              json!({"crv": "P-256"}),                          Some(Malformed)),
    ];
    for (case, jwk, refused) in cases {
        assert_eq!(VerifyingKey::from_jwk(&jwk).err(), refused, "{case}");
    }
    // The algorithm does not fit the type of the key, so the key verifies nothing.
    let confused = verifying_key(&changed("alg", json!("RS256")));
    assert!(Algorithm::ALL.into_iter().all(|algorithm| !confused.accepts(algorithm)));
}

#[test]
fn an_rsa_key_has_an_accepted_length_and_exponent() {
    let key = |bits: usize, e: &str| {
        let mut modulus = vec![0xff; bits / 8];
        modulus[0] = 0xc1;
        json!({"kty": "RSA", "n": BASE64_URL_SAFE_NO_PAD.encode(modulus), "e": e})
    };
    use VerifyingKeyError::*;
    #[rustfmt::skip]
    let cases = [
        ("1024 bits",      key(1024, "AQAB"), Some(Weak)),
        ("2040 bits",      key(2040, "AQAB"), Some(Weak)),
        ("2048 bits",      key(2048, "AQAB"), None),
        ("4096 bits",      key(4096, "AQAB"), None),
        ("4104 bits",      key(4104, "AQAB"), Some(Weak)),
        ("8192 bits",      key(8192, "AQAB"), Some(Weak)),
        ("an exponent of 1", key(2048, "AQ"), Some(Malformed)),
        ("an even exponent", key(2048, "BA"), Some(Malformed)),
        ("no exponent",    key(2048, ""),     Some(Malformed)),
    ];
    for (case, jwk, refused) in cases {
        assert_eq!(VerifyingKey::from_jwk(&jwk).err(), refused, "{case}");
    }
}

/// RFC 8725 §3.5 and RFC 8032 §8.9: if the key and R are the neutral element, any attacker can
/// sign.
#[test]
fn a_weak_ed25519_key_verifies_nothing() {
    let mut neutral = [0; 32];
    neutral[0] = 1;
    let jwk = json!({"kty": "OKP", "crv": "Ed25519", "x": BASE64_URL_SAFE_NO_PAD.encode(neutral)});
    if let Ok(key) = VerifyingKey::from_jwk(&jwk) {
        let signature = [neutral, [0; 32]].concat();
        assert!(!key.verify(None, Algorithm::EdDsa, b"any message", &signature));
    }
}

/// CVE-2022-21449: r and s are zero.
#[test]
fn an_ecdsa_signature_of_zeros_is_refused() {
    for (algorithm, key) in keys_of_all_kinds() {
        let length = match algorithm {
            Algorithm::Es256 => 64,
            Algorithm::Es384 => 96,
            _ => continue,
        };
        let key = verifying_key(&key.public_jwk());
        assert!(!key.verify(None, algorithm, b"any message", &vec![0; length]), "{algorithm}");
    }
}

#[test]
fn one_bad_key_does_not_spoil_a_set() {
    let good = parse(rfc::A3_KEY);
    let set = json!({"keys": [
        parse(rfc::A1_KEY), {"kty": "EC", "crv": "P-256"}, parse(rfc::A4_KEY), 7, good,
    ], "more": 1});
    let set = KeySet::parse(set.to_string().as_bytes()).unwrap();
    assert!(!set.is_empty());
    assert_eq!(set.broken, [(1, VerifyingKeyError::Malformed), (3, VerifyingKeyError::Malformed)]);
    assert_eq!(set.candidates(Algorithm::Es256, None).count(), 1);
    for no_set in ["", "[]", "{}", "{\"keys\": {}}", "{\"keys\": null}", "{\"keys\": []"] {
        assert!(KeySet::parse(no_set.as_bytes()).is_none(), "{no_set}");
    }
    assert!(KeySet::parse(b"{\"keys\": [], \"more\": \"\xff\"}").is_none());
}

#[test]
fn a_kid_chooses_among_the_keys_that_have_one() {
    let named = |kid: Value| {
        let mut jwk = parse(rfc::A3_KEY);
        jwk["kid"] = kid;
        jwk
    };
    let set = json!({"keys": [named(json!("a")), named(json!("b")), parse(rfc::A3_KEY)]});
    let set = KeySet::parse(set.to_string().as_bytes()).unwrap();
    let candidates = |algorithm, kid| set.candidates(algorithm, kid).count();
    assert_eq!(candidates(Algorithm::Es256, Some("a")), 2, "its own, and the one without a name");
    assert_eq!(candidates(Algorithm::Es256, Some("c")), 1);
    assert_eq!(candidates(Algorithm::Es256, None), 3);
    assert_eq!(candidates(Algorithm::EdDsa, Some("a")), 0);
}

#[test]
fn a_host_that_passes_the_self_test_signs_and_verifies() {
    for (algorithm, key) in keys_of_all_kinds() {
        let Ok((published, Some(signing))) = PublishedKey::from_jwk(&key.private_jwk(), None, None)
        else {
            continue;
        };
        let (crypto, can) =
            (AwsLc::new(Manner::Honest), !matches!(algorithm, Algorithm::EdDsa | Algorithm::Ps256));
        let (signed, verified) = (crypto.signed.clone(), crypto.verified.clone());
        let host = FakeHost::with_native(crypto.tested(&signing));
        assert_eq!(host.native.as_ref().unwrap().signs(algorithm), can, "{algorithm}");

        let before = (signed.get(), verified.get());
        let token =
            signing.sign_jwt(&host, host.native.as_ref(), AccessTokenType::AtJwt, b"{}").unwrap();
        let public = verifying_key(&serde_json::to_value(published).unwrap());
        let (input, signature) = parts(&token);
        assert!(public.verify(None, algorithm, input, &signature), "{algorithm}");
        assert!(public.verify(host.native.as_ref(), algorithm, input, &signature), "{algorithm}");
        assert!(!public.verify(host.native.as_ref(), algorithm, b"other", &signature));
        let asked =
            (signed.get().saturating_sub(before.0), verified.get().saturating_sub(before.1));
        assert_eq!(asked, if can { (1, 2) } else { (0, 0) }, "{algorithm}");
    }
}

#[test]
fn a_host_that_fails_the_self_test_is_not_asked_again() {
    let keys = keys_of_all_kinds();
    for manner in [
        Manner::Absent,
        Manner::AlwaysYes,
        Manner::AlwaysNo,
        Manner::IgnoresTheKey,
        Manner::IgnoresTheMessage,
        Manner::SignsBadly,
        Manner::SignsWithAnotherKey,
        Manner::SignsInAnotherForm,
    ] {
        for (algorithm, key) in &keys {
            let by_ecdsa = matches!(algorithm, Algorithm::Es256 | Algorithm::Es384);
            if !by_ecdsa {
                continue;
            }
            let signing = signing_key(&key.private_jwk());
            let crypto = AwsLc::new(manner);
            let signed = crypto.signed.clone();
            let host = FakeHost::with_native(crypto.tested(&signing));
            let signs = host.native.as_ref().unwrap().signs(*algorithm);
            let honest_signer = matches!(
                manner,
                Manner::AlwaysYes
                    | Manner::AlwaysNo
                    | Manner::IgnoresTheKey
                    | Manner::IgnoresTheMessage
            );
            assert_eq!(signs, honest_signer);

            let before = signed.get();
            let token = signing
                .sign_jwt(&host, host.native.as_ref(), AccessTokenType::AtJwt, b"{}")
                .unwrap();
            assert_eq!(signed.get() != before, signs);
            let public = verifying_key(&key.public_jwk());
            let (input, signature) = parts(&token);
            let native = host.native.as_ref();
            assert!(public.verify(native, *algorithm, input, &signature));
            assert!(!public.verify(native, *algorithm, b"other", &signature));
            let another = verifying_key(&Key::generate(key.alg, "another").public_jwk());
            assert!(!another.verify(native, *algorithm, input, &signature));
        }
    }
}

/// Generates a JWK, or JSON that resembles one.
fn almost_a_jwk() -> impl Strategy<Value = Value> {
    let word = prop_oneof![
        proptest::sample::select(vec![
            "RSA", "EC", "OKP", "oct", "P-256", "P-384", "Ed25519", "sig", "ES256", "AQAB", "",
        ])
        .prop_map(str::to_owned),
        vec(any::<u8>(), 0..70).prop_map(|bytes| BASE64_URL_SAFE_NO_PAD.encode(bytes)),
        vec(any::<u8>(), 256..=256).prop_map(|bytes| BASE64_URL_SAFE_NO_PAD.encode(bytes)),
        "\\PC{0,8}",
    ];
    let value = prop_oneof![
        8 => word.prop_map(Value::String),
        1 => any::<i64>().prop_map(Value::from),
        1 => Just(Value::Null),
        1 => Just(json!([{}])),
    ];
    let member = proptest::sample::select(vec![
        "kty", "crv", "x", "y", "n", "e", "d", "p", "q", "dp", "oth", "k", "kid", "alg", "use",
        "key_ops",
    ]);
    let members = vec((member, value), 0..8);
    (proptest::sample::select(vec![rfc::A2_KEY, rfc::A3_KEY, rfc::ED25519_KEY, "{}"]), members)
        .prop_map(|(jwk, members)| {
            let mut jwk = parse(jwk);
            for (name, value) in members {
                jwk[name] = value;
            }
            jwk
        })
}

proptest! {
    #[test]
    fn no_bytes_make_the_key_set_parser_panic(bytes: Vec<u8>) {
        let _ = KeySet::parse(&bytes);
    }

    #[test]
    fn no_key_makes_its_readers_panic(jwks in vec(almost_a_jwk(), 0..3)) {
        let set = KeySet::parse(json!({"keys": jwks}).to_string().as_bytes()).unwrap();
        for algorithm in Algorithm::ALL {
            for key in set.candidates(algorithm, None) {
                prop_assert!(!key.verify(None, algorithm, b"message", &[7; 64]));
            }
        }
        for jwk in &jwks {
            let _ = PublishedKey::from_jwk(jwk, None, None);
        }
    }

    #[test]
    fn no_text_makes_the_pem_reader_panic(text in "(-----BEGIN PRIVATE KEY-----\n)?[A-Za-z0-9+/=\n]{0,80}(\n-----END PRIVATE KEY-----\n)?") {
        prop_assert!(private_from_pem(&text).is_err());
    }
}
