//! Public keys of a small module: the host verifies ECDSA, and there is nothing else.
//!
//! A module that verifies by itself needs 400 kB more for the curves and for RSA, and 50 kB for
//! Ed25519 alone. Every worker compiles the module. The host checks that a point is on its curve
//! and that numbers are in range.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::Value;

use super::{Algorithm, NativeCrypto};

/// The algorithms of a [`HostKey`].
pub(crate) const HOST_KEY_ALGORITHMS: &[Algorithm] = &[Algorithm::Es256, Algorithm::Es384];

/// `SubjectPublicKeyInfo` of a P-256 key up to its point (RFC 5480 §2).
const P256: &[u8] = b"\x30\x59\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\
      \x3d\x03\x01\x07\x03\x42\x00\x04";

/// `SubjectPublicKeyInfo` of a P-384 key up to its point.
const P384: &[u8] = b"\x30\x76\x30\x10\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x05\x2b\x81\x04\x00\
      \x22\x03\x62\x00\x04";

/// A public key of a curve.
pub(crate) enum HostKey {
    /// P-256, as `SubjectPublicKeyInfo`.
    P256(Vec<u8>),
    /// P-384, as `SubjectPublicKeyInfo`.
    P384(Vec<u8>),
}

impl HostKey {
    /// Reads a JWK; `None` if it is not a public key of one of the curves for signatures.
    pub(crate) fn from_jwk(jwk: &Value) -> Option<Self> {
        let text = |name: &str| jwk.get(name).and_then(Value::as_str);
        let signs = text("use").is_none_or(|usage| usage == "sig") && jwk.get("key_ops").is_none();
        let decode = |name| BASE64_URL_SAFE_NO_PAD.decode(text(name)?).ok();
        let point = |prefix: &[u8], len: usize| {
            let (x, y) = (decode("x")?, decode("y")?);
            (x.len() == len && y.len() == len).then(|| [prefix, &x, &y].concat())
        };
        match (text("kty")?, text("crv")?) {
            _ if !signs => None,
            ("EC", "P-256") => point(P256, 32).map(Self::P256),
            ("EC", "P-384") => point(P384, 48).map(Self::P384),
            _ => None,
        }
    }

    /// Returns true if the key is for this algorithm.
    pub(crate) const fn accepts(&self, algorithm: Algorithm) -> bool {
        match self {
            Self::P256(_) => matches!(algorithm, Algorithm::Es256),
            Self::P384(_) => matches!(algorithm, Algorithm::Es384),
        }
    }

    /// Returns true if this key made `signature`, in the form of a JWS, for `message`.
    pub(crate) fn verify(&self, host: &dyn NativeCrypto, message: &[u8], signature: &[u8]) -> bool {
        let (hash, key, len) = match self {
            Self::P256(key) => ("sha256", key, 32),
            Self::P384(key) => ("sha384", key, 48),
        };
        let Some(signature) = der(signature, len) else { return false };
        host.verify(hash, key, &signature, message) == Some(true)
    }
}

/// Converts r‖s (RFC 7518 §3.4) to DER; `None` if the length is wrong.
fn der(signature: &[u8], len: usize) -> Option<Vec<u8>> {
    let (r, s) = signature.split_at_checked(len)?;
    if s.len() != len {
        return None;
    }
    let numbers = [number(r)?, number(s)?].concat();
    // Two numbers of at most 49 bytes: the length fits into one byte.
    Some([&[0x30, u8::try_from(numbers.len()).ok()?][..], &numbers].concat())
}

/// A positive number in DER: without leading zeros but one that keeps it from being negative. Zero
/// is in no signature.
fn number(bytes: &[u8]) -> Option<Vec<u8>> {
    let start = bytes.iter().position(|byte| *byte != 0)?;
    let digits = bytes.get(start..)?;
    let sign: &[u8] = if digits.first()? & 0x80 == 0 { &[] } else { &[0] };
    let len = u8::try_from(digits.len().checked_add(sign.len())?).ok()?;
    Some([&[2, len][..], sign, digits].concat())
}

/// Signatures with which a host shows that it verifies ECDSA: a key, and its signature of
/// [`MESSAGE`]. OpenSSL made them once, and the private keys were thrown away.
const VECTORS: [(&str, &str, &str, &str); 2] = [
    (
        "P-256",
        "pkykVMts-uNb5XuDEG6ZeY_yDgW6nyUj-nPB_Ng8W-E",
        "G8RHYI2W23vA9H-3OEpz_tOqCwvzuaAJzXo_ej0xaOs",
        "4ev8WNuuxTdjn1fEsfs_-l3-BYgcJCOTLChL17GBoGJRHWcEisQGC_KtWyUG4qvOXnmIgI_zvud4GHugLxFm0w",
    ),
    (
        "P-384",
        "UYmdNay_w6bffobgnNnHypzRYXq2NdHiiKdmjins9vGCr8fWOCuvFe8GfwcbJqid",
        "yrnRF0IetKpSty8cTJvLczva-6K5JujaJNVNxnt1rRQxCNY0FybdedIsrryHk18J",
        "8Hup94n11zzSnMEWpS87ohilarnB0F2rLpTJN3qeTVgGPRm4Yyy5ofKb08gdQzHYPYt3Ds0I9L2GHFVhUJ3fItyp\
         RVE4OHORM7Ru35b6rRINpY933jUHZpyuO2m9M5Pc",
    ),
];

/// The signed message.
const MESSAGE: &[u8] = b"impersonation-guard: self-test";

/// Returns true if the host accepts good signatures, and refuses those of another message. No
/// specification says what a function of the host does.
pub(crate) fn host_verifies(host: &dyn NativeCrypto) -> bool {
    VECTORS.iter().all(|(crv, x, y, signature)| {
        let jwk = serde_json::json!({"kty": "EC", "crv": crv, "x": x, "y": y});
        let verdict = |message: &[u8]| {
            let signature = BASE64_URL_SAFE_NO_PAD.decode(signature).ok()?;
            Some(HostKey::from_jwk(&jwk)?.verify(host, message, &signature))
        };
        verdict(MESSAGE) == Some(true) && verdict(b"another message") == Some(false)
    })
}

#[cfg(test)]
mod tests {
    use jsonwebtoken::Algorithm as Other;
    use serde_json::json;
    use testkit::keys::Key;

    use super::*;
    use crate::jose::tests::host::{AwsLc, Manner};

    #[test]
    fn a_host_that_verifies_passes_the_test_and_no_other() {
        assert!(host_verifies(&AwsLc::new(Manner::Honest)));
        for manner in [Manner::Absent, Manner::AlwaysYes, Manner::AlwaysNo] {
            assert!(!host_verifies(&AwsLc::new(manner)));
        }
    }

    #[test]
    fn a_key_verifies_its_own_signatures_and_no_others() {
        let host = AwsLc::new(Manner::Honest);
        for alg in [Other::ES256, Other::ES384] {
            // Many signatures: numbers with leading zeros are rare.
            let (key, other) = (Key::generate(alg, "a"), Key::generate(alg, "b"));
            let [public, another] =
                [&key, &other].map(|key| HostKey::from_jwk(&key.public_jwk()).unwrap());
            for number in 0..50 {
                let jwt = key.sign(&json!({"number": number}));
                let (message, signature) = jwt.rsplit_once('.').unwrap();
                let signature = BASE64_URL_SAFE_NO_PAD.decode(signature).unwrap();
                let message = message.as_bytes();
                assert!(public.verify(&host, message, &signature), "{alg:?} {number}");
                assert!(!another.verify(&host, message, &signature), "{alg:?}: another key");
                assert!(!public.verify(&host, b"x", &signature), "{alg:?}: another message");
                assert!(!public.verify(&host, message, &signature[1..]), "{alg:?}: too short");
                assert!(!public.verify(&host, message, &vec![0; signature.len()]), "{alg:?}: zero");
            }
        }
    }
}
