//! Which slots hold tokens with a review, in one Envoy.
//!
//! Shared data has no search, so the tokens that wait for a decision need two indexes. Both are
//! hints: **only the record in the slot counts.** Mints alone write them, so a decision, an
//! exchange or a worker that dies leaves no entry that would have to be repaired. An entry of a
//! token that is decided, spent or expired is passed over by readers, and dropped by a later mint.
//!
//! In the first index the hash of the caller picks the bucket, and each caller has a share of its
//! own in it. So no caller uses up the space of the others. In the second, the hash of the user
//! picks the bucket. So a user is answered after one read, however much waits for others.

use crate::host::{Host, HostFailure, SharedData, UnixTime};
use crate::secret::Digest;
use crate::state::shared_data::keys::Keys;
use crate::state::shared_data::{Change, update};
use crate::state::store::TokenId;

/// The number of buckets by caller, each a key.
pub(super) const BUCKETS: u32 = 256;

/// The number of buckets by user, each a key. Many callers may mint for one bucket's users, so
/// there are more of these.
const USER_BUCKETS: u32 = 1024;

/// The number of entries of a bucket by user that a mint looks at. Each mint adds one entry and
/// drops up to this many that are not held any more, so most entries of a bucket are held.
const LOOKED_AT: usize = 4;

/// The number of attempts to write a bucket while other workers write it, too.
const ATTEMPTS: usize = 64;

/// The format of a bucket.
const VERSION: u8 = 1;

/// The length of an entry: the hash of the caller or user, the beginning of the token's digest, its
/// slot, and the second after which it has expired.
const ENTRY: usize = 8 + TokenId::DIGEST_BYTES + 4 + 4;

/// A token in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    name: [u8; 8],
    digest: [u8; TokenId::DIGEST_BYTES],
    pub(super) slot: u32,
    until: u32,
}

impl Entry {
    pub(super) fn new(name: &str, digest: &Digest, slot: u32, until: UnixTime) -> Self {
        Self {
            name: hash(name, BUCKETS).0,
            digest: digest.as_bytes().first_chunk().copied().unwrap_or_default(),
            slot,
            until: u32::try_from(until.secs()).unwrap_or(u32::MAX),
        }
    }

    /// The id of the token.
    pub(super) fn id(&self) -> TokenId {
        TokenId::of_digest_bytes(&self.digest, Some(self.slot))
    }

    fn is_current(&self, now: UnixTime) -> bool {
        now.secs() <= u64::from(self.until)
    }

    fn read(bytes: &[u8; ENTRY]) -> Option<Self> {
        let (name, rest) = bytes.split_first_chunk()?;
        let (digest, rest) = rest.split_first_chunk()?;
        let (slot, until) = rest.split_first_chunk()?;
        Some(Self {
            name: *name,
            digest: *digest,
            slot: u32::from_be_bytes(*slot),
            until: u32::from_be_bytes(until.try_into().ok()?),
        })
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.name);
        bytes.extend_from_slice(&self.digest);
        bytes.extend_from_slice(&self.slot.to_be_bytes());
        bytes.extend_from_slice(&self.until.to_be_bytes());
    }
}

/// The hash of a caller or a user, and the bucket of its tokens.
fn hash(name: &str, buckets: u32) -> ([u8; 8], u32) {
    let digest = Digest::of(name.as_bytes());
    let name = digest.as_bytes().first_chunk().copied().unwrap_or_default();
    let number = digest.as_bytes().last_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
    (name, number.checked_rem(buckets).unwrap_or(0))
}

/// Reads the tokens of a bucket. A bucket of another format counts as empty.
pub(super) fn read(
    shared: &(impl SharedData + ?Sized),
    keys: &Keys,
    bucket: u32,
) -> Result<Vec<Entry>, HostFailure> {
    Ok(shared.get(&keys.waiting(bucket))?.map(|(bytes, _)| decode(&bytes)).unwrap_or_default())
}

/// Reads the tokens that were minted for this user.
pub(super) fn read_for_user(
    shared: &(impl SharedData + ?Sized),
    keys: &Keys,
    user_id: &str,
) -> Result<Vec<Entry>, HostFailure> {
    let (name, bucket) = hash(user_id, USER_BUCKETS);
    let bytes = shared.get(&keys.waiting_for_user(bucket))?;
    let mut entries = bytes.map(|(bytes, _)| decode(&bytes)).unwrap_or_default();
    entries.retain(|entry| entry.name == name);
    Ok(entries)
}

fn decode(bytes: &[u8]) -> Vec<Entry> {
    let [VERSION, entries @ ..] = bytes else { return Vec::new() };
    let (entries, _) = entries.as_chunks();
    entries.iter().filter_map(Entry::read).collect()
}

/// Adds a token, unless its caller holds `share` tokens already. Returns true if it was added.
/// `is_held` says if an entry's token still holds its slot.
pub(super) fn add(
    host: &dyn Host,
    keys: &Keys,
    (caller, entry): (&str, Entry),
    share: usize,
    is_held: impl Fn(&Entry) -> Result<bool, HostFailure>,
) -> Result<bool, HostFailure> {
    let (name, bucket) = hash(caller, BUCKETS);
    let added = update(host, &keys.waiting(bucket), ATTEMPTS, |bytes| {
        let now = host.now();
        let mut entries = bytes.map(decode).unwrap_or_default();
        // A slot holds one token. An earlier entry for it is of a token that is gone.
        entries.retain(|other| other.is_current(now) && other.slot != entry.slot);
        let count = |entries: &[Entry]| entries.iter().filter(|one| one.name == name).count();
        if count(&entries) >= share {
            let mut held = Vec::with_capacity(entries.len());
            for other in entries {
                if other.name != name || is_held(&other)? {
                    held.push(other);
                }
            }
            entries = held;
        }
        if count(&entries) >= share {
            return Ok(Change::Keep(false));
        }
        entries.push(entry);
        Ok::<_, HostFailure>(Change::Write(encode(&entries), true))
    });
    added?.ok_or(UNWRITTEN)
}

/// Adds a token to those of its user. `is_held` says if an entry's token still holds its slot.
pub(super) fn add_for_user(
    host: &dyn Host,
    keys: &Keys,
    (user_id, entry): (&str, Entry),
    is_held: impl Fn(&Entry) -> Result<bool, HostFailure>,
) -> Result<(), HostFailure> {
    let (_, bucket) = hash(user_id, USER_BUCKETS);
    let added = update(host, &keys.waiting_for_user(bucket), ATTEMPTS, |bytes| {
        let now = host.now();
        let mut entries = bytes.map(decode).unwrap_or_default();
        // A slot holds one token. An earlier entry for it is of a token that is gone.
        entries.retain(|other| other.is_current(now) && other.slot != entry.slot);
        // Those that are looked at now come last the next time.
        let looked_at: Vec<_> = entries.drain(..entries.len().min(LOOKED_AT)).collect();
        for other in looked_at {
            if is_held(&other)? {
                entries.push(other);
            }
        }
        entries.push(entry);
        Ok::<_, HostFailure>(Change::Write(encode(&entries), ()))
    });
    added?.ok_or(UNWRITTEN)
}

const UNWRITTEN: HostFailure = HostFailure("a write to the tokens that wait");

fn encode(entries: &[Entry]) -> Vec<u8> {
    let mut bytes = vec![VERSION];
    entries.iter().for_each(|entry| entry.write(&mut bytes));
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_entry_is_read_back(slot: u32, until: u32, secret: [u8; 32]) {
            let digest = Digest::of(&secret);
            let until = UnixTime::from_secs(i64::from(until));
            let entry = Entry::new("backend", &digest, slot, until);
            let mut bytes = vec![VERSION];
            entry.write(&mut bytes);
            prop_assert_eq!(decode(&bytes), vec![entry]);
            prop_assert!(entry.id().names(&digest));
            prop_assert_eq!(entry.id(), TokenId::new(&digest, Some(slot)));
        }

        #[test]
        fn no_bytes_make_the_reader_panic(bytes: Vec<u8>) {
            let _ = decode(&bytes);
        }
    }
}
