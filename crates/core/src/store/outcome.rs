//! The answers of a store: the state of a token, and the reasons why a token was not stored or not
//! spent.

use std::time::Duration;

use super::record::{Exchange, Grant, Mint};
use super::token::TokenId;
use crate::host::{Host, HostFailure, UnixTime, Version};
use crate::metrics;
use crate::remote::{LastRevocation, RemoteFailure, Revision};
use crate::secret::Digest;

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
    pub(crate) seen: Seen,
    pub(crate) digest: Digest,
    pub(crate) expires_at: UnixTime,
    /// The request that minted the token.
    pub mint: Mint,
    /// The rights that the token grants.
    pub grant: Grant,
}

/// The version of a record that was read. A spend succeeds only if the record still has it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Seen {
    /// The record in this slot, in this version.
    Slot(u32, Version),
    /// The record of a remote store.
    Remote(SeenRemotely),
}

/// A record of a remote store, as it was read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SeenRemotely {
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
    pub(crate) fn id(&self) -> TokenId {
        TokenId::new(&self.digest, self.slot())
    }

    /// The slot of the token; `None` for a token in a remote store.
    pub(crate) const fn slot(&self) -> Option<u32> {
        match self.seen {
            Seen::Slot(slot, _) => Some(slot),
            Seen::Remote(_) => None,
        }
    }

    /// The revision that minted the token; none for a token in a table of slots.
    pub(crate) fn created(&self) -> Revision {
        match &self.seen {
            Seen::Slot(..) => Revision::default(),
            Seen::Remote(seen) => seen.created,
        }
    }

    /// The last revocation of all, at the moment the token was found; `None` for a token in a slot.
    pub(crate) const fn last_revocation(&self) -> Option<LastRevocation> {
        match &self.seen {
            Seen::Slot(..) => None,
            Seen::Remote(seen) => Some(seen.last_revocation),
        }
    }

    /// Returns true if the token was found in a table of slots.
    pub(crate) const fn is_in_a_slot(&self) -> bool {
        self.slot().is_some()
    }
}

/// The state of a presented token.
#[derive(Debug)]
pub enum Found {
    /// The token can be exchanged.
    Outstanding(Outstanding),
    /// The token was exchanged before.
    Spent(Mint, Exchange),
    /// The token was taken back before it was exchanged.
    Cancelled(Mint),
    /// The token was not exchanged in time.
    Expired(Mint, Grant),
    /// There is no such token: it was never minted here, or its slot went to another token.
    Unknown,
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

/// A token was not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotStored {
    /// Every slot holds an outstanding token.
    #[error("all slots hold outstanding tokens")]
    Full,
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
