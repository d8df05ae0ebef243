//! The list of live impersonations in one Envoy.
//!
//! Shared data never forgets a key, so there is a fixed set of keys. Each key holds a bucket with
//! room for about sixteen impersonations, and the id of an impersonation picks its bucket. So
//! adding or finding an impersonation reads one bucket. Expired impersonations are removed when
//! their bucket is written next. A bucket has twice the room that it needs on average, so buckets
//! are rarely full, and the list holds as many impersonations as its capacity says.

use std::ops::Range;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::bucket::Bucket;
use crate::host::{Host, HostFailure, UnixTime};
use crate::secret::Digest;
use crate::state::impersonations::{Listed, LiveImpersonation, Page, Place};
use crate::state::shared_data::keys::Keys;
use crate::state::shared_data::{Change, update};
use crate::state::versioned;

/// The average number of impersonations in a bucket when the list is full.
const LOAD: u32 = 16;

/// The most buckets that are read for one page: all buckets of the default list, in a few
/// milliseconds.
pub(crate) const BUCKETS_TO_A_PAGE: u32 = 4096;

/// The number of attempts to write a bucket while others write it, too.
const ATTEMPTS: usize = 64;

/// The format of the state of a list.
const VERSION: u8 = 1;

/// The list of one Envoy, as one worker sees it. Workers share the list, not this value.
#[derive(Debug)]
pub(crate) struct LocalList {
    keys: Keys,
    state: ListState,
    capacity: u32,
    buckets: u32,
    /// The number of impersonations that fit into a bucket.
    room: usize,
    /// The longest time that an impersonation can be live.
    lifetime: Duration,
}

/// The state of a list.
#[derive(Debug)]
struct ListState {
    key: String,
}

/// The state of a list, as it is written.
#[derive(Debug, Default, Serialize, Deserialize)]
struct State {
    capacity: u32,
    /// Until this time, a live impersonation may be missing from the list.
    incomplete_until_millis: u64,
}

impl LocalList {
    pub(crate) fn new(tenant: &str, capacity: u32, lifetime: Duration) -> Self {
        let buckets = capacity.div_ceil(LOAD).max(1);
        let twice = LOAD.saturating_mul(2).min(capacity);
        let room = usize::try_from(twice).unwrap_or(usize::MAX);
        // A single bucket has exactly the room of the list.
        let room = if buckets == 1 { usize::try_from(capacity).unwrap_or(room) } else { room };
        let state = ListState::new(tenant);
        Self { keys: Keys::new(tenant), state, capacity, buckets, room, lifetime }
    }

    /// Writes down the size of the list. After a change of size, impersonations are not in the
    /// buckets in which they are looked for, so the list is incomplete until they have expired.
    pub(crate) fn create_if_missing(&self, host: &dyn Host) -> Result<(), HostFailure> {
        self.state.change(host, |state| {
            let resized = state.capacity != 0 && state.capacity != self.capacity;
            state.capacity = self.capacity;
            if resized {
                let until = host.now().after(self.lifetime).millis();
                state.incomplete_until_millis = state.incomplete_until_millis.max(until);
            }
        })
    }

    /// Adds an impersonation. The list is incomplete if that fails.
    pub(crate) fn insert(
        &self,
        host: &dyn Host,
        entry: &LiveImpersonation,
    ) -> Result<Listed, HostFailure> {
        let listed = self.add(host, entry);
        if listed != Ok(Listed::Yes) {
            // A second failure cannot be reported.
            let _ = self.state.lacks(host, entry.expires_at());
        }
        listed
    }

    fn add(&self, host: &dyn Host, entry: &LiveImpersonation) -> Result<Listed, HostFailure> {
        let now = host.now();
        let key = self.keys.impersonations(self.bucket_of(&entry.id));
        let encoded = entry.encode().ok_or(HostFailure("memory for an impersonation"))?;
        let listed = update::<_, HostFailure>(host, &key, ATTEMPTS, |bytes| {
            let mut bucket = bytes.and_then(Bucket::decode).unwrap_or_default();
            bucket.forget_expired(now);
            if bucket.len() >= self.room {
                return Ok(Change::Keep(Listed::NoRoom));
            }
            bucket.push(entry.expires_at(), &encoded);
            Ok(Change::Write(bucket.encode(), Listed::Yes))
        });
        Ok(listed?.unwrap_or(Listed::NoRoom))
    }

    /// Returns true if every live impersonation is listed. Without a state this is not known.
    pub(crate) fn is_complete(&self, host: &dyn Host) -> Result<bool, HostFailure> {
        self.state.is_complete(host)
    }

    pub(crate) fn find(
        &self,
        host: &dyn Host,
        id: &str,
    ) -> Result<Option<LiveImpersonation>, HostFailure> {
        let now = host.now();
        let mut entries = self.read(host, self.bucket_of(id))?.into_iter();
        Ok(entries.find(|entry| entry.id == id && entry.is_live(now)))
    }

    pub(crate) fn page(
        &self,
        host: &dyn Host,
        place: Option<Place>,
        limit: usize,
        mut wanted: impl FnMut(&LiveImpersonation) -> bool,
    ) -> Result<Page, HostFailure> {
        let Place { bucket: first, after } = place.unwrap_or(Place { bucket: 0, after: None });
        let now = host.now();
        let mut page = Page { entries: Vec::new(), next: None, complete: true };
        let end = first.saturating_add(BUCKETS_TO_A_PAGE).min(self.buckets);
        for bucket in (Range { start: first, end }) {
            let mut entries = self.read(host, bucket)?;
            entries.retain(|entry| entry.is_live(now) && wanted(entry));
            if let Some(after) = after.as_ref().filter(|_| bucket == first) {
                entries.retain(|entry| entry.id > *after);
            }
            for entry in in_order(entries) {
                if page.entries.len() >= limit {
                    let after = page.entries.last().map(|last| last.id.clone());
                    // If the last impersonation is of an earlier bucket, the next page begins with
                    // this bucket.
                    let after = after.filter(|id| self.bucket_of(id) == bucket);
                    page.next = Some(Place { bucket, after });
                    return Ok(page);
                }
                page.entries.push(entry);
            }
        }
        page.next = (end < self.buckets).then_some(Place { bucket: end, after: None });
        Ok(page)
    }

    fn read(&self, host: &dyn Host, bucket: u32) -> Result<Vec<LiveImpersonation>, HostFailure> {
        let found = host.get(&self.keys.impersonations(bucket))?;
        let entries =
            found.and_then(|(bytes, _)| Bucket::decode(&bytes).map(|bucket| bucket.entries()));
        Ok(entries.unwrap_or_default())
    }

    fn bucket_of(&self, id: &str) -> u32 {
        let digest = Digest::of(id.as_bytes());
        let hash = digest.as_bytes().first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
        hash.checked_rem(self.buckets).unwrap_or(0)
    }
}

/// Sorts the entries of a bucket by their ids. They are few, so each is inserted at its place.
fn in_order(entries: Vec<LiveImpersonation>) -> Vec<LiveImpersonation> {
    let mut sorted: Vec<LiveImpersonation> = Vec::with_capacity(entries.len());
    for entry in entries {
        let place = sorted.partition_point(|earlier| earlier.id < entry.id);
        sorted.insert(place, entry);
    }
    sorted
}

impl ListState {
    fn new(tenant: &str) -> Self {
        Self { key: Keys::new(tenant).impersonations_state() }
    }

    /// Writes down that a live impersonation is missing from the list until `until`.
    fn lacks(&self, host: &dyn Host, until: UnixTime) -> Result<(), HostFailure> {
        self.change(host, |state| {
            state.incomplete_until_millis = state.incomplete_until_millis.max(until.millis());
        })
    }

    /// Returns true if no live impersonation is missing from the list.
    fn is_complete(&self, host: &dyn Host) -> Result<bool, HostFailure> {
        let found = host.get(&self.key)?;
        let state = found.and_then(|(bytes, _)| versioned::decode::<State>(VERSION, &bytes));
        Ok(state.is_some_and(|state| host.now().millis() >= state.incomplete_until_millis))
    }

    fn change(&self, host: &dyn Host, change: impl Fn(&mut State)) -> Result<(), HostFailure> {
        let changed = update(host, &self.key, ATTEMPTS, |old| {
            let state = old.and_then(|bytes| versioned::decode::<State>(VERSION, bytes));
            let mut state = state.unwrap_or_default();
            change(&mut state);
            let bytes =
                versioned::encode(VERSION, &state).ok_or(HostFailure("memory for the list"))?;
            let is_same = old == Some(&*bytes);
            Ok(if is_same { Change::Keep(()) } else { Change::Write(bytes, ()) })
        });
        changed?.ok_or(HostFailure("a write to the list"))
    }
}

#[cfg(test)]
mod tests;
