//! A bounded memory of ids that may be used only once, such as the `jti` of a client assertion.
//!
//! An id has a fixed bucket, which its hash picks, and a bucket has room for a fixed number of ids.
//! The memory never forgets an id before its time: a bucket that is full of live ids takes no more,
//! and the caller must then refuse the request. An id is forgotten when the clock has passed the
//! time after which every caller refuses it anyway.
//!
//! A caller that presents ids must not be able to fill a bucket that others need. So the hash has a
//! random secret for its key, and nobody can choose the bucket of an id. And each owner of ids,
//! such as a key that signs proofs, has a share: in each bucket it gets half of what the others
//! leave. A flood of one owner leaves half of the memory, and seven owners together are needed to
//! fill a bucket.
//!
//! If any number of workers present one id at once, exactly one learns that it was the first: all
//! of them write the same bucket by compare-and-set.

use std::hash::Hasher as _;

use siphasher::sip128::{Hasher128 as _, SipHasher24};

use super::keys::Keys;
use super::{Change, SharedSecret, update};
use crate::host::{Host, HostFailure, UnixTime};

/// The format of a bucket. It is part of the key's name: a filter with another format uses other
/// keys.
const FORMAT: u8 = 2;

/// The usual number of buckets, each a key.
const BUCKETS: u32 = 2048;

/// The number of ids in a bucket: with [`BUCKETS`], 131 072 ids in 3 MiB.
const ROOM: usize = 64;

/// The length of the tag of an id's owner in a bucket.
const OWNER: usize = 4;

/// The length of an id in a bucket. Four further bytes of the id's hash chose the bucket.
const NAME: usize = 12;

/// An entry of a bucket: the owner, the id, and when it may be forgotten.
const ENTRY: usize = OWNER + NAME + 8;

/// The number of attempts while other workers write the same bucket.
const ATTEMPTS: usize = 64;

const UNREADABLE: HostFailure = HostFailure("ids in a format that this version can read");
const CONTENDED: HostFailure = HostFailure("shared data: others write without end");

/// The ids of one kind that one service has seen.
#[derive(Debug)]
pub struct SeenOnce {
    keys: Keys,
    kind: &'static str,
    buckets: u32,
    secret: SharedSecret,
}

/// An id was not remembered. The caller must refuse the request: it cannot know whether the id is
/// new.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotRemembered {
    /// The bucket is full of ids that are still live.
    #[error("there is no room to remember another id")]
    Full,
    /// The id may be forgotten already: nothing would keep it from being used again.
    #[error("the id has expired")]
    Expired,
    /// Shared data failed.
    #[error(transparent)]
    Host(#[from] HostFailure),
}

impl SeenOnce {
    /// The ids of `kind` that the service of `tenant` has seen. Ids of different kinds do not meet.
    pub fn new(tenant: &str, kind: &'static str) -> Self {
        Self::with_buckets(tenant, kind, BUCKETS)
    }

    /// The ids of a kind of which there are more, or fewer, than usual. Each bucket has room for 64
    /// ids. The number is part of what `kind` means: change both.
    pub(crate) fn with_buckets(tenant: &str, kind: &'static str, buckets: u32) -> Self {
        let secret = SharedSecret::new(tenant, "seen-once");
        Self { keys: Keys::new(tenant), kind, buckets, secret }
    }

    /// Returns true if `id` is remembered.
    pub fn has(&self, host: &dyn Host, id: &[u8]) -> Result<bool, NotRemembered> {
        let place = self.place(host, b"", id)?;
        let bytes = host.get(&place.key)?.map(|(bytes, _)| bytes).unwrap_or_default();
        let now = host.now();
        let mut live = entries(&bytes)?.iter().filter(|entry| now < expiry(entry));
        Ok(live.any(|entry| place.is_of(entry)))
    }

    /// Remembers `id` until `until`, for a caller to whom a forgotten id does no harm: a full
    /// bucket forgets the id that it would forget next.
    pub fn remember(
        &self,
        host: &dyn Host,
        id: &[u8],
        until: UnixTime,
    ) -> Result<(), NotRemembered> {
        let place = self.place(host, b"", id)?;
        let remembered = update(host, &place.key, ATTEMPTS, |bytes| {
            let (now, entries) = (host.now(), entries(bytes.unwrap_or_default())?);
            let is_other = |entry: &&[u8; ENTRY]| now < expiry(entry) && !place.is_of(entry);
            let others = || entries.iter().filter(is_other);
            let next = others().min_by_key(|entry| expiry(entry));
            let forgotten = if others().count() < ROOM { None } else { next };
            let kept = others().filter(|entry| Some(*entry) != forgotten);
            Ok::<_, NotRemembered>(Change::Write(place.added_to(kept, until), ()))
        });
        remembered?.ok_or(NotRemembered::Host(CONTENDED))
    }

    /// Returns true for the first caller that presents `id`, and remembers the id until `until`.
    /// The id counts against the share of `owner`.
    ///
    /// `id` must also name its issuer if several issue ids of this kind. Call this after the
    /// signature over the id has been verified: otherwise strangers could fill the memory.
    pub fn first_time(
        &self,
        host: &dyn Host,
        owner: &[u8],
        id: &[u8],
        until: UnixTime,
    ) -> Result<bool, NotRemembered> {
        let place = self.place(host, owner, id)?;
        let first = update(host, &place.key, ATTEMPTS, |bytes| {
            let (now, entries) = (host.now(), entries(bytes.unwrap_or_default())?);
            let live = || entries.iter().filter(|entry| now < expiry(entry));
            if live().any(|entry| place.is_of(entry)) {
                return Ok(Change::Keep(false));
            }
            if until <= now {
                return Err(NotRemembered::Expired);
            }
            let (all, own) =
                (live().count(), live().filter(|entry| place.has_owner(entry)).count());
            if all >= ROOM || own >= share(all.saturating_sub(own)) {
                return Err(NotRemembered::Full);
            }
            Ok(Change::Write(place.added_to(live(), until), true))
        });
        first?.ok_or(NotRemembered::Host(CONTENDED))
    }

    /// Finds the place of an id.
    fn place(&self, host: &dyn Host, owner: &[u8], id: &[u8]) -> Result<Place, HostFailure> {
        let secret = self.secret.get(host)?.expose();
        let hash = |purpose: u8, text: &[u8]| {
            let mut hasher = SipHasher24::new_with_key(secret);
            hasher.write(&[purpose]);
            hasher.write(text);
            hasher.finish128().as_bytes()
        };
        let (id, owner) = (hash(0, id), hash(1, owner));
        let name = id.first_chunk().copied().unwrap_or_default();
        let bucket = id.last_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let bucket = bucket.checked_rem(self.buckets).unwrap_or(0);
        let key = self.keys.seen_once(self.kind, FORMAT, bucket);
        Ok(Place { key, owner: owner.first_chunk().copied().unwrap_or_default(), name })
    }
}

/// The bucket of an id, and the id and its owner as the bucket holds them.
struct Place {
    key: String,
    owner: [u8; OWNER],
    name: [u8; NAME],
}

impl Place {
    fn has_owner(&self, entry: &[u8; ENTRY]) -> bool {
        entry.starts_with(&self.owner)
    }

    fn is_of(&self, entry: &[u8; ENTRY]) -> bool {
        entry.get(OWNER..).is_some_and(|rest| rest.starts_with(&self.name))
    }

    /// Writes a bucket with these entries and the id.
    fn added_to<'e>(
        &self,
        entries: impl Iterator<Item = &'e [u8; ENTRY]>,
        until: UnixTime,
    ) -> Vec<u8> {
        let mut bytes: Vec<u8> = entries.flatten().copied().collect();
        bytes.extend_from_slice(&self.owner);
        bytes.extend_from_slice(&self.name);
        bytes.extend_from_slice(&until.millis().to_le_bytes());
        bytes
    }
}

/// Returns how many ids of one owner a bucket takes if it has this many of others: half of the room
/// that they leave, and one in any case.
const fn share(others: usize) -> usize {
    match ROOM.saturating_sub(others) / 2 {
        0 => 1,
        share => share,
    }
}

fn entries(bytes: &[u8]) -> Result<&[[u8; ENTRY]], HostFailure> {
    match bytes.as_chunks() {
        (entries, []) => Ok(entries),
        _ => Err(UNREADABLE),
    }
}

/// The time after which an id may be forgotten.
fn expiry(entry: &[u8; ENTRY]) -> UnixTime {
    UnixTime::from_millis(entry.last_chunk().map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes)))
}

#[cfg(test)]
mod tests;
