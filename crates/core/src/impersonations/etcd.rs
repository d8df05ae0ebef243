//! The list in etcd: everyone's. Each impersonation is a key, which the transaction writes that spends its subject
//! token, and which is gone with the token's lease: so none is missing, and none is there that never began.

use std::rc::Rc;
use std::time::Duration;

use super::bucket::Entry;
use super::{Page, Place};
use crate::etcd::lease::Leases;
use crate::etcd::proto::{KeyValue, PutRequest, RangeRequest, TxnRequest};
use crate::etcd::{Bound, Places, Server};
use crate::remote::{Beside, RemoteFailure};
use crate::step::{Context, WhenCallerLeaves};
use crate::versioned;

/// A call waits this often, for this long.
const ATTEMPTS: (u32, Duration) = (3, Duration::from_millis(400));

/// Keys to a read, of some hundred bytes each.
const KEYS: i64 = 1000;

/// How many reads make a page of the list at the most, if hardly any of it is wanted.
const READS_TO_A_PAGE: u32 = 8;

/// The format of a value.
const VERSION: u8 = 2;

/// etcd, as one worker sees it.
#[derive(Debug)]
pub(super) struct EtcdList {
    server: Rc<Server>,
    /// What every key begins with.
    folder: String,
    leases: Leases,
}

impl EtcdList {
    pub(super) fn new(server: &Rc<Server>, namespace: &str, lifetime: Duration) -> Self {
        let Places { impersonations: folder, leases, .. } = Places::new(&server.prefix, namespace);
        Self { server: Rc::clone(server), leases: Leases::new(&leases, lifetime), folder }
    }

    /// What a spend writes besides.
    pub(super) fn beside(&self, entry: &Entry) -> Option<Beside> {
        let value = versioned::encode(VERSION, entry)?;
        let key = self.key(&entry.id);
        let value = self.server.record_keys.seal(bound(&key), &value).ok()?;
        Some(Beside { key, value, needed_until: entry.expires_at() })
    }

    /// Writes down one whose subject token was not in etcd.
    pub(super) async fn insert(
        &self,
        context: &Context,
        Beside { key, value, .. }: Beside,
    ) -> Result<(), RemoteFailure> {
        let host = context.host();
        let txn = |lease| {
            let put = PutRequest { key: key.clone(), value: value.clone(), lease };
            Ok(TxnRequest::default().and_put(put))
        };
        let go_on = WhenCallerLeaves::GoOn;
        let attempts = self.server.attempts(host, ATTEMPTS);
        let written = self.server.write(context, &self.leases, txn, attempts, go_on).await;
        written.map(|_| ()).inspect_err(|failure| self.server.complain(host, *failure))
    }

    /// The impersonation with this id, if it has not expired.
    pub(super) async fn find(
        &self,
        context: &Context,
        id: &str,
    ) -> Result<Option<Entry>, RemoteFailure> {
        let request = RangeRequest::of(self.key(id));
        let found = self.read(context, &request).await?;
        let Some(kv) = found.0.first() else { return Ok(None) };
        let entry =
            self.entry(kv).inspect_err(|failure| self.server.complain(context.host(), *failure))?;
        Ok(Some(entry).filter(|entry| entry.is_live(context.host().now())))
    }

    /// A part of the list. It is not complete if there is one that cannot be read.
    pub(super) async fn page(
        &self,
        context: &Context,
        place: Option<Place>,
        limit: usize,
        mut wanted: impl FnMut(&Entry) -> bool,
    ) -> Result<Page, RemoteFailure> {
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

    fn entry(&self, kv: &KeyValue) -> Result<Entry, RemoteFailure> {
        let value = self.server.record_keys.open(bound(&kv.key), &kv.value)?;
        decode(value).ok_or(RemoteFailure::UnknownRecord)
    }

    fn key(&self, id: &str) -> Vec<u8> {
        format!("{}{id}", self.folder).into_bytes()
    }
}

/// An entry never changes: it is all the same who wrote it there when.
const fn bound(key: &[u8]) -> Bound<'_> {
    Bound { key, lease: 0, version: 0, created: 0 }
}

fn decode(value: &[u8]) -> Option<Entry> {
    versioned::decode(VERSION, value)
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
