//! A subject token as text, and the id that names it in the audit log.

use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

use crate::secret::{Digest, Secret};
use crate::state::remote::{Revision, TAG_LEN, Tag};

/// The beginning of every subject token of this filter. A token without it was issued by somebody
/// else.
pub const PREFIX: &str = "sub_";

/// The length of the random part: 256 bits cannot be guessed.
pub(crate) const NONCE_LEN: usize = 32;

/// A subject token as its holder presents it.
#[derive(Debug, Clone)]
pub struct SubjectToken {
    /// The slot of the record, in a table of slots.
    pub(crate) slot: Option<u32>,
    /// The creation of the record, in a remote store.
    pub(crate) origin: Option<Origin>,
    nonce: Secret<[u8; NONCE_LEN]>,
}

/// The creation of a token's record in a remote store, as the token says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The revision that created the record.
    pub(crate) created: Revision,
    /// Proves that a filter with one of the signing keys wrote this.
    pub(crate) tag: Tag,
}

/// The length of an [`Origin`] in bytes.
const ORIGIN_LEN: usize = 8 + TAG_LEN;

impl Origin {
    fn from_bytes(bytes: [u8; ORIGIN_LEN]) -> Option<Self> {
        let (created, tag) = bytes.split_first_chunk()?;
        Some(Self { created: Revision::from_bytes(*created), tag: tag.try_into().ok()? })
    }

    fn to_bytes(self) -> Vec<u8> {
        [&self.created.to_bytes()[..], &self.tag].concat()
    }
}

impl SubjectToken {
    /// The token in a slot.
    pub(crate) const fn in_slot(slot: u32, nonce: [u8; NONCE_LEN]) -> Self {
        Self { slot: Some(slot), origin: None, nonce: Secret::new(nonce) }
    }

    /// The token in a remote store.
    pub(crate) const fn in_remote_store(nonce: [u8; NONCE_LEN], origin: Origin) -> Self {
        Self { slot: None, origin: Some(origin), nonce: Secret::new(nonce) }
    }

    /// Reads a token; `None` if the text cannot be a token of this filter.
    pub fn parse(text: &str) -> Option<Self> {
        let encoded = text.strip_prefix(PREFIX)?;
        let mut bytes = [0; NONCE_LEN + ORIGIN_LEN];
        // Tokens have two exact lengths, and each is issued in one form, without padding.
        let len = BASE64_URL_SAFE_NO_PAD.decode_slice(encoded, &mut bytes).ok()?;
        let bytes = bytes.get(..len)?;
        if let Some((nonce, origin)) = bytes.split_first_chunk()
            && let Ok(origin) = origin.try_into()
        {
            return Some(Self::in_remote_store(*nonce, Origin::from_bytes(origin)?));
        }
        let (slot, nonce) = bytes.split_first_chunk()?;
        Some(Self::in_slot(u32::from_be_bytes(*slot), nonce.try_into().ok()?))
    }

    /// The token as text, for its holder.
    pub fn reveal(&self) -> String {
        let mut text = String::from(PREFIX);
        let mut bytes = self.secret();
        bytes.extend(self.origin.into_iter().flat_map(Origin::to_bytes));
        BASE64_URL_SAFE_NO_PAD.encode_string(bytes, &mut text);
        text
    }

    /// The part of the token that nothing else says.
    fn secret(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(4 + NONCE_LEN);
        bytes.extend(self.slot.into_iter().flat_map(u32::to_be_bytes));
        bytes.extend_from_slice(self.nonce.expose());
        bytes
    }

    /// The digest of the token in a remote store that `nonce` makes.
    pub(crate) fn remote_digest(nonce: &[u8; NONCE_LEN]) -> Digest {
        Digest::of(nonce)
    }

    /// The digest of the token, which the store keeps in its place.
    pub fn digest(&self) -> Digest {
        Digest::of(&self.secret())
    }

    /// The id of this token, whose digest is `digest`.
    pub fn id(&self, digest: &Digest) -> TokenId {
        TokenId::new(digest, self.slot)
    }
}

/// The id of a subject token: the first 96 bits of its digest and its slot, in hex. The slot makes
/// a look-up by id one read. Nobody can make the token from its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenId {
    digest: String,
    pub(crate) slot: Option<u32>,
}

impl TokenId {
    /// The number of hex digits of the digest.
    const DIGEST: usize = 24;

    /// The number of bytes of the digest.
    pub(crate) const DIGEST_BYTES: usize = Self::DIGEST / 2;

    /// The id of the token with this digest, in this slot.
    pub(crate) fn new(digest: &Digest, slot: Option<u32>) -> Self {
        Self { digest: digest.id(), slot }
    }

    /// The id of the token whose digest begins with these bytes, in this slot.
    pub(crate) fn of_digest_bytes(digest: &[u8; Self::DIGEST_BYTES], slot: Option<u32>) -> Self {
        Self { digest: base16ct::lower::encode_string(digest), slot }
    }

    /// Reads an id; `None` if the text cannot be an id of this filter.
    pub fn parse(text: &str) -> Option<Self> {
        let (digest, slot) = text.split_at_checked(Self::DIGEST)?;
        let hex = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let slot = match slot {
            "" => None,
            digits if hex(digits) => Some(u32::from_str_radix(digits, 16).ok()?),
            _ => return None,
        };
        let id = Self { digest: digest.to_owned(), slot };
        // An id is written in one way only.
        (hex(digest) && id.to_string() == text).then_some(id)
    }

    /// The first bytes of the digest.
    pub(crate) fn digest_bytes(&self) -> Option<[u8; Self::DIGEST_BYTES]> {
        let number = u128::from_str_radix(&self.digest, 16).ok()?;
        number.to_be_bytes().last_chunk().copied()
    }

    /// Returns true if this is the id of the token with that digest.
    pub(crate) fn names(&self, digest: &Digest) -> bool {
        digest.id() == self.digest
    }
}

impl fmt::Display for TokenId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.digest)?;
        self.slot.map_or(Ok(()), |slot| write!(formatter, "{slot:x}"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ORIGIN: Origin = Origin { created: Revision::LAST, tag: [0xff; TAG_LEN] };

    #[test]
    fn a_token_is_short_and_urlsafe_and_begins_with_the_prefix() {
        let nonce = [0xff; 32];
        let tokens =
            [SubjectToken::in_slot(7, nonce), SubjectToken::in_remote_store(nonce, ORIGIN)];
        for (token, len) in tokens.iter().zip([52, 79]) {
            let token = token.reveal();
            assert_eq!(token.len(), len);
            assert!(token.starts_with("sub_"));
            assert!(
                token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
            );
        }
    }

    proptest! {
        #[test]
        fn a_revealed_token_is_read_back(slot: u32, nonce: [u8; 32]) {
            for token in [SubjectToken::in_slot(slot, nonce), SubjectToken::in_remote_store(nonce, ORIGIN)] {
                let read = SubjectToken::parse(&token.reveal()).unwrap();
                prop_assert_eq!((read.slot, read.origin), (token.slot, token.origin));
                prop_assert!(read.digest().matches(&token.digest()));
            }
        }

        #[test]
        fn an_id_is_read_back(slot: u32, nonce: [u8; 32]) {
            for token in [SubjectToken::in_slot(slot, nonce), SubjectToken::in_remote_store(nonce, ORIGIN)] {
                let id = token.id(&token.digest());
                prop_assert_eq!(TokenId::parse(&id.to_string()), Some(id.clone()));
                prop_assert!(id.names(&token.digest()));
                let upper = id.to_string().to_uppercase();
                prop_assert!(upper == id.to_string() || TokenId::parse(&upper).is_none());
            }
        }

        #[test]
        fn an_id_has_one_spelling(text in "[0-9a-fA-F]{20,24}\\PC{0,10}") {
            if let Some(id) = TokenId::parse(&text) {
                prop_assert_eq!(id.to_string(), text);
            }
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in "(sub_)?\\PC*") {
            if let Some(token) = SubjectToken::parse(&text) {
                prop_assert_eq!(token.reveal(), text);
            }
        }
    }
}
