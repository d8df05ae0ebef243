//! Subject tokens in one Envoy: a bounded table of slots in shared data.
//!
//! Shared data has no lock and never forgets a key. So there is a fixed set of keys, which are used
//! again and again, and every write is a compare-and-set. There are two kinds of keys:
//!
//! - `…s<slot>` holds one token. **Only this record counts.** A mint wins the compare-and-set on a
//!   free slot. A spend wins it on the outstanding record that it read before. Taking a token back
//!   wins the same compare-and-set as a spend, so a token is either spent or taken back.
//! - `…p<page>` says for each of [`PAGE`] slots until when the slot is taken. It is a hint: it
//!   finds a free slot in a few reads even if nearly all slots are taken, and it shows after
//!   `capacity / PAGE` reads that a table is full. A mint checks a hint *free* against the record.
//!   A wrong hint *taken*, of a token that was spent, only hides its slot until that token would
//!   have expired.
//!
//! A mint hands out its token after the record is written. An exchange answers after the record
//! says *spent*. A worker that dies in between leaves a token without a holder, or an exchange
//! without an answer. It never leaves two exchanges.
//!
//! A token with a review changes with each decision about it, by the same compare-and-set. Nobody
//! writes it between its last approval and its spend. So a spend names a version that was approved.
//!
//! Slots are taken in turn, so a spent record stays readable for as long as possible: that is how a
//! second exchange is told from a guess.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::time::Duration;

use super::waiting::{self, Entry};
use crate::host::{Expected, Host, HostFailure, SharedData, Swap, UnixTime};
use crate::secret::Digest;
use crate::state::remote::Revision;
use crate::state::shared_data::keys::Keys;
use crate::state::shared_data::{Change, Read, update, update_read};
use crate::state::store::{
    Cancelled, Exchange, Found, Grant, Known, MOST_HELD, Mint, NONCE_LEN, NotSpent, NotStored,
    Occupancy, Outstanding, Record, RecordVersion, Review, Slot, Standing, State, SubjectToken,
    TokenId, Waiting, WaitingPage,
};

/// The number of slots of a page. A page is read and written whole: 1 KiB costs little more than a
/// call without data.
const PAGE: u32 = 256;

/// The length of a page: four bytes for each slot.
const PAGE_BYTES: usize = 4 * PAGE as usize;

/// The number of attempts to write a hint while other workers write the same page. After that the
/// hint stays wrong.
const HINT_ATTEMPTS: usize = 16;

/// The number of attempts to change a token while others write its slot.
const CHANGE_ATTEMPTS: usize = 16;

/// A page of waiting tokens ends after this many records were read.
const READS_TO_A_PAGE: usize = 4000;

/// A table of slots, as one worker sees it. Workers share the slots, not this value.
#[derive(Debug)]
pub struct SlotTable {
    keys: Keys,
    capacity: u32,
    /// The longest time that a token can be outstanding.
    lifetime: Duration,
    /// The slot at which the next mint begins to search. Each worker begins at another slot.
    hand: Cell<Option<u32>>,
}

impl SlotTable {
    /// The table of the service that `tenant` names. Services with one `vm_id` share the map, but
    /// not their tokens.
    pub fn new(tenant: &str, capacity: u32, lifetime: Duration) -> Self {
        Self { keys: Keys::new(tenant), capacity, lifetime, hand: Cell::new(None) }
    }

    /// Stores a new token that nobody needs to decide about.
    pub fn mint(
        &self,
        host: &dyn Host,
        mint: Mint,
        grant: Grant,
        expires_at: UnixTime,
    ) -> Result<(SubjectToken, Digest), NotStored> {
        self.store(host, mint, grant, None, expires_at)
    }

    /// Stores a new token that people decide about. The caller gets no token beyond its share.
    pub fn mint_for_review(
        &self,
        host: &dyn Host,
        mint: Mint,
        grant: Grant,
        review: Review,
        expires_at: UnixTime,
    ) -> Result<(SubjectToken, Digest), NotStored> {
        let (caller, user_id) = (mint.caller.clone(), grant.user_id.clone());
        let (token, digest) = self.store(host, mint, grant, Some(Box::new(review)), expires_at)?;
        let entry = Entry::new(&caller, &digest, token.slot.unwrap_or_default(), expires_at);
        let share = usize::try_from(self.capacity.div_ceil(4)).unwrap_or(MOST_HELD).min(MOST_HELD);
        let is_held = |entry: &Entry| self.holds_its_slot(host, entry);
        let mut added = waiting::add(host, &self.keys, (&caller, entry), share, is_held);
        if matches!(added, Ok(true)) {
            let entry = Entry::new(&user_id, &digest, entry.slot, expires_at);
            match waiting::add_for_user(host, &self.keys, (&user_id, entry), is_held) {
                Ok(()) => return Ok((token, digest)),
                Err(failure) => added = Err(failure),
            }
        }
        // Nobody has the token. Without its entry it could not be decided about.
        self.remove(host, &token, &digest)?;
        added?;
        Err(NotStored::HoldsTooMany)
    }

    /// Returns true if the token of an entry keeps its slot from others.
    fn holds_its_slot(&self, host: &dyn Host, entry: &Entry) -> Result<bool, HostFailure> {
        let now = host.now();
        let Some((bytes, _)) = host.get(&self.keys.slot(entry.slot))? else { return Ok(false) };
        let Some(slot) = Slot::decode(&bytes).filter(|slot| !slot.is_free(now)) else {
            return Ok(false);
        };
        // A record of a newer format may be this token.
        Ok(slot.record.is_none_or(|record| entry.id().names(&record.digest())))
    }

    /// Makes the slot free of a token that was stored a moment ago and that nobody has.
    fn remove(
        &self,
        host: &dyn Host,
        token: &SubjectToken,
        digest: &Digest,
    ) -> Result<(), HostFailure> {
        let Some(slot) = token.slot else { return Ok(()) };
        let removed = update(host, &self.keys.slot(slot), CHANGE_ATTEMPTS, |bytes| {
            let slot = bytes.and_then(Slot::decode);
            let Some(Slot { expires_at, record: Some(record) }) = slot else {
                return Ok(Change::Keep(()));
            };
            if !record.digest().matches(digest) {
                return Ok(Change::Keep(()));
            }
            let record = Record::new(digest, record.mint, State::Cancelled);
            let bytes = record.encode(expires_at).ok_or(HostFailure("memory for a record"))?;
            Ok::<_, HostFailure>(Change::Write(bytes, ()))
        });
        removed?.ok_or(HostFailure("to remove a token"))?;
        self.let_go(host, slot);
        Ok(())
    }

    fn store(
        &self,
        host: &dyn Host,
        mint: Mint,
        grant: Grant,
        review: Option<Box<Review>>,
        expires_at: UnixTime,
    ) -> Result<(SubjectToken, Digest), NotStored> {
        let mut nonce = [0; NONCE_LEN];
        host.random(&mut nonce)?;
        let now = host.now();
        let mut record = Record::new(&Digest::from_bytes([0; 32]), mint, State::Outstanding(grant))
            .reviewed(review);

        let first = self.hand(host)?;
        let pages = self.pages();
        // The page of the hand comes first, from the hand on, and last, up to the hand.
        for turn in 0..=pages {
            let page = self.page_at(first, turn, pages);
            let hints = Hints::read(host, self.keys.page(page))?;
            let from = if turn == 0 { first.checked_rem(PAGE).unwrap_or(0) } else { 0 };
            for offset in from..PAGE {
                let slot = page.saturating_mul(PAGE).saturating_add(offset);
                if slot >= self.capacity {
                    break;
                }
                if hints.taken(offset, now, self.lifetime) {
                    continue;
                }
                let key = self.keys.slot(slot);
                let expected = match host.get(&key)? {
                    None => Expected::Absent,
                    Some((bytes, version)) => {
                        if Slot::decode(&bytes).is_some_and(|slot| !slot.is_free(now)) {
                            continue;
                        }
                        Expected::Version(version)
                    }
                };
                let token = SubjectToken::in_slot(slot, nonce);
                let digest = token.digest();
                record = record.of(&digest);
                let bytes = record.encode(expires_at).ok_or(HostFailure("memory for a record"))?;
                if host.compare_and_set(&key, &bytes, expected)? == Swap::Done {
                    // A write that fails leaves a wrong hint, which is harmless.
                    let _ = hints.mark(host, offset, expires_at);
                    self.hand.set(Some(slot.saturating_add(1)));
                    return Ok((token, digest));
                }
            }
        }
        Err(NotStored::Full)
    }

    /// Looks up a presented token by its digest: one read.
    pub fn find(
        &self,
        host: &dyn Host,
        token: &SubjectToken,
        digest: &Digest,
    ) -> Result<Found, HostFailure> {
        self.find_in(host, token.slot, digest)
    }

    /// Looks up the token that is, or was, in `slot`. A table has no token without a slot.
    pub(crate) fn find_in(
        &self,
        host: &dyn Host,
        slot: Option<u32>,
        digest: &Digest,
    ) -> Result<Found, HostFailure> {
        let Some(slot) = slot else { return Ok(Found::Unknown) };
        let Some((bytes, version)) = host.get(&self.keys.slot(slot))? else {
            return Ok(Found::Unknown);
        };
        let Some(Slot { expires_at, record: Some(record) }) = Slot::decode(&bytes) else {
            return Ok(Found::Unknown);
        };
        if !record.digest().matches(digest) {
            return Ok(Found::Unknown);
        }
        let seen = RecordVersion::Slot(slot, version);
        let digest = *digest;
        let known = Known { record, expires_at, created: Revision::default() };
        Ok(Found::read(known, host.now(), |mint, grant, review| Outstanding {
            seen,
            digest,
            expires_at,
            mint,
            grant,
            review,
        }))
    }

    /// Looks up the token that `id` names.
    pub(crate) fn known(
        &self,
        host: &dyn Host,
        id: &TokenId,
    ) -> Result<Option<Known>, HostFailure> {
        let Some(slot) = id.slot else { return Ok(None) };
        let bytes = host.get(&self.keys.slot(slot))?;
        Ok(bytes.and_then(|(bytes, _)| read_known(&bytes, id)))
    }

    /// Changes the review of the token that `id` names. `decide` makes the new review from the
    /// token as it is; `None` to leave it. Returns the token as it is then.
    pub fn decide(
        &self,
        host: &dyn Host,
        id: &TokenId,
        mut decide: impl FnMut(&Known) -> Option<Review>,
    ) -> Result<Option<Known>, HostFailure> {
        let Some(slot) = id.slot else { return Ok(None) };
        let decided = update(host, &self.keys.slot(slot), CHANGE_ATTEMPTS, |bytes| {
            let Some(mut known) = bytes.and_then(|bytes| read_known(bytes, id)) else {
                return Ok(Change::Keep(None));
            };
            let Some(review) = decide(&known) else { return Ok(Change::Keep(Some(known))) };
            known.decide(review);
            let bytes = known.record.encode(known.expires_at);
            let bytes = bytes.ok_or(HostFailure("memory for a record"))?;
            Ok::<_, HostFailure>(Change::Write(bytes, Some(known)))
        });
        decided?.ok_or(HostFailure("to decide about a token"))
    }

    /// Reads a page of the tokens that wait for a decision, for all users or for one: at most
    /// `limit` that `wanted` accepts.
    pub(crate) fn waiting(
        &self,
        host: &dyn Host,
        user_id: Option<&str>,
        place: Option<&str>,
        limit: usize,
        mut wanted: impl FnMut(&TokenId, &Known) -> bool,
    ) -> Result<WaitingPage, HostFailure> {
        let now = host.now();
        let mut place = place.map(Place::parse).unwrap_or_default();
        let mut page = WaitingPage { entries: Vec::new(), next: None, complete: true };
        let mut reads = 0_usize;
        // All tokens of one user are in one bucket.
        let buckets = if user_id.is_some() { 1 } else { waiting::BUCKETS };
        for bucket in place.bucket..buckets {
            let mut entries = match user_id {
                Some(user_id) => waiting::read_for_user(host, &self.keys, user_id)?,
                None => waiting::read(host, &self.keys, bucket)?,
            };
            entries.sort_unstable_by_key(|entry| entry.slot);
            let first = std::mem::take(&mut place.slot);
            for entry in entries.into_iter().filter(|entry| entry.slot >= first) {
                if page.entries.len() >= limit || reads >= READS_TO_A_PAGE {
                    page.next = Some(Place { bucket, slot: entry.slot }.to_text());
                    return Ok(page);
                }
                reads = reads.saturating_add(1);
                let id = entry.id();
                let Some(known) = self.known(host, &id)? else { continue };
                if known.standing(now) == Standing::Pending && wanted(&id, &known) {
                    page.entries.push(Waiting { id, known });
                }
            }
        }
        Ok(page)
    }

    /// Takes back the token that `id` names, if `theirs` allows it. The token cannot be exchanged
    /// after that. An expired token is taken back too, because the clock may be wrong.
    pub fn cancel(
        &self,
        host: &dyn Host,
        id: &TokenId,
        theirs: impl Fn(&Digest, &Mint) -> bool,
    ) -> Result<Cancelled, HostFailure> {
        let Some(slot) = id.slot else { return Ok(Cancelled::NotTheirs) };
        // An outstanding record changes once, and then stays as it is until its slot is taken
        // again.
        let cancelled = update(host, &self.keys.slot(slot), CHANGE_ATTEMPTS, |bytes| {
            let keep = |cancelled| Ok(Change::Keep((cancelled, false)));
            let Some(Slot { expires_at, record: Some(record) }) = bytes.and_then(Slot::decode)
            else {
                return keep(Cancelled::NotTheirs);
            };
            if !id.names(&record.digest()) {
                return keep(Cancelled::NotTheirs);
            }
            let record = match record.cancel(&theirs) {
                ControlFlow::Continue(record) => record,
                ControlFlow::Break(answer) => return keep(answer),
            };
            let bytes = record.encode(expires_at).ok_or(HostFailure("memory for a record"))?;
            let is_free = record.review.is_none();
            Ok(Change::Write(bytes, (Cancelled::Yes(record.mint), is_free)))
        })?;
        let (cancelled, is_free_now) = cancelled.ok_or(HostFailure("to take a token back"))?;
        if is_free_now {
            self.let_go(host, slot);
        }
        Ok(cancelled)
    }

    /// Writes the hint that a slot is free. If the write fails, the slot is only hidden for a
    /// while.
    fn let_go(&self, host: &dyn Host, slot: u32) {
        let (page, offset) = (slot / PAGE, slot % PAGE);
        let _ = Hints::read(host, self.keys.page(page))
            .and_then(|hints| hints.mark(host, offset, UnixTime::default()));
    }

    /// Spends a token, if no other request has spent it since it was found. Only one caller gets
    /// `Ok`.
    pub fn spend(
        &self,
        host: &dyn Host,
        token: Outstanding,
        exchange: Exchange,
    ) -> Result<(), NotSpent> {
        let RecordVersion::Slot(slot, version) = token.seen else {
            return Err(NotSpent::Forgotten);
        };
        let (key, digest, expires_at) = (self.keys.slot(slot), token.digest, token.expires_at);
        let record = Record::spend(token, exchange, host.now())?;
        let bytes = record.encode(expires_at).ok_or(HostFailure("memory for a record"))?;
        match host.compare_and_set(&key, &bytes, Expected::Version(version))? {
            Swap::Done => {
                // From here on the token is spent.
                self.let_go(host, slot);
                Ok(())
            }
            Swap::Lost => Err(self.winner(host, &key, &digest)?),
        }
    }

    /// The request that was faster, for the log.
    fn winner(&self, host: &dyn Host, key: &str, ours: &Digest) -> Result<NotSpent, HostFailure> {
        let slot = host.get(key)?.and_then(|(bytes, _)| Slot::decode(&bytes));
        Ok(match slot.and_then(|slot| slot.record) {
            Some(record) if record.digest().matches(ours) => {
                record.first_change().unwrap_or(NotSpent::Expired)
            }
            // The token had not expired a moment ago, so it was spent before its slot was taken
            // again.
            _ => NotSpent::Forgotten,
        })
    }

    /// Adds the outstanding tokens of one page to `counted`, by the hints of the page.
    pub(super) fn count(
        &self,
        host: &dyn Host,
        page: u32,
        now: UnixTime,
        counted: &mut Occupancy,
    ) -> Result<(), HostFailure> {
        let hints = Hints::read(host, self.keys.page(page))?;
        for until in hints.all().filter(|until| is_ahead(*until, now, self.lifetime)) {
            counted.add(until);
        }
        Ok(())
    }

    /// The number of slots.
    pub(crate) const fn capacity(&self) -> u32 {
        self.capacity
    }

    /// The number of pages.
    pub(super) const fn pages(&self) -> u32 {
        self.capacity.div_ceil(PAGE)
    }

    /// The key of the lease of the VM that counts.
    pub(super) fn census_key(&self) -> String {
        self.keys.census()
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

    /// The page to search in the `turn`th place, beginning with the page of slot `first`.
    fn page_at(&self, first: u32, turn: u32, pages: u32) -> u32 {
        (first / PAGE).saturating_add(turn).checked_rem(pages).unwrap_or(0)
    }
}

/// Reads the token that `id` names from the bytes of its slot.
fn read_known(bytes: &[u8], id: &TokenId) -> Option<Known> {
    let Slot { expires_at, record } = Slot::decode(bytes)?;
    let record = record.filter(|record| id.names(&record.digest()))?;
    Some(Known { record, expires_at, created: Revision::default() })
}

/// The place where the next page of waiting tokens begins. A place that a caller makes up is
/// harmless.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    bucket: u32,
    slot: u32,
}

impl Place {
    fn parse(text: &str) -> Self {
        let place = text.split_once('.').and_then(|(bucket, slot)| {
            Some(Self { bucket: bucket.parse().ok()?, slot: slot.parse().ok()? })
        });
        place.unwrap_or_default()
    }

    fn to_text(self) -> String {
        format!("{}.{}", self.bucket, self.slot)
    }
}

/// Returns true if a hint says that its slot is taken. A hint that reaches further than a token
/// lives was written before the clock was set back, and says nothing. The second in which a slot
/// becomes free counts as free: the record is exact.
fn is_ahead(until: UnixTime, now: UnixTime, lifetime: Duration) -> bool {
    until > now && !until.is_ahead_of(now.after(lifetime))
}

/// The time at which a slot becomes free, by its hint.
fn until(entry: [u8; 4]) -> UnixTime {
    UnixTime::from_secs(i64::from(u32::from_le_bytes(entry)))
}

/// One page: for each slot the second until which it is taken.
struct Hints {
    key: String,
    read: Read,
}

impl Hints {
    fn read(host: &(impl SharedData + ?Sized), key: String) -> Result<Self, HostFailure> {
        Ok(Self { read: host.get(&key)?, key })
    }

    fn entries(&self) -> &[[u8; 4]] {
        self.read.as_ref().map_or(&[], |(bytes, _)| bytes.as_chunks().0)
    }

    fn all(&self) -> impl Iterator<Item = UnixTime> + '_ {
        self.entries().iter().map(|entry| until(*entry))
    }

    /// Returns true if the page says that the slot is taken.
    fn taken(&self, offset: u32, now: UnixTime, lifetime: Duration) -> bool {
        let entry = usize::try_from(offset).ok().and_then(|offset| self.entries().get(offset));
        entry.is_some_and(|entry| is_ahead(until(*entry), now, lifetime))
    }

    /// Writes the time until which a slot is taken.
    fn mark(
        self,
        host: &(impl SharedData + ?Sized),
        offset: u32,
        until: UnixTime,
    ) -> Result<(), HostFailure> {
        let entry = u32::try_from(until.secs()).unwrap_or(u32::MAX).to_le_bytes();
        let Self { key, read } = self;
        let marked = update_read(host, &key, read, HINT_ATTEMPTS, |bytes| {
            let mut bytes = bytes.unwrap_or_default().to_vec();
            bytes.resize(PAGE_BYTES, 0);
            let (entries, _) = bytes.as_chunks_mut();
            let place = usize::try_from(offset).ok().and_then(|offset| entries.get_mut(offset));
            if let Some(place) = place {
                *place = entry;
            }
            Ok(Change::Write(bytes, ()))
        });
        marked.map(|_: Option<()>| ())
    }
}
