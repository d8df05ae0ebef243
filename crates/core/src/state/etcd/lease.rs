//! Leases, by which etcd removes keys when their time is over.
//!
//! All keys that one VM writes within the same ten seconds share one lease. A lease for each token
//! would halve the rate of mints, and etcd ends at most a thousand leases a second.
//!
//! Every user of etcd may grant leases, list them, and revoke a lease unless a key is on it that
//! the user may not write. So **a lease is used only if nobody else can end it and it lasts for as
//! long as was asked**:
//!
//! 1. The filter draws the number of the lease at random, so nobody can have granted it beforehand.
//! 2. The filter puts a key on the lease, its anchor, which is never moved or deleted. From then on
//!    only a user who may write the anchor can revoke the lease.
//! 3. The filter asks etcd how long the lease lasts and which keys are on it. This shows if
//!    somebody revoked the lease before the anchor was there, and granted the same number for a
//!    shorter time. The anchor in the answer proves that etcd answered after step 2, even if the
//!    node that answered is not the leader any more.
//!
//! Without the anchor, a lease would be open to everybody again once all of its keys were written
//! anew on another lease: a repeated revocation does that.

use std::cell::Cell;
use std::time::Duration;

use super::proto::{LeaseGrantRequest, LeaseTimeToLiveResponse, PutRequest};
use crate::host::{Host, HostFailure, UnixTime};

/// The keys that are written within this time share a lease.
const BUCKET: Duration = Duration::from_secs(10);

/// A lease lasts this much longer than it must, because some of its time passes before it is
/// verified.
const MARGIN: Duration = Duration::from_secs(60);

/// The low bits of a lease's number hold the ten seconds that it is for.
const BUCKET_BITS: u32 = 32;

/// The begin of the ten seconds in which the keys of a lease were written.
pub(crate) fn made_at(lease: i64) -> UnixTime {
    let bucket = u32::try_from(lease & i64::from(u32::MAX)).unwrap_or_default();
    UnixTime::default().after(BUCKET.saturating_mul(bucket))
}

/// The number of the ten seconds that `now` is in.
fn bucket(now: UnixTime) -> u32 {
    let bucket = now.secs().checked_div(BUCKET.as_secs()).unwrap_or_default();
    u32::try_from(bucket).unwrap_or(u32::MAX)
}

/// The time for which a key is needed. The lease lasts at least that long for each of its keys.
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

    /// The time until which the keys on a lease surely exist.
    pub(crate) fn until(self, lease: i64) -> UnixTime {
        made_at(lease).after(self.least())
    }

    /// The least time that a lease has left when it is verified.
    const fn least(self) -> Duration {
        self.duration().saturating_add(BUCKET)
    }
}

/// The leases that one VM makes for keys of one kind.
#[derive(Debug)]
pub(crate) struct Leases {
    /// The beginning of the keys of all anchors.
    anchors: String,
    kept: Kept,
    /// The last lease, for all keys that are written within its ten seconds.
    last: Cell<Option<Lease>>,
}

/// A lease of this VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) id: i64,
    /// True if the lease was verified: it lasts, and nobody else can end it.
    pub(crate) is_good: bool,
}

/// The result of verifying a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// The lease lasts, and nobody else can end it.
    Good,
    /// Another user of etcd has ended the lease or granted it anew.
    Changed,
    /// The node that answered does not know the anchor yet.
    TooEarly,
}

impl Leases {
    /// Creates the leases for keys that are needed for `kept`. Their anchors are in `folder`.
    pub(crate) fn new(folder: &str, kept: Duration) -> Self {
        Self { anchors: folder.to_owned(), kept: Kept::new(kept), last: Cell::default() }
    }

    /// The time for which these leases keep their keys.
    pub(crate) const fn kept(&self) -> Kept {
        self.kept
    }

    /// The lease for keys that are written now. A new one is drawn if there is none yet. All
    /// requests that ask before it is verified get the same lease, and each verifies it.
    pub(super) fn current(&self, host: &dyn Host) -> Result<Lease, HostFailure> {
        let bucket = bucket(host.now());
        let last =
            self.last.get().filter(|last| last.id & i64::from(u32::MAX) == i64::from(bucket));
        if let Some(last) = last {
            return Ok(last);
        }
        let mut drawn = [0; 4];
        host.random(&mut drawn)?;
        // Positive, as etcd's own leases are, and not zero, which means no lease.
        let drawn = (u32::from_be_bytes(drawn) >> 1).max(1);
        let id = (i64::from(drawn) << BUCKET_BITS) | i64::from(bucket);
        let lease = Lease { id, is_good: false };
        self.last.set(Some(lease));
        Ok(lease)
    }

    /// Notes that a lease was verified.
    pub(super) fn has_proved_good(&self, id: i64) {
        if self.last.get().is_some_and(|last| last.id == id) {
            self.last.set(Some(Lease { id, is_good: true }));
        }
    }

    /// Forgets a lease, so that the next one is drawn anew.
    pub(super) fn forget(&self, id: i64) {
        if self.last.get().is_some_and(|last| last.id == id) {
            self.last.set(None);
        }
    }

    /// The request that grants a lease.
    pub(super) fn grant(&self, id: i64) -> LeaseGrantRequest {
        let ttl = self.kept.least().saturating_add(MARGIN);
        LeaseGrantRequest { ttl: i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX), id }
    }

    /// The anchor of a lease, which keeps others from ending it.
    pub(super) fn anchor(&self, id: i64) -> PutRequest {
        PutRequest { key: self.anchor_key(id), lease: id, ..PutRequest::default() }
    }

    fn anchor_key(&self, id: i64) -> Vec<u8> {
        format!("{}{id:016x}", self.anchors).into_bytes()
    }

    /// Verifies a lease by etcd's answer.
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
    fn a_lease_is_good_if_it_lasts_as_asked_and_its_anchor_is_on_it() {
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
