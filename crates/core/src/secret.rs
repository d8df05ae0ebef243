//! Secrets in memory: they are never printed, and they are compared in constant time.

use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// A value that no log may show. `Debug` prints `[redacted]`; there is no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret<T>(T);

impl<T> Secret<T> {
    /// Wraps a secret.
    pub const fn new(value: T) -> Self {
        Self(value)
    }

    /// Returns the secret itself.
    pub const fn expose(&self) -> &T {
        &self.0
    }
}

impl<T> fmt::Debug for Secret<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("[redacted]")
    }
}

/// The `Debug` form of bytes that may hold a secret: their number.
pub fn redacted(bytes: &[u8]) -> impl fmt::Debug + use<> {
    let len = bytes.len();
    fmt::from_fn(move |formatter| write!(formatter, "[{len} bytes redacted]"))
}

/// The SHA-256 of a secret. Stores and caches hold it instead of the secret.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Hashes `secret`.
    pub fn of(secret: &[u8]) -> Self {
        Self(Sha256::digest(secret).into())
    }

    /// Wraps a digest that was computed elsewhere.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Parses 64 hex digits of either letter case.
    pub(crate) fn from_hex(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        let len = base16ct::mixed::decode(text, &mut bytes).ok()?.len();
        (len == bytes.len()).then_some(Self(bytes))
    }

    /// Parses base64url without padding, in its one canonical form.
    pub(crate) fn from_base64url(text: &str) -> Option<Self> {
        Some(Self(BASE64_URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok()?))
    }

    /// Returns the digest in base64url without padding.
    pub(crate) fn to_base64url(self) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(self.0)
    }

    /// Returns all digits in hex.
    pub fn to_hex(&self) -> String {
        base16ct::lower::encode_string(&self.0)
    }

    /// Returns the bytes of the digest.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns true if both are digests of the same secret, in time that does not depend on the
    /// answer.
    pub fn matches(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }

    /// Returns an id for the secret that reveals nothing about it: the first 96 bits in hex. The
    /// same secret has the same id everywhere, so log lines can be joined on it.
    pub fn id(&self) -> String {
        let mut id = self.to_hex();
        id.truncate(24);
        id
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.id())
    }
}

/// Returns the prefix of a service's keys in a map that services share. `tenant` names the service.
pub(crate) fn namespace(tenant: &str) -> String {
    let digest = Digest::of(tenant.as_bytes());
    let name = digest.as_bytes().first_chunk::<9>().map(|name| BASE64_URL_SAFE_NO_PAD.encode(name));
    name.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_printed() {
        assert_eq!(format!("{:?}", Secret::new("hunter2")), "[redacted]");
    }

    #[test]
    fn a_digest_matches_only_its_own_secret() {
        assert!(Digest::of(b"a").matches(&Digest::of(b"a")));
        assert!(!Digest::of(b"a").matches(&Digest::of(b"b")));
    }

    #[test]
    fn an_id_is_24_hex_digits_of_the_digest() {
        // SHA-256("abc") is the example of FIPS 180-2, appendix B.1.
        assert_eq!(Digest::of(b"abc").id(), "ba7816bf8f01cfea414140de");
    }
}
