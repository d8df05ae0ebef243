//! The members of an impersonation, the members that a revocation names, and when the two match.

use std::hash::Hasher as _;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use siphasher::sip128::{Hasher128 as _, SipHasher13};

use super::happened::{Extent, Happened};
use crate::host::UnixTime;
use crate::secret::Digest;
use crate::state::remote::Revision;

/// The members of an impersonation that a revocation can name. An access token contains all of
/// them, so a reader of the token needs no other source.
#[derive(Debug, Clone, Copy)]
pub struct Impersonation<'a> {
    /// The subject token's id: `txn`.
    pub id: &'a str,
    /// The user who is impersonated: `sub`.
    pub user_id: &'a str,
    /// The acting user: `act.sub`; `None` if there is none.
    pub actor_id: Option<&'a str>,
    /// The client that exchanged the subject token: `client_id`.
    pub client_id: &'a str,
    /// The caller that minted the subject token; `None` if it is not known.
    pub caller: Option<CallerTag>,
    /// The resource at which the access token is good: `aud`.
    pub resource: &'a str,
    /// The session in which the acting user signed in: `act.sid`; `None` if it is not known.
    pub session: Option<&'a str>,
    /// The time at which the actor token was issued, by its issuer's clock; `None` if it is not
    /// known. Only events look at it.
    pub actor_since: Option<UnixTime>,
}

#[cfg(test)]
impl<'a> Impersonation<'a> {
    /// An impersonation by this actor, who signed in in this session.
    pub(crate) fn by(actor: &'a str, session: &'a str) -> Self {
        Impersonation {
            id: "id",
            user_id: "user",
            actor_id: Some(actor),
            client_id: "client",
            caller: None,
            resource: "resource",
            session: Some(session),
            actor_since: None,
        }
    }
}

/// A name for a caller that does not reveal the caller: 96 bits of its SHA-256.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallerTag([u8; Self::LEN]);

impl CallerTag {
    /// The length of a tag in bytes.
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

/// The most by which the clocks of two Envoys may differ. If a token's time is further than this
/// before a revocation, the revisions of the two are not of one history: the store was restored
/// from a backup, or began empty.
pub const CLOCKS_APART: Duration = Duration::from_secs(60);

/// The time at which a token was issued, as exactly as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IssuedAt {
    /// At this millisecond.
    At(UnixTime),
    /// Within this second since the epoch, which is all that an `iat` says.
    Within(u64),
    /// At this revision of the remote store, and at this millisecond by the clock of the Envoy that
    /// issued it.
    AtRevision(Revision, UnixTime),
}

/// The order in which a store puts tokens and revocations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The clock of one Envoy.
    Clock,
    /// The revisions of a remote store.
    Revisions,
}

/// The moment until which a revocation ends what it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct End {
    /// The time, by the clock of the Envoy that revoked.
    pub time: UnixTime,
    /// The revision of the revocation in a remote store; none if the revocation is in one Envoy
    /// alone.
    pub revision: Revision,
}

impl IssuedAt {
    /// At this time, and at this revision of a remote store if there is one.
    pub const fn new(time: UnixTime, revision: Revision) -> Self {
        if revision.is_some() { Self::AtRevision(revision, time) } else { Self::At(time) }
    }

    /// Returns true if the token was issued while a store with this order was in use.
    pub(super) fn is_in(self, order: Order) -> bool {
        match self {
            Self::At(_) | Self::Within(_) => order == Order::Clock,
            Self::AtRevision(..) => order == Order::Revisions,
        }
    }

    /// Returns true if the token may have been issued until that time, by its clock alone.
    pub(crate) const fn is_until_time(self, time: UnixTime) -> bool {
        match self {
            Self::At(issued) | Self::AtRevision(_, issued) => issued.millis() <= time.millis(),
            Self::Within(second) => second <= time.secs(),
        }
    }

    /// Returns true if an event ends the token, or may end it. The event happened at `at` by its
    /// sender's clock, and its row has this end.
    ///
    /// Both must say so: the time, because a token of a later sign-in is good, and the revision,
    /// because the event says nothing about what began after it arrived. If the revisions are not
    /// of one history, the time decides.
    pub(crate) fn is_until_event(self, at: UnixTime, end: End) -> bool {
        self.is_until_time(end.time)
            && match self {
                Self::AtRevision(revision, time) if end.revision.is_some() => {
                    revision < end.revision || time.after(CLOCKS_APART) <= at
                }
                _ => true,
            }
    }

    /// Returns true if the token was, or may have been, issued until `end`.
    ///
    /// Revisions decide if both sides have one, because the clocks of two Envoys differ. If the
    /// times differ by more than clocks may, the revisions are not of one history, and the time
    /// decides.
    pub(crate) fn is_until(self, end: End) -> bool {
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
    /// The end at this time, in one Envoy.
    pub fn at(time: UnixTime) -> Self {
        Self { time, ..Self::default() }
    }

    /// The end of an event at that time, which differs from it by no more than clocks may.
    #[must_use]
    pub(super) fn near(self, at: UnixTime) -> Self {
        Self { time: self.time.clamp(at.before(CLOCKS_APART), at.after(CLOCKS_APART)), ..self }
    }

    /// The end that covers everything that one of the two ends.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self { time: self.time.max(other.time), revision: self.revision.max(other.revision) }
    }

    /// Returns true if `other` ends everything that this ends.
    pub(crate) fn is_within(self, other: Self) -> bool {
        self.time <= other.time && self.revision <= other.revision
    }
}

/// A revocation ends every impersonation that has all members that are given here. Without members
/// it ends every impersonation.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Revocation {
    /// The impersonation with this id.
    pub id: Option<String>,
    /// The impersonations of this user.
    pub user_id: Option<String>,
    /// The impersonations in which this user acts.
    pub actor_id: Option<String>,
    /// The impersonations of this client.
    pub client_id: Option<String>,
    /// The impersonations whose subject token this caller minted.
    pub caller: Option<String>,
    /// The impersonations that are good at this resource.
    pub resource: Option<String>,
    /// The impersonations whose acting user signed in with this session.
    pub session: Option<String>,
}

/// A caller or a client, which may end its own impersonations and has a share of the table for
/// that. The rest of the table is the operators'.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Owner {
    /// The caller with this name, which takes back its subject tokens.
    Caller(String),
    /// The client with this id, which revokes its tokens, or presents a spent one.
    Client(String),
}

impl Owner {
    /// The revocation of all impersonations of this owner.
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

/// A revocation that was read from the remote store.
#[derive(Debug, Clone)]
pub struct Learned {
    pub(crate) revocation: Revocation,
    pub(crate) end: End,
    /// The owner whose share it takes room in; `None` for an operator's revocation.
    pub(crate) owner: Option<Owner>,
    /// The event that made it, if one did.
    pub(crate) event: Option<Happened>,
}

/// The secret key of the hashes of a table.
pub(crate) type Key = [u8; 16];

/// The name of a row of a table: a hash of the members that are given, and of which members these
/// are.
pub(crate) type Name = [u8; 16];

/// The members that are given, one bit for each.
pub(crate) type Mask = u16;

const ID: Mask = 1;
const USER: Mask = 2;
pub(crate) const ACTOR: Mask = 4;
const CLIENT: Mask = 8;
pub(crate) const CALLER: Mask = 16;
const RESOURCE: Mask = 32;
pub(crate) const SESSION: Mask = 64;

/// The row was made by an event, and not by a revocation.
pub(crate) const EVENT: Mask = 128;

/// The row stands for events about sessions of the actor whom it names.
pub(crate) const SESSIONS: Mask = 256;

impl Revocation {
    /// The one impersonation with this id.
    pub fn of_id(id: &str) -> Self {
        Self { id: Some(id.to_owned()), ..Self::default() }
    }

    /// The members that are given; zero for a revocation of everyone.
    pub(crate) fn mask(&self) -> Mask {
        let given = [
            (ID, &self.id),
            (USER, &self.user_id),
            (ACTOR, &self.actor_id),
            (CLIENT, &self.client_id),
            (CALLER, &self.caller),
            (RESOURCE, &self.resource),
            (SESSION, &self.session),
        ];
        given
            .into_iter()
            .filter(|(_, member)| member.is_some())
            .fold(0, |mask, (bit, _)| mask | bit)
    }

    pub(crate) fn name(&self, key: &Key) -> Name {
        self.name_with(key, self.mask())
    }

    /// The members that are given, and the marks of an event of this extent.
    pub(crate) fn event_mask(&self, extent: Extent) -> Mask {
        let sessions = if extent == Extent::SessionsOfPerson { SESSIONS } else { 0 };
        self.mask() | EVENT | sessions
    }

    /// The name of the row of events of this extent that end what this names.
    pub(crate) fn event_name(&self, key: &Key, extent: Extent) -> Name {
        self.name_with(key, self.event_mask(extent))
    }

    /// The revocation of the impersonations in which this person acts.
    pub(crate) fn of_actor(person: &str) -> Self {
        Self { actor_id: Some(person.to_owned()), ..Self::default() }
    }

    fn name_with(&self, key: &Key, mask: Mask) -> Name {
        let caller = self.caller.as_deref().map(CallerTag::of);
        let members = [
            self.id.as_deref().map(str::as_bytes),
            self.user_id.as_deref().map(str::as_bytes),
            self.actor_id.as_deref().map(str::as_bytes),
            self.client_id.as_deref().map(str::as_bytes),
            caller.as_ref().map(CallerTag::as_bytes),
            self.resource.as_deref().map(str::as_bytes),
            self.session.as_deref().map(str::as_bytes),
        ];
        name(key, mask, members.into_iter().flatten())
    }
}

/// The people whose tokens an event may end before they are exchanged.
#[derive(Debug, Clone, Copy)]
pub struct Concerned<'a> {
    /// The actor.
    pub actor_id: Option<&'a str>,
    /// The session in which the actor signed in.
    pub session: Option<&'a str>,
    /// The user.
    pub user_id: Option<&'a str>,
}

impl Concerned<'_> {
    /// The names of the rows of all events that concern these people.
    pub(crate) fn names(&self, key: &Key) -> impl Iterator<Item = Name> {
        let Self { actor_id, session, user_id } = *self;
        let both = actor_id.zip(session);
        let of = |members: &[&str], mask| {
            let members = members.iter().map(|member| member.as_bytes());
            name(key, mask | EVENT, members)
        };
        let names = [
            user_id.map(|user| of(&[user], USER)),
            actor_id.map(|actor| of(&[actor], ACTOR)),
            actor_id.map(|actor| of(&[actor], ACTOR | SESSIONS)),
            session.map(|session| of(&[session], SESSION)),
            both.map(|(actor, session)| of(&[actor, session], ACTOR | SESSION)),
        ];
        names.into_iter().flatten()
    }
}

impl Impersonation<'_> {
    /// The name of a row with the members of `mask` that matches this impersonation; `None` if this
    /// impersonation lacks one of these members, or its value is not known.
    pub(crate) fn name(&self, key: &Key, mask: Mask) -> Option<Name> {
        let members = [
            (ID, Some(self.id.as_bytes())),
            (USER, Some(self.user_id.as_bytes())),
            (ACTOR, self.actor_id.map(str::as_bytes)),
            (CLIENT, Some(self.client_id.as_bytes())),
            (CALLER, self.caller.as_ref().map(CallerTag::as_bytes)),
            (RESOURCE, Some(self.resource.as_bytes())),
            (SESSION, self.session.map(str::as_bytes)),
        ];
        let given = || members.into_iter().filter(|(bit, _)| mask & bit != 0);
        if given().any(|(_, member)| member.is_none()) {
            return None;
        }
        Some(name(key, mask, given().filter_map(|(_, member)| member)))
    }
}

/// Hashes members with SipHash. Nobody outside knows the key, so nobody can search for two names
/// that are the same. Each member comes with its length, so two lists of members never are the same
/// bytes.
fn name<'a>(key: &Key, mask: Mask, members: impl Iterator<Item = &'a [u8]>) -> Name {
    let mut hasher = SipHasher13::new_with_key(key);
    hasher.write(&mask.to_le_bytes());
    for member in members {
        hasher.write(&u64::try_from(member.len()).unwrap_or(u64::MAX).to_le_bytes());
        hasher.write(member);
    }
    hasher.finish128().as_u128().to_be_bytes()
}
