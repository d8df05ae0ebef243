//! Subject tokens: the secret that a caller holds, and what the store keeps in its stead.
//!
//! A token is `sub_` and the base64url of its slot and 256 random bits. The slot makes every look-up
//! one read; it says nothing about the user. The store keeps the token's SHA-256, never the token.

mod census;
mod record;
mod slots;

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

pub use census::Census;
pub use record::{Exchange, Grant, Mint};
pub use slots::{Found, NotSpent, NotStored, Occupancy, Outstanding, SlotTable};

use crate::host::{Host, HostFailure, UnixTime};
use crate::metrics;
use crate::secret::{Digest, Secret};
use crate::step::Context;

/// Where subject tokens are kept. Of any number of simultaneous attempts to spend one, exactly one succeeds.
///
/// The verbs are `async` because a store may be elsewhere; shared data answers at once.
#[derive(Debug)]
pub struct Store {
    table: SlotTable,
    census: Census,
    capacity: u32,
    lifetime: Duration,
}

impl Store {
    /// The store of the service that `tenant` names, for `capacity` outstanding tokens, each for `lifetime`.
    pub fn new(tenant: &str, capacity: u32, lifetime: Duration) -> Self {
        let table = SlotTable::new(tenant, capacity, lifetime);
        Self { table, census: Census::default(), capacity, lifetime }
    }

    /// Stores a new token.
    pub async fn mint(
        &self,
        context: &Context,
        mint: Mint,
        grant: Grant,
        expires_at: UnixTime,
    ) -> Result<(SubjectToken, Digest), NotStored> {
        self.table.mint(context.host(), mint, grant, expires_at)
    }

    /// Looks a presented token up, of which the digest is known.
    pub async fn find(
        &self,
        context: &Context,
        token: &SubjectToken,
        digest: &Digest,
    ) -> Result<Found, HostFailure> {
        self.table.find(context.host(), token, digest)
    }

    /// Spends a token, if nobody has since it was found. Whoever gets `Ok` is the only one.
    pub async fn spend(
        &self,
        context: &Context,
        token: Outstanding,
        exchange: Exchange,
    ) -> Result<(), NotSpent> {
        self.table.spend(context.host(), token, exchange)
    }

    /// Counts on, and says how full the store is when the count is complete.
    pub fn set_gauges(&self, host: &dyn Host) {
        let Ok(Some(occupancy)) = self.census.tick(host, &self.table) else { return };
        let left = occupancy.first_expiry.map(|expiry| expiry.since(host.now()));
        let age = left.map(|left| self.lifetime.saturating_sub(left)).unwrap_or_default();
        host.set(metrics::OUTSTANDING, u64::from(occupancy.outstanding));
        host.set(metrics::CAPACITY, u64::from(self.capacity));
        host.set(metrics::OLDEST_AGE, age.as_secs());
    }
}

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
