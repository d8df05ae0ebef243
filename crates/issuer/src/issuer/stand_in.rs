//! The gateway's documents that stand in while the gateway fails (RFC 5861 §4).
//!
//! The filter fetches them itself, on its timer: at the issuer's authority, without a query, and
//! without a header field of any caller. A gateway may write a document for the host, the query or
//! the header fields of a request, so a document that a caller asked for is the caller's own. None
//! is kept for others.
//!
//! All workers share a document through shared data, as they share key sets. A worker claims a
//! fetch by moving the time at which the last fetch began, and then fetches for all workers. A
//! failed fetch changes nothing.
//!
//! A time that lies ahead was written before the clock was set back. A fetch that waits for such a
//! time is due, and a document of such a time is too old.

use std::cell::Cell;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::origins::{Origins, Unfit};
use crate::config::HttpUri;
use crate::host::{Host, HostFailure, Swap, UnixTime, Version};
use crate::state::shared_data::keys;
use crate::state::versioned;
use crate::step::{Call, CallFailure, Context, HttpCall, Reply};
use crate::upstream::{Fault, Upstream};

/// The longest document of a gateway that the filter reads, in bytes. Envoy buffers one megabyte by
/// default.
pub(crate) const MAX_DOCUMENT: usize = 512 * 1024;

/// The version of the entry's format. Version 1 had documents that callers had asked for.
const VERSION: u8 = 2;

/// The time from one fetch to the next.
const INTERVAL: Duration = Duration::from_secs(60);

/// How much earlier than that the next fetch begins if Envoy did not send this one.
const EARLIER: Duration = Duration::from_secs(55);

/// How old a served document may be. A key that the gateway has withdrawn must disappear in the
/// end.
const MAX_AGE: Duration = Duration::from_secs(3600);

/// The requirements that a document meets to be kept.
#[derive(Debug)]
pub(super) enum Fitting {
    /// A list of keys.
    KeySet,
    /// The issuer's name, and endpoints of these origins.
    Metadata(Origins),
}

/// A document that the filter fetches and keeps.
#[derive(Debug)]
pub(crate) struct StandIn {
    address: HttpUri,
    fitting: Fitting,
    /// The key of the entry in shared data.
    entry_key: String,
    /// When the last fetch began, as far as this worker knows.
    began_at: Cell<UnixTime>,
}

/// The entry in shared data. Times are milliseconds since the epoch; zero means never.
#[derive(Default, Serialize, Deserialize)]
struct Entry {
    began_at: u64,
    fetched_at: u64,
    document: Vec<u8>,
}

impl StandIn {
    /// Keeps the document at an address if it is fitting.
    pub(super) fn new(address: HttpUri, fitting: Fitting) -> Self {
        let HttpUri { cluster, scheme, authority, path, .. } = &address;
        let entry_key = keys::document(&format!("{cluster}\n{scheme}://{authority}{path}"));
        Self { address, fitting, entry_key, began_at: Cell::default() }
    }

    /// The document, if there is one that is not too old.
    pub(super) fn recall(&self, host: &dyn Host) -> Option<Vec<u8>> {
        let (entry, _) = self.read(host).ok()?;
        let fetched_at = UnixTime::from_millis(entry.fetched_at);
        // The allowed origins may have changed since.
        let is_good =
            fetched_at.is_within(MAX_AGE, host.now()) && self.review(&entry.document).is_ok();
        is_good.then_some(entry.document)
    }

    /// Fetches the document if that is due.
    pub(crate) async fn keep_fresh(&self, context: &Context) {
        if let Some(call) = self.due(context.host()) {
            let reply = context.call_to_the_end(Call::Http(call)).await;
            self.fetched(context.host(), reply);
        }
    }

    /// Claims the next fetch for this worker, and returns its call; `None` if none is due, or if
    /// another worker was faster.
    fn due(&self, host: &dyn Host) -> Option<HttpCall> {
        let now = host.now();
        if self.began_at.get().is_within(INTERVAL, now) {
            return None;
        }
        let (entry, version) = self.read(host).ok()?;
        let began_at = UnixTime::from_millis(entry.began_at);
        if began_at.is_within(INTERVAL, now) {
            self.began_at.set(began_at);
            return None;
        }
        let entry = Entry { began_at: now.millis(), ..entry };
        if !matches!(self.write(host, &entry, version), Ok(Swap::Done)) {
            return None;
        }
        self.began_at.set(now);
        let headers = vec![
            ("accept", "application/json, application/jwk-set+json".to_owned()),
            // RFC 9110 §12.5.3: without the field the gateway may use any coding.
            ("accept-encoding", "identity".to_owned()),
        ];
        Some(self.address.call("GET", headers, Vec::new()))
    }

    /// Keeps the document in the reply to a fetch. If the reply has none, the earlier one stays.
    fn fetched(&self, host: &dyn Host, reply: Reply) {
        let failed = |fault| {
            let _logged = Upstream::Documents.failed(host, fault);
        };
        let document = match reply {
            Reply::Http { status: 200, json: true, body } => body,
            Reply::Http { status: 200, .. } => return failed(Fault::ContentType),
            Reply::Http { status, .. } => return failed(Fault::Status(status)),
            Reply::Grpc(_) => return failed(Fault::Malformed),
            Reply::Failed(failure) => {
                if failure == CallFailure::NotSent {
                    self.try_again_soon(host);
                }
                return failed(failure.into());
            }
        };
        if let Err(unfit) = self.review(&document) {
            let path = &self.address.path;
            return host.warn(&format!("the gateway's {path} would not stand in for it: {unfit}"));
        }
        let fetched_at = host.now().millis();
        if let Ok((entry, version)) = self.read(host) {
            // If another worker has written since, its document is as new.
            let _ = self.write(host, &Entry { fetched_at, document, ..entry }, version);
        }
    }

    /// Refuses what must not stand in for the gateway's document.
    fn review(&self, document: &[u8]) -> Result<(), Unfit> {
        if document.len() > MAX_DOCUMENT {
            return Err(Unfit::Malformed);
        }
        let document: Map<String, Value> =
            serde_json::from_slice(document).map_err(|_| Unfit::Malformed)?;
        match &self.fitting {
            Fitting::KeySet => match document.get("keys") {
                Some(Value::Array(_)) => Ok(()),
                _ => Err(Unfit::Malformed),
            },
            Fitting::Metadata(origins) => match document.get("grant_types_supported") {
                None | Some(Value::Array(_)) => origins.check(&document),
                Some(_) => Err(Unfit::Malformed),
            },
        }
    }

    /// Makes the next fetch begin earlier. Envoy may not know its clusters yet when the first VM
    /// starts.
    fn try_again_soon(&self, host: &dyn Host) {
        let began_at = host.now().before(EARLIER);
        if let Ok((entry, version)) = self.read(host) {
            let _ = self.write(host, &Entry { began_at: began_at.millis(), ..entry }, version);
        }
        self.began_at.set(began_at);
    }

    fn read(&self, host: &dyn Host) -> Result<(Entry, Option<Version>), HostFailure> {
        let Some((bytes, version)) = host.get(&self.entry_key)? else {
            return Ok((Entry::default(), None));
        };
        // The entry of another version of the filter counts as absent.
        Ok((versioned::decode(VERSION, &bytes).unwrap_or_default(), Some(version)))
    }

    fn write(
        &self,
        host: &dyn Host,
        entry: &Entry,
        version: Option<Version>,
    ) -> Result<Swap, HostFailure> {
        let bytes =
            versioned::encode(VERSION, entry).ok_or(HostFailure("memory for a document"))?;
        host.compare_and_set(&self.entry_key, &bytes, version.into())
    }
}
