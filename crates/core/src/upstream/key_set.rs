//! The key set of an issuer, which the filter fetches and keeps fresh.
//!
//! All workers share a key set through shared data. The shared entry of an issuer holds the last
//! good key set, and the time at which the last fetch began. A worker claims a fetch by moving that
//! time with a compare-and-set, and then fetches for all workers. A token can cause a fetch, but
//! its sender cannot stop the fetch by leaving. A failed fetch changes nothing: the last good keys
//! stay until they are too stale. Each worker parses a key set once. It looks for a newer one when
//! its timer ticks, or when a token names an unknown key.
//!
//! A time that lies ahead was written before the clock was set back. It is unknown how long ago
//! that was, so the filter treats whatever waits for such a time as due.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use super::{Fault, Upstream, UpstreamFailure};
use crate::config::{HttpUri, Jwks, RemoteJwks};
use crate::host::{Host, HostFailure, Swap, UnixTime, Version};
use crate::jose::KeySet;
use crate::secret::Digest;
use crate::state::shared_data::keys;
use crate::state::versioned;
use crate::step::{Call, CallFailure, Context, HttpCall, Reply};

/// The least time between two fetches that tokens cause. Tokens with invented `kid`s must not
/// burden the issuer.
const MIN_INTERVAL: Duration = Duration::from_secs(5);

/// The least time between two fetches while there are no keys. No token can be verified yet, so
/// fetches are more frequent.
const MIN_INTERVAL_WITHOUT_KEYS: Duration = Duration::from_secs(1);

/// The version of the shared entry's format.
const VERSION: u8 = 1;

/// The source of an issuer's keys.
#[derive(Debug, Clone)]
pub enum KeySource {
    /// The keys are in the configuration.
    Local(Rc<KeySet>),
    /// The keys are fetched from the issuer.
    Remote(Rc<RemoteKeySet>),
}

/// A key set that is fetched from its issuer.
#[derive(Debug)]
pub struct RemoteKeySet {
    config: RemoteJwks,
    /// The key of the shared entry in shared data.
    entry_key: String,
    known: RefCell<Known>,
}

/// The key set that this worker has parsed.
#[derive(Debug, Default)]
struct Known {
    keys: Option<Rc<KeySet>>,
    document: Option<Digest>,
    generation: u64,
    fetched_at: UnixTime,
}

/// The entry in shared data. Times are milliseconds since the epoch; zero means never.
#[derive(Debug, Clone, Default, serde::Serialize, serde::Deserialize)]
struct SharedKeySet {
    fetched_at: u64,
    fetch_began_at: u64,
    document: Vec<u8>,
}

impl KeySource {
    /// Creates the key source of a configuration. Remote keys are unknown until they are fetched.
    pub fn new(keys: &Jwks) -> Self {
        match keys {
            Jwks::Local(keys) => Self::Local(Rc::clone(keys)),
            Jwks::Remote(remote) => Self::Remote(Rc::new(RemoteKeySet::new(remote.clone()))),
        }
    }

    /// The keys that are known now.
    pub fn keys(&self, now: UnixTime) -> Result<Rc<KeySet>, UpstreamFailure> {
        let known = match self {
            Self::Local(keys) => Some(Rc::clone(keys)),
            Self::Remote(remote) => remote.keys(now),
        };
        known.ok_or(UpstreamFailure { upstream: Upstream::Jwks, fault: Fault::Pending })
    }

    /// The key set that the background task keeps fresh; `None` if the keys are configured.
    pub const fn remote(&self) -> Option<&Rc<RemoteKeySet>> {
        match self {
            Self::Local(_) => None,
            Self::Remote(remote) => Some(remote),
        }
    }

    /// A number that changes whenever the keys change.
    pub(crate) fn generation(&self) -> u64 {
        match self {
            Self::Local(_) => 0,
            Self::Remote(remote) => remote.known.borrow().generation,
        }
    }
}

impl RemoteKeySet {
    /// Creates a key set that has not been fetched. Services with the same address share the
    /// fetched keys.
    pub(crate) fn new(config: RemoteJwks) -> Self {
        let HttpUri { cluster, scheme, authority, path, .. } = &config.http_uri;
        let name = format!("{cluster}\n{scheme}://{authority}{path}");
        let entry_key = keys::key_set(&name);
        Self { config, entry_key, known: RefCell::default() }
    }

    fn keys(&self, now: UnixTime) -> Option<Rc<KeySet>> {
        let known = self.known.borrow();
        let current = self.config.max_stale.is_zero()
            || known.fetched_at.is_within(self.config.max_stale, now);
        known.keys.as_ref().filter(|_| current).map(Rc::clone)
    }

    /// Adopts a newer key set of another worker, and fetches the key set if that is due.
    pub async fn keep_fresh(&self, context: &Context) {
        if let Some(call) = self.due(context.host()) {
            // `fetch` counts and logs a failure. The next tick tries again.
            let _ = self.fetch(context, call).await;
        }
    }

    fn due(&self, host: &dyn Host) -> Option<HttpCall> {
        let (entry, version) = self.read(host).ok()?;
        self.adopt(&entry);
        // A quarter of the time is left for repeating failed fetches.
        let fresh_for = self.config.cache_duration.mul_f64(0.75);
        let fresh = UnixTime::from_millis(entry.fetched_at).is_within(fresh_for, host.now());
        let interval = MIN_INTERVAL.min(fresh_for);
        if fresh { None } else { self.claim_fetch(host, entry, version, interval) }
    }

    async fn fetch(&self, context: &Context, call: HttpCall) -> Result<(), UpstreamFailure> {
        let reply = context.call_to_the_end(Call::Http(call)).await;
        self.fetched(context.host(), &reply)
    }

    /// Stores the key set in the reply to a fetch. If the reply has no key set, the last good keys
    /// stay.
    fn fetched(&self, host: &dyn Host, reply: &Reply) -> Result<(), UpstreamFailure> {
        let failed = |fault| Upstream::Jwks.failed(host, fault);
        if matches!(reply, Reply::Failed(CallFailure::NotSent)) {
            self.give_up_claim(host);
        }
        let document = match reply {
            Reply::Http { status: 200, json: true, body } => body,
            Reply::Http { status: 200, .. } => return Err(failed(Fault::ContentType)),
            Reply::Http { status, .. } => return Err(failed(Fault::Status(*status))),
            Reply::Grpc(_) => return Err(failed(Fault::Malformed)),
            Reply::Failed(failure) => return Err(failed((*failure).into())),
        };
        let Some(keys) = KeySet::parse(document) else { return Err(failed(Fault::Malformed)) };
        for (position, error) in &keys.broken {
            host.warn(&format!("key set: keys[{position}] is not used: {error}"));
        }
        // An issuer may withdraw all of its keys. Then its tokens are no longer accepted.
        if keys.is_empty() {
            host.warn("key set: it has no usable key");
        }
        let fetched_at = host.now().millis();
        let written = self.read(host).and_then(|(entry, version)| {
            let entry = SharedKeySet { fetched_at, document: document.clone(), ..entry };
            self.write(host, &entry, version).map(|_| entry)
        });
        // If shared data fails, this worker still uses the fetched keys.
        let entry = written.unwrap_or(SharedKeySet {
            fetched_at,
            fetch_began_at: 0,
            document: document.clone(),
        });
        self.adopt(&entry);
        Ok(())
    }

    /// Fetches the key set now, because a token names an unknown key or no keys are known. Returns
    /// `Ok` if there may be new keys.
    pub async fn refresh(&self, context: &Context) -> Result<(), UpstreamFailure> {
        let host = context.host();
        let before = self.known.borrow().generation;
        let Ok((entry, version)) = self.read(host) else { return Ok(()) };
        self.adopt(&entry);
        if self.known.borrow().generation != before {
            return Ok(());
        }
        match self.claim_fetch(host, entry, version, MIN_INTERVAL) {
            Some(call) => self.fetch(context, call).await,
            // Another worker is fetching. The token may be good, so its bearer should try again.
            None if self.is_under_way(host) && self.known.borrow().generation == before => {
                Err(UpstreamFailure { upstream: Upstream::Jwks, fault: Fault::Pending })
            }
            None => Ok(()),
        }
    }

    /// Returns true if a worker waits for the reply to a fetch. Adopts the shared key set first.
    fn is_under_way(&self, host: &dyn Host) -> bool {
        self.read(host).is_ok_and(|(entry, _)| {
            self.adopt(&entry);
            let (began_at, now) = (UnixTime::from_millis(entry.fetch_began_at), host.now());
            let fetched_at = UnixTime::from_millis(entry.fetched_at);
            let over = fetched_at >= began_at && !fetched_at.is_ahead_of(now);
            !over && began_at.is_within(self.config.http_uri.timeout, now)
        })
    }

    /// The age of the keys; `None` if there are none yet, or if the clock was set back since.
    pub fn age(&self, now: UnixTime) -> Option<Duration> {
        let known = self.known.borrow();
        let dated = known.keys.is_some() && !known.fetched_at.is_ahead_of(now);
        dated.then(|| now.since(known.fetched_at))
    }

    /// Claims the next fetch for this worker, and returns its call. Returns `None` if too little
    /// time has passed since the last fetch, or if another worker was faster.
    fn claim_fetch(
        &self,
        host: &dyn Host,
        entry: SharedKeySet,
        version: Option<Version>,
        interval: Duration,
    ) -> Option<HttpCall> {
        let interval = if entry.fetched_at == 0 { MIN_INTERVAL_WITHOUT_KEYS } else { interval };
        let now = host.now();
        if UnixTime::from_millis(entry.fetch_began_at).is_within(interval, now) {
            return None;
        }
        let entry = SharedKeySet { fetch_began_at: now.millis(), ..entry };
        match self.write(host, &entry, version) {
            Ok(Swap::Done) => {
                let headers =
                    vec![("accept", "application/jwk-set+json, application/json".to_owned())];
                Some(self.config.http_uri.call("GET", headers, Vec::new()))
            }
            Ok(Swap::Lost) | Err(_) => None,
        }
    }

    /// Gives up the claim to the first fetch, whose call Envoy did not send, so that any worker may
    /// try at once. Envoy may not know its clusters yet when the first VM starts.
    fn give_up_claim(&self, host: &dyn Host) {
        if let Ok((entry @ SharedKeySet { fetched_at: 0, .. }, version)) = self.read(host) {
            // If another worker has written since, it has claimed a fetch, which serves as well.
            let _ = self.write(host, &SharedKeySet { fetch_began_at: 0, ..entry }, version);
        }
    }

    fn read(&self, host: &dyn Host) -> Result<(SharedKeySet, Option<Version>), HostFailure> {
        let Some((bytes, version)) = host.get(&self.entry_key)? else {
            return Ok((SharedKeySet::default(), None));
        };
        // The entry of another version of the filter counts as absent.
        Ok((versioned::decode(VERSION, &bytes).unwrap_or_default(), Some(version)))
    }

    fn write(
        &self,
        host: &dyn Host,
        entry: &SharedKeySet,
        version: Option<Version>,
    ) -> Result<Swap, HostFailure> {
        let bytes = versioned::encode(VERSION, entry).ok_or(HostFailure("memory for a key set"))?;
        host.compare_and_set(&self.entry_key, &bytes, version.into())
    }

    /// Parses the shared key set if it differs from this worker's. The shared key set is never
    /// older, whatever the clock did in between.
    fn adopt(&self, entry: &SharedKeySet) {
        let fetched_at = UnixTime::from_millis(entry.fetched_at);
        let mut known = self.known.borrow_mut();
        if entry.fetched_at == 0 || fetched_at == known.fetched_at {
            return;
        }
        known.fetched_at = fetched_at;
        let document = Digest::of(&entry.document);
        if known.document == Some(document) {
            return;
        }
        if let Some(keys) = KeySet::parse(&entry.document) {
            known.keys = Some(Rc::new(keys));
            known.document = Some(document);
            known.generation = known.generation.saturating_add(1);
        }
    }
}
