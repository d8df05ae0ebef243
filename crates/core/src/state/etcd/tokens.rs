//! Subject tokens in etcd, for many Envoys.
//!
//! Each token has one key, `<prefix>tokens/<namespace>/<base64url of the token's SHA-256>`. Only a
//! holder of the token can name the key. **Only the record under the key counts**, and it changes
//! by transaction alone. A mint creates the record. An exchange reads the record before its checks,
//! and replaces exactly the revision that it read. All Envoys ask the same majority, so of any
//! number of transactions on one revision exactly one succeeds.
//!
//! A record counts only if a filter wrote it, and wrote it there last: see [`RecordKeys`]. Somebody
//! else who can write in etcd can destroy a token, but can neither make one nor have one exchanged
//! twice.
//!
//! An answer can get lost, and then the outcome of the transaction is unknown. The identical
//! transaction is sent again. If it succeeds, the first one did not. If it fails, the record says
//! which attempt was first: every attempt to spend writes a random number that no other attempt
//! has. If the outcome cannot be settled in time, the caller is told that it is unknown, and may
//! present the token again. A spend is refused only if another was first, or if the token expired.
//!
//! A token is taken back in the same way: a transaction replaces the outstanding record by the
//! cancelled one. So a token is either spent or taken back.
//!
//! A token with a review changes with each decision about it, by such a transaction. Nobody writes
//! it between its last approval and its spend. See [`waiting`] for the keys by which people find
//! it.
//!
//! A spend is settled even if its caller has left: see [`Context::call_to_the_end`].

mod count;
mod waiting;

use std::ops::ControlFlow;
use std::rc::Rc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use prost::Message as _;

use count::TokenCount;

use super::calls::{Attempts, TXN, Unanswered};
use super::lease::{Kept, Leases};
use super::proto::{
    Compared, EtcdResponse as _, KeyValue, PutRequest, RangeRequest, TxnRequest, TxnResponse,
};
use super::{Bound, Places, RecordKeys, Server};
use crate::host::{Host, HostFailure, UnixTime};
use crate::metrics;
use crate::secret::{Digest, namespace};
use crate::state::remote::{Beside, RemoteFailure, Revision};
use crate::state::shared_data::keys::Keys;
use crate::state::store::{
    Cancelled, Exchange, Found, Grant, Known, Lifetimes, Mint, NONCE_LEN, NotSpent, NotStored,
    Origin, Outstanding, Record, RecordVersion, Review, SeenRemotely, Slot, State, StoreFailure,
    SubjectToken, TokenId,
};
use crate::step::{Context, WhenCallerLeaves};

/// The attempts of a look-up, and the time for each. A look-up changes nothing, so giving up early
/// does no harm.
const FIND: (u32, Duration) = (3, Duration::from_millis(400));

/// The attempts of a mint, and the time for each. A token that was not handed out does no harm.
const MINT: (u32, Duration) = (4, Duration::from_millis(400));

/// The attempts of a spend, and the time for each. A spend waits longer: without an answer its
/// outcome stays unknown.
const SPEND: (u32, Duration) = (5, Duration::from_millis(700));

/// The shortest time that a spent record outlives its token. In this time a second presentation is
/// told "already used" and raises an alarm, and a spend of unknown outcome can be settled. The
/// record also lasts as long as the access token can be live: the key that lists the impersonation
/// is on the same lease.
const KEPT: Duration = Duration::from_secs(600);

/// The subject tokens in etcd, as one worker sees them.
#[derive(Debug)]
pub(crate) struct EtcdTokens {
    server: Rc<Server>,
    places: Places,
    leases: Leases,
    lifetime: Duration,
    count: TokenCount,
}

impl EtcdTokens {
    /// The tokens of the service that `tenant` names. The access tokens
    /// that they are exchanged for live for `afterlife` at most.
    pub(crate) fn new(
        server: &Rc<Server>,
        tenant: &str,
        lifetimes: Lifetimes,
        afterlife: Duration,
    ) -> Self {
        let places = Places::new(&server.prefix, &namespace(tenant));
        let kept = lifetimes.longest.saturating_add(afterlife.max(KEPT));
        Self {
            server: Rc::clone(server),
            leases: Leases::new(&places.leases, kept),
            places,
            lifetime: lifetimes.usual,
            count: TokenCount::new(Keys::new(tenant).etcd_census()),
        }
    }

    pub(crate) async fn mint(
        &self,
        context: &Context,
        mint: Mint,
        grant: Grant,
        expires_at: UnixTime,
    ) -> Result<(SubjectToken, Digest), NotStored> {
        self.store(context, mint, grant, None, expires_at).await
    }

    async fn store(
        &self,
        context: &Context,
        mint: Mint,
        grant: Grant,
        review: Option<Box<Review>>,
        expires_at: UnixTime,
    ) -> Result<(SubjectToken, Digest), NotStored> {
        let began_at = context.host().micros();
        let minted = self.try_mint(context, mint, grant, review, expires_at).await;
        self.record(context.host(), metrics::STORE_MINT_DURATION, began_at);
        if let Err(NotStored::Remote(failure)) = &minted {
            self.server.complain(context.host(), *failure);
        }
        minted
    }

    /// Looks up a presented token by its digest: one read, through the majority. Does not ask etcd
    /// about a token that no filter has minted.
    pub(crate) async fn find(
        &self,
        context: &Context,
        token: &SubjectToken,
        digest: &Digest,
    ) -> Result<Found, StoreFailure> {
        let ours =
            |origin: &&Origin| self.server.record_keys.says(digest, origin.created, &origin.tag);
        let Some(origin) = token.origin.as_ref().filter(ours) else { return Ok(Found::Unknown) };
        self.find_created(context, digest, origin.created).await
    }

    pub(crate) async fn find_again(
        &self,
        context: &Context,
        found: &Outstanding,
    ) -> Result<Found, StoreFailure> {
        self.find_created(context, &found.digest, found.created()).await
    }

    async fn find_created(
        &self,
        context: &Context,
        digest: &Digest,
        created: Revision,
    ) -> Result<Found, StoreFailure> {
        let began_at = context.host().micros();
        let found = self.try_find(context, digest, created).await;
        self.record(context.host(), metrics::STORE_FIND_DURATION, began_at);
        found.map_err(|failure| {
            self.server.complain(context.host(), failure);
            failure.into()
        })
    }

    pub(crate) async fn spend(
        &self,
        context: &Context,
        token: Outstanding,
        exchange: Exchange,
        beside: Option<Beside>,
    ) -> Result<(), NotSpent> {
        let began_at = context.host().micros();
        let spent = self.try_spend(context, token, exchange, beside).await;
        self.record(context.host(), metrics::STORE_SPEND_DURATION, began_at);
        if let Err(NotSpent::Store(StoreFailure::Remote(failure)) | NotSpent::Unknown(failure)) =
            &spent
        {
            self.server.complain(context.host(), *failure);
        }
        spent
    }

    pub(crate) async fn cancel(
        &self,
        context: &Context,
        id: &TokenId,
        theirs: &dyn Fn(&Digest, &Mint) -> bool,
    ) -> Result<Cancelled, StoreFailure> {
        let cancelled = self.try_cancel(context, id, theirs).await;
        if let Err(StoreFailure::Remote(failure)) = &cancelled {
            self.server.complain(context.host(), *failure);
        }
        cancelled
    }

    fn record(&self, host: &dyn Host, histogram: &'static str, began_at: u64) {
        host.record(histogram, host.micros().saturating_sub(began_at));
    }

    async fn try_mint(
        &self,
        context: &Context,
        mint: Mint,
        grant: Grant,
        review: Option<Box<Review>>,
        expires_at: UnixTime,
    ) -> Result<(SubjectToken, Digest), NotStored> {
        let host = context.host();
        let mut secret = [0; NONCE_LEN];
        host.random(&mut secret)?;
        let digest = SubjectToken::remote_digest(&secret);
        let key = self.key(&digest);
        let record = Record::new(&digest, mint, State::Outstanding(grant)).reviewed(review);
        let waits = self.waiting_keys(&record);
        let (bytes, _) = Value::encode(host, &record, expires_at, self.leases.kept())?;
        let keys = &self.server.record_keys;
        let mut ours = Vec::new();
        let mut txn = |lease| {
            ours = keys.seal(Bound::new(&key, lease), &bytes)?;
            let put = PutRequest { key: key.clone(), value: ours.clone(), lease };
            let txn = TxnRequest::put_if(Compared::Create(0), put);
            let keys = waits.iter().flatten().cloned();
            Ok(keys.fold(txn, |txn, key| txn.and_put(PutRequest { key, value: Vec::new(), lease })))
        };
        let attempts = self.server.attempts(host, MINT);
        // If the caller leaves, a record remains whose token nobody holds.
        let cancel = WhenCallerLeaves::Cancel;
        let answer = self.server.write(context, &self.leases, &mut txn, attempts, cancel).await?;
        let created = if answer.succeeded {
            answer.revision()
        } else {
            // An earlier attempt wrote the record, and its answer was lost. Nobody else knows the
            // digest of a number that was drawn a moment ago.
            let kv = found(&answer).filter(|kv| kv.value == ours);
            Revision::new(kv.ok_or(RemoteFailure::Unauthentic)?.create_revision)
        };
        let tag = keys.of_token(&digest, created)?;
        Ok((SubjectToken::in_remote_store(secret, Origin { created, tag }), digest))
    }

    async fn try_find(
        &self,
        context: &Context,
        digest: &Digest,
        created: Revision,
    ) -> Result<Found, RemoteFailure> {
        let host = context.host();
        // The last revocation is read at the same moment. It shows which revocations came before.
        let keys = [self.key(digest), self.places.last_revocation.clone().into_bytes()];
        let attempts = self.server.attempts(host, FIND);
        let reads = TxnRequest::read(keys.map(RangeRequest::of));
        let answer = self.server.read(context, &reads, attempts).await?;
        self.read(&answer, digest, created, host.now())
    }

    /// Reads the record of the token that `id` names. The key begins with the part of the digest in
    /// the id.
    async fn read_named(
        &self,
        context: &Context,
        id: &TokenId,
    ) -> Result<Option<KeyValue>, RemoteFailure> {
        let Some(request) = self.range_of(id) else { return Ok(None) };
        let attempts = self.server.attempts(context.host(), FIND);
        Ok(self.server.range(context, &request, attempts).await?.kvs.into_iter().next())
    }

    /// The read of the record of the token that `id` names; `None` if that is in a table of slots.
    fn range_of(&self, id: &TokenId) -> Option<RangeRequest> {
        if id.slot.is_some() {
            return None;
        }
        let mut prefix = self.places.tokens.clone();
        BASE64_URL_SAFE_NO_PAD.encode_string(id.digest_bytes()?, &mut prefix);
        Some(RangeRequest::below(&prefix, 1))
    }

    /// Replaces the outstanding record by the cancelled one. If an answer gets lost, the record
    /// shows the outcome: a cancelled record stays cancelled, whichever attempt wrote it, and a
    /// spent record was spent before.
    async fn try_cancel(
        &self,
        context: &Context,
        id: &TokenId,
        theirs: &dyn Fn(&Digest, &Mint) -> bool,
    ) -> Result<Cancelled, StoreFailure> {
        let host = context.host();
        let mut attempts = self.server.attempts(host, SPEND);
        let mut found = self.read_named(context, id).await?;
        loop {
            let Some(kv) = found else { return Ok(Cancelled::NotTheirs) };
            let Value { expires_at, record, kept, .. } =
                Value::read(&self.server.record_keys, &kv)?;
            if !id.names(&record.digest()) {
                return Err(RemoteFailure::UnknownRecord.into());
            }
            let waited = self.waiting_keys(&record);
            let record = match record.cancel(theirs) {
                ControlFlow::Continue(record) => record,
                ControlFlow::Break(answer) => return Ok(answer),
            };
            let replaced =
                self.replace(context, &kv, (&record, expires_at, kept), waited, &mut attempts);
            match replaced.await.map_err(Unanswered::failure)? {
                Replaced::Yes => return Ok(Cancelled::Yes(record.mint)),
                Replaced::Changed(now) => found = now,
            }
        }
    }

    /// Replaces the record in `kv` by another one, and deletes the keys by which it is found, if
    /// `waited` names them. If an answer got lost, the record may have been replaced all the same,
    /// and its reader finds out.
    async fn replace(
        &self,
        context: &Context,
        kv: &KeyValue,
        (record, expires_at, kept): (&Record, UnixTime, Kept),
        waited: Option<[Vec<u8>; 2]>,
        attempts: &mut Attempts,
    ) -> Result<Replaced, Unanswered> {
        let host = context.host();
        let encoded = Value::encode(host, record, expires_at, kept).map_err(RemoteFailure::Host);
        let sealed =
            encoded.and_then(|(bytes, _)| self.server.record_keys.seal(Bound::after(kv), &bytes));
        let value = sealed.map_err(Unanswered::NotDone)?;
        let put = PutRequest { key: kv.key.clone(), value, lease: kv.lease };
        let txn = TxnRequest::put_if(Compared::Mod(kv.mod_revision), put);
        let txn = txn.and_delete_keys(waited.into_iter().flatten()).encode_to_vec();
        let mut unanswered = Unanswered::NotDone(RemoteFailure::NotSent);
        loop {
            let timeout = attempts.next(host).ok_or(unanswered)?;
            let go_on = WhenCallerLeaves::GoOn;
            let answer: Result<TxnResponse, _> =
                self.server.call(context, &TXN, &txn, timeout, go_on).await;
            match answer {
                Ok(answer) if answer.succeeded => return Ok(Replaced::Yes),
                Ok(answer) => return Ok(Replaced::Changed(found(&answer).cloned())),
                // This attempt did nothing. Those before it may have replaced the record.
                Err(failed @ Unanswered::NotDone(_)) => {
                    let perhaps = matches!(unanswered, Unanswered::PerhapsDone(_));
                    return Err(if perhaps { unanswered } else { failed });
                }
                Err(perhaps) => unanswered = perhaps,
            }
        }
    }

    async fn try_spend(
        &self,
        context: &Context,
        token: Outstanding,
        exchange: Exchange,
        beside: Option<Beside>,
    ) -> Result<(), NotSpent> {
        let host = context.host();
        let RecordVersion::Remote(seen) = token.seen else { return Err(NotSpent::Forgotten) };
        let (digest, expires_at) = (token.digest, token.expires_at);
        let waited = token.review.as_ref();
        let waited = waited.map(|_| self.keys_of_waiting(&digest, &token.mint, &token.grant));
        let record = Record::spend(token, exchange, host.now())?;
        let mut attempts = self.server.attempts(host, SPEND);
        // The record and the key beside it are needed for as long as the access token is live. The
        // lease may be from an Envoy whose access tokens have a shorter life.
        let needed_until = beside.as_ref().map_or(expires_at, |beside| beside.needed_until);
        let seen_kept = Kept::new(seen.kept);
        let (lease, kept) = if needed_until <= seen_kept.until(seen.lease) {
            (seen.lease, seen_kept)
        } else {
            let go_on = WhenCallerLeaves::GoOn;
            let lease = self.server.lease(context, &self.leases, &attempts, go_on).await;
            (lease.map_err(|unanswered| unanswered.failure())?, self.leases.kept())
        };
        let key = self.key(&digest);
        let (bytes, nonce) = Value::encode(host, &record, expires_at, kept)?;
        let bound = Bound {
            key: &key,
            lease,
            version: seen.version.saturating_add(1),
            created: seen.created.as_i64(),
        };
        let value = self.server.record_keys.seal(bound, &bytes)?;
        let put = PutRequest { key, value, lease };
        let txn = TxnRequest::put_if(Compared::Mod(seen.modified), put);
        let mut txn = txn.and_delete_keys(waited.into_iter().flatten());
        if let Some(Beside { key, value, .. }) = beside {
            txn = txn.and_put(PutRequest { key, value, lease });
        }
        let txn = txn.encode_to_vec();

        let mut unknown = None;
        while let Some(timeout) = attempts.next(host) {
            let answer: Result<TxnResponse, _> =
                self.server.call(context, &TXN, &txn, timeout, WhenCallerLeaves::GoOn).await;
            match answer {
                Ok(answer) if answer.succeeded => return Ok(()),
                Ok(answer) => return self.settle(&answer, &digest, nonce, unknown),
                Err(Unanswered::NotDone(failure)) => {
                    // This attempt did nothing. The attempts before it may have spent the token.
                    let failure =
                        unknown.map_or(NotSpent::Store(failure.into()), NotSpent::Unknown);
                    return Err(failure);
                }
                Err(Unanswered::PerhapsDone(failure)) => unknown = Some(failure),
            }
        }
        Err(NotSpent::Unknown(unknown.unwrap_or(RemoteFailure::NotSent)))
    }

    /// Reads the state of a token from an answer.
    fn read(
        &self,
        answer: &TxnResponse,
        digest: &Digest,
        created: Revision,
        now: UnixTime,
    ) -> Result<Found, RemoteFailure> {
        // An answer without both ranges does not answer this question.
        let (Some(token), Some(last)) = (answer.ranged(0), answer.ranged(1)) else {
            return Err(RemoteFailure::Malformed);
        };
        let Some(kv) = token.kvs.first() else { return Ok(Found::Unknown) };
        let Value { expires_at, record, kept, .. } = self.open(kv, digest)?;
        if Revision::new(kv.create_revision) != created {
            // The record was deleted and put back.
            return Err(RemoteFailure::Unauthentic);
        }
        let seen = RecordVersion::Remote(SeenRemotely {
            modified: kv.mod_revision,
            created,
            version: kv.version,
            lease: kv.lease,
            kept: kept.duration(),
            last_revocation: answer.last_revocation(Some(last)),
        });
        let digest = *digest;
        let known = Known { record, expires_at, created };
        Ok(Found::read(known, now, |mint, grant, review| Outstanding {
            seen,
            digest,
            expires_at,
            mint,
            grant,
            review,
        }))
    }

    /// Finds out which attempt spent the token, after the record was found changed. `unknown` is
    /// the failure of an earlier attempt whose outcome is not known.
    fn settle(
        &self,
        answer: &TxnResponse,
        digest: &Digest,
        ours: Nonce,
        unknown: Option<RemoteFailure>,
    ) -> Result<(), NotSpent> {
        let Some(kv) = found(answer) else {
            // The lease and the record are gone. An earlier attempt may have spent the token
            // before.
            return Err(unknown.map_or(NotSpent::Expired, NotSpent::Unknown));
        };
        let Value { record, nonce, .. } = self.open(kv, digest)?;
        if nonce == ours && matches!(record.state, State::Spent(_)) {
            return Ok(());
        }
        // No attempt of this request was first, whichever answers got lost. If the token is
        // outstanding, its record was put back by hand, or from a backup: it can be found again.
        let put_back = || NotSpent::Store(RemoteFailure::UnknownRecord.into());
        Err(record.first_change().unwrap_or_else(put_back))
    }

    /// Reads the record of the token with this digest.
    fn open(&self, kv: &KeyValue, digest: &Digest) -> Result<Value, RemoteFailure> {
        let value = Value::read(&self.server.record_keys, kv)?;
        if value.record.digest().matches(digest) {
            Ok(value)
        } else {
            Err(RemoteFailure::UnknownRecord)
        }
    }

    fn key(&self, digest: &Digest) -> Vec<u8> {
        Places::named(&self.places.tokens, digest)
    }
}

/// The key that a failed transaction read.
fn found(answer: &TxnResponse) -> Option<&KeyValue> {
    answer.ranged(0)?.kvs.first()
}

/// The result of replacing a record.
enum Replaced {
    Yes,
    /// The record was written since it was read. This is its key now.
    Changed(Option<KeyValue>),
}

/// A random number that tells one attempt to write from all others.
type Nonce = [u8; 16];

/// The value of a key, before its tag: the record, the number of the attempt that wrote it, and how
/// long its lease keeps it.
struct Value {
    expires_at: UnixTime,
    record: Record,
    nonce: Nonce,
    kept: Kept,
}

impl Value {
    fn encode(
        host: &dyn Host,
        record: &Record,
        expires_at: UnixTime,
        kept: Kept,
    ) -> Result<(Vec<u8>, Nonce), HostFailure> {
        let mut nonce = Nonce::default();
        host.random(&mut nonce)?;
        let mut bytes = record.encode(expires_at).ok_or(HostFailure("memory for a record"))?;
        bytes.extend_from_slice(&nonce);
        bytes.extend_from_slice(&kept.to_bytes());
        Ok((bytes, nonce))
    }

    fn read(keys: &RecordKeys, kv: &KeyValue) -> Result<Self, RemoteFailure> {
        Self::decode(keys.open(Bound::of(kv), &kv.value)?).ok_or(RemoteFailure::UnknownRecord)
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (bytes, kept) = bytes.split_last_chunk()?;
        let (slot, nonce) = bytes.split_last_chunk()?;
        let Slot { expires_at, record } = Slot::decode(slot)?;
        Some(Self { expires_at, record: record?, nonce: *nonce, kept: Kept::from_bytes(*kept) })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_of_records_panic(bytes: Vec<u8>) {
            let _ = Value::decode(&bytes);
        }
    }
}
