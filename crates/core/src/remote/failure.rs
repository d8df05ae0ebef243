//! What etcd can do wrong, and what the operator hears of it: each kind once a minute at the most in each
//! worker, however many requests it fails. The metrics count them all.

use std::cell::Cell;
use std::time::Duration;

use crate::host::{Host, HostFailure, UnixTime};
use crate::metrics;
use crate::step::GrpcStatus;

/// Why etcd was of no use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RemoteFailure {
    /// Envoy did not send the call.
    #[error(
        "the call was not sent: there is no such cluster, no healthy endpoint, or too much traffic"
    )]
    NotSent,
    /// Nobody answered in time, or the connection failed.
    #[error("etcd does not answer: {0}")]
    Unreachable(GrpcStatus),
    /// It does not know us, or does not let us.
    #[error("etcd does not allow it, see its users and roles: {0}")]
    Forbidden(GrpcStatus),
    /// Its quota is full, or it has too much to do.
    #[error("etcd is out of space or overloaded: gRPC status 8")]
    Exhausted,
    /// It will not do this, now or later.
    #[error("etcd refuses the call: {0}")]
    Rejected(GrpcStatus),
    /// What answered does not speak as etcd does.
    #[error("the answer is not one of etcd's")]
    Malformed,
    /// What is kept under the token's key was not written by this version of the filter.
    #[error("a record is not of a version that is known here")]
    UnknownRecord,
    /// What is kept there is not what this service has written there last.
    #[error(
        "a record was written or put back by somebody else, or with a signing key that is not listed here"
    )]
    Unauthentic,
    /// A lease is not as it was granted.
    #[error("somebody else has ended or changed a lease, see who may connect to etcd")]
    LeaseChanged,
    /// The host has no randomness: nothing was sent.
    #[error(transparent)]
    Host(HostFailure),
}

impl RemoteFailure {
    /// The words of [`Self::kind`].
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

    /// A word for metrics.
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

/// How long a kind of failure is not spoken of again.
const SILENCE: Duration = Duration::from_secs(60);

/// When each kind of failure was last spoken of.
#[derive(Debug, Default)]
pub(crate) struct Complaints([Cell<UnixTime>; RemoteFailure::KINDS.len()]);

impl Complaints {
    /// Counts a failure, and tells the operator unless that was done a moment ago.
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
