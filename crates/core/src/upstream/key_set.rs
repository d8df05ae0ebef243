//! The key set of an issuer, kept fresh.
//!
//! Workers share it through shared data: one entry for each issuer holds the last good key set and when
//! the last fetch began. Whoever moves that time by compare-and-set fetches, for all, and to the end: a token
//! can ask for a fetch, but whoever sent it cannot stop the fetch by leaving. One that fails changes nothing:
//! the last good keys stay, until they are too stale to be believed. Each worker parses a key set once and
//! looks for a newer one when its timer ticks, or when a token names a key that it does not know.
//!
//! A time that lies ahead was written before the clock was set back. It says nothing about how long ago that
//! was, so that whatever waits for it is due.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use super::{Fault, Upstream, UpstreamFailure};
use crate::config::{HttpUri, Jwks, RemoteJwks};
use crate::host::{Host, HostFailure, Swap, UnixTime, Version};
use crate::jose::KeySet;
use crate::secret::Digest;
use crate::shared_data::keys;
use crate::step::{Call, CallFailure, Context, HttpCall, Reply};
use crate::versioned;

/// The least time between two fetches that tokens ask for. A token with an invented `kid` must not be
/// a way to make the issuer work.
const MIN_INTERVAL: Duration = Duration::from_secs(5);

/// The same while there are no keys at all: nothing works yet, so it is tried more often.
const MIN_INTERVAL_WITHOUT_KEYS: Duration = Duration::from_secs(1);

/// The format of the shared entry.
const VERSION: u8 = 1;

/// Where an issuer's keys come from.
#[derive(Debug, Clone)]
pub enum KeySource {
    /// The configuration.
    Local(Rc<KeySet>),
    /// The issuer.
    Remote(Rc<RemoteKeySet>),
}

/// A key set that is fetched.
#[derive(Debug)]
pub struct RemoteKeySet {
    config: RemoteJwks,
    /// The key of the shared entry.
    entry_key: String,
    known: RefCell<Known>,
}

/// What this worker has.
#[derive(Debug, Default)]
struct Known {
    keys: Option<Rc<KeySet>>,
    document: Option<Digest>,
    generation: u64,
    fetched_at: UnixTime,
}

/// What all workers share. Times are milliseconds since the epoch; zero is never.
#[derive(Debug, Clone, Default, serde::Serialize, serde::Deserialize)]
struct Entry {
    fetched_at: u64,
    fetch_began_at: u64,
    document: Vec<u8>,
}

impl KeySource {
    /// Keys from there, of which those that are fetched are not known yet.
    pub fn new(keys: &Jwks) -> Self {
        match keys {
            Jwks::Local(keys) => Self::Local(Rc::clone(keys)),
            Jwks::Remote(remote) => Self::Remote(Rc::new(RemoteKeySet::new(remote.clone()))),
        }
    }

    /// The keys as they are known now.
    pub fn keys(&self, now: UnixTime) -> Result<Rc<KeySet>, UpstreamFailure> {
        let known = match self {
            Self::Local(keys) => Some(Rc::clone(keys)),
            Self::Remote(remote) => remote.keys(now),
        };
        known.ok_or(UpstreamFailure { upstream: Upstream::Jwks, fault: Fault::Pending })
    }

    /// Changes whenever the keys do.
    pub fn generation(&self) -> u64 {
        match self {
            Self::Local(_) => 0,
            Self::Remote(remote) => remote.known.borrow().generation,
        }
    }
}

impl RemoteKeySet {
    /// A key set that was never fetched. Services that get it from the same place share it.
    pub fn new(config: RemoteJwks) -> Self {
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

    /// Looks for a newer key set of another worker, and fetches one if it is time for it.
    pub async fn keep_fresh(&self, context: &Context) {
        if let Some(call) = self.due(context.host()) {
            // A failure is counted and logged there; the next tick tries again.
            let _ = self.fetch(context, call).await;
        }
    }

    fn due(&self, host: &dyn Host) -> Option<HttpCall> {
        let (entry, version) = self.read(host).ok()?;
        self.adopt(&entry);
        // A quarter of the time is left for fetches that fail.
        let fresh_for = self.config.cache_duration.mul_f64(0.75);
        let fresh = UnixTime::from_millis(entry.fetched_at).is_within(fresh_for, host.now());
        let interval = MIN_INTERVAL.min(fresh_for);
        if fresh { None } else { self.begin(host, entry, version, interval) }
    }

    async fn fetch(&self, context: &Context, call: HttpCall) -> Result<(), UpstreamFailure> {
        let reply = context.call_to_the_end(Call::Http(call)).await;
        self.fetched(context.host(), &reply)
    }

    /// Takes the reply to a fetch. The last good keys stay if it is not a key set.
    fn fetched(&self, host: &dyn Host, reply: &Reply) -> Result<(), UpstreamFailure> {
        let failed = |fault| Upstream::Jwks.failed(host, fault);
        if matches!(reply, Reply::Failed(CallFailure::NotSent)) {
            self.take_back(host);
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
        // An issuer may withdraw all of its keys, and then nothing that it signed is good any more.
        if keys.is_empty() {
            host.warn("key set: there is no key in it that can be used");
        }
        let fetched_at = host.now().millis();
        let written = self.read(host).and_then(|(entry, version)| {
            let entry = Entry { fetched_at, document: document.clone(), ..entry };
            self.write(host, &entry, version).map(|_| entry)
        });
        // If shared data fails, this worker at least has its keys.
        let entry =
            written.unwrap_or(Entry { fetched_at, fetch_began_at: 0, document: document.clone() });
        self.adopt(&entry);
        Ok(())
    }

    /// Fetches at once, because a token names a key that is not known, or none is. `Ok` if there may be
    /// new keys.
    pub async fn refresh(&self, context: &Context) -> Result<(), UpstreamFailure> {
        let host = context.host();
        let before = self.known.borrow().generation;
        let Ok((entry, version)) = self.read(host) else { return Ok(()) };
        self.adopt(&entry);
        if self.known.borrow().generation != before {
            return Ok(());
        }
        match self.begin(host, entry, version, MIN_INTERVAL) {
            Some(call) => self.fetch(context, call).await,
            // Somebody else asked a moment ago. The token may well be good: its bearer should try again.
            None if self.is_under_way(host) && self.known.borrow().generation == before => {
                Err(UpstreamFailure { upstream: Upstream::Jwks, fault: Fault::Pending })
            }
            None => Ok(()),
        }
    }

    /// Whether a worker, perhaps one that was faster a moment ago, waits for a reply. What it has got by
    /// now is made this worker's own.
    fn is_under_way(&self, host: &dyn Host) -> bool {
        self.read(host).is_ok_and(|(entry, _)| {
            self.adopt(&entry);
            let (began_at, now) = (UnixTime::from_millis(entry.fetch_began_at), host.now());
            let fetched_at = UnixTime::from_millis(entry.fetched_at);
            let over = fetched_at >= began_at && !fetched_at.is_ahead_of(now);
            !over && began_at.is_within(self.config.http_uri.timeout, now)
        })
    }

    /// How old the keys are; `None` before the first, and where the clock was set back since.
    pub fn age(&self, now: UnixTime) -> Option<Duration> {
        let known = self.known.borrow();
        let dated = known.keys.is_some() && !known.fetched_at.is_ahead_of(now);
        dated.then(|| now.since(known.fetched_at))
    }

    /// The call of a fetch, if enough time has passed since the last and no other worker is faster.
    fn begin(
        &self,
        host: &dyn Host,
        entry: Entry,
        version: Option<Version>,
        interval: Duration,
    ) -> Option<HttpCall> {
        let interval = if entry.fetched_at == 0 { MIN_INTERVAL_WITHOUT_KEYS } else { interval };
        let now = host.now();
        if UnixTime::from_millis(entry.fetch_began_at).is_within(interval, now) {
            return None;
        }
        let entry = Entry { fetch_began_at: now.millis(), ..entry };
        match self.write(host, &entry, version) {
            Ok(Swap::Done) => {
                let headers =
                    vec![("accept", "application/jwk-set+json, application/json".to_owned())];
                Some(self.config.http_uri.call("GET", headers, Vec::new()))
            }
            Ok(Swap::Lost) | Err(_) => None,
        }
    }

    /// Lets others begin the first fetch at once, since ours never left: Envoy may not know its clusters
    /// yet when the first VM begins.
    fn take_back(&self, host: &dyn Host) {
        if let Ok((entry @ Entry { fetched_at: 0, .. }, version)) = self.read(host) {
            // Whoever wrote in between has begun a fetch, and that is as good.
            let _ = self.write(host, &Entry { fetch_began_at: 0, ..entry }, version);
        }
    }

    fn read(&self, host: &dyn Host) -> Result<(Entry, Option<Version>), HostFailure> {
        let Some((bytes, version)) = host.get(&self.entry_key)? else {
            return Ok((Entry::default(), None));
        };
        // What another version of the filter wrote is fetched anew.
        Ok((versioned::decode(VERSION, &bytes).unwrap_or_default(), Some(version)))
    }

    fn write(
        &self,
        host: &dyn Host,
        entry: &Entry,
        version: Option<Version>,
    ) -> Result<Swap, HostFailure> {
        let bytes = versioned::encode(VERSION, entry).ok_or(HostFailure("memory for a key set"))?;
        host.compare_and_set(&self.entry_key, &bytes, version.into())
    }

    /// Makes the shared key set this worker's own, if it is another: what is shared is never older, whatever
    /// the clock did in between.
    fn adopt(&self, entry: &Entry) {
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
