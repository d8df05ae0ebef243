//! How often one caller mints, counted in each Envoy.
//!
//! One caller that mints without end fills the store for all. Callers are counted in Envoy's shared data, so for
//! all workers together, in a fixed number of keys however many callers there are: the hash of a caller's name
//! picks the key, which holds a bounded list of those who minted lately, each by 128 bits of that hash and with a
//! count of its own. So no caller pays for another's mints: two would have to have the same 128 bits.
//!
//! A list that is full forgets who minted least. Forgetting lets a caller begin anew and never refuses one, and
//! whoever floods has the highest count and is remembered.
//!
//! A caller's time begins with its first mint and ends after [`MintRate::per`]. One that lies ahead was begun
//! before the clock was set back: it counts no more, so that no step of the clock locks anybody out.

use std::time::Duration;

use crate::config::MintRate;
use crate::host::{Expected, Host, HostFailure, Swap, UnixTime};
use crate::secret::Digest;

/// Keys in shared data.
const LISTS: u16 = 512;

/// Callers to a list: with [`LISTS`] more than 30 000 that mint in one time, in less than a megabyte.
const CALLERS: usize = 64;

/// The format of a list.
const VERSION: u8 = 1;

/// A caller in a list: its hash, when its time began, and how often it minted since.
const ENTRY_BYTES: usize = 16 + 8 + 4;

/// How often a count is written anew when other workers write the same list. Between the reading and the writing
/// is nothing that takes time, so that nobody loses twice in a row but by chance.
const ATTEMPTS: usize = 64;

/// The mints of one service, as one worker sees them.
#[derive(Debug)]
pub(crate) struct MintCounter {
    namespace: String,
    rate: MintRate,
}

/// A caller, as it is counted.
#[derive(Debug, Clone)]
pub(crate) struct Minter {
    key: String,
    name: [u8; 16],
}

/// Why a mint is not to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotCounted {
    /// The caller has minted as often as it may; after this time it may again.
    TooMany(Duration),
    /// Shared data failed.
    Host(HostFailure),
}

impl From<HostFailure> for NotCounted {
    fn from(failure: HostFailure) -> Self {
        Self::Host(failure)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    caller: [u8; 16],
    began: UnixTime,
    count: u32,
}

impl MintCounter {
    /// The counter of the service that `tenant` names.
    pub(crate) fn new(tenant: &str, rate: MintRate) -> Self {
        Self { namespace: Digest::of(tenant.as_bytes()).id(), rate }
    }

    /// Whether a caller may mint, before anything is done for it.
    pub(crate) fn look(&self, host: &dyn Host, minter: &Minter) -> Result<(), NotCounted> {
        let Some((bytes, _)) = host.get(&minter.key)? else { return Ok(()) };
        let now = host.now();
        let entry =
            entries(&bytes).find(|entry| entry.caller == minter.name && self.counts(entry, now));
        entry.map_or(Ok(()), |entry| self.check(&entry, now))
    }

    /// Counts a mint, or refuses it.
    pub(crate) fn count(&self, host: &dyn Host, minter: &Minter) -> Result<(), NotCounted> {
        let Minter { key, name } = minter;
        let caller = *name;
        for _ in 0..ATTEMPTS {
            let now = host.now();
            let found = host.get(key)?;
            let (bytes, version) = found.map_or((Vec::new(), None), |(bytes, v)| (bytes, Some(v)));
            let mut list: Vec<_> =
                entries(&bytes).filter(|entry| self.counts(entry, now)).collect();
            match list.iter_mut().find(|entry| entry.caller == caller) {
                Some(entry) => {
                    self.check(entry, now)?;
                    entry.count = entry.count.saturating_add(1);
                }
                None => {
                    if list.len() >= CALLERS {
                        let least = list.iter().enumerate().min_by_key(|(_, e)| (e.count, e.began));
                        let least = least.map_or(0, |(position, _)| position);
                        list.swap_remove(least);
                    }
                    list.push(Entry { caller, began: now, count: 1 });
                }
            }
            let expected = Expected::from(version);
            if host.compare_and_set(key, &encode(&list), expected)? == Swap::Done {
                return Ok(());
            }
        }
        Err(HostFailure("shared data: others write without end").into())
    }

    fn check(&self, entry: &Entry, now: UnixTime) -> Result<(), NotCounted> {
        if entry.count < self.rate.count {
            return Ok(());
        }
        Err(NotCounted::TooMany(entry.began.after(self.rate.per).since(now)))
    }

    /// Whether a caller is still in the time that it began.
    fn counts(&self, entry: &Entry, now: UnixTime) -> bool {
        entry.began.is_within(self.rate.per, now)
    }

    /// Where a caller is counted, and by what name.
    pub(crate) fn minter(&self, caller: &str) -> Minter {
        let digest = Digest::of(caller.as_bytes());
        let (name, rest) = digest.as_bytes().split_first_chunk().unwrap_or((&[0; 16], &[]));
        let list = rest.first_chunk().map_or(0, |bytes| u16::from_le_bytes(*bytes));
        let list = list.checked_rem(LISTS).unwrap_or(0);
        Minter { key: format!("{}m{list}", self.namespace), name: *name }
    }
}

/// The callers in a list. One of another version counts nothing.
fn entries(bytes: &[u8]) -> impl Iterator<Item = Entry> + '_ {
    let known = bytes.split_first().filter(|(version, _)| **version == VERSION);
    let (entries, _) = known.map_or(&[][..], |(_, entries)| entries).as_chunks::<ENTRY_BYTES>();
    entries.iter().filter_map(|entry| {
        let (caller, rest) = entry.split_first_chunk()?;
        let (began, rest) = rest.split_first_chunk()?;
        Some(Entry {
            caller: *caller,
            began: UnixTime::from_millis(u64::from_le_bytes(*began)),
            count: u32::from_le_bytes(*rest.first_chunk()?),
        })
    })
}

fn encode(list: &[Entry]) -> Vec<u8> {
    let mut bytes = vec![VERSION];
    for entry in list {
        bytes.extend_from_slice(&entry.caller);
        bytes.extend_from_slice(&entry.began.millis().to_le_bytes());
        bytes.extend_from_slice(&entry.count.to_le_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests;
