//! RSA keys that an attacker can factor, because their generator chose its primes among too few
//! (CVE-2017-15361).
//!
//! The generator's primes are powers of 65537 modulo the product of the small primes, and so are
//! their products: see Nemec et al., "The Return of Coppersmith's Attack" (2017), §2. One key in
//! two hundred million has this form by chance.

/// The odd primes that the generator uses for keys of every length.
const PRIMES: [u32; 38] = [
    3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97,
    101, 103, 107, 109, 113, 127, 131, 137, 139, 149, 151, 157, 163, 167,
];

/// Returns true if a modulus has the form of the generator's keys.
pub(super) fn is_factorable(modulus: &[u8]) -> bool {
    PRIMES.into_iter().all(|prime| {
        let reduce = |number: u32| number.checked_rem(prime).unwrap_or_default();
        let residue = modulus.iter().fold(0_u32, |residue, byte| {
            reduce(residue.wrapping_mul(256).wrapping_add(u32::from(*byte)))
        });
        // There are fewer different powers than `prime`, so 168 cover all of them.
        let next = |power: &u32| Some(reduce(power.wrapping_mul(reduce(65537))));
        std::iter::successors(Some(1), next).take(168).any(|power| power == residue)
    })
}

#[cfg(test)]
#[expect(clippy::arithmetic_side_effects, reason = "a test that overflows fails, no more")]
mod tests {
    use jwt_compact::jwk::JsonWebKey;
    use rsa::traits::PublicKeyParts as _;
    use rsa::{BigUint, RsaPrivateKey};

    use super::*;
    use crate::jose::{PublishedKey, SigningKeyError, VerifyingKey, VerifyingKeyError};

    fn product() -> BigUint {
        PRIMES.iter().map(|prime| BigUint::from(*prime)).product()
    }

    fn power(exponent: u32, modulus: &BigUint) -> BigUint {
        BigUint::from(65537_u32).modpow(&BigUint::from(exponent), modulus)
    }

    /// A prime of 1024 bits as the generator chooses it.
    fn prime(exponent: u32) -> BigUint {
        let one = BigUint::from(1_u32);
        let product = product();
        let high: BigUint = BigUint::from(3_u32) << 1022;
        let mut number = (&high / &product + &one) * &product + power(exponent, &product);
        if &number % 2_u32 == BigUint::default() {
            number += &product;
        }
        // Fermat's test suffices for a key that is not secret.
        while BigUint::from(2_u32).modpow(&(&number - &one), &number) != one {
            number += &product * 2_u32;
        }
        number
    }

    #[test]
    fn a_key_of_the_broken_generator_is_refused() {
        let (p, q) = (prime(1), prime(2));
        let key = RsaPrivateKey::from_p_q(p, q, BigUint::from(65537_u32)).unwrap();
        assert_eq!(key.n().bits(), 2048);
        let jwk = JsonWebKey::from(&key);
        let signing = serde_json::to_value(&jwk).unwrap();
        let refused = PublishedKey::from_jwk(&signing, None, None).err();
        assert_eq!(refused, Some(SigningKeyError::Factorable));
        let verifying = serde_json::to_value(jwk.to_verifying_key()).unwrap();
        let refused = VerifyingKey::from_jwk(&verifying).err();
        assert_eq!(refused, Some(VerifyingKeyError::Factorable));
    }

    #[test]
    fn a_modulus_that_is_no_power_is_not_factorable() {
        for exponent in [0, 1, 2, 3, 1000, 65_521] {
            let number = power(exponent, &product());
            assert!(is_factorable(&number.to_bytes_be()), "{exponent}");
            assert!(!is_factorable(&(number + 2_u32).to_bytes_be()), "{exponent}");
        }
    }
}
