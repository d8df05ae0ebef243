//! The guard: decides which requests of an impersonation reach an API.
//!
//! The guard runs behind `jwt_authn`, which has verified the token. Envoy enters it only for tokens
//! with `txn`, which are those that the filter issues, and for tokens that are bound to a key
//! (`cnf`). The guard checks only the proof of an ordinary user's bound token. For an impersonation
//! it checks each request in this order: are the claims those of a token of the filter, has the
//! token expired, has the impersonation ended, and do the operator's rules allow the request. If
//! the guard cannot know an answer, it refuses. A response that stays open is watched until it
//! ends, because the impersonation can end in the meantime.
//!
//! Before the hosts of browser sessions the guard lets only impersonations pass, each on its own
//! host, and only requests that a page of that host has caused.
//!
//! The guard reads the revocations for every request. [`revocations`](crate::state::revocations) has the
//! argument why no revoked impersonation passes. With etcd, one VM of each Envoy follows the
//! revocations for all VMs. If etcd has been out of touch for too long, nobody knows what was
//! revoked: new requests are refused, and open streams are ended.

mod claims;
mod elsewhere;
mod event;
mod possession;
mod refusal;
mod rules;
mod session;
mod streams;
mod told;

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use crate::audit_log::{self, AccessLogEntry};
use crate::config::{ConfigError, GuardConfig, GuardNonces, GuardStore, Mode, decode};
use crate::dpop::{KeysOfHost, Nonces, Proofs, RequestOrigin};
use crate::host::{Host, UnixTime};
use crate::http_stream::{Flow, HttpRequest};
use crate::jose::{NativeCrypto, host_verifies};
use crate::metrics;
use crate::path::{NormalPath, without_query};
use crate::state::remote::RemoteFailure;
use crate::state::revocations::{FOLLOWED_EVERY, Mark, Unknown, View};
use crate::state::shared_data::SharedSecret;
use crate::state::storage::{Revocations, open_for_guard};
use crate::step::{Step, StreamAction, StreamEvent, Task};

use claims::{Binding, Claims, NoClaims, Token};
use event::{GuardEvent, RefusedCall};
use possession::KeyCheck;
use refusal::GuardRefusal;
use rules::{Decider, RequestFacts, RequestMethod};
use session::{HostOfSession, NotOfSession};
use streams::{Streams, Watched};
use told::ToldHeaders;

/// How often the guard checks open streams, and asks etcd while it has no watch. The period is
/// short enough that an impersonation that another Envoy ended is gone within a second, even on a
/// busy machine.
pub const TICK: Duration = FOLLOWED_EVERY;

/// The configured guard in one worker.
pub struct Guard {
    config: GuardConfig,
    revocations: Revocations,
    keys: KeyCheck,
    streams: RefCell<Streams>,
    /// The revocations that the open streams were last checked against.
    held_against: RefCell<Option<Rc<View>>>,
    /// The time up to which this guard knows the revocations. Before it knows any, the time of the
    /// configuration.
    known_as_of: Cell<UnixTime>,
    /// The number of requests that are not yet in the counter.
    seen: Cell<u64>,
}

impl Guard {
    /// Reads a configuration from the bytes that Envoy hands the plugin. `variable` looks up an
    /// environment variable. `native` is the host's cryptography. It verifies proofs, as far as it
    /// passes a self-test.
    pub fn configure(
        bytes: &[u8],
        now: UnixTime,
        variable: &dyn Fn(&str) -> Option<String>,
        native: impl FnOnce() -> Option<Box<dyn NativeCrypto>>,
    ) -> Result<Self, ConfigError> {
        let mut config = GuardConfig::with_variables(&decode(bytes)?, variable)?;
        let nonces = config.nonces.take();
        let origin = config.public_origin.as_deref().and_then(RequestOrigin::of);
        // A host that cannot verify signatures leaves the guard without proofs: it refuses then.
        let proofs = origin.and_then(|origin| {
            let host = native().filter(|host| host_verifies(&**host))?;
            let tenant = config.tenant();
            let nonces = nonces.map(|nonces| match nonces {
                GuardNonces::OfThisEnvoy => {
                    Nonces::OfThisEnvoy(SharedSecret::new(&tenant, "guard-nonces"))
                }
                GuardNonces::Of(key) => Nonces::Of(vec![key]),
            });
            Some(Proofs::new(origin, KeysOfHost(host), nonces, (&tenant, "dpop-api")))
        });
        Ok(Self {
            revocations: open_for_guard(&config),
            keys: KeyCheck { proofs, certificates: config.certificates },
            config,
            streams: RefCell::default(),
            held_against: RefCell::default(),
            known_as_of: Cell::new(now),
            seen: Cell::default(),
        })
    }

    /// Logs the version and the configuration's warnings, and defines the counters.
    pub fn introduce(&self, host: &dyn Host) {
        host.info(concat!("impersonation-guard ", env!("CARGO_PKG_VERSION")));
        host.set(metrics::GUARD_BUILD, 1);
        for warning in &self.config.warnings {
            host.warn(&format!("configuration: {warning}"));
        }
        if self.config.public_origin.is_some() && self.keys.proofs.is_none() {
            host.warn(
                "the host verifies no signatures: tokens that are bound by a proof are refused",
            );
        }
        if self.config.mode == Mode::Report {
            host.warn("mode report: no request of an impersonation is refused");
        }
        host.define(metrics::GUARD_SEEN.into());
        host.define(metrics::GUARD_STREAMS_ENDED.into());
        for reason in GuardRefusal::REASONS {
            host.define(self.counter(reason));
        }
        if matches!(self.config.store, GuardStore::Etcd { .. }) {
            RemoteFailure::KINDS
                .map(metrics::store_failed)
                .into_iter()
                .for_each(|kind| host.define(kind));
        }
    }

    /// Decides about a request when its header fields have arrived. `stream` identifies the request
    /// until [`on_end`](Self::on_end).
    pub fn on_request_headers(
        &self,
        host: &dyn Host,
        request: &dyn HttpRequest,
        stream: u32,
    ) -> Flow {
        self.seen.set(self.seen.get().saturating_add(1));
        let mut told = ToldHeaders::new(&self.config.headers);
        let mut watched = Watched::read(request, &mut |name| told.see(name));
        let sessions = self.config.browser_session.as_ref();
        let session = sessions.map(|sessions| HostOfSession::read(sessions, request));
        let (claims, outcome) = match self.token(&watched.metadata) {
            Ok(Token::Impersonation(claims)) => {
                (Some(claims), self.look(host, request, &watched, session.as_ref(), &claims))
            }
            Ok(Token::Bound(_)) if session.is_some() => {
                (None, Err(GuardRefusal::NotOfSession(NotOfSession::AnotherToken)))
            }
            Ok(Token::Bound(binding)) => {
                return self.on_ordinary_request(host, request, &watched, binding, &told);
            }
            Err(none) => (None, Err(GuardRefusal::NoClaims(none))),
        };
        let expires_at = match outcome {
            Ok(decider) => {
                request.set_filter_state("guard", &format!("allowed: {decider}"));
                claims.map(|claims| claims.expires_at)
            }
            Err(refusal) => {
                if !self.refuse(host, request, &watched, claims.as_ref(), &refusal) {
                    return Flow::Pause;
                }
                // `enforce` would have no stream whose expiry could be counted.
                None
            }
        };
        told.tell(request, claims.as_ref());
        if let Some(session) = session {
            session.hide_token(request);
        }
        watched.expires_at = expires_at;
        self.streams.borrow_mut().watch(stream, watched);
        Flow::Continue
    }

    /// Forgets a stream that has ended.
    pub fn on_end(&self, stream: u32) {
        self.streams.borrow_mut().forget(stream);
    }

    /// Ends the open streams of impersonations that have ended or expired. `act_for` makes
    /// `request` refer to the given stream.
    pub fn on_tick(&self, host: &dyn Host, request: &dyn HttpRequest, act_for: &dyn Fn(u32)) {
        // Requests are added to the counter here, to keep the request path fast.
        host.add(metrics::GUARD_SEEN, self.seen.take());
        let now = host.now();
        let expired = self.streams.borrow_mut().take_expired(now);
        self.end_streams(host, request, act_for, expired, &GuardRefusal::ExpiredWhileOpen);
        match self.revocations.recent_view(host) {
            Ok(known) => {
                let last = self.held_against.replace(Some(Rc::clone(&known)));
                if !last.is_some_and(|last| Rc::ptr_eq(&last, &known)) {
                    let ended = self.take_streams(&|claims| has_ended(&known, claims));
                    self.end_streams(host, request, act_for, ended, &GuardRefusal::EndedWhileOpen);
                }
            }
            // The VM could not read shared data. New requests are refused for this reason.
            Err(Unknown::Host(_)) => {}
            Err(Unknown::Remote(_) | Unknown::NotYet | Unknown::Stale) => {
                self.held_against.take();
                let all = self.take_streams(&|_| true);
                self.end_streams(host, request, act_for, all, &GuardRefusal::StaleWhileOpen);
            }
        }
        if let Ok(Some(as_of)) = self.revocations.confirmed_at(host) {
            self.known_as_of.set(as_of);
        }
        host.set(metrics::GUARD_AGE, now.since(self.known_as_of.get()).as_secs());
    }

    /// Returns the action on this VM's stream that is due at a tick: one VM watches the revocations
    /// in etcd.
    pub fn tend_watch(&self, host: &dyn Host) -> Option<StreamAction> {
        self.revocations.tend_watch(host)
    }

    /// Takes what happened on this VM's stream.
    pub fn on_watch(&self, host: &dyn Host, event: &StreamEvent) {
        self.revocations.on_watch(host, event);
    }

    /// Asks etcd for new revocations if this VM is the one that follows them, and no watch takes
    /// the place of the question.
    pub fn follow(self: &Rc<Self>, host: &Rc<dyn Host>) -> Option<Step<()>> {
        let follows = self.revocations.follows(&**host);
        let guard = Rc::clone(self);
        follows.then(|| {
            Task::start(Rc::clone(host), None, |context| async move {
                guard.revocations.follow(&context).await;
            })
        })
    }

    /// Takes the open streams whose claims satisfy `is_meant` out of the watched ones.
    fn take_streams(&self, is_meant: &dyn Fn(&Claims<'_>) -> bool) -> Vec<(u32, Watched)> {
        let is_meant = |watched: &Watched| {
            self.claims(&watched.metadata).is_ok_and(|claims| is_meant(&claims))
        };
        self.streams.borrow_mut().take(is_meant)
    }

    /// Ends open streams. They were taken out before, because answering a stream may call back into
    /// the guard.
    fn end_streams(
        &self,
        host: &dyn Host,
        request: &dyn HttpRequest,
        act_for: &dyn Fn(u32),
        streams: Vec<(u32, Watched)>,
        because: &GuardRefusal,
    ) {
        for (stream, watched) in streams {
            act_for(stream);
            let claims = self.claims(&watched.metadata).ok();
            host.count(metrics::GUARD_STREAMS_ENDED.into());
            self.refuse(host, request, &watched, claims.as_ref(), because);
        }
    }

    fn token<'m>(&self, metadata: &'m [u8]) -> Result<Token<'m>, NoClaims> {
        Token::read(metadata, &self.config.payload_in_metadata, &self.config.issuer)
    }

    fn claims<'m>(&self, metadata: &'m [u8]) -> Result<Claims<'m>, NoClaims> {
        Claims::read(metadata, &self.config.payload_in_metadata, &self.config.issuer)
    }

    /// Decides about a request with an ordinary user's token that is bound to a key. The audit log
    /// is about impersonations, so a refusal is in the metrics and in the access log only.
    fn on_ordinary_request(
        &self,
        host: &dyn Host,
        request: &dyn HttpRequest,
        watched: &Watched,
        binding: Binding,
        told: &ToldHeaders<'_>,
    ) -> Flow {
        let held = self.keys.check(host, request, watched, binding);
        if let Err(not_held) = held {
            let refusal = GuardRefusal::NotHeld(not_held);
            let outcome = if self.config.mode == Mode::Enforce { "refused" } else { "reported" };
            request.set_filter_state("guard", &format!("{outcome}: {}", refusal.reason()));
            if !self.turn_away(host, request, &refusal) {
                return Flow::Pause;
            }
        } else {
            request.set_filter_state("guard", "allowed: key");
        }
        told.tell(request, None);
        Flow::Continue
    }

    /// Decides if a request goes on. Both results name what decided.
    fn look(
        &self,
        host: &dyn Host,
        request: &dyn HttpRequest,
        watched: &Watched,
        session: Option<&HostOfSession<'_>>,
        claims: &Claims<'_>,
    ) -> Result<Decider, GuardRefusal> {
        if let Some(session) = session {
            session.check_token(claims).map_err(GuardRefusal::NotOfSession)?;
        }
        // The guard allows no leeway: nothing that has expired is in the list of impersonations.
        if claims.expires_at <= host.now() {
            return Err(GuardRefusal::Expired);
        }
        // Without its key a token is worth nothing, not even an answer about its impersonation.
        self.keys.check(host, request, watched, claims.binding).map_err(GuardRefusal::NotHeld)?;
        let known = self.revocations.recent_view(host).map_err(GuardRefusal::Unknown)?;
        if has_ended(&known, claims) {
            return Err(GuardRefusal::Ended);
        }
        if let Some(session) = session {
            session.check_origin(watched).map_err(GuardRefusal::NotOfSession)?;
        }
        let target = without_query(&watched.target);
        let path = if watched.names_a_path { None } else { NormalPath::parse(target) };
        let method = if watched.names_a_method {
            RequestMethod::Overridden
        } else {
            RequestMethod::Plain(watched.method())
        };
        let facts = RequestFacts { path: path.as_ref(), method, claims, now: host.now() };
        match rules::decide(&self.config, facts) {
            (Ok(()), decider) => Ok(decider),
            (Err(denied), decider) => Err(GuardRefusal::Denied(denied, decider)),
        }
    }

    /// Refuses a request of an impersonation. Returns true if the request goes on.
    fn refuse(
        &self,
        host: &dyn Host,
        request: &dyn HttpRequest,
        watched: &Watched,
        claims: Option<&Claims<'_>>,
        refusal: &GuardRefusal,
    ) -> bool {
        let enforced = self.config.mode == Mode::Enforce;
        let happening = RefusedCall { watched, claims, refusal, enforced };
        let event = GuardEvent::of(&happening);
        request.set_filter_state("guard", event.guard());
        // In report mode the stream goes on: the event of its end must not replace that of its
        // beginning.
        let entry = if enforced || !refusal.is_of_an_open_stream() {
            AccessLogEntry::Open
        } else {
            AccessLogEntry::TakesMembers
        };
        let log = self.config.audit_log;
        audit_log::write(log, host, request, entry, &event.to_json(), event.members());
        self.turn_away(host, request, refusal)
    }

    /// Counts a refusal and answers, unless the mode is `report`. Returns true if the request goes
    /// on.
    fn turn_away(
        &self,
        host: &dyn Host,
        request: &dyn HttpRequest,
        refusal: &GuardRefusal,
    ) -> bool {
        host.count(self.counter(refusal.reason()));
        // The VM that asks etcd logs its failures. Do not log them again for each request.
        if let GuardRefusal::Unknown(unknown @ Unknown::Host(_)) = refusal {
            host.warn(&format!("revocations are not known: {unknown}"));
        }
        if self.config.mode == Mode::Enforce {
            let nonce = refusal.asks_for_proof().then(|| self.keys.nonce(host)).flatten();
            refusal.respond(request, nonce);
            return false;
        }
        true
    }

    fn counter(&self, reason: &'static str) -> Cow<'static, str> {
        match self.config.mode {
            Mode::Enforce => metrics::guard_refused(reason),
            Mode::Report => metrics::guard_reported(reason),
        }
    }
}

fn has_ended(known: &View, claims: &Claims<'_>) -> bool {
    let mark = Mark::read(claims.jti, claims.issued_at);
    known.has_ended(&claims.impersonation(&mark), mark.issued)
}
