//! Events in etcd: a key for each row of a table.
//!
//! The keys of a source are below one key of its own, in the order of time, each with a tag of its
//! person. So one range has the older half of a source, and one range for each event has the events
//! about sessions of a person. One transaction deletes these ranges and puts the key that stands
//! for them. It does so only if none of the deleted keys was written since this Envoy knew them
//! all: if another Envoy does the same at once, one of the two succeeds.

use std::time::Duration;

use serde::Serialize;

use super::super::Places;
use super::super::lease::Leases;
use super::super::proto::{EtcdResponse as _, PutRequest, RangeRequest, TxnRequest, TxnResponse};
use super::{EtcdRevocations, OwnersKeys, READ, Value, WRITE, digest, encode};
use crate::host::UnixTime;
use crate::secret::Digest;
use crate::state::remote::{RemoteFailure, Revision};
use crate::state::revocations::{
    Extent, Happened, NotRevoked, Overflow, People, Revocation, Sessions, Table, Told, Unknown,
};
use crate::step::{Context, WhenCallerLeaves};

impl EtcdRevocations {
    /// Ends what an event names. The copy of this Envoy is brought up to date first, so that an
    /// event that another Envoy was told is not told again.
    pub(crate) async fn keep_event(
        &self,
        context: &Context,
        revocation: &Revocation,
        happened: &Happened,
    ) -> Result<Told, NotRevoked> {
        let host = context.host();
        match self.catch_up(context, None).await {
            Ok(_) => {}
            Err(Unknown::Host(failure)) => return Err(failure.into()),
            Err(Unknown::Remote(failure)) => return Err(failure.into()),
            Err(Unknown::NotYet | Unknown::Stale) => return Err(NotRevoked::Contended),
        }
        let known = self.copy.whole(host)?;
        if known.is_old_news(revocation, happened) {
            return Ok(Told::OldNews);
        }
        if known.has_no_room_for(revocation, happened) {
            return Err(NotRevoked::NoRoom);
        }
        self.merge_sessions(context, &known, revocation, happened).await?;
        let made_room = self.make_room_for_event(context, &known, revocation, happened).await?;
        let keys = EventKeys::new(&self.places, revocation, happened);
        let key = keys.of(happened.at(), revocation);
        // The row has the later event, so nobody needs the key of the one before it.
        let before = known.event_before(revocation, happened);
        let before = before.filter(|at| *at != happened.at()).map(|at| keys.of(at, revocation));
        let value = Value::of_event(revocation, happened, None);
        let bytes = encode(&value)?;
        let txn = |lease| {
            let put = PutRequest { key: key.clone(), value: bytes.clone(), lease };
            let txn = TxnRequest::default().only_if_still_at(key.clone(), 0);
            txn.and_put(put).and_delete_keys(before.clone().into_iter()).and_put(self.put_last())
        };
        let answer = self.write_event(context, happened, txn).await?;
        // Another Envoy, or an attempt that had no answer, has written the same event.
        let revision = match answer.succeeded {
            true => answer.revision(),
            false => {
                let attempts = self.server.attempts(host, READ);
                let found = self.server.range(context, &RangeRequest::of(key), attempts).await?;
                let written = found.kvs.first().ok_or(NotRevoked::Contended)?;
                Revision::new(written.mod_revision)
            }
        };
        let overflow = self.copy.learn(host, &[value.learned(revision)], None)?;
        Ok(Told::News(made_room.max(overflow)))
    }

    /// Makes one key of a person's events about sessions, if their share is used up.
    async fn merge_sessions(
        &self,
        context: &Context,
        known: &Table,
        revocation: &Revocation,
        happened: &Happened,
    ) -> Result<(), NotRevoked> {
        let Some(Sessions { before, sessions, at, end }) =
            known.sessions_without_room(revocation, happened)
        else {
            return Ok(());
        };
        let Some(person) = happened.person.as_ref().or(revocation.actor_id.as_ref()) else {
            return Ok(());
        };
        let keys = EventKeys::new(&self.places, revocation, happened);
        let happened = Happened {
            at_millis: at.millis(),
            extent: Extent::SessionsOfPerson,
            ..happened.clone()
        };
        let until = (end.time.millis(), end.revision.as_i64());
        let value = Value::of_event(&Revocation::of_actor(person), &happened, Some(until));
        let bytes = encode(&value)?;
        let txn = |lease| {
            let put = PutRequest { key: keys.of_person(at), value: bytes.clone(), lease };
            let mut txn = TxnRequest::default().and_put(put);
            let before = before.filter(|before| *before != at);
            for session in &sessions {
                let (first, behind) = keys.at(*session);
                txn = txn.and_delete(first, behind, end.revision.as_i64());
            }
            txn.and_delete_keys(before.map(|before| keys.of_person(before)).into_iter())
                .and_put(self.put_last())
        };
        let answer = self.write_event(context, &happened, txn).await?;
        if answer.succeeded {
            let revision = answer.revision();
            self.copy.learn(context.host(), &[value.learned(revision)], None)?;
        }
        Ok(())
    }

    /// Makes the older half of the events of a source its cut-off, if there is no room for one more
    /// event, and deletes their keys.
    async fn make_room_for_event(
        &self,
        context: &Context,
        known: &Table,
        revocation: &Revocation,
        happened: &Happened,
    ) -> Result<Option<Overflow>, NotRevoked> {
        let host = context.host();
        let Some((happened, half)) = known.cut_off_for_event(revocation, happened) else {
            return Ok(None);
        };
        let everyone = Revocation::default();
        let keys = EventKeys::new(&self.places, &everyone, &happened);
        let attempts = self.server.attempts(host, READ);
        let read = RangeRequest::of(keys.source.cut_off());
        let answer = self.server.range(context, &read, attempts).await?;
        let seen = answer.kvs.first().map_or(0, |kv| kv.mod_revision);
        // A cut-off only moves forward, and this Envoy knows the one before it.
        let until = (half.end.time.millis(), half.end.revision.as_i64());
        let value = Value::of_event(&everyone, &happened, Some(until));
        let bytes = encode(&value)?;
        let (first, behind) = keys.source.until(half.at);
        let txn = |lease| {
            let put = PutRequest { key: keys.source.cut_off(), value: bytes.clone(), lease };
            let txn = TxnRequest::default().only_if_still_at(keys.source.cut_off(), seen);
            let (first, behind) = (first.clone(), behind.clone());
            let txn = txn.and_put(put).and_delete(first, behind, half.end.revision.as_i64());
            txn.and_put(self.put_last())
        };
        let answer = self.write_event(context, &happened, txn).await?;
        if !answer.succeeded {
            return Ok(None);
        }
        let revision = answer.revision();
        self.copy.learn(host, &[value.learned(revision)], None)?;
        Ok(Some(Overflow::Events))
    }

    async fn write_event(
        &self,
        context: &Context,
        happened: &Happened,
        txn: impl Fn(i64) -> TxnRequest,
    ) -> Result<TxnResponse, RemoteFailure> {
        let kept_for = Duration::from_secs(happened.kept_for_secs.into());
        let leases = self.event_leases.get_or_init(|| Leases::new(&self.places.leases, kept_for));
        let attempts = self.server.attempts(context.host(), WRITE);
        let go_on = WhenCallerLeaves::GoOn;
        self.server.write(context, leases, &mut |lease| Ok(txn(lease)), attempts, go_on).await
    }
}

impl Value {
    /// The value of the key of an event; `until` if the end is not that of the write.
    fn of_event(revocation: &Revocation, happened: &Happened, until: Option<(u64, i64)>) -> Self {
        Self {
            at_millis: happened.at_millis,
            revocation: revocation.clone(),
            owner: None,
            until,
            event: Some(happened.clone()),
        }
    }
}

/// The keys of one source, and the tag of one person.
struct EventKeys {
    source: OwnersKeys,
    person: Option<Digest>,
}

/// The name of a source in etcd.
#[derive(Serialize)]
struct SourceName<'e> {
    sender: &'e str,
    people: &'e People,
    is_about_users: bool,
}

impl EventKeys {
    fn new(places: &Places, revocation: &Revocation, happened: &Happened) -> Self {
        let Happened { sender, people, extent, .. } = happened;
        let is_about_users = match extent {
            Extent::One => revocation.user_id.is_some(),
            Extent::AllUsers => true,
            Extent::SessionsOfPerson | Extent::AllActors => false,
        };
        let name = SourceName { sender, people, is_about_users };
        let named = Places::named(&places.revocations, &digest(&("events", name)));
        let person = happened.person.as_ref().or(revocation.actor_id.as_ref());
        let person = person.filter(|_| revocation.session.is_some()).map(digest);
        Self { source: OwnersKeys(String::from_utf8(named).unwrap_or_default()), person }
    }

    /// The folder of the events of this person at that time.
    fn folder(&self, at: UnixTime) -> String {
        let folder = format!("{}/{:016x}.", self.source.0, at.millis());
        let tagged = self.person.as_ref().map(|person| Places::named(&folder, person));
        tagged.and_then(|tagged| String::from_utf8(tagged).ok()).unwrap_or(folder)
    }

    /// The key of an event.
    fn of(&self, at: UnixTime, revocation: &Revocation) -> Vec<u8> {
        Places::named(&format!("{}.", self.folder(at)), &digest(revocation))
    }

    /// All keys of events of this person at that time: the first key, and the one behind the last.
    fn at(&self, at: UnixTime) -> (Vec<u8>, Vec<u8>) {
        // `/` is the character behind `.`.
        let folder = self.folder(at);
        (format!("{folder}.").into_bytes(), format!("{folder}/").into_bytes())
    }

    /// The key that stands for all events of this person about sessions until that time. It is not
    /// among the keys of these events, which the same transaction deletes.
    fn of_person(&self, at: UnixTime) -> Vec<u8> {
        format!("{}/", self.folder(at)).into_bytes()
    }
}
