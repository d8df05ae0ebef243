//! The failures of a store outside Envoy. Each worker logs a kind of failure at most once a minute,
//! however many requests fail. The metrics count all failures.

use std::cell::Cell;
use std::time::Duration;

use crate::host::{Host, HostFailure, UnixTime};
use crate::metrics;
use crate::step::GrpcStatus;

/// A failure of the store outside Envoy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RemoteFailure {
    /// Envoy did not send the call.
    #[error(
        "the call was not sent: there is no such cluster, no healthy endpoint, or too much traffic"
    )]
    NotSent,
    /// There was no answer in time, or the connection failed.
    #[error("etcd does not answer: {0}")]
    Unreachable(GrpcStatus),
    /// The store does not know this filter, or does not allow the call.
    #[error("etcd does not allow it, see its users and roles: {0}")]
    Forbidden(GrpcStatus),
    /// The quota of the store is full, or the store is overloaded.
    #[error("etcd is out of space or overloaded: gRPC status 8")]
    Exhausted,
    /// The store will not do this, now or later.
    #[error("etcd refuses the call: {0}")]
    Rejected(GrpcStatus),
    /// The answer does not speak the protocol of the store.
    #[error("the answer is not one of etcd's")]
    Malformed,
    /// A record is in a format that this version of the filter does not know.
    #[error("a record is not of a version that is known here")]
    UnknownRecord,
    /// A record is not the one that this service last wrote there.
    #[error(
        "a record was written or put back by somebody else, or with a signing key that is not listed here"
    )]
    Unauthentic,
    /// A lease is not as the filter granted it.
    #[error("somebody else has ended or changed a lease, see who may connect to etcd")]
    LeaseChanged,
    /// The host has no randomness: nothing was sent.
    #[error(transparent)]
    Host(HostFailure),
}

impl RemoteFailure {
    /// All values of [`Self::kind`].
    pub const KINDS: [&str; 9] = [
        "not_sent",
        "unreachable",
        "forbidden",
        "exhausted",
        "rejected",
        "malformed",
        "unknown_record",
        "unauthentic",
        "lease_changed",
    ];

    /// The label of this failure in metrics.
    pub const fn kind(self) -> &'static str {
        let [
            not_sent,
            unreachable,
            forbidden,
            exhausted,
            rejected,
            malformed,
            unknown_record,
            unauthentic,
            lease_changed,
        ] = Self::KINDS;
        match self {
            Self::NotSent | Self::Host(_) => not_sent,
            Self::Unreachable(_) => unreachable,
            Self::Forbidden(_) => forbidden,
            Self::Exhausted => exhausted,
            Self::Rejected(_) => rejected,
            Self::Malformed => malformed,
            Self::UnknownRecord => unknown_record,
            Self::Unauthentic => unauthentic,
            Self::LeaseChanged => lease_changed,
        }
    }
}

/// The time for which a kind of failure is not logged again.
const SILENCE: Duration = Duration::from_secs(60);

/// The time at which each kind of failure was last logged.
#[derive(Debug, Default)]
pub(crate) struct Complaints([Cell<UnixTime>; RemoteFailure::KINDS.len()]);

impl Complaints {
    /// Counts a failure, and logs it unless one of its kind was logged a moment ago.
    pub(crate) fn note(&self, host: &dyn Host, cluster: &str, failure: RemoteFailure) {
        host.count(metrics::store_failed(failure.kind()));
        let now = host.now();
        let place = RemoteFailure::KINDS.iter().position(|kind| *kind == failure.kind());
        let Some(last) = place.and_then(|place| self.0.get(place)) else { return };
        if !last.get().is_within(SILENCE, now) {
            last.set(now);
            host.warn(&format!("the store, cluster {cluster:?}: {failure}"));
        }
    }
}
