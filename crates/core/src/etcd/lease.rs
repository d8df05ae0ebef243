//! Leases: what lets etcd forget a key in its time.
//!
//! All tokens that are minted within the same ten seconds share one lease, in whatever Envoy, and nobody has to
//! ask anybody for it: its number follows from the service and the time. A lease for each token would halve the
//! mints, and etcd lets go of a thousand a second at the most.

use std::time::Duration;

use super::proto::LeaseGrantRequest;
use crate::host::UnixTime;
use crate::secret::Digest;

/// The keys of this much time share a lease.
const BUCKET: Duration = Duration::from_secs(10);

/// How far the clocks of two Envoys may be apart. The one that is ahead makes the lease.
const MARGIN: Duration = Duration::from_secs(60);

/// The number of a lease ends with the time that it is for.
const BUCKET_BITS: u32 = 32;

/// When the keys of a lease were made, at the latest ten seconds after this.
pub(crate) fn made_at(lease: i64) -> UnixTime {
    let bucket = u32::try_from(lease & i64::from(u32::MAX)).unwrap_or_default();
    UnixTime::default().after(BUCKET.saturating_mul(bucket))
}

/// The leases of one service.
#[derive(Debug)]
pub(crate) struct Leases {
    /// What its leases begin with, other than those of every other service, and every other lifetime: while a
    /// configuration is rolled out, two are in use.
    service: u32,
    ttl: Duration,
}

impl Leases {
    /// The leases of what is kept below `folder`, each key of it for `kept`.
    pub(crate) fn new(folder: &str, kept: Duration) -> Self {
        let ttl = kept.saturating_add(BUCKET).saturating_add(MARGIN);
        let digest = Digest::of(format!("{folder}\n{}", ttl.as_secs()).as_bytes());
        let service = digest.as_bytes().first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
        // Without the sign, and never zero: etcd's own leases are positive, and zero is none.
        Self { service: (service >> 1).max(1), ttl }
    }

    /// The number of the lease for what is made at `now`: positive, as etcd's own are.
    pub(crate) fn id(&self, now: UnixTime) -> i64 {
        let bucket = now.secs().checked_div(BUCKET.as_secs()).unwrap_or_default();
        let bucket = u32::try_from(bucket).unwrap_or(u32::MAX);
        (i64::from(self.service) << BUCKET_BITS) | i64::from(bucket)
    }

    /// Asks for a lease.
    pub(crate) fn grant(&self, id: i64) -> LeaseGrantRequest {
        LeaseGrantRequest { ttl: i64::try_from(self.ttl.as_secs()).unwrap_or(i64::MAX), id }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFETIME: Duration = Duration::from_secs(600);

    #[test]
    fn all_envoys_name_the_lease_of_a_time_alike() {
        let id = |folder: &str, lifetime, millis| {
            Leases::new(folder, lifetime).id(UnixTime::from_millis(millis))
        };
        let first = id("/a/", LIFETIME, 1_790_000_000_000);
        assert_eq!(first, id("/a/", LIFETIME, 1_790_000_009_999), "the same ten seconds");
        let others = [
            id("/a/", LIFETIME, 1_790_000_010_000),
            id("/b/", LIFETIME, 1_790_000_000_000),
            id("/a/", LIFETIME * 2, 1_790_000_000_000),
        ];
        assert!(others.iter().all(|other| *other != first && *other > 0), "{others:?}");
        assert_eq!(made_at(first), UnixTime::from_millis(1_790_000_000_000));
    }

    #[test]
    fn a_key_is_kept_even_if_the_lease_is_as_old_as_its_bucket() {
        let leases = Leases::new("/a/", LIFETIME);
        let ttl = Duration::from_secs(u64::try_from(leases.grant(1).ttl).unwrap());
        assert!(ttl >= LIFETIME + BUCKET + MARGIN);
    }
}
