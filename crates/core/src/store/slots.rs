//! The default store: a bounded table of slots in Envoy's shared data.
//!
//! Shared data has no lock and never forgets a key, so there is a fixed set of keys, used again and
//! again, and every write is a compare-and-set. Two kinds of keys:
//!
//! - `…s<slot>` holds one token. **Only this record counts.** To mint is to win the compare-and-set
//!   on a free slot, to spend is to win it on the outstanding record that was read before. To take a token back is to
//!   win the same one, so that it is either spent or taken back.
//! - `…p<page>` says for each of [`PAGE`] slots until when it is taken. It is a hint, so that a free
//!   slot is found in a few reads even when nearly all are taken, and a full table is known to be full
//!   after `capacity / PAGE` reads. A hint that says *free* is checked against the record; one that
//!   says *taken* though the token was spent only hides the slot until that token would have expired.
//!
//! A mint hands out its token after the record is written, and an exchange answers after the record
//! says *spent*: a worker that dies in between leaves a token that nobody holds, or an exchange that
//! nobody got, never two.
//!
//! Slots are taken in turn, so that a spent record stays readable for as long as possible: that is how
//! a second exchange is told from a guess.

use std::cell::Cell;
use std::fmt::Write as _;
use std::time::Duration;

use super::record::{Exchange, Grant, Mint, Record, Slot, State, is_current};
use super::{NONCE_LEN, StoreFailure, SubjectToken, TokenId};
use crate::etcd::lease::Kept;
use crate::host::{Expected, Host, HostFailure, SharedData, Swap, UnixTime, Version};
use crate::remote::{LastRevocation, RemoteFailure, Revision};
use crate::secret::{Digest, namespace};

/// Slots to a page. A page is read and written whole: 1 KiB costs little more than a call without data.
const PAGE: u32 = 256;

/// A page as bytes: four for each slot.
const PAGE_BYTES: usize = 4 * PAGE as usize;

/// How often a hint is written anew when other workers write the same page; then it is left wrong.
const HINT_ATTEMPTS: usize = 16;

/// How often a token is looked at that is to be taken back, while others write its slot.
const CANCEL_ATTEMPTS: usize = 16;

/// A table of slots, as one worker sees it. Workers share the slots, not this value.
#[derive(Debug)]
pub struct SlotTable {
    namespace: String,
    capacity: u32,
    /// How long a token can be outstanding.
    lifetime: Duration,
    /// The slot to look at first for the next mint. Workers begin at different places.
    hand: Cell<Option<u32>>,
}

/// How full a table is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Occupancy {
    /// Tokens that are neither spent nor expired.
    pub outstanding: u32,
    /// When the first of them expires.
    pub first_expiry: Option<UnixTime>,
}

/// A token that was found unspent and unexpired, and the version of its record: the right to try and
/// spend it, once.
#[derive(Debug)]
pub struct Outstanding {
    pub(super) seen: Seen,
    pub(super) digest: Digest,
    pub(super) expires_at: UnixTime,
    /// Who minted it.
    pub mint: Mint,
    /// What it grants.
    pub grant: Grant,
}

/// What was read, and must still be so for the token to be spent.
#[derive(Debug, Clone, Copy)]
pub(super) enum Seen {
    /// This slot, in this version.
    Slot(u32, Version),
    /// The key in etcd.
    Revision(SeenInEtcd),
}

/// A key in etcd, as it was read.
#[derive(Debug, Clone, Copy)]
pub(super) struct SeenInEtcd {
    /// The revision that wrote it last: the one that is replaced.
    pub(super) modified: i64,
    /// The revision that minted the token.
    pub(super) created: Revision,
    /// How often it was written.
    pub(super) version: i64,
    /// What it hangs on.
    pub(super) lease: i64,
    /// How long that lasts.
    pub(super) kept: Kept,
    /// Read at the same moment.
    pub(super) last_revocation: LastRevocation,
}

/// What the store knows of a presented token.
#[derive(Debug)]
pub enum Found {
    /// It can be exchanged.
    Outstanding(Outstanding),
    /// It was exchanged before: somebody presents it again.
    Spent(Mint, Exchange),
    /// It was taken back before anybody exchanged it.
    Cancelled(Mint),
    /// It was not exchanged in time.
    Expired(Mint, Grant),
    /// No such token: never minted here, or its slot went to another.
    Unknown,
}

/// Why a token was not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotStored {
    /// Every slot holds an outstanding token.
    #[error("all slots hold outstanding tokens")]
    Full,
    /// Shared data or randomness failed.
    #[error(transparent)]
    Host(#[from] HostFailure),
    /// etcd was of no use.
    #[error(transparent)]
    Remote(#[from] RemoteFailure),
}

/// What has become of a token that somebody takes back.
#[derive(Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// Nobody exchanges it any more, and nobody has.
    Yes(Mint),
    /// An exchange was first.
    Spent(Mint, Exchange),
    /// There is no such token, or it is not theirs to take back.
    NotTheirs,
}

/// Why a token was not spent.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotSpent {
    /// Another exchange was first.
    #[error("another exchange was first")]
    Already(Box<(Mint, Exchange)>),
    /// It was taken back first.
    #[error("it was taken back during the exchange")]
    Cancelled,
    /// Another exchange was first, and since then its slot went to another token.
    #[error("another exchange was first, and nobody knows which any more")]
    Forgotten,
    /// It ran out between look-up and spending.
    #[error("it expired during the exchange")]
    Expired,
    /// The store failed, and spent nothing.
    #[error(transparent)]
    Store(StoreFailure),
    /// The store failed, and nobody knows whether it spent the token.
    #[error("it is not known whether the token was spent: {0}")]
    Unknown(RemoteFailure),
}

impl From<RemoteFailure> for NotSpent {
    fn from(failure: RemoteFailure) -> Self {
        Self::Store(failure.into())
    }
}

impl From<HostFailure> for NotSpent {
    fn from(failure: HostFailure) -> Self {
        Self::Store(failure.into())
    }
}

impl Outstanding {
    /// Names the token: the same as in the audit of its mint.
    pub fn id(&self) -> TokenId {
        TokenId { digest: self.digest.id(), slot: self.slot() }
    }

    /// Where it was found, in a table of slots.
    pub(super) const fn slot(&self) -> Option<u32> {
        match self.seen {
            Seen::Slot(slot, _) => Some(slot),
            Seen::Revision(_) => None,
        }
    }

    /// The revision of etcd that minted it; none where it was minted into a table of slots.
    pub fn created(&self) -> Revision {
        match &self.seen {
            Seen::Slot(..) => Revision::default(),
            Seen::Revision(seen) => seen.created,
        }
    }

    /// The last revocation of all, as it was when the token was found.
    pub const fn last_revocation(&self) -> Option<LastRevocation> {
        match &self.seen {
            Seen::Slot(..) => None,
            Seen::Revision(seen) => Some(seen.last_revocation),
        }
    }

    /// Whether it was found in a table of slots.
    pub const fn is_in_a_slot(&self) -> bool {
        self.slot().is_some()
    }
}

impl SlotTable {
    /// The table of one service. `tenant` names the service: two that share a `vm_id` share the map,
    /// and a token of one must not be known to the other.
    pub fn new(tenant: &str, capacity: u32, lifetime: Duration) -> Self {
        Self { namespace: namespace(tenant), capacity, lifetime, hand: Cell::new(None) }
    }

    /// Stores a new token.
    pub fn mint(
        &self,
        host: &dyn Host,
        mint: Mint,
        grant: Grant,
        expires_at: UnixTime,
    ) -> Result<(SubjectToken, Digest), NotStored> {
        let mut nonce = [0; NONCE_LEN];
        host.random(&mut nonce)?;
        let now = host.now();
        let mut record = Record::new(&Digest::from_bytes([0; 32]), mint, State::Outstanding(grant));

        let first = self.hand(host)?;
        let pages = self.pages();
        // The page of the hand comes twice: from the hand on, and at last up to it.
        for turn in 0..=pages {
            let page = self.page_at(first, turn, pages);
            let mut hints = Hints::read(host, self.page_key(page))?;
            let from = if turn == 0 { first.checked_rem(PAGE).unwrap_or(0) } else { 0 };
            for offset in from..PAGE {
                let slot = page.saturating_mul(PAGE).saturating_add(offset);
                if slot >= self.capacity {
                    break;
                }
                if hints.taken(offset, now, self.lifetime) {
                    continue;
                }
                let key = self.slot_key(slot);
                let expected = match host.get(&key)? {
                    None => Expected::Absent,
                    Some((bytes, version)) => {
                        if Slot::decode(&bytes).is_some_and(|slot| !slot.is_free(now)) {
                            continue;
                        }
                        Expected::Version(version)
                    }
                };
                let token = SubjectToken::new(slot, nonce);
                let digest = token.digest();
                record = Record::new(&digest, record.mint, record.state);
                let bytes = record.encode(expires_at).ok_or(HostFailure("memory for a record"))?;
                if host.compare_and_set(&key, &bytes, expected)? == Swap::Done {
                    // A hint that fails is a wrong hint, and those are harmless.
                    let _ = hints.mark(host, offset, expires_at);
                    self.hand.set(Some(slot.saturating_add(1)));
                    return Ok((token, digest));
                }
            }
        }
        Err(NotStored::Full)
    }

    /// Looks a presented token up, of which the digest is known: one read.
    pub fn find(
        &self,
        host: &dyn Host,
        token: &SubjectToken,
        digest: &Digest,
    ) -> Result<Found, HostFailure> {
        self.find_in(host, token.slot, digest)
    }

    /// The same of one that is, or was, in this slot: none was minted into a table without one.
    pub(super) fn find_in(
        &self,
        host: &dyn Host,
        slot: Option<u32>,
        digest: &Digest,
    ) -> Result<Found, HostFailure> {
        let Some(slot) = slot else { return Ok(Found::Unknown) };
        let Some((bytes, version)) = host.get(&self.slot_key(slot))? else {
            return Ok(Found::Unknown);
        };
        let Some(Slot { expires_at, record: Some(record) }) = Slot::decode(&bytes) else {
            return Ok(Found::Unknown);
        };
        if !record.digest().matches(digest) {
            return Ok(Found::Unknown);
        }
        Ok(match record.state {
            State::Spent(exchange) => Found::Spent(record.mint, exchange),
            State::Cancelled => Found::Cancelled(record.mint),
            State::Outstanding(grant) if !is_current(&record.mint, expires_at, host.now()) => {
                Found::Expired(record.mint, grant)
            }
            State::Outstanding(grant) => Found::Outstanding(Outstanding {
                seen: Seen::Slot(slot, version),
                digest: *digest,
                expires_at,
                mint: record.mint,
                grant,
            }),
        })
    }

    /// Takes the token back that this names, if it is `theirs`: from then on nobody exchanges it. One that has expired
    /// is taken back, too, as the clock may be wrong.
    pub fn cancel(
        &self,
        host: &dyn Host,
        id: &TokenId,
        theirs: impl Fn(&Digest, &Mint) -> bool,
    ) -> Result<Cancelled, HostFailure> {
        let Some(slot) = id.slot else { return Ok(Cancelled::NotTheirs) };
        let key = self.slot_key(slot);
        // An outstanding record changes once, and what it is then stays until its slot is taken again.
        for _ in 0..CANCEL_ATTEMPTS {
            let Some((bytes, version)) = host.get(&key)? else { return Ok(Cancelled::NotTheirs) };
            let Some(Slot { expires_at, record: Some(record) }) = Slot::decode(&bytes) else {
                return Ok(Cancelled::NotTheirs);
            };
            let digest = record.digest();
            if !id.names(&digest) || !theirs(&digest, &record.mint) {
                return Ok(Cancelled::NotTheirs);
            }
            match record.state {
                State::Spent(exchange) => return Ok(Cancelled::Spent(record.mint, exchange)),
                State::Cancelled => return Ok(Cancelled::Yes(record.mint)),
                State::Outstanding(_) => {}
            }
            let record = Record::new(&digest, record.mint, State::Cancelled);
            let bytes = record.encode(expires_at).ok_or(HostFailure("memory for a record"))?;
            if host.compare_and_set(&key, &bytes, Expected::Version(version))? == Swap::Done {
                self.let_go(host, slot);
                return Ok(Cancelled::Yes(record.mint));
            }
        }
        Err(HostFailure("to take a token back"))
    }

    /// Says that a slot is free. If that fails it is only hidden for a while.
    fn let_go(&self, host: &dyn Host, slot: u32) {
        let (page, offset) = (slot / PAGE, slot % PAGE);
        let _ = Hints::read(host, self.page_key(page))
            .and_then(|mut hints| hints.mark(host, offset, UnixTime::default()));
    }

    /// Spends a token, if nobody has since it was found. Whoever gets `Ok` is the only one.
    pub fn spend(
        &self,
        host: &dyn Host,
        token: Outstanding,
        exchange: Exchange,
    ) -> Result<(), NotSpent> {
        let Seen::Slot(slot, version) = token.seen else { return Err(NotSpent::Forgotten) };
        if !is_current(&token.mint, token.expires_at, host.now()) {
            return Err(NotSpent::Expired);
        }
        let key = self.slot_key(slot);
        let record = Record::new(&token.digest, token.mint, State::Spent(exchange));
        let bytes = record.encode(token.expires_at).ok_or(HostFailure("memory for a record"))?;
        match host.compare_and_set(&key, &bytes, Expected::Version(version))? {
            Swap::Done => {
                // From here on the token is spent.
                self.let_go(host, slot);
                Ok(())
            }
            Swap::Lost => Err(self.winner(host, &key, &token.digest)?),
        }
    }

    /// Who was faster, for the log.
    fn winner(&self, host: &dyn Host, key: &str, ours: &Digest) -> Result<NotSpent, HostFailure> {
        let slot = host.get(key)?.and_then(|(bytes, _)| Slot::decode(&bytes));
        Ok(match slot.and_then(|slot| slot.record) {
            Some(record) if record.digest().matches(ours) => match record.state {
                State::Spent(exchange) => NotSpent::Already(Box::new((record.mint, exchange))),
                State::Cancelled => NotSpent::Cancelled,
                State::Outstanding(_) => NotSpent::Expired,
            },
            // It had not expired a moment ago, so it was spent before its slot was taken again.
            _ => NotSpent::Forgotten,
        })
    }

    /// Adds the outstanding tokens of one page, by its hints.
    pub(super) fn count(
        &self,
        host: &dyn Host,
        page: u32,
        now: UnixTime,
        counted: &mut Occupancy,
    ) -> Result<(), HostFailure> {
        let hints = Hints::read(host, self.page_key(page))?;
        for until in hints.all().filter(|until| is_ahead(*until, now, self.lifetime)) {
            counted.outstanding = counted.outstanding.saturating_add(1);
            let first = counted.first_expiry.map_or(until, |first| first.min(until));
            counted.first_expiry = Some(first);
        }
        Ok(())
    }

    /// How many pages there are.
    pub(super) const fn pages(&self) -> u32 {
        self.capacity.div_ceil(PAGE)
    }

    /// Where the lease of who counts is kept.
    pub(super) fn census_key(&self) -> String {
        format!("{}census", self.namespace)
    }

    fn hand(&self, host: &dyn Host) -> Result<u32, HostFailure> {
        let hand = match self.hand.get() {
            Some(hand) => hand,
            None => {
                let mut random = [0; 4];
                host.random(&mut random)?;
                u32::from_be_bytes(random)
            }
        };
        Ok(hand.checked_rem(self.capacity).unwrap_or(0))
    }

    /// The page to look at in the `turn`th place, beginning with the one of slot `first`.
    fn page_at(&self, first: u32, turn: u32, pages: u32) -> u32 {
        (first / PAGE).saturating_add(turn).checked_rem(pages).unwrap_or(0)
    }

    fn slot_key(&self, slot: u32) -> String {
        self.key('s', slot)
    }

    fn page_key(&self, page: u32) -> String {
        self.key('p', page)
    }

    fn key(&self, kind: char, number: u32) -> String {
        let mut key = String::with_capacity(24);
        let _ = write!(key, "{}{kind}{number}", self.namespace);
        key
    }
}

/// Whether a hint says that its slot is taken. None is for longer than a token lives, so that one that is was
/// written before the clock was set back, and says nothing. The second in which a slot becomes free counts as
/// free: the record knows better.
fn is_ahead(until: UnixTime, now: UnixTime, lifetime: Duration) -> bool {
    until > now && !until.is_ahead_of(now.after(lifetime))
}

/// When a slot is free again, by its hint.
fn until(entry: [u8; 4]) -> UnixTime {
    UnixTime::from_secs(i64::from(u32::from_le_bytes(entry)))
}

/// One page: until when each of its slots is taken, in whole seconds.
struct Hints {
    key: String,
    bytes: Vec<u8>,
    version: Option<Version>,
}

impl Hints {
    fn read(host: &(impl SharedData + ?Sized), key: String) -> Result<Self, HostFailure> {
        let (bytes, version) =
            host.get(&key)?.map_or((Vec::new(), None), |(bytes, version)| (bytes, Some(version)));
        Ok(Self { key, bytes, version })
    }

    fn all(&self) -> impl Iterator<Item = UnixTime> + '_ {
        let (entries, _) = self.bytes.as_chunks();
        entries.iter().map(|entry| until(*entry))
    }

    /// Whether the slot is said to be taken.
    fn taken(&self, offset: u32, now: UnixTime, lifetime: Duration) -> bool {
        let (entries, _) = self.bytes.as_chunks();
        let entry = usize::try_from(offset).ok().and_then(|offset| entries.get(offset));
        entry.is_some_and(|entry| is_ahead(until(*entry), now, lifetime))
    }

    /// Writes until when a slot is taken, and reads the page anew if others wrote it meanwhile.
    fn mark(
        &mut self,
        host: &(impl SharedData + ?Sized),
        offset: u32,
        until: UnixTime,
    ) -> Result<(), HostFailure> {
        let entry = u32::try_from(until.secs()).unwrap_or(u32::MAX).to_le_bytes();
        for _ in 0..HINT_ATTEMPTS {
            self.bytes.resize(PAGE_BYTES, 0);
            let (entries, _) = self.bytes.as_chunks_mut();
            let place = usize::try_from(offset).ok().and_then(|offset| entries.get_mut(offset));
            if let Some(place) = place {
                *place = entry;
            }
            let expected = self.version.map_or(Expected::Absent, Expected::Version);
            match host.compare_and_set(&self.key, &self.bytes, expected)? {
                Swap::Done => return Ok(()),
                Swap::Lost => *self = Self::read(host, std::mem::take(&mut self.key))?,
            }
        }
        Ok(())
    }
}
