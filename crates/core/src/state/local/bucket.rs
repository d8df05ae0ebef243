//! A few impersonations, as the bytes of one value in shared data.
//!
//! Before each impersonation stand its expiry and its length. So an expired one is dropped without
//! being read, and one of an unknown format is kept until it expires.

use crate::host::UnixTime;
use crate::state::impersonations::LiveImpersonation;

/// The format of a bucket.
const VERSION: u8 = 3;

/// The impersonations that have not been read yet, each with its expiry.
#[derive(Debug, Default)]
pub(super) struct Bucket<'b> {
    frames: Vec<(UnixTime, &'b [u8])>,
}

impl<'b> Bucket<'b> {
    /// Reads a bucket; `None` if the bytes are no bucket of this format.
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

    /// The impersonations that this version can read.
    pub(super) fn entries(&self) -> Vec<LiveImpersonation> {
        let entries = self.frames.iter().filter_map(|(_, entry)| postcard::from_bytes(entry).ok());
        entries.filter(LiveImpersonation::has_good_names).collect()
    }
}
