//! Revocations in etcd: a key for each, and one key that is written with every revocation.
//!
//! The key of an operator's revocation is derived from the members that it names, so revoking the
//! same again takes no more room. The keys of a caller or a client are below one key of its own, in
//! the order of time. When its share is used up, one transaction deletes the older half and makes
//! that one key its cut-off. Each key is on a lease that outlives every token that the revocation
//! ends. Events have keys of their own: see [`events`].

mod counted;
mod events;
mod following;
mod watch;

use std::cell::{Cell, OnceCell};
use std::rc::Rc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::calls::Attempts;
use super::lease::Leases;
use super::proto::{EtcdResponse as _, KeyValue, PutRequest, RangeRequest, TxnRequest};
use super::{Places, Server};
use crate::host::{Host, HostFailure, UnixTime};
use crate::secret::{Digest, namespace};
use crate::state::local::{LocalTable, Number};
use crate::state::remote::{LastRevocation, RemoteFailure, Revision};
use crate::state::revocations::{
    CaughtUp, End, Happened, LastView, Learned, NotRevoked, Order, Overflow, Owner, RETENTION,
    Revocation, Revoked, Unknown, View, end_at_revision,
};
use crate::state::shared_data::Turn;
use crate::state::shared_data::keys::Keys;
use crate::state::versioned;
use crate::step::{Context, WhenCallerLeaves};

use watch::Watch;

/// The attempts of a read, and the time for each. A read changes nothing.
const READ: (u32, Duration) = (3, Duration::from_millis(400));

/// The attempts of a write, and the time for each. Writing the same revocation twice does no harm.
const WRITE: (u32, Duration) = (4, Duration::from_millis(400));

/// The number of keys in a page: 700 kB with the longest names that are accepted, of 255 characters
/// with four bytes each.
const PAGE: i64 = 128;

/// The format of a value.
const VERSION: u8 = 5;

/// The revocations in etcd, as one worker sees them, and the copy of them that all workers share.
#[derive(Debug)]
pub(crate) struct EtcdRevocations {
    server: Rc<Server>,
    places: Places,
    leases: Leases,
    /// The leases of events, once this VM was told of one.
    event_leases: OnceCell<Leases>,
    max_staleness: Duration,
    copy: LocalTable,
    last: LastView,
    turn: Turn,
    /// The key of the lease of the VM that asks etcd.
    turn_key: String,
    /// True while a question is under way.
    waits: Cell<bool>,
    watch: Watch,
}

/// The value of a key.
#[derive(Serialize, Deserialize)]
struct Value {
    /// The time of the revocation, in milliseconds since the epoch.
    at_millis: u64,
    revocation: Revocation,
    /// The owner whose share the revocation takes room in.
    owner: Option<Owner>,
    /// The time and revision until which it ends what it names, if they are not those of the write.
    until: Option<(u64, i64)>,
    /// The event that made the revocation, if one did.
    event: Option<Happened>,
}

impl EtcdRevocations {
    pub(crate) fn new(server: &Rc<Server>, tenant: &str, max_staleness: Duration) -> Self {
        let places = Places::new(&server.prefix, &namespace(tenant));
        Self {
            server: Rc::clone(server),
            leases: Leases::new(&places.leases, RETENTION),
            event_leases: OnceCell::new(),
            places,
            max_staleness,
            copy: LocalTable::copy(tenant),
            last: LastView::new(Order::Revisions),
            turn: Turn::default(),
            turn_key: Keys::new(tenant).revocations_follower(),
            waits: Cell::default(),
            watch: Watch::default(),
        }
    }

    pub(crate) fn recent_view(&self, host: &dyn Host) -> Result<Rc<View>, Unknown> {
        let number = self.copy.number(host)?.unwrap_or_default();
        self.check_is_recent(number, host.now())?;
        self.view(host, number)
    }

    pub(crate) fn local_view(&self, host: &dyn Host) -> Result<Rc<View>, Unknown> {
        self.view(host, self.copy.number(host)?.unwrap_or_default())
    }

    fn view(&self, host: &dyn Host, number: Number) -> Result<Rc<View>, Unknown> {
        let last = self.last.get();
        // Before the first revocation there is a number without a table.
        let copy = number.has_table().then(|| self.copy.table(host, number, last.table.as_ref()));
        Ok(self.last.of(copy.transpose()?))
    }

    /// Refuses a copy that etcd has not confirmed for too long.
    fn check_is_recent(&self, number: Number, now: UnixTime) -> Result<(), Unknown> {
        if number.confirmed_at == UnixTime::default() {
            Err(Unknown::NotYet)
        } else if number.confirmed_at.is_within(self.max_staleness, now) {
            Ok(())
        } else {
            Err(Unknown::Stale)
        }
    }

    pub(crate) fn confirmed_at(&self, host: &dyn Host) -> Result<Option<UnixTime>, HostFailure> {
        let confirmed_at = self.copy.number(host)?.unwrap_or_default().confirmed_at;
        Ok((confirmed_at != UnixTime::default()).then_some(confirmed_at))
    }

    /// Asks etcd for the last revocation, unless the caller has read it, and reads all that the
    /// copy lacks.
    pub(crate) async fn catch_up(
        &self,
        context: &Context,
        last: Option<LastRevocation>,
    ) -> Result<CaughtUp, Unknown> {
        let caught_up = self.try_catch_up(context, last).await;
        caught_up.inspect_err(|unknown| self.complain(context.host(), unknown))
    }

    async fn try_catch_up(
        &self,
        context: &Context,
        last: Option<LastRevocation>,
    ) -> Result<CaughtUp, Unknown> {
        let last = match last {
            Some(last) => last,
            None => self.read_last(context, self.server.attempts(context.host(), READ)).await?,
        };
        self.learn_until(context, last).await?;
        Ok(CaughtUp(last.seen_at))
    }

    /// The number of revocations. A failure is not logged: no request waits for the count.
    pub(crate) async fn count(&self, context: &Context) -> Option<usize> {
        self.try_catch_up(context, None).await.ok()?;
        self.compare(context).await;
        Some(self.local_view(context.host()).ok()?.len())
    }

    pub(crate) async fn revoke(
        &self,
        context: &Context,
        revocation: &Revocation,
        owner: Option<&Owner>,
    ) -> Result<Revoked, NotRevoked> {
        let revoked = self.try_revoke(context, revocation, owner).await;
        if let Err(NotRevoked::Remote(failure)) = &revoked {
            self.server.complain(context.host(), *failure);
        }
        revoked
    }

    async fn try_revoke(
        &self,
        context: &Context,
        revocation: &Revocation,
        owner: Option<&Owner>,
    ) -> Result<Revoked, NotRevoked> {
        let host = context.host();
        let cut_off = match owner {
            Some(owner) => self.cut_off_for_room(context, owner).await?,
            None => None,
        };
        let before = host.now();
        let value = Value {
            at_millis: before.millis(),
            revocation: revocation.clone(),
            owner: owner.cloned(),
            until: None,
            event: None,
        };
        let keys = owner.map(|owner| OwnersKeys::new(&self.places, owner));
        let key = match &keys {
            Some(keys) => keys.of(before, revocation),
            None => self.key(revocation),
        };
        let bytes = encode(&value)?;
        // The deleted keys must not include the new revocation.
        let cut_off = cut_off.filter(|cut_off| cut_off.end.time < before);
        let making_room = cut_off.as_ref().zip(keys.as_ref()).map(|(cut_off, keys)| {
            let CutOff { owner, end, seen } = cut_off;
            let value = Value {
                at_millis: before.millis(),
                revocation: owner.everything(),
                owner: Some(owner.clone()),
                until: Some((end.time.millis(), end.revision.as_i64())),
                event: None,
            };
            Ok::<_, HostFailure>((keys, *end, *seen, encode(&value)?))
        });
        let making_room = making_room.transpose()?;
        let mut txn = |lease| {
            let mut txn = TxnRequest::default();
            if let Some((keys, end, seen, value)) = &making_room {
                let (first, behind) = keys.until(end.time);
                let put = PutRequest { key: keys.cut_off(), value: value.clone(), lease };
                txn = txn.only_if_still_at(keys.cut_off(), *seen).and_put(put).and_delete(
                    first,
                    behind,
                    end.revision.as_i64(),
                );
            }
            Ok(txn
                .and_put_anyway(PutRequest { key: key.clone(), value: bytes.clone(), lease })
                .and_put_anyway(self.put_last()))
        };
        let attempts = self.server.attempts(host, WRITE);
        // The caller may have left, but this Envoy has to know the revocation.
        let go_on = WhenCallerLeaves::GoOn;
        let answer = self.server.write(context, &self.leases, &mut txn, attempts, go_on).await?;
        let mut learned = vec![value.learned(answer.revision())];
        let cut_off = cut_off.filter(|_| answer.succeeded);
        let overflow = cut_off.as_ref().map(|_| Overflow::Share);
        learned.extend(cut_off.map(|CutOff { owner, end, .. }| Learned {
            revocation: owner.everything(),
            end,
            owner: Some(owner),
            event: None,
        }));
        let overflow = overflow.max(self.copy.learn(host, &learned, None)?);
        Ok(Revoked { before, overflow })
    }

    /// The new cut-off of an owner whose share is used up: it ends the older half, whose keys are
    /// deleted.
    async fn cut_off_for_room(
        &self,
        context: &Context,
        owner: &Owner,
    ) -> Result<Option<CutOff>, NotRevoked> {
        let host = context.host();
        let Some(end) = self.copy.whole(host)?.cut_off_for_room(owner) else { return Ok(None) };
        let key = OwnersKeys::new(&self.places, owner).cut_off();
        let attempts = self.server.attempts(host, READ);
        let answer = self.server.range(context, &RangeRequest::of(key), attempts).await?;
        // A cut-off only moves forward: the revocations before it have no keys any more.
        let (seen, before) = answer.kvs.first().map_or((0, None), |kv| {
            (kv.mod_revision, Some(self.read_value(host, kv, host.now()).end))
        });
        let end = before.map_or(end, |before| end.max(before));
        Ok(Some(CutOff { owner: owner.clone(), end, seen }))
    }

    /// Writes the key that shows every reader that there is a new revocation.
    fn put_last(&self) -> PutRequest {
        let key = self.places.last_revocation.clone().into_bytes();
        PutRequest { key, ..PutRequest::default() }
    }

    /// Logs a failure of etcd.
    fn complain(&self, host: &dyn Host, unknown: &Unknown) {
        // Every look at the copy finds a failure of shared data too, and logs it.
        if let Unknown::Remote(failure) = unknown {
            self.server.complain(host, *failure);
        }
    }

    async fn read_last(
        &self,
        context: &Context,
        attempts: Attempts,
    ) -> Result<LastRevocation, Unknown> {
        let host = context.host();
        let request = RangeRequest::of(self.places.last_revocation.clone().into_bytes());
        // This is read before etcd is asked, because a revision that was seen earlier cannot be
        // undone.
        let seen = self.copy.number(host)?.unwrap_or_default().seen;
        let answer = self.server.range(context, &request, attempts).await?;
        let last = answer.last_revocation(Some(&answer));
        if last.seen_at < seen {
            // etcd was restored from a backup, or began empty.
            host.warn("etcd's revisions began anew: every impersonation until now has ended");
            self.copy.forget(host, last.seen_at)?;
        }
        Ok(last)
    }

    /// Reads the revocations until `last` that the copy lacks.
    async fn learn_until(&self, context: &Context, last: LastRevocation) -> Result<(), Unknown> {
        let host = context.host();
        let complete_until = self.copy.number(host)?.unwrap_or_default().complete_until;
        if last.revision <= complete_until {
            return Ok(());
        }
        self.read_pages(context, complete_until, host.now(), |learned, until| {
            self.copy.learn(host, learned, until).map(|_| ())
        })
        .await
    }

    /// Removes from the copy the revocations that etcd has no more, if that is due and no other VM
    /// does it.
    async fn compare(&self, context: &Context) {
        let host = context.host();
        let compared = async {
            if !self.copy.is_to_be_compared(host)? {
                return Ok(());
            }
            let mut read = self.copy.whole(host)?.emptied();
            // The copy already has the end of every unreadable value, from the first time that it
            // was read.
            let never = UnixTime::default();
            self.read_pages(context, Revision::default(), never, |learned, until| {
                read.insert_all(learned);
                until.map_or(Ok(()), |until| self.copy.replace(host, &read, until))
            })
            .await
        };
        let compared: Result<(), Unknown> = compared.await;
        if let Err(unknown) = compared {
            self.complain(host, &unknown);
        }
    }

    /// Reads all revocations after `after`, as they were at one moment, and gives them to `take`
    /// page by page. The last page comes with the revision of that moment. A value that cannot be
    /// read counts as a revocation of everyone until `unreadable_at`.
    ///
    /// A page that is too long to be received is asked for again with fewer keys, down to one key
    /// without its value.
    async fn read_pages(
        &self,
        context: &Context,
        after: Revision,
        unreadable_at: UnixTime,
        mut take: impl FnMut(&[Learned], Option<Revision>) -> Result<(), HostFailure>,
    ) -> Result<(), Unknown> {
        let host = context.host();
        let mut request = RangeRequest {
            min_mod_revision: after.as_i64().saturating_add(1),
            ..RangeRequest::below(&self.places.revocations, PAGE)
        };
        loop {
            let attempts = self.server.attempts(host, READ);
            let page = match self.server.range(context, &request, attempts).await {
                Ok(page) => page,
                Err(RemoteFailure::Malformed | RemoteFailure::Exhausted) if request.limit > 1 => {
                    request.limit /= 2;
                    continue;
                }
                Err(RemoteFailure::Malformed | RemoteFailure::Exhausted) if !request.keys_only => {
                    request.keys_only = true;
                    continue;
                }
                Err(failure) => return Err(failure.into()),
            };
            // Keys that are written or deleted while pages are read belong to the next read.
            if request.revision == 0 {
                request.revision = page.revision().as_i64();
            }
            request.keys_only = false;
            let learned: Vec<_> =
                page.kvs.iter().map(|kv| self.read_value(host, kv, unreadable_at)).collect();
            let next = page.kvs.last().filter(|_| page.more);
            let until = Revision::new(request.revision);
            take(&learned, next.is_none().then_some(until))?;
            let Some(last) = next else { return Ok(()) };
            request = request.behind(&last.key);
        }
    }

    /// The revocation of a key. A value that this version cannot read ends everyone, until
    /// `unreadable_at`.
    fn read_value(&self, host: &dyn Host, kv: &KeyValue, unreadable_at: UnixTime) -> Learned {
        let revision = Revision::new(kv.mod_revision);
        match versioned::decode::<Value>(VERSION, &kv.value) {
            Some(value) => value.learned(revision),
            None => {
                self.server.complain(host, RemoteFailure::UnknownRecord);
                let end = End { time: unreadable_at, revision };
                Learned { revocation: Revocation::default(), end, owner: None, event: None }
            }
        }
    }

    fn key(&self, revocation: &Revocation) -> Vec<u8> {
        Places::named(&self.places.revocations, &digest(revocation))
    }
}

/// The keys of one owner: its cut-off, and below it its revocations, in the order of time.
struct OwnersKeys(String);

impl OwnersKeys {
    fn new(places: &Places, owner: &Owner) -> Self {
        let named = Places::named(&places.revocations, &digest(owner));
        Self(String::from_utf8(named).unwrap_or_default())
    }

    /// The key of the owner's cut-off, which ends all of the owner's impersonations.
    fn cut_off(&self) -> Vec<u8> {
        self.0.clone().into_bytes()
    }

    /// The key of a revocation at that time.
    fn of(&self, at: UnixTime, revocation: &impl Serialize) -> Vec<u8> {
        Places::named(&format!("{}/{:016x}.", self.0, at.millis()), &digest(revocation))
    }

    /// The keys of all revocations until that time: the first key, and the one behind the last.
    fn until(&self, time: UnixTime) -> (Vec<u8>, Vec<u8>) {
        let behind = time.millis().saturating_add(1);
        (format!("{}/", self.0).into_bytes(), format!("{}/{behind:016x}", self.0).into_bytes())
    }
}

/// The new cut-off of an owner.
struct CutOff {
    owner: Owner,
    end: End,
    /// The revision of the cut-off that this one replaces.
    seen: i64,
}

fn encode(value: &Value) -> Result<Vec<u8>, HostFailure> {
    versioned::encode(VERSION, value).ok_or(HostFailure("memory for a revocation"))
}

fn digest(named: &impl Serialize) -> Digest {
    Digest::of(&postcard::to_allocvec(named).unwrap_or_default())
}

impl Value {
    fn learned(self, revision: Revision) -> Learned {
        let Self { at_millis, revocation, owner, until, event } = self;
        let end = match (until, &event) {
            (Some((millis, revision)), _) => {
                End { time: UnixTime::from_millis(millis), revision: Revision::new(revision) }
            }
            (None, Some(happened)) => end_at_revision(happened, revision),
            (None, None) => End { time: UnixTime::from_millis(at_millis), revision },
        };
        Learned { revocation, end, owner, event }
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
