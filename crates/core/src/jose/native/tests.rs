//! Converting ECDSA signatures between the host's form and that of a JWS.
#![expect(clippy::arithmetic_side_effects, reason = "a test that overflows fails, no more")]

use std::collections::BTreeSet;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P256_SHA256_FIXED,
    ECDSA_P384_SHA384_ASN1, ECDSA_P384_SHA384_ASN1_SIGNING, ECDSA_P384_SHA384_FIXED, EcdsaKeyPair,
    KeyPair, UnparsedPublicKey,
};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// Writes `SEQUENCE { INTEGER r, INTEGER s }` by the rules of X.690, without a library.
fn der(r: &[u8], s: &[u8]) -> Vec<u8> {
    let integer = |number: &[u8]| {
        let first = number.iter().position(|byte| *byte != 0).unwrap_or(number.len() - 1);
        let mut bytes = number[first..].to_vec();
        if bytes[0] >= 0x80 {
            bytes.insert(0, 0);
        }
        bytes.splice(0..0, [2, bytes.len() as u8]);
        bytes
    };
    let body = [integer(r), integer(s)].concat();
    [vec![0x30, body.len() as u8], body].concat()
}

/// A number of this many bytes that may begin with zeros. It is greater than zero, and less than
/// the order of either curve, which begins with 32 one bits.
fn number(len: usize) -> impl Strategy<Value = Vec<u8>> {
    (vec(any::<u8>(), len), 0..len, 1..=u8::MAX).prop_map(move |(mut bytes, zeros, some)| {
        bytes[..zeros].fill(0);
        bytes[0] &= 0x7f | u8::from(zeros == 0) << 7;
        bytes[1] &= 0xfe;
        bytes[len - 1] = some;
        bytes
    })
}

proptest! {
    #[test]
    fn numbers_keep_their_value_at_every_length(
        (algorithm, r, s) in prop_oneof![
            (Just(Algorithm::Es256), number(32), number(32)),
            (Just(Algorithm::Es384), number(48), number(48)),
        ],
    ) {
        let (jws, host) = ([r.clone(), s.clone()].concat(), der(&r, &s));
        prop_assert_eq!(host_from_jws(algorithm, &jws), Some(host.clone()));
        prop_assert_eq!(jws_from_host(algorithm, host), Some(jws));
    }

    /// A signature has one form: writing what was read gives the same bytes.
    #[test]
    fn a_signature_has_one_form_only(
        mut bytes in vec(any::<u8>(), 0..120),
        r in number(32), s in number(32),
        (at, to) in (0_usize..72, any::<u8>()),
    ) {
        let mut almost = der(&r, &s);
        if let Some(byte) = almost.get_mut(at) {
            *byte = to;
        }
        for host in [std::mem::take(&mut bytes), almost] {
            for algorithm in [Algorithm::Es256, Algorithm::Es384] {
                if let Some(jws) = jws_from_host(algorithm, host.clone()) {
                    prop_assert_eq!(host_from_jws(algorithm, &jws), Some(host.clone()));
                }
            }
        }
    }

    #[test]
    fn a_signature_of_the_wrong_length_has_no_form_for_the_host(bytes in vec(any::<u8>(), 0..120)) {
        prop_assert!(bytes.len() == 64 || host_from_jws(Algorithm::Es256, &bytes).is_none());
        prop_assert!(bytes.len() == 96 || host_from_jws(Algorithm::Es384, &bytes).is_none());
    }
}

/// There are so many signatures that some begin with zeros.
#[test]
fn another_library_verifies_both_forms_at_every_length() {
    #[rustfmt::skip]
    let cases = [
        (Algorithm::Es256, &ECDSA_P256_SHA256_ASN1_SIGNING, &ECDSA_P256_SHA256_ASN1, &ECDSA_P256_SHA256_FIXED, 70),
        (Algorithm::Es384, &ECDSA_P384_SHA384_ASN1_SIGNING, &ECDSA_P384_SHA384_ASN1, &ECDSA_P384_SHA384_FIXED, 102),
    ];
    for (algorithm, signing, asn1, fixed, usual) in cases {
        let key = EcdsaKeyPair::generate(signing).unwrap();
        let public = key.public_key().as_ref();
        let mut lengths = BTreeSet::new();
        for number in 0_u32..20_000 {
            let message = number.to_be_bytes();
            let host = key.sign(&SystemRandom::new(), &message).unwrap().as_ref().to_vec();
            // Verifying with the other library is slow, so one signature of each length is enough.
            if !lengths.insert(host.len()) {
                continue;
            }
            let jws = jws_from_host(algorithm, host.clone()).unwrap();
            UnparsedPublicKey::new(fixed, public).verify(&message, &jws).unwrap();
            let again = host_from_jws(algorithm, &jws).unwrap();
            UnparsedPublicKey::new(asn1, public).verify(&message, &again).unwrap();
            assert_eq!(again, host);
            // One of the numbers is shorter by more than a byte.
            if lengths.iter().any(|length| *length < usual) && lengths.len() > 3 {
                break;
            }
        }
        assert!(lengths.iter().any(|length| *length < usual), "{algorithm}: {lengths:?}");
    }
}
