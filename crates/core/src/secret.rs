//! Secrets in memory: never printed, compared in constant time.

use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// Holds what no log may show. `Debug` prints `[redacted]`; there is no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret<T>(T);

impl<T> Secret<T> {
    /// Wraps a secret.
    pub const fn new(value: T) -> Self {
        Self(value)
    }

    /// The secret itself, for the one place that needs it.
    pub const fn expose(&self) -> &T {
        &self.0
    }
}

impl<T> fmt::Debug for Secret<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("[redacted]")
    }
}

/// What `Debug` may print of bytes in which there can be a secret: how many there are.
pub fn redacted(bytes: &[u8]) -> impl fmt::Debug + use<> {
    let len = bytes.len();
    fmt::from_fn(move |formatter| write!(formatter, "[{len} bytes redacted]"))
}

/// The SHA-256 of a secret: what is stored, and what caches are keyed by, in its stead.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Hashes `secret`.
    pub fn of(secret: &[u8]) -> Self {
        Self(Sha256::digest(secret).into())
    }

    /// A digest that was computed elsewhere.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Reads the 64 hex digits of one, in either letter case; `None` if they are none.
    pub fn from_hex(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        let len = base16ct::mixed::decode(text, &mut bytes).ok()?.len();
        (len == bytes.len()).then_some(Self(bytes))
    }

    /// All of it, in hex.
    pub fn to_hex(&self) -> String {
        base16ct::lower::encode_string(&self.0)
    }

    /// Its bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Whether both are the digest of one secret, in time that does not depend on the answer.
    pub fn matches(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }

    /// A name for the secret that gives nothing of it away: the first 96 bits, in hex. The same
    /// secret has the same name wherever it turns up, so that log lines can be joined on it.
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

/// Names a service among those that share a map, by what it is called in the configuration.
pub fn namespace(tenant: &str) -> String {
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
