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

use super::record::{Exchange, Grant, Mint, Record, Slot, State, is_current};
use super::slots::{Seen, SeenInEtcd};
use super::{
    Cancelled, Found, NONCE_LEN, NotSpent, NotStored, Origin, Outstanding, StoreFailure,
    SubjectToken, TokenId,
};
use crate::etcd::calls::{TXN, Unanswered};
use crate::etcd::lease::{Kept, Leases};
use crate::etcd::proto::{
    Answer as _, Compared, KeyValue, PutRequest, RangeRequest, TxnRequest, TxnResponse,
};
use crate::etcd::{Bound, Places, RecordKeys, Server};
use crate::host::{Host, HostFailure, UnixTime};
use crate::metrics;
use crate::remote::{Beside, RemoteFailure, Revision};
use crate::secret::Digest;
use crate::step::{Context, WhenCallerLeaves};

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

/// etcd, as one worker sees it.
#[derive(Debug)]
pub struct Etcd {
    server: Rc<Server>,
    places: Places,
    leases: Leases,
    lifetime: Duration,
    count: Count,
}

impl Etcd {
    /// The store of the service that `namespace` names, for tokens that live for `lifetime`, and what they are
    /// exchanged for `afterlife` more.
    pub(super) fn new(
        server: &Rc<Server>,
        namespace: &str,
        lifetime: Duration,
        afterlife: Duration,
    ) -> Self {
        let places = Places::new(&server.prefix, namespace);
        let kept = lifetime.saturating_add(afterlife.max(KEPT));
        Self {
            server: Rc::clone(server),
            leases: Leases::new(&places.leases, kept),
            places,
            lifetime,
            count: Count::default(),
        }
    }

    /// Stores a new token.
    pub(super) async fn mint(
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

    /// Looks a presented token up, of which the digest is known: one read, through the majority. Of one that was not
    /// minted here etcd is not asked.
    pub(super) async fn find(
        &self,
        context: &Context,
        origin: Option<&Origin>,
        digest: &Digest,
    ) -> Result<Found, StoreFailure> {
        let ours =
            |origin: &&Origin| self.server.record_keys.says(digest, origin.created, &origin.tag);
        let Some(origin) = origin.filter(ours) else { return Ok(Found::Unknown) };
        self.find_created(context, digest, origin.created).await
    }

    /// What has become of a token that was found.
    pub(super) async fn find_again(
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

    /// Spends a token, if nobody has since it was found; and puts something beside it. Whoever gets `Ok` is the only
    /// one.
    pub(super) async fn spend(
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

    /// Takes the token back that this names, if it is `theirs`: from then on nobody exchanges it.
    pub(super) async fn cancel(
        &self,
        context: &Context,
        id: &TokenId,
        theirs: impl Fn(&Digest, &Mint) -> bool,
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
        expires_at: UnixTime,
    ) -> Result<(SubjectToken, Digest), NotStored> {
        let host = context.host();
        let mut secret = [0; NONCE_LEN];
        host.random(&mut secret)?;
        let digest = SubjectToken::digest_in_etcd(&secret);
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
        Ok((SubjectToken::in_etcd(secret, Origin { created, tag }), digest))
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
        let Seen::Revision(seen) = token.seen else { return Err(NotSpent::Forgotten) };
        if !is_current(&token.mint, token.expires_at, host.now()) {
            return Err(NotSpent::Expired);
        }
        let mut attempts = self.server.attempts(host, SPEND);
        // The record and what is beside it are needed for as long as the access token is live. The lease may be that of
        // an Envoy whose access tokens live shorter.
        let needed_until = beside.as_ref().map_or(token.expires_at, |beside| beside.needed_until);
        let (lease, kept) = if needed_until <= seen.kept.until(seen.lease) {
            (seen.lease, seen.kept)
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
                seen: Seen::Revision(SeenInEtcd {
                    modified: kv.mod_revision,
                    created,
                    version: kv.version,
                    lease: kv.lease,
                    kept,
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
