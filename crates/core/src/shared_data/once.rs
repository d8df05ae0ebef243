//! A bounded memory of ids that may be used only once, such as the `jti` of a client assertion.
//!
//! An id has a fixed bucket, which its hash picks, and a bucket has room for a fixed number of ids.
//! The memory never forgets an id before its time: a bucket that is full of live ids takes no more,
//! and the caller must then refuse the request. An id is forgotten when the clock has passed the
//! time after which every caller refuses it anyway.
//!
//! If any number of workers present one id at once, exactly one learns that it was the first: all
//! of them write the same bucket by compare-and-set.

use super::keys::Keys;
use super::{Change, update};
use crate::host::{Host, HostFailure, UnixTime};
use crate::secret::Digest;

/// The format of a bucket. It is part of the key's name: a filter with another format uses other
/// keys.
const FORMAT: u8 = 1;

/// The usual number of buckets, each a key.
const BUCKETS: u32 = 1024;

/// The number of ids in a bucket: with [`BUCKETS`], 65 536 ids in 1.5 MiB.
const ROOM: usize = 64;

/// An id as a bucket holds it: 128 bits of its SHA-256, and when it may be forgotten.
const ENTRY: usize = 16 + 8;

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
        Self { keys: Keys::new(tenant), kind, buckets }
    }

    /// Returns true if `id` is remembered.
    pub(crate) fn has(&self, host: &dyn Host, id: &[u8]) -> Result<bool, NotRemembered> {
        let (name, key) = self.place(id);
        let bytes = host.get(&key)?.map(|(bytes, _)| bytes).unwrap_or_default();
        let (entries, []) = bytes.as_chunks::<ENTRY>() else { return Err(UNREADABLE.into()) };
        let now = host.now();
        Ok(entries.iter().any(|entry| now < expiry(entry) && entry.starts_with(&name)))
    }

    /// Remembers `id` until `until`, for a caller to whom a forgotten id does no harm: a full bucket
    /// forgets the id that it would forget next.
    pub(crate) fn remember(
        &self,
        host: &dyn Host,
        id: &[u8],
        until: UnixTime,
    ) -> Result<(), NotRemembered> {
        let (name, key) = self.place(id);
        let remembered = update(host, &key, ATTEMPTS, |bytes| {
            let now = host.now();
            let (entries, []) = bytes.unwrap_or_default().as_chunks::<ENTRY>() else {
                return Err(NotRemembered::from(UNREADABLE));
            };
            let is_other = |entry: &&[u8; ENTRY]| now < expiry(entry) && !entry.starts_with(&name);
            let others = || entries.iter().filter(is_other);
            let next = others().min_by_key(|entry| expiry(entry));
            let forgotten = if others().count() < ROOM { None } else { next };
            let kept = others().filter(|entry| Some(*entry) != forgotten);
            let mut bytes: Vec<u8> = kept.flatten().copied().collect();
            bytes.extend_from_slice(&name);
            bytes.extend_from_slice(&until.millis().to_le_bytes());
            Ok(Change::Write(bytes, ()))
        });
        remembered?.ok_or(NotRemembered::Host(CONTENDED))
    }

    /// The name of `id` in its bucket, and the key of the bucket.
    fn place(&self, id: &[u8]) -> ([u8; 16], String) {
        let digest = Digest::of(id);
        let (name, rest) = digest.as_bytes().split_first_chunk::<16>().unwrap_or((&[0; 16], &[]));
        let bucket = rest.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let bucket = bucket.checked_rem(self.buckets).unwrap_or(0);
        (*name, self.keys.seen_once(self.kind, FORMAT, bucket))
    }

    /// Returns true for the first caller that presents `id`, and remembers the id until `until`.
    ///
    /// `id` must also name its issuer if several issue ids of this kind. Call this after the
    /// signature over the id has been verified: otherwise strangers could fill the memory.
    pub fn first_time(
        &self,
        host: &dyn Host,
        id: &[u8],
        until: UnixTime,
    ) -> Result<bool, NotRemembered> {
        let (name, key) = self.place(id);
        let first = update(host, &key, ATTEMPTS, |bytes| {
            let now = host.now();
            let (entries, []) = bytes.unwrap_or_default().as_chunks::<ENTRY>() else {
                return Err(UNREADABLE.into());
            };
            let live = || entries.iter().filter(|entry| now < expiry(entry));
            if live().any(|entry| entry.starts_with(&name)) {
                return Ok(Change::Keep(false));
            }
            if until <= now {
                return Err(NotRemembered::Expired);
            }
            if live().count() >= ROOM {
                return Err(NotRemembered::Full);
            }
            let mut bytes: Vec<u8> = live().flatten().copied().collect();
            bytes.extend_from_slice(&name);
            bytes.extend_from_slice(&until.millis().to_le_bytes());
            Ok(Change::Write(bytes, true))
        });
        first?.ok_or(NotRemembered::Host(CONTENDED))
    }
}

/// The time after which an id may be forgotten.
fn expiry(entry: &[u8; ENTRY]) -> UnixTime {
    UnixTime::from_millis(entry.last_chunk().map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes)))
}

#[cfg(test)]
mod tests;
