//! The guard: which requests of an impersonation reach an API.
//!
//! It stands behind `jwt_authn`, which has verified the token, and is entered only for tokens with `txn`: those that
//! the filter issues. Of each request it asks, in this order, whether the claims are the filter's, whether the
//! impersonation has ended, and whether the operator's rules let this request of it through. Whatever cannot be known
//! is a refusal. A response that goes on and on is watched until it ends: what was good when it began can have ended
//! since.
//!
//! Revocations are read anew for every request. The argument that nothing passes that was revoked before is
//! [`revocations`](crate::revocations)'s. Where they are in etcd, one VM of each Envoy follows it, for all of them;
//! when it has not been heard of for too long nobody knows what was revoked, and what is open ends as well.

mod claims;
mod elsewhere;
mod event;
mod refusal;
mod rules;
mod streams;
mod told;

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use crate::config::{AuditLog, ConfigError, GuardConfig, GuardStore, Mode, decode};
use crate::etcd::{RecordKeys, Server};
use crate::host::{Host, Level, UnixTime};
use crate::http_stream::Flow;
use crate::metrics;
use crate::path::{NormalPath, without_query};
use crate::remote::RemoteFailure;
use crate::revocations::{Mark, Unknown, View};
use crate::step::{Step, Task};
use crate::storage::Revocations;

use claims::{Claims, NoClaims};
use event::{Event, Happening};
use refusal::Refusal;
use rules::{Asked, Decider, Method};
use streams::{Streams, Watched};
use told::Told;

/// How often open streams are looked at, and etcd is asked: what was ended by another Envoy is gone within a second on
/// a busy machine too.
pub const TICK: Duration = Duration::from_millis(250);

/// A request on its way to an API, as it passes Envoy.
pub trait ApiRequest {
    /// All that the filters before have left: an `envoy.config.core.v3.Metadata`. Empty where there is none.
    fn metadata(&self) -> Vec<u8>;

    /// Shows the name and the value of each header field, names in small letters.
    fn visit_headers(&self, see: &mut dyn FnMut(&[u8], &[u8]));

    /// Replaces a header field.
    fn set_header(&self, name: &str, value: &str);

    /// Takes a header field away.
    fn remove_header(&self, name: &str);

    /// Answers, in the place of the API; what has begun already is cut off. `details` is why, for the access log.
    fn respond(&self, status: u16, headers: &[(&str, &[u8])], body: &[u8], details: &str);

    /// Says something about the request that an access log can print.
    fn set_filter_state(&self, name: &str, value: &str);
}

/// The guard, configured, in one worker.
#[derive(Debug)]
pub struct Guard {
    config: GuardConfig,
    revocations: Revocations,
    streams: RefCell<Streams>,
    /// What the open streams were held against last.
    held_against: RefCell<Option<Rc<View>>>,
    /// Of when what is known of the revocations is; until something is, of the beginning.
    known_as_of: Cell<UnixTime>,
    /// Requests that were looked at and are not counted yet.
    seen: Cell<u64>,
}

impl Guard {
    /// Reads a configuration as it arrives in a plugin.
    pub fn configure(bytes: &[u8], now: UnixTime) -> Result<Self, ConfigError> {
        let config = GuardConfig::from_value(&decode(bytes)?)?;
        let tenant = config.tenant();
        let revocations = match &config.store {
            GuardStore::SharedData => Revocations::shared_data(&tenant),
            GuardStore::Etcd { settings, max_staleness } => {
                let server = Rc::new(Server::new(settings, RecordKeys::default()));
                Revocations::etcd(&server, &tenant, *max_staleness)
            }
        };
        Ok(Self {
            config,
            revocations,
            streams: RefCell::default(),
            held_against: RefCell::default(),
            known_as_of: Cell::new(now),
            seen: Cell::default(),
        })
    }

    /// Says how it will work: what was probably not meant, and what is counted.
    pub fn introduce(&self, host: &dyn Host) {
        for warning in &self.config.warnings {
            host.warn(&format!("configuration: {warning}"));
        }
        if self.config.mode == Mode::Report {
            host.warn("mode report: no request of an impersonation is refused");
        }
        host.define(metrics::GUARD_SEEN.into());
        host.define(metrics::GUARD_STREAMS_ENDED.into());
        for reason in Refusal::REASONS {
            host.define(self.counter(reason));
        }
        if matches!(self.config.store, GuardStore::Etcd { .. }) {
            RemoteFailure::KINDS
                .map(metrics::store_failed)
                .into_iter()
                .for_each(|kind| host.define(kind));
        }
    }

    /// A request's header fields are there. `stream` names it until [`on_end`](Self::on_end).
    pub fn on_request_headers(
        &self,
        host: &dyn Host,
        request: &dyn ApiRequest,
        stream: u32,
    ) -> Flow {
        self.seen.set(self.seen.get().saturating_add(1));
        let mut told = Told::new(&self.config.headers);
        let watched = Watched::read(request, &mut |name| told.see(name));
        let claims = self.claims(&watched.metadata);
        let outcome = match &claims {
            Ok(claims) => self.look(host, &watched, claims),
            Err(none) => Err(Refusal::NoClaims(*none)),
        };
        let claims = claims.ok();
        let goes_on = match outcome {
            Ok(decider) => {
                request.set_filter_state("guard", &format!("allowed: {decider}"));
                true
            }
            Err(refusal) => self.refuse(host, request, &watched, claims.as_ref(), &refusal),
        };
        if !goes_on {
            return Flow::Pause;
        }
        told.tell(request, claims.as_ref());
        self.streams.borrow_mut().begin(stream, watched);
        Flow::Continue
    }

    /// A stream is over.
    pub fn on_end(&self, stream: u32) {
        self.streams.borrow_mut().end(stream);
    }

    /// Ends the streams of impersonations that have ended since they began. `act_for` makes `request` be that of a
    /// stream.
    pub fn on_tick(&self, host: &dyn Host, request: &dyn ApiRequest, act_for: &dyn Fn(u32)) {
        // Counted here, as a request has no time for it.
        host.add(metrics::GUARD_SEEN, self.seen.take());
        let now = host.now();
        match self.revocations.recent_view(host) {
            Ok(known) => {
                let last = self.held_against.replace(Some(Rc::clone(&known)));
                if !last.is_some_and(|last| Rc::ptr_eq(&last, &known)) {
                    let ended = |claims: &Claims<'_>| has_ended(&known, claims);
                    self.end_streams(host, request, act_for, &ended, &Refusal::EndedWhileOpen);
                }
            }
            // Nothing new is known. The requests that come now are refused for it.
            Err(Unknown::Host(_)) => {}
            Err(Unknown::Remote(_) | Unknown::NotYet | Unknown::Stale) => {
                self.held_against.take();
                self.end_streams(host, request, act_for, &|_| true, &Refusal::StaleWhileOpen);
            }
        }
        if let Ok(Some(as_of)) = self.revocations.confirmed_at(host) {
            self.known_as_of.set(as_of);
        }
        host.set(metrics::GUARD_AGE, now.since(self.known_as_of.get()).as_secs());
    }

    /// What is due now besides, and takes a round trip: to ask etcd what was revoked, where this VM is the one that
    /// does.
    pub fn follow(self: &Rc<Self>, host: &Rc<dyn Host>) -> Option<Step<()>> {
        let follows = self.revocations.follows(&**host);
        let guard = Rc::clone(self);
        follows.then(|| {
            Task::start(Rc::clone(host), None, |context| async move {
                guard.revocations.follow(&context).await;
            })
        })
    }

    /// Ends the streams of which this holds.
    fn end_streams(
        &self,
        host: &dyn Host,
        request: &dyn ApiRequest,
        act_for: &dyn Fn(u32),
        is_meant: &dyn Fn(&Claims<'_>) -> bool,
        because: &Refusal,
    ) {
        let is_meant = |watched: &Watched| {
            self.claims(&watched.metadata).is_ok_and(|claims| is_meant(&claims))
        };
        // Taken out, and let go of: what is done to a stream may call back here.
        let ended = self.streams.borrow_mut().take(is_meant);
        for (stream, watched) in ended {
            act_for(stream);
            let claims = self.claims(&watched.metadata).ok();
            host.count(metrics::GUARD_STREAMS_ENDED.into());
            self.refuse(host, request, &watched, claims.as_ref(), because);
        }
    }

    fn claims<'m>(&self, metadata: &'m [u8]) -> Result<Claims<'m>, NoClaims> {
        Claims::read(metadata, &self.config.payload_in_metadata, &self.config.issuer)
    }

    /// Whether a request goes on, and what says so.
    fn look(
        &self,
        host: &dyn Host,
        watched: &Watched,
        claims: &Claims<'_>,
    ) -> Result<Decider, Refusal> {
        let known = self.revocations.recent_view(host).map_err(Refusal::Unknown)?;
        if has_ended(&known, claims) {
            return Err(Refusal::Ended);
        }
        let target = without_query(&watched.target);
        let path = if watched.names_a_path { None } else { NormalPath::parse(target) };
        let method = if watched.names_a_method {
            Method::Overridden
        } else {
            Method::Plain(watched.method())
        };
        let asked = Asked { path: path.as_ref(), method, claims };
        match rules::decide(&self.config, asked) {
            (Ok(()), decider) => Ok(decider),
            (Err(denied), decider) => Err(Refusal::Denied(denied, decider)),
        }
    }

    /// Refuses a request, if anything is refused here. Whether it goes on all the same.
    fn refuse(
        &self,
        host: &dyn Host,
        request: &dyn ApiRequest,
        watched: &Watched,
        claims: Option<&Claims<'_>>,
        refusal: &Refusal,
    ) -> bool {
        let enforced = self.config.mode == Mode::Enforce;
        let happening = Happening { watched, claims, refusal, enforced };
        let event = Event::of(&happening);
        request.set_filter_state("guard", event.guard());
        match self.config.audit_log {
            // A report about an open stream must not replace the report of when it began.
            AuditLog::AccessLog if enforced || !refusal.is_of_an_open_stream() => {
                request.set_filter_state("audit", &event.to_json());
            }
            AuditLog::AccessLog | AuditLog::Envoy => host.log(Level::Info, &event.to_json()),
            AuditLog::Both => {
                host.log(Level::Info, &event.to_json());
                for (name, value) in event.members() {
                    request.set_filter_state(name, value);
                }
            }
        }
        host.count(self.counter(refusal.reason()));
        // What is wrong with etcd is said by who asks it, and not for each request.
        if let Refusal::Unknown(unknown @ Unknown::Host(_)) = refusal {
            host.warn(&format!("revocations are not known: {unknown}"));
        }
        if enforced {
            refusal.respond(request);
        }
        !enforced
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
