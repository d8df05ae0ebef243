//! The store that many Envoys share: etcd, over gRPC through a cluster of Envoy's.
//!
//! One token is one key, `<prefix><namespace>/<base64url of the token's SHA-256>`: whoever lacks the secret cannot
//! name it. **Only its record counts**, and it changes by transaction alone: a mint creates it, an exchange puts
//! the spent record in the place of the revision that it read before its checks. Every Envoy asks the same
//! majority, so that of any number of transactions on one revision one succeeds.
//!
//! Answers get lost, and then nobody knows what came of a transaction. The identical one is sent again: if it
//! succeeds, the first did not; if not, the record tells, because every attempt to spend writes a random number
//! into it that no other has. What cannot be settled in time is said to be unknown, and the token is presented
//! again. Nobody is told no unless another was first, or time ran out.
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
    Found, NONCE_LEN, NotSpent, NotStored, Outstanding, StoreFailure, SubjectToken, TokenId,
};
use crate::etcd::calls::{TXN, Unanswered};
use crate::etcd::lease::Leases;
use crate::etcd::proto::{Compared, KeyValue, PutRequest, RangeRequest, TxnRequest, TxnResponse};
use crate::etcd::{Beside, EtcdFailure, LastRevocation, Places, Revision, Server};
use crate::host::{Host, HostFailure, UnixTime};
use crate::metrics;
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
            leases: Leases::new(&places.tokens, kept),
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
        if let Err(NotStored::Etcd(failure)) = &minted {
            self.server.complain(context.host(), *failure);
        }
        minted
    }

    /// Looks a presented token up, of which the digest is known: one read, through the majority.
    pub(super) async fn find(
        &self,
        context: &Context,
        digest: &Digest,
    ) -> Result<Found, StoreFailure> {
        let began_at = context.host().micros();
        let found = self.try_find(context, digest).await;
        self.record(context.host(), metrics::STORE_FIND_DURATION, began_at);
        found.map_err(|failure| {
            self.server.complain(context.host(), failure);
            failure.into()
        })
    }

    /// Who minted the token that this names, as long as its record is there.
    pub(super) async fn minted(
        &self,
        context: &Context,
        id: &TokenId,
    ) -> Result<Option<Mint>, StoreFailure> {
        let minted = self.try_minted(context, id).await;
        minted.map_err(|failure| {
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
        if let Err(NotSpent::Store(StoreFailure::Etcd(failure)) | NotSpent::Unknown(failure)) =
            &spent
        {
            self.server.complain(context.host(), *failure);
        }
        spent
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
        let token = SubjectToken::without_slot(secret);
        let digest = token.digest();
        let record = Record::new(&digest, mint, State::Outstanding(grant));
        let value = Value::new(host, &record, expires_at)?.bytes;
        let lease = self.leases.id(host.now());
        let put = PutRequest { key: self.key(&digest), value, lease, ignore_lease: false };
        let ours = put.value.clone();
        let txn = TxnRequest::put_if(Compared::Create(0), put);
        let attempts = self.server.attempts(host, MINT);
        // Should the caller leave, a record is left that nobody has the token of.
        let cancel = WhenCallerLeaves::Cancel;
        let answer =
            self.server.write(context, &txn, (&self.leases, lease), attempts, cancel).await?;
        let stored = answer.succeeded || found(&answer).is_some_and(|kv| kv.value == ours);
        // Nobody else can have written under the digest of what was drawn a moment ago.
        if stored { Ok((token, digest)) } else { Err(EtcdFailure::UnknownRecord.into()) }
    }

    async fn try_find(&self, context: &Context, digest: &Digest) -> Result<Found, EtcdFailure> {
        let host = context.host();
        // The last revocation besides: what was revoked until the token was found is then known, too.
        let keys = [self.key(digest), self.places.last_revocation.clone().into_bytes()];
        let attempts = self.server.attempts(host, FIND);
        let answer = self.server.read(context, &TxnRequest::read(keys), attempts).await?;
        read(&answer, digest, host.now())
    }

    async fn try_minted(
        &self,
        context: &Context,
        id: &TokenId,
    ) -> Result<Option<Mint>, EtcdFailure> {
        // The beginning of the digest is that of its key.
        let Some(first) = id.digest_bytes() else { return Ok(None) };
        let mut prefix = self.places.tokens.clone();
        BASE64_URL_SAFE_NO_PAD.encode_string(first, &mut prefix);
        let attempts = self.server.attempts(context.host(), FIND);
        let answer = self.server.range(context, &RangeRequest::below(&prefix, 1), attempts).await?;
        let Some(kv) = answer.kvs.first() else { return Ok(None) };
        match Slot::decode(&kv.value) {
            Some(Slot { record: Some(record), .. }) => Ok(Some(record)
                .filter(|record| id.names(&record.digest()))
                .map(|record| record.mint)),
            _ => Err(EtcdFailure::UnknownRecord),
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
        let record = Record::new(&token.digest, token.mint, State::Spent(exchange));
        let Value { bytes: value, nonce } = Value::new(host, &record, token.expires_at)?;
        let put = PutRequest { key: self.key(&token.digest), value, lease: 0, ignore_lease: true };
        let mut txn = TxnRequest::put_if(Compared::Mod(seen.modified), put);
        if let Some(Beside { key, value }) = beside {
            // As long as the token's record is there, its lease is.
            txn = txn.and_put(PutRequest { key, value, lease: seen.lease, ignore_lease: false });
        }
        let txn = txn.encode_to_vec();

        let mut attempts = self.server.attempts(host, SPEND);
        let mut unknown = None;
        while let Some(timeout) = attempts.next(host) {
            let answer: Result<TxnResponse, _> =
                self.server.call(context, &TXN, &txn, timeout, WhenCallerLeaves::GoOn).await;
            match answer {
                Ok(answer) if answer.succeeded => return Ok(()),
                Ok(answer) => return settle(&answer, &token.digest, nonce, unknown),
                Err(Unanswered::NotDone(failure)) => {
                    // That this attempt did nothing says nothing of those before.
                    let failure =
                        unknown.map_or(NotSpent::Store(failure.into()), NotSpent::Unknown);
                    return Err(failure);
                }
                Err(Unanswered::PerhapsDone(failure)) => unknown = Some(failure),
            }
        }
        Err(NotSpent::Unknown(unknown.unwrap_or(EtcdFailure::NotSent)))
    }

    fn key(&self, digest: &Digest) -> Vec<u8> {
        Places::named(&self.places.tokens, digest)
    }
}

/// What a transaction read that did not write.
fn found(answer: &TxnResponse) -> Option<&KeyValue> {
    answer.ranged(0)?.kvs.first()
}

/// Tells a record that was read from what is known of the token.
fn read(answer: &TxnResponse, digest: &Digest, now: UnixTime) -> Result<Found, EtcdFailure> {
    // An answer without them is none to what was asked.
    let (Some(token), Some(last)) = (answer.ranged(0), answer.ranged(1)) else {
        return Err(EtcdFailure::Malformed);
    };
    let Some(kv) = token.kvs.first() else { return Ok(Found::Unknown) };
    let (expires_at, record, _) = Value::read(&kv.value, digest)?;
    Ok(match record.state {
        State::Spent(exchange) => Found::Spent(record.mint, exchange),
        State::Outstanding(grant) if !is_current(&record.mint, expires_at, now) => {
            Found::Expired(record.mint, grant)
        }
        State::Outstanding(grant) => Found::Outstanding(Outstanding {
            seen: Seen::Revision(SeenInEtcd {
                modified: kv.mod_revision,
                created: Revision::new(kv.create_revision),
                lease: kv.lease,
                last_revocation: LastRevocation::of(answer, Some(last)),
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
    answer: &TxnResponse,
    digest: &Digest,
    ours: Nonce,
    unknown: Option<EtcdFailure>,
) -> Result<(), NotSpent> {
    let Some(kv) = found(answer) else {
        // Its lease is gone, and the record with it: had an attempt of ours been first, nobody could say so.
        return Err(unknown.map_or(NotSpent::Expired, NotSpent::Unknown));
    };
    let (_, record, nonce) =
        Value::read(&kv.value, digest).map_err(|failure| NotSpent::Store(failure.into()))?;
    match record.state {
        State::Spent(_) if nonce == ours => Ok(()),
        State::Spent(winner) => Err(NotSpent::Already(Box::new((record.mint, winner)))),
        // Put back by hand, or from a backup: it was not spent by anybody, and can be found again.
        State::Outstanding(_) => Err(NotSpent::Store(EtcdFailure::UnknownRecord.into())),
    }
}

/// Tells an attempt to write from all others.
type Nonce = [u8; 16];

/// What a key holds: a record as in a slot, and behind it who wrote it.
struct Value {
    bytes: Vec<u8>,
    nonce: Nonce,
}

impl Value {
    fn new(host: &dyn Host, record: &Record, expires_at: UnixTime) -> Result<Self, HostFailure> {
        let mut nonce = Nonce::default();
        host.random(&mut nonce)?;
        let mut bytes = record.encode(expires_at).ok_or(HostFailure("memory for a record"))?;
        bytes.extend_from_slice(&nonce);
        Ok(Self { bytes, nonce })
    }

    /// Reads the record of the token that `digest` names.
    fn read(bytes: &[u8], digest: &Digest) -> Result<(UnixTime, Record, Nonce), EtcdFailure> {
        let (slot, nonce) = bytes.split_last_chunk().ok_or(EtcdFailure::UnknownRecord)?;
        match Slot::decode(slot) {
            Some(Slot { expires_at, record: Some(record) }) if record.digest().matches(digest) => {
                Ok((expires_at, record, *nonce))
            }
            _ => Err(EtcdFailure::UnknownRecord),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_of_records_panic(bytes: Vec<u8>) {
            let _ = Value::read(&bytes, &Digest::of(b"token"));
        }
    }
}
