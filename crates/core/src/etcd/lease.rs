//! Leases: what lets etcd forget a key in its time.
//!
//! All keys that one VM writes within the same ten seconds share one lease: a lease for each token would halve the
//! mints, and etcd lets go of a thousand a second at the most.
//!
//! etcd lets any of its users grant leases, list them, and revoke those on which no key hangs that the user may not
//! write. So **a lease is used only if nobody else can end it, and it lasts for as long as was asked**:
//!
//! 1. Its number is drawn at random, so that nobody can have granted it beforehand.
//! 2. A key is put on it, its anchor, which is never moved or deleted. From then on only who may write that key can
//!    revoke the lease.
//! 3. etcd is asked how long it lasts and what hangs on it. Whoever revoked it before the anchor was there, and
//!    granted the same number for a shorter time, shows here. The anchor in the answer says that the question came
//!    after it, even if a node answered that does not lead any more.
//!
//! Without the anchor a lease would be anybody's again once all that hangs on it was written anew elsewhere, as
//! a revocation is that is repeated.

use std::cell::Cell;
use std::time::Duration;

use super::proto::{LeaseGrantRequest, LeaseTimeToLiveResponse, PutRequest};
use crate::host::{Host, HostFailure, UnixTime};

/// The keys of this much time share a lease.
const BUCKET: Duration = Duration::from_secs(10);

/// What a lease lasts longer than it has to: until it is looked at, a part of its time is over.
const MARGIN: Duration = Duration::from_secs(60);

/// The number of a lease ends with the time that it is for.
const BUCKET_BITS: u32 = 32;

/// When the keys of a lease were made, at the latest ten seconds after this.
pub(crate) fn made_at(lease: i64) -> UnixTime {
    let bucket = u32::try_from(lease & i64::from(u32::MAX)).unwrap_or_default();
    UnixTime::default().after(BUCKET.saturating_mul(bucket))
}

/// The ten seconds that a time is in.
fn bucket(now: UnixTime) -> u32 {
    let bucket = now.secs().checked_div(BUCKET.as_secs()).unwrap_or_default();
    u32::try_from(bucket).unwrap_or(u32::MAX)
}

/// For how long a key is needed. Its lease lasts at least that long, for each key of its ten seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kept {
    seconds: u32,
}

impl Kept {
    pub(crate) fn new(kept: Duration) -> Self {
        Self { seconds: u32::try_from(kept.as_secs()).unwrap_or(u32::MAX) }
    }

    pub(crate) const fn duration(self) -> Duration {
        Duration::from_secs(self.seconds as u64)
    }

    pub(crate) const fn from_bytes(bytes: [u8; 4]) -> Self {
        Self { seconds: u32::from_le_bytes(bytes) }
    }

    pub(crate) const fn to_bytes(self) -> [u8; 4] {
        self.seconds.to_le_bytes()
    }

    /// Until when what hangs on such a lease is there.
    pub(crate) fn until(self, lease: i64) -> UnixTime {
        made_at(lease).after(self.least())
    }

    /// What is left of a lease at least when it is looked at first.
    const fn least(self) -> Duration {
        self.duration().saturating_add(BUCKET)
    }
}

/// The leases that one VM makes for keys of one kind.
#[derive(Debug)]
pub(crate) struct Leases {
    /// Where the anchors are: what the key of every one begins with.
    anchors: String,
    kept: Kept,
    /// The last one, for all who write within its ten seconds.
    last: Cell<Option<Lease>>,
}

/// A lease of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) id: i64,
    /// Whether it was found to last, and to be nobody else's.
    pub(crate) is_good: bool,
}

/// What a look at a lease has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// It lasts, and nobody else can end it.
    Good,
    /// Somebody else has ended it or granted it anew.
    Changed,
    /// Whoever answered has not heard of the anchor yet.
    TooEarly,
}

impl Leases {
    /// For keys of which each is needed for `kept`, with the anchors in `folder`.
    pub(crate) fn new(folder: &str, kept: Duration) -> Self {
        Self { anchors: folder.to_owned(), kept: Kept::new(kept), last: Cell::default() }
    }

    /// How long they last.
    pub(crate) const fn kept(&self) -> Kept {
        self.kept
    }

    /// The lease for what is written now. It is drawn where there is none yet, and all who ask before it is found good
    /// get the same one: each then makes sure of it, and there is one lease all the same.
    pub(super) fn current(&self, host: &dyn Host) -> Result<Lease, HostFailure> {
        let bucket = bucket(host.now());
        let last =
            self.last.get().filter(|last| last.id & i64::from(u32::MAX) == i64::from(bucket));
        if let Some(last) = last {
            return Ok(last);
        }
        let mut drawn = [0; 4];
        host.random(&mut drawn)?;
        // Without the sign, and never zero: etcd's own leases are positive, and zero is none.
        let drawn = (u32::from_be_bytes(drawn) >> 1).max(1);
        let id = (i64::from(drawn) << BUCKET_BITS) | i64::from(bucket);
        let lease = Lease { id, is_good: false };
        self.last.set(Some(lease));
        Ok(lease)
    }

    /// Lets the others know that a lease is good.
    pub(super) fn has_proved_good(&self, id: i64) {
        if self.last.get().is_some_and(|last| last.id == id) {
            self.last.set(Some(Lease { id, is_good: true }));
        }
    }

    /// Draws another one next time.
    pub(super) fn forget(&self, id: i64) {
        if self.last.get().is_some_and(|last| last.id == id) {
            self.last.set(None);
        }
    }

    /// Asks for a lease.
    pub(super) fn grant(&self, id: i64) -> LeaseGrantRequest {
        let ttl = self.kept.least().saturating_add(MARGIN);
        LeaseGrantRequest { ttl: i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX), id }
    }

    /// What keeps others from ending it.
    pub(super) fn anchor(&self, id: i64) -> PutRequest {
        PutRequest { key: self.anchor_key(id), lease: id, ..PutRequest::default() }
    }

    fn anchor_key(&self, id: i64) -> Vec<u8> {
        format!("{}{id:016x}", self.anchors).into_bytes()
    }

    /// Whether it can be used.
    pub(super) fn look_at(&self, id: i64, answer: &LeaseTimeToLiveResponse) -> Seen {
        let least = self.kept.least();
        let left = u64::try_from(answer.ttl).map_or(Duration::ZERO, Duration::from_secs);
        if answer.id != id || left < least || left > least.saturating_add(MARGIN) {
            Seen::Changed
        } else if answer.keys.contains(&self.anchor_key(id)) {
            Seen::Good
        } else {
            Seen::TooEarly
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT: Duration = Duration::from_secs(600);

    fn look_at(id: i64, ttl: i64, keys: &[&str]) -> Seen {
        let keys = keys.iter().map(|key| key.as_bytes().to_vec()).collect();
        let answer =
            LeaseTimeToLiveResponse { id, ttl, keys, ..LeaseTimeToLiveResponse::default() };
        Leases::new("/leases/a/", KEPT).look_at(7, &answer)
    }

    #[test]
    fn a_lease_is_good_if_it_lasts_as_asked_and_its_anchor_hangs_on_it() {
        let leases = Leases::new("/leases/a/", KEPT);
        let (asked, anchor) = (leases.grant(7).ttl, leases.anchor(7));
        assert_eq!((asked, anchor.lease), (670, 7));
        let anchor = str::from_utf8(&anchor.key).unwrap();
        #[rustfmt::skip]
        let cases = [
            ("as it was granted",           7, asked,     &[anchor][..],          Seen::Good),
            ("looked at late",              7, 610,       &["other", anchor][..], Seen::Good),
            ("shorter than a key needs",    7, 609,       &[anchor][..],          Seen::Changed),
            ("granted anew by a stranger",  7, 12,        &[anchor][..],          Seen::Changed),
            ("so that it is never let go",  7, asked + 1, &[anchor][..],          Seen::Changed),
            ("gone",                        7, -1,        &[][..],                      Seen::Changed),
            ("another one",                 8, asked,     &[anchor][..],          Seen::Changed),
            ("seen before the anchor came", 7, asked,     &["other"][..],              Seen::TooEarly),
        ];
        for (case, id, ttl, keys, expected) in cases {
            assert_eq!(look_at(id, ttl, keys), expected, "{case}");
        }
    }

    #[test]
    fn a_lease_says_when_its_keys_were_made() {
        let now = UnixTime::from_millis(1_790_000_009_999);
        let id = (1 << BUCKET_BITS) | i64::from(bucket(now));
        assert_eq!(made_at(id), UnixTime::from_millis(1_790_000_000_000));
    }
}
