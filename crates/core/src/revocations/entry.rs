//! What an impersonation has, what a revocation asks for, and when one means the other.

use std::hash::Hasher as _;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use siphasher::sip128::{Hasher128 as _, SipHasher13};

use crate::host::UnixTime;
use crate::remote::Revision;
use crate::secret::Digest;

/// An impersonation, as far as a revocation can name it. An access token says all of it, so that who sees the token
/// needs to ask nobody.
#[derive(Debug, Clone, Copy)]
pub struct Impersonation<'a> {
    /// The subject token's id: `txn`.
    pub id: &'a str,
    /// Who is impersonated: `sub`.
    pub user_id: &'a str,
    /// Who acts: `act.sub`; `None` where nobody was named.
    pub actor_id: Option<&'a str>,
    /// The client that exchanged the subject token: `client_id`.
    pub client_id: &'a str,
    /// Who minted the subject token; `None` if that is not known.
    pub caller: Option<CallerTag>,
    /// Where the access token is good: `aud`.
    pub resource: &'a str,
}

/// Names a caller without saying who it is: 96 bits of its SHA-256.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallerTag([u8; Self::LEN]);

impl CallerTag {
    /// Its length in bytes.
    pub(crate) const LEN: usize = 12;

    /// The tag of a caller.
    pub fn of(caller: &str) -> Self {
        let digest = Digest::of(caller.as_bytes());
        Self(digest.as_bytes().first_chunk().copied().unwrap_or_default())
    }

    pub(crate) const fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        Self(bytes)
    }

    pub(crate) const fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// How far apart the clocks of two Envoys may be. Two that are further apart than this disagree with etcd, too, if
/// its revisions began anew: from a backup, or from nothing.
pub(crate) const CLOCKS_APART: Duration = Duration::from_secs(60);

/// When something was issued, as exactly as is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IssuedAt {
    /// At this millisecond.
    At(UnixTime),
    /// Somewhen in this second since the epoch: all that an `iat` says.
    Within(u64),
    /// When etcd was at this revision, at this millisecond of the clock of one Envoy of many.
    AtRevision(Revision, UnixTime),
}

/// Until when something has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct End {
    /// By the clock of the Envoy in which it was ended.
    pub time: UnixTime,
    /// The revision that this made of etcd; none where it was written into one Envoy's shared data.
    pub revision: Revision,
}

impl IssuedAt {
    /// At this time, when etcd was at this revision, if it was there.
    pub const fn new(time: UnixTime, revision: Revision) -> Self {
        if revision.is_some() { Self::AtRevision(revision, time) } else { Self::At(time) }
    }

    /// Whether it was, or may have been, issued until `end`.
    ///
    /// Between two Envoys, whose clocks differ, the revisions decide, unless the clocks differ by more than they
    /// may: then the revisions are not of one history, and the time decides.
    pub fn is_until(self, end: End) -> bool {
        match self {
            Self::At(time) => time <= end.time,
            Self::Within(second) => second <= end.time.secs(),
            Self::AtRevision(revision, time) if end.revision.is_some() => {
                revision < end.revision || time.after(CLOCKS_APART) <= end.time
            }
            Self::AtRevision(_, time) => time <= end.time,
        }
    }
}

impl End {
    /// In one Envoy.
    pub fn at(time: UnixTime) -> Self {
        Self { time, ..Self::default() }
    }

    /// Whatever one of the two ends.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self { time: self.time.max(other.time), revision: self.revision.max(other.revision) }
    }

    /// Whether `other` ends all that this ends.
    pub(crate) fn is_within(self, other: Self) -> bool {
        self.time <= other.time && self.revision <= other.revision
    }
}

/// What is to end: every impersonation that has all members that are given. With none of them that is every one.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Revocation {
    /// The one with this id.
    pub id: Option<String>,
    /// Those of this user.
    pub user_id: Option<String>,
    /// Those in which this user acts.
    pub actor_id: Option<String>,
    /// Those of this client.
    pub client_id: Option<String>,
    /// Those whose subject token this caller minted.
    pub caller: Option<String>,
    /// Those that are good at this resource.
    pub resource: Option<String>,
}

/// Somebody who ends what is their own, and who has a share of the table for it. Operators have all the rest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Owner {
    /// The caller with this name, which takes its subject tokens back.
    Caller(String),
    /// The client with this id, which revokes its tokens, or presents one that is spent.
    Client(String),
}

impl Owner {
    /// The revocation of all that is this owner's.
    pub fn everything(&self) -> Revocation {
        match self {
            Self::Caller(caller) => {
                Revocation { caller: Some(caller.clone()), ..Revocation::default() }
            }
            Self::Client(client_id) => {
                Revocation { client_id: Some(client_id.clone()), ..Revocation::default() }
            }
        }
    }
}

/// A revocation that was read from etcd.
#[derive(Debug, Clone)]
pub(crate) struct Learned {
    pub(crate) revocation: Revocation,
    pub(crate) end: End,
    /// Whose share it is of; `None` for an operator's.
    pub(crate) owner: Option<Owner>,
}

/// The key of a table's hashes.
pub(crate) type Key = [u8; 16];

/// What an entry of a table is found by: a hash of the members that are given, and of which those are.
pub(crate) type Name = [u8; 16];

/// Which members are given, a bit for each.
pub(crate) type Mask = u8;

const ID: Mask = 1;
const USER: Mask = 2;
const ACTOR: Mask = 4;
const CLIENT: Mask = 8;
pub(crate) const CALLER: Mask = 16;
const RESOURCE: Mask = 32;

/// One more than the highest mask.
pub(crate) const MASKS: u8 = 64;

impl Revocation {
    /// The one impersonation with this id.
    pub fn of_id(id: &str) -> Self {
        Self { id: Some(id.to_owned()), ..Self::default() }
    }

    /// Which members are given; zero if this is for everyone.
    pub(crate) fn mask(&self) -> Mask {
        let given = [
            (ID, &self.id),
            (USER, &self.user_id),
            (ACTOR, &self.actor_id),
            (CLIENT, &self.client_id),
            (CALLER, &self.caller),
            (RESOURCE, &self.resource),
        ];
        given
            .into_iter()
            .filter(|(_, member)| member.is_some())
            .fold(0, |mask, (bit, _)| mask | bit)
    }

    pub(crate) fn name(&self, key: &Key) -> Name {
        let caller = self.caller.as_deref().map(CallerTag::of);
        let members = [
            self.id.as_deref().map(str::as_bytes),
            self.user_id.as_deref().map(str::as_bytes),
            self.actor_id.as_deref().map(str::as_bytes),
            self.client_id.as_deref().map(str::as_bytes),
            caller.as_ref().map(CallerTag::as_bytes),
            self.resource.as_deref().map(str::as_bytes),
        ];
        name(key, self.mask(), members.into_iter().flatten())
    }
}

impl Impersonation<'_> {
    /// The name that an entry with the members of `mask` has if it means this one; `None` where this one lacks a
    /// member that is known not to be there, or whose value is not known.
    pub(crate) fn name(&self, key: &Key, mask: Mask) -> Option<Name> {
        let members = [
            (ID, Some(self.id.as_bytes())),
            (USER, Some(self.user_id.as_bytes())),
            (ACTOR, self.actor_id.map(str::as_bytes)),
            (CLIENT, Some(self.client_id.as_bytes())),
            (CALLER, self.caller.as_ref().map(CallerTag::as_bytes)),
            (RESOURCE, Some(self.resource.as_bytes())),
        ];
        let given = || members.into_iter().filter(|(bit, _)| mask & bit != 0);
        if given().any(|(_, member)| member.is_none()) {
            return None;
        }
        Some(name(key, mask, given().filter_map(|(_, member)| member)))
    }
}

/// SipHash with a key that nobody outside knows: nobody can look for two names that are the same. Each member comes
/// with its length, so that no two lists of members are one text.
fn name<'a>(key: &Key, mask: Mask, members: impl Iterator<Item = &'a [u8]>) -> Name {
    let mut hasher = SipHasher13::new_with_key(key);
    hasher.write(&[mask]);
    for member in members {
        hasher.write(&u64::try_from(member.len()).unwrap_or(u64::MAX).to_le_bytes());
        hasher.write(member);
    }
    hasher.finish128().as_u128().to_be_bytes()
}
