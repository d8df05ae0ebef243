//! Subject tokens: the secret that a caller holds, and what the store keeps in its stead.
//!
//! A token is `sub_` and the base64url of 256 random bits, and of where its record is. Where the store is a table of
//! slots, the slot stands before them: it makes every look-up one read, and says nothing about the user. Where the
//! store is etcd, the revision stands behind them that created the record, with a tag that nobody else can make: so a
//! record that was deleted and created again is not that of this token. The store keeps a SHA-256, never the token.

mod census;
mod etcd;
mod record;
mod slots;

use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

pub use census::Census;
pub use etcd::Etcd;
pub use record::{Exchange, Grant, Mint};
pub use slots::{Cancelled, Found, NotSpent, NotStored, Occupancy, Outstanding, SlotTable};

use crate::etcd::Server;
use crate::host::{Host, HostFailure, UnixTime};
use crate::metrics;
use crate::remote::{Beside, RemoteFailure, Revision, TAG_LEN, Tag};
use crate::secret::{Digest, Secret, namespace};
use crate::step::Context;

/// Where subject tokens are kept. Of any number of simultaneous attempts to spend one, exactly one succeeds.
///
/// The verbs are `async` because etcd is elsewhere; shared data answers at once.
#[derive(Debug)]
pub enum Store {
    /// Within one Envoy.
    SharedData(SharedSlots),
    /// For as many as there are.
    Etcd(Box<SharedStore>),
}

/// etcd, and the table of slots that was in use before it. Tokens that were minted there stay good until they
/// expire, in the Envoy that minted them; new ones are minted into etcd alone.
#[derive(Debug)]
pub struct SharedStore {
    etcd: Etcd,
    before: SlotTable,
    lifetime: Duration,
}

/// A table of slots, and how full it is.
#[derive(Debug)]
pub struct SharedSlots {
    table: SlotTable,
    census: Census,
    capacity: u32,
    lifetime: Duration,
}

/// Why the store could not say what it knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StoreFailure {
    /// Shared data or randomness failed.
    #[error(transparent)]
    Host(#[from] HostFailure),
    /// etcd was of no use.
    #[error(transparent)]
    Remote(#[from] RemoteFailure),
}

impl Store {
    /// The store of the service that `tenant` names, in a table for `capacity` outstanding tokens, each for
    /// `lifetime`.
    pub fn shared_data(tenant: &str, capacity: u32, lifetime: Duration) -> Self {
        let table = SlotTable::new(tenant, capacity, lifetime);
        Self::SharedData(SharedSlots { table, census: Census::default(), capacity, lifetime })
    }

    /// The same in etcd, where a token's record outlives it by what it can be exchanged for: `afterlife`.
    pub fn etcd(
        server: &Rc<Server>,
        tenant: &str,
        lifetime: Duration,
        afterlife: Duration,
    ) -> Self {
        let etcd = Etcd::new(server, &namespace(tenant), lifetime, afterlife);
        // A token names its slot, whatever the table's capacity was, and there are no more to come.
        let before = SlotTable::new(tenant, 0, lifetime);
        Self::Etcd(Box::new(SharedStore { etcd, before, lifetime }))
    }

    /// Stores a new token.
    pub async fn mint(
        &self,
        context: &Context,
        mint: Mint,
        grant: Grant,
        expires_at: UnixTime,
    ) -> Result<(SubjectToken, TokenId), NotStored> {
        let minted = match self {
            Self::SharedData(slots) => slots.table.mint(context.host(), mint, grant, expires_at),
            Self::Etcd(shared) => shared.etcd.mint(context, mint, grant, expires_at).await,
        };
        let (token, digest) = minted?;
        let id = token.id(&digest);
        Ok((token, id))
    }

    /// Looks a presented token up, of which the digest is known.
    pub async fn find(
        &self,
        context: &Context,
        token: &SubjectToken,
        digest: &Digest,
    ) -> Result<Found, StoreFailure> {
        match self {
            // One with a slot was minted into a table: etcd never heard of it.
            Self::Etcd(shared) if token.slot.is_none() => {
                shared.etcd.find(context, token.origin.as_ref(), digest).await
            }
            Self::SharedData(_) | Self::Etcd(_) => {
                self.find_in_slot(context.host(), token.slot, digest)
            }
        }
    }

    /// What has become of a token that was found.
    pub async fn find_again(
        &self,
        context: &Context,
        found: &Outstanding,
    ) -> Result<Found, StoreFailure> {
        match self {
            Self::Etcd(shared) if !found.is_in_a_slot() => {
                shared.etcd.find_again(context, found).await
            }
            Self::SharedData(_) | Self::Etcd(_) => {
                self.find_in_slot(context.host(), found.slot(), &found.digest)
            }
        }
    }

    fn find_in_slot(
        &self,
        host: &dyn Host,
        slot: Option<u32>,
        digest: &Digest,
    ) -> Result<Found, StoreFailure> {
        let table = match self {
            Self::SharedData(slots) => &slots.table,
            Self::Etcd(shared) => &shared.before,
        };
        Ok(table.find_in(host, slot, digest)?)
    }

    /// Takes the token back that this names, if it is `theirs`: by its digest and its mint. From then on nobody exchanges
    /// it.
    pub async fn cancel(
        &self,
        context: &Context,
        id: &TokenId,
        theirs: impl Fn(&Digest, &Mint) -> bool,
    ) -> Result<Cancelled, StoreFailure> {
        let host = context.host();
        match self {
            Self::SharedData(slots) => Ok(slots.table.cancel(host, id, theirs)?),
            Self::Etcd(shared) if id.slot.is_some() => {
                Ok(shared.before.cancel(host, id, theirs)?)
            }
            Self::Etcd(shared) => shared.etcd.cancel(context, id, theirs).await,
        }
    }

    /// Spends a token, if nobody has since it was found. Whoever gets `Ok` is the only one, and `beside` is written
    /// with it, if the token [is in etcd](Outstanding::is_in_a_slot).
    pub async fn spend(
        &self,
        context: &Context,
        token: Outstanding,
        exchange: Exchange,
        beside: Option<Beside>,
    ) -> Result<(), NotSpent> {
        match self {
            Self::SharedData(slots) => slots.table.spend(context.host(), token, exchange),
            Self::Etcd(shared) if token.is_in_a_slot() => {
                shared.before.spend(context.host(), token, exchange)
            }
            Self::Etcd(shared) => shared.etcd.spend(context, token, exchange, beside).await,
        }
    }

    /// Counts on, and says how full the store is when the count is complete.
    pub fn set_gauges(&self, host: &dyn Host) {
        let Self::SharedData(SharedSlots { table, census, capacity, lifetime }) = self else {
            return;
        };
        let Ok(Some(occupancy)) = census.tick(host, table) else { return };
        occupancy.set_gauges(host, *lifetime);
        host.set(metrics::CAPACITY, u64::from(*capacity));
    }

    /// Whether there is something to count that is elsewhere: by [`Self::count`].
    pub fn counts(&self, host: &dyn Host) -> bool {
        matches!(self, Self::Etcd(shared) if shared.etcd.counts(host))
    }

    /// Counts on in etcd, and says how full it is when the count is complete.
    pub async fn count(&self, context: &Context) {
        let Self::Etcd(shared) = self else { return };
        if let Some(occupancy) = shared.etcd.count(context).await {
            occupancy.set_gauges(context.host(), shared.lifetime);
        }
    }
}

impl Occupancy {
    fn set_gauges(&self, host: &dyn Host, lifetime: Duration) {
        let left = self.first_expiry.map(|expiry| expiry.since(host.now()));
        let age = left.map(|left| lifetime.saturating_sub(left)).unwrap_or_default();
        host.set(metrics::OUTSTANDING, u64::from(self.outstanding));
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
    /// Where it is, in a table of slots.
    slot: Option<u32>,
    /// When its record was created, in etcd.
    origin: Option<Origin>,
    nonce: Secret<[u8; NONCE_LEN]>,
}

/// What a token says of its record in etcd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Origin {
    /// The revision that created it.
    created: Revision,
    /// What only who has a signing key can say.
    tag: Tag,
}

/// How long what a token says of its record is.
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
    const fn new(slot: u32, nonce: [u8; NONCE_LEN]) -> Self {
        Self { slot: Some(slot), origin: None, nonce: Secret::new(nonce) }
    }

    const fn in_etcd(nonce: [u8; NONCE_LEN], origin: Origin) -> Self {
        Self { slot: None, origin: Some(origin), nonce: Secret::new(nonce) }
    }

    /// Reads a token; `None` if it cannot be one of ours.
    pub fn parse(text: &str) -> Option<Self> {
        let encoded = text.strip_prefix(PREFIX)?;
        let mut bytes = [0; NONCE_LEN + ORIGIN_LEN];
        // Only the exact lengths have the one padding-free form that we issue.
        let len = BASE64_URL_SAFE_NO_PAD.decode_slice(encoded, &mut bytes).ok()?;
        let bytes = bytes.get(..len)?;
        if let Some((nonce, origin)) = bytes.split_first_chunk()
            && let Ok(origin) = origin.try_into()
        {
            return Some(Self::in_etcd(*nonce, Origin::from_bytes(origin)?));
        }
        let (slot, nonce) = bytes.split_first_chunk()?;
        Some(Self::new(u32::from_be_bytes(*slot), nonce.try_into().ok()?))
    }

    /// The token as its holder gets it.
    pub fn reveal(&self) -> String {
        let mut text = String::from(PREFIX);
        let mut bytes = self.secret();
        bytes.extend(self.origin.into_iter().flat_map(Origin::to_bytes));
        BASE64_URL_SAFE_NO_PAD.encode_string(bytes, &mut text);
        text
    }

    /// What is not said anywhere else.
    fn secret(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(4 + NONCE_LEN);
        bytes.extend(self.slot.into_iter().flat_map(u32::to_be_bytes));
        bytes.extend_from_slice(self.nonce.expose());
        bytes
    }

    /// The digest of the token in etcd that this number makes.
    fn digest_in_etcd(nonce: &[u8; NONCE_LEN]) -> Digest {
        Digest::of(nonce)
    }

    /// What the store keeps instead of the token.
    pub fn digest(&self) -> Digest {
        Digest::of(&self.secret())
    }

    /// Names the token whose digest is `digest`.
    pub fn id(&self, digest: &Digest) -> TokenId {
        TokenId { digest: digest.id(), slot: self.slot }
    }
}

/// Names a subject token, and says nothing that is of use without the token: the first 96 bits of its digest, in
/// hex, and behind them its slot, so that it is found in one read by who has no more than this.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenId {
    digest: String,
    slot: Option<u32>,
}

impl TokenId {
    /// How long the part of the digest is.
    const DIGEST: usize = 24;

    /// Reads an id; `None` if it cannot be one of ours.
    pub fn parse(text: &str) -> Option<Self> {
        let (digest, slot) = text.split_at_checked(Self::DIGEST)?;
        let hex = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let slot = match slot {
            "" => None,
            digits if hex(digits) => Some(u32::from_str_radix(digits, 16).ok()?),
            _ => return None,
        };
        let id = Self { digest: digest.to_owned(), slot };
        // Written in one way only.
        (hex(digest) && id.to_string() == text).then_some(id)
    }

    /// The first bytes of its digest.
    fn digest_bytes(&self) -> Option<[u8; Self::DIGEST / 2]> {
        let number = u128::from_str_radix(&self.digest, 16).ok()?;
        number.to_be_bytes().last_chunk().copied()
    }

    /// Whether this names the token of that digest.
    fn names(&self, digest: &Digest) -> bool {
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
    fn a_token_is_short_urlsafe_and_says_whose_it_is() {
        let nonce = [0xff; 32];
        let tokens = [SubjectToken::new(7, nonce), SubjectToken::in_etcd(nonce, ORIGIN)];
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
            for token in [SubjectToken::new(slot, nonce), SubjectToken::in_etcd(nonce, ORIGIN)] {
                let read = SubjectToken::parse(&token.reveal()).unwrap();
                prop_assert_eq!((read.slot, read.origin), (token.slot, token.origin));
                prop_assert!(read.digest().matches(&token.digest()));
            }
        }

        #[test]
        fn an_id_is_read_back(slot: u32, nonce: [u8; 32]) {
            for token in [SubjectToken::new(slot, nonce), SubjectToken::in_etcd(nonce, ORIGIN)] {
                let id = token.id(&token.digest());
                prop_assert_eq!(TokenId::parse(&id.to_string()), Some(id.clone()));
                prop_assert!(id.names(&token.digest()));
                let upper = id.to_string().to_uppercase();
                prop_assert!(upper == id.to_string() || TokenId::parse(&upper).is_none());
            }
        }

        #[test]
        fn no_text_is_two_ids(text in "[0-9a-fA-F]{20,24}\\PC{0,10}") {
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
