//! The list of live impersonations of all Envoys, in etcd.
//!
//! Each impersonation is a key. The transaction that spends the subject token writes it, and the
//! token's lease removes it. So no impersonation is missing, and none is listed that never began.

use std::rc::Rc;
use std::time::Duration;

use super::proto::{KeyValue, RangeRequest};
use super::{Bound, Places, Server};
use crate::host::HostFailure;
use crate::secret::namespace;
use crate::state::impersonations::{LiveImpersonation, Page, Place};
use crate::state::remote::{Beside, RemoteFailure};
use crate::state::store::StoreFailure;
use crate::state::versioned;
use crate::step::Context;

/// The attempts of a call, and the time for each.
const ATTEMPTS: (u32, Duration) = (3, Duration::from_millis(400));

/// The number of keys in a read, of some hundred bytes each.
const KEYS: i64 = 1000;

/// The most reads for one page of the list, when few of the impersonations are wanted.
const READS_TO_A_PAGE: u32 = 8;

/// The format of a value.
const VERSION: u8 = 3;

/// The list in etcd, as one worker sees it.
#[derive(Debug)]
pub(crate) struct EtcdList {
    server: Rc<Server>,
    /// The beginning of every key.
    folder: String,
}

impl EtcdList {
    pub(crate) fn new(server: &Rc<Server>, tenant: &str) -> Self {
        let folder = Places::new(&server.prefix, &namespace(tenant)).impersonations;
        Self { server: Rc::clone(server), folder }
    }

    /// The key that lists an impersonation, for the transaction that spends its subject token.
    pub(crate) fn beside(&self, entry: &LiveImpersonation) -> Result<Beside, StoreFailure> {
        let value = versioned::encode(VERSION, entry);
        let value = value.ok_or(HostFailure("memory for an impersonation"))?;
        let key = self.key(&entry.id);
        let value = self.server.record_keys.seal(bound(&key), &value)?;
        Ok(Beside { key, value, needed_until: entry.expires_at() })
    }

    /// Finds the impersonation with this id, if it has not expired.
    pub(crate) async fn find(
        &self,
        context: &Context,
        id: &str,
    ) -> Result<Option<LiveImpersonation>, StoreFailure> {
        let request = RangeRequest::of(self.key(id));
        let found = self.read(context, &request).await?;
        let Some(kv) = found.0.first() else { return Ok(None) };
        let entry =
            self.entry(kv).inspect_err(|failure| self.server.complain(context.host(), *failure))?;
        Ok(Some(entry).filter(|entry| entry.is_live(context.host().now())))
    }

    /// Reads a page of the list. The page is incomplete if an impersonation cannot be read.
    pub(crate) async fn page(
        &self,
        context: &Context,
        place: Option<Place>,
        limit: usize,
        mut wanted: impl FnMut(&LiveImpersonation) -> bool,
    ) -> Result<Page, StoreFailure> {
        let mut request = RangeRequest::below(&self.folder, KEYS);
        if let Some(after) = place.and_then(|place| place.after) {
            request = request.behind(&self.key(&after));
        }
        let now = context.host().now();
        let mut page = Page { entries: Vec::new(), next: None, complete: true };
        for _ in 0..READS_TO_A_PAGE {
            let (kvs, more) = self.read(context, &request).await?;
            for kv in &kvs {
                let entry = match self.entry(kv) {
                    Ok(entry) => entry,
                    Err(failure) => {
                        self.server.complain(context.host(), failure);
                        page.complete = false;
                        continue;
                    }
                };
                if !entry.is_live(now) || !wanted(&entry) {
                    continue;
                }
                if page.entries.len() >= limit {
                    let last = page.entries.last().map(|last| last.id.clone());
                    page.next = Some(Place { bucket: 0, after: last });
                    return Ok(page);
                }
                page.entries.push(entry);
            }
            let Some(last) = kvs.last().filter(|_| more) else {
                page.next = None;
                return Ok(page);
            };
            request = request.behind(&last.key);
            let id = last.key.get(self.folder.len()..).unwrap_or_default();
            let after = Some(String::from_utf8_lossy(id).into_owned());
            page.next = Some(Place { bucket: 0, after });
        }
        Ok(page)
    }

    async fn read(
        &self,
        context: &Context,
        request: &RangeRequest,
    ) -> Result<(Vec<KeyValue>, bool), RemoteFailure> {
        let host = context.host();
        let answer =
            self.server.range(context, request, self.server.attempts(host, ATTEMPTS)).await;
        let answer = answer.inspect_err(|failure| self.server.complain(host, *failure))?;
        Ok((answer.kvs, answer.more))
    }

    fn entry(&self, kv: &KeyValue) -> Result<LiveImpersonation, RemoteFailure> {
        let value = self.server.record_keys.open(bound(&kv.key), &kv.value)?;
        decode(value).ok_or(RemoteFailure::UnknownRecord)
    }

    fn key(&self, id: &str) -> Vec<u8> {
        format!("{}{id}", self.folder).into_bytes()
    }
}

/// An impersonation never changes, so its tag is bound to no lease, version or revision.
const fn bound(key: &[u8]) -> Bound<'_> {
    Bound { key, lease: 0, version: 0, created: 0 }
}

fn decode(value: &[u8]) -> Option<LiveImpersonation> {
    versioned::decode(VERSION, value).filter(LiveImpersonation::has_good_names)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_of_impersonations_panic(value: Vec<u8>) {
            let _ = decode(&value);
        }
    }
}
