//! The gateway's last good document, which the filter serves while the gateway fails.
//!
//! The document is in shared data, so all workers serve the same one. It is written when it
//! changes, and otherwise once a minute to record that it is still current.

use std::cell::Cell;
use std::mem;
use std::time::Duration;

use crate::host::{Host, HostFailure, UnixTime};
use crate::secret::Digest;
use crate::shared_data::keys::Keys;
use crate::shared_data::{Change, update};

/// The version of the entry's format.
const VERSION: u8 = 1;

/// How old a served document may be. A key that the gateway has withdrawn must disappear in the
/// end.
const MAX_AGE: Duration = Duration::from_secs(3600);

/// How long an unchanged document is not written again.
const REFRESH: Duration = Duration::from_secs(60);

/// The place of one document in shared data.
#[derive(Debug)]
pub(super) struct LastGood {
    key: String,
    /// The digest of the document that this worker knows to be there, and when it was written.
    known: Cell<Option<(Digest, UnixTime)>>,
}

impl LastGood {
    /// The place for the document `name` of the service with this tenant name.
    pub(super) fn new(tenant: &str, name: &str) -> Self {
        Self { key: Keys::new(tenant).document(name), known: Cell::new(None) }
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
        let written = update::<_, HostFailure>(host, &self.key, 1, |_| {
            Ok(Change::Write(mem::take(&mut entry), ()))
        });
        // A worker that was faster wrote a document that is as new.
        if written.is_ok() {
            self.known.set(Some((digest, now)));
        }
    }

    /// The document, if there is one that is not too old. An entry whose time lies ahead may be of
    /// any age, as the clock was set back, and does not count.
    pub(super) fn recall(&self, host: &dyn Host) -> Option<Vec<u8>> {
        let (entry, _) = host.get(&self.key).ok()??;
        let (version, rest) = entry.split_first()?;
        let (at, document) = rest.split_first_chunk()?;
        let at = UnixTime::from_millis(u64::from_le_bytes(*at));
        let good = *version == VERSION && at.is_within(MAX_AGE, host.now());
        good.then(|| document.to_vec())
    }
}
