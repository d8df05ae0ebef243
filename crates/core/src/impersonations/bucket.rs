//! A few impersonations, as the bytes of one value in shared data.
//!
//! Each stands behind its expiry and its length, so that those that expired are dropped without being read, and one
//! of a format that is not known is kept until it expires.

use serde::{Deserialize, Serialize};

use crate::host::UnixTime;

/// The format of a bucket.
const VERSION: u8 = 2;

/// An impersonation, as the list has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The subject token's id: `txn` of the access token.
    pub id: String,
    /// Who is impersonated.
    pub user_id: String,
    /// Who acts, where that was said.
    pub actor_id: Option<String>,
    /// The client that exchanged the subject token.
    pub client_id: String,
    /// Who minted it.
    pub caller: String,
    /// Where the access token is good.
    pub resource: String,
    /// What for.
    pub scope: String,
    /// Its id.
    pub jti: String,
    /// The members of the mint's context that the operator wants to see here.
    pub context: Vec<(String, String)>,
    /// When it was issued, in milliseconds since the epoch.
    pub issued_at_millis: u64,
    /// When it expires, the same.
    pub expires_at_millis: u64,
}

impl Entry {
    /// When it expires.
    pub const fn expires_at(&self) -> UnixTime {
        UnixTime::from_millis(self.expires_at_millis)
    }

    /// When it was issued.
    pub const fn issued_at(&self) -> UnixTime {
        UnixTime::from_millis(self.issued_at_millis)
    }

    /// Whether it has not expired.
    pub fn is_live(&self, now: UnixTime) -> bool {
        now < self.expires_at()
    }

    pub(super) fn encode(&self) -> Option<Vec<u8>> {
        postcard::to_allocvec(self).ok()
    }
}

/// Entries that are not read yet, each with its expiry.
#[derive(Debug, Default)]
pub(super) struct Bucket<'b> {
    frames: Vec<(UnixTime, &'b [u8])>,
}

impl<'b> Bucket<'b> {
    /// Reads a bucket; `None` if it is none, in this format.
    pub(super) fn decode(bytes: &'b [u8]) -> Option<Self> {
        let (version, mut rest) = bytes.split_first()?;
        if *version != VERSION {
            return None;
        }
        let mut frames = Vec::new();
        while !rest.is_empty() {
            let (expiry, behind) = rest.split_first_chunk()?;
            let (len, behind) = behind.split_first_chunk()?;
            let len = usize::try_from(u32::from_le_bytes(*len)).ok()?;
            let (entry, behind) = behind.split_at_checked(len)?;
            frames.push((UnixTime::from_millis(u64::from_le_bytes(*expiry)), entry));
            rest = behind;
        }
        Some(Self { frames })
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let frames = &self.frames;
        let len = frames
            .iter()
            .fold(1_usize, |len, (_, entry)| len.saturating_add(12).saturating_add(entry.len()));
        let mut bytes = Vec::with_capacity(len);
        bytes.push(VERSION);
        for (expiry, entry) in frames {
            bytes.extend_from_slice(&expiry.millis().to_le_bytes());
            bytes.extend_from_slice(&u32::try_from(entry.len()).unwrap_or(0).to_le_bytes());
            bytes.extend_from_slice(entry);
        }
        bytes
    }

    pub(super) const fn len(&self) -> usize {
        self.frames.len()
    }

    pub(super) fn forget_expired(&mut self, now: UnixTime) {
        self.frames.retain(|(expiry, _)| now < *expiry);
    }

    pub(super) fn push(&mut self, expires_at: UnixTime, entry: &'b [u8]) {
        self.frames.push((expires_at, entry));
    }

    /// All that can be read.
    pub(super) fn entries(&self) -> Vec<Entry> {
        self.frames.iter().filter_map(|(_, entry)| postcard::from_bytes(entry).ok()).collect()
    }
}
