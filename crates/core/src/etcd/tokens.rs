//! The store that many Envoys share: etcd, over gRPC through a cluster of Envoy's.
//!
//! One token is one key, `<prefix>tokens/<namespace>/<base64url of the token's SHA-256>`: whoever lacks the secret
//! cannot name it. **Only its record counts**, and it changes by transaction alone: a mint creates it, an exchange puts
//! the spent record in the place of the revision that it read before its checks. Every Envoy asks the same
//! majority, so that of any number of transactions on one revision one succeeds.
//!
//! A record counts only if a filter wrote it, and wrote it there last: see [`RecordKeys`](crate::etcd::RecordKeys). Who
//! can write in etcd besides can lose a token, and neither make one nor have one exchanged twice.
//!
//! Answers get lost, and then nobody knows what came of a transaction. The identical one is sent again: if it
//! succeeds, the first did not; if not, the record tells, because every attempt to spend writes a random number
//! into it that no other has. What cannot be settled in time is said to be unknown, and the token is presented
//! again. Nobody is told no unless another was first, or time ran out.
//!
//! A token that nobody exchanged is taken back in the same way: a transaction puts the cancelled record in the place of
//! the outstanding one, so that a token is either spent or taken back.
//!
//! What came of a spend is found out even when its caller has left: see [`Context::call_to_the_end`].

mod count;

use std::rc::Rc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use prost::Message as _;

use count::Count;

use super::calls::{TXN, Unanswered};
use super::lease::{Kept, Leases};
use super::proto::{
    Answer as _, Compared, KeyValue, PutRequest, RangeRequest, TxnRequest, TxnResponse,
};
use super::{Bound, Places, RecordKeys, Server};
use crate::host::{Host, HostFailure, UnixTime};
use crate::local::SlotTable;
use crate::metrics;
use crate::remote::{Beside, RemoteFailure, Revision};
use crate::secret::{Digest, namespace};
use crate::shared_data::keys::Keys;
use crate::step::{Context, WhenCallerLeaves};
use crate::store::{
    Cancelled, Exchange, Found, Grant, Mint, NONCE_LEN, NotSpent, NotStored, Origin, Outstanding,
    Record, Seen, SeenRemotely, Slot, State, StoreFailure, SubjectToken, TokenId, is_current,
};

/// A look-up waits this often, for this long. It changes nothing, so that a short wait costs nothing.
const FIND: (u32, Duration) = (3, Duration::from_millis(400));

/// A mint likewise: a token that nobody was given spoils nothing.
const MINT: (u32, Duration) = (4, Duration::from_millis(400));

/// To spend waits longer: what it does not learn, nobody knows.
const SPEND: (u32, Duration) = (5, Duration::from_millis(700));

/// How long a spent record outlives its token at least: whoever presents it again is told "already used" and raises
/// an alarm, and an attempt to spend it whose outcome is not known can be settled. It is there for as long as what it
/// was exchanged for can be live, too, which is listed by a key that shares its lease.
const KEPT: Duration = Duration::from_secs(600);

/// The subject tokens in etcd, as one worker sees them.
#[derive(Debug)]
pub(crate) struct EtcdTokens {
    server: Rc<Server>,
    places: Places,
    leases: Leases,
    lifetime: Duration,
    count: Count,
    /// The table of slots that was in use before etcd. Tokens that were minted there stay good until they
    /// expire, in the Envoy that minted them. No token is minted there any more.
    before: SlotTable,
}

impl EtcdTokens {
    /// The tokens of the service that `tenant` names, which live for `lifetime`. The access tokens that they
    /// are exchanged for live for `afterlife` at most.
    pub(crate) fn new(
        server: &Rc<Server>,
        tenant: &str,
        lifetime: Duration,
        afterlife: Duration,
    ) -> Self {
        let places = Places::new(&server.prefix, &namespace(tenant));
        let kept = lifetime.saturating_add(afterlife.max(KEPT));
        Self {
            server: Rc::clone(server),
            leases: Leases::new(&places.leases, kept),
            places,
            lifetime,
            count: Count::new(Keys::new(tenant).etcd_census()),
            // A token names its slot, so a look-up does not need the capacity that the table had.
            before: SlotTable::new(tenant, 0, lifetime),
        }
    }

    pub(crate) async fn mint(
        &self,
        context: &Context,
        mint: Mint,
        grant: Grant,
        expires_at: UnixTime,
    ) -> Result<(SubjectToken, Digest), NotStored> {
        let began_at = context.host().micros();
        let minted = self.try_mint(context, mint, grant, expires_at).await;
        self.record(context.host(), metrics::STORE_MINT_DURATION, began_at);
        if let Err(NotStored::Remote(failure)) = &minted {
            self.server.complain(context.host(), *failure);
        }
        minted
    }

    /// Looks up a presented token by its digest: one read, through the majority. Does not ask etcd about a
    /// token that no filter has minted.
    pub(crate) async fn find(
        &self,
        context: &Context,
        token: &SubjectToken,
        digest: &Digest,
    ) -> Result<Found, StoreFailure> {
        if token.slot.is_some() {
            return Ok(self.before.find(context.host(), token, digest)?);
        }
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
        if found.is_in_a_slot() {
            return Ok(self.before.find_in(context.host(), found.slot(), &found.digest)?);
        }
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
        if token.is_in_a_slot() {
            return self.before.spend(context.host(), token, exchange);
        }
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
        theirs: impl Fn(&Digest, &Mint) -> bool,
    ) -> Result<Cancelled, StoreFailure> {
        if id.slot.is_some() {
            return Ok(self.before.cancel(context.host(), id, theirs)?);
        }
        let cancelled = self.try_cancel(context, id, theirs).await;
        if let Err(StoreFailure::Remote(failure)) = &cancelled {
            self.server.complain(context.host(), *failure);
        }
        cancelled
    }

    pub(crate) fn set_gauges(&self, _: &dyn Host) {}

    fn record(&self, host: &dyn Host, histogram: &'static str, began_at: u64) {
        host.record(histogram, host.micros().saturating_sub(began_at));
    }

    async fn try_mint(
        &self,
        context: &Context,
        mint: Mint,
        grant: Grant,
        expires_at: UnixTime,
    ) -> Result<(SubjectToken, Digest), NotStored> {
        let host = context.host();
        let mut secret = [0; NONCE_LEN];
        host.random(&mut secret)?;
        let digest = SubjectToken::remote_digest(&secret);
        let key = self.key(&digest);
        let record = Record::new(&digest, mint, State::Outstanding(grant));
        let (bytes, _) = Value::encode(host, &record, expires_at, self.leases.kept())?;
        let keys = &self.server.record_keys;
        let mut ours = Vec::new();
        let txn = |lease| {
            ours = keys.seal(Bound::new(&key, lease), &bytes)?;
            let put = PutRequest { key: key.clone(), value: ours.clone(), lease };
            Ok(TxnRequest::put_if(Compared::Create(0), put))
        };
        let attempts = self.server.attempts(host, MINT);
        // Should the caller leave, a record is left that nobody has the token of.
        let cancel = WhenCallerLeaves::Cancel;
        let answer = self.server.write(context, &self.leases, txn, attempts, cancel).await?;
        let created = if answer.succeeded {
            answer.revision()
        } else {
            // An attempt whose answer was lost. Nobody else can have written under the digest of what was drawn a
            // moment ago.
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
        // The last revocation besides: what was revoked until the token was found is then known, too.
        let keys = [self.key(digest), self.places.last_revocation.clone().into_bytes()];
        let attempts = self.server.attempts(host, FIND);
        let reads = TxnRequest::read(keys.map(RangeRequest::of));
        let answer = self.server.read(context, &reads, attempts).await?;
        self.read(&answer, digest, created, host.now())
    }

    /// The key of the token that this names: it begins with the beginning of the digest.
    async fn read_named(
        &self,
        context: &Context,
        id: &TokenId,
    ) -> Result<Option<KeyValue>, RemoteFailure> {
        let Some(first) = id.digest_bytes() else { return Ok(None) };
        let mut prefix = self.places.tokens.clone();
        BASE64_URL_SAFE_NO_PAD.encode_string(first, &mut prefix);
        let attempts = self.server.attempts(context.host(), FIND);
        let request = RangeRequest::below(&prefix, 1);
        Ok(self.server.range(context, &request, attempts).await?.kvs.into_iter().next())
    }

    /// Puts the cancelled record in the place of the outstanding one. Whatever gets lost, the record tells: whoever made
    /// it a cancelled one, it is one for good, and one that is spent was spent before.
    async fn try_cancel(
        &self,
        context: &Context,
        id: &TokenId,
        theirs: impl Fn(&Digest, &Mint) -> bool,
    ) -> Result<Cancelled, StoreFailure> {
        let host = context.host();
        let mut attempts = self.server.attempts(host, SPEND);
        let mut found = self.read_named(context, id).await?;
        let mut failed = RemoteFailure::NotSent;
        loop {
            let Some(kv) = found else { return Ok(Cancelled::NotTheirs) };
            let Value { expires_at, record, kept, .. } =
                Value::read(&self.server.record_keys, &kv)?;
            let digest = record.digest();
            if !id.names(&digest) {
                return Err(RemoteFailure::UnknownRecord.into());
            }
            if !theirs(&digest, &record.mint) {
                return Ok(Cancelled::NotTheirs);
            }
            match record.state {
                State::Spent(exchange) => return Ok(Cancelled::Spent(record.mint, exchange)),
                State::Cancelled => return Ok(Cancelled::Yes(record.mint)),
                State::Outstanding(_) => {}
            }
            let record = Record::new(&digest, record.mint, State::Cancelled);
            let (bytes, _) = Value::encode(host, &record, expires_at, kept)?;
            let value = self.server.record_keys.seal(Bound::after(&kv), &bytes)?;
            let put = PutRequest { key: kv.key.clone(), value, lease: kv.lease };
            let txn = TxnRequest::put_if(Compared::Mod(kv.mod_revision), put).encode_to_vec();
            found = loop {
                let timeout = attempts.next(host).ok_or(failed)?;
                let go_on = WhenCallerLeaves::GoOn;
                let answer: Result<TxnResponse, _> =
                    self.server.call(context, &TXN, &txn, timeout, go_on).await;
                match answer {
                    Ok(answer) if answer.succeeded => return Ok(Cancelled::Yes(record.mint)),
                    Ok(answer) => break self::found(&answer).cloned(),
                    Err(Unanswered::NotDone(failure)) => return Err(failure.into()),
                    Err(Unanswered::PerhapsDone(failure)) => failed = failure,
                }
            };
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
        let Seen::Remote(seen) = token.seen else { return Err(NotSpent::Forgotten) };
        if !is_current(&token.mint, token.expires_at, host.now()) {
            return Err(NotSpent::Expired);
        }
        let mut attempts = self.server.attempts(host, SPEND);
        // The record and what is beside it are needed for as long as the access token is live. The lease may be that of
        // an Envoy whose access tokens live shorter.
        let needed_until = beside.as_ref().map_or(token.expires_at, |beside| beside.needed_until);
        let seen_kept = Kept::new(seen.kept);
        let (lease, kept) = if needed_until <= seen_kept.until(seen.lease) {
            (seen.lease, seen_kept)
        } else {
            let go_on = WhenCallerLeaves::GoOn;
            let lease = self.server.lease(context, &self.leases, &attempts, go_on).await;
            (lease.map_err(|unanswered| unanswered.failure())?, self.leases.kept())
        };
        let key = self.key(&token.digest);
        let record = Record::new(&token.digest, token.mint, State::Spent(exchange));
        let (bytes, nonce) = Value::encode(host, &record, token.expires_at, kept)?;
        let bound = Bound {
            key: &key,
            lease,
            version: seen.version.saturating_add(1),
            created: seen.created.as_i64(),
        };
        let value = self.server.record_keys.seal(bound, &bytes)?;
        let put = PutRequest { key, value, lease };
        let mut txn = TxnRequest::put_if(Compared::Mod(seen.modified), put);
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
                Ok(answer) => return self.settle(&answer, &token.digest, nonce, unknown),
                Err(Unanswered::NotDone(failure)) => {
                    // That this attempt did nothing says nothing of those before.
                    let failure =
                        unknown.map_or(NotSpent::Store(failure.into()), NotSpent::Unknown);
                    return Err(failure);
                }
                Err(Unanswered::PerhapsDone(failure)) => unknown = Some(failure),
            }
        }
        Err(NotSpent::Unknown(unknown.unwrap_or(RemoteFailure::NotSent)))
    }

    /// Tells a record that was read from what is known of the token.
    fn read(
        &self,
        answer: &TxnResponse,
        digest: &Digest,
        created: Revision,
        now: UnixTime,
    ) -> Result<Found, RemoteFailure> {
        // An answer without them is none to what was asked.
        let (Some(token), Some(last)) = (answer.ranged(0), answer.ranged(1)) else {
            return Err(RemoteFailure::Malformed);
        };
        let Some(kv) = token.kvs.first() else { return Ok(Found::Unknown) };
        let Value { expires_at, record, kept, .. } = self.open(kv, digest)?;
        if Revision::new(kv.create_revision) != created {
            // It was deleted, and put back as it was.
            return Err(RemoteFailure::Unauthentic);
        }
        Ok(match record.state {
            State::Spent(exchange) => Found::Spent(record.mint, exchange),
            State::Cancelled => Found::Cancelled(record.mint),
            State::Outstanding(grant) if !is_current(&record.mint, expires_at, now) => {
                Found::Expired(record.mint, grant)
            }
            State::Outstanding(grant) => Found::Outstanding(Outstanding {
                seen: Seen::Remote(SeenRemotely {
                    modified: kv.mod_revision,
                    created,
                    version: kv.version,
                    lease: kv.lease,
                    kept: kept.duration(),
                    last_revocation: answer.last_revocation(Some(last)),
                }),
                digest: *digest,
                expires_at,
                mint: record.mint,
                grant,
            }),
        })
    }

    /// Who spent the token, once the record is not what it was any more. `unknown` is what was wrong with an attempt
    /// before, whose outcome is not known.
    fn settle(
        &self,
        answer: &TxnResponse,
        digest: &Digest,
        ours: Nonce,
        unknown: Option<RemoteFailure>,
    ) -> Result<(), NotSpent> {
        let Some(kv) = found(answer) else {
            // Its lease is gone, and the record with it: had an attempt of ours been first, nobody could say so.
            return Err(unknown.map_or(NotSpent::Expired, NotSpent::Unknown));
        };
        let Value { record, nonce, .. } = self.open(kv, digest)?;
        match record.state {
            State::Spent(_) if nonce == ours => Ok(()),
            State::Spent(winner) => Err(NotSpent::Already(Box::new((record.mint, winner)))),
            // Then no attempt of ours was first, however many of their answers were lost.
            State::Cancelled => Err(NotSpent::Cancelled),
            // Put back by hand, or from a backup: it was not spent by anybody, and can be found again.
            State::Outstanding(_) => Err(NotSpent::Store(RemoteFailure::UnknownRecord.into())),
        }
    }

    /// Reads the record of the token that `digest` names.
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

/// What a transaction read that did not write.
fn found(answer: &TxnResponse) -> Option<&KeyValue> {
    answer.ranged(0)?.kvs.first()
}

/// Tells an attempt to write from all others.
type Nonce = [u8; 16];

/// What a key holds before its tag: a record as in a slot, who wrote it, and how long its lease keeps it.
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
