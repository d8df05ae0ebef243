//! The tokens that wait for a decision, in etcd.
//!
//! Beside the record of a token with a review there are two keys without a value,
//! `<prefix>waiting/<namespace>/<hash of the caller>/<id of the token>` and
//! `<prefix>waiting/<namespace>.users/<hash of the user>/<id of the token>`. They are hints: **only
//! the record counts**, and a key without a record of a waiting token is passed over. The
//! transaction that mints the token writes the keys, on the lease of the token. Those that deny,
//! spend or take back the token delete them. So the keys of one caller can be counted, and no
//! caller fills etcd with tokens that nobody decides about. Mints at the same moment are not
//! counted by each other, so a caller can exceed its share by as many as it sends at once. A user
//! is answered from their own keys, however much waits for others.

use super::{EtcdTokens, FIND, Replaced, SPEND, Value};
use crate::host::UnixTime;
use crate::secret::Digest;
use crate::state::etcd::calls::{Attempts, Unanswered};
use crate::state::etcd::lease::Kept;
use crate::state::etcd::proto::{KeyValue, RangeRequest, TxnRequest};
use crate::state::remote::{RemoteFailure, Revision};
use crate::state::store::{
    Grant, Known, MOST_HELD, Mint, NotDecided, NotStored, Record, Review, Standing, State,
    StoreFailure, SubjectToken, TokenId, Verdict, Waiting, WaitingPage,
};
use crate::step::Context;

/// The number of tokens that are read at once. etcd takes at most 128 operations in a transaction.
const AT_ONCE: i64 = 100;

/// The most reads of tokens for one page.
const READS_TO_A_PAGE: u32 = 10;

impl EtcdTokens {
    pub(crate) async fn mint_for_review(
        &self,
        context: &Context,
        mint: Mint,
        grant: Grant,
        review: Review,
        expires_at: UnixTime,
    ) -> Result<(SubjectToken, Digest), NotStored> {
        let held = self.held(context, &mint.caller).await;
        let held = held.inspect_err(|failure| self.server.complain(context.host(), *failure))?;
        if held >= MOST_HELD {
            return Err(NotStored::HoldsTooMany);
        }
        self.store(context, mint, grant, Some(Box::new(review)), expires_at).await
    }

    /// The number of tokens with a review that the caller holds.
    async fn held(&self, context: &Context, caller: &str) -> Result<usize, RemoteFailure> {
        let folder = self.folder_of(caller);
        let attempts = self.server.attempts(context.host(), FIND);
        let request = RangeRequest { count_only: true, ..RangeRequest::below(&folder, 0) };
        let answer = self.server.range(context, &request, attempts).await?;
        Ok(usize::try_from(answer.count).unwrap_or(usize::MAX))
    }

    /// The keys by which people find the token of this record; `None` if nobody needs to decide
    /// about it, or can any more.
    pub(super) fn waiting_keys(&self, record: &Record) -> Option<[Vec<u8>; 2]> {
        match &record.state {
            State::Outstanding(grant) if record.review.is_some() => {
                Some(self.keys_of_waiting(&record.digest(), &record.mint, grant))
            }
            _ => None,
        }
    }

    /// The keys by which people find a token that somebody must decide about.
    pub(super) fn keys_of_waiting(
        &self,
        digest: &Digest,
        mint: &Mint,
        grant: &Grant,
    ) -> [Vec<u8>; 2] {
        let id = TokenId::new(digest, None);
        let folders = [self.folder_of(&mint.caller), self.folder_for(&grant.user_id)];
        folders.map(|folder| format!("{folder}{id}").into_bytes())
    }

    fn folder_of(&self, caller: &str) -> String {
        format!("{}{}/", self.places.waiting, Digest::of(caller.as_bytes()).id())
    }

    fn folder_for(&self, user_id: &str) -> String {
        format!("{}{}/", self.places.waiting_for_user, Digest::of(user_id.as_bytes()).id())
    }

    pub(crate) async fn known(
        &self,
        context: &Context,
        id: &TokenId,
    ) -> Result<Option<Known>, StoreFailure> {
        let found = self.read_named(context, id).await;
        let opened = found.and_then(|kv| kv.map(|kv| self.open_named(&kv, id)).transpose());
        let opened =
            opened.inspect_err(|failure| self.server.complain(context.host(), *failure))?;
        Ok(opened.map(|(known, _)| known))
    }

    fn open_named(&self, kv: &KeyValue, id: &TokenId) -> Result<(Known, Kept), RemoteFailure> {
        let Value { expires_at, record, kept, .. } = Value::read(&self.server.record_keys, kv)?;
        if !id.names(&record.digest()) {
            return Err(RemoteFailure::UnknownRecord);
        }
        let created = Revision::new(kv.create_revision);
        Ok((Known { record, expires_at, created }, kept))
    }

    pub(crate) async fn decide(
        &self,
        context: &Context,
        id: &TokenId,
        decide: &mut dyn FnMut(&Known) -> Option<Review>,
    ) -> Result<Option<Known>, NotDecided> {
        let decided = self.try_decide(context, id, decide).await;
        decided.map_err(|unanswered| {
            self.server.complain(context.host(), unanswered.failure());
            match unanswered {
                Unanswered::NotDone(failure) => failure.into(),
                Unanswered::PerhapsDone(failure) => NotDecided::Unknown(failure),
            }
        })
    }

    /// Replaces the record by one with the new review. If an answer gets lost, `decide` sees the
    /// record as it is, and finds its own decision there if it was written.
    async fn try_decide(
        &self,
        context: &Context,
        id: &TokenId,
        decide: &mut dyn FnMut(&Known) -> Option<Review>,
    ) -> Result<Option<Known>, Unanswered> {
        let mut attempts: Attempts = self.server.attempts(context.host(), SPEND);
        let found = self.read_named(context, id).await;
        let mut found = found.map_err(Unanswered::NotDone)?;
        let mut ours: Option<Box<Review>> = None;
        loop {
            let Some(kv) = found else { return Ok(None) };
            let opened = self.open_named(&kv, id);
            let (mut known, kept) = opened.map_err(|failure| match &ours {
                None => Unanswered::NotDone(failure),
                Some(_) => Unanswered::PerhapsDone(failure),
            })?;
            // An attempt whose answer got lost has written the decision. Perhaps the token was even
            // exchanged since.
            if ours.is_some() && known.record.review == ours {
                return Ok(Some(known));
            }
            let Some(review) = decide(&known) else { return Ok(Some(known)) };
            known.decide(review);
            ours.clone_from(&known.record.review);
            let is_denied = known.record.verdict() == Verdict::Denied;
            let waited = if is_denied { self.waiting_keys(&known.record) } else { None };
            let written = (&known.record, known.expires_at, kept);
            match self.replace(context, &kv, written, waited, &mut attempts).await? {
                Replaced::Yes => return Ok(Some(known)),
                Replaced::Changed(now) => found = now,
            }
        }
    }

    /// Reads a page of the waiting tokens, of all users or of one.
    pub(crate) async fn waiting(
        &self,
        context: &Context,
        user_id: Option<&str>,
        place: Option<&str>,
        limit: usize,
        wanted: &mut dyn FnMut(&TokenId, &Known) -> bool,
    ) -> Result<WaitingPage, StoreFailure> {
        let host = context.host();
        let folder =
            &user_id.map_or(self.places.waiting.clone(), |user_id| self.folder_for(user_id));
        let keys = RangeRequest::below(folder, AT_ONCE);
        let mut keys = RangeRequest { keys_only: true, ..keys };
        if let Some(place) = place.filter(|place| !place.is_empty()) {
            keys = keys.behind(format!("{folder}{place}").as_bytes());
        }
        let mut page = WaitingPage { entries: Vec::new(), next: None, complete: true };
        let mut last = None;
        for _ in 0..READS_TO_A_PAGE {
            let attempts = self.server.attempts(host, FIND);
            let answer = self.server.range(context, &keys, attempts).await;
            let answer = answer.inspect_err(|failure| self.server.complain(host, *failure))?;
            let names = answer.kvs.iter().map(|kv| {
                let name = kv.key.get(folder.len()..).unwrap_or_default();
                String::from_utf8_lossy(name).into_owned()
            });
            let names: Vec<_> = names.collect();
            for (name, known) in self.read_all(context, names, &mut page).await? {
                if page.entries.len() >= limit {
                    page.next = last;
                    return Ok(page);
                }
                last = Some(name);
                let Some((id, known)) = known else { continue };
                if known.standing(host.now()) == Standing::Pending && wanted(&id, &known) {
                    page.entries.push(Waiting { id, known });
                }
            }
            let Some(kv) = answer.kvs.last().filter(|_| answer.more) else {
                page.next = None;
                return Ok(page);
            };
            keys = keys.behind(&kv.key);
            page.next.clone_from(&last);
        }
        Ok(page)
    }

    /// Reads the tokens of these keys at one moment, in the same order.
    async fn read_all(
        &self,
        context: &Context,
        names: Vec<String>,
        page: &mut WaitingPage,
    ) -> Result<Vec<(String, Option<(TokenId, Known)>)>, StoreFailure> {
        let host = context.host();
        let ids =
            names.iter().map(|name| TokenId::parse(name.rsplit('/').next().unwrap_or_default()));
        let ids: Vec<_> = ids.map(|id| id.filter(|id| id.slot.is_none())).collect();
        let ranges: Vec<_> = ids.iter().flatten().filter_map(|id| self.range_of(id)).collect();
        let answer = match ranges.is_empty() {
            true => None,
            false => {
                let attempts = self.server.attempts(host, FIND);
                let answer = self.server.read(context, &TxnRequest::read(ranges), attempts).await;
                Some(answer.inspect_err(|failure| self.server.complain(host, *failure))?)
            }
        };
        let mut operation = 0_usize;
        let mut read = Vec::with_capacity(names.len());
        for (name, id) in names.into_iter().zip(ids) {
            let known = id.and_then(|id| {
                let found = answer.as_ref().and_then(|answer| answer.ranged(operation));
                operation = operation.saturating_add(1);
                let kv = found?.kvs.first()?;
                match self.open_named(kv, &id) {
                    Ok((known, _)) => Some((id, known)),
                    Err(failure) => {
                        self.server.complain(host, failure);
                        page.complete = false;
                        None
                    }
                }
            });
            read.push((name, known));
        }
        Ok(read)
    }
}
