//! Signatures of the Wycheproof project (<https://github.com/C2SP/wycheproof>) for all algorithms
//! that the filter verifies: each good signature, and each bad one that some library once accepted.
//!
//! The filter refuses the signatures that Wycheproof calls *acceptable*: RSA signatures whose
//! `AlgorithmIdentifier` has no `NULL`. RFC 8017 §9.2 allows only the other encoding of a hash. A
//! PSS signature with another salt length, or another hash in its mask, is good by its own
//! parameters but is no `PS256`, whose parameters are fixed (RFC 7518 §3.5).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use wycheproof::{HashFunction, TestResult, ecdsa, eddsa, rsa_pkcs1_verify, rsa_pss_verify};

/// One signature and the right verdict about it.
pub struct Vector {
    /// The vector's file, its number there, and its comment.
    pub name: String,
    /// The public key.
    pub jwk: Value,
    /// The algorithm, as a JOSE header names it.
    pub algorithm: &'static str,
    pub message: Vec<u8>,
    /// The signature, in the form of a JWS.
    pub signature: Vec<u8>,
    /// True if the signature is valid.
    pub good: bool,
}

/// Returns all vectors.
pub fn all() -> Vec<Vector> {
    [ecdsa(), ed25519(), pkcs1(), pss()].into_iter().flatten().collect()
}

/// The public keys of RSA vectors that are longer than the filter verifies with.
pub fn too_long_keys() -> Vec<Value> {
    let set = rsa_pkcs1_verify::TestSet::load(rsa_pkcs1_verify::TestName::Rsa8192Sha256).unwrap();
    set.test_groups.iter().map(|group| rsa_key(&group.key.n, &group.key.e)).collect()
}

fn b64(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn rsa_key(modulus: &[u8], exponent: &[u8]) -> Value {
    // Wycheproof's integers have a sign; those of a JWK have none, and no zeros before them (RFC
    // 7518 §6.3.1.1).
    let number = |bytes: &[u8]| {
        let first = bytes.iter().position(|byte| *byte != 0).unwrap();
        b64(&bytes[first..])
    };
    json!({"kty": "RSA", "n": number(modulus), "e": number(exponent)})
}

fn ecdsa() -> Vec<Vector> {
    use ecdsa::TestName::{EcdsaSecp256r1Sha256P1363, EcdsaSecp384r1Sha384P1363};
    let mut vectors = Vec::new();
    for (file, algorithm, crv) in [
        (EcdsaSecp256r1Sha256P1363, "ES256", "P-256"),
        (EcdsaSecp384r1Sha384P1363, "ES384", "P-384"),
    ] {
        for group in ecdsa::TestSet::load(file).unwrap().test_groups {
            // An uncompressed point: 4, x, y.
            let (x, y) = group.key.key[1..].split_at(group.key.key.len() / 2);
            let jwk = json!({"kty": "EC", "crv": crv, "x": b64(x), "y": b64(y)});
            vectors.extend(group.tests.into_iter().map(|test| Vector {
                name: format!("{file:?} {}: {}", test.tc_id, test.comment),
                jwk: jwk.clone(),
                algorithm,
                message: test.msg.to_vec(),
                signature: test.sig.to_vec(),
                good: test.result == TestResult::Valid,
            }));
        }
    }
    vectors
}

fn ed25519() -> Vec<Vector> {
    let mut vectors = Vec::new();
    for group in eddsa::TestSet::load(eddsa::TestName::Ed25519).unwrap().test_groups {
        let jwk = json!({"kty": "OKP", "crv": "Ed25519", "x": b64(&group.key.pk)});
        vectors.extend(group.tests.into_iter().map(|test| Vector {
            name: format!("Ed25519 {}: {}", test.tc_id, test.comment),
            jwk: jwk.clone(),
            algorithm: "EdDSA",
            message: test.msg.to_vec(),
            signature: test.sig.to_vec(),
            good: test.result == TestResult::Valid,
        }));
    }
    vectors
}

fn pkcs1() -> Vec<Vector> {
    use rsa_pkcs1_verify::TestName;
    #[rustfmt::skip]
    let files = [
        (TestName::Rsa2048Sha256, "RS256"), (TestName::Rsa2048Sha384, "RS384"), (TestName::Rsa2048Sha512, "RS512"),
        (TestName::Rsa3072Sha256, "RS256"), (TestName::Rsa3072Sha384, "RS384"), (TestName::Rsa3072Sha512, "RS512"),
        (TestName::Rsa4096Sha256, "RS256"), (TestName::Rsa4096Sha384, "RS384"), (TestName::Rsa4096Sha512, "RS512"),
    ];
    let mut vectors = Vec::new();
    for (file, algorithm) in files {
        for group in rsa_pkcs1_verify::TestSet::load(file).unwrap().test_groups {
            let jwk = rsa_key(&group.key.n, &group.key.e);
            for test in group.tests {
                let acceptable = test.result == TestResult::Acceptable;
                let no_null = test.flags.contains(&rsa_pkcs1_verify::TestFlag::MissingNull);
                assert_eq!(acceptable, no_null, "{file:?} {}: decide", test.tc_id);
                vectors.push(Vector {
                    name: format!("{file:?} {}: {}", test.tc_id, test.comment),
                    jwk: jwk.clone(),
                    algorithm,
                    message: test.msg.to_vec(),
                    signature: test.sig.to_vec(),
                    good: test.result == TestResult::Valid,
                });
            }
        }
    }
    vectors
}

fn pss() -> Vec<Vector> {
    use rsa_pss_verify::TestName;
    let files = [
        TestName::RsaPss2048Sha256Mgf1SaltLen32,
        TestName::RsaPss3072Sha256Mgf1SaltLen32,
        TestName::RsaPss4096Sha256Mgf1SaltLen32,
        TestName::RsaPss2048Sha256Mgf1SaltLen0,
        TestName::RsaPss2048Sha256Mgf1Sha1_20,
        TestName::RsaPssmisc,
    ];
    let mut vectors = Vec::new();
    for file in files {
        for group in rsa_pss_verify::TestSet::load(file).unwrap().test_groups {
            let jwk = rsa_key(&group.key.n, &group.key.e);
            let sha256 = HashFunction::Sha2_256;
            let hashes = group.hash == sha256 && group.mgf_hash == Some(sha256);
            vectors.extend(group.tests.into_iter().map(|test| {
                let good = test.result == TestResult::Valid;
                // PS256 expects a salt of 32 bytes. A signature with such a salt is bad in a group
                // that expects no salt, and good as PS256.
                let as_ps256 = group.salt_size == 0 && test.comment == "s_len changed to 32";
                Vector {
                    name: format!("{file:?} {}: {}", test.tc_id, test.comment),
                    jwk: jwk.clone(),
                    algorithm: "PS256",
                    message: test.msg.to_vec(),
                    signature: test.sig.to_vec(),
                    good: hashes && if group.salt_size == 32 { good } else { as_ps256 },
                }
            }));
        }
    }
    vectors
}
