//! One configured service: what all requests of a worker share, and what it does while nobody asks.

use std::borrow::Cow;
use std::ops::Deref;
use std::rc::Rc;

use super::documents::Documents;
use super::issued_token::OwnTokens;
use super::oversight::Oversight;
use super::routes::{Paths, Route};
use crate::bearer::Verifier;
use crate::claims::{Authorizer, Script};
use crate::config::{Config, OnError};
use crate::etcd::EtcdFailure;
use crate::host::{Host, UnixTime};
use crate::jose::{Algorithm, SigningKey, TestedCrypto};
use crate::metrics;
use crate::policy::MintCounter;
use crate::step::{Step, Task};
use crate::store::Store;
use crate::upstream::{RemoteKeySet, Upstream};

/// A configuration, ready to answer. Caches live as long as it does: a changed configuration starts with
/// empty ones, so nothing verified under the old rules is taken for granted under the new.
pub struct Service {
    /// What the operator wrote, but for how tokens are verified: that is in `callers` and `actors`.
    pub config: Config,
    /// Outstanding and spent subject tokens.
    pub store: Store,
    /// What is live and what has ended.
    pub(crate) oversight: Oversight,
    /// How often each caller mints, where that is bounded.
    pub(crate) mints: Option<MintCounter>,
    /// The paths that are ours.
    pub paths: Paths,
    /// The documents that anybody may read.
    pub(crate) documents: Documents,
    /// Signs access tokens.
    pub(crate) signing_key: SigningKey,
    /// The host's cryptography, as far as it passed the test.
    pub(crate) crypto: Option<Rc<TestedCrypto>>,
    /// Recognizes the access tokens that this service issued.
    pub(crate) own_tokens: OwnTokens,
    /// Verifies who mints: whose machine-to-machine tokens are good for it.
    pub(crate) callers: Verifier,
    /// Verifies who acts.
    pub(crate) actors: Verifier,
    /// The operator's say in the claims; `None` for none.
    pub(crate) custom_claims: Option<CustomClaims>,
    /// The operator's say in what is minted; `None` for none.
    pub(crate) authorizer: Option<Authorizer>,
    pub(super) configured_at: UnixTime,
}

/// The operator's function, ready to be called.
pub(crate) struct CustomClaims {
    /// The compiled script.
    pub(crate) script: Script,
    /// What becomes of an exchange if it fails.
    pub(crate) on_error: OnError,
}

impl Service {
    /// Says how it will work: what was probably not meant, and who signs and verifies.
    pub fn introduce(&self, host: &dyn Host) {
        for warning in &self.config.warnings {
            host.warn(&format!("configuration: {warning}"));
        }
        let failures = Upstream::ALL.map(|upstream| metrics::callout_failed(upstream.name()));
        let has_etcd = matches!(self.store, Store::Etcd(_));
        let of_etcd = EtcdFailure::KINDS.map(metrics::store_failed).into_iter();
        let of_etcd = of_etcd.chain([metrics::SPEND_UNKNOWN.into()]);
        metrics::FROM_THE_START
            .map(Cow::from)
            .into_iter()
            .chain(failures)
            .chain(of_etcd.filter(|_| has_etcd))
            .for_each(|counter| host.define(counter));
        let crypto = self.crypto.as_ref();
        let algorithm = self.signing_key.algorithm();
        let native = crypto.is_some_and(|crypto| crypto.signs(algorithm));
        host.set(metrics::NATIVE_SIGNING, u64::from(native));
        if let Some(crypto) = crypto {
            host.info(&format!("signatures: {crypto}; the rest is done in the sandbox"));
        }
        if matches!(algorithm, Algorithm::Rs256 | Algorithm::Ps256) && !native {
            let slow = "holds a worker up for about 10 ms in the sandbox: prefer ES256 or EdDSA";
            host.warn(&format!("signing with {algorithm} {slow}"));
        }
    }

    /// Lets there be what must be there before anything is issued.
    pub fn begin(&self, host: &dyn Host) {
        if let Err(failure) = self.oversight.begin(host) {
            host.warn(&format!("revocations: {failure}; tried again in a moment"));
        }
    }

    /// Which route a request takes; `None` if it is not ours.
    pub fn route(&self, method: &impl Deref<Target: AsRef<[u8]>>, path: &[u8]) -> Option<Route> {
        self.paths.route(method, path)
    }

    /// What is due now that nobody waits for: key sets are fetched, gauges set.
    pub fn tick(self: &Rc<Self>, host: &Rc<dyn Host>) -> Vec<Step<()>> {
        self.begin(&**host);
        self.set_gauges(&**host);
        let fetch = |key_set: &Rc<RemoteKeySet>| {
            let key_set = Rc::clone(key_set);
            Task::start(Rc::clone(host), None, |context| async move {
                key_set.keep_fresh(&context).await;
            })
        };
        let mut steps: Vec<_> = self.remote_key_sets().map(fetch).collect();
        if self.store.counts(&**host) {
            let service = Rc::clone(self);
            steps.push(Task::start(Rc::clone(host), None, |context| async move {
                service.store.count(&context).await;
            }));
        }
        if self.oversight.counts(host.now()) {
            let service = Rc::clone(self);
            steps.push(Task::start(Rc::clone(host), None, |context| async move {
                service.oversight.count(&context).await;
            }));
        }
        steps
    }

    fn set_gauges(&self, host: &dyn Host) {
        let now = host.now();
        let waiting = now.since(self.configured_at);
        let ages = self.remote_key_sets().map(|key_set| key_set.age(now).unwrap_or(waiting));
        if let Some(age) = ages.max() {
            host.set(metrics::KEY_SET_AGE, age.as_secs());
        }
        self.store.set_gauges(host);
    }

    fn remote_key_sets(&self) -> impl Iterator<Item = &Rc<RemoteKeySet>> {
        let operators = self.oversight.remote_key_sets();
        self.callers.remote_key_sets().chain(self.actors.remote_key_sets()).chain(operators)
    }

    /// A context as the audit log gets it: not at all, unless the operator wants it, as it may hold
    /// personal data.
    pub(super) fn audited(&self, context: &str) -> Option<serde_json::Value> {
        if self.config.audit_context { serde_json::from_str(context).ok() } else { None }
    }
}
