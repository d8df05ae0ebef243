//! Which impersonations are live: a list, to be looked through by people.
//!
//! It is bounded, and it says when it may lack one. Nothing depends on it: an exchange that finds no room goes on
//! unlisted, and what is not listed can be ended all the same.
//!
//! Shared data never forgets a key, so there is a fixed set of keys, each of a bucket for some sixteen
//! impersonations. Which one is for whom, its id decides: to write an impersonation down or to find it is to read
//! one bucket. Those that expired go when the bucket is written next. A bucket has twice the room that it needs on
//! average; full ones are so rare that the list holds as many as it was made for.
//!
//! Where many Envoys share etcd, the list is there: everyone's, and as long as it is.

mod bucket;
mod etcd;
mod excerpt;
mod wanted;

use std::fmt::Write as _;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use bucket::Entry;
pub use excerpt::excerpt;
pub use wanted::Wanted;

use crate::etcd::Server;
use crate::host::{Host, HostFailure, Swap, UnixTime};
use crate::remote::Beside;
use crate::secret::{Digest, namespace};
use crate::step::Context;
use crate::store::StoreFailure;
use crate::versioned;
use bucket::Bucket;
use etcd::EtcdList;

/// How many impersonations a bucket holds on average when the list is full.
const LOAD: u32 = 16;

/// How many buckets are read for one page of the list at the most: as many as the default list has, in some
/// milliseconds.
const BUCKETS_TO_A_PAGE: u32 = 4096;

/// The longest that a look through the whole list takes, beyond its first page. Somebody waits for
/// the answer.
const LOOKED_THROUGH_WITHIN: Duration = Duration::from_millis(500);

/// How often a bucket is written anew when others write it, too.
const ATTEMPTS: usize = 64;

/// The format of what is kept about the list.
const VERSION: u8 = 1;

/// The list of one service, as one worker sees it. Workers share what is in it, not this value.
#[derive(Debug)]
pub struct List {
    namespace: String,
    capacity: u32,
    buckets: u32,
    /// How many impersonations a bucket can hold.
    room: usize,
    /// How long an impersonation can be live.
    lifetime: Duration,
    /// Where the list is, if it is not here.
    etcd: Option<EtcdList>,
}

/// What is known about the list as a whole.
#[derive(Debug, Default, Serialize, Deserialize)]
struct State {
    capacity: u32,
    /// Until then one may be live that is not listed.
    incomplete_until_millis: u64,
}

/// Where the next page begins: behind this impersonation of this bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    bucket: u32,
    after: Option<String>,
}

/// A part of the list.
#[derive(Debug)]
pub struct Page {
    /// What was found.
    pub entries: Vec<Entry>,
    /// Where the next page begins; `None` at the end.
    pub next: Option<Place>,
    /// Whether all of it could be read.
    pub complete: bool,
}

/// Whether an impersonation was written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Listed {
    /// It was.
    Yes,
    /// There was no room. The list says that it is not complete until this one has expired.
    NoRoom,
}

impl List {
    /// The list of the service that `tenant` names, for `capacity` impersonations, none of which is live for more
    /// than `lifetime`.
    pub fn shared_data(tenant: &str, capacity: u32, lifetime: Duration) -> Self {
        let buckets = capacity.div_ceil(LOAD).max(1);
        let twice = LOAD.saturating_mul(2).min(capacity);
        let room = usize::try_from(twice).unwrap_or(usize::MAX);
        // One bucket is exact.
        let room = if buckets == 1 { usize::try_from(capacity).unwrap_or(room) } else { room };
        Self { namespace: namespace(tenant), capacity, buckets, room, lifetime, etcd: None }
    }

    /// The same in etcd, where there is room for all.
    pub fn etcd(server: &Rc<Server>, tenant: &str, lifetime: Duration) -> Self {
        let etcd = EtcdList::new(server, &namespace(tenant), lifetime);
        Self { etcd: Some(etcd), ..Self::shared_data(tenant, 1, lifetime) }
    }

    /// What is to be written where a subject token is spent in etcd, so that its impersonation is listed.
    pub fn beside(&self, entry: &Entry) -> Option<Beside> {
        self.etcd.as_ref()?.beside(entry)
    }

    /// Notes how large the list is. After another size impersonations are not where they are looked for: until they
    /// have expired the list is not complete.
    pub fn begin(&self, host: &dyn Host) -> Result<(), HostFailure> {
        if self.etcd.is_some() {
            return Ok(());
        }
        self.update(host, |state| {
            let resized = state.capacity != 0 && state.capacity != self.capacity;
            state.capacity = self.capacity;
            if resized {
                let until = host.now().after(self.lifetime).millis();
                state.incomplete_until_millis = state.incomplete_until_millis.max(until);
            }
        })
    }

    /// Writes an impersonation down that has just begun, and that [nothing](Self::beside) did with its spend.
    pub async fn insert(&self, context: &Context, entry: &Entry) -> Result<Listed, StoreFailure> {
        let host = context.host();
        let Some(etcd) = &self.etcd else { return Ok(self.insert_here(host, entry)?) };
        let beside = etcd.beside(entry).ok_or(HostFailure("memory for an impersonation"))?;
        etcd.insert(context, beside).await?;
        Ok(Listed::Yes)
    }

    fn insert_here(&self, host: &dyn Host, entry: &Entry) -> Result<Listed, HostFailure> {
        let now = host.now();
        let key = self.bucket_key(self.bucket_of(&entry.id));
        let encoded = entry.encode().ok_or(HostFailure("memory for an impersonation"))?;
        for _ in 0..ATTEMPTS {
            let found = host.get(&key)?;
            let (bytes, version) = found.map_or((Vec::new(), None), |(bytes, v)| (bytes, Some(v)));
            let mut bucket = Bucket::decode(&bytes).unwrap_or_default();
            bucket.forget_expired(now);
            if bucket.len() >= self.room {
                break;
            }
            bucket.push(entry.expires_at(), &encoded);
            if host.compare_and_set(&key, &bucket.encode(), version.into())? == Swap::Done {
                return Ok(Listed::Yes);
            }
        }
        self.lacks(host, entry.expires_at())?;
        Ok(Listed::NoRoom)
    }

    /// Says that one is not listed that is live until then.
    pub fn lacks(&self, host: &dyn Host, until: UnixTime) -> Result<(), HostFailure> {
        self.update(host, |state| {
            state.incomplete_until_millis = state.incomplete_until_millis.max(until.millis());
        })
    }

    /// Whether every live impersonation is listed.
    pub fn is_complete(&self, host: &dyn Host) -> Result<bool, HostFailure> {
        let found = host.get(&self.state_key())?;
        let state = found.and_then(|(bytes, _)| versioned::decode::<State>(VERSION, &bytes));
        // Without a state nobody ever began: then nobody knows, unless it is not here.
        Ok(state.map_or(self.etcd.is_some(), |state| {
            host.now().millis() >= state.incomplete_until_millis
        }))
    }

    /// The impersonation with this id, if it is listed and has not expired.
    pub async fn find(&self, context: &Context, id: &str) -> Result<Option<Entry>, StoreFailure> {
        match &self.etcd {
            Some(etcd) => Ok(etcd.find(context, id).await?),
            None => Ok(self.find_here(context.host(), id)?),
        }
    }

    fn find_here(&self, host: &dyn Host, id: &str) -> Result<Option<Entry>, HostFailure> {
        let now = host.now();
        let mut entries = self.read(host, self.bucket_of(id))?.into_iter();
        Ok(entries.find(|entry| entry.id == id && entry.is_live(now)))
    }

    /// A part of the list, from `place` on: at most `limit` of those that `wanted` says are.
    pub async fn page(
        &self,
        context: &Context,
        place: Option<Place>,
        limit: usize,
        wanted: impl FnMut(&Entry) -> bool,
    ) -> Result<Page, StoreFailure> {
        match &self.etcd {
            Some(etcd) => Ok(etcd.page(context, place, limit, wanted).await?),
            None => Ok(self.page_here(context.host(), place, limit, wanted)?),
        }
    }

    /// Shows every live impersonation to `see`, but stops after a moment. Returns whether it has
    /// shown all that are live.
    pub async fn look_through(
        &self,
        context: &Context,
        mut see: impl FnMut(&Entry),
    ) -> Result<bool, StoreFailure> {
        let host = context.host();
        let mut complete = self.is_complete(host)?;
        let (began, mut place) = (host.now(), None);
        loop {
            let wanted = |entry: &Entry| {
                see(entry);
                false
            };
            let page = self.page(context, place, usize::MAX, wanted).await?;
            complete &= page.complete;
            place = page.next;
            if place.is_none() {
                return Ok(complete);
            }
            if !began.is_within(LOOKED_THROUGH_WITHIN, host.now()) {
                return Ok(false);
            }
        }
    }

    fn page_here(
        &self,
        host: &dyn Host,
        place: Option<Place>,
        limit: usize,
        mut wanted: impl FnMut(&Entry) -> bool,
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
            entries.sort_unstable_by(|one, other| one.id.cmp(&other.id));
            for entry in entries {
                if page.entries.len() >= limit {
                    let after = page.entries.last().map(|last| last.id.clone());
                    // The last one may be of a bucket before: then this one begins anew.
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

    fn read(&self, host: &dyn Host, bucket: u32) -> Result<Vec<Entry>, HostFailure> {
        let found = host.get(&self.bucket_key(bucket))?;
        let entries =
            found.and_then(|(bytes, _)| Bucket::decode(&bytes).map(|bucket| bucket.entries()));
        Ok(entries.unwrap_or_default())
    }

    fn update(&self, host: &dyn Host, change: impl Fn(&mut State)) -> Result<(), HostFailure> {
        let key = self.state_key();
        for _ in 0..ATTEMPTS {
            let found = host.get(&key)?;
            let old = found.as_ref().map(|(bytes, _)| bytes.clone());
            let mut state = old
                .as_deref()
                .and_then(|bytes| versioned::decode::<State>(VERSION, bytes))
                .unwrap_or_default();
            change(&mut state);
            let bytes =
                versioned::encode(VERSION, &state).ok_or(HostFailure("memory for the list"))?;
            if old.as_ref() == Some(&bytes) {
                return Ok(());
            }
            let expected = found.map(|(_, version)| version).into();
            if host.compare_and_set(&key, &bytes, expected)? == Swap::Done {
                return Ok(());
            }
        }
        Err(HostFailure("a write to the list"))
    }

    fn bucket_of(&self, id: &str) -> u32 {
        let digest = Digest::of(id.as_bytes());
        let hash = digest.as_bytes().first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
        hash.checked_rem(self.buckets).unwrap_or(0)
    }

    fn bucket_key(&self, bucket: u32) -> String {
        let mut key = String::with_capacity(24);
        let _ = write!(key, "{}i{bucket}", self.namespace);
        key
    }

    fn state_key(&self) -> String {
        format!("{}il", self.namespace)
    }
}

/// As whoever asks for the next page gives it back. It is nobody's to make, and harmless if it is.
impl Place {
    /// Writes it down.
    pub fn to_text(&self) -> String {
        format!("{}.{}", self.bucket, self.after.as_deref().unwrap_or_default())
    }

    /// Reads it; `None` if it is none.
    pub fn parse(text: &str) -> Option<Self> {
        let (bucket, after) = text.split_once('.')?;
        let digits = bucket.bytes().all(|byte| byte.is_ascii_digit());
        let bucket = bucket.parse().ok().filter(|_| digits)?;
        let after = Some(after.to_owned()).filter(|after| !after.is_empty());
        Some(Self { bucket, after })
    }
}

#[cfg(test)]
mod tests;
