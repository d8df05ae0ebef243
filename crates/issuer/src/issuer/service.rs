//! One configured service: the state that all requests of a worker share, and the background work.

use std::borrow::Cow;
use std::rc::Rc;
use std::time::Duration;

use super::documents::Documents;
use super::events::Inbox;
use super::issued_token::OwnTokens;
use super::oversight::Oversight;
use super::page::ConsolePage;
use crate::bearer::Verifier;
use crate::claims::{Authorizer, Script};
use crate::client::Clients;
use crate::config::{Config, OnError};
use crate::dpop::Proofs;
use crate::host::{Host, UnixTime};
use crate::jose::{Algorithm, SigningKey, TestedCrypto};
use crate::metrics;
use crate::notifications::Notifier;
use crate::state::mint_rate::MintCounter;
use crate::state::remote::RemoteFailure;
use crate::state::storage::Store;
use crate::step::{Step, Task};
use crate::upstream::{RemoteKeySet, Upstream};

/// The interval of the background work.
pub const TICK: Duration = Duration::from_secs(1);

/// A service that is ready to answer. Its caches live as long as the service does: a changed
/// configuration starts with empty caches, so nothing that was verified by the old rules counts as
/// verified by the new.
pub struct Service {
    /// The configuration, without the settings that the verifiers and `oversight` took over.
    pub(crate) config: Config,
    /// Outstanding and spent subject tokens.
    pub(crate) store: Store,
    /// The live impersonations and the revocations.
    pub(crate) oversight: Oversight,
    /// Counts the mints of each caller; `None` where they are not limited.
    pub(crate) mints: Option<MintCounter>,
    /// The discovery document and the key set.
    pub(crate) documents: Documents,
    /// The page of live impersonations; `None` if it is not configured.
    pub(super) page: Option<ConsolePage>,
    /// The banner of browser sessions; `None` if there are none.
    pub(super) banner: Option<&'static [u8]>,
    /// Signs access tokens.
    pub(crate) signing_key: SigningKey,
    /// The host's cryptography, as far as it passed the self-test; `None` where there is none.
    pub(crate) crypto: Option<Rc<TestedCrypto>>,
    /// Recognizes the access tokens that this service issued.
    pub(crate) own_tokens: OwnTokens,
    /// Authenticates clients.
    pub(crate) clients: Clients,
    /// Checks proofs of possession; `None` where no proof is read.
    pub(crate) proofs: Option<Rc<Proofs>>,
    /// Verifies the access tokens of callers, who mint.
    pub(crate) callers: Verifier,
    /// Verifies the access tokens of people who approve and of users who consent.
    pub(crate) people: Verifier,
    /// Verifies the access tokens of operators, who list and end impersonations.
    pub(crate) operators: Verifier,
    /// Tells the hooks what happens.
    pub(crate) notifier: Rc<Notifier>,
    /// Verifies the access tokens of actors.
    pub(crate) actors: Verifier,
    /// The logout tokens of identity gateways.
    pub(crate) logouts: Inbox,
    /// The security events of transmitters.
    pub(crate) security_events: Inbox,
    /// The operator's function that adds claims; `None` if it is not configured.
    pub(crate) custom_claims: Option<CustomClaims>,
    /// The operator's function that authorizes mints; `None` if it is not configured.
    pub(crate) authorizer: Option<Authorizer>,
    pub(super) configured_at: UnixTime,
}

/// The operator's function that adds claims to access tokens.
pub(crate) struct CustomClaims {
    /// The compiled script.
    pub(crate) script: Script,
    /// How an exchange continues if the function fails.
    pub(crate) on_error: OnError,
}

impl Service {
    /// Returns true if somebody may send events.
    pub(super) fn receives_events(&self) -> bool {
        self.logouts.senders.count() > 0 || self.security_events.senders.count() > 0
    }

    /// Logs the version, the warnings about the configuration, and who signs and verifies. Defines
    /// the counters.
    pub fn introduce(&self, host: &dyn Host) {
        host.info(concat!("impersonation-filter ", env!("CARGO_PKG_VERSION")));
        host.set(metrics::FILTER_BUILD, 1);
        for warning in &self.config.warnings {
            host.warn(&format!("configuration: {warning}"));
        }
        let failures = Upstream::ALL.map(|upstream| metrics::callout_failed(upstream.name()));
        let has_etcd = self.store.is_remote();
        let of_etcd = RemoteFailure::KINDS.map(metrics::store_failed).into_iter();
        let of_etcd = of_etcd.chain([metrics::SPEND_UNKNOWN.into()]);
        metrics::FROM_THE_START
            .map(Cow::from)
            .into_iter()
            .chain(failures)
            .chain(of_etcd.filter(|_| has_etcd))
            .chain(self.logouts.counters())
            .chain(self.security_events.counters())
            .for_each(|counter| host.define(counter));
        let crypto = self.crypto.as_ref();
        let algorithm = self.signing_key.algorithm();
        let native = crypto.is_some_and(|crypto| crypto.signs(algorithm));
        host.set(metrics::NATIVE_SIGNING, u64::from(native));
        if let Some(crypto) = crypto {
            host.info(&format!("signatures: {crypto}; the module computes all others"));
        }
        if matches!(algorithm, Algorithm::Rs256 | Algorithm::Ps256) && !native {
            let slow = "blocks a worker for about 10 ms in the sandbox: prefer ES256 or EdDSA";
            host.warn(&format!("signing with {algorithm} {slow}"));
        }
    }

    /// Creates the tables in shared data that issuing needs, if they are missing.
    pub fn create_tables(&self, host: &dyn Host) {
        if let Err(failure) = self.oversight.create_tables(host) {
            host.warn(&format!("revocations: {failure}; tried again in a moment"));
        }
    }

    /// Starts the background work that is due now: fetching key sets and documents, counting,
    /// setting gauges.
    pub fn tick(self: &Rc<Self>, host: &Rc<dyn Host>) -> Vec<Step<()>> {
        self.create_tables(&**host);
        self.set_gauges(&**host);
        let fetch = |key_set: &Rc<RemoteKeySet>| {
            let key_set = Rc::clone(key_set);
            Task::start(Rc::clone(host), None, |context| async move {
                key_set.keep_fresh(&context).await;
            })
        };
        let mut steps: Vec<_> = self.remote_key_sets().map(fetch).collect();
        for stand_in in self.documents.stand_ins() {
            let stand_in = Rc::clone(stand_in);
            steps.push(Task::start(Rc::clone(host), None, |context| async move {
                stand_in.keep_fresh(&context).await;
            }));
        }
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
        let endings = self.oversight.untold_endings();
        if !endings.is_empty() {
            let service = Rc::clone(self);
            steps.push(Task::start(Rc::clone(host), None, |context| async move {
                service.oversight.tell_of_endings(&context, endings).await;
            }));
        }
        steps.extend(self.notifier.tick(host));
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
        let operators = self.operators.remote_key_sets();
        let inboxes = [&self.logouts, &self.security_events].into_iter();
        let senders = inboxes.flat_map(|inbox| inbox.senders.remote_key_sets());
        let holders = self.callers.remote_key_sets().chain(self.actors.remote_key_sets());
        let people = self.people.remote_key_sets();
        let clients = self.clients.remote_key_sets();
        holders.chain(operators).chain(senders).chain(people).chain(clients)
    }

    /// The context as it appears in the audit log. It is left out unless the operator configured
    /// it, because it may hold personal data.
    pub(super) fn audited(&self, context: &str) -> Option<serde_json::Value> {
        if self.config.audit_context { serde_json::from_str(context).ok() } else { None }
    }
}
