//! The number of mints of each caller, counted in each Envoy.
//!
//! A caller that mints without end would fill the store for all callers. Mints are counted in
//! Envoy's shared data, for all workers together, in a fixed number of keys. The hash of a caller's
//! name picks the key. The key holds a bounded list of the callers that minted lately, each with
//! 128 bits of that hash and a count of its own. So no caller pays for the mints of another: their
//! names would need the same 128 bits.
//!
//! A list that is full forgets the caller that minted least. A forgotten caller begins anew and is
//! not refused. A caller that floods has the highest count and is remembered.
//!
//! The period of a caller begins with its first mint and ends after [`MintRate::per`]. A period
//! that lies ahead was begun before the clock was set back. It counts no more, so no step of the
//! clock locks a caller out.

use std::time::Duration;

use crate::config::MintRate;
use crate::host::{Host, HostFailure, UnixTime};
use crate::secret::Digest;
use crate::state::shared_data::keys::Keys;
use crate::state::shared_data::{Change, update};

/// The number of lists, each a key in shared data.
const LISTS: u16 = 512;

/// The number of callers in a list: with [`LISTS`], more than 30 000 callers that mint in one
/// period, in less than a megabyte.
const CALLERS: usize = 64;

/// The format of a list.
const VERSION: u8 = 1;

/// The length of a tally: the hash of the caller, the begin of its period, and the number of its
/// mints.
const TALLY_BYTES: usize = 16 + 8 + 4;

/// The number of attempts to write a count while other workers write the same list. Nothing between
/// a read and its write takes time, so a worker loses twice in a row only by chance.
const ATTEMPTS: usize = 64;

/// The mints of one service, as one worker sees them.
#[derive(Debug)]
pub struct MintCounter {
    keys: Keys,
    rate: MintRate,
}

/// A caller, with the key of its list and its name in that list.
#[derive(Debug, Clone)]
pub struct Minter {
    key: String,
    name: [u8; 16],
}

/// A mint is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotCounted {
    /// The caller has minted as often as it may. It may mint again after this time.
    TooMany(Duration),
    /// Shared data failed.
    Host(HostFailure),
}

impl From<HostFailure> for NotCounted {
    fn from(failure: HostFailure) -> Self {
        Self::Host(failure)
    }
}

/// The mints of one caller in its period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Tally {
    caller: [u8; 16],
    began: UnixTime,
    count: u32,
}

impl MintCounter {
    /// The counter of the service that `tenant` names.
    pub fn new(tenant: &str, rate: MintRate) -> Self {
        Self { keys: Keys::new(tenant), rate }
    }

    /// Refuses a caller that has minted as often as it may. Counts nothing.
    pub fn look(&self, host: &dyn Host, minter: &Minter) -> Result<(), NotCounted> {
        let Some((bytes, _)) = host.get(&minter.key)? else { return Ok(()) };
        let now = host.now();
        let tally =
            tallies(&bytes).find(|tally| tally.caller == minter.name && self.counts(tally, now));
        tally.map_or(Ok(()), |tally| self.check(&tally, now))
    }

    /// Counts a mint, or refuses it.
    pub fn count(&self, host: &dyn Host, minter: &Minter) -> Result<(), NotCounted> {
        let Minter { key, name: caller } = minter;
        let counted = update::<_, NotCounted>(host, key, ATTEMPTS, |bytes| {
            let now = host.now();
            let mut list: Vec<_> = tallies(bytes.unwrap_or_default())
                .filter(|tally| self.counts(tally, now))
                .collect();
            match list.iter_mut().find(|tally| tally.caller == *caller) {
                Some(tally) => {
                    self.check(tally, now)?;
                    tally.count = tally.count.saturating_add(1);
                }
                None => {
                    if list.len() >= CALLERS {
                        let least = list.iter().enumerate().min_by_key(|(_, t)| (t.count, t.began));
                        let least = least.map_or(0, |(position, _)| position);
                        list.swap_remove(least);
                    }
                    list.push(Tally { caller: *caller, began: now, count: 1 });
                }
            }
            Ok(Change::Write(encode(&list), ()))
        });
        counted?.ok_or(NotCounted::Host(HostFailure("shared data: others write without end")))
    }

    fn check(&self, tally: &Tally, now: UnixTime) -> Result<(), NotCounted> {
        if tally.count < self.rate.count {
            return Ok(());
        }
        Err(NotCounted::TooMany(tally.began.after(self.rate.per).since(now)))
    }

    /// Returns true if the period of a caller is not over.
    fn counts(&self, tally: &Tally, now: UnixTime) -> bool {
        tally.began.is_within(self.rate.per, now)
    }

    /// Finds the list that counts a caller.
    pub fn minter(&self, caller: &str) -> Minter {
        let digest = Digest::of(caller.as_bytes());
        let (name, rest) = digest.as_bytes().split_first_chunk().unwrap_or((&[0; 16], &[]));
        let list = rest.first_chunk().map_or(0, |bytes| u16::from_le_bytes(*bytes));
        let list = list.checked_rem(LISTS).unwrap_or(0);
        Minter { key: self.keys.mints(list.into()), name: *name }
    }
}

/// The tallies of a list; none if the list has another format.
fn tallies(bytes: &[u8]) -> impl Iterator<Item = Tally> + '_ {
    let known = bytes.split_first().filter(|(version, _)| **version == VERSION);
    let (tallies, _) = known.map_or(&[][..], |(_, tallies)| tallies).as_chunks::<TALLY_BYTES>();
    tallies.iter().filter_map(|tally| {
        let (caller, rest) = tally.split_first_chunk()?;
        let (began, rest) = rest.split_first_chunk()?;
        Some(Tally {
            caller: *caller,
            began: UnixTime::from_millis(u64::from_le_bytes(*began)),
            count: u32::from_le_bytes(*rest.first_chunk()?),
        })
    })
}

fn encode(list: &[Tally]) -> Vec<u8> {
    let mut bytes = vec![VERSION];
    for tally in list {
        bytes.extend_from_slice(&tally.caller);
        bytes.extend_from_slice(&tally.began.millis().to_le_bytes());
        bytes.extend_from_slice(&tally.count.to_le_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests;
