//! Subject tokens: the secret that a caller holds, and what the store keeps in its stead.
//!
//! A token is `sub_` and the base64url of its slot and 256 random bits. The slot makes every look-up
//! one read; it says nothing about the user. The store keeps the token's SHA-256, never the token.

mod census;
mod record;
mod slots;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

pub use census::{Census, Occupancy};
pub use record::{Exchange, Grant, Mint};
pub use slots::{Found, MAX_CAPACITY, NotSpent, NotStored, Outstanding, SlotTable};

use crate::secret::{Digest, Secret};

/// What every subject token of this filter begins with; others are somebody else's.
pub const PREFIX: &str = "sub_";

/// The random part: 256 bits, beyond guessing.
const NONCE_LEN: usize = 32;

/// A subject token as its holder presents it.
#[derive(Debug, Clone)]
pub struct SubjectToken {
    slot: u32,
    nonce: Secret<[u8; NONCE_LEN]>,
}

impl SubjectToken {
    const fn new(slot: u32, nonce: [u8; NONCE_LEN]) -> Self {
        Self { slot, nonce: Secret::new(nonce) }
    }

    /// Reads a token; `None` if it cannot be one of ours.
    pub fn parse(text: &str) -> Option<Self> {
        let encoded = text.strip_prefix(PREFIX)?;
        let mut bytes = [0; 4 + NONCE_LEN];
        // Only the exact length has the one padding-free form that we issue.
        let len = BASE64_URL_SAFE_NO_PAD.decode_slice(encoded, &mut bytes).ok()?;
        if len != bytes.len() {
            return None;
        }
        let (slot, nonce) = bytes.split_first_chunk()?;
        Some(Self::new(u32::from_be_bytes(*slot), nonce.try_into().ok()?))
    }

    /// The token as its holder gets it.
    pub fn reveal(&self) -> String {
        let mut text = String::from(PREFIX);
        BASE64_URL_SAFE_NO_PAD.encode_string(self.bytes(), &mut text);
        text
    }

    fn bytes(&self) -> [u8; 4 + NONCE_LEN] {
        let mut bytes = [0; 4 + NONCE_LEN];
        let (slot, nonce) = bytes.split_at_mut(4);
        slot.copy_from_slice(&self.slot.to_be_bytes());
        nonce.copy_from_slice(self.nonce.expose());
        bytes
    }

    /// What the store keeps instead of the token.
    pub fn digest(&self) -> Digest {
        Digest::of(&self.bytes())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_token_is_short_urlsafe_and_says_whose_it_is() {
        let token = SubjectToken::new(7, [0xff; 32]).reveal();
        assert_eq!(token.len(), 52);
        assert!(token.starts_with("sub_"));
        assert!(token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)));
    }

    proptest! {
        #[test]
        fn a_revealed_token_is_read_back(slot: u32, nonce: [u8; 32]) {
            let token = SubjectToken::new(slot, nonce);
            let read = SubjectToken::parse(&token.reveal()).unwrap();
            prop_assert_eq!(read.slot, slot);
            prop_assert!(read.digest().matches(&token.digest()));
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in "(sub_)?\\PC*") {
            if let Some(token) = SubjectToken::parse(&text) {
                prop_assert_eq!(token.reveal(), text);
            }
        }
    }
}
