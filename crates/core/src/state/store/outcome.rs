//! The answers of a store: the state of a token, and the reasons why a token was not stored or not
//! spent.

use std::time::Duration;

use super::record::{Exchange, Grant, Mint, Record, State, is_current};
use super::review::{About, Choice, ChoiceRefused, Person, Review, Verdict};
use super::token::TokenId;
use crate::host::{Host, HostFailure, UnixTime, Version};
use crate::metrics;
use crate::secret::Digest;
use crate::state::remote::{LastRevocation, RemoteFailure, Revision};

/// How long the tokens of a store can be outstanding.
#[derive(Debug, Clone, Copy)]
pub struct Lifetimes {
    /// The lifetime of a token that nobody needs to decide about.
    pub usual: Duration,
    /// The longest lifetime of a token.
    pub longest: Duration,
}

impl From<Duration> for Lifetimes {
    fn from(all: Duration) -> Self {
        Self { usual: all, longest: all }
    }
}

/// The number of outstanding tokens in a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Occupancy {
    /// Tokens that are neither spent nor expired.
    pub outstanding: u32,
    /// The earliest expiry of these tokens.
    pub first_expiry: Option<UnixTime>,
}

impl Occupancy {
    /// Counts one more outstanding token.
    pub(crate) fn add(&mut self, expiry: UnixTime) {
        self.outstanding = self.outstanding.saturating_add(1);
        self.first_expiry = Some(self.first_expiry.map_or(expiry, |first| first.min(expiry)));
    }

    /// Sets the gauges of a store whose tokens live for `lifetime`.
    pub(crate) fn set_gauges(&self, host: &dyn Host, lifetime: Duration) {
        let left = self.first_expiry.map(|expiry| expiry.since(host.now()));
        let age = left.map(|left| lifetime.saturating_sub(left)).unwrap_or_default();
        host.set(metrics::OUTSTANDING, u64::from(self.outstanding));
        host.set(metrics::OLDEST_AGE, age.as_secs());
    }
}

/// A token that was found unspent and unexpired, with the version of its record: the right to try
/// to spend it once.
#[derive(Debug)]
pub struct Outstanding {
    pub(crate) seen: RecordVersion,
    pub(crate) digest: Digest,
    pub(crate) expires_at: UnixTime,
    /// The request that minted the token.
    pub mint: Mint,
    /// The rights that the token grants.
    pub grant: Grant,
    /// The decisions about the token; `None` if it needed none. All required decisions are there.
    pub review: Option<Box<Review>>,
}

/// The version of a record that was read. A spend succeeds only if the record still has it.
#[derive(Debug, Clone, Copy)]
pub enum RecordVersion {
    /// The record in this slot, in this version.
    Slot(u32, Version),
    /// The record of a remote store.
    Remote(SeenRemotely),
}

/// A record of a remote store, as it was read.
#[derive(Debug, Clone, Copy)]
pub struct SeenRemotely {
    /// The revision that wrote the record last. A spend replaces this one.
    pub(crate) modified: i64,
    /// The revision that minted the token.
    pub(crate) created: Revision,
    /// The number of writes to the record.
    pub(crate) version: i64,
    /// The lease that the record is on.
    pub(crate) lease: i64,
    /// How long the lease keeps the record.
    pub(crate) kept: Duration,
    /// The last revocation, read at the same moment.
    pub(crate) last_revocation: LastRevocation,
}

impl Outstanding {
    /// The id of the token: the one in the audit event of its mint.
    pub fn id(&self) -> TokenId {
        TokenId::new(&self.digest, self.slot())
    }

    /// The slot of the token; `None` for a token in a remote store.
    pub(crate) const fn slot(&self) -> Option<u32> {
        match self.seen {
            RecordVersion::Slot(slot, _) => Some(slot),
            RecordVersion::Remote(_) => None,
        }
    }

    /// The revision that minted the token; none for a token in a table of slots.
    pub fn created(&self) -> Revision {
        match &self.seen {
            RecordVersion::Slot(..) => Revision::default(),
            RecordVersion::Remote(seen) => seen.created,
        }
    }

    /// The last revocation of all, at the moment the token was found; `None` for a token in a slot.
    pub const fn last_revocation(&self) -> Option<LastRevocation> {
        match &self.seen {
            RecordVersion::Slot(..) => None,
            RecordVersion::Remote(seen) => Some(seen.last_revocation),
        }
    }
}

/// The state of a presented token.
#[derive(Debug)]
pub enum Found {
    /// The token can be exchanged.
    Outstanding(Outstanding),
    /// The token cannot be exchanged yet: somebody must decide about it.
    Waiting(Box<Known>),
    /// Somebody has decided that the token must not be exchanged.
    Denied(Mint, Grant),
    /// The token was exchanged before.
    Spent(Mint, Exchange),
    /// The token was taken back before it was exchanged.
    Cancelled(Mint),
    /// The token was not exchanged in time.
    Expired(Mint, Grant),
    /// There is no such token: it was never minted here, or its slot went to another token.
    Unknown,
}

impl Found {
    /// Reads the state of a token from its record. `outstanding` makes the right to spend it.
    pub(crate) fn read(
        known: Known,
        now: UnixTime,
        outstanding: impl FnOnce(Mint, Grant, Option<Box<Review>>) -> Outstanding,
    ) -> Self {
        let standing = known.standing(now);
        if standing == Standing::Pending {
            return Self::Waiting(Box::new(known));
        }
        let Record { mint, state, review, .. } = known.record;
        match state {
            State::Spent(exchange) => Self::Spent(mint, exchange),
            State::Cancelled => Self::Cancelled(mint),
            State::Outstanding(grant) => match standing {
                Standing::Denied => Self::Denied(mint, grant),
                Standing::Approved => Self::Outstanding(outstanding(mint, grant, review)),
                _ => Self::Expired(mint, grant),
            },
        }
    }
}

/// The state of a token, as people see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Somebody must decide about the token.
    Pending,
    /// The token can be exchanged.
    Approved,
    /// Somebody has decided that the token must not be exchanged.
    Denied,
    /// The token was exchanged.
    Exchanged,
    /// The token was not exchanged in time.
    Expired,
    /// The token was taken back.
    Cancelled,
}

impl Standing {
    /// The word for callers and approvers.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Denied => "denied",
            Self::Exchanged => "exchanged",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
        }
    }
}

/// A token that was looked up by its id, by somebody who need not hold it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    pub record: Record,
    pub expires_at: UnixTime,
    /// The revision that minted the token; none for a token in a table of slots.
    pub created: Revision,
}

impl Known {
    /// The state of the token.
    pub fn standing(&self, now: UnixTime) -> Standing {
        match &self.record.state {
            State::Spent(_) => Standing::Exchanged,
            State::Cancelled => Standing::Cancelled,
            State::Outstanding(_) if !is_current(&self.record.mint, self.expires_at, now) => {
                Standing::Expired
            }
            State::Outstanding(_) => match self.record.verdict() {
                Verdict::Pending => Standing::Pending,
                Verdict::Approved => Standing::Approved,
                Verdict::Denied => Standing::Denied,
            },
        }
    }

    /// Adds the choice of a person to the review of the token. Returns `None` if the review has
    /// this choice already. Nobody can decide about a token that has no review, has expired, is
    /// spent or taken back.
    pub fn with(
        &self,
        person: &Person<'_>,
        choice: Choice,
        now: UnixTime,
    ) -> Result<Option<Review>, ChoiceRefused> {
        let review = self.record.review.as_ref();
        let has_approved = review.is_some_and(|review| review.has_approval_of(person.name));
        let is_spent = matches!(self.record.state, State::Spent(_));
        if is_spent && choice == Choice::Approve && has_approved {
            return Ok(None);
        }
        let (about, review) = self.under_review(now).ok_or(ChoiceRefused::Decided)?;
        review.with(about, person, choice, now)
    }

    /// The request that minted the token.
    pub const fn mint(&self) -> &Mint {
        &self.record.mint
    }

    /// The user; `None` if the token is spent or taken back.
    pub fn user_id(&self) -> Option<&str> {
        match &self.record.state {
            State::Outstanding(grant) => Some(&grant.user_id),
            State::Spent(_) | State::Cancelled => None,
        }
    }

    /// Returns true if the token needs, or has, the consent of the person with this name.
    pub fn asks_consent_of(&self, name: &str) -> bool {
        let review = self.record.review.as_ref();
        review.is_some_and(|review| review.consent) && self.user_id() == Some(name)
    }

    /// Returns true if people decide about the token.
    pub const fn has_review(&self) -> bool {
        self.record.review.is_some()
    }

    /// The token as one that people can still decide about; `None` if it is no such token.
    fn under_review(&self, now: UnixTime) -> Option<(About<'_>, &Review)> {
        let State::Outstanding(grant) = &self.record.state else { return None };
        let mint = &self.record.mint;
        let is_current = is_current(mint, self.expires_at, now);
        let review = self.record.review.as_deref().filter(|_| is_current)?;
        let actor_id = mint.bounds.actor_id.as_deref();
        Some((About { caller: &mint.caller, user_id: &grant.user_id, actor_id }, review))
    }
}

/// The most tokens with a review that one caller may hold at one time, so that no caller fills the
/// store with tokens that nobody decides about.
pub const MOST_HELD: usize = 1000;

/// A token that waits for a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    pub id: TokenId,
    pub known: Known,
}

/// A part of the tokens that wait for a decision.
#[derive(Debug)]
pub struct WaitingPage {
    /// The tokens that were found.
    pub entries: Vec<Waiting>,
    /// The place where the next page begins, as the adapter writes it; `None` at the end.
    pub next: Option<String>,
    /// True if every token of this part could be read.
    pub complete: bool,
}

/// The result of taking a token back.
#[derive(Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// The token is taken back, and was never exchanged.
    Yes(Mint),
    /// An exchange was first.
    Spent(Mint, Exchange),
    /// There is no such token, or the caller may not take it back.
    NotTheirs,
}

/// The store could not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StoreFailure {
    /// Shared data or randomness failed.
    #[error(transparent)]
    Host(#[from] HostFailure),
    /// The remote store failed.
    #[error(transparent)]
    Remote(#[from] RemoteFailure),
}

/// A decision about a token was not written, as far as anybody knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotDecided {
    /// The store failed, and the decision was not written.
    #[error(transparent)]
    Store(StoreFailure),
    /// The store failed, and the decision may or may not have been written.
    #[error("it is not known whether the decision was written: {0}")]
    Unknown(RemoteFailure),
}

impl From<RemoteFailure> for NotDecided {
    fn from(failure: RemoteFailure) -> Self {
        Self::Store(failure.into())
    }
}

impl From<HostFailure> for NotDecided {
    fn from(failure: HostFailure) -> Self {
        Self::Store(failure.into())
    }
}

/// A token was not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotStored {
    /// Every slot holds an outstanding token.
    #[error("all slots hold outstanding tokens")]
    Full,
    /// The caller holds as many tokens with a review as it may.
    #[error("the caller holds as many tokens with a review as it may")]
    HoldsTooMany,
    /// Shared data or randomness failed.
    #[error(transparent)]
    Host(#[from] HostFailure),
    /// The remote store failed.
    #[error(transparent)]
    Remote(#[from] RemoteFailure),
}

/// A token was not spent.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotSpent {
    /// Another exchange was first.
    #[error("another exchange was first")]
    Already(Box<(Mint, Exchange)>),
    /// The token was taken back first.
    #[error("it was taken back during the exchange")]
    Cancelled,
    /// Another exchange was first, and since then the slot went to another token.
    #[error("another exchange was first, and nobody knows which any more")]
    Forgotten,
    /// The token expired between look-up and spending.
    #[error("it expired during the exchange")]
    Expired,
    /// The store failed, and the token was not spent.
    #[error(transparent)]
    Store(StoreFailure),
    /// The store failed, and the token may or may not have been spent.
    #[error("it is not known whether the token was spent: {0}")]
    Unknown(RemoteFailure),
}

impl From<RemoteFailure> for NotSpent {
    fn from(failure: RemoteFailure) -> Self {
        Self::Store(failure.into())
    }
}

impl From<HostFailure> for NotSpent {
    fn from(failure: HostFailure) -> Self {
        Self::Store(failure.into())
    }
}
