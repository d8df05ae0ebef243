//! Revocations in etcd: a key for each, and one key that is written with all of them.
//!
//! A key's name follows from what is revoked, so that to revoke the same anew takes no more room. It hangs on a
//! lease that outlives whatever it ends.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::entry::{End, Learned, Revocation};
use super::shared::{Number, SharedTable};
use super::{NotRevoked, Revoked, Unknown};
use crate::etcd::calls::Attempts;
use crate::etcd::lease::Leases;
use crate::etcd::proto::{Answer as _, KeyValue, PutRequest, RangeRequest, TxnRequest};
use crate::etcd::{EtcdFailure, LastRevocation, Places, Revision, Server};
use crate::host::{Host, HostFailure, UnixTime};
use crate::secret::{Digest, namespace};
use crate::step::{Context, WhenCallerLeaves};
use crate::turn::Turn;
use crate::versioned;

/// A read waits this often, for this long. It changes nothing.
const READ: (u32, Duration) = (3, Duration::from_millis(400));

/// A write waits likewise: to write the same twice harms nobody.
const WRITE: (u32, Duration) = (4, Duration::from_millis(400));

/// How long the question for what is new is waited for, before it is asked anew.
const PATIENCE: Duration = Duration::from_millis(400);

/// How long the other VMs wait for the one that asks: a little over two ticks of the guard, so that one that died is
/// replaced within a second. That two ask at once for a moment harms nobody.
const TURN: Duration = Duration::from_millis(600);

/// Keys to a page, of some hundred bytes each.
const PAGE: i64 = 1000;

/// The format of a value.
const VERSION: u8 = 1;

/// etcd, as one worker sees it, and the copy that it shares with the others.
#[derive(Debug)]
pub(super) struct Etcd {
    server: Rc<Server>,
    places: Places,
    leases: Leases,
    retention: Duration,
    max_staleness: Duration,
    pub(super) copy: SharedTable,
    turn: Turn,
    /// Whether an answer is waited for.
    waits: Cell<bool>,
}

/// What a key holds.
#[derive(Serialize, Deserialize)]
struct Value {
    /// When it was revoked, in milliseconds since the epoch.
    at_millis: u64,
    /// How long it is to be kept, in milliseconds.
    retention_millis: u64,
    revocation: Revocation,
}

impl Etcd {
    pub(super) fn new(
        server: &Rc<Server>,
        tenant: &str,
        retention: Duration,
        max_staleness: Duration,
    ) -> Self {
        let places = Places::new(&server.prefix, &namespace(tenant));
        Self {
            server: Rc::clone(server),
            leases: Leases::new(&places.revocations, retention),
            places,
            retention,
            max_staleness,
            copy: SharedTable::copy(tenant),
            turn: Turn::default(),
            waits: Cell::default(),
        }
    }

    /// Whether a copy with this number was whole not too long ago.
    pub(super) fn is_current(&self, number: Number, now: UnixTime) -> Result<(), Unknown> {
        if number.confirmed_at == UnixTime::default() {
            Err(Unknown::NotYet)
        } else if number.confirmed_at.is_within(self.max_staleness, now) {
            Ok(())
        } else {
            Err(Unknown::Stale)
        }
    }

    /// Ends what `revocation` names and was issued until now.
    pub(super) async fn revoke(
        &self,
        context: &Context,
        revocation: &Revocation,
    ) -> Result<Revoked, NotRevoked> {
        let host = context.host();
        let before = host.now();
        let value = Value::new(before, self.retention, revocation);
        let bytes =
            versioned::encode(VERSION, &value).ok_or(HostFailure("memory for a revocation"))?;
        let lease = self.leases.id(before);
        let key = self.key(revocation);
        let txn = TxnRequest::default()
            .and_put(PutRequest { key, value: bytes, lease, ignore_lease: false })
            .and_put(PutRequest {
                key: self.places.last_revocation.clone().into_bytes(),
                ..PutRequest::default()
            });
        let attempts = self.server.attempts(host, WRITE);
        // Whoever asked for it may be gone: it is to be known here all the same.
        let go_on = WhenCallerLeaves::GoOn;
        let written =
            self.server.write(context, &txn, (&self.leases, lease), attempts, go_on).await;
        let answer = written.inspect_err(|failure| self.server.complain(host, *failure))?;
        let learned = value.learned(answer.revision());
        let overflowed = self.copy.learn(host, &[learned], None)?;
        Ok(Revoked { before, overflowed })
    }

    /// Lets the copy be whole. What etcd was at when it was.
    pub(super) async fn catch_up(
        &self,
        context: &Context,
        seen: Option<LastRevocation>,
    ) -> Result<Revision, Unknown> {
        let last = match seen {
            Some(last) => last,
            None => self.read_last(context, self.server.attempts(context.host(), READ)).await?,
        };
        self.learn_until(context, last).await?;
        Ok(last.seen_at)
    }

    /// Tells the operator of what is wrong with etcd.
    pub(super) fn complain(&self, host: &dyn Host, unknown: &Unknown) {
        // Of shared data whoever looks at the copy finds the same, and says so.
        if let Unknown::Etcd(failure) = unknown {
            self.server.complain(host, *failure);
        }
    }

    /// Whether this VM asks now.
    pub(super) fn follows(&self, host: &dyn Host) -> bool {
        let key = &self.places.last_revocation;
        let ours = self.turn.hold(host, key, TURN).unwrap_or(false);
        ours && !self.waits.get()
    }

    /// Asks once for what is new, and writes down that the copy is whole.
    pub(super) async fn follow(&self, context: &Context) {
        let host = context.host();
        self.waits.set(true);
        let asked_at = host.now();
        let followed = async {
            let once = Attempts::new(host, 1, PATIENCE, PATIENCE);
            let last = self.read_last(context, once).await?;
            self.learn_until(context, last).await?;
            self.copy.confirm(host, asked_at, last.seen_at)?;
            Ok(())
        };
        let followed: Result<(), Unknown> = followed.await;
        self.waits.set(false);
        if let Err(unknown) = followed {
            self.complain(host, &unknown);
        }
    }

    async fn read_last(
        &self,
        context: &Context,
        attempts: Attempts,
    ) -> Result<LastRevocation, Unknown> {
        let host = context.host();
        let request = RangeRequest::of(self.places.last_revocation.clone().into_bytes());
        // Read before it is asked: whatever was seen until then cannot be undone.
        let seen = self.copy.number(host)?.unwrap_or_default().seen;
        let answer = self.server.range(context, &request, attempts).await?;
        let last = LastRevocation::of(&answer, Some(&answer));
        if last.seen_at < seen {
            // From a backup, or from nothing.
            host.warn("etcd's revisions began anew: every impersonation until now has ended");
            self.copy.forget(host, last.seen_at)?;
        }
        Ok(last)
    }

    /// Reads all that the copy lacks of what was revoked until `last`.
    async fn learn_until(&self, context: &Context, last: LastRevocation) -> Result<(), Unknown> {
        let host = context.host();
        let complete_until = self.copy.number(host)?.unwrap_or_default().complete_until;
        if last.revision <= complete_until {
            return Ok(());
        }
        let mut request = RangeRequest {
            min_mod_revision: complete_until.as_i64().saturating_add(1),
            ..RangeRequest::below(&self.places.revocations, PAGE)
        };
        let mut learned = Vec::new();
        let mut until = None;
        loop {
            let page =
                self.server.range(context, &request, self.server.attempts(host, READ)).await?;
            // What is written while pages are read is new the next time.
            until = until.or(Some(page.revision()));
            learned.extend(page.kvs.iter().map(|kv| self.read_value(host, kv)));
            match page.kvs.last() {
                Some(last) if page.more => request = request.behind(&last.key),
                _ => break,
            }
        }
        self.copy.learn(host, &learned, until)?;
        Ok(())
    }

    /// What a key says. One that says nothing to this version may mean anybody.
    fn read_value(&self, host: &dyn Host, kv: &KeyValue) -> Learned {
        let revision = Revision::new(kv.mod_revision);
        match versioned::decode::<Value>(VERSION, &kv.value) {
            Some(value) => value.learned(revision),
            None => {
                self.server.complain(host, EtcdFailure::UnknownRecord);
                Value::new(host.now(), self.retention, &Revocation::default()).learned(revision)
            }
        }
    }

    fn key(&self, revocation: &Revocation) -> Vec<u8> {
        let named = postcard::to_allocvec(revocation).unwrap_or_default();
        Places::named(&self.places.revocations, &Digest::of(&named))
    }
}

impl Value {
    fn new(at: UnixTime, retention: Duration, revocation: &Revocation) -> Self {
        let retention_millis = u64::try_from(retention.as_millis()).unwrap_or(u64::MAX);
        Self { at_millis: at.millis(), retention_millis, revocation: revocation.clone() }
    }

    fn learned(self, revision: Revision) -> Learned {
        let Self { at_millis, retention_millis, revocation } = self;
        Learned {
            revocation,
            end: End { time: UnixTime::from_millis(at_millis), revision },
            retention: Duration::from_millis(retention_millis),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_of_revocations_panic(bytes: Vec<u8>) {
            let _ = versioned::decode::<Value>(VERSION, &bytes);
        }
    }
}
