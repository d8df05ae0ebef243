//! The last document of the gateway's that was one, kept for the time that the gateway fails.
//!
//! It is in shared data: whichever worker is asked, the same stands in. It is written when it changes, and else
//! once a minute to say that it is still so.

use std::cell::Cell;
use std::time::Duration;

use crate::host::{Host, UnixTime};
use crate::secret::Digest;

/// The format of the entry.
const VERSION: u8 = 1;

/// How long a document may stand in: a key that the gateway has withdrawn must go some time.
const MAX_AGE: Duration = Duration::from_secs(3600);

/// How long an entry is as good as new.
const REFRESH: Duration = Duration::from_secs(60);

/// The place of one document in shared data.
#[derive(Debug)]
pub(super) struct LastGood {
    key: String,
    /// What this worker knows to be there, and since when.
    known: Cell<Option<(Digest, UnixTime)>>,
}

impl LastGood {
    /// The place for the document `name` of the service that `tenant` names.
    pub(super) fn new(tenant: &str, name: &str) -> Self {
        let digest = Digest::of(format!("{tenant}\n{name}").as_bytes());
        Self { key: format!("d{}", digest.id()), known: Cell::new(None) }
    }

    /// Keeps a document that the gateway has just sent.
    pub(super) fn remember(&self, host: &dyn Host, document: &[u8]) {
        let now = host.now();
        let digest = Digest::of(document);
        let known = self.known.get();
        if known.is_some_and(|(known, at)| known == digest && at.is_within(REFRESH, now)) {
            return;
        }
        let mut entry = Vec::with_capacity(document.len().saturating_add(9));
        entry.push(VERSION);
        entry.extend_from_slice(&now.millis().to_le_bytes());
        entry.extend_from_slice(document);
        let Ok(found) = host.get(&self.key) else { return };
        let expected = found.map(|(_, version)| version).into();
        // Whoever is faster has a document that is as new.
        if host.compare_and_set(&self.key, &entry, expected).is_ok() {
            self.known.set(Some((digest, now)));
        }
    }

    /// The document, if there is one that is not too old. One that was kept in the future may be of any age.
    pub(super) fn recall(&self, host: &dyn Host) -> Option<Vec<u8>> {
        let (entry, _) = host.get(&self.key).ok()??;
        let (version, rest) = entry.split_first()?;
        let (at, document) = rest.split_first_chunk()?;
        let at = UnixTime::from_millis(u64::from_le_bytes(*at));
        let good = *version == VERSION && at.is_within(MAX_AGE, host.now());
        good.then(|| document.to_vec())
    }
}
